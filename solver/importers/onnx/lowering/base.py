"""One node of ONNX while it is translated: what it is given, and what may be written in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solver.errors import DocumentError
from solver.graph import Array, AttributeValue, DType
from solver.importers.onnx.network import Constant, Network, Sequence_, Tensor, Value
from solver.importers.onnx.read import ELEMENTS

__all__ = ["Lowering", "Site", "Unsupported", "sequence"]


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
