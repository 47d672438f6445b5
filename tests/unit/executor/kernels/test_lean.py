"""No step allocates memory of tensor size, and operators without a derivative have no backward step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from solver.errors import InternalError
from solver.executor.kernels import kernels_for
from solver.executor.kernels.base import Call
from solver.graph.ops import FAMILIES, OPERATOR_NAMES, lookup
from solver.graph.ops.base import NoDerivative
from solver.graph.ops.dropout import BLOCK
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import Array
from tests.support.every import every, grid
from tests.support.one_operation import OneOperation, normal
from tests.support.operator_cases import CASES

#: Bytes that NumPy's own buffers may take; quantisation holds operands of three types.
USUAL, WIDE = 64 * 1024, 96 * 1024

#: Operators whose scratch is blocks of a few elements, whatever the size of their operands.
IN_BLOCKS = {
    *("Relu", "Sigmoid", "Tanh", "Clip", "Softmax", "LogSoftmax", "RandomUniform", "CategoricalCrossEntropy"),
    *("Add", "Sub", "Mul", "Div", "Pow", "Where"),
    *FAMILIES["unary"],
}


def floats(*shapes: Sequence[int], dtype: str = "float32") -> list[Array | None]:
    """Positive numbers below 1, in the range of every function."""
    return [np.asarray(0.05 + 0.9 * np.abs(np.tanh(normal(*shape))), dtype) for shape in shapes]


def indices(size: int, picked: int, dtype: str = "int64") -> Array:
    return np.random.default_rng(3).integers(-size, size, picked).astype(dtype)


def elementwise() -> Iterator[OneOperation]:
    image = floats((10, 40, 500))
    for type_ in (*FAMILIES["unary"], "Relu", "Sigmoid", "Tanh", *FAMILIES["rounding"], "IsNaN"):
        if type_ == "Acosh":
            yield OneOperation(type_, [1 + np.asarray(image[0])])
        else:
            yield OneOperation(type_, image)
    for type_ in FAMILIES["rounding"]:
        yield OneOperation(type_, floats((10, 40, 500), dtype="float64"))
    bounds: list[dict[str, Any]] = [{}, {"min": 0.2}, {"max": 0.25}, {"min": 0.2, "max": 0.5}]
    for attributes in (*bounds, {"min": 0.0, "inclusive": 1}):
        yield OneOperation("Clip", image, **attributes)
    for type_ in ("Softmax", "LogSoftmax"):
        for axis in (-1, 0, 1):
            yield OneOperation(type_, image, axis=axis)
    yield OneOperation("Softmax", floats((2000, 2000)), axis=0)
    for type_ in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        yield OneOperation(type_, floats((20, 100, 150), (100, 1)))
    for type_ in ("And", "Or"):
        yield OneOperation(type_, [np.ones((20, 100, 150), np.bool_), np.zeros((100, 1), np.bool_)])
    large = [
        *(((4, 50, 60, 32), (32,)), ((4, 32, 50, 60), (32, 1, 1)), ((4, 32, 50, 60), (4, 32, 50, 60))),
        *(((4, 32, 50, 1), (4, 32, 1, 60)), ((4, 32, 50, 60), ()), ((50000, 1), (1, 3))),
        ((70001,), (2, 70001)),
    ]
    for left, right in large:
        for type_ in ("Sub", "Div"):
            yield OneOperation(type_, floats(left, right))
            yield OneOperation(type_, floats(left, right), activation="Relu6")
        yield OneOperation("Pow", floats(left, right))
        yield OneOperation("Pow", [*floats(left), np.full(right, 2)])
    gated: list[tuple[str, dict[str, Any]]] = [
        *((type_, {}) for type_ in ("LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "Swish", "Gelu")),
        *(("LeakyRelu", {"alpha": -0.5}), ("Elu", {"alpha": -0.5}), ("Gelu", {"approximate": "tanh"})),
    ]
    for type_, attributes in gated:
        yield OneOperation(type_, image, **attributes)
    for slope in ((70, 1), (1, 1200), (1,), (70, 1200)):
        yield OneOperation("PRelu", floats((70, 1200), slope))
    reduced = itertools.product(("ReduceMean", "ReduceSum", "ReduceMax"), ((0,), (1,), (2,), (1, 2)))
    for type_, axes in reduced:
        yield OneOperation(type_, floats((11, 37, 509)), axes=axes)
    for size in (5 * BLOCK + 13, 100 * BLOCK):
        yield OneOperation("Dropout", floats((size,)))
    yield OneOperation("RandomUniform", [np.array([200_000])])
    yield OneOperation("CumSum", [*image, np.asarray(1)])


def products_and_images() -> Iterator[OneOperation]:
    linear: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
        ("Gemm", [(300, 400), (400, 500), (500,)], {"activation": "Relu"}),
        ("Gemm", [(300, 400), (500, 400), (300, 1)], {"transB": 1, "alpha": 0.5, "beta": 0.5}),
        ("Gemm", [(400, 300), (400, 500), (300, 500)], {"transA": 1, "activation": "Sigmoid"}),
        ("MatMul", [(30, 40, 50), (50, 60)], {"activation": "Tanh"}),
        ("MatMul", [(30, 40, 50), (30, 50, 60)], {"activation": "Relu6"}),
        ("MatMul", [(1, 200, 100), (8, 100, 300)], {}),
        ("MatMul", [(8, 200, 100), (100,)], {}),
    ]
    for type_, shapes, attributes in linear:
        yield OneOperation(type_, floats(*shapes), **attributes)
    for layout in ("NCHW", "NHWC"):
        x, w = ((4, 16, 20, 30), (16, 12, 3, 3)) if layout == "NCHW" else ((4, 20, 30, 16), (16, 3, 3, 12))
        upsampled = floats(x, w, (24,))
        yield OneOperation("ConvTranspose", upsampled, data_layout=layout, group=2, strides=(2, 2))
        image = floats((4, 16, 64, 64) if layout == "NCHW" else (4, 64, 64, 16))
        yield OneOperation("GlobalAveragePool", image, data_layout=layout)
        for type_ in ("MaxPool", "AveragePool"):
            for stride in (1, 2):
                window: dict[str, Any] = {"kernel_shape": (2, 2), "strides": (stride, stride)}
                yield OneOperation(type_, image, data_layout=layout, **window)
    for mode in ("nearest", "linear", "cubic"):
        for image_shape, sizes in (((4, 8, 40, 50), (4, 8, 80, 75)), ((2, 90, 80, 16), (2, 40, 200, 16))):
            yield OneOperation("Resize", [*floats(image_shape), None, None, np.array(sizes)], mode=mode)
    normalised: list[tuple[tuple[int, ...], str]] = [
        *(((5, 7, 90, 100), "NCHW"), ((5, 90, 100, 7), "NHWC"), ((2, 3, 200, 200), "NCHW")),
        *(((600, 300), "NCHW"), ((3, 40_000), "NCHW"), ((7, 50, 60, 12), "NHWC")),
        *(((5, 71, 300), "NHWC"), ((40_000, 2), "NCHW")),
    ]
    for shape, layout in normalised:
        channels = (shape[1 if layout == "NCHW" else -1],)
        for training in (0, 1):
            given = floats(shape, *[channels] * 4)
            yield OneOperation("BatchNormalization", given, data_layout=layout, training_mode=training)
    rows: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        *(("LayerNormalization", shape, shape[1:], {}) for shape in ((300, 500), (3, 40_000))),
        ("InstanceNormalization", (3, 7, 90, 100), (7,), {}),
        ("InstanceNormalization", (3, 90, 100, 7), (7,), {"data_layout": "NHWC"}),
        ("InstanceNormalization", (2, 3, 200, 200), (3,), {}),
        ("GroupNormalization", (3, 8, 60, 60), (8,), {"num_groups": 4}),
        ("GroupNormalization", (3, 60, 60, 8), (8,), {"num_groups": 2, "data_layout": "NHWC"}),
    ]
    for type_, shape, parameters, attributes in rows:
        yield OneOperation(type_, floats(shape, parameters, parameters), **attributes)
    for shape in ((300, 500), (3, 40_000)):
        yield OneOperation("RMSNormalization", floats(shape, shape[1:]))
    cells: list[tuple[str, int, dict[str, Any]]] = [
        *(("LSTMCell", 4, {}), ("GRUCell", 3, {}), ("GRUCell", 3, {"linear_before_reset": 1})),
        ("RNNCell", 1, {}),
    ]
    for type_, gates, attributes in cells:
        states = [(64, 96)] * (2 if type_ == "LSTMCell" else 1)
        cell = floats((64, 80), *states, (gates * 96, 80), (gates * 96, 96), (2 * gates * 96,))
        yield OneOperation(type_, cell, **attributes)


def moved_and_chosen() -> Iterator[OneOperation]:
    (x,), more = floats((20, 100, 150)), floats((20, 30, 150))
    yield OneOperation("Concat", [x, *more], axis=1)
    yield OneOperation("Split", [x], outputs=4, axis=1)
    yield OneOperation("Split", [x], outputs=3, axis=2)
    for parts in ((5, 90, 1, 3), (-1, -200, 2, -1)):
        yield OneOperation("Slice", [x, *(np.array([part]) for part in parts)])
    yield OneOperation("Reshape", [x, np.array([-1])])
    yield OneOperation("Flatten", [x])
    yield OneOperation("Transpose", [x], perm=(2, 0, 1))
    yield OneOperation("Pad", [x, np.array([0, 1, 2, 0, 1, 2])])
    for mode in ("reflect", "edge", "wrap"):
        yield OneOperation("Pad", [x, np.array([9, 8, 7, 6, 5, 4])], mode=mode)
    yield OneOperation("Unsqueeze", [x, np.array([0])])
    yield OneOperation("Expand", [x, np.array([3, 1, 1, 1])])
    for to in (11, 1):
        yield OneOperation("Cast", [x], to=to)
    yield OneOperation("ArgTopK", floats((40, 5000)), k=5)
    yield OneOperation("TileGather", [*floats((20, 64)), np.arange(3000) % 50], first_row=7, rows=50)
    yield OneOperation("LogAddExp", floats(*[(40_000,)] * 3))
    wheres: list[tuple[tuple[int, ...], ...]] = [
        *(((20, 100, 150),) * 3, ((100, 1), (20, 100, 150), (150,)), ((20, 100, 150), (), (20, 1, 1))),
    ]
    for condition, left, right in wheres:
        yield OneOperation("Where", [normal(*condition) > 0, *floats(left, right)])
    gathers: list[tuple[tuple[int, ...], int, int]] = [
        *(((1000, 64), 40_000, 0), ((20, 8), 40_000, 0), ((90_000, 2), 40_000, 0), ((60, 300), 9_000, 0)),
        *(((30, 100, 50), 200, 1), ((50, 100), 40_000, 1)),
    ]
    for data, picked, axis in gathers:
        for dtype in ("int32", "int64"):
            yield OneOperation("Gather", [*floats(data), indices(data[axis], picked, dtype)], axis=axis)
    for reduction in ("none", "max"):
        rows = [*floats((300, 8)), np.arange(20_000) % 300, *floats((20_000, 8))]
        yield OneOperation("ScatterUpdate", rows, reduction=reduction)


def losses() -> Iterator[OneOperation]:
    (prediction, target), labels = floats((20000, 12), (20000, 12)), np.arange(20000) % 12
    for reduction in ("mean", "sum", "none"):
        for logits in (0, 1):
            for sparse in (0, 1):
                cross: dict[str, Any] = {"from_logits": logits, "sparse": sparse, "label_smoothing": 0.2}
                values = [prediction, labels if sparse else target]
                yield OneOperation("CategoricalCrossEntropy", values, reduction=reduction, **cross)
            pair = [prediction, target]
            yield OneOperation("KLDivergence", pair, reduction=reduction, from_logits=logits)
            yield OneOperation("BinaryCrossEntropy", pair, reduction=reduction, from_logits=logits)
        yield OneOperation("BinaryCrossEntropy", pair, reduction=reduction, clamp="logarithm")
        for type_ in ("MeanSquaredError", "MeanAbsoluteError", "Huber"):
            yield OneOperation(type_, pair, reduction=reduction)
        yield OneOperation("Huber", pair, reduction=reduction, delta=0.4)
    yield OneOperation("CategoricalCrossEntropy", [prediction, labels], sparse=1, ignore_index=0)


def quantised() -> Iterator[OneOperation]:
    for shape in ((), (40,)):
        scale, zero = np.asarray(np.full(shape, 0.1, np.float32)), np.zeros(shape, np.int8)
        x = np.asarray(normal(10, 40, 500, dtype="float32"))
        yield OneOperation("QuantizeLinear", [x, scale, zero], rounding="away")
        yield OneOperation("DequantizeLinear", [(x * 10).astype(np.int8), scale, zero])


@grid(
    ("operations", "limit"),
    [
        *((rows, USUAL) for rows in (elementwise, products_and_images, moved_and_chosen, losses)),
        (quantised, WIDE),
    ],
)
def test_no_step_allocates_memory_of_tensor_size(operations: Any, limit: int) -> None:
    with every() as case:
        for operation in operations():
            shapes = [None if value is None else value.shape for value in operation.values]
            with case(f"{operation.type} {shapes} {operation.attributes}"):
                operation.assert_lean(limit)
                if operation.type in IN_BLOCKS:
                    positions = sorted(operation.kind.differentiable(operation.node))
                    requests = operation.kind.forward_scratch(operation.node)
                    requests += operation.needs(*positions).scratch if positions else ()
                    assert all(request.type.elements <= BLOCK_ELEMENTS for request in requests)


#: Their results are constant almost everywhere, or no floats; or nothing goes back through them.
WITHOUT_DERIVATIVE = {
    *(*FAMILIES["comparison"], *FAMILIES["rounding"], *FAMILIES["quantization"]),
    *("ArgTopK", "RandomUniform", "ScatterUpdate", "StopGradient", "TileGather"),
}


@grid("type_", OPERATOR_NAMES)
def test_operators_without_a_derivative_have_no_backward_step(type_: str) -> None:
    kind = lookup(type_)
    assert isinstance(kind, NoDerivative) == (type_ in WITHOUT_DERIVATIVE)
    assert kind.forward_only == (type_ in (*FAMILIES["quantization"], "ScatterUpdate", "TileGather"))
    if type_ not in WITHOUT_DERIVATIVE:
        return
    for case in (case for case in CASES if case.type == type_):
        node = case.operation().node
        assert kind.differentiable(node) == frozenset()
        with pytest.raises(InternalError, match=f"{type_!r} has no derivative"):
            kind.backward(node, frozenset({0}))
        with pytest.raises(InternalError, match="'op' has no derivative"):
            kernels_for(type_).backward(Call(node))
