"""Products: memory, what is staged, adjointness, and every geometry of PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.c_steps import CSteps
from tests.support.every import ALL, grid, some
from tests.support.one_operation import OneOperation, normal
from tests.support.operator_steps import Case, OperatorStep, steps_of

Setting = tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]]

LAYOUTS = ["NCHW", "NHWC"]


def drawn(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape))


def arranged(array: Array, layout: str) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout == "NHWC" else array


def operation(name: str, layout: str, activation: str, budget: int = 1 << 21) -> OneOperation:
    x, w, attributes = LARGE[name]
    values = [arranged(drawn(x), layout), arranged(drawn(w, seed=1), layout), drawn(w[:1], seed=2)]
    return OneOperation(
        "Conv",
        [value.astype(np.float32) for value in values],
        scratch_budget=budget,
        data_layout=layout,
        activation=activation,
        **attributes,
    )


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
    operation(name, layout, activation).assert_lean()


@grid("layout", LAYOUTS)
@grid("budget", [1 << 17, 1 << 19])
@grid("name", LARGE)
def test_scratch_keeps_to_the_budget(name: str, budget: int, layout: str) -> None:
    one = operation(name, layout, "Relu", budget)
    loops = [one.kind.forward_scratch(one.node), one.needs(0).scratch, one.needs(1, 2).scratch]
    for requests in loops:
        assert sum(request.type.nbytes for request in requests) <= budget


@pytest.mark.parametrize("attributes", [{}, {"strides": (2, 2)}, {"group": 2, "dilations": (1, 2)}])
def test_a_transposed_convolution_is_the_transpose(attributes: dict[str, Any]) -> None:
    """<conv(y), x> = <y, transposed(x)> for the same weights."""
    x, w = drawn((2, 4, 5, 4)), drawn((4, 3, 3, 2))
    spread = OneOperation("ConvTranspose", [x, w], **attributes).forward()
    y = drawn(spread.shape)
    convolved = OneOperation("Conv", [y, w], **attributes).forward()
    assert np.sum(convolved * x) == pytest.approx(np.sum(y * spread), rel=1e-10)


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
@pytest.mark.parametrize(
    ("type_", "layout"),
    some(
        [("Conv", "NCHW"), ("ConvTranspose", "NHWC")],
        beside=[("Conv", "NHWC"), ("ConvTranspose", "NCHW")],
    ),
)
def test_every_geometry_is_pytorchs(type_: str, layout: str, tmp_path: Path) -> None:
    """Y and all derivatives, by default of a third; those of C's kernels within the rounding of float32."""
    rows, dy = list[tuple[OperatorStep, dict[str, Array]]](), drawn((2, 4, 12, 12), seed=3)
    for sizes in itertools.islice(geometries(type_), 0, None, 1 if ALL else 3):
        w = drawn((4, 4 // sizes["group"], *sizes["kernel_shape"]), seed=1)
        values = [drawn((2, 4, 3, 4)), w, drawn((4,), seed=2)]
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


# --------------------------------------------------------------------------------------------------- matrices


def test_gemm_with_beta_zero_has_a_zero_derivative_of_the_bias() -> None:
    operation = OneOperation("Gemm", [normal(4, 3), normal(3, 5), normal(5)], beta=0.0)
    assert not operation.backward(np.ones((4, 5)), 2)[2].any()


@grid("wanted", [(0,), (2,), (0, 2)])
def test_rows_are_staged_within_the_budget(wanted: tuple[int, ...]) -> None:
    """A budget of two rows of dZ."""
    values = [normal(17, 3), normal(3, 5), normal(5)]
    tight = OneOperation("Gemm", values, activation="Tanh", scratch_budget=2 * 5 * 8)
    assert tight.needs(*wanted).scratch[0].type.shape == (2, 5)
