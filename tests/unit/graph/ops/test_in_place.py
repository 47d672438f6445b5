"""Which operators promise that their kernels work in place, and for which operands."""

from __future__ import annotations

from typing import Any

import pytest

from solver.graph.ops import OPERATOR_NAMES, lookup
from tests.support.one_node import Input, node_of

MATRIX = (3, 4)
IMAGE = (2, 3, 4, 4)


def promises(type_: str, *inputs: Input, **attributes: Any) -> set[str]:
    """``x0->y0`` for each, ``=`` in the place of ``->`` for views, with ``!`` if it must be alone."""
    return {
        f"{p.source}{'=' if p.view else '->'}{p.target}{'!' if p.alone else ''}"
        for p in lookup(type_).in_place(node_of(type_, inputs, **attributes))
    }


@pytest.mark.parametrize(
    "type_",
    ["Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "Elu", "HardSigmoid", "Swish", "Gelu", "HardSwish",
     "Softmax", "LogSoftmax", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Dropout"],
)  # fmt: skip
def test_functions_of_one_operand(type_: str) -> None:
    """That Gelu reads X backward is no matter of the kernel: the program shows that X is read."""
    assert promises(type_, MATRIX) == {"x0->y0", "dy0->dx0"}


def test_the_error_function_is_no_longer_right_when_it_has_lost_the_sign() -> None:
    assert promises("Erf", MATRIX) == {"dy0->dx0"}


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes"),
    [
        ("Reshape", (MATRIX, [2, 6]), {}),
        ("Flatten", (IMAGE,), {}),
        ("Squeeze", ((3, 1),), {}),
        ("Unsqueeze", (MATRIX,), {"axes": (0,)}),
    ],
)
def test_what_keeps_all_bytes_makes_views(
    type_: str, inputs: tuple[Input, ...], attributes: dict[str, Any]
) -> None:
    assert promises(type_, *inputs, **attributes) == {"x0=y0", "dy0=dx0"}


def test_arithmetic() -> None:
    forward = {"x0->y0", "x1->y0"}
    assert promises("Add", MATRIX, MATRIX) == {*forward, "dy0=dx0", "dy0=dx1"}
    assert promises("Sub", MATRIX, MATRIX) == {*forward, "dy0=dx0", "dy0->dx1"}
    for type_ in ("Mul", "Div"):
        assert promises(type_, MATRIX, MATRIX) == {*forward, "dy0->dx0!", "dy0->dx1"}
    assert promises("Pow", MATRIX, MATRIX) == set()


@pytest.mark.parametrize("type_", ["Add", "Sub", "Mul", "Div"])
def test_behind_a_fused_activation_no_derivative_is_a_view(type_: str) -> None:
    found = promises(type_, MATRIX, MATRIX, activation="Relu")
    assert found == {"x0->y0", "x1->y0", "dy0->dx0", "dy0->dx1"}


@pytest.mark.parametrize("type_", ["InstanceNormalization", "BatchNormalization"])
def test_normalisations(type_: str) -> None:
    channels: tuple[Input, ...] = ((3,),) * (4 if type_ == "BatchNormalization" else 2)
    assert promises(type_, IMAGE, *channels) == {"x0->y0", "dy0->dx0"}


@pytest.mark.parametrize(
    "type_",
    ["Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool", "Transpose", "Pad", "Concat",
     "Slice", "Gather", "ReduceMean", "Resize"],
)  # fmt: skip
def test_what_reads_an_element_more_than_once_or_moves_it_promises_nothing(type_: str) -> None:
    assert type_ in OPERATOR_NAMES
    assert "in_place" not in type(lookup(type_)).__dict__
