"""Entry points of one model have its weights in common, so each weight has one type in all of them.

    train   reads the adapter, which it trains          float32
    infer   reads the same adapter, which is frozen     int4, were it planned alone

A weight that `frozen_storage` or `tile_bytes` would change in one program and not in another stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from solver.graph import Role, TrainableGraph
from solver.graph.types import TensorType
from solver.preparations.frozen_storage import with_frozen_storage
from solver.preparations.tiles import cut_weights

__all__ = ["fixed_types"]


class _Options(Protocol):
    @property
    def frozen_storage(self) -> str | None: ...

    @property
    def tile_bytes(self) -> int | None: ...


def fixed_types(entries: Sequence[tuple[str, object, _Options]]) -> dict[str, frozenset[str]]:
    """By model the weights that stay as they are in each program of it (`TrainableGraph.fixed_types`).

    An entry point is its model, its graph and its options; what is no graph has no weights. Raises
    OptionsError as the preparations do. Linear.
    """
    types: dict[str, dict[str, set[tuple[TensorType, ...]]]] = {}
    for model, graph, options in entries:
        of_model = types.setdefault(model, {})
        is_changed = options.frozen_storage is not None or options.tile_bytes is not None
        if not is_changed or not isinstance(graph, TrainableGraph):
            continue
        stored = with_frozen_storage(graph, options.frozen_storage)
        cuts = cut_weights(stored, options.tile_bytes)
        for name, operand in stored.operands.items():
            if operand.role in (Role.PARAMETER, Role.CONSTANT):
                parts = tuple(part.type for part in cuts.get(name, (operand,)))
                of_model.setdefault(name, set()).add(parts)
    return {
        model: frozenset(name for name, several in of_model.items() if len(several) > 1)
        for model, of_model in types.items()
    }
