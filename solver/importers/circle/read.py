"""Circle and TensorFlow Lite files: bytes in, tensors and operators with their options out.

The schema of Circle contains that of TensorFlow Lite, so that one reader does for both. Generated code reads
the tables; it follows offsets without looking where they lead. So whatever it raises means that the file is
damaged, and lengths of lists are checked against the size of the file before anything walks along them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from solver.errors import DocumentError
from solver.graph.types import Array

__all__ = [
    "CUSTOM_OPTIONS",
    "IDENTIFIERS",
    "TRAINING",
    "Model",
    "ModelOperator",
    "ModelTensor",
    "SparseDimension",
    "Sparsity",
    "circle_schema",
    "damaged",
    "is_circle",
    "read_model",
    "read_subgraphs",
]

#: Elements of a dense tensor for each one that is stored, at most; a file that asks for more is damaged.
MAX_DENSE_RATIO: Final = 4096


@dataclass(frozen=True, slots=True)
class SparseDimension:
    """One level: `size` positions that are all there, or those that `segments` and `indices` say."""

    size: int
    segments: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sparsity:
    """The arrangement of the stored elements of a sparse tensor.

    The format is that of TACO (Kjolstad et al., OOPSLA 2017): a tensor is walked dimension by dimension. A
    level is dense, so that all its positions are there, or compressed: two lists say for each position of the
    level above which positions are there. Blocks add dimensions of their own behind those of the tensor.

        traversal order (0, 1)      row 0: dense, 2 positions
        row 1 is at segments[1]     columns: segments (0, 2, 3), indices (0, 3, 1) -> (0, 0), (0, 3), (1, 1)

    `order` names the dimension of each level: those of the tensor by number, then those of the blocks, of
    which number k divides the tensor's dimension `blocks[k]`.
    """

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[SparseDimension, ...]

    def dense(self, stored: Array, shape: tuple[int, ...]) -> Array:
        """The dense tensor of `shape`. Linear in its elements.

        Raises ValueError and IndexError where order, blocks and levels contradict each other, the shape or
        the number of stored elements.
        """
        rank = len(shape)
        if sorted(self.order) != list(range(rank + len(self.blocks))) or len(self.levels) != len(self.order):
            raise ValueError("the levels of a sparse tensor do not fit its shape")
        if math.prod(shape) > MAX_DENSE_RATIO * max(len(stored), 1):
            raise ValueError("a sparse tensor has too few elements for its shape")
        coordinates: dict[int, Array] = {}
        places = np.zeros(1, np.int64)  # of what is stored of the level that was walked last
        for dimension, level in zip(self.order, self.levels, strict=True):
            parents, own, places = _children(places, level, math.prod(shape))
            coordinates = {key: value[parents] for key, value in coordinates.items()} | {dimension: own}
        index = [coordinates[axis] for axis in range(rank)]
        for number, axis in enumerate(self.blocks):
            size = self.levels[self.order.index(rank + number)].size
            index[axis] = index[axis] * size + coordinates[rank + number]
        if any(np.any((own < 0) | (own >= size)) for own, size in zip(index, shape, strict=True)):
            raise IndexError("a sparse tensor has elements outside of its shape")
        dense = np.zeros(shape, stored.dtype)
        dense[tuple(index)] = stored[places]
        return dense


def _children(places: Array, level: SparseDimension, limit: int) -> tuple[Array, Array, Array]:
    """For each position below `places`: the number of its parent, its coordinate, and its own place."""
    if level.segments:
        segments = np.array(level.segments, np.int64)
        first, counts = segments[places], segments[places + 1] - segments[places]
    else:
        first, counts = places * level.size, np.full(len(places), level.size)
    if np.any(counts < 0) or np.any(first < 0) or counts.sum() > limit:
        raise ValueError("a sparse tensor has more elements than its shape")
    parents = np.repeat(np.arange(len(places)), counts)
    within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    own = first[parents] + within
    return parents, np.array(level.indices, np.int64)[own] if level.segments else within, own


#: Bytes 4 to 8 of a file -> its format.
IDENTIFIERS: Final[Mapping[bytes, str]] = {b"CIR0": "Circle", b"TFL3": "TensorFlow Lite"}

#: The name of the metadata that says how a model is trained.
TRAINING: Final = "CIRCLE_TRAINING"

#: Element types by their name in the schema; others are refused where a tensor of theirs is used.
_DTYPES: Final[Mapping[str, str]] = {
    "FLOAT32": "<f4",
    "FLOAT64": "<f8",
    "FLOAT16": "<f2",
    "INT32": "<i4",
    "INT64": "<i8",
    "INT16": "<i2",
    "UINT8": "|u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "INT8": "|i1",
    "BOOL": "|b1",
}

#: By the table of an operator's options: its fields that this reader hands on.
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "AddOptions": ("FusedActivationFunction",),
    "BatchMatMulOptions": ("AdjointLhs", "AdjointRhs"),
    "CallOnceOptions": ("InitSubgraphIndex",),
    "ConcatenationOptions": ("Axis", "FusedActivationFunction"),
    "Conv2DOptions": (
        *("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor"),
        "FusedActivationFunction",
    ),
    "CumsumOptions": ("Exclusive", "Reverse"),
    "DepthToSpaceOptions": ("BlockSize",),
    "DepthwiseConv2DOptions": (
        *("Padding", "StrideH", "StrideW", "DilationHFactor", "DilationWFactor"),
        "FusedActivationFunction",
    ),
    "DivOptions": ("FusedActivationFunction",),
    "FullyConnectedOptions": ("FusedActivationFunction", "KeepNumDims", "WeightsFormat"),
    "GatherOptions": ("Axis", "BatchDims"),
    "GeluOptions": ("Approximate",),
    "IfOptions": ("ThenSubgraphIndex", "ElseSubgraphIndex"),
    "InstanceNormOptions": ("Epsilon", "FusedActivationFunction"),
    "L2NormOptions": ("FusedActivationFunction",),
    "LeakyReluOptions": ("Alpha",),
    "MirrorPadOptions": ("Mode",),
    "MulOptions": ("FusedActivationFunction",),
    "PackOptions": ("Axis",),
    "Pool2DOptions": (
        *("Padding", "StrideH", "StrideW", "FilterHeight", "FilterWidth"),
        "FusedActivationFunction",
    ),
    "ReducerOptions": ("KeepDims",),
    "ReshapeOptions": ("NewShape",),
    "ResizeBilinearOptions": ("AlignCorners", "HalfPixelCenters"),
    "ResizeNearestNeighborOptions": ("AlignCorners", "HalfPixelCenters"),
    "SoftmaxOptions": ("Beta",),
    "SpaceToDepthOptions": ("BlockSize",),
    "SplitOptions": ("NumSplits",),
    "SqueezeOptions": ("SqueezeDims",),
    "StridedSliceOptions": ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask"),
    "SubOptions": ("FusedActivationFunction",),
    "TransposeConvOptions": ("Padding", "StrideH", "StrideW", "FusedActivationFunction"),
    "UnidirectionalSequenceLSTMOptions": (
        *("CellClip", "ProjClip", "TimeMajor", "DiagonalRecurrentTensors"),
        "FusedActivationFunction",
    ),
    "UnpackOptions": ("Axis",),
    "WhileOptions": ("CondSubgraphIndex", "BodySubgraphIndex"),
}

#: Options whose numbers stand for words.
_WORDS: Final[Mapping[str, str]] = {
    "Padding": "Padding",
    "FusedActivationFunction": "ActivationFunctionType",
    "Mode": "MirrorPadMode",
}

#: Errors that generated code raises where offsets lead out of a file, or to something else.
_RAISED: Final = (
    *(struct.error, IndexError, KeyError, TypeError, ValueError, OverflowError, AttributeError),
)

Option = int | float | bool | str | bytes | tuple[int, ...]

#: The option under which the bytes of a custom operator stand.
CUSTOM_OPTIONS: Final = "CustomOptions"


@dataclass(frozen=True, slots=True)
class Quantization:
    """Values are (q - zero) * scale: one pair for the whole tensor, or one for each position of `axis`."""

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """A tensor of the file. `shape` is that of the file's own batch.

    `buffer` is the number of its buffer, `data` what stands there (a view, None where nothing does).
    `dtype` is NumPy's word, empty for types that this project does not know; `type` the schema's word.
    A variable keeps its value from one inference to the next.
    `open_axes` are those whose size the file leaves to the caller. Of a tensor with `sparsity`, `data` are
    the elements that are stored.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    dtype: str
    buffer: int
    data: memoryview | None = None
    quantization: Quantization | None = None
    is_variable: bool = False
    open_axes: tuple[int, ...] = ()
    sparsity: Sparsity | None = None

    def array(self) -> Array:
        """The values: a view of the file, or of a sparse tensor a new array with its zeros.

        Only for tensors with data. Raises ValueError for a sparsity that contradicts itself.
        """
        stored = np.frombuffer(self.data or b"", self.dtype)
        return (
            stored.reshape(self.shape) if self.sparsity is None else self.sparsity.dense(stored, self.shape)
        )


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """One operator: its name in the schema, tensors by number (-1: left out), and its options."""

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Option] = field(default_factory=dict)

    def integer(self, key: str, default: int | None = None) -> int:
        """An option that is an integer or a flag. Raises KeyError where it is missing without a default."""
        return int(self._option(key, int, default))

    def real(self, key: str, default: float) -> float:
        return float(self._option(key, (int, float), default))

    def word(self, key: str, default: str | None = None) -> str:
        """An option that stands for a word. Raises KeyError where it is missing without a default."""
        return str(self._option(key, str, default))

    def _option(self, key: str, kind: Any, default: Option | None) -> Any:
        value = self.options.get(key, default)
        if not isinstance(value, kind):
            raise KeyError(key)
        return value


