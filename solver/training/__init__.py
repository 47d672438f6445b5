"""From a graph, or from explicit operations, to the reference program of one training iteration."""

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
from solver.training.derive import derive
from solver.training.explicit import Block, BlockOperation, BlockProgram, build_program
from solver.training.storage import STORAGE_TYPES, with_storage

__all__ = [
    "STORAGE_TYPES",
    "Block",
    "BlockClass",
    "BlockOperation",
    "BlockProgram",
    "Carry",
    "Hazard",
    "Ordering",
    "ValueEdge",
    "block_classes",
    "build_program",
    "carries",
    "derive",
    "explicit_program",
    "orderings",
    "predecessors",
    "value_edges",
    "with_storage",
]
