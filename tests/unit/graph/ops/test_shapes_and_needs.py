"""Shapes, refusals and needs of the operators: one row a case, one test for each table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from math import inf, nan
from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import DType, TensorType
from tests.support.every import every
from tests.support.one_node import Input, needs_of, node_of

#: Operators, the inputs and the attributes that each of them gets.
Case = tuple[Sequence[str], tuple[Input, ...], dict[str, Any]]


def case(types: str, *inputs: Input, **attributes: Any) -> Case:
    return types.split(), inputs, attributes


def f64(*shape: int) -> TensorType:
    return TensorType(shape, DType.FLOAT64)


def i32(*shape: int) -> TensorType:
    return TensorType(shape, DType.INT32)


def i64(*shape: int) -> TensorType:
    return TensorType(shape, DType.INT64)


def i8(*shape: int) -> TensorType:
    return TensorType(shape, DType.INT8)


def u8(*shape: int) -> TensorType:
    return TensorType(shape, DType.UINT8)


def truth(*shape: int) -> TensorType:
    return TensorType(shape, DType.BOOL)


CONV: tuple[Input, ...] = (2, 3, 8, 9), (4, 3, 3, 3)
UP: tuple[Input, ...] = (2, 4, 5, 6), (4, 3, 3, 3)
BATCH: tuple[Input, ...] = ((2, 3), *[(3,)] * 4)
GRU: tuple[Input, ...] = ((3, 5), (3, 2), (6, 5), (6, 2), (12,))
LSTM: tuple[Input, ...] = ((3, 5), (3, 2), (3, 2), (8, 5), (8, 2), (16,))
#: The same with an axis of size 1 in front.
FRAMED_GRU: tuple[Input, ...] = ((1, 3, 5), (1, 3, 2), (1, 6, 5), (1, 6, 2), (1, 12))
FRAMED_LSTM: tuple[Input, ...] = ((1, 3, 5), (1, 3, 2), (1, 3, 2), (1, 8, 5), (1, 8, 2), (1, 16))
HEAD: tuple[Input, ...] = ((4, 3), (3, 9), i64(4))
RESIZE: tuple[Input, ...] = ((2, 3, 4, 6), None, None)
HALVES: dict[str, Any] = {"kernel_shape": (2, 2), "strides": (2, 2)}

#: The shape of a float32 output, or the types of all outputs, where ONNX has no evaluator to compare with.
SHAPES: list[tuple[Case, tuple[int, ...] | list[Any]]] = [
    (case("ArgTopK", (5, 3, 4), k=2, axis=0), [i64(2, 3, 4)]),
    (case("ArgTopK", (5, 3, 4), k=2, axis=1), [i64(5, 2, 4)]),
    (case("ArgTopK", (5, 3, 4), k=2, axis=-1), [i64(5, 3, 2)]),
    (case("RandomUniform", [2, 3], dtype=1), (2, 3)),
    (case("RandomUniform", [2, 3], dtype=11), [f64(2, 3)]),
    (case("TileGather", (4, 3), i64(2, 5), first_row=2, rows=9), (2, 5, 3)),
    (case("LogAddExp", (4, 3), (4, 3), (4, 3)), (4, 3)),
    (case("ReduceMean ReduceSum ReduceMax", (2, 3, 4), []), (1, 1, 1)),
    (case("ReduceMean ReduceSum ReduceMax", (2, 3, 4), [], noop_with_empty_axes=1), (2, 3, 4)),
    (
        case("ReduceMean ReduceSum ReduceMax", (2, 3, 4), None, noop_with_empty_axes=1, keepdims=0),
        (2, 3, 4),
    ),
    (case("ProductLogSumExp", (4, 3), (9, 3), i64(4), (9,), outputs=2, transB=1), [(4,), (4,)]),
    (case("ProductLogSumExp", (4, 3), (3, 9), i64(4), (9,), outputs=2), [(4,), (4,)]),
    (case("GRUCell", *GRU), (3, 2)),
    (case("RNNCell", (3, 5), (3, 2), (2, 5), (2, 2), (4,)), (3, 2)),
    (case("GRUCell", *FRAMED_GRU), (1, 3, 2)),
    (case("GRUCell", (3, 5), *FRAMED_GRU[1:]), (3, 2)),
    (case("LSTMCell", *FRAMED_LSTM, outputs=2), [(1, 3, 2), (1, 3, 2)]),
    (case("LSTMCell", (3, 5), *FRAMED_LSTM[1:], outputs=2), [(3, 2), (3, 2)]),
    (case("RNNCell", (1, 3, 5), (1, 3, 2), (1, 2, 5), (1, 2, 2), (1, 4)), (1, 3, 2)),
    (case("RNNCell", (3, 5), (1, 3, 2), (1, 2, 5), (1, 2, 2), (1, 4)), (3, 2)),
    (case("Conv", *CONV, None), (2, 4, 6, 7)),
    (case("Conv", *CONV, kernel_shape=(3, 3)), (2, 4, 6, 7)),
    (case("Dropout", (), ratio=0.3), ()),
    (case("Dropout", (1,), ratio=0.3), (1,)),
    (case("Dropout", (2, 3), ratio=0.3), (2, 3)),
    (case("Dropout", (2, 3, 4, 5), ratio=0.3), (2, 3, 4, 5)),
    (case("MeanSquaredError CategoricalCrossEntropy", (6, 5, 4), (6, 5, 4), reduction="mean"), ()),
    (
        case(
            "MeanSquaredError CategoricalCrossEntropy MeanAbsoluteError",
            (6, 5, 4),
            (6, 5, 4),
            reduction="sum",
        ),
        (),
    ),
    (case("Huber BinaryCrossEntropy KLDivergence", (6, 5, 4), (6, 5, 4), reduction="sum"), ()),
    (
        case(
            "MeanSquaredError MeanAbsoluteError Huber BinaryCrossEntropy",
            (6, 5, 4),
            (6, 5, 4),
            reduction="none",
        ),
        (6, 5, 4),
    ),
    (case("CategoricalCrossEntropy", (6, 5, 4), i64(6, 5), reduction="mean", sparse=1), ()),
    (case("CategoricalCrossEntropy", (6, 5, 4), i64(6, 5), reduction="sum", sparse=1), ()),
    (case("CategoricalCrossEntropy KLDivergence", (6, 5, 4), (6, 5, 4), reduction="none"), (6, 5)),
    (case("CategoricalCrossEntropy", (6, 5, 4), i64(6, 5), reduction="none", sparse=1), (6, 5)),
    (case("CategoricalCrossEntropy", (6, 5, 4), i64(6, 5), sparse=1), ()),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3)), ()),
    (case("MeanSquaredError MeanAbsoluteError", (6, 5, 4), (6, 5, 4)), ()),
    (case("Huber BinaryCrossEntropy KLDivergence", (6, 5, 4), (6, 5, 4)), ()),
    (case("Transpose", ()), ()),
    (case("Pad", (2, 3, 4), [], None, []), (2, 3, 4)),
    (case("Flatten", i32(2, 3)), [i32(2, 3)]),
    (case("Transpose", i32(2, 3)), [i32(3, 2)]),
    (case("Squeeze", (1, 3, 1), []), (1, 3, 1)),
    (case("Unsqueeze", (), axes=(0, 1)), (1, 1)),
    (case("MaxPool AveragePool", (2, 3, 8, 9), **HALVES, ceil_mode=1), (2, 3, 4, 5)),
    (
        case("MaxPool AveragePool", (1, 1, 5, 5), kernel_shape=(1, 1), strides=(2, 2), ceil_mode=1),
        (1, 1, 3, 3),
    ),
    (
        case("MaxPool AveragePool", (1, 1, 2, 2), kernel_shape=(1, 1), strides=(3, 3), ceil_mode=1),
        (1, 1, 1, 1),
    ),
    (case("QuantizeLinear", (2, 6, 3), (), i8()), [i8(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), ()), [u8(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), (), output_dtype=3), [i8(2, 6, 3)]),
    (case("DequantizeLinear", i8(2, 6, 3), (), i8()), (2, 6, 3)),
    (case("DequantizeLinear", i8(2, 6, 3), f64()), [f64(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), (1,), i8(1)), [i8(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), (1,)), [u8(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), (1,), output_dtype=3), [i8(2, 6, 3)]),
    (case("DequantizeLinear", i8(2, 6, 3), (1,), i8(1)), (2, 6, 3)),
    (case("DequantizeLinear", i8(2, 6, 3), f64(1)), [f64(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), (6,), i8(6)), [i8(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), (6,)), [u8(2, 6, 3)]),
    (case("QuantizeLinear", (2, 6, 3), (6,), output_dtype=3), [i8(2, 6, 3)]),
    (case("DequantizeLinear", i8(2, 6, 3), (6,), i8(6)), (2, 6, 3)),
    (case("DequantizeLinear", i8(2, 6, 3), f64(6)), [f64(2, 6, 3)]),
    (case("RNNCell", (3, 5), None, (2, 5), (2, 2)), (3, 2)),
    (case("GRUCell", (3, 5), None, (6, 5), (6, 2), (6,)), (3, 2)),
    (case("LSTMCell", (3, 5), None, None, (8, 5), (8, 2), None, (6,), outputs=2), [(3, 2), (3, 2)]),
    (case("LSTMCell", *LSTM, outputs=2), [(3, 2), (3, 2)]),
    (case("ReduceMax", i8(2, 3)), [i8(1, 1)]),
    (case("Resize", *RESIZE, [2, 3, 8, 3]), (2, 3, 8, 3)),
    (case("Resize", *RESIZE, [5, 9], axes=(3, 2)), (2, 3, 9, 5)),
    (case("Resize", *RESIZE, [7], axes=(-1,)), (2, 3, 4, 7)),
    (case("Resize", *RESIZE, [8, 9], axes=(2, 3), keep_aspect_ratio_policy="stretch"), (2, 3, 8, 9)),
    (case("Resize", *RESIZE, [8, 9], axes=(2, 3), keep_aspect_ratio_policy="not_larger"), (2, 3, 6, 9)),
    (case("Resize", *RESIZE, [8, 9], axes=(2, 3), keep_aspect_ratio_policy="not_smaller"), (2, 3, 8, 12)),
    (case("Gather", (5,), i64(), axis=-1), ()),
    (case("Split", (6, 2), outputs=1), (6, 2)),
    (case("Slice", (4, 3), [], []), (4, 3)),
    (case("ConvTranspose", *UP, strides=(2, 2), auto_pad="VALID"), (2, 3, 11, 13)),
]

#: The inputs that have a derivative.
DIFFERENTIABLE: list[tuple[Case, set[int]]] = [
    (case("Concat", i32(2, 3), i32(2, 3), axis=0), set()),
    (case("Split", i32(2, 3)), set()),
    (case("Slice", i32(2, 3), [0], [1]), set()),
    (case("Reshape", (2, 3, 4), [-1]), {0}),
    (case("Flatten Transpose", (2, 3, 4)), {0}),
    (case("Pad", (2, 3, 4), [0] * 6, ()), {0}),
    (case("Where", truth(2, 3), (2, 3), (3,)), {1, 2}),
    (case("Gather", (10, 4), i64(300, 300)), {0}),
    (case("Clip", (2, 3), (), (1,)), {0}),
    (case("Pow", (2, 3), i64(2, 3)), {0}),
    (case("BatchNormalization", *BATCH, training_mode=0), {0, 1, 2}),
    (case("BatchNormalization", *BATCH, training_mode=1), {0, 1, 2}),
    (case("Equal Greater GreaterOrEqual Less LessOrEqual", (2, 1), (3,)), set()),
    (case("CategoricalCrossEntropy", (6, 5, 4), i64(6, 5), sparse=1), {0}),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3)), {0, 1}),
    (case("Reshape", i32(2, 3), [-1]), set()),
    (case("Flatten Transpose ReduceMax", i32(2, 3)), set()),
    (case("Pad", i32(2, 3), [0, 0, 0, 0]), set()),
    (case("ReduceMax", (2, 3)), {0}),
    (case("ReduceMax", f64(2, 3)), {0}),
    (case("ReduceMax", i64(2, 3)), set()),
    (case("ReduceMax", i8(2, 3)), set()),
    (case("ReduceMax", u8(2, 3)), set()),
    (case("ReduceMax", truth(2, 3)), set()),
    (case("Where", truth(2, 3), i64(2, 3), i64(3)), set()),
    *((case("Cast", (3, 4), to=to), {0} if to in (1, 11) else set()) for to in (1, 2, 6, 7, 9, 11)),
    *((case("Cast", given, to=1), set()) for given in (i32(3), i64(3), u8(3), truth(3))),
    (case("Cast", f64(3), to=1), {0}),
]

#: What the message says behind the name of the operation, as a regular expression.
REFUSED_SHAPES: list[tuple[Case, str]] = [
    (case("Floor Ceil Round Sign", i32(2, 3)), "one floating element type"),
    (case("CumSum", (2, 3), [2]), "ax"),
    (case("CumSum", (2, 3), [-3]), "ax"),
    (case("CumSum", (2, 3), [0, 1]), "expected one axis"),
    (case("CumSum", truth(3), [0]), "expected numbers"),
    (case("ArgTopK", truth(3), k=1), "expected numbers"),
    (case("RandomUniform", [2, -1]), "dimensions from 0"),
    (case("TileGather", (4, 3), (2, 5), first_row=0, rows=9), "int32 or int64 indices"),
    (case("TileGather", (), i64(2, 5), first_row=0, rows=9), "rows of a table"),
    (
        case("TileGather", (4, 3), i64(2, 5), (2, 5, 4), first_row=0, rows=9),
        r"rows from before of type float32\[2, 5, 3\]",
    ),
    (case("LogAddExp", (4, 3), (3,)), "one shape"),
    (
        case("Gemm", (2, 3), (4, 5), (5,)),
        r"x0 is float32\[2, 3\], x1 is float32\[4, 5\], x2 is float32\[5\]",
    ),
    (
        case("Pad", (2, 3, 4), [3, 0], None, [1], mode="reflect"),
        "mode 'reflect' the pads of axis 1 .* 2, not 3",
    ),
    (
        case("Pad", (2, 3, 4), [0, 3], None, [1], mode="reflect"),
        "mode 'reflect' the pads of axis 1 .* 2, not 3",
    ),
    (case("Pad", (2, 3, 4), [4, 0], None, [1], mode="wrap"), "mode 'wrap' the pads of axis 1 .* 3, not 4"),
    (case("Pad", (2, 3, 4), [0, 4], None, [1], mode="wrap"), "mode 'wrap' the pads of axis 1 .* 3, not 4"),
    (
        case("ProductLogSumExp", (4, 3), (2, 9), i64(4), outputs=2),
        r"inner dimensions 3 and 2 differ \(transB=0\)",
    ),
    (case("ProductLogSumExp", (2, 4, 3), (3, 9), i64(8), outputs=2), "two matrices"),
    (case("ProductLogSumExp", (4, 3), (3, 0), i64(4), outputs=2), "at least one column"),
    (case("ProductLogSumExp", (4, 3), (3, 9), i64(5), outputs=2), r"classes of shape \[4\]"),
    (case("ProductLogSumExp", (4, 3), (3, 9), (4,), outputs=2), "int32 or int64 classes"),
    (case("ProductLogSumExp", (4, 3), (3, 9), i64(4), (1, 9), outputs=2), r"a bias of shape \[9\]"),
    (case("ProductLogSumExp", (4, 3), f64(3, 9), i64(4), outputs=2), "one floating element type"),
    (case("Relu Sigmoid Tanh Clip", i64(2, 3)), "one floating element type"),
    (case("Softmax LogSoftmax LeakyRelu Elu HardSigmoid", i64(2, 3)), "one floating element type"),
    (case("PRelu", (2, 1), (2, 3)), "slope that broadcasts to the shape of the input"),
    (case("PRelu Add Sub Mul Div Pow MeanSquaredError", (2, 3), f64(2, 3)), "one floating element type"),
    (case("Clip", (2, 3), None, (3,)), "scalar for the bound 'max'"),
    (case("Clip", (2, 3), f64()), "one floating element type"),
    (case("Add Sub Mul Div", (2, 3), (2,)), r"broadcast.*float32\[2, 3\].*float32\[2\]"),
    (case("Add Sub Mul Div", (2, 3), i64(2, 3)), "one floating element type"),
    (case("Pow", (2, 3), truth(2, 3)), "numbers as exponent"),
    (case("Pow", i64(2, 3), (2, 3)), "one floating element type"),
    (case("BatchNormalization", (2, 3, 4), (4,), (4,), (4,), (4,)), r"running variance of shape \[3\]"),
    (
        case("BatchNormalization", (2, 3, 4), (3,), (3,), (3,), (3,), data_layout="NHWC"),
        r"running variance of shape \[4\]",
    ),
    (case("BatchNormalization", (2, 3), (3,), (3,), (3,), (1,)), r"running variance of shape \[3\]"),
    (case("BatchNormalization", (2, 3), (3,), (3,), (3,), f64(3)), "one floating element type"),
    (case("BatchNormalization", (3,), (3,), (3,), (3,), (3,)), "a batch and channels"),
    (case("BatchNormalization", (2, 3), (3,), (3,), None, (3,)), "lacks input 3"),
    (case("BatchNormalization", (2, 3), (3,), (3,)), "lacks input 3"),
    (case("BatchNormalization", (2, 3), (3,), (3,), (3,), training_mode=1), "lacks input 4"),
    (case("Equal Greater GreaterOrEqual Less LessOrEqual", (2, 3), i32(2, 3)), "one element type"),
    (case("Equal Greater GreaterOrEqual Less LessOrEqual", (2, 3), (2,)), "broadcast"),
    (case("And Or", truth(2, 3), (2, 3)), "truth values"),
    (case("Not", (2, 3)), "truth values"),
    (case("Conv", (2, 3), (4, 3)), ""),
    (case("Conv", (2, 3, 8, 9), (4, 3, 3)), ""),
    (case("Conv", (2, 3, 8, 9), (4, 2, 3, 3)), ""),
    (case("Conv", (2, 8, 9, 3), (4, 3, 3, 2), data_layout="NHWC"), ""),
    (case("Conv", (2, 4, 8, 9), (4, 4, 3, 3), group=2), ""),
    (case("Conv", (2, 4, 8, 9), (5, 2, 3, 3), group=2), ""),
    (case("Conv", *CONV, kernel_shape=(3, 2)), ""),
    (case("Conv", *CONV, (3,)), ""),
    (case("Conv", *CONV, (1, 4)), ""),
    (case("Conv", (2, 3, 2, 9), (4, 3, 3, 3)), ""),
    (case("Conv", *CONV, dilations=(4, 1)), ""),
    (case("Conv", (2, 3, 8, 9), f64(4, 3, 3, 3)), ""),
    (case("Conv", i32(2, 3, 8, 9), i32(2, 3, 8, 9)), ""),
    (case("Dropout", i32(3)), "one floating element type"),
    (case("Gemm", (2, 3), (4, 3)), r"inner dimensions 3 and 4 differ \(transA=0, transB=0\)"),
    (case("Gemm", (2, 3), (3, 4), transB=1), "inner dimensions 3 and 4 differ"),
    (case("Gemm", (2, 3, 1), (3, 4)), "expected two matrices"),
    (case("Gemm", (2, 3), (3,)), "expected two matrices"),
    (case("Gemm", (2, 3), (3, 4), (5,)), r"bias does not broadcast to \[2, 4\]"),
    (case("Gemm", (2, 3), (3, 4), (2,)), "bias does not broadcast"),
    (case("Gemm", (2, 3), (3, 4), (1, 1, 4)), "bias does not broadcast"),
    (case("Gemm", (2, 3), f64(3, 4)), "one floating element type"),
    (case("Gemm", (2, 3), i32(3, 4)), "one floating element type"),
    (case("Gemm", i32(3, 4), i32(3, 4)), "one floating element type"),
    (case("Gemm", (2, 3), None), "lacks input 1"),
    (case("MatMul", (2, 3), (2, 3)), "inner dimensions 3 and 2 differ"),
    (case("MatMul", (3,), (2,)), "inner dimensions 3 and 2 differ"),
    (case("MatMul", (2, 2, 3), (3, 3, 4)), "batches do not broadcast"),
    (case("MatMul", (), (3,)), "scalar cannot be multiplied"),
    (case("MatMul", (3,), ()), "scalar cannot be multiplied"),
    (case("MeanSquaredError", (2, 3), (3,)), "prediction and target of one shape"),
    (case("MeanSquaredError", (), (), reduction="sum_of_means"), "a first axis of examples"),
    (case("CategoricalCrossEntropy", (2, 3), (2, 4)), "target of the type and shape of the prediction"),
    (case("CategoricalCrossEntropy", (6, 5), i64(6, 5)), "target of the type and shape of the prediction"),
    (case("CategoricalCrossEntropy", (6, 5), i64(6, 5), sparse=1), r"int32 or int64 classes of shape \[6\]"),
    (case("CategoricalCrossEntropy", (6, 5, 4), (6, 5), sparse=1), "int32 or int64 classes"),
    (case("CategoricalCrossEntropy KLDivergence", (), ()), "an axis of classes"),
    (case("CategoricalCrossEntropy", i64(6, 5), i64(6, 5)), "one floating element type"),
    (case("MeanSquaredError MeanAbsoluteError", (2, 3), (3,)), ""),
    (case("Huber BinaryCrossEntropy KLDivergence", (2, 3), (3,)), ""),
    (case("MeanSquaredError MeanAbsoluteError", (2, 3), f64(2, 3)), ""),
    (case("Huber BinaryCrossEntropy KLDivergence", (2, 3), f64(2, 3)), ""),
    (case("Reshape", (2, 3, 4), [5, 5]), r"shape \[5, 5\] does not hold 24 elements"),
    (case("Reshape", (2, 3, 4), [5, -1]), "does not hold 24 elements"),
    (case("Reshape", (2, 3, 4), [-1, -1]), "more than one dimension open"),
    (case("Reshape", (2, 3, 4), [-2, 12]), "dimension 0 of the shape must be -1 or more, not -2"),
    (
        case("Reshape", (2, 3, 4), [1, 1, 1, 0]),
        "dimension 3 of the shape is 0, but the input has no such axis",
    ),
    (case("Reshape", (2, 3, 4), [0, 12], allowzero=1), "does not hold 24 elements"),
    (case("Reshape", (2, 3, 4), [0, -1], allowzero=1), "leaves a dimension open beside one of 0"),
    (case("Reshape", (2, 3, 4), [24, 0, -1]), "does not hold"),
    (case("Pad", (2, 3, 4), [1, 1]), "expected 6 pads, two for each padded axis, not 2"),
    (case("Pad", (2, 3, 4), [0, 0, -1, 0, 0, 0]), "must not be negative"),
    (case("Pad", (2, 3, 4), [1, 2], None, [3]), r"axes \[3\] must lie in \[-3, 2\]"),
    (case("Pad", (2, 3, 4), [1, 2, 3, 4], None, [0, -3]), "name an axis twice"),
    (case("Pad", (2, 3, 4), [0, 0, 0, 0, 0, 0], (2,)), "scalar of the input's element type"),
    (case("Pad", (2, 3, 4), [0, 0, 0, 0, 0, 0], f64()), "scalar of the input's element type"),
    (case("Reshape Pad ReduceMean", (2, 3, 4), i64(2)), "Input 1 of operation 'dense1' .*must be a constant"),
    (case("Pad", (2, 3, 4), [1, 1], None, i64(2)), "Input 3 of operation 'dense1' .*must be a constant"),
    (case("Squeeze", (1, 3), [1]), r"axes of size 1, which of \[1\] not all are"),
    (case("Squeeze", (1, 3), [2]), r"axes \[2\] must lie in \[-2, 1\]"),
    (case("Squeeze", (1, 3), [0, -2]), "name an axis twice"),
    (case("Unsqueeze", (1, 3), [3]), r"axes \[3\] must lie in \[-3, 2\]"),
    (case("Unsqueeze", (1, 3), [1, 1]), "name an axis twice"),
    (case("Unsqueeze", (1, 3)), "expected the axes as input 1"),
    (case("Expand", (2, 3), [2, 4]), "shapes that broadcast"),
    (case("Expand", (2, 3), [0, 3]), "shapes that broadcast"),
    (case("Expand", (2, 3), [-1, 3]), "dimensions from 0"),
    (case("LayerNormalization", (2, 3), (2,)), r"scale and shift of shape \[3\]"),
    (case("LayerNormalization", (2, 3), (3,), (1,)), r"scale and shift of shape \[3\]"),
    (case("RMSNormalization", (2, 3), (2,)), r"a scale of shape \[3\]"),
    (case("LayerNormalization", (2, 3), f64(3)), "one floating element type"),
    (case("InstanceNormalization", (2, 3, 4), (4,), (4,)), r"scale and shift of shape \[3\]"),
    (case("InstanceNormalization", (3,), (3,), (3,)), "a batch and channels"),
    (case("GroupNormalization", (2, 6, 4), (2,), (2,), num_groups=2), r"scale and shift of shape \[6\]"),
    (
        case("MaxPool AveragePool", (2, 3, 8, 9), kernel_shape=(9, 2)),
        r"9 taps.*does not fit 8.*\[2, 3, 8, 9\]",
    ),
    (case("MaxPool AveragePool", (2, 3), kernel_shape=(1,)), r"spatial axis.*\[2, 3\]"),
    (case("AveragePool", i32(1, 2, 4, 4), kernel_shape=(2, 2)), "floating"),
    (case("GlobalAveragePool", i32(1, 2, 4, 4)), "floating"),
    (case("MaxPool", truth(1, 2, 4, 4), kernel_shape=(2, 2)), "expected numbers"),
    (case("DequantizeLinear", i8(2, 6, 3), (5,)), "expected a scale of one element or of 6"),
    (case("DequantizeLinear", i8(2, 6, 3), (2,)), "expected a scale of one element or of 6"),
    (case("DequantizeLinear", (2, 6, 3), ()), "expected int8, uint8 or int32"),
    (case("DequantizeLinear", i8(2, 6, 3), (), u8()), "zero points of int8"),
    (case("DequantizeLinear", i8(2, 6, 3), (), i8(6)), "zero points of int8"),
    (case("DequantizeLinear", i8(2, 6, 3), (2, 3, 3), block_size=4), "each block of 4 positions of axis 1"),
    (case("DequantizeLinear", i8(2, 6, 3), (2, 2, 3), block_size=2), "each block of 2 positions of axis 1"),
    (case("QuantizeLinear", (2, 6, 3), f64()), "a scale of their type"),
    (case("RNNCell", (3, 5), None, (2, 6), (2, 2)), r"expected W \[1 H, 5\] and R \[1 H, H\]"),
    (case("GRUCell", (3, 5), None, (2, 5), (2, 2)), r"expected W \[3 H, 5\]"),
    (case("RNNCell", (3, 5), (3, 3), (2, 5), (2, 2)), r"a state of shape \[3, 2\]"),
    (case("RNNCell", (3, 5), (4, 2), (2, 5), (2, 2)), r"a state of shape \[3, 2\]"),
    (case("GRUCell", (3, 5), None, (6, 5), (6, 2), (8,)), "expected 6 or 12 biases"),
    (case("RNNCell", (2, 3, 5), None, (2, 5), (2, 2)), "expected input 0 to have 2 axes"),
    (case("RNNCell", (3, 5), None, (2, 5), (2, 2, 2)), "expected input 3 to have 2 axes"),
    (case("RNNCell", (3, 5), f64(3, 2), (2, 5), (2, 2)), "one floating element type"),
    (case("LSTMCell", *LSTM, (8,), outputs=2), "expected 6 weights of peepholes"),
    (
        case("LSTMCell", (3, 5), (3, 2), (3, 3), (8, 5), (8, 2), (16,), outputs=2),
        r"a state of shape \[3, 2\]",
    ),
    (
        case("ReduceMean ReduceSum Exp Log Sqrt Reciprocal Neg Abs Erf", i32(2, 3)),
        "one floating element type",
    ),
    (case("Sin Cos Softplus Asin Acos Atan Asinh Acosh Atanh", i32(2, 3)), "one floating element type"),
    (case("ReduceMean", (2, 3, 4), [3]), r"axes \[3\] must lie in \[-3, 2\]"),
    (case("ReduceMean", (2, 3, 4), axes=(1, -2)), "name an axis twice"),
    (case("Resize", (2, 3, 4, 6)), "expected scales .* or sizes"),
    (case("Resize", (2, 3, 4, 6), None, [1, 1, 2, 2], [2, 3, 8, 8]), "expected scales .* or sizes"),
    (case("Resize", (2, 3, 4, 6), None, [1, 1, 2, 2]), "expected 4 positive scales, of floating type"),
    (case("Resize", *RESIZE, [8, 8]), "expected 4 positive sizes"),
    (case("Resize", *RESIZE, [2, 3, 0, 8]), "expected 4 positive sizes"),
    (case("Resize", i32(2, 3, 4, 6), None, None, [2, 3, 8, 8]), "a floating element type"),
    (case("Resize", (2, 3, 4, 6), None, (4,)), "Input 2 .* must be a constant with inline values"),
    (case("Where", (2, 3), (2, 3), (2, 3)), "condition of truth values"),
    (case("Where", truth(2, 3), (2, 3), f64(2, 3)), "two operands of one element type"),
    (case("Where", truth(2), (2, 3), (2, 3)), "broadcast against each other"),
    (case("Where", truth(2, 3), (2, 3), (2,)), "broadcast against each other"),
    (case("Gather", (10, 4), (3,)), "int32 or int64 indices"),
    (case("Gather", (10, 4), truth(3)), "int32 or int64 indices"),
    (case("Gather", (10, 4), u8(3)), "int32 or int64 indices"),
    (case("Concat", (2, 3), (3, 3), axis=1), "agree in all but axis 1"),
    (case("Concat", (2, 3), (2, 3, 1), axis=1), "agree in all but axis 1"),
    (case("Concat", (2, 3), i32(2, 3), axis=1), "agree in all but axis 1"),
    (case("Concat", (2, 3), None, axis=0), "lacks input 1"),
    (case("Split", (7, 2), outputs=2), r"sizes \[4, 4\] do not make up the 7 of axis 0"),
    (case("Split", (6, 2), [2, 2], outputs=2), r"sizes \[2, 2\] do not make up the 6"),
    (case("Split", (6, 2), [7, -1], outputs=2), r"sizes \[7, -1\] do not make up"),
    (case("Split", (6, 2), [3, 3], outputs=3), "a size for each of the 3 outputs, not 2"),
    (case("Split", (4, 2), outputs=3, num_outputs=3, axis=0), r"sizes \[2, 2, 0\]"),
    (case("Slice", (4, 3), [0], [3], [0], [0]), "a step must not be 0"),
    (case("Slice", (4, 3), [0, 0], [3]), "as many starts as ends, axes and steps"),
    (case("Slice", (4, 3), [0], [3], [0, 1]), "as many starts as ends, axes and steps"),
    (case("Slice", (4, 3), [0], [3], [2]), r"axes \[2\] must lie in"),
    (case("Slice", (4, 3), [0, 0], [1, 1], [0, -2]), "name an axis twice"),
    (case("Slice", (4, 3), i64(1), [1], [0], [1]), "Input 1 of operation 'dense1'"),
    (case("Slice", (4, 3), [0], i64(1), [0], [1]), "Input 2 of operation 'dense1'"),
    (case("Slice", (4, 3), [0], [1], i64(1), [1]), "Input 3 of operation 'dense1'"),
    (case("Slice", (4, 3), [0], [1], [0], i64(1)), "Input 4 of operation 'dense1'"),
    (case("ConvTranspose", (2, 4, 5, 6), (3, 3, 3, 3)), "weights of 4 channels in 1 groups and 2 axes"),
    (case("ConvTranspose", (2, 4, 5, 6), (4, 3, 3)), "weights of 4 channels"),
    (case("ConvTranspose", *UP, group=3), "weights of 4 channels in 3 groups"),
    (case("ConvTranspose", *UP, (4,)), r"bias of shape \[3\]"),
    (case("ConvTranspose", *UP, pads=(4, 0, 4, 0)), "the pads leave nothing of 7 positions"),
    (case("ConvTranspose", (2, 4, 5, 6), f64(4, 3, 3, 3)), "one floating element type"),
    (case("ConvTranspose", (2, 4), (4, 3)), "at least one spatial axis"),
]

#: The attribute that is named, and what the message says of it.
REFUSED_ATTRIBUTES: list[tuple[Case, str, str]] = [
    (case("ArgTopK", (5, 3), k=4), "k", "must be at most 3, the size of axis 1"),
    (case("ArgTopK", (5, 3)), "k", "is required"),
    (case("RandomUniform", [2], low=1.0, high=0.0), "low", "greater than high"),
    (case("RandomUniform", [2], dtype=7), "dtype", ""),
    (case("TileGather", (4, 3), i64(2, 5), first_row=6, rows=9), "rows", "the end of the tile"),
    (case("TileGather", (4, 3), i64(2, 5), first_row=0), "rows", "is required"),
    (case("TileGather", (4, 3), i64(2, 5), rows=9), "first_row", "is required"),
    *(
        (
            case("Pad", (2, 3, 4), [0] * 6, mode=mode, constant_value=1.0),
            "constant_value",
            f"no meaning in mode '{mode}'",
        )
        for mode in ("reflect", "edge", "wrap")
    ),
    (case("ProductLogSumExp", *HEAD, outputs=2, classes=8), "classes", "is 8, but it must be at least 9"),
    (
        case("ProductLogSumExp", *HEAD, outputs=2, classes=9, first_class=1),
        "classes",
        "is 9, but it must be at least 10",
    ),
    (case("ProductLogSumExp", *HEAD, outputs=2, chunk_rows=0), "chunk_rows", "must be at least 1"),
    (case("ProductLogSumExp", *HEAD, outputs=2, first_class=-1), "first_class", "must be at least 0"),
    (case("Gelu", (2, 3), approximate="sigmoid"), "approximate", "'sigmoid'"),
    (case("Clip", (2, 3), (), min=0.0), "min", "also given as input 1"),
    (case("Softmax", (2, 3), axis=2), "axis", r" 2.*\[-2, 1\]"),
    (case("Softmax", (2, 3), axis=-3), "axis", r" -3.*\[-2, 1\]"),
    (case("BatchNormalization", *BATCH, epsilon=-1e-05), "epsilon", ""),
    (case("BatchNormalization", *BATCH, momentum=-0.1), "momentum", ""),
    (case("BatchNormalization", *BATCH, training_mode=2), "training_mode", ""),
    (case("BatchNormalization", *BATCH, spatial=1), "spatial", ""),
    (case("Conv", *CONV, strides=(1,)), "strides", ""),
    (case("Conv", *CONV, strides=(0, 1)), "strides", ""),
    (case("Conv", *CONV, dilations=(1, 1, 1)), "dilations", ""),
    (case("Conv", *CONV, pads=(1, 1)), "pads", ""),
    (case("Conv", *CONV, pads=(1, 1, -1, 1)), "pads", ""),
    (case("Conv", *CONV, pads=(1, 1, 1, 1), auto_pad="SAME_UPPER"), "pads", ""),
    (case("Conv", *CONV, auto_pad="SAME"), "auto_pad", ""),
    (case("Conv", *CONV, data_layout="CHWN"), "data_layout", ""),
    (case("Conv", *CONV, group=0), "group", ""),
    (case("Conv", *CONV, activation="Gelu"), "activation", ""),
    (case("Conv", *CONV, ceil_mode=1), "ceil_mode", ""),
    (case("Dropout", (3,), ratio=1.0), "ratio", "less than 1"),
    (case("Dropout", (3,), ratio=nan), "ratio", "less than 1"),
    (case("Dropout", (3,), ratio=-0.1), "ratio", "at least 0"),
    (case("Dropout", (3,), seed=-1), "seed", "at least 0"),
    (case("Dropout", (3,), seed=0.5), "seed", "of kind int"),
    (case("Dropout", (3,), training_mode=1), "training_mode", ""),
    (case("Gemm", (2, 3), (3, 4), transA=2), "transA", ""),
    (case("Gemm", (2, 3), (3, 4), alpha="1"), "alpha", ""),
    (case("Gemm", (2, 3), (3, 4), activation="Gelu"), "activation", ""),
    (case("Gemm", (2, 3), (3, 4), gamma=1.0), "gamma", ""),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3), label_smoothing=1.5), "label_smoothing", ""),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3), label_smoothing=-0.1), "label_smoothing", ""),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3), reduction="max"), "reduction", ""),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3), from_logits=2), "from_logits", ""),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3), epsilon=0.0), "epsilon", ""),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3), epsilon=1e-31), "epsilon", ""),
    (case("CategoricalCrossEntropy", (2, 3), (2, 3), epsilon=1.0), "epsilon", ""),
    (case("Huber", (2, 3), (2, 3), delta=0), "delta", "greater than 0"),
    (case("Huber", (2, 3), (2, 3), delta=-1.0), "delta", "greater than 0"),
    (case("Huber", (2, 3), (2, 3), delta=inf), "delta", "greater than 0"),
    (case("Huber", (2, 3), (2, 3), delta=nan), "delta", "greater than 0"),
    (case("Flatten", (2, 3, 4), axis=4), "axis", r"\[-3, 3\] for an input of rank 3"),
    (case("Flatten", (2, 3, 4), axis=-4), "axis", r"\[-3, 3\] for an input of rank 3"),
    (case("Transpose", (2, 3, 4), perm=(0, 1)), "perm", "permutation of the 3 axes"),
    (case("Transpose", (2, 3, 4), perm=(0, 0, 1)), "perm", "permutation of the 3 axes"),
    (case("Transpose", (2, 3, 4), perm=(0, 1, 3)), "perm", "permutation of the 3 axes"),
    (case("Transpose", (2, 3, 4), perm=(0, 1, -1)), "perm", "permutation of the 3 axes"),
    (case("Pad", (2, 3, 4), [0, 0, 0, 0, 0, 0], mode="symmetric"), "mode", "'symmetric'"),
    (
        case("Pad", (2, 3, 4), [0, 0, 0, 0, 0, 0], (), constant_value=1.0),
        "constant_value",
        "also given as input 2",
    ),
    (case("Squeeze Unsqueeze", (1, 3), [0], axes=(0,)), "axes", "also given as input 1"),
    (case("Cast", (2, 3), to=0), "to", ""),
    (case("Cast", (2, 3), to=4), "to", ""),
    (case("Cast", (2, 3), to=10), "to", ""),
    (case("Cast", (2, 3), to=16), "to", ""),
    (case("LayerNormalization", (2, 6, 4), (6,), (6,), axis=3), "axis", r"\[-3, 2\]"),
    (case("LayerNormalization", (2, 6, 4), (6,), (6,), epsilon=-1.0), "epsilon", ""),
    (case("LayerNormalization", (2, 6, 4), (6,), (6,), stash_type=16), "stash_type", ""),
    (
        case("GroupNormalization", (2, 6, 4), (6,), (6,), num_groups=4),
        "num_groups",
        "must divide the 6 channels",
    ),
    (case("GroupNormalization", (2, 6, 4), (6,), (6,), num_groups=0), "num_groups", "at least 1"),
    (case("GroupNormalization", (2, 6, 4), (6,), (6,)), "num_groups", " is required"),
    (case("MaxPool AveragePool", (2, 3, 8, 9)), "kernel_shape", ""),
    (case("MaxPool AveragePool", (2, 3, 8, 9), kernel_shape=(2,)), "kernel_shape", ""),
    (case("MaxPool AveragePool", (2, 3, 8, 9), kernel_shape=(2, 0)), "kernel_shape", ""),
    (case("MaxPool AveragePool", (2, 3, 8, 9), kernel_shape=(2, 2), strides=(2,)), "strides", ""),
    (case("MaxPool AveragePool", (2, 3, 8, 9), **HALVES, pads=(1, 1)), "pads", ""),
    (case("MaxPool AveragePool", (2, 3, 8, 9), **HALVES, pads=(1, 1, 1, 1), auto_pad="VALID"), "pads", ""),
    (case("MaxPool AveragePool", (2, 3, 8, 9), **HALVES, ceil_mode=2), "ceil_mode", ""),
    (case("MaxPool AveragePool", (2, 3, 8, 9), **HALVES, activation="Relu"), "activation", ""),
    (case("DequantizeLinear", i8(2, 6, 3), (6,), axis=3), "axis", "must lie in"),
    (
        case("DequantizeLinear", i8(2, 6, 3), (), output_dtype=11),
        "output_dtype",
        "must be the type of the scale",
    ),
    (case("QuantizeLinear", (2, 6, 3), (), precision=11), "precision", "must be the type of the input"),
    (case("GRUCell", *GRU, linear_before_reset=2), "linear_before_reset", ""),
    (case("RNNCell", (3, 5), (3, 2), (2, 5), (2, 2), (4,), nonlinearity="Softmax"), "nonlinearity", ""),
    (case("ReduceMean", (2, 3, 4), [1], axes=(1,)), "axes", "also given as input 1"),
    (case("Resize", *RESIZE, [2, 3, 8, 8], mode="area"), "mode", ""),
    (
        case("Resize", *RESIZE, [2, 3, 8, 8], coordinate_transformation_mode="tf_crop_and_resize"),
        "coordinate_transformation_mode",
        "",
    ),
    (case("Resize", *RESIZE, [2, 3, 8, 8], antialias=1), "antialias", ""),
    (case("Resize", *RESIZE, [2, 3, 8, 8], nearest_mode="round"), "nearest_mode", ""),
    (case("Resize", *RESIZE, [2, 3, 8, 8], exclude_outside=1), "exclude_outside", ""),
    (case("Resize", *RESIZE, [2, 3, 8, 8], keep_aspect_ratio_policy="crop"), "keep_aspect_ratio_policy", ""),
    (case("Gather", (10, 4), i64(3), axis=2), "axis", "rank 2"),
    (case("Gather", (), i64(3)), "axis", "rank 0"),
    (case("Concat", (2, 3), (2, 3), axis=2), "axis", r"\[-2, 1\]"),
    (case("Concat", (2, 3), (2, 3)), "axis", " is required"),
    (case("Concat", (), (), axis=0), "axis", "input of rank 0"),
    (case("Split", (6, 2), outputs=2, num_outputs=3), "num_outputs", "must be the number of outputs, 2"),
    (
        case("Split", (6, 2), [3, 3], outputs=2, num_outputs=2),
        "num_outputs",
        "must be the number of outputs, 2, without sizes",
    ),
    (case("Split", (6, 2), [3, 3], outputs=2, split=(3, 3)), "split", "also given as input 1"),
    (case("ConvTranspose", *UP, strides=(1,)), "strides", ""),
    (case("ConvTranspose", *UP, pads=(1, 1)), "pads", ""),
    (case("ConvTranspose", *UP, output_padding=(1,)), "output_padding", ""),
    (case("ConvTranspose", *UP, kernel_shape=(3, 2)), "kernel_shape", ""),
    (case("ConvTranspose", *UP, pads=(1, 0, 0, 0), auto_pad="SAME_UPPER"), "pads", ""),
    (case("ConvTranspose", *UP, pads=(1, 0, 0, 0), output_shape=(7, 7)), "pads", ""),
]

#: For derivatives of inputs (by position): the operands and saved tensors that the backward step reads.
READS: list[tuple[Case, dict[str, str]]] = [
    (case("Dropout", (3, 4)), {"0": ""}),
    (case("LogAddExp", (4, 3), (4, 3), (4, 3)), {"0 2": "x0 x2 y0"}),
    (case("ReduceMax", (2000, 300), [1]), {"0": "x0 y0"}),
    (case("Where", truth(2, 3), (2, 3), (2, 3)), {"1 2": "x0"}),
    (case("Gather", (10, 4), i64(300, 300)), {"0": "x1"}),
    (case("Resize", (64, 3, 56, 56), None, None, [64, 3, 112, 112]), {"0": ""}),
    (
        case("RMSNormalization", (2, 3, 4), (3, 4), axis=1),
        {"0": "x0 x1 inverse_deviation", "1": "x0 inverse_deviation", "0 1": "x0 x1 inverse_deviation"},
    ),
    (case("RNNCell", (3, 5), None, (2, 5), (2, 2), (4,)), {"0 2 3": "x0 x2 y0"}),
    (case("GRUCell", (3, 5), None, *GRU[2:]), {"0 2 3": "x0 x2 gates"}),
    (case("LSTMCell", (3, 5), None, None, *LSTM[3:], outputs=2), {"0 3 4": "x0 x3 y1 gates"}),
    (case("Relu Sigmoid Tanh Clip Softmax LogSoftmax", (2, 3)), {"0": "y0"}),
    (case("LeakyRelu Elu HardSigmoid Exp Sqrt Reciprocal", (2, 3)), {"0": "y0"}),
    (case("Gelu Swish HardSwish", (2000, 2000)), {"0": "x0"}),
    (case("Gelu", (2000, 2000), approximate="tanh"), {"0": "x0"}),
    (case("LeakyRelu", (2000, 2000), alpha=0.0), {"0": "x0"}),
    (case("LeakyRelu", (2000, 2000), alpha=-0.1), {"0": "x0"}),
    (case("Elu", (2000, 2000), alpha=-1.0), {"0": "x0"}),
    (case("PRelu", (2, 3), (3,)), {"0": "x0 x1", "1": "x0"}),
    (case("Clip", (2, 3), (), None), {"0": "x1 y0"}),
    (case("Clip", (2, 3), None, ()), {"0": "x2 y0"}),
    (case("Add Sub", (2, 3), (3,), activation="None"), {"0": "", "1": "", "0 1": ""}),
    (case("Add Sub", (2, 3), (3,), activation="Sigmoid"), {"0": "y0", "1": "y0", "0 1": "y0"}),
    (case("Mul", (2, 3), (3,), activation="None"), {"0": "x1", "1": "x0", "0 1": "x0 x1"}),
    (case("Mul", (2, 3), (3,), activation="Sigmoid"), {"0": "x1 y0", "1": "x0 y0", "0 1": "x0 x1 y0"}),
    (case("Div", (2, 3), (3,), activation="None"), {"0": "x1", "1": "x0 x1", "0 1": "x0 x1"}),
    (case("Div", (2, 3), (3,), activation="Sigmoid"), {"0": "x1 y0", "1": "x0 x1 y0", "0 1": "x0 x1 y0"}),
    (case("Pow", (2, 3), (3,)), {"0": "x0 x1", "1": "x0 y0", "0 1": "x0 x1 y0"}),
    (
        case("BatchNormalization", (2, 3, 4), (3,), (3,), (3,), (3,), training_mode=1),
        {"0": "x0 x1 statistics", "1": "x0 statistics", "1 2": "x0 statistics", "2": ""},
    ),
    (
        case("BatchNormalization", (2, 3, 4), (3,), (3,), (3,), (3,), training_mode=0),
        {"0": "x1 x4", "1": "x0 x3 x4", "1 2": "x0 x3 x4", "0 2": "x1 x4", "0 1 2": "x0 x1 x3 x4", "2": ""},
    ),
    (
        case("Conv", *CONV, (4,), activation="None"),
        {"0": "x1", "1": "x0", "2": "", "1 2": "x0", "0 2": "x1", "0 1 2": "x0 x1"},
    ),
    (
        case("Conv", *CONV, (4,), activation="Relu"),
        {"0": "x1 y0", "1": "x0 y0", "2": "y0", "1 2": "x0 y0", "0 2": "x1 y0", "0 1 2": "x0 x1 y0"},
    ),
    (
        case("Gemm", (2, 3), (3, 4), (4,), activation="None"),
        {"0": "x1", "1": "x0", "2": "", "0 1": "x0 x1", "0 2": "x1", "1 2": "x0", "0 1 2": "x0 x1"},
    ),
    (
        case("Gemm", (2, 3), (3, 4), (4,), activation="Relu"),
        {
            "0": "x1 y0",
            "1": "x0 y0",
            "2": "y0",
            "0 1": "x0 x1 y0",
            "0 2": "x1 y0",
            "1 2": "x0 y0",
            "0 1 2": "x0 x1 y0",
        },
    ),
    (case("MatMul", (5, 2, 3), (5, 3, 4), activation="None"), {"0": "x1", "1": "x0", "0 1": "x0 x1"}),
    (
        case("MatMul", (5, 2, 3), (5, 3, 4), activation="Tanh"),
        {"0": "x1 y0", "1": "x0 y0", "0 1": "x0 x1 y0"},
    ),
    (
        case("CategoricalCrossEntropy", (6, 5), (6, 5), from_logits=0),
        {"0": "x0 x1", "1": "x0", "0 1": "x0 x1"},
    ),
    (
        case("CategoricalCrossEntropy", (6, 5), (6, 5), from_logits=1),
        {"0": "x0 x1", "1": "x0", "0 1": "x0 x1"},
    ),
    (
        case("MeanSquaredError MeanAbsoluteError Huber KLDivergence", (600, 500), (600, 500)),
        {"0": "x0 x1", "1": "x0 x1", "0 1": "x0 x1"},
    ),
    (case("BinaryCrossEntropy", (600, 500), (600, 500)), {"0": "x0 x1", "1": "x0", "0 1": "x0 x1"}),
    (
        case("LayerNormalization InstanceNormalization", (2, 6, 6), (6,), (6,)),
        {
            "0": "x0 x1 statistics",
            "1": "x0 statistics",
            "1 2": "x0 statistics",
            "2": "",
            "0 1 2": "x0 x1 statistics",
        },
    ),
    (
        case("GroupNormalization", (2, 6, 6), (6,), (6,), num_groups=2),
        {
            "0": "x0 x1 statistics",
            "1": "x0 statistics",
            "1 2": "x0 statistics",
            "2": "",
            "0 1 2": "x0 x1 statistics",
        },
    ),
    (case("MaxPool", (2, 3, 8, 8), **HALVES), {"0": "arg_max"}),
    (case("AveragePool", (2, 3, 8, 8), **HALVES), {"0": ""}),
    (case("GlobalAveragePool", (2, 3, 8, 8)), {"0": ""}),
    (
        case("RNNCell", (3, 5), (3, 2), (2, 5), (2, 2), (4,)),
        {"0": "x2 y0", "2 3 4": "x0 x1 y0", "1": "x3 y0"},
    ),
    (case("GRUCell", *GRU), {"0": "x1 x2 x3 gates"}),
    (
        case("GRUCell", *GRU, linear_before_reset=1),
        {"0": "x1 x2 gates product", "2 3 4": "x0 x1 gates product"},
    ),
    (case("LSTMCell", *LSTM, outputs=2), {"0 1 2": "x2 x3 x4 y1 gates", "3 4 5": "x0 x1 x2 y1 gates"}),
    (case("Log Abs Erf Sin Cos Softplus", (2, 3)), {"0": "x0"}),
    (case("Asin Acos Atan Asinh Acosh Atanh", (2, 3)), {"0": "x0"}),
    (case("Neg", (2, 3)), {"0": ""}),
    (case("ConvTranspose", *UP, (3,)), {"0": "x1", "1": "x0", "2": "", "1 2": "x0"}),
]


#: For derivatives of inputs, or "forward" and "saved": the shapes of what the step has beside its operands.
SCRATCH: list[tuple[Case, str, dict[str, tuple[int, ...]]]] = [
    (case("Dropout", (3,), ratio=0.0), "forward", {}),
    (
        case("RandomUniform", [2000, 2000]),
        "forward",
        {"counters": (8192,), "bits": (8192,), "work": (8192,)},
    ),
    (
        case("Erf", (2000, 2000)),
        "forward",
        dict.fromkeys(("square", "inner", "work", "mask"), (BLOCK_ELEMENTS,)),
    ),
    (
        case("CategoricalCrossEntropy", (100_000, 10), i32(100_000), sparse=1),
        "forward",
        {
            "logarithm": (3276, 10),
            "smoothed": (3276, 10),
            "statistic": (3276, 1),
            "index": (3276,),
            "partials": (31,),
        },
    ),
    (
        case("CategoricalCrossEntropy", (100_000, 10), (100_000, 10), from_logits=1),
        "0",
        {"logarithm": (3276, 10), "statistic": (3276, 1), "total": (3276, 1)},
    ),
    (case("Dropout", (3, 4)), "saved", {}),
    (case("Neg", (2, 3)), "0", {}),
    (case("Concat", (2, 3), (2, 3), axis=0), "0", {}),
    (case("Split", (2, 3)), "0", {}),
    (case("Slice", (2, 3), [0], [1]), "0", {}),
    (case("Reshape", (2, 3, 4), [-1]), "0", {}),
    (case("Flatten Transpose ReduceMean ReduceSum", (2, 3, 4)), "0", {}),
    (case("ReduceMean ReduceSum", (2, 3, 4), [-1, 0], keepdims=0), "0", {}),
    (case("ReduceMean ReduceSum", (2, 3, 4), None, noop_with_empty_axes=1, keepdims=0), "0", {}),
    (case("ReduceMax", (2000, 300), [1]), "0", {"share": (2000,), "partial": (2000,)}),
    (case("Pad", (2, 3, 4), [0] * 6, ()), "0", {}),
    (case("Pad", (50, 60, 70), [1, 2, 3] * 2, mode="edge"), "0", {"partial": (BLOCK_ELEMENTS,)}),
    (case("Pad", (50, 60, 70), [0] * 6, mode="edge"), "0", {}),
    (case("Pad", (50, 60, 70), [1, 2, 3] * 2, mode="reflect"), "0", {}),
    (case("Expand", (2, 3), [1, 1]), "0", {}),
    (case("Expand", (2, 1), [2, 3]), "0", {"partial": (2,)}),
    (case("MeanSquaredError", (6, 5), (6, 5)), "0", {}),
    (case("MeanSquaredError", (6, 5), (6, 5)), "1", {}),
    (case("MeanSquaredError", (6, 5), (6, 5)), "0 1", {}),
    (case("Where", truth(2, 3), (2, 3), (2, 3)), "1 2", {}),
    (
        case("Where", truth(900, 900), (900, 900), (900,)),
        "1 2",
        {"term": (BLOCK_ELEMENTS,), "partial": (900,)},
    ),
    (
        case("Gather", (10, 4), i64(300, 300)),
        "0",
        {"index": (BLOCK_ELEMENTS,), "order": (BLOCK_ELEMENTS,), "rows": (1024, 4), "sums": (1024, 4)},
    ),
    (
        case("ArgTopK", (4000, 100), k=1),
        "forward",
        {"keys": (327, 100), "signs": (327, 100), "first": (327,), "best": (327,), "places": (327,)},
    ),
    # Without an activation nothing is staged but the sum of the bias.
    (case("Gemm", (2, 3), (3, 4), (4,)), "0", {}),
    (case("Gemm", (2, 3), (3, 4), (4,)), "1", {}),
    (case("Gemm", (2, 3), (3, 4), (4,)), "0 1", {}),
    (case("Gemm", (2, 3), (3, 4), (4,)), "2", {"partial": (4,)}),
    (case("Gemm", (2, 3), (3, 4), (4,)), "0 2", {"partial": (4,)}),
    (case("Gemm", (2, 3), (3, 4), (4,)), "1 2", {"partial": (4,)}),
    (case("Gemm", (2, 3), (3, 4), (4,)), "0 1 2", {"partial": (4,)}),
    # Without the derivative of B, rows of dZ fit the budget of 2 MiB; with it, all are needed.
    (case("Gemm", (10_000, 8), (8, 1000), activation="Relu"), "0", {"inner": (524, 1000)}),
    (case("Gemm", (10_000, 8), (8, 1000), activation="Relu"), "1", {"inner": (10_000, 1000)}),
    # A batch that shares an operand sums through one matrix.
    (case("MatMul", (1, 2, 3), (5, 3, 4)), "0 1", {"partial_left": (2, 3)}),
    (case("MatMul", (6, 5, 2, 3), (5, 3, 4)), "0 1", {"partial_right": (3, 4)}),
    (case("MatMul", (6, 5, 2, 3), (3, 4)), "0 1", {}),
    (case("RNNCell", (3, 5), None, (2, 5), (2, 2), (4,)), "forward", {}),
    (case("GRUCell", (3, 5), None, *GRU[2:]), "forward", {}),
    (case("LSTMCell", (3, 5), None, None, *LSTM[3:], outputs=2), "forward", {}),
    # The gates, activated; and what a reset gate was applied to. An RNN has its output for that.
    (case("LSTMCell", *LSTM, outputs=2), "saved", {"gates": (3, 8)}),
    (case("GRUCell", *GRU), "saved", {"gates": (3, 6)}),
    (case("GRUCell", *GRU, linear_before_reset=1), "saved", {"gates": (3, 6), "product": (3, 2)}),
    (case("RNNCell", (3, 5), (3, 2), (2, 5), (2, 2), (4,)), "saved", {}),
    (
        case("BatchNormalization", (2, 3, 4), *BATCH[1:], training_mode=1),
        "saved",
        {"mean": (3,), "inverse_deviation": (3,)},
    ),
    (case("BatchNormalization", (2, 3, 4), *BATCH[1:]), "saved", {}),
    # The mean stays in the rows, so nothing has to remember it.
    (case("RMSNormalization", (2, 3, 4), (3, 4), axis=1), "saved", {"inverse_deviation": (2, 1, 1)}),
    (
        case("Resize", (64, 3, 56, 56), None, None, [64, 3, 112, 112]),
        "0",
        {"between": (2 * 56 * 112,), "tap": (BLOCK_ELEMENTS,)},
    ),
    (case("Resize", (2, 3, 8), None, None, [2, 3, 4]), "0", {"tap": (BLOCK_ELEMENTS,)}),
]


def test_shapes_and_types_of_outputs() -> None:
    with every() as each:
        for (types, inputs, attributes), expected in SHAPES:
            for type_ in types:
                with each(f"{type_} {inputs} {attributes}"):
                    outputs = node_of(type_, inputs, **attributes).outputs
                    listed = [expected] if isinstance(expected, tuple) else expected
                    floats = [TensorType(t, DType.FLOAT32) if isinstance(t, tuple) else t for t in listed]
                    assert list(outputs) == floats


def test_inputs_that_have_a_derivative() -> None:
    with every() as each:
        for (types, inputs, attributes), expected in DIFFERENTIABLE:
            for type_ in types:
                with each(f"{type_} {inputs} {attributes}"):
                    assert lookup(type_).differentiable(node_of(type_, inputs, **attributes)) == expected


def test_refused_shapes_name_operation_and_reason() -> None:
    with every() as each:
        for (types, inputs, attributes), reason in REFUSED_SHAPES:
            for type_ in types:
                with each(f"{type_} {inputs} {attributes}"):
                    with pytest.raises(ShapeMismatchError) as caught:
                        node_of(type_, inputs, **attributes)
                    assert re.search(reason, str(caught.value))
                    assert f"'dense1' ({type_})" in caught.value.message


def test_refused_attributes_are_named_with_their_place() -> None:
    with every() as each:
        for (types, inputs, attributes), name, reason in REFUSED_ATTRIBUTES:
            for type_ in types:
                with each(f"{type_} {inputs} {attributes}"):
                    with pytest.raises(AttributeRuleError) as caught:
                        node_of(type_, inputs, **attributes)
                    assert re.search(reason, str(caught.value))
                    assert f"'dense1' ({type_})" in caught.value.message
                    assert caught.value.path == ("attributes", name)


def test_a_backward_step_reads_no_more_than_it_must() -> None:
    with every() as each:
        for (types, inputs, attributes), needs_by_wanted in READS:
            for type_, (wanted, expected) in product(types, needs_by_wanted.items()):
                with each(f"{type_} {inputs} {attributes} {wanted}"):
                    reads, outputs, needs = needs_of(type_, inputs, map(int, wanted.split()), **attributes)
                    operands = {*(f"x{i}" for i in reads), *(f"y{k}" for k in outputs)}
                    expected = expected.replace("statistics", "mean inverse_deviation")
                    assert operands | needs.saved == set(expected.split())
                    names = [request.name for request in needs.scratch]
                    assert len(set(names)) == len(names)


def test_scratch_and_what_is_saved() -> None:
    with every() as each:
        for (types, inputs, attributes), what, expected in SCRATCH:
            for type_ in types:
                with each(f"{type_} {inputs} {attributes} {what}"):
                    kind, node = lookup(type_), node_of(type_, inputs, **attributes)
                    if what == "forward":
                        requests = kind.forward_scratch(node)
                    elif what == "saved":
                        requests = kind.saved(node)
                    else:
                        requests = kind.backward(node, frozenset(map(int, what.split()))).scratch
                    assert {request.name: request.type.shape for request in requests} == expected
