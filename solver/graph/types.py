"""Graphs and how they are trained: operands and operations; loss, optimizer, trainable set. Immutable."""

from __future__ import annotations

import copyreg
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, EnumType
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from solver.errors import BatchError
from solver.graph.storage import Storage

__all__ = [
    "Array",
    "AttributeValue",
    "DType",
    "FileRange",
    "Graph",
    "Initializer",
    "Operand",
    "Operation",
    "OptimizerSpec",
    "Resizable",
    "Role",
    "RowRange",
    "TensorType",
    "TrainableGraph",
    "TrainingRules",
    "TrainingSpec",
]

Array = npt.NDArray[Any]
_T = TypeVar("_T")
AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...]


class _ElementTypes(EnumType):
    """Iterates over what operators compute in: what is only kept is no type that an operand may have."""

    def __iter__(cls: type[_T]) -> Iterator[_T]:
        return (member for member in EnumType.__iter__(cls) if not getattr(member, "is_storage", False))


class DType(Enum, metaclass=_ElementTypes):
    """Element types; the value is both the document's word and NumPy's, which has none for bfloat16.

    FLOAT16 and BFLOAT16 are types of storage: values are converted to them and back, no operator computes in
    them, and iterating over the types leaves them out. A bfloat16 is the first half of a float32, seen as an
    unsigned integer.
    """

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INT32 = "int32"
    INT64 = "int64"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    #: What NumPy calls it, its bytes, whether derivatives exist, and whether it is a type of storage:
    #: attributes, for they are asked often.
    numpy: np.dtype[Any]
    itemsize: int
    is_floating: bool
    is_storage: bool

    def __init__(self, word: str) -> None:
        self.numpy = np.dtype("uint16" if word == "bfloat16" else word)
        self.itemsize = self.numpy.itemsize
        self.is_storage = word in ("float16", "bfloat16")
        self.is_floating = word.startswith("float") and not self.is_storage

    # By identity, as members are compared: types are hashed often.
    __hash__ = object.__hash__


