"""The graph that an import writes, typed as it comes, and one node of ONNX while it is translated."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from solver.errors import DocumentError, TooManyOperationsError
from solver.graph import (
    MAX_OPERATIONS,
    Array,
    AttributeValue,
    DType,
    Initializer,
    Operand,
    Operation,
    Role,
    TensorType,
)
from solver.importers.narrowed import Origin
from solver.importers.onnx.read import ELEMENTS
from solver.importers.recorder import GraphRecorder

__all__ = [
    "Constant",
    "Lowering",
    "Network",
    "Sequence_",
    "Site",
    "Tensor",
    "Unknown",
    "Unsupported",
    "Value",
    "sequence",
]

_DTYPES: Final = {dtype.numpy: dtype for dtype in DType}
#: Characters of a name; longer names of operands are shortened.
_MAX_NAME_CHARACTERS: Final = 1024


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand of the graph."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Values that are known at import. They become an operand only where an operation reads them.

    `origin` says which tensors of the file it comes from, where it does.
    """

    array: Array
    name: str = ""
    origin: Origin | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass(frozen=True, slots=True)
class Sequence_:
    """ONNX's sequence of tensors, which exists in the importer alone."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The result of an operator without a translation. The walk goes on, to list them all at once."""


Value = Tensor | Constant | Sequence_ | Unknown


