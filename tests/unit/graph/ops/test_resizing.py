"""Resize: sizes, scales, policies, refusals, the order of the passes and what they need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.errors import ShapeMismatchError
from solver.graph import Initializer, Operand, Operation, Role
from solver.graph.nodes import resolve
from solver.graph.ops import lookup
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET, Node
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.ops.resizing import passes, resized_axes
from solver.graph.types import DType, TensorType
from tests.support.one_node import Input, needs_of, node_of

X = (2, 3, 4, 6)


def scaled(shape: tuple[int, ...], scales: list[float], **attributes: Any) -> Node:
    """The node of a Resize by constant scales, without its output."""
    values = np.array(scales, np.float32)
    data = Initializer("values", values.tobytes())
    operands = {
        "x": Operand("x", TensorType(shape, DType.FLOAT32), Role.INPUT),
        "s": Operand("s", TensorType(values.shape, DType.FLOAT32), Role.CONSTANT, data),
    }
    return resolve(Operation("dense1", "Resize", ("x", "", "s"), ("y",), attributes), operands)


def shape_of(node: Node) -> tuple[int, ...]:
    return lookup("Resize").infer(node)[0].shape


def test_scales() -> None:
    assert shape_of(scaled(X, [1, 1, 2, 0.5])) == (2, 3, 8, 3)
    assert shape_of(scaled(X, [0.6, 1.9], axes=(2, 3))) == (2, 3, 2, 11)
    axes = resized_axes(scaled(X, [1, 1, 0.6, 1.1]))
    assert [(a.axis, a.size, a.out, round(a.scale, 6)) for a in axes] == [(2, 4, 2, 0.6), (3, 6, 6, 1.1)]


def test_axes_that_stay_are_not_interpolated() -> None:
    assert resized_axes(node_of("Resize", [X, None, None, [*X[:3], 7]]))[0].axis == 3
    node = node_of("Resize", [X, None, None, list(X)])
    assert resized_axes(node) == ()
    assert lookup("Resize").forward_scratch(node) == ()


@pytest.mark.parametrize(
    "scales", [[2, 2], [1, 1, 0, 2], [1, 1, -1, 2], [1, 1, np.inf, 2], [1, 1, np.nan, 2]]
)
def test_scales_that_make_no_sense(scales: list[float]) -> None:
    with pytest.raises(ShapeMismatchError, match="expected 4 positive scales"):
        shape_of(scaled(X, scales))


def test_scales_that_leave_nothing() -> None:
    with pytest.raises(ShapeMismatchError, match="leave an axis empty"):
        shape_of(scaled(X, [1, 1, 0.2, 1]))


def test_axes_that_shrink_come_first() -> None:
    node = node_of("Resize", [X, None, None, [2, 3, 8, 3]])
    forward, backward = passes(node, backward=False), passes(node, backward=True)
    assert forward.shapes == ((4, 6), (4, 3), (8, 3))
    assert backward.shapes == ((8, 3), (4, 3), (4, 6))
    assert (forward.examples, forward.step, forward.between) == (6, 6, 6 * 12)


def test_scratch_is_a_block() -> None:
    """One axis needs one tap's share, two what stands between them for a few examples at a time."""
    image = (64, 3, 56, 56)
    inputs: list[Input] = [image, None, None, [64, 3, 112, 112]]
    found, _, needs = needs_of("Resize", inputs, (0,))
    assert found == set()
    sizes = {request.name: request.type.elements for request in needs.scratch}
    assert sizes == {"between": 2 * 56 * 112, "tap": BLOCK_ELEMENTS}
    single = needs_of("Resize", [(2, 3, 8), None, None, [2, 3, 4]], (0,))[2]
    assert [request.name for request in single.scratch] == ["tap"]


def test_large_examples_are_cut_into_rows() -> None:
    """The rows between two passes stay within the budget; there is at least one."""
    node = node_of("Resize", [(2, 256, 256, 64), None, None, [2, 512, 512, 64]])
    for backward in (False, True):
        plan = passes(node, backward=backward)
        assert plan.axes[0].axis == 0
        assert (plan.step, plan.rows) == (1, 32 if not backward else 16)
        assert 4 * plan.between <= DEFAULT_SCRATCH_BUDGET
    wide = node_of("Resize", [(1, 2, 4, 200_000), None, None, [1, 4, 8, 200_000]])
    assert passes(wide, backward=False).rows == 1