class Role(Enum):
    """The role of an operand in the graph.

    `INPUT` and `LABEL` are written by the caller before every training step, `PARAMETER` is state
    that the optimizer may update, `STATE` is changed in place by an operation's forward step and carried
    from one iteration to the next (zeros at first, unless it has an initializer), `CONSTANT` never
    changes, `INTERMEDIATE` is defined by an operation.
    """

    INPUT = "input"
    LABEL = "label"
    PARAMETER = "parameter"
    STATE = "state"
    CONSTANT = "constant"
    INTERMEDIATE = "intermediate"

    # By identity, as those of `DType`.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type. Shape () is a scalar; one with a dimension of 0 has no elements and no bytes.

    `elements` and the exact size in bytes, `nbytes`, follow from these. They are asked often, so they are
    worked out once. The bytes of a weight that is not trained may have a `storage` of their own, from which
    kernels make elements of the type; elsewhere they are the elements.
    """

    shape: tuple[int, ...]
    dtype: DType
    storage: Storage | None = None
    elements: int = field(init=False, repr=False, compare=False)
    nbytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        elements = math.prod(self.shape)
        object.__setattr__(self, "elements", elements)
        stored = self.storage
        nbytes = elements * self.dtype.itemsize if stored is None else stored.nbytes(self.shape)
        object.__setattr__(self, "nbytes", nbytes)

    def __str__(self) -> str:
        stored = "" if self.storage is None else f" stored as {self.storage}"
        return f"{self.dtype.value}[{', '.join(map(str, self.shape))}]{stored}"


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a file: `nbytes`, or as many as the operand has, from `offset` on, with the given SHA-256
    (hexadecimal).

    `path` is empty where the file is elsewhere: enough to plan, not to train. The file is read when training
    starts, and never before.
    """

    path: str
    offset: int
    sha256: str
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of a larger operand: from `start` on, of the `whole` along `axis`."""

    axis: int
    start: int
    whole: int


@dataclass(frozen=True, slots=True)
class Initializer:
    """The first value of a parameter, state or constant.

    `kind` is ``values`` (raw little-endian bytes in C order: in `data`, or in `file`) or a named scheme:
    ``zeros``, ``ones``, ``constant`` (`value`), ``normal`` and ``uniform`` (`scale`: standard deviation,
    half width), ``he_normal``, ``glorot_uniform`` (fan in and out from the shape and `data_layout` of the
    consumer are not known here, so the last axis convention of `solver.executor` applies). `seed` makes it
    repeatable. Of a stored operand the bytes are its packed ones, or those of float32 elements, which are
    packed when training begins. With `rows` everything is about a larger operand, and these rows of its first
    value are taken.
    """

    kind: str
    data: bytes | None = None
    value: float = 0.0
    scale: float = 1.0
    seed: int = 0
    file: FileRange | None = None
    rows: RowRange | None = None


@dataclass(frozen=True, slots=True)
class Operand:
    """A named tensor of the graph."""

    id: str
    type: TensorType
    role: Role
    initializer: Initializer | None = None

    @property
    def first(self) -> Initializer:
        """The initializer; without one, weights of rank 2 or more are he_normal, seeded by name, and anything
        else is zeros.
        """
        if self.initializer is not None:
            return self.initializer
        is_drawn = self.role is Role.PARAMETER and len(self.type.shape) > 1
        return Initializer("he_normal" if is_drawn else "zeros", seed=zlib.crc32(self.id.encode()))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


def _frozen(mapping: Mapping[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(dict(mapping))


# Graphs, programs and plans can be pickled: a read-only mapping goes as the dictionary behind it.
copyreg.pickle(MappingProxyType, lambda mapping: (_frozen, (dict(mapping),)))


_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Operation:
    """One use of an operator. An optional input that is left out is the empty string, as in ONNX.

    `attributes` holds what the document gave; defaults are filled in by `solver.graph.ops`.
    """

    id: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _frozen(self.attributes) if self.attributes else _NOTHING)


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """Optimizer by name, as `solver.training.optimizers` knows it, with its hyper-parameters."""

    type: str
    attributes: Mapping[str, float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _frozen(self.attributes))


@dataclass(frozen=True, slots=True)
class TrainingRules:
    """Treatment of gradients between the backward pass and the optimizer.

    * The backward pass starts from `loss_scale` instead of 1, and the gradients are divided by it again.
    * `accumulate` iterations are the micro-batches of one update, which uses the mean of their gradients.
    * `clip_global_norm` c: with n the norm of all gradients together, they are multiplied by
      ``min(1, c / (n + 1e-6))``.
    * `skip_non_finite`: an update is left out, for all weights and uncounted, if any gradient is infinite or
      no number (or the sum of all their squares overflows float64).
    * `loss_scale_growth` n: the scale starts at `loss_scale` and changes. Updates are left out as above, each
      halves the scale, down to 1 at least; n updates in a row that are not double it, up to 2**64 at most.
    """

    clip_global_norm: float | None = None
    loss_scale: float = 1.0
    accumulate: int = 1
    skip_non_finite: bool = False
    loss_scale_growth: int | None = None

    @property
    def skips(self) -> bool:
        """Whether updates may be left out."""
        return self.skip_non_finite or self.loss_scale_growth is not None

    @property
    def divisor(self) -> float:
        """The divisor of the sum of the micro-batches' scaled gradients, where the scale is fixed."""
        return self.loss_scale * self.accumulate

    @property
    def joins_gradients(self) -> bool:
        """Whether each update depends on the gradients of all weights."""
        return self.clip_global_norm is not None or self.skips


@dataclass(frozen=True, slots=True)
class Graph:
    """A verified forward graph: what is computed, and nothing about training.

    `operations` stand in a topological order. `outputs` names values that the caller reads afterwards.
    """

    name: str
    operands: Mapping[str, Operand]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", _frozen(self.operands))


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """The training of a graph.

    `loss` names the scalar operand that training minimises. `trainable` names the parameters that the
    optimizer updates, in the order of the graph; `trained` has the same names, to ask in constant time
    whether one is among them. `rules` say what happens to gradients before they are applied.

    A graph of which nothing is trained needs no optimizer: with a loss it is an evaluation, without one an
    inference. Both have the same type as a training graph, because plans are made, proved and run alike.
    """

    loss: str | None
    optimizer: OptimizerSpec | None
    trainable: tuple[str, ...]
    rules: TrainingRules = TrainingRules()
    trained: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trained", frozenset(self.trainable))