class Network(GraphRecorder):
    """The graph that an import writes. It makes every name unique and removes characters that names lack."""

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        #: The tensors of the file behind parameters and constants, by operand.
        self.origins: dict[str, Origin] = {}
        #: Constants whose values lie in a file that is not there, with its name. They are zeros.
        self.absent: dict[str, str] = {}
        self._taken: set[str] = set()
        self._taken_by_operations: set[str] = set()
        self._counters: dict[str, int] = {}

    def fresh(self, preferred: str, *, of_operation: bool = False) -> str:
        """A name like `preferred` that no other operand has, or no other operation."""
        taken = self._taken_by_operations if of_operation else self._taken
        plain = (
            "".join(c if c.isprintable() and c != "@" else "_" for c in preferred)[
                : _MAX_NAME_CHARACTERS - 12
            ]
            or "value"
        )
        name = plain
        while name in taken:
            self._counters[plain] = self._counters.get(plain, 0) + 1
            name = f"{plain}.{self._counters[plain]}"
        taken.add(name)
        return name

    def declare(
        self, name: str, role: Role, type_: TensorType, initializer: Initializer | None = None
    ) -> Tensor:
        """An operand that no operation defines."""
        own = self.fresh(name)
        self.put(own, role, type_, initializer)
        return Tensor(own, type_)

    def constant(self, array: Array, name: str = "", origin: Origin | None = None) -> Tensor:
        """An operand with these values; one for all that have the same. Raises DocumentError."""
        dtype = _DTYPES.get(array.dtype)
        if dtype is None:
            raise DocumentError(
                f"The constant {name!r:.80} has elements of type {array.dtype}.",
                remedy=f"Export the model with {', '.join(d.value for d in DType)}.",
            )
        data = np.ascontiguousarray(array).tobytes()
        key = (dtype.value, array.shape, hashlib.sha256(data).digest())
        if key not in self._constants:
            type_ = TensorType(array.shape, dtype)
            self._constants[key] = self.declare(
                name or "constant", Role.CONSTANT, type_, Initializer("values", data)
            )
        tensor = self._constants[key]
        if origin is not None:
            self.origins.setdefault(tensor.name, origin)
        return tensor

    def emit(
        self,
        type_: str,
        inputs: Sequence[str],
        name: str,
        outputs: int | Sequence[bool] = 1,
        **attributes: AttributeValue | None,
    ) -> tuple[Tensor, ...]:
        """Add an operation and return what it defines.

        `outputs` is their number, or for each whether it is read. Attributes that are None are left out.
        Raises what the operator's checks raise, and TooManyOperationsError.
        """
        if len(self.operations) >= MAX_OPERATIONS:
            raise TooManyOperationsError(
                f"The model has more than {MAX_OPERATIONS:,} operations.", remedy="Split the model."
            )
        is_read = [True] * outputs if isinstance(outputs, int) else list(outputs)
        own = self.fresh(name, of_operation=True)
        defined = tuple(self.fresh(f"{own}.out{k or ''}") if there else "" for k, there in enumerate(is_read))
        kept = {key: value for key, value in attributes.items() if value is not None}
        types = self.record(Operation(own, type_, tuple(inputs), defined, kept))
        return tuple(Tensor(n, t) for n, t in zip(defined, types, strict=True))

    def results(self, outputs: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs under their own names, where an operation defines them and nothing else is called so.

        Results of functions and branches have names from there, which an output may have, too.
        """
        results = dict(outputs)
        for name in outputs:
            value, holder = results[name], self.types.get(name)
            if not isinstance(value, Tensor) or value.name in {name, *self.operands} or name in self.operands:
                continue
            if value.name in outputs and results[value.name] == value:
                continue  # two outputs are one tensor, which has the first one's name
            if holder is not None:
                moved = self.call_it(Tensor(name, holder.type), name, 0)
                results = {key: moved if value == Tensor(name, holder.type) else value
                           for key, value in results.items()}  # fmt: skip
            results[name] = self.call_it(value, name, 0)
        return results

    def call_it(self, tensor: Tensor, name: str, since: int) -> Tensor:
        """The tensor under the name that the model has for it, if an operation from `since` on defines it."""
        old = tensor.name
        if not any(old in operation.outputs for operation in self.operations[since:]):
            return tensor
        new = self.fresh(name)
        for i in range(since, len(self.operations)):
            operation = self.operations[i]
            if old in operation.inputs or old in operation.outputs:
                inputs = tuple(new if n == old else n for n in operation.inputs)
                outputs = tuple(new if n == old else n for n in operation.outputs)
                self.operations[i] = Operation(
                    operation.id, operation.type, inputs, outputs, operation.attributes
                )
        self.types[new] = Operand(new, self.types.pop(old).type, Role.INTERMEDIATE)
        self._taken.discard(old)
        return Tensor(new, tensor.type)


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)


class Unsupported(Exception):
    """A use of an operator that has no translation. The text names the use and not the operator.

    It stays inside this package, whose callers get a GraphError that names the node.
    """


@dataclass(slots=True)
class Site:
    """A node: operator, opset, attributes, inputs (None where one is left out), and which outputs are read.

    What is written is called after `name`. `seed` tells draws of random numbers apart.
    """

    op: str
    name: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[Value | None]
    is_read: Sequence[bool]
    network: Network
    written: int = field(default=0)

    # ------------------------------------------------------------------------------------ what is given

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> Tensor | Constant:
        """An input that must be present and no sequence. Raises Unsupported."""
        value = self.inputs[position] if position < len(self.inputs) else None
        if not isinstance(value, Tensor | Constant):
            raise Unsupported(f"input {position} is {'a sequence' if value else 'missing'}")
        return value

    def tensor(self, position: int) -> Tensor:
        """An input as an operand of the graph."""
        return self.as_tensor(self.value(position))

    def as_tensor(self, value: Value) -> Tensor:
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Constant):
            name = value.name or f"{self.name}.constant"
            return self.network.constant(value.array, name, value.origin)
        raise Unsupported("a sequence cannot be an operand")

    def constant(self, position: int, what: str) -> Array:
        """An input that must be known when the model is imported."""
        value = self.value(position)
        if isinstance(value, Tensor) and value.name in self.network.absent:
            raise DocumentError(
                f"The values of {value.name!r:.80} decide the graph, and lie in a file that is not there:"
                f" {self.network.absent[value.name]!r:.80}.",
                remedy="Put it beside the model, or save the model with its weights inside.",
            )
        if not isinstance(value, Constant):
            raise Unsupported(f"{what} (input {position}) is computed from what the caller gives")
        return value.array

    def ints(self, position: int, what: str) -> tuple[int, ...]:
        """The integers of an input, which must be known when the model is imported."""
        return tuple(int(value) for value in self.constant(position, what).reshape(-1))

    def known(self, position: int) -> Array | None:
        """The values of an input, if they are known."""
        value = self.inputs[position] if position < len(self.inputs) else None
        return value.array if isinstance(value, Constant) else None

    def scalar(self, position: int, default: float | None = None) -> float | None:
        """The one value of an input if it is there; it must be known."""
        if not self.has(position):
            return default
        values = self.constant(position, "a number")
        if values.size != 1:
            raise Unsupported(f"input {position} has {values.size} values, not one")
        return float(values.reshape(-1)[0])

    def shape(self, position: int = 0) -> tuple[int, ...]:
        return self.value(position).shape

    def dtype(self, position: int = 0) -> DType:
        return self.tensor(position).type.dtype

    def get(self, key: str, default: Any = None) -> Any:
        return self.attributes.get(key, default)

    def axes(self, position: int = 1) -> tuple[int, ...] | None:
        """Axes from an attribute or, in later opsets, from an input."""
        if "axes" in self.attributes:
            return tuple(self.attributes["axes"])
        return self.ints(position, "the axes") if self.has(position) else None

    # ------------------------------------------------------------------------------------ what is written

    def emit_all(
        self,
        type_: str,
        *inputs: Value | None,
        outputs: int | Sequence[bool] = 1,
        **attributes: AttributeValue | None,
    ) -> tuple[Tensor, ...]:
        """Add an operation; an input that is None is left out."""
        names = [self.as_tensor(value).name if value is not None else "" for value in inputs]
        while names and not names[-1]:
            names.pop()
        name = self.name if not self.written else f"{self.name}.{type_.lower()}"
        self.written += 1
        return self.network.emit(type_, names, name, outputs, **attributes)

    def emit(self, type_: str, *inputs: Value | None, **attributes: AttributeValue | None) -> Tensor:
        """Add an operation with one output."""
        return self.emit_all(type_, *inputs, outputs=1, **attributes)[0]

    def number(self, value: float, like: Tensor) -> Constant:
        """A scalar of the element type of a tensor."""
        return Constant(np.asarray(value, like.type.dtype.numpy))

    def integers(self, values: Sequence[int]) -> Constant:
        return Constant(np.asarray(values, np.int64))

    def reshape(self, x: Value, shape: Sequence[int]) -> Tensor:
        tensor = self.as_tensor(x)
        if tensor.shape == tuple(shape):
            return tensor
        if not shape:
            return self.emit("Squeeze", tensor, axes=tuple(range(tensor.rank)))
        return self.emit("Reshape", tensor, self.integers(shape))

    def cut(self, x: Value, axis: int, start: int, end: int) -> Tensor:
        """A range of one axis."""
        return self.emit("Slice", x, *(self.integers([n]) for n in (start, end, axis)))

    def cast(self, x: Value, dtype: DType) -> Tensor:
        tensor = self.as_tensor(x)
        if tensor.type.dtype is dtype:
            return tensor
        return self.emit("Cast", tensor, to=next(n for n, own in ELEMENTS.items() if own is dtype))


#: From a node to what its outputs are.
Lowering = Callable[[Site], Value | Sequence[Value]]


def sequence(value: Value | None) -> Sequence_:
    if not isinstance(value, Sequence_):
        raise DocumentError("An operator of sequences is given a tensor.", remedy="Export the model again.")
    return value
