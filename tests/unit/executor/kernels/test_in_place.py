"""Operators' promises: with one memory for source and target every kernel computes the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from solver.graph.ops import OPERATOR_NAMES, lookup
from solver.graph.ops.base import InPlace, OperationType
from tests.support.every import grid
from tests.support.one_node import node_of
from tests.support.operator_cases import CASES
from tests.support.operator_steps import Case, OperatorStep, steps_of


def kept(type_: str) -> Iterator[tuple[Case, OperatorStep, InPlace]]:
    """Steps and the promises that a planner may use in them: both operands have one size and element type."""
    for case in CASES:
        if case.type != type_:
            continue
        for step in steps_of(case):
            for promise in step.kind.in_place(step.node):
                if promise.source not in step.reads or promise.target not in step.writes:
                    continue
                source, target = step.reads[promise.source], step.writes[promise.target]
                one_size = source.nbytes == target.nbytes and source.dtype == target.dtype.numpy
                if one_size and not (promise.alone and len(step.writes) > 1):
                    yield case, step, promise


@grid("type_", OPERATOR_NAMES)
def test_one_memory_or_two_make_no_difference(type_: str) -> None:
    for case, step, promise in kept(type_):
        expected = step.run()
        found = step.run(shared={promise.target: promise.source})
        assert found == expected, f"{case} {step}: {promise}"
        if promise.view:
            assert found[promise.target] == step.reads[promise.source].tobytes(), f"{case} {step}: {promise}"


@pytest.mark.parametrize("type_", ["Add", "Sub", "Mul", "Div"])
def test_an_operand_that_is_given_twice_may_be_overwritten_too(type_: str) -> None:
    """Both of its slots are promised: what is read twice is one memory, and Y is in it."""
    steps = [next(steps_of(case)) for case in CASES if case.type == type_]
    whole = [step for step in steps if step.reads["x0"].shape == step.reads["x1"].shape]
    assert whole
    for step in whole:
        twice = {"x1": step.reads["x0"]}
        found = step.run(changed=twice, shared={"x1": "x0", "y0": "x0"})
        assert found == step.run(changed=twice), str(step.node.attributes)


@grid("type_", OPERATOR_NAMES)
def test_every_promise_is_put_to_the_test(type_: str) -> None:
    """With a fused activation and without, and with every set of derivatives beside it."""
    made = {
        promise for case in CASES if case.type == type_
        for promise in lookup(type_).in_place(case.operation().node)
    }  # fmt: skip
    assert made == {promise for _, _, promise in kept(type_)}
    assert bool(made) == (type(lookup(type_)).in_place is not OperationType.in_place and type_ != "Pow")


def test_a_power_promises_nothing() -> None:
    """Its backward step reads X, and the derivative of the base is not done with dY when it begins."""
    assert lookup("Pow").in_place(node_of("Pow", [(2, 3, 4), (2, 3, 4)])) == ()
