"""The graph that PyTorch's operators are translated to, and the tools of their translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.graph import Array, AttributeValue, DType, Initializer, Operation, Role, TensorType
from solver.importers.recorder import GraphRecorder

__all__ = [
    "Context",
    "Gates",
    "Handler",
    "UnsupportedError",
    "Value",
    "Weight",
    "and_nothing",
    "element_type",
]

#: Numbers that Cast has for element types: ONNX's.
_CAST = {
    DType.FLOAT32: 1,
    DType.UINT8: 2,
    DType.INT32: 6,
    DType.INT64: 7,
    DType.BOOL: 9,
    DType.FLOAT64: 11,
}


class UnsupportedError(Exception):
    """A use of an operator that has no counterpart here; the text says what about it."""


def element_type(dtype: Any) -> DType:
    """The element type that PyTorch calls ``torch.float32``. Raises UnsupportedError for others."""
    word = str(dtype).removeprefix("torch.")
    element = next((member for member in _CAST if member.value == word), None)
    if element is None:
        raise UnsupportedError(f"tensors of {word}")
    return element


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the graph; `constant` holds PyTorch's tensor where its elements are known."""

    name: str
    type: TensorType
    constant: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.type.shape)


@dataclass(frozen=True, slots=True)
class Gates:
    """How a weight of a recurrent layer lies here: its blocks of rows in another order than in PyTorch."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """An operand and the tensor of the module that it holds; `names` are all that lead to a tied one.

    `layout` is how it lies here: blocks of rows in another order. `row` is the one of the tensor that the
    operand holds, where it is not the whole. `half` is PyTorch's element type if that has 16 bits; the
    operand is float32 then.
    """

    operand: str
    names: tuple[str, ...]
    layout: Gates | None = None
    row: int | None = None
    half: str = ""

    def inward(self, values: Array) -> Array:
        """PyTorch's elements as they lie here; a new array unless they lie alike."""
        if self.row is not None:
            return np.ascontiguousarray(values[self.row])
        if self.layout is None:
            return values
        order = self.layout.order
        blocks = np.split(values, len(order))
        return np.concatenate([blocks[k] for k in order])

    def outward(self, values: Array) -> Array:
        """The inverse of `inward`, for an operand that holds a whole tensor."""
        if self.layout is None:
            return values
        order = self.layout.order
        blocks = np.split(values, len(order))
        return np.concatenate([blocks[order.index(k)] for k in range(len(order))])


