"""Values of every operator: forward those of ONNX, backward slopes, in any shape, memory order and budget."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from solver.graph.ops import FAMILIES, OPERATOR_NAMES
from solver.graph.types import Array, DType
from tests.support.activations import PLAIN_ACTIVATIONS
from tests.support.every import ALL, every
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import assert_onnx, is_onnx
from tests.support.operator_cases import CASES, case_of, uniform
from tests.support.operator_steps import Case

#: Scratch for whole batches, for some rows, and so little that a chunk is a single row.
BUDGETS = (1 << 21, 1 << 12, 1)
#: Larger than a block along each axis.
_LARGE = ((7, 30_011), (70_001, 2), (3, 5, 20_011), (5, 40_000))
#: Of results in float64 which ONNX's evaluator computes in float32, or with attributes that it keeps in
#: float32. All others agree to the 11th place.
TOLERANCES = {
    **dict.fromkeys(("Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Swish"), 3e-7),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "LayerNormalization"), 1e-6),
    **dict.fromkeys(("GroupNormalization", "RMSNormalization", "Resize"), 1e-5),
}

#: Where functions have slopes: what the first inputs of their cases become.
DOMAINS: Mapping[str, Callable[[Array], Array]] = {
    **dict.fromkeys(("Asin", "Acos", "Atanh"), lambda x: np.asarray(0.9 * np.tanh(x))),
    "Acosh": lambda x: np.abs(x) + 1.2,
    "Pow": np.abs,
    "BinaryCrossEntropy": lambda x: np.asarray(1 / (1 + np.exp(-x))),
}


def in_domain(case: Case) -> Case:
    if case.type not in DOMAINS:
        return case
    x, *others = case.values
    return replace(case, values=(DOMAINS[case.type](np.asarray(x)).astype(np.asarray(x).dtype), *others))


def wide(case: Case) -> Case:
    """The case in float64."""
    values = [v.astype("float64") if v is not None and v.dtype == "float32" else v for v in case.values]
    return replace(case, values=tuple(values))


def arranged(case: Case, images: int = 1) -> Iterator[Case]:
    """With channels second in the first inputs, and last."""
    yield case
    last = [np.ascontiguousarray(np.moveaxis(np.asarray(value), 1, -1)) for value in case.values[:images]]
    values = (*last, *case.values[images:])
    yield replace(case, values=values, attributes={**case.attributes, "data_layout": "NHWC"})


def elementwise() -> Iterator[Case]:
    settings: list[tuple[str, dict[str, Any]]] = [
        *(("Clip", bounds) for bounds in ({"min": -0.55}, {"max": 0.25}, {"min": 0.0, "max": 6.0})),
        *(("LeakyRelu", {"alpha": alpha}) for alpha in (0.25, 0.0, 2.0)),
        ("Elu", {"alpha": 0.3}),
        *(("HardSigmoid", {"alpha": alpha, "beta": 0.3}) for alpha in (0.7, -0.7)),
        *(("Swish", {"alpha": alpha}) for alpha in (1.7, -0.4)),
    ]
    for type_, attributes in settings:
        yield case_of(type_, (5, 9), **attributes)
    for type_ in FAMILIES["rounding"]:
        yield Case(type_, (np.array([-2.5, -1.2, -0.5, 0.0, 0.5, 1.5, 2.5, 7.9], np.float32),))
    for low, high in ((None, None), (-0.55, None), (-0.55, 0.25), (0.55, -0.55)):
        bounds = [None if bound is None else np.asarray(bound, "float32") for bound in (low, high)]
        yield case_of("Clip", (3, 4), more=bounds)
    for type_, axis in itertools.product(("Softmax", "LogSoftmax"), (-1, 0)):
        yield case_of(type_, (3, 4, 5), axis=axis)
        for shape in _LARGE:
            yield case_of(type_, shape, axis=axis)
    for slope in ((4,), (3, 1), (), (1, 3, 4), (2, 1, 1)):
        yield case_of("PRelu", (2, 3, 4), slope)
    for slope in ((70, 1), (1, 1200), (1,), (70, 1200)):
        yield case_of("PRelu", (70, 1200), slope)


def broadcast() -> Iterator[Case]:
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        *(((2, 3), (3,)), ((3,), (2, 3)), ((2, 3), ()), ((), ()), ((1,), (1, 1))),
        *(((2, 1, 3), (4, 1)), ((2, 3, 1, 2), (1, 4, 1)), ((1, 2, 3), (5, 1, 1))),
    ]
    large: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        *(((4, 50, 60, 32), (32,)), ((4, 32, 50, 60), (32, 1, 1)), ((4, 32, 50, 1), (4, 32, 1, 60))),
        *(((4, 32, 50, 60), ()), ((50_000, 1), (1, 3)), ((70_001,), (2, 70_001))),
    ]
    for type_, (left, right) in itertools.product(("Add", "Sub", "Mul", "Div"), (*shapes, *large)):
        yield case_of(type_, left, right)
    for type_, (left, right) in itertools.product(("Add", "Sub", "Mul", "Div"), shapes):
        yield from (case_of(type_, left, right, activation=name) for name in ("Relu", "Tanh"))
    for left, right in shapes:
        yield case_of("Pow", left, right)
    dtypes = ("float32", "int32", "int64", "uint8", "bool")
    for type_, dtype in itertools.product(FAMILIES["comparison"], dtypes):
        if type_ not in ("Not", "IsNaN") and (dtype == "bool" or type_ not in ("And", "Or")):
            yield Case(type_, (np.array([[[0, 1, 2]], [[1, 1, 0]]], dtype), np.array([[0], [1]], dtype)))
    wheres: list[tuple[tuple[int, ...], ...]] = [
        *(((3, 4), (4,), ()), ((3, 1), (3, 4), (1, 4)), ((), (2, 3), (2, 3)), ((2, 1, 1), (3, 1), (4,))),
        *(((1,), (), ()), ((70, 1200), (70, 1), (1200,)), ((70, 1200), (), (70, 1200))),
        ((70, 1200), (70, 1200), (1,)),
    ]
    for condition, left, right in wheres:
        yield Case("Where", (uniform(condition, 7) > 0, uniform(left, 1), uniform(right, 2)))
    for dtype in ("int32", "int64", "uint8", "bool"):
        yield Case("Where", (uniform((3, 4)) > 0, np.ones((3, 4), dtype), np.zeros(4, dtype)))


def normalised() -> Iterator[Case]:
    images: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        *(((4, 3), {}), ((2, 3, 4), {"epsilon": 0.01}), ((2, 3, 4, 2), {"momentum": 0.5})),
        *(((2, 1, 2, 2, 3), {}), ((1, 2, 5), {"momentum": 0.0}), ((3, 1), {})),
        *(((1, 4), {"epsilon": 0.1}), ((16, 2, 1), {}), ((5, 7, 90, 100), {}), ((2, 3, 200, 200), {})),
        *(((600, 300), {}), ((3, 40_000), {}), ((7, 12, 50, 60), {}), ((5, 300, 71), {})),
        ((40_000, 2), {}),
    ]
    for (shape, attributes), mode in itertools.product(images, (0, 1)):
        rows = [uniform((shape[1],), seed, least=0.1) for seed in range(1, 5)]
        attributes = {**attributes, "training_mode": mode}
        yield from arranged(Case("BatchNormalization", (uniform(shape), *rows), attributes))
    for type_ in ("LayerNormalization", "RMSNormalization"):
        parameters = 2 if type_ == "LayerNormalization" else 1
        for shape, axis, epsilon in (
            *(((2, 3, 4), -1, 0.1), ((2, 3, 4), 1, 1e-5), ((2, 3, 4), -3, 0.1), ((5,), -1, 1e-5)),
            *(((300, 500), -1, 1e-5), ((3, 40_000), -1, 1e-5)),
        ):
            yield case_of(type_, shape, *[shape[axis:]] * parameters, axis=axis, epsilon=epsilon)
    yield case_of("LayerNormalization", (4, 6), (6,))
    groups: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        *(
            ("InstanceNormalization", shape, {})
            for shape in ((2, 3, 4, 2), (3, 7, 90, 100), (2, 3, 200, 200))
        ),
        ("InstanceNormalization", (2, 3, 5), {"epsilon": 0.01}),
        ("GroupNormalization", (2, 4, 3, 2), {"num_groups": 2}),
        ("GroupNormalization", (2, 4, 3), {"num_groups": 1, "epsilon": 0.01}),
        ("GroupNormalization", (2, 6, 3), {"num_groups": 6}),
        ("GroupNormalization", (3, 8, 60, 60), {"num_groups": 4}),
    ]
    for type_, shape, attributes in groups:
        yield from arranged(case_of(type_, shape, *[shape[1:2]] * 2, **attributes))


def products() -> Iterator[Case]:
    biases: list[tuple[int, ...] | None] = [None, (), (1,), (5,), (1, 5), (4, 1), (4, 5), (1, 1)]
    scales = ((1.0, 1.0), (0.5, 1.0), (1.0, -0.25), (0.25, 0.0))
    flags = itertools.product((0, 1), repeat=2)
    for (a, b), (alpha, beta), bias in itertools.product(flags, scales, biases):
        shapes = [(3, 4) if a else (4, 3), (5, 3) if b else (3, 5), *([] if bias is None else [bias])]
        yield case_of("Gemm", *shapes, alpha=alpha, beta=beta, transA=a, transB=b)
    for activation, bias in itertools.product(PLAIN_ACTIVATIONS, biases):
        shapes = [(4, 3), (3, 5), *([] if bias is None else [bias])]
        yield case_of("Gemm", *shapes, activation=activation)
    for bias, budget in itertools.product([(5,), (17, 1), (17, 5), ()], (2 * 5 * 8, 1)):
        case = case_of("Gemm", (17, 3), (3, 5), bias, activation="Tanh")
        yield replace(case, scratch_budget=budget)
    matrices: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        *(((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((2, 2, 3), (3, 4))),
        *(((2, 2, 3), (2, 3, 4)), ((2, 1, 2, 3), (3, 3, 4)), ((2, 3), (2, 2, 3, 4)), ((3,), (2, 3, 4))),
        *(((2, 2, 3), (3,)), ((5, 3), (1, 1, 3, 2)), ((1, 2, 3), (2, 3, 4)), ((1, 1), (1, 1))),
    ]
    for (left, right), activation in itertools.product(matrices, ("None", "Relu6", "Tanh")):
        yield case_of("MatMul", left, right, activation=activation)


#: (X, W) with channels second, attributes.
CONVOLUTIONS: Sequence[tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]]] = (
    ((2, 3, 6, 5), (4, 3, 3, 3), {}),
    ((3, 4, 3, 5), (2, 4, 1, 1), {}),
    ((2, 3, 5, 4), (4, 3, 1, 1), {"strides": (2, 3)}),
    ((2, 3, 3, 2), (4, 3, 1, 1), {"pads": (1, 0, 0, 2)}),
    ((2, 4, 3, 2), (6, 2, 1, 1), {"group": 2}),
    ((2, 2, 5, 6), (3, 2, 2, 4), {"auto_pad": "SAME_UPPER"}),
    ((2, 2, 5, 6), (3, 2, 2, 4), {"auto_pad": "SAME_LOWER"}),
    ((1, 2, 7, 6), (3, 2, 3, 3), {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    ((2, 2, 5, 5), (3, 2, 3, 2), {"auto_pad": "VALID", "strides": (1, 2)}),
    ((2, 3, 4, 5), (2, 3, 3, 3), {"pads": (0, 2, 1, 1)}),
    ((1, 2, 3, 3), (2, 2, 2, 2), {"pads": (2, 3, 3, 2)}),
    ((2, 2, 7, 8), (3, 2, 3, 2), {"strides": (2, 3), "pads": (1, 0, 1, 1)}),
    ((1, 2, 8, 7), (3, 2, 2, 1), {"strides": (3, 2)}),
    ((2, 2, 7, 6), (3, 2, 3, 2), {"dilations": (2, 3), "pads": (1, 1, 2, 0)}),
    ((1, 2, 9, 8), (2, 2, 3, 2), {"dilations": (2, 3), "strides": (2, 2)}),
    ((2, 4, 5, 4), (6, 2, 3, 2), {"group": 2, "pads": (1, 1, 0, 0)}),
    ((2, 4, 6, 5), (2, 2, 3, 3), {"group": 2, "strides": (2, 2)}),
    ((2, 5, 5, 6), (5, 1, 3, 3), {"group": 5, "pads": (1, 1, 1, 1)}),
    ((2, 4, 5, 6), (4, 1, 2, 3), {"group": 4}),
    ((2, 3, 7, 7), (3, 1, 3, 3), {"group": 3, "strides": (2, 2)}),
    ((1, 3, 6, 5), (3, 1, 3, 3), {"group": 3, "strides": (2, 2), "auto_pad": "SAME_UPPER"}),
    ((1, 3, 7, 6), (3, 1, 3, 2), {"group": 3, "dilations": (2, 2)}),
    ((2, 3, 4, 5), (6, 1, 3, 3), {"group": 3, "pads": (1, 1, 1, 1)}),
    ((2, 2, 5, 5), (6, 1, 3, 2), {"group": 2, "strides": (2, 2)}),
    ((2, 3, 8), (4, 3, 3), {"strides": (2,), "pads": (1, 1)}),
    ((2, 3, 8), (3, 1, 3), {"group": 3, "pads": (1, 1)}),
    ((1, 2, 3, 4, 3), (3, 2, 2, 3, 2), {"pads": (1, 1, 0, 0, 1, 1)}),
    ((2, 1, 5, 5), (2, 1, 3, 3), {"auto_pad": "SAME_UPPER"}),
    ((1, 1, 3, 3), (1, 1, 3, 3), {}),
)

#: The same of transposed convolutions.
TRANSPOSED: Sequence[tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]]] = (
    ((2, 2, 4), (2, 3, 3), {}),
    ((2, 2, 4), (2, 3, 3), {"strides": (2,), "pads": (1, 1), "output_padding": (1,)}),
    ((2, 2, 3, 4), (2, 3, 2, 3), {}),
    ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": (2, 3), "pads": (1, 0, 2, 1)}),
    ((1, 2, 3, 3), (2, 1, 2, 2), {"dilations": (2, 1)}),
    ((2, 4, 3, 2), (4, 2, 2, 2), {"group": 2, "strides": (2, 2)}),
    ((1, 3, 3, 3), (3, 1, 3, 3), {"group": 3}),
    ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": (3, 2), "output_shape": (10, 8)}),
    ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": (2, 2), "auto_pad": "SAME_UPPER"}),
    ((1, 1, 3, 3), (1, 1, 2, 2), {"strides": (3, 3)}),
    ((1, 1, 2, 2, 2), (1, 2, 2, 2, 2), {}),
)

#: (X with channels second, attributes) of windows that slide.
WINDOWS: Sequence[tuple[tuple[int, ...], Mapping[str, Any]]] = (
    ((2, 3, 6, 4), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ((2, 2, 6, 5), {"kernel_shape": (3, 2)}),
    ((2, 2, 5, 5), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 2, 5, 6), {"kernel_shape": (3, 3), "strides": (2, 1), "pads": (0, 2, 1, 1)}),
    ((1, 2, 6, 7), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    ((1, 2, 6, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1, "pads": (1, 1, 1, 1)}),
    ((1, 2, 8, 7), {"kernel_shape": (2, 1), "strides": (3, 2)}),
    ((2, 2, 5, 5), {"kernel_shape": (2, 2), "auto_pad": "SAME_UPPER"}),
    ((2, 2, 5, 5), {"kernel_shape": (2, 2), "strides": (2, 2), "auto_pad": "SAME_LOWER"}),
    ((2, 2, 5, 4), {"kernel_shape": (3, 2), "auto_pad": "VALID"}),
    ((1, 2, 7, 7), {"kernel_shape": (2, 3), "dilations": (2, 2), "pads": (1, 1, 1, 1)}),
    ((2, 3, 9), {"kernel_shape": (3,), "strides": (2,)}),
    ((1, 2, 4, 3, 4), {"kernel_shape": (2, 2, 2), "strides": (2, 1, 2)}),
)


def windows() -> Iterator[Case]:
    """With less scratch weights are too large for a flipped copy, and their gradient is summed by filters.

    By default every fifth convolution has no bias and an activation as well, each layout and budget in turn.
    """
    activations = itertools.cycle([name for name in PLAIN_ACTIVATIONS if name != "None"])
    turns = itertools.cycle([True, *[ALL] * 4])
    for (x, w, attributes), budget in itertools.product(CONVOLUTIONS, BUDGETS):
        for case in arranged(case_of("Conv", x, w, w[:1], **attributes), 2):
            yield replace(case, scratch_budget=budget)
            more = {**case.attributes, "activation": next(activations)}
            if next(turns):
                yield replace(case, values=case.values[:2], attributes=more, scratch_budget=budget)
    for (x, w, attributes), budget in itertools.product(TRANSPOSED, (1 << 21, 1500, 300, 1)):
        filters = (w[1] * attributes.get("group", 1),)
        for case in arranged(case_of("ConvTranspose", x, w, filters, **attributes), 2):
            yield replace(case, scratch_budget=budget)
    yield case_of("ConvTranspose", (2, 2, 3), (2, 2, 3))
    for (x, attributes), budget in itertools.product(WINDOWS, (1 << 21, 1)):
        images = [case_of("MaxPool", x, **attributes)]
        images += [case_of("AveragePool", x, **attributes, count_include_pad=flag) for flag in (0, 1)]
        for case in itertools.chain.from_iterable(map(arranged, images)):
            yield replace(case, scratch_budget=budget)
    for shape in ((2, 3, 7), (1, 2, 2, 3, 2), (1, 1, 1, 1)):
        yield from arranged(case_of("GlobalAveragePool", shape))


def reduced() -> Iterator[Case]:
    """Axes are an input, or an attribute in older opsets."""
    some: list[tuple[int, ...]] = [(0,), (1,), (-1,), (0, 2), (1, 2), (0, 1, 2), (-3,)]
    types = ("ReduceSum", "ReduceMean", "ReduceMax")
    for type_, axes, keepdims in itertools.product(types, some, (0, 1)):
        yield case_of(type_, (3, 4, 5), more=(np.array(axes),), keepdims=keepdims)
        yield case_of(type_, (2, 3, 4), axes=axes, keepdims=keepdims)
        if keepdims:
            yield case_of(type_, (11, 37, 509), axes=axes)
    for axis, reverse, exclusive in itertools.product((0, 1, 2, -1), (0, 1), (0, 1)):
        yield case_of("CumSum", (2, 3, 4), more=(np.asarray(axis),), reverse=reverse, exclusive=exclusive)
    yield Case("CumSum", (np.arange(6, dtype=np.int32).reshape(2, 3), np.asarray(0)))


def moved() -> Iterator[Case]:
    x = (2, 3, 4)
    for target in ([4, 6], [-1], [0, -1], [2, 0, 4, 1]):
        yield case_of("Reshape", x, more=(np.array(target),))
    yield from (case_of("Flatten", x, axis=axis) for axis in (-3, -1, 0, 1, 2, 3))
    yield from (case_of("Transpose", x, perm=perm) for perm in itertools.permutations(range(3)))
    pads: list[tuple[list[int], list[int] | None, str]] = [
        *(([1, 0, 2, 0, 3, 1], None, "constant"), ([0] * 6, None, "constant"), ([1, 2], [1], "constant")),
        *(([5, 0, 7, 3, 9, 0], None, "edge"), ([2, 4], [2], "edge"), ([2, 3], [-1], "wrap")),
        *(([1, 2, 3, 4], [-1, 0], "constant"), ([2, 1, 3, 0], [-1, 0], "reflect")),
        *(
            (sizes, None, mode)
            for mode in ("reflect", "edge", "wrap")
            for sizes in ([1, 2, 3, 1, 2, 3], [0, 0, 2, 0, 1, 0], [1, 0, 0, 0, 0, 1], [0] * 6)
        ),
    ]
    for sizes, axes, mode in pads:
        more = [np.array(sizes), *([] if axes is None else [None, np.array(axes)])]
        yield case_of("Pad", x, more=more, mode=mode)
    yield from (case_of("Unsqueeze", x, more=(np.array(axes),)) for axes in ([0], [-1, 1, 0]))
    yield from (
        case_of("Squeeze", (1, 3, 1, 4), more=more) for more in ([np.array([0])], [np.array([-2, 0])], [])
    )
    yield case_of("Squeeze", (1, 1))
    spread = [(x, list(x)), (x, [1]), (x, [5, 1, 1, 4]), ((1,), [2, 3]), ((4, 1, 3), [2, 1, 5, 1])]
    yield from (case_of("Expand", shape, more=(np.array(asked),)) for shape, asked in spread)
    for dtype, to in itertools.product(("float64", "int32", "int64", "uint8", "bool"), (1, 2, 6, 7, 9, 11)):
        yield Case("Cast", (np.array([0, 1, 2, 100]).astype(dtype),), {"to": to})


def chosen() -> Iterator[Case]:
    """Indices repeat, and some count from the end."""
    gathers: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        *(((6, 4), (), 0), ((6, 4), (2, 5), 0), ((6, 4), (2, 3), 1), ((3, 6, 4), (2, 3), -2)),
        *(((3, 2, 6), (7,), -1), ((6,), (9,), 0)),
    ]
    for (shape, picked, axis), dtype in itertools.product(gathers, ("int32", "int64")):
        indices = np.random.default_rng(3).integers(-shape[axis], shape[axis], picked).astype(dtype)
        yield case_of("Gather", shape, more=(np.asarray(indices),), axis=axis)
    yield Case("Gather", (np.array([5, 6, 7]), np.array([2, -3])))
    yield Case("Concat", (np.array([1, 2]), np.array([3])), {"axis": 0})
    for axis in (-3, -1, 0, 1, 2):
        parts = [[2, 3, 4] for _ in range(3)]
        for size, part in enumerate(parts, 1):
            part[axis] = size
        yield case_of("Concat", *parts, axis=axis)
    splits: list[tuple[list[Array], dict[str, Any], int]] = [
        *(
            ([], {"axis": 1}, 3),
            ([np.array([1, 4, 1])], {"axis": 1}, 3),
            ([np.array([5, 1])], {"axis": -2}, 2),
        ),
        *(([], {"axis": 1, "num_outputs": 3}, 3), ([], {"axis": 1, "split": (1, 5)}, 2)),
    ]
    for more, attributes, outputs in splits:
        yield Case("Split", (uniform((2, 6, 3)), *more), attributes, outputs=outputs)
    big = 2**63 - 1
    slices: list[list[list[int]]] = [
        *([[1, 0, 2], [3, 2, 4]], [[0], [5], [1], [2]], [[-1], [-100], [0], [-1]]),
        *([[big, 1], [-big - 1, big], [2, 0], [-2, 1]], [[3], [0], [-1], [-1]]),
    ]
    for bounds in slices:
        yield case_of("Slice", (4, 5, 6), more=[np.array(bound) for bound in bounds])


COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def resized() -> Iterator[Case]:
    """Of pytorch_half_pixel not to one element: ONNX's text has it at 0, its evaluator at -0.5."""
    sizes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        *(((2, 1, 3, 4), (2, 1, 6, 6)), ((1, 2, 5, 4), (1, 2, 2, 7)), ((3, 5), (3, 3)), ((2, 4), (2, 1))),
    ]
    roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    settings: list[dict[str, Any]] = [{"mode": "nearest", "nearest_mode": rounding} for rounding in roundings]
    extra: list[dict[str, Any]] = [{}, {"antialias": 1}, {"exclude_outside": 1}]
    settings += [{"mode": mode, **more} for mode in ("linear", "cubic") for more in extra]
    for (x, y), attributes, coordinates in itertools.product(sizes, settings, COORDINATES):
        if coordinates != "pytorch_half_pixel" or y != (2, 1) or attributes["mode"] == "nearest":
            more = {**attributes, "coordinate_transformation_mode": coordinates}
            yield case_of("Resize", x, more=(None, None, np.array(y)), **more)
    scales = ((1, 1, 2, 3), (1, 1, 0.6, 1.7), (2, 1, 1, 0.3), (1, 1, 1, 1), (1.5, 2, 2, 2))
    for factors, mode in itertools.product(scales, ("nearest", "linear")):
        yield case_of("Resize", (2, 3, 4, 5), more=(None, np.array(factors, np.float32)), mode=mode)
    for mode, axes in itertools.product(("nearest", "linear"), ((2, 3), (1, 2))):
        yield case_of("Resize", (2, 3, 4, 5), more=(None, None, np.array([6, 9])), mode=mode, axes=axes)
    rows: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        *(((2, 6, 5, 3), (2, 9, 8, 3)), ((1, 6, 8, 9), (1, 9, 4, 12))),
    ]
    for (x, y), mode, budget in itertools.product(rows, ("nearest", "linear", "cubic"), (500, 2000)):
        case = case_of("Resize", x, more=(None, None, np.array(y)), mode=mode)
        yield replace(case, scratch_budget=budget)


