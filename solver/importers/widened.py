"""Weights that a plan holds in more bytes than the model stores: those in half precision, and quantised ones.

Operators compute in float32 and float64 here. An importer that converts a stored weight, or computes it from
packed integers and scales, says so with the bytes of both: a plan must not be four times as large as the file
without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from solver.graph import TensorType

__all__ = ["Origin", "widening_notes"]

#: Stored types of masks, indices and sizes: what is computed from them alone is no weight.
_NO_WEIGHTS = frozenset({"bool", "int64"})
#: Stored types that the plan holds as they are.
_PLANNED = frozenset({"float32", "float64"})
#: Tensors that a note names.
_NAMED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The source of a constant: a tensor of `nbytes` bytes that the model stores, or a result of `parents`.

    `name` and `element`, the element type in the model's own word, are empty for results.
    """

    name: str = ""
    element: str = ""
    nbytes: int = 0
    parents: tuple[Origin, ...] = ()

    def stored(self) -> frozenset[Origin]:
        """The stored tensors that the constant is computed from. Linear in the results on the way."""
        seen: set[Origin] = set()
        pending = [self]
        while pending:
            origin = pending.pop()
            if origin not in seen:
                seen.add(origin)
                pending.extend(origin.parents)
        return frozenset(origin for origin in seen if not origin.parents and origin.element)


def widening_notes(weights: Iterable[tuple[str, TensorType, Origin]]) -> tuple[str, ...]:
    """One sentence about the operands that need more bytes than the model stores for them; else none.

    `weights` are operands with their names and types in the graph. Only floating operands count, and only
    those with a stored tensor of another type than float32 and float64 behind them; masks and tables that are
    computed from conditions or indices do not.
    """
    names, sources, planned = [], set[Origin](), 0
    for name, type_, origin in weights:
        stored = origin.stored()
        narrow = any(each.element not in _PLANNED | _NO_WEIGHTS for each in stored)
        if type_.dtype.is_floating and narrow and type_.nbytes > sum(each.nbytes for each in stored):
            names.append(name)
            sources |= stored
            planned += type_.nbytes
    if not names:
        return ()
    kinds = ", ".join(sorted({source.element for source in sources}))
    size = sum(source.nbytes for source in sources)
    shown = ", ".join(f"{name!r:.80}" for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    subject = f"{len(names):,} weights are" if len(names) > 1 else "1 weight is"
    note = (
        f"{subject} stored in {size:,} bytes ({kinds}) and planned in {planned:,} bytes as floats, because"
        f" operators do not compute in narrower types here: {shown}{more}."
    )
    return (note,)