class Resizable(Protocol):
    """Reads a graph again with other sizes of its symbolic dimensions, from what it was read from."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the graph as it is, by the name of the dimension."""

    @property
    def axes(self) -> Mapping[str, tuple[str | None, ...]]:
        """For each input and label the name of each of its dimensions, None where that has one size."""

    def at(self, sizes: Mapping[str, int]) -> TrainableGraph:
        """The graph with these sizes of all its symbolic dimensions. Raises ArenaplanError."""


@dataclass(frozen=True, slots=True)
class TrainableGraph:
    """A graph with its training spec, checked together: what plans are made for.

    Everything of both can be asked here by its name; `training` are the spec's rules. `resizable` is there
    where dimensions are symbolic. `fixed_types` names weights that preparations leave as they are, since
    another program in the same memory reads them so.
    """

    graph: Graph
    spec: TrainingSpec
    resizable: Resizable | None = field(default=None, repr=False, compare=False)
    fixed_types: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def operands(self) -> Mapping[str, Operand]:
        return self.graph.operands

    @property
    def operations(self) -> tuple[Operation, ...]:
        return self.graph.operations

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.graph.outputs

    @property
    def loss(self) -> str | None:
        return self.spec.loss

    @property
    def results(self) -> tuple[str, ...]:
        """The operands to read after an iteration: the loss, if there is one, and the outputs."""
        return self.outputs if self.loss is None else (self.loss, *self.outputs)

    @property
    def optimizer(self) -> OptimizerSpec | None:
        return self.spec.optimizer

    @property
    def trainable(self) -> tuple[str, ...]:
        return self.spec.trainable

    @property
    def trained(self) -> frozenset[str]:
        return self.spec.trained

    @property
    def training(self) -> TrainingRules:
        return self.spec.rules

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the symbolic dimensions, by name; empty where all shapes are fixed."""
        return self.resizable.sizes if self.resizable is not None else _NOTHING

    def at(self, **sizes: int) -> TrainableGraph:
        """The same graph with other sizes of symbolic dimensions, as ``graph.at(batch=5)``, trained alike.

        First values of parameters stay, and the storage of weights. Raises BatchError for a dimension that is
        not symbolic, and ArenaplanError where the graph cannot have this size. Cost: that of reading the
        graph.
        """
        for name, size in sizes.items():
            if name not in self.sizes:
                known = ", ".join(self.sizes)
                raise BatchError(
                    f"The graph {self.name!r:.80} has no symbolic dimension {name!r:.60}.",
                    remedy=f"It has {known}." if known else "Load it from a document whose shapes name it.",
                    path=(name,),
                )
            if size < 1:
                raise BatchError(
                    f"The {name} is {size}.", remedy="Give a positive number of elements.", path=(name,)
                )
        if self.resizable is None or sizes.items() <= self.sizes.items():
            return self
        other = self.resizable.at({**self.sizes, **sizes})
        operands = {
            operand.id: replace(operand, type=own.type, initializer=own.initializer)
            if (own := self.operands.get(operand.id)) is not None
            and (operand.role in (Role.PARAMETER, Role.STATE) or own.type.storage is not None)
            and (own.shape, own.dtype) == (operand.shape, operand.dtype)
            else operand
            for operand in other.operands.values()
        }
        return replace(
            other,
            graph=replace(other.graph, operands=operands),
            spec=self.spec,
            fixed_types=self.fixed_types,
        )

    def with_graph(self, **changes: Any) -> TrainableGraph:
        """The same training of a graph with other fields. Nothing is checked again.

        A graph with other operations is not what a document says, and has no other sizes.
        """
        same = "operations" not in changes
        return replace(self, graph=replace(self.graph, **changes), resizable=self.resizable if same else None)

    def with_spec(self, **changes: Any) -> TrainableGraph:
        """The same graph under a spec with other fields. Nothing is checked again."""
        return replace(self, spec=replace(self.spec, **changes))