def quantised() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    scales: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        *(((), {}), ((5,), {"axis": 1}), ((3, 5, 1), {"axis": -1, "block_size": 4})),
    ]
    for (shape, attributes), dtype in itertools.product(scales, (np.int8, np.uint8)):
        limits = np.iinfo(dtype)
        scale = np.asarray(rng.uniform(0.01, 0.2, shape), np.float32)
        zero = np.asarray(rng.integers(limits.min, limits.max, shape, dtype))
        x = np.asarray(rng.standard_normal((3, 5, 4)) * 20, np.float32)
        yield Case("QuantizeLinear", (x, scale, zero), attributes)
        whole = rng.integers(limits.min, limits.max, (3, 5, 4), dtype)
        yield Case("DequantizeLinear", (whole, scale, zero), attributes)


@cache
def cases() -> Mapping[str, Sequence[Case]]:
    families = (
        elementwise,
        broadcast,
        normalised,
        products,
        windows,
        reduced,
        moved,
        chosen,
        resized,
        quantised,
    )
    by_type: dict[str, list[Case]] = {type_: [] for type_ in OPERATOR_NAMES}
    for case in itertools.chain(CASES, *(family() for family in families)):
        by_type[case.type].append(in_domain(case))
    return by_type


#: Operators that ONNX does not have, or that it computes otherwise (see `is_onnx`); losses have formulas.
NOT_ONNX = {
    *("ArgTopK", "Dropout", "GRUCell", "LSTMCell", "RNNCell", "RandomUniform"),
    *("ScatterAdd", "ScatterUpdate", "StopGradient", "TileGather", "LogAddExp", "ProductLogSumExp"),
    *("CategoricalCrossEntropy", "KLDivergence", "MeanSquaredError", "MeanAbsoluteError", "Huber"),
    "BinaryCrossEntropy",
}


