"""Which operators promise that their kernels work in place, and for which operands."""

from __future__ import annotations

from typing import Any

import pytest

from solver.graph.ops import OPERATOR_NAMES, lookup
from tests.support.every import grid
from tests.support.one_node import Input, node_of

MATRIX = (3, 4)
IMAGE = (2, 3, 4, 4)


def promises(type_: str, *inputs: Input, **attributes: Any) -> set[str]:
    """``x0->y0`` for each, ``=`` in the place of ``->`` for views, with ``!`` if it must be alone."""
    return {
        f"{p.source}{'=' if p.view else '->'}{p.target}{'!' if p.alone else ''}"
        for p in lookup(type_).in_place(node_of(type_, inputs, **attributes))
    }


@grid(
    "type_",
    ["Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "Elu", "HardSigmoid", "Swish", "Gelu", "HardSwish",
     "Softmax", "LogSoftmax", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Dropout"],
)  # fmt: skip
def test_functions_of_one_operand(type_: str) -> None:
    """That Gelu reads X backward does not concern the kernel: the program shows that X is read."""
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


@grid(
    "type_",
    ["Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool", "Transpose", "Pad", "Concat",
     "Slice", "Gather", "ReduceMean", "Resize"],
)  # fmt: skip
def test_what_reads_an_element_more_than_once_or_moves_it_promises_nothing(type_: str) -> None:
    assert type_ in OPERATOR_NAMES
    assert "in_place" not in type(lookup(type_)).__dict__


def copies(type_: str, *inputs: Input, forward: bool = False, **attributes: Any) -> set[str]:
    found = lookup(type_).copies(node_of(type_, inputs, **attributes), forward)
    assert all(p.view for p in found)
    return {f"{p.source}={p.target}" for p in found}


def test_views_are_copies_of_the_direction_that_is_asked_for() -> None:
    assert copies("Reshape", MATRIX, [2, 6], forward=True) == {"x0=y0"}
    assert copies("Reshape", MATRIX, [2, 6]) == {"dy0=dx0"}
    assert copies("Relu", MATRIX, forward=True) == set()


def test_what_is_broadcast_is_not_copied() -> None:
    """Its derivative is a sum. An axis of size 1 more or less does not broadcast."""
    assert copies("Add", MATRIX, MATRIX) == {"dy0=dx0", "dy0=dx1"}
    assert copies("Add", MATRIX, (4,)) == {"dy0=dx0"}
    assert copies("Add", (3, 1), (1, 4)) == set()
    assert copies("Add", (1, *MATRIX), MATRIX) == {"dy0=dx0", "dy0=dx1"}
    assert copies("Sub", MATRIX, MATRIX) == {"dy0=dx0"}


def test_a_fused_activation_makes_no_copies() -> None:
    for type_ in ("Add", "Sub"):
        assert copies(type_, MATRIX, MATRIX, activation="Relu") == set()


def parts(type_: str, *inputs: Input, forward: bool = True, outputs: int = 1, **attributes: Any) -> set[str]:
    node = node_of(type_, inputs, outputs=outputs, **attributes)
    found = lookup(type_).parts(node, forward)
    return {f"{p.source}+{p.start}->{p.target}+{p.target_start}:{p.nbytes}" for p in found}


def test_what_is_joined_along_the_first_axis_is_parts() -> None:
    assert parts("Concat", (2, 3), (1, 3), axis=0) == {"x0+0->y0+0:24", "x1+0->y0+24:12"}
    assert parts("Concat", (2, 3), (1, 3), axis=0, forward=False) == {"dy0+0->dx0+0:24", "dy0+24->dx1+0:12"}
    assert parts("Concat", (1, 2), (1, 1), axis=-1) == {"x0+0->y0+0:8", "x1+0->y0+8:4"}


def test_what_is_taken_apart_is_parts() -> None:
    assert parts("Split", (5, 2), [1, 4], outputs=2) == {"x0+0->y0+0:8", "x0+8->y1+0:32"}
    assert parts("Split", (5, 2), [1, 4], outputs=2, forward=False) == {"dy0+0->dx0+0:8", "dy1+0->dx0+8:32"}


def test_rows_that_are_cut_out_are_a_part() -> None:
    assert parts("Slice", (5, 2), [1], [4]) == {"x0+8->y0+0:24"}
    assert parts("Slice", (4, 5, 2), [3, 2], [4, 4]) == {"x0+136->y0+0:16"}
    assert parts("Slice", (4, 5, 2), [3, 2, 1], [4, 3, 2]) == {"x0+140->y0+0:4"}
    assert parts("Slice", (5, 2), [1], [4], forward=False) == set(), "the rest of the derivative is zeros"


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes"),
    [
        ("Concat", ((2, 3), (2, 1)), {"axis": 1}),
        ("Split", ((2, 4), [1, 3]), {"axis": 1, "outputs": 2}),
        ("Slice", ((5, 4), [0], [2], [1]), {}),
        ("Slice", ((5, 4), [0], [4], [0], [2]), {}),
        ("Slice", ((5,), [4], [0], [0], [-1]), {}),
        ("Slice", ((5, 4), [0, 3], [5, -9], [0, 1], [1, -1]), {}),
    ],
)  # fmt: skip
def test_what_has_gaps_is_not(type_: str, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> None:
    assert parts(type_, *inputs, **attributes) == set()
    assert parts(type_, *inputs, forward=False, **attributes) == set()
