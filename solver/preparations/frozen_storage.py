"""The preparation `frozen_storage`: weights that are not trained are kept in 16, 8 or 4 bits.

Every element is rounded once, before training begins; what is computed from it is other than with the weights
as they were. Trained weights, activations and gradients stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from solver.errors import OptionsError
from solver.graph import Operand, TrainableGraph
from solver.graph.nodes import stored_axes
from solver.graph.storage import PACKED, Storage, storage_of_word
from solver.preparations.base import Planner, Preparation, Prepared

__all__ = ["FrozenStorage", "with_frozen_storage"]

#: Bytes that storage must save: less is lost to the alignment of places.
_MIN_SAVED_BYTES = 64


@dataclass(frozen=True, slots=True)
class FrozenStorage(Preparation):
    """`frozen_storage` is a word as ``int4`` or ``int8:64``, None keeps everything as it is.

    Raises OptionsError for another word.
    """

    name: ClassVar[str] = "frozen_storage"

    frozen_storage: str | None = None

    def __post_init__(self) -> None:
        _of_word(self.frozen_storage)

    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        graph = with_frozen_storage(prepared.graph, self.frozen_storage)
        return prepared if graph is prepared.graph else replace(prepared, graph=graph)


def with_frozen_storage(graph: TrainableGraph, word: str | None) -> TrainableGraph:
    """The graph whose frozen weights have the storage that `word` names; the same object where none does.

    A weight is stored if it is a float32 parameter that is not trained, or a constant; if all operations that
    read it take the rows of one axis of it; if groups divide these rows; and if that saves memory. A weight
    that has a storage keeps it. Raises OptionsError for a word that names no storage. Linear.
    """
    storage = _of_word(word)
    if storage is None:
        return graph
    stored = {
        name: _stored(graph.operands[name], replace(storage, axis=axis))
        for name, axis in stored_axes(graph).items()
    }
    if all(operand is graph.operands[name] for name, operand in stored.items()):
        return graph
    return graph.with_graph(operands={**graph.operands, **stored})


def _of_word(word: str | None) -> Storage | None:
    if word is None:
        return None
    storage = storage_of_word(word)
    # This row is one group; whether groups divide the rows of a weight is checked for each weight.
    if storage is None or storage.fault((1, storage.group or 1)) is not None:
        raise OptionsError(
            f"Unknown storage {word!r:.60} of frozen weights.",
            remedy=f"Choose one of {', '.join(PACKED)}; integers take an even group of at least 8 elements"
            " and zero points as int4:64:zero-points.",
            path=("frozen_storage",),
        )
    return storage


def _stored(operand: Operand, storage: Storage) -> Operand:
    """The operand in this storage, its first values as they are; itself where it is not stored so."""
    if storage.fault(operand.shape) is not None:
        return operand
    type_ = replace(operand.type, storage=storage)
    if type_.nbytes + _MIN_SAVED_BYTES > operand.type.nbytes:
        return operand
    initializer = operand.initializer
    if initializer is not None and initializer.file is not None:
        size = operand.type.nbytes if initializer.file.nbytes is None else initializer.file.nbytes
        initializer = replace(initializer, file=replace(initializer.file, nbytes=size))
    return replace(operand, type=type_, initializer=initializer)
