"""Conv: forward against ONNX, derivatives against central differences, both memory orders, memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.activations import PLAIN_ACTIVATIONS
from tests.support.c_steps import CSteps
from tests.support.every import ALL, grid
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import onnx_reference
from tests.support.operator_steps import Case, OperatorStep, steps_of

Setting = tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]]

#: (X under NCHW, W under NCHW, attributes)
SETTINGS: Mapping[str, Setting] = {
    "plain": ((2, 3, 6, 5), (4, 3, 3, 3), {}),
    "pointwise": ((3, 4, 3, 5), (2, 4, 1, 1), {}),
    "pointwise_strided": ((2, 3, 5, 4), (4, 3, 1, 1), {"strides": (2, 3)}),
    "pointwise_padded": ((2, 3, 3, 2), (4, 3, 1, 1), {"pads": (1, 0, 0, 2)}),
    "pointwise_grouped": ((2, 4, 3, 2), (6, 2, 1, 1), {"group": 2}),
    "same_upper": ((2, 2, 5, 6), (3, 2, 2, 4), {"auto_pad": "SAME_UPPER"}),
    "same_lower": ((2, 2, 5, 6), (3, 2, 2, 4), {"auto_pad": "SAME_LOWER"}),
    "same_strided": ((1, 2, 7, 6), (3, 2, 3, 3), {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    "valid": ((2, 2, 5, 5), (3, 2, 3, 2), {"auto_pad": "VALID", "strides": (1, 2)}),
    "asymmetric": ((2, 3, 4, 5), (2, 3, 3, 3), {"pads": (0, 2, 1, 1)}),
    "pads_beyond_the_kernel": ((1, 2, 3, 3), (2, 2, 2, 2), {"pads": (2, 3, 3, 2)}),
    "strided": ((2, 2, 7, 8), (3, 2, 3, 2), {"strides": (2, 3), "pads": (1, 0, 1, 1)}),
    "gaps": ((1, 2, 8, 7), (3, 2, 2, 1), {"strides": (3, 2)}),
    "dilated": ((2, 2, 7, 6), (3, 2, 3, 2), {"dilations": (2, 3), "pads": (1, 1, 2, 0)}),
    "dilated_strided": ((1, 2, 9, 8), (2, 2, 3, 2), {"dilations": (2, 3), "strides": (2, 2)}),
    "grouped": ((2, 4, 5, 4), (6, 2, 3, 2), {"group": 2, "pads": (1, 1, 0, 0)}),
    "grouped_strided": ((2, 4, 6, 5), (2, 2, 3, 3), {"group": 2, "strides": (2, 2)}),
    "depthwise": ((2, 5, 5, 6), (5, 1, 3, 3), {"group": 5, "pads": (1, 1, 1, 1)}),
    "depthwise_valid": ((2, 4, 5, 6), (4, 1, 2, 3), {"group": 4}),
    "depthwise_strided": ((2, 3, 7, 7), (3, 1, 3, 3), {"group": 3, "strides": (2, 2)}),
    "depthwise_same_strided": (
        (1, 3, 6, 5),
        (3, 1, 3, 3),
        {"group": 3, "strides": (2, 2), "auto_pad": "SAME_UPPER"},
    ),
    "depthwise_dilated": ((1, 3, 7, 6), (3, 1, 3, 2), {"group": 3, "dilations": (2, 2)}),
    "depthwise_multiplied": ((2, 3, 4, 5), (6, 1, 3, 3), {"group": 3, "pads": (1, 1, 1, 1)}),
    "depthwise_multiplied_strided": ((2, 2, 5, 5), (6, 1, 3, 2), {"group": 2, "strides": (2, 2)}),
    "one_axis": ((2, 3, 8), (4, 3, 3), {"strides": (2,), "pads": (1, 1)}),
    "one_axis_depthwise": ((2, 3, 8), (3, 1, 3), {"group": 3, "pads": (1, 1)}),
    "three_axes": ((1, 2, 3, 4, 3), (3, 2, 2, 3, 2), {"pads": (1, 1, 0, 0, 1, 1)}),
    "single_channel": ((2, 1, 5, 5), (2, 1, 3, 3), {"auto_pad": "SAME_UPPER"}),
    "single_output": ((1, 1, 3, 3), (1, 1, 3, 3), {}),
}
LAYOUTS = ["NCHW", "NHWC"]
#: Bytes of scratch: whole batches, some rows, and so little that a chunk is a single row.
#: With the least, weights are too large for a flipped copy, and their gradient is summed filter by filter.
BUDGETS = [1 << 21, 1 << 12, 1]


def normal(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape), dtype)


def arranged(array: Array, layout: str) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout == "NHWC" else array


def values_of(setting: Setting, dtype: str = "float64", *, bias: bool = True) -> list[Array]:
    x, w, _ = setting
    return [normal(x, dtype), normal(w, dtype, 1), *([normal(w[:1], dtype, 2)] if bias else [])]


def operation(
    setting: Setting, layout: str = "NCHW", budget: int = 1 << 21, *, bias: bool = True,
    dtype: str = "float64", activation: str = "None",
) -> OneOperation:  # fmt: skip
    x, w, *rest = values_of(setting, dtype, bias=bias)
    values = [arranged(x, layout), arranged(w, layout), *rest]
    attributes = {**setting[2], "data_layout": layout, "activation": activation}
    return OneOperation("Conv", values, scratch_budget=budget, **attributes)


@grid("bias", [True, False])
@grid("name", SETTINGS)
def test_conv_is_onnx_conv(name: str, bias: bool) -> None:
    setting = SETTINGS[name]
    expected = onnx_reference("Conv", values_of(setting, bias=bias), setting[2])
    for layout, budget in itertools.product(LAYOUTS, BUDGETS):
        y = operation(setting, layout, budget, bias=bias).forward()
        np.testing.assert_allclose(y, arranged(expected, layout), rtol=1e-9, atol=1e-9)


@grid("layout", LAYOUTS)
@grid("activation", PLAIN_ACTIVATIONS)
@grid("name", ["asymmetric", "pointwise", "depthwise"])
def test_conv_applies_its_activation(name: str, activation: str, layout: str) -> None:
    plain = operation(SETTINGS[name], layout, dtype="float32").forward()
    found = operation(SETTINGS[name], layout, dtype="float32", activation=activation).forward()
    np.testing.assert_allclose(found, PLAIN_ACTIVATIONS[activation](plain), rtol=1e-5, atol=1e-6)


@grid("activation", ["None", "Tanh"])
@grid("name", SETTINGS)
def test_conv_derivatives(name: str, activation: str) -> None:
    operation(SETTINGS[name], activation=activation).assert_derivatives()


@grid("activation", PLAIN_ACTIVATIONS)
@grid("name", ["asymmetric", "pointwise", "strided", "depthwise", "depthwise_strided"])
def test_conv_derivatives_through_every_activation(name: str, activation: str) -> None:
    operation(SETTINGS[name], "NHWC", activation=activation).assert_derivatives()


@grid("activation", ["None", "Sigmoid"])
@grid("budget", BUDGETS)
@grid("name", SETTINGS)
def test_both_layouts_and_any_chunk_have_one_derivative(name: str, budget: int, activation: str) -> None:
    reference = operation(SETTINGS[name], activation=activation)
    dy = normal(reference.types[0].shape, seed=7)
    expected = reference.backward(dy, 0, 1, 2)
    for layout in LAYOUTS:
        other = operation(SETTINGS[name], layout, budget, activation=activation)
        for wanted in [(0,), (1,), (2,), (1, 2), (0, 1, 2)]:
            found = other.backward(arranged(dy, layout), *wanted)
            for i in wanted:
                value = expected[i] if i == 2 else arranged(expected[i], layout)
                np.testing.assert_allclose(found[i], value, rtol=1e-9, atol=1e-9)


LARGE: Mapping[str, Setting] = {
    "dense": ((4, 16, 64, 64), (16, 16, 3, 3), {"auto_pad": "SAME_UPPER"}),
    "dense_strided": ((4, 16, 64, 64), (16, 16, 3, 3), {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    "grouped": ((4, 16, 64, 64), (16, 8, 3, 3), {"auto_pad": "SAME_UPPER", "group": 2}),
    "pointwise": ((4, 32, 64, 64), (16, 32, 1, 1), {}),
    "pointwise_grouped": ((4, 32, 64, 64), (16, 16, 1, 1), {"group": 2}),
    "depthwise": ((4, 32, 64, 64), (32, 1, 3, 3), {"group": 32, "auto_pad": "SAME_UPPER"}),
    "depthwise_strided": ((4, 32, 65, 65), (32, 1, 3, 3), {"group": 32, "strides": (2, 2)}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@grid("activation", ["None", "Relu6"])
@grid("name", LARGE)
def test_a_step_allocates_nothing_of_tensor_size(name: str, activation: str, layout: str) -> None:
    operation(LARGE[name], layout, dtype="float32", activation=activation).assert_lean()


@grid("layout", LAYOUTS)
@grid("budget", [1 << 17, 1 << 19])
@grid("name", LARGE)
def test_scratch_keeps_to_the_budget(name: str, budget: int, layout: str) -> None:
    one = operation(LARGE[name], layout, budget, dtype="float32", activation="Relu")
    loops = [one.kind.forward_scratch(one.node), one.needs(0).scratch, one.needs(1, 2).scratch]
    for requests in loops:
        assert sum(request.type.nbytes for request in requests) <= budget


def geometries(type_: str) -> Iterator[Mapping[str, Any]]:
    """Windows over images of 3 x 4 positions, with every combination of pads."""
    extra, ends = (0, 1) if type_ == "ConvTranspose" else (0,), itertools.product((0, 1), repeat=4)
    axes = itertools.product((1, 2, 3), (1, 2), (1, 2), (1, 2, 4), extra, ends)
    for taps, stride, dilation, group, more, pads in axes:
        if more < max(stride, dilation):
            sizes = {"strides": (stride, stride), "dilations": (dilation, dilation), "group": group}
            yield {"kernel_shape": (taps, taps), "pads": pads, "output_padding": (more, more), **sizes}


def pytorch_results(type_: str, values: Sequence[Array], dy: Array, **sizes: Any) -> list[Array]:
    """Y, and the derivatives of X, W and B; none if nothing is left of Y. Pads are zeros around X, or are cut
    off from Y.
    """
    import torch

    functions, x, w, b = torch.nn.functional, *(torch.tensor(value, requires_grad=True) for value in values)
    (top, left, bottom, right), rest = sizes["pads"], (sizes["dilations"], sizes["group"])
    if type_ == "Conv":
        padded = functions.pad(x, (left, right, top, bottom))
        if min(padded.shape[2:]) < (w.shape[2] - 1) * sizes["dilations"][0] + 1:
            return []
        y = functions.conv2d(padded, w, b, sizes["strides"], 0, *rest)
    else:
        y = functions.conv_transpose2d(x, w, b, sizes["strides"], 0, sizes["output_padding"], *rest[::-1])
        y = y[:, :, top : y.shape[2] - bottom, left : y.shape[3] - right]
    y.backward(torch.tensor(dy[:, :, : y.shape[2], : y.shape[3]]))
    return [y.detach().numpy(), *(tensor.grad.numpy() for tensor in (x, w, b))]


@pytest.mark.parity
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type_", ["Conv", "ConvTranspose"])
def test_every_geometry_is_pytorchs(type_: str, layout: str, tmp_path: Path) -> None:
    """Y and all derivatives, by default of a third; those of C's kernels within the rounding of float32."""
    rows, dy = list[tuple[OperatorStep, dict[str, Array]]](), normal((2, 4, 12, 12), seed=3)
    for sizes in itertools.islice(geometries(type_), 0, None, 1 if ALL else 3):
        w = normal((4, 4 // sizes["group"], *sizes["kernel_shape"]), seed=1)
        values = [normal((2, 4, 3, 4)), w, normal((4,), seed=2)]
        y, *derivatives = pytorch_results(type_, values, dy, **sizes) or [np.empty(0)]
        attributes = {key: size for key, size in sizes.items() if type_ != "Conv" or key != "output_padding"}
        if y.size:
            *images, bias = (value.astype(np.float32) for value in values)
            arranged_values = (*(arranged(image, layout) for image in images), bias)
            case = Case(type_, arranged_values, {"data_layout": layout, **attributes})
            step, *_, backward = steps_of(case)
            backward.reads["dy0"][...] = arranged(dy[:, :, : y.shape[2], : y.shape[3]], layout)
            rows.append((step, {"y0": arranged(y, layout)}))
            *images, bias = derivatives
            named = {"dx0": arranged(images[0], layout), "dx1": arranged(images[1], layout), "dx2": bias}
            rows.append((backward, named))
    assert len(rows) > (900 if ALL else 300)
    steps = CSteps((step for step, _ in rows), tmp_path)
    library = steps.compiled("gcc", "-O1")
    for step, expected in rows:
        results = {slot: np.frombuffer(data, np.float32) for slot, data in step.run().items()}
        for kernels in (results, steps.run(library, step)):
            for slot, wanted in expected.items():
                result = kernels[slot].reshape(wanted.shape)
                np.testing.assert_allclose(result, wanted, 1e-4, 1e-4, err_msg=f"{step.node} {slot}")
