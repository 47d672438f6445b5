"""The graph that the operators of a model are translated to, and the inputs of the operator in hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from solver.errors import BatchError, DimensionError, TooManyOperationsError
from solver.graph import MAX_OPERATIONS, AttributeValue, DType, Initializer, Operation, Role
from solver.graph.types import Array, TensorType
from solver.importers.circle.read import Model, ModelOperator
from solver.importers.circle.roles import MOVES, weight_tensors
from solver.importers.narrowed import Origin
from solver.importers.recorder import GraphRecorder
from solver.importers.tables import looks_like_a_table

__all__ = [
    "FOLDED",
    "SEVERAL",
    "Network",
    "Unsupported",
    "Weight",
    "fold",
    "fold_several",
    "slices",
    "unique_names",
]

#: More elements than these are weights, and not the sizes of something.
_MAX_FOLDED_ELEMENTS: Final = 4096


def fold(operator: ModelOperator, values: Sequence[Array | None]) -> Array | None:
    """The only output of an operator whose inputs are constants, None where it cannot be worked out here.

    `values` are the inputs, None for those that are left out. Raises ValueError and IndexError for values
    that the operator cannot take.
    """
    if operator.code not in FOLDED or sum(v.size for v in values if v is not None) > _MAX_FOLDED_ELEMENTS:
        return None
    return FOLDED[operator.code](operator, values)


def fold_several(operator: ModelOperator, values: Sequence[Array | None]) -> list[Array]:
    """The outputs of an operator of `SEVERAL`, one after the other; raises as `fold` does."""
    return SEVERAL[operator.code](operator, _present(values))


def slices(operator: ModelOperator, rank: int, numbers: Sequence[Array]) -> tuple[slice | int | None, ...]:
    """The index of a STRIDED_SLICE as NumPy writes it: a range, one element of an axis, None for a new axis.

    `numbers` are begin, end and strides. Axes under an ellipsis, and axes without numbers, are taken whole.
    """
    begin, end, strides = (n.astype(np.int64).tolist() for n in numbers)

    def marked(mask: str, place: int) -> bool:
        return bool(operator.integer(mask, 0) >> place & 1)

    parts: list[slice | int | None] = []
    new = sum(marked("NewAxisMask", k) and not marked("EllipsisMask", k) for k in range(len(begin)))
    for k, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        if marked("EllipsisMask", k):
            parts += [slice(None)] * (rank - (len(begin) - 1 - new))
        elif marked("NewAxisMask", k):
            parts.append(None)
        elif marked("ShrinkAxisMask", k):
            parts.append(first)
        else:
            start = None if marked("BeginMask", k) else first
            parts.append(slice(start, None if marked("EndMask", k) else last, step))
    parts += [slice(None)] * (rank - sum(part is not None for part in parts))
    return tuple(parts)


def _present(values: Sequence[Array | None]) -> list[Array]:
    return [value for value in values if value is not None]


def _strided_slice(operator: ModelOperator, values: Sequence[Array | None]) -> Array:
    x, *numbers = _present(values)
    return np.asarray(x[slices(operator, x.ndim, numbers)])


def _gather(operator: ModelOperator, values: Sequence[Array | None]) -> Array:
    x, indices = _present(values)
    return np.asarray(np.take(x, indices, axis=operator.integer("Axis", 0)))


def _reduce_prod(operator: ModelOperator, values: Sequence[Array | None]) -> Array:
    x, axes = _present(values)
    keep = bool(operator.options.get("KeepDims"))
    return np.asarray(np.prod(x, axis=tuple(axes.ravel().tolist()), keepdims=keep, dtype=x.dtype))


def _range(_: ModelOperator, values: Sequence[Array | None]) -> Array:
    first, last, step = (value.item() for value in _present(values))
    if step == 0 or abs((last - first) / step) > _MAX_FOLDED_ELEMENTS:
        raise ValueError("has too many elements")
    return np.arange(first, last, step, dtype=_present(values)[0].dtype)


def _filled(_: ModelOperator, values: Sequence[Array | None]) -> Array:
    sizes, value = _present(values)
    if math.prod(sizes.ravel().tolist()) > _MAX_FOLDED_ELEMENTS:
        raise ValueError("has too many elements")
    return np.full(sizes.ravel().tolist(), value)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def folded(_: ModelOperator, values: Sequence[Array | None]) -> Array:
        a, b = _present(values)
        return np.asarray(function(a, b), dtype=a.dtype)

    return folded


def _unary(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda _, values: function(_present(values)[0])


def _split(operator: ModelOperator, values: Sequence[Array]) -> list[Array]:
    axis, x = values
    return np.split(x, len(operator.outputs), int(axis.item()))


def _split_v(_: ModelOperator, values: Sequence[Array]) -> list[Array]:
    x, sizes, axis = values
    return np.split(x, np.cumsum(sizes)[:-1].tolist(), int(axis.item()))


#: By operator of several outputs: what it makes of constants.
SEVERAL: Final[Mapping[str, Callable[[ModelOperator, Sequence[Array]], list[Array]]]] = {
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "UNPACK": lambda operator, values: list(np.moveaxis(values[0], operator.integer("Axis", 0), 0)),
}

#: By operator: what it makes of constants.
FOLDED: Final[Mapping[str, Callable[[ModelOperator, Sequence[Array | None]], Array]]] = {
    "ADD": _binary(np.add),
    "CAST": _unary(np.asarray),
    "CONCATENATION": lambda operator, values: np.concatenate(
        _present(values), axis=operator.integer("Axis", 0)
    ),
    "EXPAND_DIMS": lambda _, values: np.expand_dims(_present(values)[0], int(_present(values)[1].item())),
    "FILL": _filled,
    "FLOOR_DIV": _binary(np.floor_divide),
    "GATHER": _gather,
    "MAXIMUM": _binary(np.maximum),
    "MINIMUM": _binary(np.minimum),
    "MUL": _binary(np.multiply),
    "PACK": lambda operator, values: np.stack(_present(values), axis=operator.integer("Axis", 0)),
    "RANGE": _range,
    "REDUCE_PROD": _reduce_prod,
    "RESHAPE": lambda _, values: _present(values)[0].reshape(_present(values)[1].tolist()),
    "SQUEEZE": _unary(np.squeeze),
    "STRIDED_SLICE": _strided_slice,
    "SUB": _binary(np.subtract),
}


#: Operators that a constant of half precision, or a sparse one, goes through before it is read.
_WIDENINGS = frozenset({"DEQUANTIZE", "DENSIFY"})
#: Element types of quantised tensors: activations and weights, and biases.
_QUANTIZED = frozenset({"int8", "uint8", "int32"})


class Unsupported(Exception):
    """An operator of the file has something that graphs lack; the text ends a sentence about the operator."""


@dataclass(frozen=True, slots=True)
class Weight:
    """The origin of a parameter: a tensor and a buffer of the file, and the order of its axes there.

    The parameter's axes are the file's in the order `axes`; () where they are the same. The tensor may be of
    half precision, or sparse.
    """

    tensor: int
    buffer: int
    axes: tuple[int, ...] = ()

    def to_file(self, value: Array) -> Array:
        """The parameter as it lies in the file."""
        return np.ascontiguousarray(value.transpose(np.argsort(self.axes)) if self.axes else value)

    def from_file(self, value: Array) -> Array:
        return np.ascontiguousarray(value.transpose(self.axes) if self.axes else value)


class Network(GraphRecorder):
    """The graph so far. `add` translates one operator; the rest is what its translation asks and tells.

    Tensors of the file are called by number. A constant is declared when an operator reads it, as a
    parameter where it is a weight. Shapes follow from the inputs of the batch that is planned. `output` is
    the tensor that the graph computes; only what it depends on is translated. Names and patterns of names in
    `trained` make parameters of other floating constants.
    """

    def __init__(
        self,
        model: Model,
        batch: int | None,
        output: int,
        *,
        dims: Mapping[str, int] | None = None,
        trained: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.model, self.output = model, output
        self.weights: dict[str, Weight] = {}
        #: Parameters that each operator of the file owns.
        self.owned: list[list[str]] = []
        #: Parameters with names or values of tables.
        self.tables: list[str] = []
        #: What floating operands are in the file.
        self.origins: dict[str, Origin] = {}
        #: Numbers of the operators that are imported.
        self.needed = [k for k in range(len(model.operators)) if k not in model.skipped]
        self._names = unique_names(model)
        self._taken = set(self._names)
        self._trained = weight_tensors(model, range(len(model.operators))) | {
            k for k, name in enumerate(self._names) if any(fnmatchcase(name, pattern) for pattern in trained)
        }
        #: Parameters that the loss has no derivative with respect to.
        self.frozen: list[str] = []
        #: Complex tensors by number.
        self._complex: dict[int, tuple[str, str]] = {}
        #: Names of constants that the file has not as tensors, such as sizes and scales.
        self.added: set[str] = set()
        #: Quantised constants, by name.
        self.quantized: dict[str, None] = {}
        #: Quantised tensors as floats, by number and order of axes.
        self._floats: dict[tuple[int, tuple[int, ...]], str] = {}
        self._computed = {number for operator in model.operators for number in operator.outputs} | {
            *model.inputs
        }
        self._folded: dict[int, Array] = {}
        self._stored_at: dict[int, int] = {}
        self.operator: ModelOperator
        self._parts = 0
        read = {number for k in self.needed for number in model.operators[k].inputs} | {output}
        inputs = {number: self._names[number] for number in model.inputs if number in read}
        self.batch, shapes = _input_shapes(model, inputs, batch, dims or {})
        for number, shape in shapes.items():
            self._declare(self._names[number], Role.INPUT, shape, self._dtype(number))

    @property
    def file_batch(self) -> int:
        return _file_batch(self.model)

    def _dtype(self, number: int) -> DType:
        tensor = self.model.tensors[number]
        word = np.dtype(tensor.dtype).name if tensor.dtype else tensor.type
        types = _QUANTIZED if tensor.quantization else {d.value for d in DType}
        if word not in types:
            what = f"quantized {tensor.type}" if tensor.quantization else tensor.type
            raise Unsupported(f"uses {tensor.name!r}, which is {what}")
        return DType(word)

    def _declare(
        self, name: str, role: Role, shape: Sequence[int], dtype: DType, value: Array | None = None
    ) -> str:
        if name not in self.operands:
            initializer = None
            if value is not None:
                initializer = Initializer("values", np.ascontiguousarray(value, dtype.numpy).tobytes())
            self.put(name, role, TensorType(tuple(shape), dtype), initializer)
        return name

    # ----------------------------------------------------------------------------- one operator

    def skip(self) -> None:
        """Count an operator that is not imported."""
        self.owned.append([])

    def add(self, operator: ModelOperator, translate: Callable[..., None]) -> None:
        """Translate one operator, or work its output out where it is a constant.

        Raises Unsupported, and GraphError for what the graph refuses.
        """
        self.operator, self._parts = operator, 0
        self.owned.append([])
        if self._fold(operator):
            return
        pairs = {n: self._complex[n] for n in operator.inputs if n in self._complex}
        if pairs and operator.code in MOVES:
            self._move_both(pairs, operator, translate)
        else:
            translate(self, operator)

    def _move_both(
        self, pairs: Mapping[int, tuple[str, str]], operator: ModelOperator, translate: Callable[..., None]
    ) -> None:
        """Translate a move of complex tensors twice, for the real and for the imaginary part."""
        names, moved = self._names, []
        for part, word in enumerate(("real", "imaginary")):
            self._names = list(names)
            for number, pair in pairs.items():
                self._names[number] = pair[part]
            for number in operator.outputs:
                self._names[number] = self.free(f"{names[number]}.{word}")
            translate(self, operator)
            moved.append([self._names[number] for number in operator.outputs])
        self._names = names
        for number, real, imaginary in zip(operator.outputs, *moved, strict=True):
            self.set_complex(number, (real, imaginary))

    def complex(self, k: int) -> tuple[str, str]:
        """Real and imaginary part of the k-th input."""
        number = self._number(k)
        if number not in self._complex:
            raise Unsupported(f"reads {self._names[number]!r}, which is {self.model.tensors[number].type}")
        return self._complex[number]

    def set_complex(self, number: int, parts: tuple[str, str]) -> None:
        """Say what the complex tensor `number` has become."""
        self._complex[number] = parts

    def is_complex(self, k: int) -> bool:
        return self._number(k) in self._complex

    def _fold(self, operator: ModelOperator) -> bool:
        if operator.code == "SHAPE":
            self._folded[operator.outputs[0]] = np.array(self.shape(0), np.int64)
            return True
        if len(operator.outputs) != 1 and operator.code not in SEVERAL:
            return False
        values = [None if number < 0 else self._value(number) for number in operator.inputs]
        if operator.code in _WIDENINGS and values[0] is not None and values[0].dtype.kind == "f":
            self._folded[operator.outputs[0]] = values[0].astype(self.output_dtype())
            self._stored_at[operator.outputs[0]] = self._stored_at.get(operator.inputs[0], operator.inputs[0])
            return True
        if any(v is None and n >= 0 for v, n in zip(values, operator.inputs, strict=True)):
            return False
        if any(v is not None and v.dtype.kind not in "iu" for v in values):
            return False
        if any(n >= 0 and self.model.tensors[n].quantization for n in operator.inputs):
            return False
        try:
            if operator.code in SEVERAL:
                self._folded.update(zip(operator.outputs, fold_several(operator, values), strict=True))
                return True
            folded = fold(operator, values)
        except (LookupError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
            raise Unsupported(f"cannot be worked out from constants: {error}") from error
        if folded is None:
            return False
        if operator.code == "CAST" and self.output_dtype():
            folded = folded.astype(self.output_dtype())
        self._folded[operator.outputs[0]] = folded
        return True

    def _value(self, number: int) -> Array | None:
        if number in self._folded:
            return self._folded[number]
        tensor = self.model.tensors[number]
        if tensor.data is None and tensor.dtype and 0 in tensor.shape and number not in self._computed:
            return np.zeros(
                tensor.shape, tensor.dtype
            )  # a constant without elements has no bytes in the file
        if tensor.data is None or not tensor.dtype:
            return None
        if tensor.sparsity is None:
            return tensor.array()
        self._folded[number] = tensor.array()
        return self._folded[number]

    # ---------------------------------------------------------------------- what it reads

    def is_constant(self, k: int) -> bool:
        return self._value(self._number(k)) is not None

    def _number(self, k: int) -> int:
        if k >= len(self.operator.inputs) or self.operator.inputs[k] < 0:
            raise Unsupported(f"has no input {k}")
        return self.operator.inputs[k]

    def input(self, k: int) -> str:
        """The name of the k-th input; a constant is declared as one."""
        return self._read(self._number(k))

    def _read(self, number: int) -> str:
        if self.model.tensors[number].quantization and number not in self._folded:
            return self._dequantized(number, ())
        name, value = self._names[number], self._value(number)
        if value is None:
            if name not in self.types:
                raise Unsupported(f"reads {name!r}, which no operator before it defines")
            return name
        if name in self.weights:
            return name
        dtype = self._dtype(number) if number not in self._folded else DType(value.dtype.name)
        if number in self._trained and dtype.is_floating:
            return self._parameter(number, value, ())
        self._record_origin(number)
        return self._declare(name, Role.CONSTANT, value.shape, dtype, value)

    def _record_origin(self, number: int, name: str = "") -> None:
        """Records the stored tensor behind a constant, or behind `name`, for notes on widened weights."""
        stored = self.model.tensors[self._stored_at.get(number, number)]
        if stored.data is not None:
            kind = np.dtype(stored.dtype).name if stored.dtype else stored.type
            element = kind if stored.sparsity is None else f"sparse {kind}"
            self.origins[name or self._names[number]] = Origin(stored.name, element, len(stored.data))

    def weight(self, k: int, *, axes: tuple[int, ...] = ()) -> str:
        """The name of the k-th input as a parameter; one that is computed stays what it is."""
        number = self._number(k)
        value = self._value(number)
        if value is None:
            if axes:
                raise Unsupported("has weights that are computed")
            return self._read(number)
        if number not in self._folded and self.model.tensors[number].quantization:
            return self._dequantized(number, axes)
        if value.dtype.kind != "f":
            raise Unsupported(f"has weights of {self.model.tensors[number].type}")
        return self._parameter(number, value, axes)

    def _dequantized(self, number: int, axes: tuple[int, ...]) -> str:
        """The name of a quantised tensor as floats, its axes in the order `axes`."""
        if (number, axes) not in self._floats:
            attributes, operands = self._quantized_operands(number, axes)
            name = self.free(f"{self._names[number]}.float")
            self._emit("DequantizeLinear", operands, [name], attributes)
            self._record_origin(number, name)
            self._floats[number, axes] = name
        return self._floats[number, axes]

    def dequantize(self) -> None:
        """The operator's first input as floats, under the name of its output."""
        attributes, operands = self._quantized_operands(self._number(0), ())
        self._emit("DequantizeLinear", operands, [self._names[self.operator.outputs[0]]], attributes)

    def quantize(self, value: str, number: int) -> None:
        """The floats `value` as a tensor of the file. Halves are rounded away from zero."""
        attributes, scale = self._scale(number, ())
        self._emit(
            "QuantizeLinear", [value, *scale], [self._names[number]], {**attributes, "rounding": "away"}
        )

    def keeps_scale(self) -> bool:
        """Whether the first input and the output are quantised by the same scale and zero point."""
        source, target = (
            self.model.tensors[number] for number in (self._number(0), self.operator.outputs[0])
        )
        return source.quantization is not None and source.quantization == target.quantization

    def emit_on_elements(self, type_: str, attributes: Mapping[str, Any]) -> None:
        """The operation on the quantised elements themselves, in floats, and rounded away from zero."""
        name, output = self._names[self._number(0)], self.operator.outputs[0]
        if name not in self.types:
            raise Unsupported(f"reads {name!r}, which no operator before it defines")
        element = {DType.UINT8: 2, DType.INT8: 3}.get(self._dtype(output))
        if element is None:
            raise Unsupported("has elements that are not quantised to 8 bits")
        one = self.scalar(1.0)
        value = self.part(type_, [self.part("DequantizeLinear", [name, one])], attributes)
        rounding: dict[str, AttributeValue] = {"rounding": "away", "output_dtype": element}
        self._emit("QuantizeLinear", [value, one], [self._names[output]], rounding)

    def _quantized_operands(
        self, number: int, axes: tuple[int, ...]
    ) -> tuple[dict[str, AttributeValue], list[str]]:
        """The quantised elements with their scale and zero point, and the axis of these."""
        name, value = self._names[number], self._value(number)
        dtype = self._dtype(number)
        if value is not None:
            if axes:
                name, value = self.free(f"{name}.turned"), value.transpose(axes)
            self._declare(name, Role.CONSTANT, value.shape, dtype, value)
            self.quantized.setdefault(self._names[number])
        elif name not in self.types:
            raise Unsupported(f"reads {name!r}, which no operator before it defines")
        attributes, scale = self._scale(number, axes)
        return attributes, [name, *scale]

    def _scale(self, number: int, axes: tuple[int, ...]) -> tuple[dict[str, AttributeValue], list[str]]:
        tensor = self.model.tensors[number]
        if tensor.quantization is None:
            raise Unsupported(f"needs a scale of {tensor.name!r}")
        many, dtype = len(tensor.quantization.scales) > 1, self._dtype(number)
        shape = (len(tensor.quantization.scales),) if many else ()
        scales = np.array(tensor.quantization.scales, np.float32).reshape(shape)
        operands = [self._declare(self._constant(), Role.CONSTANT, shape, DType.FLOAT32, scales)]
        if dtype is not DType.INT32:
            zeros = np.broadcast_to(np.array(tensor.quantization.zeros, dtype.numpy), shape or (1,))
            operands.append(
                self._declare(self._constant(), Role.CONSTANT, shape, dtype, zeros.reshape(shape))
            )
        axis = tensor.quantization.axis
        return {"axis": axes.index(axis) if axes else axis} if many else {}, operands

    def _parameter(self, number: int, value: Array, axes: tuple[int, ...]) -> str:
        stored, name = self._stored_at.get(number, number), self._names[number]
        weight = Weight(stored, self.model.tensors[stored].buffer, axes)
        if self.weights.get(name, weight) != weight:
            raise Unsupported(f"reads the weights {name!r} in another order than an operator before it")
        laid = weight.from_file(value)
        self._declare(name, Role.PARAMETER, laid.shape, DType(value.dtype.name), laid)
        if self.operands[name].role is Role.PARAMETER:
            if name not in self.weights and looks_like_a_table(name, value):
                self.tables.append(name)
            self.weights[name] = weight
            self.owned[-1].append(name)
            self._record_origin(number)
        return name

    def bias(self, k: int) -> list[str]:
        """The k-th input as a parameter, or nothing where it is left out."""
        return [self.weight(k)] if self.has_input(k) else []

    def has_input(self, k: int) -> bool:
        return k < len(self.operator.inputs) and self.operator.inputs[k] >= 0

    def integers(self, k: int) -> list[int]:
        """The values of the k-th input, which must be constant."""
        value = self._value(self._number(k))
        if value is None or value.dtype.kind not in "iu":
            name = self._names[self._number(k)]
            raise Unsupported(f"needs {name!r} as a constant, which is computed from data")
        numbers: list[int] = value.ravel().tolist()
        return numbers

    def option_sizes(self, key: str) -> list[int]:
        value = self.operator.options.get(key, ())
        return [int(v) for v in value] if isinstance(value, tuple) else []

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of the k-th input, for the batch that is planned."""
        number = self._number(k)
        value = self._value(number)
        return value.shape if value is not None else self.types[self._read(number)].type.shape

    def file_shape(self, k: int) -> tuple[int, ...]:
        """The shape of the k-th input as the file has it."""
        return self.model.tensors[self._number(k)].shape

    def output_dtype(self) -> str:
        return self.model.tensors[self.operator.outputs[0]].dtype

    def with_batch(self, sizes: Sequence[int], source: Sequence[int]) -> tuple[int, ...]:
        """Sizes that the file gives for its own batch, as those of the batch that is planned.

        The first one stands for the batch, alone or times something.
        """
        planned = list(sizes)
        if self.batch is None or not planned or not source or source[0] != self.batch:
            return tuple(planned)
        if planned[0] == self.file_batch:
            planned[0] = self.batch
        elif -1 not in planned and int(np.prod(planned)) != int(np.prod(source)):
            planned[0] = -1
        return tuple(planned)

    # ---------------------------------------------------------------------- what it becomes

    def emit(
        self,
        type_: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        *,
        output: int = 0,
    ) -> None:
        """The operation that defines the operator's outputs, or only output number `output` of several."""
        numbers = self.operator.outputs
        if type_ != "Split":
            numbers = numbers[output : output + 1]
        floats = {n: self._part() for n in numbers if self.model.tensors[n].quantization}
        self._emit(type_, inputs, [floats.get(number, self._names[number]) for number in numbers], attributes)
        for number, value in floats.items():
            self.quantize(value, number)

    def part(self, type_: str, inputs: Sequence[str], attributes: Mapping[str, Any] | None = None) -> str:
        """An operation on the way to the operator's output; returns the name of what it defines."""
        return self.parts(type_, inputs, 1, attributes)[0]

    def parts(
        self, type_: str, inputs: Sequence[str], count: int, attributes: Mapping[str, Any] | None = None
    ) -> list[str]:
        names = [self._part() for _ in range(count)]
        self._emit(type_, inputs, names, attributes)
        return names

    def _part(self) -> str:
        self._parts += 1
        return self.free(f"{self._names[self.operator.outputs[0]]}.{self._parts}")

    def copy_constants(self, numbers: Iterable[int]) -> None:
        """Give tensors that were worked out on import an operation, so that they can be outputs."""
        for number in numbers:
            name, value = self._names[number], self._folded.get(number)
            if value is not None and name not in self.types:
                source = self.free(f"{name}/constant")
                self.added.add(
                    self._declare(source, Role.CONSTANT, value.shape, DType(value.dtype.name), value)
                )
                self._emit("StopGradient", [source], [name], None)

    def output_name(self, number: int) -> str:
        """The name of what an operator of the file defines."""
        return self._names[number]

    def free(self, name: str) -> str:
        """`name`, or one like it that nothing has yet."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _emit(
        self,
        type_: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, AttributeValue] | None,
    ) -> None:
        if len(self.operations) >= MAX_OPERATIONS:
            raise TooManyOperationsError(
                f"The model has more than {MAX_OPERATIONS:,} operations, sequences unrolled over time.",
                remedy="Cut the sequences, or split the model.",
            )
        self.record(Operation(outputs[0], type_, tuple(inputs), tuple(outputs), attributes or {}))

    def numbers(self, values: Iterable[int]) -> str:
        """A constant of integers: sizes, axes, pads."""
        value = np.array(list(values), np.int64)
        return self._declare(self._constant(), Role.CONSTANT, value.shape, DType.INT64, value)

    def table(self, values: Array) -> str:
        """A constant of floats that follows from the operator."""
        return self._declare(self._constant(), Role.CONSTANT, values.shape, DType.FLOAT32, values)

    def scalar(self, value: float) -> str:
        return self._declare(self._constant(), Role.CONSTANT, (), DType.FLOAT32, np.array(value))

    def _constant(self) -> str:
        name = self.free(f"{self._names[self.operator.outputs[0]]}/constant")
        self.added.add(name)
        return name


def unique_names(model: Model) -> list[str]:
    """Names of all tensors without '@', which is reserved, each made different from those before it."""
    taken: set[str] = set()
    names = []
    for k, tensor in enumerate(model.tensors):
        name = tensor.name or f"tensor {k}"
        name = "".join(c if c.isprintable() and c != "@" else "_" for c in name)
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _file_batch(model: Model) -> int:
    """The first dimension of the first input, which stands for the batch."""
    shape = model.tensors[model.inputs[0]].shape
    return shape[0] if shape else 1


def _input_shapes(
    model: Model, names: Mapping[int, str], batch: int | None, dims: Mapping[str, int]
) -> tuple[int | None, dict[int, tuple[int, ...]]]:
    """The batch, and the shapes of the inputs `names`, which map numbers of tensors to names.

    `dims` are sizes by place, as ``x[1]``; the first axis of an input of the file's batch is the batch.
    Raises BatchError for two batches, and DimensionError for axes that there are not and for open ones
    without a size: an axis is open whose size the file leaves to the caller, with a placeholder of 1.
    """
    shapes = {number: list(model.tensors[number].shape) for number in names}
    places = {
        f"{name}[{axis}]": (number, axis)
        for number, name in names.items()
        for axis in range(len(shapes[number]))
    }
    for place, size in dims.items():
        if place not in places:
            raise DimensionError(
                f"The inputs have no dimension {place!r:.80}.",
                remedy=f"They have {', '.join(places) or 'none'}.",
                path=("dim",),
            )
        number, axis = places[place]
        if axis == 0 and shapes[number][0] == _file_batch(model):
            if batch not in (None, size):
                raise BatchError(
                    f"The batch is {batch}, and {place!r:.80} is {size}.",
                    remedy="Give all inputs one batch, with --batch.",
                    path=("dim",),
                )
            batch = size
        else:
            shapes[number][axis] = size
    missing = [
        place
        for place, (number, axis) in places.items()
        if axis and axis in model.tensors[number].open_axes and shapes[number][axis] == 1
        and place not in dims
    ]  # fmt: skip
    if missing:
        raise DimensionError(
            f"The model leaves {'a dimension' if len(missing) == 1 else f'{len(missing)} dimensions'} open:"
            f" {', '.join(missing)}.",
            remedy="Give " + " ".join(f"--dim '{place}=SIZE'" for place in missing) + ".",
            path=("dim",),
        )
    if batch is not None:
        for number, shape in shapes.items():
            if model.tensors[number].shape[:1] == (_file_batch(model),):
                shape[0] = batch
    return batch, {number: tuple(shape) for number, shape in shapes.items()}
