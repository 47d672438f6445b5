"""Where updates stand: at once where that is legal, else after the last reader."""

from __future__ import annotations

from collections import Counter

import pytest

from solver.errors import OptionsError
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import UPDATE_MODES, Order
from solver.program import UPDATE, Program, check_program, loads
from solver.training import derive
from tests.support.graphs import batch_normalised, chain, convolutional, residual

GRAPHS = [chain((9, 9, 9, 9)), residual(), convolutional(), batch_normalised()]


def ordered(graph: TrainableGraph, update: str = "immediate") -> Program:
    return Order(update).run(derive(graph))


def ids(found: Program) -> list[str]:
    return list(found.step_labels)


def test_an_update_follows_the_last_reader_of_its_weight() -> None:
    assert ids(ordered(chain()))[5:] == [
        "fc2:calc_gradient", "b2:apply_gradient", "fc2:calc_derivative", "w2:apply_gradient",
        "fc1:calc_gradient", "w1:apply_gradient", "b1:apply_gradient",
    ]  # fmt: skip


def test_a_tied_weight_waits_for_all_its_readers() -> None:
    names = ids(ordered(residual()))
    update = names.index("w2:apply_gradient")
    assert update > names.index("fc2:calc_gradient.accumulate1")
    assert update > names.index("fc2:calc_derivative")


def test_at_the_end_means_after_the_backward_pass() -> None:
    names = ids(ordered(residual(), "end"))
    assert all(name.endswith("apply_gradient") for name in names[-4:])


def test_at_the_end_is_the_order_of_the_reference() -> None:
    program = derive(residual())
    assert Order("end").run(program) is program


@pytest.mark.parametrize("graph", GRAPHS)
def test_immediate_updates_never_need_more_memory(graph: TrainableGraph) -> None:
    bounds = [max(loads(ordered(graph, mode))[0]) for mode in ("immediate", "end")]
    assert bounds[0] <= bounds[1]


@pytest.mark.parametrize("training", [None, TrainingRules(clip_global_norm=1.0), TrainingRules(accumulate=2)])
@pytest.mark.parametrize("graph", [chain, residual])
def test_steps_and_all_else_stay_what_they_are(graph: object, training: TrainingRules | None) -> None:
    program = derive(graph(training=training))  # type: ignore[operator]  # a function that makes a graph
    found = Order().run(program)
    check_program(found)
    assert Counter(step.reference for step in found.steps) == Counter(range(len(program.steps)))
    for t, step in enumerate(found.steps):
        assert step.reference is not None
        wanted = program.steps[step.reference]
        assert (step.operation, step.bindings, step.due) == (wanted.operation, wanted.bindings, wanted.due)
        assert (step.level, step.until) == (t, t)
    assert (found.values, found.entry, found.exit) == (program.values, program.entry, program.exit)


@pytest.mark.parametrize("graph", GRAPHS)
def test_all_but_updates_keep_their_order(graph: TrainableGraph) -> None:
    program = derive(graph)
    found = Order().run(program)
    others = [s.reference for s in found.steps if found.kernel(s) != UPDATE]
    assert others == [s.reference for s in program.steps if program.kernel(s) != UPDATE]


def test_the_facts_say_how_many_steps_moved() -> None:
    program = derive(chain())
    found = Order().run(program)
    moved = sum(before != after for before, after in zip(ids(program), ids(found), strict=True))
    assert Order().facts(program, found) == {"update": "immediate", "steps_moved": moved}
    assert Order("end").facts(program, program) == {"update": "end", "steps_moved": 0}


def test_an_unknown_mode_is_an_option_error() -> None:
    with pytest.raises(OptionsError, match="update mode 'later'") as caught:
        Order("later")
    assert caught.value.path == ("update",)
    assert caught.value.remedy == f"Choose one of {', '.join(UPDATE_MODES)}."