def test_forward_is_onnx() -> None:
    with every() as check:
        for type_, rows in cases().items():
            known = [case for case in rows if is_onnx(case)]
            assert bool(known) == (type_ not in NOT_ONNX), type_
            for case in known:
                with check(case):
                    if any(value is not None and value.dtype == "float32" for value in case.values):
                        assert_onnx(case, 3e-6 if type_ != "BatchNormalization" else 2e-5)
                    assert_onnx(wide(case), TOLERANCES.get(type_, 1e-11))


def is_smooth(case: Case, operation: OneOperation) -> bool:
    """Whether slopes are those of float64, and no element lies at a bound, or near one among very many."""
    elements = max(value.size for value in case.values if value is not None)
    has_kinks = case.attributes.get("activation") == "Relu" and elements > 70_000
    is_wide = {type_.dtype for type_ in operation.types} == {DType.FLOAT64}
    return is_wide and not has_kinks and "inclusive" not in case.attributes


def test_derivatives_are_slopes() -> None:
    """Of stored weights they are those of their elements, which another test compares."""
    with every() as check:
        for case in (wide(case) for rows in cases().values() for case in rows if not case.stored):
            operation = case.operation()
            if operation.kind.differentiable(operation.node) and is_smooth(case, operation):
                with check(case):
                    operation.assert_derivatives()
