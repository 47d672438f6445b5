"""Operations of every operator, for tests that hold for all of them: shapes, options, element types, budgets.

Some are larger than the blocks that kernels work in, and not a multiple of them; some have a scratch budget
that leaves a row at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from solver.graph.storage import Storage
from solver.graph.types import Array
from tests.support.operator_steps import Case

__all__ = ["CASES", "case_of", "uniform"]

#: More than two blocks of any kernel.
_BIG = (3, 5, 7, 701)
_SMALL = (2, 3, 4)
#: Positive inputs only.
_POSITIVE = ("Log", "Sqrt")

_UNARY = (
    *("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Swish", "Gelu", "LeakyRelu", "Elu"),
    *("Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Erf", "Sin", "Cos", "Softplus"),
    *("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"),
    *("Floor", "Ceil", "Round", "Sign", "IsNaN"),
)
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_LOSSES = ("MeanSquaredError", "MeanAbsoluteError", "Huber", "BinaryCrossEntropy")


def uniform(shape: Sequence[int], seed: int = 0, dtype: str = "float32", least: float = -2.0) -> Array:
    """Values up to 2, none of them near 0, from `least`."""
    rng = np.random.default_rng((seed, *shape))
    sign = rng.choice([-1.0, 1.0] if least < 0 else [1.0], shape)
    return np.asarray(rng.uniform(0.1, 2.0, shape) * sign, dtype)


def case_of(
    type_: str, *shapes: Sequence[int], dtype: str = "float32", more: Any = (), **attributes: Any
) -> Case:
    """Inputs of these shapes, then `more`."""
    least = 0.1 if type_ in _POSITIVE else -2.0
    values = [uniform(shape, i, dtype, least) for i, shape in enumerate(shapes)]
    return Case(type_, (*values, *more), attributes)


def _elementwise() -> Iterator[Case]:
    for type_ in _UNARY:
        yield case_of(type_, _BIG)
        yield case_of(type_, _SMALL, dtype="float64")
    yield case_of("Clip", _BIG, min=-0.5, max=1.0)
    yield case_of("Clip", _SMALL, more=(np.asarray(-0.5, np.float32), np.asarray(1.0, np.float32)))
    yield case_of("Clip", _SMALL, more=(None, np.asarray(1.0, np.float32)))
    yield case_of("Clip", _BIG)
    at_the_bounds = np.array([[-2, -0.5, 0], [1, 3, 0.5]], np.float32)
    yield Case("Clip", (at_the_bounds,), {"min": -0.5, "max": 1.0, "inclusive": 1})
    yield case_of("Gelu", _BIG, approximate="tanh")
    yield case_of("LeakyRelu", _BIG, alpha=-0.5)
    yield case_of("Elu", _BIG, alpha=-0.5)
    for slope in ((701,), (1,), _BIG, (7, 1)):
        yield case_of("PRelu", _BIG, slope)
    for type_ in ("Softmax", "LogSoftmax"):
        for axis in (0, 1):
            yield case_of(type_, (90, 801), axis=axis)
        yield case_of(type_, (70, 40, 31), axis=1)
        yield case_of(type_, _SMALL, dtype="float64")
    yield case_of("Dropout", _BIG, ratio=0.3)
    yield case_of("Dropout", (5, 3), dtype="float64", ratio=0.3, seed=7)
    yield case_of("Dropout", _SMALL, ratio=0.0)


def _binary() -> Iterator[Case]:
    for type_ in (*_ARITHMETIC, "Pow"):
        yield case_of(type_, _SMALL, _SMALL, dtype="float64")
        yield case_of(type_, _BIG, _BIG)
        yield case_of(type_, _BIG, (7, 1))
        yield case_of(type_, (5, 1, 701), _BIG)
        yield case_of(type_, (3, 1), (1, 4))
        yield case_of(type_, (), (2, 3))
        yield case_of(type_, (1, 2, 3), (2, 3))
    for type_ in _ARITHMETIC:
        for activation in ("Relu", "Relu6", "Sigmoid", "Tanh"):
            yield case_of(type_, _SMALL, _SMALL, activation=activation)
        yield case_of(type_, _BIG, _BIG, activation="Relu")
        yield case_of(type_, (5, 1, 701), _BIG, activation="Tanh")
    yield case_of("Pow", _BIG, more=(np.array([2, 0, -1] * 233 + [3, 1]),))
    for type_ in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        yield case_of(type_, _BIG, (7, 1))
        yield Case(type_, (np.arange(6).reshape(2, 3), np.array([0, 4, 5])))
    for type_ in ("And", "Or"):
        yield Case(type_, (np.array([[True, False]]), np.array([[True], [False]])))
    yield Case("Not", (np.array([True, False, False]),))
    for type_ in ("Add", "Sub", "Mul"):
        yield Case(type_, (np.arange(6).reshape(2, 3), np.array([3, -4, 5])))


def _normalisation() -> Iterator[Case]:
    for layout in ("NCHW", "NHWC"):
        shape, channels = ((3, 11, 31, 7), 7) if layout == "NHWC" else ((3, 5, 17, 41), 5)
        for small in (False, True):
            image = (2, *[3] * 2, channels) if layout == "NHWC" else (2, channels, 3, 3)
            image = image if small else shape
            for mode in (0, 1):
                yield _batch_normalised(image, channels, data_layout=layout, training_mode=mode)
            yield case_of("InstanceNormalization", image, (channels,), (channels,), data_layout=layout)
            yield case_of(
                "GroupNormalization", image, (channels,), (channels,), data_layout=layout, num_groups=channels
            )
    yield case_of("GroupNormalization", (3, 6, 50, 41), (6,), (6,), num_groups=2)
    yield _batch_normalised((8, 5), 5, training_mode=1, momentum=0.0)
    yield case_of("LayerNormalization", (300, 7, 31), (7, 31), (7, 31), axis=1)
    yield case_of("LayerNormalization", _SMALL, (4,), (4,))
    yield case_of("LayerNormalization", _SMALL, (4,), dtype="float64")
    yield case_of("RMSNormalization", (300, 7, 31), (7, 31), axis=1)
    yield case_of("RMSNormalization", _SMALL, (4,))


def _batch_normalised(image: tuple[int, ...], channels: int, **attributes: Any) -> Case:
    values = [uniform(image), *(uniform((channels,), i) for i in (1, 2, 3))]
    return Case("BatchNormalization", (*values, uniform((channels,), 4, least=0.1)), attributes)


def _products() -> Iterator[Case]:
    for activation in ("None", "Relu", "Tanh"):
        for bias in ((5,), (4, 5), (4, 1), (1, 5), ()):
            yield case_of("Gemm", (4, 3), (3, 5), bias, activation=activation)
        yield case_of(
            "Gemm", (3, 4), (5, 3), (5,), transA=1, transB=1, activation=activation, alpha=0.5, beta=2.0
        )
        yield case_of("Gemm", (400, 30), (30, 200), (200,), beta=0.5, activation=activation)
        for left, right in (
            ((3, 4), (4, 2)),
            ((2, 3, 4), (4, 2)),
            ((5, 1, 3, 4), (2, 4, 2)),
            ((4,), (2, 4, 3)),
        ):
            yield case_of("MatMul", left, right, activation=activation)
    yield case_of("Gemm", (4, 3), (3, 5))
    yield case_of("Gemm", (4, 3), (3, 5), (5,), beta=0.0)
    yield case_of("MatMul", (4,), (4,), dtype="float64")


#: One of each kind, with what each may have beside it. Groups of 8 divide rows of 16 and 24.
STORAGES = (
    Storage("float16"),
    Storage("bfloat16"),
    Storage("int8", 8),
    Storage("int8", 8, zero_points=True, scales="bfloat16"),
    Storage("int4", 8, scales="float32"),
    Storage("int4", 8, zero_points=True),
)
#: All rows in one tile; two rows of 16 or one of 24 at a time; one row at a time.
_TILES = (1 << 21, 128, 1)


def _stored() -> Iterator[Case]:
    """Frozen weights as they are stored, in every operator that unpacks them, in one tile and in several."""
    for storage in STORAGES:
        for budget in _TILES:
            stored = {1: storage}
            more: dict[str, Any] = {"stored": stored, "scratch_budget": budget}
            turned = {1: replace(storage, axis=1)}
            gemm = (uniform((3, 16)), uniform((5, 16), 1))
            matmul = (uniform((2, 3, 16)), uniform((16, 5), 1))
            yield Case("Gemm", (*gemm, uniform((5,), 2)), {"transB": 1, "activation": "Relu"}, **more)
            yield Case("Gemm", gemm, {"transB": 1, "alpha": 0.5}, **more)
            yield Case("MatMul", matmul, stored=turned, scratch_budget=budget)
            labels, chunks = np.array([4, 0, 2]), {"chunk_columns": 2} if budget == 1 else {}
            head = {"transB": 1, "ignore_index": 2, **chunks}
            yield Case("ProductLogSumExp", (*gemm, labels), head, outputs=2, **more)
            head_of = (gemm[0], matmul[1], labels, uniform((5,), 2))
            yield Case("ProductLogSumExp", head_of, chunks, 2, budget, turned)
            table = (uniform((9, 16)), np.array([[0, 8, -9], [3, 3, -1]]))
            yield Case("Gather", table, stored={0: storage}, scratch_budget=budget)
    for budget in _TILES:
        yield from _stored_convolutions({"stored": {1: STORAGES[5]}, "scratch_budget": budget})
    for storage in (Storage("float16"), Storage("int8", 8)):
        for budget in _TILES:
            left = (uniform((400, 200)), uniform((200, 30), 1))
            turned = {1: replace(storage, axis=1)}
            yield Case("Gemm", left, {}, stored=turned, scratch_budget=budget)
        yield Case("Gather", (uniform((50, 8)), np.arange(3000) % 50), stored={0: storage})
    depthwise = (uniform((2, 5, 6, 6)), uniform((5, 1, 3, 3), 1))
    for storage in STORAGES[:2]:
        for strides in ((1, 1), (2, 1)):
            attributes = {"group": 5, "strides": strides}
            yield Case("Conv", depthwise, attributes, stored={1: storage}, scratch_budget=1)


def _stored_convolutions(more: Mapping[str, Any]) -> Iterator[Case]:
    settings: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((2, 4, 5, 4), (6, 4, 3, 2), {"pads": (1, 1, 0, 0), "activation": "Relu6"}),
        ((2, 4, 7, 5), (6, 4, 3, 2), {"strides": (2, 2)}),
        ((2, 16, 3, 2), (6, 16, 1, 1), {}),
        ((2, 8, 5, 4), (6, 4, 2, 2), {"group": 2}),
        ((2, 8, 5), (4, 4, 4), {"group": 2, "strides": (2,)}),
    ]
    for x, w, attributes in settings:
        for layout in ("NCHW", "NHWC"):
            values = [uniform(x), uniform(w, 1)]
            if layout == "NHWC":
                values = [np.ascontiguousarray(np.moveaxis(value, 1, -1)) for value in values]
            attributes = {**attributes, "data_layout": layout}
            yield Case("Conv", (*values, uniform((w[0],), 2)), attributes, **more)
            if "activation" not in attributes:
                sizes = (3,) * (len(x) - 2)
                back = (2, w[0], *sizes) if layout == "NCHW" else (2, *sizes, w[0])
                yield Case("ConvTranspose", (uniform(back), values[1]), attributes, **more)


#: (X, W) with channels second, attributes.
_CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 6, 5), (4, 3, 3, 3), {}),
    ((3, 4, 3, 5), (2, 4, 1, 1), {}),
    ((2, 3, 5, 4), (4, 3, 1, 1), {"strides": (2, 3)}),
    ((2, 2, 5, 6), (3, 2, 2, 4), {"auto_pad": "SAME_UPPER"}),
    ((2, 2, 7, 8), (3, 2, 3, 2), {"strides": (2, 3), "pads": (1, 0, 1, 1)}),
    ((1, 2, 8, 7), (3, 2, 2, 1), {"strides": (3, 2)}),
    ((2, 4, 5, 4), (6, 2, 3, 2), {"group": 2, "pads": (1, 1, 0, 0)}),
    ((2, 5, 5, 6), (5, 1, 3, 3), {"group": 5, "pads": (1, 1, 1, 1)}),
    ((2, 3, 7, 7), (3, 1, 3, 3), {"group": 3, "strides": (2, 2)}),
    ((2, 3, 4, 5), (6, 1, 3, 3), {"group": 3, "pads": (1, 1, 1, 1)}),
    ((2, 3, 8), (4, 3, 3), {"strides": (2,), "pads": (1, 1)}),
    ((1, 2, 3, 4, 3), (3, 2, 2, 3, 2), {"pads": (1, 1, 0, 0, 1, 1), "dilations": (1, 1, 2)}),
)

#: The same for transposed convolutions.
_TRANSPOSED: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 4, 5), (3, 4, 3, 3), {}),
    ((2, 3, 3, 4), (3, 2, 3, 2), {"strides": (2, 3), "pads": (1, 0, 1, 1), "output_padding": (1, 1)}),
    ((2, 4, 3, 3), (4, 2, 2, 2), {"group": 2, "strides": (3, 3)}),
    ((1, 3, 4), (3, 2, 3), {"dilations": (2,)}),
)


def _convolutions() -> Iterator[Case]:
    for type_, settings in (("Conv", _CONVOLUTIONS), ("ConvTranspose", _TRANSPOSED)):
        for x, w, attributes in settings:
            filters = w[0] if type_ == "Conv" else w[1] * attributes.get("group", 1)
            for layout in ("NCHW", "NHWC"):
                values = [uniform(x), uniform(w, 1)]
                if layout == "NHWC":
                    values = [np.ascontiguousarray(np.moveaxis(value, 1, -1)) for value in values]
                for budget in (1 << 21, 1):
                    more = {**attributes, "data_layout": layout}
                    yield Case(type_, (*values, uniform((filters,), 2)), more, scratch_budget=budget)
                    if type_ == "Conv" and attributes:
                        yield Case(
                            type_, tuple(values), {**more, "activation": "Relu6"}, scratch_budget=budget
                        )


def _pooling() -> Iterator[Case]:
    windows: list[dict[str, Any]] = [
        {"kernel_shape": (2, 2), "strides": (2, 2)},
        {"kernel_shape": (3, 2), "pads": (1, 1, 1, 0)},
        {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1, "auto_pad": "NOTSET"},
    ]
    for layout in ("NCHW", "NHWC"):
        for budget in (1 << 21, 1):
            for window in windows:
                more = {**window, "data_layout": layout}
                image = (uniform((2, 3, 7, 6) if layout == "NCHW" else (2, 7, 6, 3)),)
                yield Case("MaxPool", image, more, scratch_budget=budget)
                yield Case("AveragePool", image, {**more, "count_include_pad": 1}, scratch_budget=budget)
                yield Case("AveragePool", image, more, scratch_budget=budget)
        yield case_of("GlobalAveragePool", (2, 3, 5, 4), data_layout=layout)
    yield case_of("MaxPool", (1, 2, 300), kernel_shape=(270,), pads=(20, 0))


def _recurrent() -> Iterator[Case]:
    for type_, gates in (("LSTMCell", 4), ("GRUCell", 3), ("RNNCell", 1)):
        attributes: list[dict[str, Any]] = [{}]
        if type_ == "GRUCell":
            attributes = [{"linear_before_reset": flag} for flag in (0, 1)]
        if type_ == "RNNCell":
            attributes = [{"nonlinearity": name} for name in ("Tanh", "Relu", "Sigmoid")]
        for more in attributes:
            for states in ((True, True), (True, False), (False, True), (False, False)):
                yield _cell(type_, gates, states, biases=2, **more)
            yield _cell(type_, gates, (True, True), biases=1, **more)
            yield _cell(type_, gates, (True, True), biases=0, **more)
    yield _cell("LSTMCell", 4, (True, True), biases=2, peepholes=True)
    yield _cell("LSTMCell", 4, (False, False), biases=0, peepholes=True)


def _cell(
    type_: str, gates: int, states: tuple[bool, bool], *, biases: int, peepholes: bool = False, **more: Any
) -> Case:
    batch, inputs, hidden = 3, 4, 2
    count = 2 if type_ == "LSTMCell" else 1
    given = [uniform((batch, hidden), 5 + i) if there else None for i, there in enumerate(states[:count])]
    rows = gates * hidden
    weights = [uniform((rows, inputs), 1), uniform((rows, hidden), 2)]
    last: list[Array | None] = [uniform((biases * rows,), 3) if biases else None]
    last += [uniform((3 * hidden,), 4)] if peepholes else []
    return Case(type_, (uniform((batch, inputs)), *given, *weights, *last), more, outputs=count)


def _losses() -> Iterator[Case]:
    yield case_of("MeanSquaredError", _BIG, _BIG, reduction="sum_of_means")
    for reduction in ("mean", "sum", "none"):
        for type_ in _LOSSES:
            yield case_of(type_, _BIG, _BIG, reduction=reduction)
            yield case_of(type_, _SMALL, _SMALL, dtype="float64", reduction=reduction)
        yield case_of("BinaryCrossEntropy", _BIG, _BIG, reduction=reduction, from_logits=1)
        for logits in (0, 1):
            common: dict[str, Any] = {"reduction": reduction, "from_logits": logits}
            for shape in ((700, 101), (2, 3, 4)):
                pair = (np.abs(uniform(shape)) / 3, np.abs(uniform(shape, 1)) / 3)
                classes = np.random.default_rng(1).integers(0, shape[-1], shape[:-1])
                yield Case("KLDivergence", pair, common)
                yield Case("CategoricalCrossEntropy", pair, {**common, "label_smoothing": 0.1})
                yield Case("CategoricalCrossEntropy", pair, {**common, "epsilon": 1e-20})
                sparse = (pair[0], classes.astype(np.int32))
                yield Case("CategoricalCrossEntropy", sparse, {**common, "sparse": 1})


def _heads() -> Iterator[Case]:
    sizes: list[dict[str, Any]] = [{}, {"chunk_rows": 3, "chunk_columns": 4}, {"chunk_columns": 1}]
    for trans_b in (0, 1):
        x, w = uniform((7, 5)), uniform((10, 5) if trans_b else (5, 10), 1)
        for chunks in sizes:
            common: dict[str, Any] = {"transB": trans_b, **chunks}
            yield Case("ProductLogSumExp", (x, w, np.array([0, 9, 3, 3, 4, 8, 1])), common, outputs=2)
            labels, bias = np.array([0, 19, 3, -1, 13, 4, 12], np.int32), uniform((10,), 2)
            part = {"first_class": 4, "classes": 20, "ignore_index": -1}
            yield Case("ProductLogSumExp", (x, w, labels, bias), {**common, **part}, outputs=2)
    yield Case("ProductLogSumExp", (uniform((90, 40)), uniform((40, 701), 1), np.arange(90)), {}, 2, 1)
    small = (uniform((2, 3), 0, "float64"), uniform((3, 4), 1, "float64"), np.array([1, 3]))
    yield Case("ProductLogSumExp", (*small, None), {"ignore_index": 3}, outputs=2)


def _movement() -> Iterator[Case]:
    yield case_of("Reshape", _SMALL, more=(np.array([4, -1]),))
    yield Case("Reshape", (np.arange(6), np.array([2, 3])))
    yield case_of("Flatten", _SMALL)
    yield case_of("Flatten", _SMALL, axis=0, dtype="float64")
    yield case_of("Squeeze", (2, 1, 3), axes=(1,))
    yield case_of("Unsqueeze", (2, 3), axes=(1,))
    yield case_of("Transpose", _SMALL, perm=(2, 0, 1))
    yield case_of("Transpose", _SMALL)
    yield case_of("Pad", _SMALL, more=(np.array([1, 0, 2, 0, 3, 1]),), constant_value=1.5)
    yield case_of("Pad", _SMALL, more=(np.array([1, 2]), np.asarray(0.5, np.float32), np.array([1])))
    yield Case("Pad", (np.arange(4), np.array([1, 2])))
    for mode in ("reflect", "edge", "wrap"):
        yield case_of(
            "Pad", _SMALL, more=(np.array([1, 2, 3, 0, 1, 2]), np.asarray(0.5, np.float32)), mode=mode
        )
        yield case_of("Pad", (90, 801), more=(np.array([7, 9, 8, 3]),), mode=mode)
        yield Case("Pad", (np.arange(4), np.array([1, 2])), {"mode": mode})
    for shape, asked in (((3, 1), [3, 4]), ((), [2, 3]), ((70, 1), [70, 1200]), ((1200,), [70, 1200])):
        yield case_of("Expand", shape, more=(np.array(asked),))
    yield case_of("Expand", (2, 3), more=(np.array([1, 3]),))
    for to in (1, 2, 3, 6, 7, 9, 11):
        for dtype in ("float32", "float64"):
            yield case_of("Cast", _SMALL, dtype=dtype, to=to)
    yield Case("Cast", (np.array([True, False]),), {"to": 11})


def _chosen() -> Iterator[Case]:
    rng = np.random.default_rng(2)
    for right in (_BIG, (7, 1)):
        condition = rng.integers(0, 2, _BIG).astype(bool)
        yield Case("Where", (condition, uniform(_BIG), uniform(right, 1)))
    yield Case("Where", (np.array([[True], [False]]), uniform((3,)), uniform((2, 1), 1)))
    gathers: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((9, 5), (4,), 0),
        ((9, 5), (50,), 0),
        ((3, 6, 4), (2, 3), 1),
        ((50, 3), (3000,), 0),
    ]
    for shape, picked, axis in gathers:
        indices = rng.integers(-shape[axis], shape[axis], picked)
        for dtype in (np.int32, np.int64):
            yield Case("Gather", (uniform(shape), indices.astype(dtype)), {"axis": axis})
            updates = uniform((*shape[:axis], *picked, *shape[axis + 1 :]), 2)
            yield Case("ScatterAdd", (uniform(shape), indices.astype(dtype), updates), {"axis": axis})
            if not axis:
                for reduction in ("none", "add", "mul", "min", "max"):
                    values = (uniform(shape), indices.astype(dtype), updates)
                    yield Case("ScatterUpdate", values, {"reduction": reduction})
    whole = (np.arange(6), np.array([4, 0, -1]), np.array([7, 8, 9]))
    yield Case("ScatterUpdate", whole)
    yield Case("ScatterUpdate", whole, {"reduction": "add"})


def _tiles() -> Iterator[Case]:
    tile, indices = uniform((4, 3)), np.array([[5, -1, 2], [-8, 3, 8]])
    for budget in (1 << 21, 1):
        for first_row in (0, 3, 5):
            part = {"first_row": first_row, "rows": 9}
            yield Case("TileGather", (tile, indices), part, scratch_budget=budget)
            yield Case("TileGather", (tile, indices, uniform((2, 3, 3), 1)), part, scratch_budget=budget)
    yield Case("LogAddExp", tuple(uniform((3, 5), seed) * 8 for seed in range(4)))
    yield Case("LogAddExp", (uniform((7,), 0, "float64"),))
    yield Case("Gather", (uniform((4, 2)), np.asarray(3)))


def _drawn_and_running() -> Iterator[Case]:
    for shape in ((3, 5), (40, 1000)):
        for dtype in (1, 11):
            yield Case(
                "RandomUniform", (np.array(shape),), {"dtype": dtype, "low": -1.0, "high": 2.0, "seed": 3}
            )
    for exclusive in (0, 1):
        for reverse in (0, 1):
            attributes: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
            for axis in (0, -1):
                yield case_of("CumSum", (4, 3, 5), more=(np.asarray(axis),), **attributes)
            yield Case("CumSum", (np.arange(6).reshape(2, 3), np.array([1])), attributes)
    for largest in (0, 1):
        yield case_of("ArgTopK", _BIG, k=3, largest=largest)
        yield case_of("ArgTopK", _BIG, k=2, axis=1, largest=largest)
        yield case_of("ArgTopK", _SMALL, dtype="float64", k=3, axis=1, largest=largest)
        yield Case("ArgTopK", (np.arange(6)[::-1].copy(),), {"k": 6, "largest": largest})
    yield case_of("StopGradient", _SMALL)


def _quantised() -> Iterator[Case]:
    rng = np.random.default_rng(4)
    for dtype in (np.int8, np.uint8):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = rng.integers(low, high, _BIG, dtype, endpoint=True)
        zero = np.asarray(high // 2, dtype)
        scale = np.asarray(0.25, np.float32)
        yield Case("DequantizeLinear", (values, scale, zero))
        yield Case("DequantizeLinear", (values, scale))
        scales, zeros = uniform((7,), 1, least=0.1), rng.integers(low, high, (7,), dtype)
        yield Case("DequantizeLinear", (values, scales, zeros), {"axis": 2})
        for rounding in ("even", "away"):
            attributes = {"axis": -2, "rounding": rounding}
            yield Case("QuantizeLinear", (uniform(_BIG) * 300, scales, zeros), attributes)
            yield Case("QuantizeLinear", (uniform(_BIG), scale, zero), {"rounding": rounding})
    blocks = uniform((2, 3, 3), 1, least=0.1)
    yield Case("QuantizeLinear", (uniform((2, 6, 3)), blocks), {"block_size": 2, "output_dtype": 3})
    whole = rng.integers(-9, 9, (2, 6, 3), np.int8)
    yield Case("DequantizeLinear", (whole, blocks), {"block_size": 2})
    yield Case("DequantizeLinear", (np.arange(6, dtype=np.int32), np.asarray(0.5)))
    yield Case("QuantizeLinear", (np.arange(6) / 2, np.asarray(1.0)))


def _sliced() -> Iterator[Case]:
    yield case_of("Concat", (2, 3), (2, 1), (2, 2), axis=1)
    yield case_of("Concat", (2, 3), axis=0)
    yield case_of("Concat", (2, 3), (1, 3), (4, 3), axis=0)
    yield case_of("Concat", (1, 2, 3), (1, 1, 3), axis=-2)
    yield Case("Split", (uniform((2, 7)),), {"axis": 1, "num_outputs": 3}, outputs=3)
    yield Case("Split", (uniform((6, 2)), np.array([1, 5])), outputs=2)
    yield Case("Split", (uniform((1, 5)), np.array([2, 1, 2])), {"axis": 1}, outputs=3)
    yield case_of(
        "Slice", (5, 6), more=(np.array([4, 1]), np.array([-6, 5]), np.array([0, 1]), np.array([-2, 3]))
    )
    yield case_of("Slice", (5, 6), more=(np.array([1]), np.array([4])))
    yield case_of("Slice", (4, 5, 3), more=(np.array([2, 1]), np.array([3, 4])))
    yield case_of("Slice", (4, 5, 3), more=(np.array([2, 1, -2]), np.array([3, 2, 3])))
    yield case_of("Slice", (4, 5, 3), more=(np.array([1, 1]), np.array([2, 4]), np.array([1, 0])))
    yield case_of("Slice", (6,), more=(np.array([4]), np.array([0]), np.array([0]), np.array([-1])))


def _reduced() -> Iterator[Case]:
    for type_ in ("ReduceSum", "ReduceMean", "ReduceMax"):
        for axes in ((0,), (1, 2), (0, 1, 2, 3), (3,)):
            yield case_of(type_, _BIG, axes=axes)
        yield case_of(type_, _SMALL, axes=(1,), keepdims=0, dtype="float64")
        yield case_of(type_, _SMALL, noop_with_empty_axes=1)
    yield Case("ReduceMax", (np.array([[1, 1], [0, 2]], np.float32),), {"axes": (1,)})


def _resized() -> Iterator[Case]:
    for mode in ("nearest", "linear", "cubic"):
        for sizes in ([2, 3, 8, 5], [2, 3, 2, 9], [2, 3, 4, 5]):
            for budget in (1 << 21, 1):
                values = (uniform((2, 3, 4, 5)), None, None, np.array(sizes))
                yield Case("Resize", values, {"mode": mode}, scratch_budget=budget)


CASES: tuple[Case, ...] = (
    *_elementwise(),
    *_binary(),
    *_normalisation(),
    *_products(),
    *_stored(),
    *_convolutions(),
    *_pooling(),
    *_recurrent(),
    *_losses(),
    *_heads(),
    *_tiles(),
    *_movement(),
    *_chosen(),
    *_drawn_and_running(),
    *_quantised(),
    *_sliced(),
    *_reduced(),
    *_resized(),
)
