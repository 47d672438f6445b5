"""Writes small Circle files, as a user's own tools would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from solver.graph.types import Array
from solver.importers.circle.read import circle_schema

__all__ = ["CircleFile", "dense"]

circle: Any = circle_schema()

_TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32", "int64": "INT64", "int8": "INT8",
    "bool": "BOOL", "resource": "RESOURCE", "uint8": "UINT8", "int16": "INT16",
    "complex64": "COMPLEX64",
}  # fmt: skip
_WORDS = {"padding": "Padding", "fusedActivationFunction": "ActivationFunctionType", "mode": "MirrorPadMode"}


@dataclass
class CircleFile:
    """Tensors and operators in the order in which they are added; `write` gives the file's bytes.

    `subgraph` adds another subgraph, which operators run by its `index`.
    """

    tensors: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=lambda: [circle.Buffer.BufferT()])
    codes: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    others: list[CircleFile] = field(default_factory=list)
    index: int = 0

    def subgraph(self) -> CircleFile:
        """Another subgraph of this file: tensors, operators, inputs and outputs of its own."""
        self.others.append(CircleFile(buffers=self.buffers, codes=self.codes, index=len(self.others) + 1))
        return self.others[-1]

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        quantized: bool = False,
        variable: bool = False,
        signature: Sequence[int] = (),
    ) -> int:
        made = circle.Tensor.TensorT()
        made.name, made.shape, made.buffer, made.isVariable = name, list(shape), 0, variable
        made.shapeSignature = list(signature) if signature else None
        made.type = getattr(circle.TensorType.TensorType, _TYPES[dtype])
        if quantized:
            made.quantization = circle.QuantizationParameters.QuantizationParametersT()
            made.quantization.scale = [0.1]
        self.tensors.append(made)
        return len(self.tensors) - 1

    def input(
        self, name: str, shape: Sequence[int], dtype: str = "float32", *, signature: Sequence[int] = ()
    ) -> int:
        """`signature` has -1 for the axes that the file leaves open."""
        self.inputs.append(self.tensor(name, shape, dtype, signature=signature))
        return self.inputs[-1]

    def scaled(self, number: int, scales: Sequence[float], zeros: Sequence[int] = (), axis: int = 0) -> int:
        """The tensor, quantised: values are (q - zero) * scale."""
        made = self.tensors[number].quantization = circle.QuantizationParameters.QuantizationParametersT()
        made.scale, made.zeroPoint, made.quantizedDimension = list(scales), list(zeros) or None, axis
        return number

    def constant(self, name: str, value: Array) -> int:
        number = self.tensor(name, value.shape, value.dtype.name)
        buffer = circle.Buffer.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        self.tensors[number].buffer = len(self.buffers)
        self.buffers.append(buffer)
        return number

    def sparse(
        self,
        name: str,
        value: Array,
        order: Sequence[int],
        levels: Sequence[int | tuple[Sequence[int], Sequence[int]]],
        *,
        blocks: Sequence[int] = (),
        shape: Sequence[int],
    ) -> int:
        """A constant whose stored elements are `value`; a level is a size, or segments and indices."""
        number = self.constant(name, value)
        tensor = self.tensors[number]
        tensor.shape = list(shape)
        tensor.sparsity = circle.SparsityParameters.SparsityParametersT()
        tensor.sparsity.traversalOrder, tensor.sparsity.blockMap = list(order), list(blocks)
        tensor.sparsity.dimMetadata = [_level(level) for level in levels]
        return number

    def operator(
        self,
        code: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str = "",
        options: Mapping[str, Any] | None = None,
        custom: str = "",
        custom_options: bytes = b"",
    ) -> None:
        kind = circle.OperatorCode.OperatorCodeT()
        kind.customCode = custom or None
        kind.builtinCode = getattr(circle.BuiltinOperator.BuiltinOperator, code)
        kind.deprecatedBuiltinCode = min(kind.builtinCode, 127)
        made = circle.Operator.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = len(self.codes), list(inputs), list(outputs)
        if custom_options:
            made.customOptions = np.frombuffer(custom_options, np.uint8)
        if table:
            made.builtinOptionsType = getattr(circle.BuiltinOptions.BuiltinOptions, table)
            made.builtinOptions = getattr(getattr(circle, table), f"{table}T")()
            for key, value in (options or {}).items():
                if key in _WORDS:
                    value = getattr(getattr(getattr(circle, _WORDS[key]), _WORDS[key]), value)
                setattr(made.builtinOptions, key, value)
        self.codes.append(kind)
        self.operators.append(made)

    def write(
        self, *outputs: int, name: str = "made", identifier: bytes = b"CIR0", subgraphs: int = 1
    ) -> bytes:
        parts = []
        for part in (self, *self.others):
            parts.append(circle.SubGraph.SubGraphT())
            parts[-1].name, parts[-1].tensors, parts[-1].operators = name, part.tensors, part.operators
            parts[-1].inputs, parts[-1].outputs = part.inputs, part.outputs
        parts[0].outputs = list(outputs)
        model = circle.Model.ModelT()
        model.version = 3 if identifier == b"TFL3" else 0
        model.operatorCodes, model.subgraphs, model.buffers = self.codes, parts * subgraphs, self.buffers
        builder = flatbuffers.Builder(1 << 12)
        builder.Finish(model.Pack(builder), identifier)
        return bytes(builder.Output())


def _level(level: int | tuple[Sequence[int], Sequence[int]]) -> Any:
    made = circle.DimensionMetadata.DimensionMetadataT()
    kinds, vectors = circle.DimensionType.DimensionType, circle.SparseIndexVector.SparseIndexVector
    if isinstance(level, int):
        made.format, made.denseSize = kinds.DENSE, level
        return made
    made.format = kinds.SPARSE_CSR
    made.arraySegmentsType, made.arrayIndicesType = vectors.Int32Vector, vectors.Uint8Vector
    made.arraySegments, made.arrayIndices = (
        circle.Int32Vector.Int32VectorT(),
        circle.Uint8Vector.Uint8VectorT(),
    )
    made.arraySegments.values, made.arrayIndices.values = list(level[0]), list(level[1])
    return made


def dense(identifier: bytes = b"CIR0") -> bytes:
    """x [1, 4] -> 8 units, relu -> 3 classes, softmax."""
    file, random = CircleFile(), np.random.default_rng(3)
    x = file.input("x", (1, 4))
    for k, (units, width) in enumerate(((8, 4), (3, 8))):
        weight = file.constant(f"w{k}", random.standard_normal((units, width)).astype(np.float32))
        bias = file.constant(f"b{k}", np.zeros(units, np.float32))
        y = file.tensor(f"y{k}", (1, units))
        fused = {"fusedActivationFunction": "RELU" if k == 0 else "NONE"}
        file.operator("FULLY_CONNECTED", [x, weight, bias], [y], "FullyConnectedOptions", fused)
        x = y
    out = file.tensor("out", (1, 3))
    file.operator("SOFTMAX", [x], [out], "SoftmaxOptions", {"beta": 1.0})
    return file.write(out, identifier=identifier)
