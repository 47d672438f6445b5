"""Weights that a plan holds in more bytes than the model stores: those in half precision, and quantised ones.

Operators compute in float32 and float64 here. An importer that converts a stored weight, or computes it from
packed integers and scales, says so with the bytes of both: a plan must not be four times as large as the file
without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from solver.graph import Array, TensorType
from solver.importers.text import some

__all__ = ["Origin", "widening_notes"]

#: Stored types of masks, indices and sizes: what is computed from them alone is no weight.
_NO_WEIGHTS = frozenset({"bool", "int64"})
#: Stored types that the plan holds as they are.
_PLANNED = frozenset({"float32", "float64"})
#: Tensors that a note names.
_NAMED_TENSORS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The source of a constant: a tensor of `nbytes` bytes that the model stores, or a result of `parents`.

    `name` and `element`, the element type in the model's own word, are empty for results. `values` returns
    the elements of a stored tensor of floats, where the importer has them, as float32.
    """

    name: str = ""
    element: str = ""
    nbytes: int = 0
    parents: tuple[Origin, ...] = ()
    values: Callable[[], Array] | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether it is stored as a weight, and not as the plan holds it."""
        return self.element not in {"", *_PLANNED, *_NO_WEIGHTS}

    def stored(self) -> tuple[Origin, ...]:
        """The stored tensors that the constant is computed from. Linear in the results on the way."""
        seen: dict[Origin, None] = {}
        pending = [self]
        while pending:
            origin = pending.pop()
            if origin not in seen:
                seen[origin] = None
                pending.extend(reversed(origin.parents))
        return tuple(origin for origin in seen if origin.element)


def widening_notes(weights: Iterable[tuple[TensorType, Origin]]) -> tuple[str, ...]:
    """One sentence about the operands that need more bytes than the model stores for them; else none.

    `weights` are the types of operands in the graph, with their origins. Only floating operands without a
    storage count, and only those with a stored tensor of another type than float32 and float64 behind them;
    masks and tables that are computed from conditions or indices do not. The sentence names the stored
    tensors.
    """
    count, planned, sources = 0, 0, dict[Origin, None]()
    for type_, origin in weights:
        floats = type_.dtype.is_floating and type_.storage is None
        stored = origin.stored() if floats else ()
        is_narrow = any(each.is_narrow for each in stored)
        if is_narrow and type_.nbytes > sum(each.nbytes for each in stored):
            count += 1
            planned += type_.nbytes
            sources |= dict.fromkeys(stored)
    if not count:
        return ()
    kinds = ", ".join(sorted({source.element for source in sources}))
    names = [source.name for source in sources if source.is_narrow]
    size = sum(source.nbytes for source in sources)
    subject = f"{count:,} weights are" if count > 1 else "1 weight is"
    note = (
        f"{subject} stored in {size:,} bytes ({kinds}) and planned in {planned:,} bytes as floats, because"
        f" operators do not compute in narrower types here: {some(names, _NAMED_TENSORS, quoted=True)}."
    )
    return (note,)
