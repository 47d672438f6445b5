"""The tools of an operator's translation: recording operations, and the result types that PyTorch states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solver.graph import AttributeValue, DType, Initializer, Role, TensorType
from solver.importers.pytorch.recorder import Recorder, Value

__all__ = ["Context", "Gates", "Handler", "UnsupportedError", "element_type"]

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


@dataclass(frozen=True, slots=True)
class Gates:
    """How a weight of a recurrent layer lies here: its blocks of rows in another order than in PyTorch."""

    order: tuple[int, ...]


@dataclass(slots=True)
class Context:
    """Where operators are recorded. `results` are the types that PyTorch gives what is translated now."""

    recorder: Recorder
    results: tuple[TensorType | None, ...] = ()
    #: How parameters and buffers lie here, by operand, where that is not how they lie in PyTorch.
    layouts: dict[str, Gates | float] = field(default_factory=dict)
    #: Called with a buffer that an operation updates: it becomes a state.
    updated: Callable[[Value], Value] = lambda value: value
    #: Called with a table and a number: that row of it, as a constant.
    row: Callable[[Value, int], Value] = lambda table, number: table
    #: What an operation whose result is read by a loss was computed from, by its name.
    origins: dict[str, tuple[str, tuple[Any, ...]]] = field(default_factory=dict)

    @property
    def result(self) -> TensorType:
        """Type of the only, or the first, result."""
        first = self.results[0] if self.results else None
        if first is None:
            raise UnsupportedError("a result that is not a tensor of a type that graphs have")
        return first

    def apply(self, type_: str, *inputs: Value | None, **attributes: AttributeValue) -> Value:
        return self.recorder.apply(type_, *inputs, **attributes)

    def many(
        self, type_: str, inputs: Sequence[Value | None], outputs: Sequence[str], **attributes: AttributeValue
    ) -> tuple[Value, ...]:
        return self.recorder.apply_many(type_, inputs, outputs, **attributes)

    def integers(self, what: str, values: Sequence[int]) -> Value:
        return self.recorder.integers(what, values)

    def number(self, number: float | bool, dtype: DType, shape: Sequence[int] = ()) -> Value:
        """A constant that holds one number."""
        return self.recorder.constant(
            f"{self.recorder.scope}.number", np.full(tuple(shape), number, dtype.numpy)
        )

    def filled(self, what: str, number: float, type_: TensorType) -> Value:
        """A constant whose elements are all one number, and which is not written out."""
        return self.recorder.declare(
            f"{self.recorder.scope}.{what}", Role.CONSTANT, type_, Initializer("constant", value=number)
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
