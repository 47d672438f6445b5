"""Bounds on the peak: by hand, and against the orders and aliases that passes make."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from solver.accounting import (
    ScheduleProblem,
    floor,
    order_bound,
    roofline,
    schedule_problem,
    shareable,
)
from solver.graph import TrainableGraph
from solver.passes import Aliases, Levels, Order
from solver.program import loads
from solver.schedules.recompute.simulate import replay
from solver.training import derive
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention, elementwise, recurrent
from tests.support.schedule_problems import layered, problem

GRAPHS = [chain(), residual(), convolutional(), batch_normalised(), attention(), elementwise(), recurrent()]


def test_a_chain_by_hand() -> None:
    """v0 waits for s3: the order bound has it at s2, the floor does not, for it can be made again."""
    found = problem([[], [0], [1], [0, 2]], size=[10, 20, 5, 1], cost=[1, 1, 1, 1], fixed=100)
    high, low = order_bound(found), floor(found)
    assert (high.bytes, high.step, high.live) == (135, 2, (0, 1, 2))
    assert (low.bytes, low.step, low.live) == (130, 1, (0, 1))


def test_what_cannot_be_made_again_waits_in_both() -> None:
    again = [False, True, True, True]
    found = problem([[], [0], [1], [0, 2]], size=[10, 20, 5, 1], cost=[1, 1, 1, 1], again=again)
    assert floor(found).bytes == order_bound(found).bytes == 35


def test_values_that_may_share_bytes_take_those_of_the_largest() -> None:
    """At s1 v0 and v1 are live together: 30 bytes, or 20 where they share."""
    apart = problem([[], [0], [1]], size=[10, 20, 5], cost=[1, 1, 1])
    for together, expected in (((0, 1, 2), 30), ((0, 0, 2), 25), ((0, 0, 0), 20)):
        shared = replace(apart, together=together)
        assert order_bound(shared).bytes == floor(shared).bytes == expected


def test_the_bytes_that_aliases_can_save_by_hand() -> None:
    """Each Relu may write over its operand, its derivative over that of its result; 80 bytes take 128."""
    s = Sketch("s")
    h = s.op("Gemm", [s.input("x", 5, 4), s.parameter("w", 4, 4)], "h", "gemm")
    h = s.op("Relu", [s.op("Relu", [h], "a", "relu1")], "b", "relu2")
    s.op("MeanSquaredError", [h, s.label("t", 5, 4)], "loss", "mse")
    program = derive(s.graph())
    saved = dict(zip(program.step_labels, shareable(program), strict=True))
    assert saved == {
        "gemm:forward": 0,  # h alone
        "relu1:forward": 128,  # h, a
        "relu2:forward": 128,  # a, b
        "mse:forward": 128,
        "loss:calc_derivative.seed": 128,
        "mse:calc_derivative": 128,  # a, b, and b's derivative alone
        "relu2:calc_derivative": 256,  # a, b, and both their derivatives
        "relu1:calc_derivative": 128,  # the derivatives of a and h
        "gemm:calc_gradient": 0,
        "w:apply_gradient": 0,
    }


def orders(found: ScheduleProblem) -> list[tuple[int, ...]]:
    """Every order of the steps in which values are written before they are read."""
    steps = range(len(found.steps))
    return [
        order
        for order in itertools.permutations(steps)
        if all(order.index(v) < order.index(t) for t in steps for v in found.reads[t])
    ]


@pytest.mark.parametrize("seed", range(12))
def test_no_order_is_below_the_order_bound(seed: int) -> None:
    found = layered(7, seed)
    best = min(max(replay(found, order)) for order in orders(found))
    assert floor(found).bytes <= order_bound(found).bytes <= best


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_no_plan_is_below_either(graph: TrainableGraph, in_place: bool, parallelism: int) -> None:
    program = Order().run(derive(graph))
    found = schedule_problem(program, roofline(program), in_place=in_place)
    planned = Aliases(in_place).run(Levels(parallelism).run(program))
    assert floor(found).bytes <= order_bound(found).bytes <= max(loads(planned)[0])