@dataclass(frozen=True, slots=True)
class Model:
    """A subgraph of a file, and how many there are. `metadata` are the bytes by name that stand in the file.

    Operators whose numbers are in `skipped` are not imported.
    """

    name: str
    tensors: tuple[ModelTensor, ...]
    operators: tuple[ModelOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    skipped: frozenset[int] = frozenset()
    subgraphs: int = 1


def is_circle(data: bytes | bytearray) -> bool:
    """Whether the bytes say that they are a Circle or TensorFlow Lite file."""
    return bytes(data[4:8]) in IDENTIFIERS


@contextmanager
def damaged(what: str) -> Iterator[None]:
    """Turns any error that generated code raises on a damaged file into a DocumentError."""
    try:
        yield
    except (
        struct.error,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
    ) as error:
        raise DocumentError(
            f"{what} is damaged: {type(error).__name__} where its tables are read.",
            remedy="Take a file that its own tools can read; copy it again where it was cut off.",
        ) from error


def read_model(data: bytes | bytearray) -> Model:
    """Read the main subgraph of a file, which is its first. Raises as `read_subgraphs` does."""
    return read_subgraphs(data)[0]


def read_subgraphs(data: bytes | bytearray) -> tuple[Model, ...]:
    """Read all subgraphs of a file, the main one first. Linear in its tables; weights are not copied.

    Raises DocumentError for bytes that are no such file, for damaged ones, and where circle-schema is not
    installed.
    """
    if not is_circle(data):
        raise DocumentError(
            "The file is neither a Circle nor a TensorFlow Lite model.",
            remedy="Bytes 4 to 8 of such a file are CIR0 or TFL3.",
        )
    schema = circle_schema()
    with damaged("The model"):
        return _Reader(data, schema).models()


def circle_schema() -> Any:
    try:
        from circle_schema import circle
    except ModuleNotFoundError as error:
        raise DocumentError(
            f"Reading Circle and TensorFlow Lite files needs {error.name}, which is not installed.",
            remedy="pip install 'circle-schema>=0.10' 'flatbuffers>=24'",
        ) from error
    return circle


class _Reader:
    def __init__(self, data: bytes | bytearray, schema: Any) -> None:
        self._data, self._schema = data, schema
        self._root = schema.Model.Model.GetRootAs(data, 0)
        self._operators = _names(schema.BuiltinOperator.BuiltinOperator)
        self._options = _names(schema.BuiltinOptions.BuiltinOptions)
        self._types = _names(schema.TensorType.TensorType)

    def models(self) -> tuple[Model, ...]:
        metadata, count = self._metadata(), self._checked(self._root.SubgraphsLength())
        if not count:
            raise IndexError
        graphs = [self._root.Subgraphs(k) for k in range(count)]
        self._checked(sum(graph.TensorsLength() + graph.OperatorsLength() for graph in graphs))
        return tuple(self._model(graph, metadata) for graph in graphs)

    def _model(self, graph: Any, metadata: Mapping[str, bytes]) -> Model:
        tensors = tuple(map(self._tensor, self._each(graph.Tensors, graph.TensorsLength())))
        operators = tuple(map(self._operator, self._each(graph.Operators, graph.OperatorsLength())))
        inputs, outputs = _numbers(graph.InputsAsNumpy()), _numbers(graph.OutputsAsNumpy())
        touched = [inputs, outputs, *(x for o in operators for x in (o.inputs, o.outputs))]
        if any(not -1 <= number < len(tensors) for numbers in touched for number in numbers):
            raise IndexError
        name, count = (graph.Name() or b"").decode(), self._root.SubgraphsLength()
        return Model(name, tensors, operators, inputs, outputs, metadata, subgraphs=count)

    def _checked(self, length: int) -> int:
        """A length of a list, whose elements take four bytes at least."""
        if not 0 <= length <= len(self._data) // 4:
            raise IndexError
        return length

    def _each(self, get: Callable[[int], Any], length: int) -> Iterator[Any]:
        return map(get, range(self._checked(length)))

    def _tensor(self, tensor: Any) -> ModelTensor:
        type_ = self._types.get(tensor.Type(), "unknown")
        shape, dtype = _numbers(tensor.ShapeAsNumpy()), _DTYPES.get(type_, "")
        number, details = tensor.Buffer(), tensor.Quantization()
        if any(size < 0 for size in shape):
            raise ValueError
        data, sparsity = self._buffer(number), self._sparsity(tensor)
        if sparsity is None and data is not None and dtype and len(data) != _bytes_of(shape, dtype):
            raise ValueError
        return ModelTensor(
            name=(tensor.Name() or b"").decode(),
            shape=shape,
            type=type_,
            dtype=dtype,
            buffer=number,
            data=data,
            quantization=self._quantization(tensor, details, shape) if details is not None else None,
            is_variable=bool(tensor.IsVariable()),
            open_axes=tuple(k for k, size in enumerate(_numbers(tensor.ShapeSignatureAsNumpy())) if size < 0),
            sparsity=sparsity,
        )

    def _quantization(self, tensor: Any, details: Any, shape: tuple[int, ...]) -> Quantization | None:
        scales = details.ScaleAsNumpy().tolist() if details.ScaleLength() else []
        if not scales:
            return None
        zeros = _numbers(details.ZeroPointAsNumpy()) or (0,) * len(scales)
        # The scales of a bias lie along its one axis; some converters write the axis of the weights there.
        axis = 0 if len(shape) == 1 else details.QuantizedDimension()
        if len(scales) > 1 and (not 0 <= axis < len(shape) or len(scales) != shape[axis]):
            name = (tensor.Name() or b"").decode()
            raise DocumentError(
                f"The tensor {name!r:.80} of shape {list(shape)} has {len(scales)} scales along axis {axis}.",
                remedy="Convert the model again, with one scale for each position of an axis of the tensor.",
            )
        if len(zeros) not in (1, len(scales)):
            raise ValueError
        return Quantization(tuple(scales), zeros, axis)

    def _sparsity(self, tensor: Any) -> Sparsity | None:
        table = tensor.Sparsity()
        if table is None:
            return None
        levels = self._each(table.DimMetadata, table.DimMetadataLength())
        return Sparsity(
            _numbers(table.TraversalOrderAsNumpy()),
            _numbers(table.BlockMapAsNumpy()),
            tuple(map(self._sparse_dimension, levels)),
        )

    def _sparse_dimension(self, level: Any) -> SparseDimension:
        if level.Format() == self._schema.DimensionType.DimensionType.DENSE:
            return SparseDimension(level.DenseSize())
        return SparseDimension(
            0,
            self._index_vector(level.ArraySegmentsType(), level.ArraySegments()),
            self._index_vector(level.ArrayIndicesType(), level.ArrayIndices()),
        )

    def _index_vector(self, kind: int, table: Any) -> tuple[int, ...]:
        """A list of indices, whose elements have 8, 16 or 32 bits."""
        name = _names(self._schema.SparseIndexVector.SparseIndexVector)[kind]
        vector = getattr(getattr(self._schema, name), name)()
        vector.Init(table.Bytes, table.Pos)
        return _numbers(vector.ValuesAsNumpy())

    def _buffer(self, number: int) -> memoryview | None:
        if not 0 <= number < self._checked(self._root.BuffersLength()):
            raise IndexError
        buffer = self._root.Buffers(number)
        length = buffer.DataLength()
        if not length:
            return None
        # The view that NumPy makes of the vector begins in the file: no bytes are copied.
        return memoryview(buffer.DataAsNumpy())[:length]

    def _operator(self, operator: Any) -> ModelOperator:
        kind = self._root.OperatorCodes(operator.OpcodeIndex())
        # Files from before the schema had more than 127 operators have the deprecated field alone.
        number = kind.BuiltinCode() or kind.DeprecatedBuiltinCode()
        code = self._operators.get(number, f"operator {number}")
        if code == "CUSTOM":
            code = f"CUSTOM {(kind.CustomCode() or b'').decode()}"
        return ModelOperator(
            code,
            _numbers(operator.InputsAsNumpy()),
            _numbers(operator.OutputsAsNumpy()),
            MappingProxyType(self._options_of(operator)),
        )

    def _options_of(self, operator: Any) -> dict[str, Option]:
        name = self._options.get(operator.BuiltinOptionsType(), "NONE")
        table = operator.BuiltinOptions()
        if operator.CustomOptionsLength():
            return {CUSTOM_OPTIONS: operator.CustomOptionsAsNumpy().tobytes()}
        if name not in _OPTIONS or table is None:
            return {}
        options = getattr(getattr(self._schema, name), name)()
        options.Init(table.Bytes, table.Pos)
        values: dict[str, Option] = {}
        for key in _OPTIONS[name]:
            if hasattr(options, f"{key}AsNumpy"):
                values[key] = _numbers(getattr(options, f"{key}AsNumpy")())
                continue
            value = getattr(options, key)()
            if key in _WORDS:
                words = getattr(getattr(self._schema, _WORDS[key]), _WORDS[key])
                value = _names(words)[value]
            values[key] = value
        return values

    def _metadata(self) -> Mapping[str, bytes]:
        entries = self._each(self._root.Metadata, self._root.MetadataLength())
        return MappingProxyType(
            {(e.Name() or b"").decode(): bytes(self._buffer(e.Buffer()) or b"") for e in entries}
        )


def _names(enumeration: Any) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


def _numbers(array: Any) -> tuple[int, ...]:
    """A list of integers; generated code gives 0 for one that is not there."""
    return tuple(array.tolist()) if isinstance(array, np.ndarray) else ()


def _bytes_of(shape: tuple[int, ...], dtype: str) -> int:
    size = np.dtype(dtype).itemsize
    for length in shape:
        size *= length
    return size
