"""Repeated steps: new values, latest readers, scratch of their own, statistics that move once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from solver.program import Access, Kind, Program
from solver.schedules import rerun
from solver.training import derive
from solver.verify import prove
from tests.support.derived import at, reads, scratch, step, writes
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional
from tests.support.operator_graphs import recurrent
from tests.support.sequence_graphs import classifier
from tests.support.small_plans import placed


def with_repetition(program: Program, label: str, before: str) -> Program:
    """Step `label` once more in front of step `before`."""
    sequence = list(range(len(program.steps)))
    sequence.insert(at(program, before), at(program, label))
    return rerun(program, sequence)


def test_a_sequence_without_repetitions_is_the_program_itself() -> None:
    program = derive(chain())
    assert rerun(program, range(len(program.steps))) is program


def test_a_repetition_writes_a_new_value_that_later_steps_read() -> None:
    program = derive(chain())
    again = with_repetition(program, "fc1:forward", "fc2:calc_gradient")
    found = step(again, "fc1:forward.again1")
    assert writes(again, found) == ["h1@again1"]
    assert found.reference == at(program, "fc1:forward")
    first = step(again, "fc1:forward")
    assert writes(again, first) == ["h1"]
    for t, each in enumerate(again.steps):
        latest = "h1" if t <= at(again, "fc1:forward.again1") else "h1@again1"
        assert {label for label in reads(again, each) if label.startswith("h1")} <= {latest, "h1@grad"}
    assert [s.level for s in again.steps] == list(range(len(again.steps)))


def test_runs_are_counted() -> None:
    program = derive(chain())
    t = at(program, "fc1:forward")
    again = rerun(program, [*range(3), t, t, *range(3, len(program.steps))])
    assert again.step_labels[3:5] == ("fc1:forward.again1", "fc1:forward.again2")
    assert writes(again, again.steps[4]) == ["h1@again2"]


def test_a_repetition_reads_the_latest_of_what_was_repeated() -> None:
    program = derive(chain((4, 4, 4, 4), 2))
    backward = at(program, "loss:calc_derivative.seed")
    sequence = [*range(backward), 0, 1, *range(backward, len(program.steps))]
    again = rerun(program, sequence)
    second = again.steps[backward + 1]
    assert writes(again, again.steps[backward])[0] in reads(again, second)


def test_scratch_is_its_own() -> None:
    program = derive(convolutional())
    again = with_repetition(program, "conv1:forward", "cce:forward")
    labels = scratch(program, step(program, "conv1:forward"))
    assert labels
    found = scratch(again, step(again, "conv1:forward.again1"))
    assert found == [f"{label}@again1" for label in labels]
    assert all(again.values[again.by_label[label]].kind is Kind.SCRATCH for label in found)


def test_running_statistics_move_once() -> None:
    program = derive(batch_normalised())
    again = with_repetition(program, "norm:forward", "mse:forward")
    found = {b.slot: b for b in step(again, "norm:forward.again1").bindings}
    for slot, label in (("x3", "mean"), ("x4", "variance")):
        assert found[slot].access is Access.SCRATCH
        value = again.values[found[slot].value]
        assert (value.label, value.kind) == (f"{label}@again1", Kind.SCRATCH)


def test_results_beside_the_wanted_one_are_new_too() -> None:
    """The gates and states of a cell: nothing writes over what is still there."""
    program = derive(classifier())
    label = next(
        label
        for t, label in enumerate(program.step_labels)
        if program.kernel(program.steps[t]) == "LSTMCell" and label.endswith(":forward")
    )
    again = with_repetition(program, label, "loss:calc_derivative.seed")
    before = writes(program, step(program, label))
    assert len(before) > 1
    assert writes(again, step(again, f"{label}.again1")) == [f"{found}@again1" for found in before]


@pytest.mark.parametrize("slots", [("a", "b"), ("b", "a")])
def test_the_order_of_values_is_that_of_the_sequence(slots: Sequence[str]) -> None:
    s = Sketch("two")
    x = s.input("x", 2, 2)
    for name in slots:
        s.op("Gemm", [x, s.parameter(f"w{name}", 2, 2)], name, f"fc{name}")
    s.op("MeanSquaredError", [s.op("Add", list(slots), "sum"), s.label("t", 2, 2)], "loss")
    program = derive(s.graph())
    again = rerun(program, [0, 1, 0, 1, *range(2, len(program.steps))])
    assert [v.label for v in again.values[len(program.values) :]] == [f"{name}@again1" for name in slots]


@pytest.mark.parametrize("graph", [chain(), convolutional(), batch_normalised(), recurrent(), classifier()])
def test_what_runs_again_in_front_of_the_backward_pass_is_proved(graph: object) -> None:
    program = derive(graph)  # type: ignore[arg-type]  # a graph, through parametrize
    seed = next(t for t, label in enumerate(program.step_labels) if label.endswith(".seed"))
    for t in range(seed - 1):
        again = rerun(program, [*range(seed), t, *range(seed, len(program.steps))])
        assert prove(program, placed(again)) == ()
