"""A forward graph in the making; layers that are written out in it are found again, as one operation.

    x * 0.5 * (1 + erf(x / sqrt 2))                       Gelu
    x * 0.5 * (1 + tanh(0.797.. (x + 0.0447.. x^3)))      Gelu, by tanh
    x * sigmoid(c x)                                      Swish (SiLU for c = 1)
    x * hardsigmoid(x), x * clip(x + 3, 0, 6) / 6         HardSwish
    (x - mean) / sqrt(mean of squares + e) * g + b        LayerNormalization
    x / sqrt(mean of squares + e) * g                     RMSNormalization

Exporters write them out, and people do. One operation keeps one tensor for its backward step, its parts four
or five. Products are taken as sets of factors, so that it makes no difference how they are bracketed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import numpy as np

from solver.graph import (
    AttributeValue,
    DeclaredOperand,
    DType,
    Initializer,
    Operand,
    Operation,
    Role,
    TensorType,
    output_types,
)
from solver.graph.nodes import resolve
from solver.graph.ops import signature

__all__ = ["GraphRecorder", "product_of_slices", "recognise"]

_Value = TypeVar("_Value")

#: Bytes from which a constant whose elements are all alike is not written out.
_MIN_FILL_BYTES = 4096


class GraphRecorder:
    """The graph that an importer writes. The caller gives the names, each of them once."""

    def __init__(self) -> None:
        self.operands: dict[str, DeclaredOperand] = {}
        self.operations: list[Operation] = []
        self.types: dict[str, Operand] = {}

    def put(
        self,
        name: str,
        role: Role,
        type_: TensorType,
        initializer: Initializer | None = None,
        *,
        trainable: bool = True,
    ) -> None:
        """An operand that no operation defines."""
        self.operands[name] = DeclaredOperand(
            name, role, type_.shape, type_.dtype, initializer, trainable=trainable
        )
        self.types[name] = Operand(name, type_, role, initializer)

    def record(self, operation: Operation) -> tuple[TensorType, ...]:
        """Add an operation; the types of its outputs. An output that nothing reads has no name.

        Raises GraphError for operands that do not fit.
        """
        types = output_types(operation, self.types)
        self.operations.append(operation)
        for name, type_ in zip(operation.outputs, types, strict=True):
            if name:
                self.types[name] = Operand(name, type_, Role.INTERMEDIATE)
        return types

    def keep(self, outputs: Collection[str]) -> None:
        """Drop operations and operands that the operands `outputs` do not depend on. Linear."""
        needed, kept = set(outputs), []
        for operation in reversed(self.operations):
            if needed.intersection(filter(None, operation.outputs)):
                kept.append(operation)
                needed.update(operation.inputs)
        self.operations[:] = reversed(kept)
        for name in [name for name in self.operands if name not in needed]:
            del self.operands[name]

    def settle_constants(self, apart: Collection[str] = ()) -> dict[str, str]:
        """Make constants of the same type and bytes one, and write large ones of one number as that number.

        Those `apart` stay as they are, and so do lists of sizes, axes and bounds: which of them are equal may
        depend on the batch. Returns the names that are gone, with those in their place. Linear.
        """
        first: dict[tuple[TensorType, bytes], str] = {}
        gone: dict[str, str] = {}
        for name, operand in list(self.operands.items()):
            initializer, type_ = operand.initializer, self.types[name].type
            if operand.role is not Role.CONSTANT or initializer is None or initializer.data is None:
                continue
            if name in apart or (
                type_.dtype is DType.INT64 and len(type_.shape) == 1 and type_.elements < 32
            ):
                continue
            kept = first.setdefault((type_, initializer.data), name)
            if kept != name:
                gone[name] = kept
                del self.operands[name], self.types[name]
            elif (fill := _fill(type_, initializer.data)) is not None:
                self.operands[name] = replace(operand, initializer=fill)
                self.types[name] = replace(self.types[name], initializer=fill)
        if gone:
            self.operations[:] = [
                replace(operation, inputs=tuple(gone.get(n, n) for n in operation.inputs))
                if gone.keys() & set(operation.inputs)
                else operation
                for operation in self.operations
            ]
        return gone

    def freeze(self, loss: str, besides: Collection[str] = ()) -> list[str]:
        """Parameters that reach the loss only where nothing has a derivative, which are not trained then.

        Those named in `besides` stay as they are.
        """
        reached = {loss}
        for operation in reversed(self.operations):
            if reached.intersection(operation.outputs):
                positions = signature(operation.type).differentiable(resolve(operation, self.types))
                reached.update(operation.inputs[i] for i in positions)
        frozen = [
            operand
            for operand in self.operands.values()
            if operand.role is Role.PARAMETER and operand.trainable and operand.id not in reached
            if operand.id not in besides
        ]
        for operand in frozen:
            self.operands[operand.id] = replace(operand, trainable=False)
        return [operand.id for operand in frozen]


def _fill(type_: TensorType, data: bytes) -> Initializer | None:
    """The one number of all elements, where it gives the very bytes back."""
    if len(data) < _MIN_FILL_BYTES or data != data[: type_.dtype.itemsize] * type_.elements:
        return None
    element = np.frombuffer(data, type_.dtype.numpy, 1)
    number = float(element[0])
    with np.errstate(all="ignore"):
        exact = np.float64(number).astype(type_.dtype.numpy).tobytes() == element.tobytes()
    return Initializer("constant", value=number) if exact else None


def product_of_slices(
    x: _Value,
    axis: int,
    size: int,
    cut: Callable[[_Value, int, int, int], _Value],
    multiply: Callable[[_Value, _Value], _Value],
) -> _Value:
    """The product of x along an axis of `size`: its halves are multiplied until one slice is left.

    `cut(x, axis, begin, end)` records a slice, `multiply(a, b)` a product. They are called 5 log2(size) times
    at most, where one slice after the other would take `size` of each.
    """
    odd: list[_Value] = []
    while size > 1:
        half = size // 2
        if size % 2:
            odd.append(cut(x, axis, size - 1, size))
        x = multiply(cut(x, axis, 0, half), cut(x, axis, half, 2 * half))
        size = half
    return reduce(multiply, odd, x)


#: Relative difference that a formula's number may have: exporters write float32, and shortened.
_RELATIVE_TOLERANCE = 2e-4
#: Products of more factors are not any of these.
_MAX_FACTORS = 6


def recognise(network: GraphRecorder, *read: str) -> None:
    """Replace what is written out, in place; what is not read any more stays, for others to drop. Linear.

    `read` are operands that something beside operations reads: the loss, outputs.
    """
    finder = _Finder(network, read)
    for i, operation in enumerate(network.operations):
        if operation.type in ("Mul", "Div"):
            layer = finder.product(operation)
            if layer is None and operation.type == "Mul":
                layer = finder.normalization(operation)
        elif operation.type == "Add":
            layer = finder.shifted_normalization(operation)
        else:
            continue
        if layer is not None:
            network.operations[i] = finder.replaced(operation, layer)


@dataclass(frozen=True, slots=True)
class _Layer:
    type: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]


class _Finder:
    """Who defines and how many read each operand, kept true while operations are replaced."""

    def __init__(self, network: GraphRecorder, read: Iterable[str]) -> None:
        self.network = network
        self.by_output = {name: op for op in network.operations for name in op.outputs if name}
        self.readers = Counter(name for op in network.operations for name in op.inputs)
        self.readers.update(read)

    def replaced(self, operation: Operation, layer: _Layer) -> Operation:
        new = Operation(operation.id, layer.type, layer.inputs, operation.outputs, layer.attributes)
        self.readers.update(layer.inputs)
        self.by_output[operation.outputs[0]] = new
        return new

    # ------------------------------------------------------------------------------------ questions

    def number(self, name: str) -> float | None:
        """The value of a constant of one element."""
        operand = self.network.operands.get(name)
        initializer = None if operand is None else operand.initializer
        if operand is None or initializer is None or initializer.data is None or operand.dtype is None:
            return None
        values = np.frombuffer(initializer.data, operand.dtype.numpy)
        return float(values[0]) if values.size == 1 and operand.dtype.is_floating else None

    def maker(self, name: str, *types: str) -> Operation | None:
        """The operation behind an operand, if it is of one of `types`, has one reader and fuses nothing."""
        operation = self.by_output.get(name)
        if (
            operation is None
            or operation.type not in types
            or self.readers[name] != 1
            or "activation" in operation.attributes
        ):
            return None
        return operation

    def scaled(self, name: str) -> tuple[str, float]:
        """An operand as another one times a number."""
        factors, scale = self._factors(name, once=False)
        return (factors[0], scale) if len(factors) == 1 else (name, 1.0)

    def shifted(self, name: str) -> tuple[str, float]:
        """An operand as another one plus a number."""
        sum_ = self.maker(name, "Add")
        if sum_ is not None:
            for one, other in (sum_.inputs, sum_.inputs[::-1]):
                if (value := self.number(other)) is not None:
                    return one, value
        return name, 0.0

    def _factors(self, name: str, *, once: bool = True) -> tuple[list[str], float]:
        """An operand as a product: what is multiplied, and the product of the numbers among it."""
        factors: list[str] = []
        scale = 1.0
        open_ = [name]
        while open_ and len(factors) <= _MAX_FACTORS:
            current = open_.pop()
            value = self.number(current)
            maker = self.by_output.get(current) if current == name else self.maker(current, "Mul", "Div")
            if value is not None:
                scale *= value
            elif maker is not None and maker.type == "Mul":
                open_ += maker.inputs
            elif maker is not None and maker.type == "Div" and (by := self.number(maker.inputs[1])):
                scale /= by
                open_.append(maker.inputs[0])
            else:
                factors.append(current)
        return factors, scale

    # ------------------------------------------------------------------------------------ layers

    def product(self, operation: Operation) -> _Layer | None:
        factors, scale = self._factors(operation.outputs[0])
        if len(factors) != 2 or "activation" in operation.attributes:
            return None
        for x, gate in (factors, factors[::-1]):
            layer = self._gated(x, gate, scale)
            if layer is not None and self._same_type(x, operation.outputs[0]):
                return layer
        return None

    def _same_type(self, one: str, other: str) -> bool:
        return self.network.types[one].type == self.network.types[other].type

    def _gated(self, x: str, gate: str, scale: float) -> _Layer | None:
        """x times a gate times a number."""
        sigmoid = self.maker(gate, "Sigmoid")
        if sigmoid is not None and _is_close(scale, 1):
            inner, alpha = self.scaled(sigmoid.inputs[0])
            if sigmoid.inputs[0] == x or inner == x:
                return _Layer("Swish", (x,), {} if sigmoid.inputs[0] == x or alpha == 1 else {"alpha": alpha})
        if _is_close(scale, 0.5) and (gelu := self._gelu(x, gate)) is not None:
            return gelu
        return self._hard_swish(x, gate, scale)

    def _gelu(self, x: str, gate: str) -> _Layer | None:
        inner, one = self.shifted(gate)
        if not _is_close(one, 1):
            return None
        erf = self.maker(inner, "Erf")
        if erf is not None:
            argument, factor = self.scaled(erf.inputs[0])
            return _Layer("Gelu", (x,), {}) if argument == x and _is_close(factor, math.sqrt(0.5)) else None
        tanh = self.maker(inner, "Tanh")
        if tanh is None:
            return None
        argument, factor = self.scaled(tanh.inputs[0])
        if not _is_close(factor, math.sqrt(2 / math.pi)):
            return None
        total = self.by_output.get(argument)
        if total is None or total.type != "Add":
            return None
        for one_term, other in (total.inputs, total.inputs[::-1]):
            cube, third = self._factors(other)
            if one_term == x and sorted(cube) == [x] * 3 and _is_close(third, 0.044715):
                return _Layer("Gelu", (x,), {"approximate": "tanh"})
        return None

    def _hard_swish(self, x: str, gate: str, scale: float) -> _Layer | None:
        hard = self.maker(gate, "HardSigmoid")
        if hard is not None and hard.inputs == (x,) and _is_close(scale, 1):
            alpha, beta = hard.attributes.get("alpha", 0.2), hard.attributes.get("beta", 0.5)
            fits = _is_close(alpha, 1 / 6) and _is_close(beta, 0.5)
            return _Layer("HardSwish", (x,), {}) if fits else None
        clip = self.maker(gate, "Clip")
        if clip is None or not _is_close(scale, 1 / 6) or len(clip.inputs) > 1:
            return None
        bounds = clip.attributes.get("min"), clip.attributes.get("max")
        inner, three = self.shifted(clip.inputs[0])
        if inner == x and _is_close(three, 3) and bounds == (0.0, 6.0):
            return _Layer("HardSwish", (x,), {})
        return None

    def normalization(self, operation: Operation) -> _Layer | None:
        """From the product with the scale back to the input, which may be what has lost its mean."""
        if "activation" in operation.attributes:
            return None
        for normal, scale in _pairs(operation.inputs):
            normalised = self._divided_by_rms(normal)
            if normalised is None:
                continue
            x, axis, epsilon = normalised
            whole = self.network.types[x].type
            if self.network.types[scale].type != TensorType(whole.shape[axis:], whole.dtype):
                continue
            attributes = {"axis": axis, "epsilon": epsilon}
            uncentred = self._uncentred(x, axis)
            if uncentred is None:
                return _Layer("RMSNormalization", (x, scale), attributes)
            return _Layer("LayerNormalization", (uncentred, scale), attributes)
        return None

    def shifted_normalization(self, operation: Operation) -> _Layer | None:
        """A LayerNormalization whose result is added to something takes that as its shift."""
        for inner, shift in _pairs(operation.inputs):
            layer = self.maker(inner, "LayerNormalization")
            if layer is None or len(layer.inputs) != 2 or "activation" in operation.attributes:
                continue
            if self._same_type(layer.inputs[1], shift):
                return _Layer(layer.type, (*layer.inputs, shift), layer.attributes)
        return None

    def _uncentred(self, name: str, axis: int) -> str | None:
        """The operand x where this one is x less its mean over the axes from `axis` on, or None."""
        difference = self.by_output.get(name)
        mean = (
            self.maker(difference.inputs[1], "ReduceMean")
            if difference is not None and difference.type == "Sub"
            else None
        )
        if difference is None or mean is None or mean.inputs[0] != difference.inputs[0]:
            return None
        rank = len(self.network.types[name].type.shape)
        return difference.inputs[0] if self._axes(mean, rank) == axis else None

    def _divided_by_rms(self, name: str) -> tuple[str, int, float] | None:
        """(x, first of the axes, epsilon) of what is x over the root of the mean of its squares, or times its
        inverse.
        """
        divided = self.maker(name, "Div", "Mul")
        if divided is None:
            return None
        pairs = (divided.inputs,) if divided.type == "Div" else _pairs(divided.inputs)
        for x, by in pairs:
            under = by if divided.type == "Div" else self._reciprocal_of(by)
            root = None if under is None else self.maker(under, "Sqrt")
            if root is None:
                continue
            squares, epsilon = self.shifted(root.inputs[0])
            mean = self.maker(squares, "ReduceMean")
            square = None if mean is None else self.maker(mean.inputs[0], "Mul")
            if mean is None or square is None or square.inputs != (x, x) or epsilon <= 0:
                continue
            axis = self._axes(mean, len(self.network.types[x].type.shape))
            if axis is not None:
                return x, axis, epsilon
        return None

    def _reciprocal_of(self, name: str) -> str | None:
        """The operand x where this one is 1 / x, or None."""
        quotient = self.maker(name, "Reciprocal", "Div")
        if quotient is None or quotient.type == "Reciprocal":
            return None if quotient is None else quotient.inputs[0]
        return quotient.inputs[1] if self.number(quotient.inputs[0]) == 1 else None

    def _integers(self, names: Sequence[str]) -> tuple[int, ...] | None:
        """The values of a constant, where there is one."""
        operand = self.network.operands.get(names[0]) if names else None
        if operand is None or operand.initializer is None or operand.initializer.data is None:
            return None
        return tuple(np.frombuffer(operand.initializer.data, np.int64).tolist())

    def _axes(self, reduction: Operation, rank: int) -> int | None:
        """The first axis of a reduction of the last ones, all kept."""
        numbers = reduction.attributes.get("axes") or self._integers(reduction.inputs[1:])
        if not isinstance(numbers, tuple) or not reduction.attributes.get("keepdims", 1) or not numbers:
            return None
        axes = sorted(int(axis) % rank for axis in numbers)
        return axes[0] if axes == list(range(axes[0], rank)) else None


def _pairs(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Both orders of two."""
    pair = tuple(names)
    if len(pair) == 2:
        yield pair
        yield pair[1], pair[0]


def _is_close(value: object, expected: float) -> bool:
    return isinstance(value, int | float) and abs(value - expected) <= _RELATIVE_TOLERANCE * abs(expected)
