"""The arrays of a program: sizes, what is fixed, and which steps may run again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.accounting import ScheduleProblem, roofline, schedule_problem
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import Order
from solver.program import Phase, Program, loads
from solver.schedules.recompute.simulate import replay
from solver.training import derive
from tests.support.derived import at
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention, elementwise, recurrent
from tests.support.schedule_problems import problem

GRAPHS = [
    chain(),
    residual(),
    convolutional(),
    batch_normalised(),
    attention(),
    elementwise(),
    recurrent(),
    chain(training=TrainingRules(accumulate=2, clip_global_norm=0.5)),
]


def of(program: Program, *, in_place: bool = False) -> ScheduleProblem:
    return schedule_problem(program, roofline(program), in_place=in_place)


def repeatable(program: Program) -> set[str]:
    found = of(program)
    return {label for label, until in zip(found.steps, found.until, strict=True) if until >= 0}


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_the_load_of_the_given_order_is_that_of_the_program(graph: TrainableGraph) -> None:
    program = Order().run(derive(graph))
    assert replay(of(program), tuple(range(len(program.steps)))) == loads(program)[0]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_only_forward_steps_run_again(graph: TrainableGraph) -> None:
    program = Order().run(derive(graph))
    found = of(program)
    for step, until in zip(program.steps, found.until, strict=True):
        assert until < 0 or step.phase is Phase.FORWARD
    assert {found.maker[v] for t, row in enumerate(found.writes) for v in row if found.until[t] >= 0} <= {
        t for t, until in enumerate(found.until) if until >= 0
    }


def test_what_writes_a_result_runs_once() -> None:
    program = derive(convolutional())  # `f` is an output
    assert "fc:forward" not in repeatable(program)
    assert "cce:forward" not in repeatable(program)
    assert {"conv1:forward", "flatten:forward"} <= repeatable(program)


def test_a_normalisation_that_trains_runs_again_because_its_result_ignores_what_it_updates() -> None:
    assert "norm:forward" in repeatable(derive(batch_normalised()))
    assert "norm:forward" in repeatable(derive(batch_normalised(mode=0)))


def test_a_weight_that_an_update_has_changed_ends_what_reads_it() -> None:
    """A repetition in front of the update finds the weight of the first run; behind it, another one."""
    program = Order().run(derive(chain()))
    found = of(program)
    assert found.until[at(program, "fc1:forward")] == at(program, "w1:apply_gradient")
    late = Order("end").run(derive(chain()))
    assert of(late).until[at(late, "fc1:forward")] == at(late, "w1:apply_gradient")


def test_tied_weights_end_all_their_readers_at_once() -> None:
    s = Sketch("tied")
    w = s.parameter("w", 4, 4)
    h = s.op("Gemm", [s.input("x", 2, 4), w], "h", "first")
    h = s.op("Relu", [h], "a", "relu")
    h = s.op("Gemm", [h, w], "y", "second")
    s.op("MeanSquaredError", [h, s.label("t", 2, 4)], "loss")
    program = Order().run(derive(s.graph()))
    found = of(program)
    update = at(program, "w:apply_gradient")
    assert found.until[at(program, "first:forward")] == found.until[at(program, "second:forward")] == update
    assert found.until[at(program, "relu:forward")] == len(program.steps)


def test_weights_optimizer_variables_and_carried_gradients_are_fixed() -> None:
    program = derive(chain((4, 2), 2, optimizer="Adam", training=TrainingRules(accumulate=2)))
    found = of(program)
    fixed = {"w1", "b1", "w1@grad", "b1@grad", "w1@first_moment", "b1@first_moment"}
    assert not fixed & set(found.values)
    assert found.fixed >= 64 * len(fixed)


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    program = derive(chain((4, 2), 2))
    wide = replace(program, spaces=(replace(program.spaces[0], alignment=1024),))
    assert set(of(wide).size) == {1024}


def test_values_that_may_share_bytes_have_one_number() -> None:
    program = derive(convolutional())
    found = of(program, in_place=True)
    root = dict(zip(found.values, found.together, strict=True))
    assert root["d"] == root["e"]  # Reshape
    assert root["a"] != root["d"]
    assert of(program).together == tuple(range(len(found.values)))


def test_of_values_that_share_bytes_the_largest_is_counted() -> None:
    """Of two that are as large the first one."""
    shared = replace(problem([[], [0], [1], [2]], size=[10, 20, 20, 5], cost=[1] * 4), together=(0, 0, 0, 3))
    assert shared.counted == {1, 3}
