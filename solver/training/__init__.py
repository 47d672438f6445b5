"""From a graph, or from explicit operations, to the reference program of one training iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.late import loaded_late
from solver.training.derive import derive
from solver.training.storage import STORAGE_TYPES, with_storage

if TYPE_CHECKING:
    from solver.training.blocks import (
        BlockClass,
        Carry,
        Hazard,
        Ordering,
        ValueEdge,
        block_classes,
        carries,
        explicit_program,
        orderings,
        predecessors,
        value_edges,
    )
    from solver.training.explicit import (
        Block,
        BlockOperation,
        BlockProgram,
        BlockView,
        OperationCost,
        build_program,
        program_digest,
    )

__all__ = [
    "STORAGE_TYPES",
    "Block",
    "BlockClass",
    "BlockOperation",
    "BlockProgram",
    "BlockView",
    "Carry",
    "Hazard",
    "OperationCost",
    "Ordering",
    "ValueEdge",
    "block_classes",
    "build_program",
    "carries",
    "derive",
    "explicit_program",
    "orderings",
    "predecessors",
    "program_digest",
    "value_edges",
    "with_storage",
]

#: Names for explicit programs, loaded late: plans of graphs do without them.
__getattr__ = loaded_late(
    __name__,
    {
        "blocks": "BlockClass Carry Hazard Ordering ValueEdge block_classes carries explicit_program"
        " orderings predecessors value_edges",
        "explicit": "Block BlockOperation BlockProgram BlockView OperationCost build_program program_digest",
    },
)