class Context(GraphRecorder):
    """The graph so far. Names are unique; `scope` begins those of operations.

    `results` are the types that PyTorch states for the call that is translated. `learned` are the operands
    that depend on parameters which are trained. `updated` is called with a buffer that an operation updates,
    which becomes a state; `row` with a table and a number, and returns that row of it as a constant.
    """

    def __init__(self, *, updated: Callable[[Value], Value], row: Callable[[Value, int], Value]) -> None:
        super().__init__()
        self.updated, self.row = updated, row
        self.scope = ""
        self.results: tuple[TensorType | None, ...] = ()
        self.learned: set[str] = set()
        #: How parameters and buffers lie here, by operand, where that is not how they lie in PyTorch.
        self.layouts: dict[str, Gates] = {}
        #: The operator and operands of results that a loss may read, by name.
        self.origins: dict[str, tuple[str, tuple[Any, ...]]] = {}
        #: Names of the module's parameters and buffers, which nothing else takes.
        self.reserved: set[str] = set()
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}

    @property
    def result(self) -> TensorType:
        """Type of the only, or the first, result."""
        first = self.results[0] if self.results else None
        if first is None:
            raise UnsupportedError("a result that is not a tensor of a type that graphs have")
        return first

    def name(self, preferred: str, *, is_reserved: bool = False) -> str:
        """`preferred`, with a number behind it if that is taken, or reserved for another operand."""
        preferred = preferred.replace("@", "_")
        name = preferred
        while name in self._names or (not is_reserved and name in self.reserved):
            self._counts[preferred] = self._counts.get(preferred, 1) + 1
            name = f"{preferred}_{self._counts[preferred]}"
        self._names.add(name)
        return name

    def declare(
        self,
        name: str,
        role: Role,
        type_: TensorType,
        initializer: Initializer | None = None,
        *,
        trainable: bool = True,
        is_reserved: bool = False,
    ) -> Value:
        """An operand that no operation defines; `is_reserved` for a tensor of the module under its name."""
        name = self.name(name, is_reserved=is_reserved)
        self.put(name, role, type_, initializer, trainable=trainable)
        if role is Role.PARAMETER and trainable:
            self.learned.add(name)
        return Value(name, type_)

    def constant(self, name: str, values: Array, known: Any = None, *, is_reserved: bool = False) -> Value:
        """An operand that never changes."""
        type_ = TensorType(values.shape, DType(values.dtype.name))
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        initializer = Initializer("values", data=little.tobytes())
        operand = self.declare(name, Role.CONSTANT, type_, initializer, is_reserved=is_reserved)
        return Value(operand.name, type_, known)

    def integers(self, what: str, values: Sequence[int]) -> Value:
        """A constant list of integers, called after the operation that is about to be recorded."""
        return self.constant(f"{self.scope}.{what}", np.array(values, np.int64))

    def apply(self, type_: str, *inputs: Value | None, **attributes: AttributeValue) -> Value:
        """Record an operation with one output. None stands for an optional input that is left out."""
        return self.many(type_, inputs, ("out",), **attributes)[0]

    def many(
        self, type_: str, inputs: Sequence[Value | None], outputs: Sequence[str], **attributes: AttributeValue
    ) -> tuple[Value, ...]:
        """Record an operation; an output that is not needed is the empty string, and not among the results.

        Raises a GraphError for types that do not fit.
        """
        name = self.name(self.scope)
        named = [self.name(f"{name}.{output}") if output else "" for output in outputs]
        operation = Operation(
            name, type_, tuple([x.name if x else "" for x in inputs]), tuple(named), attributes
        )
        types = self.record(operation)
        if self.learned.intersection(operation.inputs):
            self.learned.update(operation.outputs)
        return tuple(Value(*pair) for pair in zip(named, types, strict=True) if pair[0])

    def number(self, number: float | bool, dtype: DType, shape: Sequence[int] = ()) -> Value:
        """A constant that holds one number."""
        return self.constant(f"{self.scope}.number", np.full(tuple(shape), number, dtype.numpy))

    def filled(self, what: str, number: float, type_: TensorType) -> Value:
        """A constant whose elements are all one number, and which is not written out."""
        return self.declare(
            f"{self.scope}.{what}", Role.CONSTANT, type_, Initializer("constant", value=number)
        )

    def operand(self, x: Value | float, dtype: DType) -> Value:
        """A tensor of this element type: a number becomes a constant, another type is cast."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.number(x, dtype)

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.apply("Cast", x, to=_CAST[dtype])

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same elements in another shape; nothing where it has that shape already."""
        if x.shape == tuple(shape):
            return x
        if not shape:
            return self.apply("Squeeze", x)
        return self.apply("Reshape", x, self.integers("shape", shape))

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        return x if list(axes) == list(range(x.rank)) else self.apply("Transpose", x, perm=tuple(axes))

    def last(self, x: Value, axis: int) -> Value:
        """An axis moved to the end."""
        axis %= x.rank
        return self.transpose(x, [*(i for i in range(x.rank) if i != axis), axis])

    def slice(self, x: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
        bounds = [self.integers(what, [n]) for what, n in (("start", start), ("end", end), ("axis", axis))]
        steps = [] if step == 1 else [self.integers("step", [step])]
        return self.apply("Slice", x, *bounds, *steps)


#: Translates one call: the arguments are those of PyTorch's operator, tensors as `Value`.
Handler = Callable[..., Any]


def and_nothing(handler: Handler, count: int) -> Handler:
    """The handler of an operator that has `count` further results, none of which is computed here."""
    return lambda c, *arguments, **named: (handler(c, *arguments, **named), *[None] * count)
