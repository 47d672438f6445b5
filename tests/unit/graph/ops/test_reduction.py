"""Reductions: shapes, refusals, what backward reads."""

from __future__ import annotations

from typing import Any

from solver.graph.ops import FAMILIES
from solver.graph.ops.base import BackwardNeeds
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, output_of

SHAPE = (2, 3, 4)


@grid(
    ("inputs", "attributes", "shape"),
    [
        ([SHAPE], {}, (1, 1, 1)),
        ([SHAPE], {"keepdims": 0}, ()),
        ([SHAPE, [1]], {}, (2, 1, 4)),
        ([SHAPE, [-1, 0]], {"keepdims": 0}, (3,)),
        ([SHAPE], {"axes": (1, 2), "keepdims": 0}, (2,)),
        ([SHAPE, []], {}, (1, 1, 1)),
        ([SHAPE, []], {"noop_with_empty_axes": 1}, SHAPE),
        ([SHAPE, None], {"noop_with_empty_axes": 1, "keepdims": 0}, SHAPE),
    ],
)
def test_shapes(inputs: list[Input], attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    for type_ in FAMILIES["reduction"]:
        assert output_of(type_, inputs, **attributes) == shape
    for type_ in ("ReduceMean", "ReduceSum"):
        assert needs_of(type_, inputs, (0,), **attributes)[2] == BackwardNeeds()


def test_the_maximum_reads_x_and_y() -> None:
    inputs, outputs, needs = needs_of("ReduceMax", [(2000, 300), [1]], (0,))
    assert (inputs, outputs) == ({0}, {0})
    assert {request.name: request.type.shape for request in needs.scratch} == {
        "share": (2000,),
        "partial": (2000,),
    }
