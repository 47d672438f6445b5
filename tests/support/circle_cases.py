"""One small model for each operator that the Circle importer knows, and NumPy's answer to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from solver.graph.types import Array
from tests.support.circle_models import CircleFile

__all__ = ["CASES", "CircleCase", "written"]

_random = np.random.default_rng(7)


def _floats(*shape: int) -> Array:
    return _random.standard_normal(shape).astype(np.float32)


def _integers(*values: int) -> Array:
    return np.array(values, np.int32)


@dataclass(frozen=True)
class CircleCase:
    """An operator of a first input "x" of shape `shape` and of constants.

    `order` says where x stands among the inputs, -1 for an input that is left out. `expected` maps x to the
    operator's first output, of which `outputs` has the shapes.
    """

    code: str
    shape: tuple[int, ...]
    expected: Callable[[Array], Array]
    constants: tuple[Array, ...] = ()
    table: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    label: str = ""

    @property
    def id(self) -> str:
        return f"{self.code}-{self.label}" if self.label else self.code


def written(case: CircleCase, identifier: bytes = b"CIR0") -> bytes:
    """The model: the operator, and a PReLU of slope 1 behind it, so that there is something to train."""
    file = CircleFile()
    x = file.input("x", case.shape)
    constants = [file.constant(f"c{k}", value) for k, value in enumerate(case.constants)]
    given = [x, *constants]
    shapes = case.outputs or (case.expected(np.abs(_floats(*case.shape)) + 0.5).shape,)
    outputs = [file.tensor(f"y{k}", shape) for k, shape in enumerate(shapes)]
    inputs = [given[k] if k >= 0 else -1 for k in case.order] if case.order else given
    file.operator(case.code, inputs, outputs, case.table, case.options)
    slope = file.constant("slope", np.ones(shapes[0][-1:] or (1,), np.float32))
    last = file.tensor("out", shapes[0])
    file.operator("PRELU", [outputs[0], slope], [last])
    return file.write(last, identifier=identifier)


def _windows(x: Array, height: int, width: int, stride: int, pads: tuple[int, int, int, int]) -> Array:
    """[n, out height, out width, c, height, width]; `pads` are top, left, bottom, right, of zeros."""
    top, left, bottom, right = pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    return np.asarray(view[:, ::stride, ::stride])


_FILTERS, _BIAS = _floats(4, 3, 3, 2), _floats(4)
_DEPTHWISE, _DEPTHWISE_BIAS = _floats(1, 3, 3, 4), _floats(4)
_DENSE = _floats(5, 6)
_TURNED = _floats(3, 2, 2, 2)
_TABLE = _floats(7, 3)


def _convolved(x: Array) -> Array:
    found = np.einsum("nhwcij,oijc->nhwo", _windows(x, 3, 3, 2, (1, 1, 1, 1)), _FILTERS)
    return np.asarray(np.maximum(found + _BIAS, 0))


def _depthwise(x: Array) -> Array:
    weights = _DEPTHWISE.reshape(3, 3, 2, 2)  # two filters for each of two channels
    found = np.einsum("nhwcij,ijcm->nhwcm", _windows(x, 3, 3, 1, (0, 0, 0, 0)), weights)
    return np.asarray(np.clip(found.reshape(*found.shape[:3], 4) + _DEPTHWISE_BIAS, 0, 6))


def _transposed(x: Array) -> Array:
    n, h, w, _ = x.shape
    found = np.zeros((n, 2 * h, 2 * w, 3), np.float32)
    for i in range(2):
        for j in range(2):
            found[:, i::2, j::2] = x @ _TURNED[:, i, j].T
    return found


def _averaged(x: Array) -> Array:
    return np.asarray(np.clip(_windows(x, 2, 2, 2, (0, 0, 0, 0)).mean((-2, -1)), -1, 1))


def _deep(x: Array) -> Array:
    n, h, w, c = x.shape
    apart = x.reshape(n, h // 2, 2, w // 2, 2, c)
    return apart.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // 2, w // 2, 4 * c)


def _flat(x: Array) -> Array:
    n, h, w, c = x.shape
    apart = x.reshape(n, h, w, 2, 2, c // 4)
    return apart.transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)


def _as_batch(x: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 1), (2, 0), (0, 0)))
    return np.concatenate([padded[:, i::2, j::2] for i in range(2) for j in range(2)])


def _as_space(x: Array) -> Array:
    found = np.zeros((1, 4, 6, 2), np.float32)
    for k in range(4):
        found[:, k // 2 :: 2, k % 2 :: 2] = x[k : k + 1]
    return found[:, :3, 2:]


def _between(x: Array) -> Array:
    return np.stack([x[:, 0], (x[:, 0] + x[:, 1]) / 2, x[:, 1]], 1)


def _normalised(x: Array) -> Array:
    mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + 1e-3) * _BIAS[:2] + _BIAS[2:])


def _erf(x: Array) -> Array:
    from math import erf

    return np.array([erf(v) for v in x.ravel()], np.float32).reshape(x.shape)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


def _unary(code: str, expected: Callable[[Array], Array], table: str = "", **options: Any) -> CircleCase:
    return CircleCase(code, (2, 5), expected, table=table, options=options)


def _reduced(code: str, expected: Callable[[Array], Array], *, keep: bool) -> CircleCase:
    return CircleCase(
        code, (2, 3, 4), expected, (_integers(1),), "ReducerOptions", {"keepDims": keep}, label=f"keep={keep}"
    )


_WINDOW = {"filterHeight": 2, "filterWidth": 2, "strideH": 2, "strideW": 2, "padding": "VALID"}
_SQUARE = (2, 6, 6, 2)

CASES: Sequence[CircleCase] = (
    CircleCase(
        *("CONV_2D", (2, 7, 7, 2), _convolved, (_FILTERS, _BIAS), "Conv2DOptions"),
        {"padding": "SAME", "strideH": 2, "strideW": 2, "fusedActivationFunction": "RELU"},
    ),
    CircleCase(
        *("DEPTHWISE_CONV_2D", _SQUARE, _depthwise, (_DEPTHWISE, _DEPTHWISE_BIAS), "DepthwiseConv2DOptions"),
        {
            "padding": "VALID",
            "strideH": 1,
            "strideW": 1,
            "depthMultiplier": 2,
            "fusedActivationFunction": "RELU6",
        },
    ),
    CircleCase(
        *("TRANSPOSE_CONV", (2, 3, 3, 2), _transposed, (_integers(2, 6, 6, 3), _TURNED)),
        *("TransposeConvOptions", {"padding": "VALID", "strideH": 2, "strideW": 2}, (1, 2, 0)),
    ),
    CircleCase(
        *("FULLY_CONNECTED", (2, 6), lambda x: x @ _DENSE.T, (_DENSE,), "FullyConnectedOptions"),
        *({}, (0, 1, -1)),
    ),
    CircleCase(
        *("FULLY_CONNECTED", (2, 3, 6), lambda x: np.tanh(x @ _DENSE.T), (_DENSE,), "FullyConnectedOptions"),
        {"keepNumDims": True, "fusedActivationFunction": "TANH"},
        (0, 1, -1),
        label="keeps dimensions",
    ),
    CircleCase(
        *("FULLY_CONNECTED", (2, 3, 2), lambda x: x.reshape(2, 6) @ _DENSE.T, (_DENSE,)),
        *("FullyConnectedOptions", {}, (0, 1, -1)),
        label="flattens",
    ),
    CircleCase(
        *("MAX_POOL_2D", _SQUARE, lambda x: _windows(x, 2, 2, 2, (0, 0, 0, 0)).max((-2, -1))),
        *((), "Pool2DOptions", _WINDOW),
    ),
    CircleCase(
        *("AVERAGE_POOL_2D", _SQUARE, _averaged),
        *((), "Pool2DOptions", {**_WINDOW, "fusedActivationFunction": "RELU_N1_TO_1"}),
    ),
    CircleCase("RESHAPE", (2, 6), lambda x: x.reshape(2, 3, 2), (_integers(2, 3, 2),), "ReshapeOptions"),
    CircleCase(
        *("RESHAPE", (2, 6), lambda x: x.reshape(-1, 3), (), "ReshapeOptions", {"newShape": [-1, 3]}),
        label="in its options",
    ),
    CircleCase(
        *("ADD", (2, 5), lambda x: np.maximum(x + _TABLE[0, 0], 0), (np.float32(_TABLE[0, 0]).reshape(1),)),
        *("AddOptions", {"fusedActivationFunction": "RELU"}),
    ),
    CircleCase("SUB", (2, 5), lambda x: 1 - x, (np.ones(1, np.float32),), "SubOptions", {}, (1, 0)),
    CircleCase("MUL", (2, 5), lambda x: x * 3, (np.full(1, 3, np.float32),), "MulOptions"),
    CircleCase("DIV", (2, 5), lambda x: x / 3, (np.full(1, 3, np.float32),), "DivOptions"),
    CircleCase("POW", (2, 5), lambda x: x**2, (np.full(1, 2, np.float32),), "PowOptions"),
    CircleCase("SQUARED_DIFFERENCE", (2, 5), lambda x: (x - 3) ** 2, (np.full(1, 3, np.float32),)),
    _reduced("MEAN", lambda x: x.mean(1), keep=False),
    _reduced("SUM", lambda x: x.sum(1, keepdims=True), keep=True),
    _reduced("REDUCE_MAX", lambda x: x.max(1), keep=False),
    _unary("SOFTMAX", lambda x: _softmax(2 * x), "SoftmaxOptions", beta=2.0),
    _unary("LOG_SOFTMAX", lambda x: np.log(_softmax(x)), "LogSoftmaxOptions"),
    _unary("RELU", lambda x: np.maximum(x, 0)),
    _unary("RELU6", lambda x: np.clip(x, 0, 6)),
    _unary("RELU_N1_TO_1", lambda x: np.clip(x, -1, 1)),
    _unary("RELU_0_TO_1", lambda x: np.clip(x, 0, 1)),
    _unary("TANH", np.tanh),
    _unary("LOGISTIC", _sigmoid),
    _unary("ELU", lambda x: np.where(x > 0, x, np.expm1(x))),
    _unary("LEAKY_RELU", lambda x: np.where(x > 0, x, 0.3 * x), "LeakyReluOptions", alpha=0.3),
    _unary("GELU", lambda x: x / 2 * (1 + _erf(x / np.sqrt(2))), "GeluOptions"),
    _unary("HARD_SWISH", lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    _unary("EXP", np.exp),
    _unary("NEG", np.negative),
    _unary("ABS", np.abs),
    _unary("SQUARE", np.square),
    _unary("LOG", np.log),
    _unary("SQRT", np.sqrt),
    _unary("RSQRT", lambda x: 1 / np.sqrt(x)),
    CircleCase(
        *("PAD", _SQUARE, lambda x: np.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0)))),
        *((np.array([[0, 0], [1, 2], [0, 3], [0, 0]], np.int32),), "PadOptions"),
    ),
    CircleCase(
        *("PADV2", (2, 3), lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=4)),
        *((np.array([[0, 0], [1, 2]], np.int32), np.full(1, 4, np.float32)), "PadV2Options"),
    ),
    CircleCase(
        *("MIRROR_PAD", (2, 3), lambda x: np.pad(x, ((0, 0), (1, 2)), "reflect")),
        *((np.array([[0, 0], [1, 2]], np.int32),), "MirrorPadOptions", {"mode": "REFLECT"}),
    ),
    CircleCase(
        "TRANSPOSE", (2, 3, 4), lambda x: x.transpose(0, 2, 1), (_integers(0, 2, 1),), "TransposeOptions"
    ),
    CircleCase("SQUEEZE", (2, 1, 4), lambda x: x[:, 0], (), "SqueezeOptions", {"squeezeDims": [1]}),
    CircleCase("EXPAND_DIMS", (2, 4), lambda x: x[:, None], (_integers(1),), "ExpandDimsOptions"),
    CircleCase(*("SLICE", (2, 5), lambda x: x[:, 1:4], (_integers(0, 1), _integers(-1, 3)), "SliceOptions")),
    CircleCase(
        *("STRIDED_SLICE", (2, 5, 3), lambda x: x[:, 1:5:2, 2]),
        (_integers(0, 1, 2), _integers(0, 5, 3), _integers(1, 2, 1)),
        *("StridedSliceOptions", {"beginMask": 1, "endMask": 1, "shrinkAxisMask": 4}),
    ),
    CircleCase(
        *("CONCATENATION", (2, 3), lambda x: np.concatenate([x, x], 1), (), "ConcatenationOptions"),
        *({"axis": 1}, (0, 0)),
    ),
    CircleCase(
        "PACK",
        (2, 3),
        lambda x: np.stack([x, x], 1),
        (),
        "PackOptions",
        {"axis": 1, "valuesCount": 2},
        (0, 0),
    ),
    CircleCase(
        "UNPACK",
        (2, 2, 3),
        lambda x: x[:, 0],
        (),
        "UnpackOptions",
        {"axis": 1, "num": 2},
        (0,),
        ((2, 3),) * 2,
    ),
    CircleCase(
        *("SPLIT", (2, 6), lambda x: x[:, :3], (_integers(1),), "SplitOptions", {"numSplits": 2}, (1, 0)),
        ((2, 3),) * 2,
    ),
    CircleCase(
        *("SPLIT_V", (2, 6), lambda x: x[:, :2], (_integers(2, -1), _integers(1)), "SplitVOptions"),
        *({"numSplits": 2}, (0, 1, 2), ((2, 2), (2, 4))),
    ),
    CircleCase(*("GATHER", (2, 4), lambda x: x[:, [2, 0]], (_integers(2, 0),), "GatherOptions", {"axis": 1})),
    CircleCase("PRELU", (2, 3), lambda x: np.where(x > 0, x, x * _TABLE[0]), (_TABLE[0],)),
    CircleCase(
        *("INSTANCE_NORM", (2, 4, 4, 2), _normalised, (_BIAS[:2], _BIAS[2:])),
        *("InstanceNormOptions", {"epsilon": 1e-3}),
    ),
    CircleCase(
        *("BATCH_MATMUL", (2, 3, 6), lambda x: x @ _DENSE.T, (np.stack([_DENSE, _DENSE]),)),
        *("BatchMatMulOptions", {"adjointRhs": True}),
    ),
    CircleCase(
        *("RESIZE_NEAREST_NEIGHBOR", (2, 2, 3, 1), lambda x: x.repeat(2, 1).repeat(2, 2), (_integers(4, 6),)),
        "ResizeNearestNeighborOptions",
    ),
    CircleCase(
        *("RESIZE_BILINEAR", (2, 2, 1, 1), _between),
        *((_integers(3, 1),), "ResizeBilinearOptions", {"alignCorners": True}),
    ),
    CircleCase(
        "BROADCAST_TO", (2, 1), lambda x: np.repeat(x, 3, 1), (_integers(2, 3),), "BroadcastToOptions"
    ),
    CircleCase("MAXIMUM", (2, 3), lambda x: np.maximum(x, _TABLE[0]), (_TABLE[0],)),
    CircleCase("MINIMUM", (2, 3), lambda x: np.minimum(x, _TABLE[0]), (_TABLE[0],)),
    CircleCase("SIN", (2, 3), np.sin),
    CircleCase("COS", (2, 3), np.cos),
    CircleCase("FLOOR", (2, 3), np.floor),
    CircleCase("CEIL", (2, 3), np.ceil),
    CircleCase("ROUND", (2, 3), np.rint),
    CircleCase("SIGN", (2, 3), np.sign),
    CircleCase("CUMSUM", (2, 4), lambda x: x.cumsum(1), (_integers(1),), "CumsumOptions"),
    CircleCase(
        *("CUMSUM", (2, 4), lambda x: x[:, ::-1].cumsum(1)[:, ::-1], (_integers(1),), "CumsumOptions"),
        {"reverse": True},
        label="reverse",
    ),
    CircleCase("ADD_N", (2, 3), lambda x: 2 * x + _TABLE[:2], (_TABLE[:2],), "", {}, (0, 1, 0)),
    CircleCase("L2_NORMALIZATION", (2, 3), lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)),
    CircleCase("REVERSE_V2", (2, 3, 4), lambda x: x[:, ::-1, ::-1], (_integers(1, 2),)),
    CircleCase("REDUCE_MIN", (2, 3, 4), lambda x: x.min(1), (_integers(1),), "ReducerOptions"),
    CircleCase("TILE", (2, 3), lambda x: np.tile(x, (1, 2)), (_integers(1, 2),)),
    CircleCase(*("SPACE_TO_DEPTH", (2, 4, 6, 3), _deep, (), "SpaceToDepthOptions", {"blockSize": 2})),
    CircleCase(*("DEPTH_TO_SPACE", (2, 2, 3, 12), _flat, (), "DepthToSpaceOptions", {"blockSize": 2})),
    CircleCase(
        *("SPACE_TO_BATCH_ND", (1, 3, 4, 2), _as_batch),
        (_integers(2, 2), np.array([[0, 1], [2, 0]], np.int32)),
        "SpaceToBatchNDOptions",
    ),
    CircleCase(
        *("BATCH_TO_SPACE_ND", (4, 2, 3, 2), _as_space),
        (_integers(2, 2), np.array([[0, 1], [2, 0]], np.int32)),
        "BatchToSpaceNDOptions",
    ),
    CircleCase(
        *("MIRROR_PAD", (2, 3, 4), lambda x: np.pad(x, ((0, 0), (1, 2), (3, 0)), "symmetric")),
        *((np.array([[0, 0], [1, 2], [3, 0]], np.int32),), "MirrorPadOptions", {"mode": "SYMMETRIC"}),
        label="symmetric",
    ),
    CircleCase(
        *("STRIDED_SLICE", (2, 5), lambda x: x[:, ::-2]),
        (_integers(0, 0), _integers(0, 0), _integers(1, -2)),
        *("StridedSliceOptions", {"beginMask": 3, "endMask": 3}),
        label="backwards",
    ),
    CircleCase(
        *("STRIDED_SLICE", (2, 5, 3), lambda x: x[..., None, 1]),
        (_integers(0, 0, 1), _integers(0, 0, 2), _integers(1, 1, 1)),
        *("StridedSliceOptions", {"ellipsisMask": 1, "newAxisMask": 2, "shrinkAxisMask": 4}),
        label="ellipsis",
    ),
)
