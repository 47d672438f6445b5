"""Movement of elements: shapes and refusals."""

from __future__ import annotations

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.base import BackwardNeeds
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from tests.support.one_node import Input, needs_of, node_of, output_of

SHAPE = (2, 3, 4)


@pytest.mark.parametrize(("mode", "longest"), [("reflect", 2), ("wrap", 3)])
def test_pad_refuses_borders_that_are_longer_than_what_they_repeat(mode: str, longest: int) -> None:
    for pads in ([longest + 1, 0], [0, longest + 1]):
        reason = rf"'dense1' \(Pad\).*mode '{mode}' the pads of axis 1 .* {longest}, not {longest + 1}"
        with pytest.raises(ShapeMismatchError, match=reason):
            node_of("Pad", [(2, 3, 4), pads, None, [1]], mode=mode)
    assert output_of("Pad", [(2, 3, 4), [longest, longest], None, [1]], mode=mode) == (2, 3 + 2 * longest, 4)
    assert output_of("Pad", [(2, 3, 4), [30, 1], None, [1]], mode="edge") == (2, 34, 4)


def test_pad_reads_its_value_in_one_mode_alone() -> None:
    for mode in ("reflect", "edge", "wrap"):
        with pytest.raises(AttributeRuleError, match=f"'constant_value'.*no meaning in mode '{mode}'"):
            node_of("Pad", [SHAPE, [0] * 6], mode=mode, constant_value=1.0)
        node = node_of("Pad", [SHAPE, [0] * 6, ()], mode=mode)
        assert lookup("Pad").ignores(node, True, "y0") == {"x2"}
    assert lookup("Pad").ignores(node_of("Pad", [SHAPE, [0] * 6, ()]), True, "y0") == set()


def test_pad_sums_along_edges_by_blocks() -> None:
    large = (50, 60, 70)
    scratch = needs_of("Pad", [large, [1, 2, 3] * 2], (0,), mode="edge")[2].scratch
    assert [(request.name, request.type.shape) for request in scratch] == [("partial", (BLOCK_ELEMENTS,))]
    assert needs_of("Pad", [large, [0] * 6], (0,), mode="edge")[2] == BackwardNeeds()
    assert needs_of("Pad", [large, [1, 2, 3] * 2], (0,), mode="reflect")[2] == BackwardNeeds()


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [("Reshape", [SHAPE, [-1]]), ("Flatten", [SHAPE]), ("Transpose", [SHAPE]), ("Pad", [SHAPE, [0] * 6, ()])],
)
def test_movement_has_one_derivative_and_reads_nothing(type_: str, inputs: list[Input]) -> None:
    assert lookup(type_).differentiable(node_of(type_, inputs)) == {0}
    assert needs_of(type_, inputs, (0,))[2] == BackwardNeeds()


def test_expand_needs_scratch_only_where_it_grows() -> None:
    assert needs_of("Expand", [(2, 3), [1, 1]], (0,))[2] == BackwardNeeds()
    (request,) = needs_of("Expand", [(2, 1), [2, 3]], (0,))[2].scratch
    assert request.type.shape == (2,)
