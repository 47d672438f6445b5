"""The proof of plans with repeated steps: each way to get recomputation wrong is named without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from solver.graph import TrainableGraph
from solver.passes import Order
from solver.pipeline import plan, reference_of
from solver.plan import PlanOptions
from solver.program import Access, Binding, Program
from solver.schedules import rerun
from solver.training import derive
from solver.verify import prove
from tests.support.damaged import Subject, moved, settled, with_step_changed
from tests.support.derived import at, rebound, step
from tests.support.graphs import Sketch, batch_normalised
from tests.support.proofs import offset_of
from tests.support.sequence_graphs import classifier
from tests.support.small_plans import placed


def tower(*, dropout: bool = False) -> TrainableGraph:
    s = Sketch("tower")
    h = s.op("Gemm", [s.input("x", 4, 4), s.parameter("w0", 4, 4)], "h0", "fc0")
    h = s.op("Gelu", [h], "a0", "gelu0")
    h = s.op("Dropout", [h], "d0", "drop0", ratio=0.5) if dropout else h
    h = s.op("Gemm", [h, s.parameter("w1", 4, 4)], "h1", "fc1")
    h = s.op("Gelu", [h], "a1", "gelu1")
    h = s.op("Gemm", [h, s.parameter("w2", 4, 2)], "h2", "fc2")
    s.op("MeanSquaredError", [h, s.label("t", 4, 2)], "loss", "mse")
    return s.graph()


def again(program: Program, steps: Sequence[str], before: str) -> Program:
    """The steps run once more, one after the other, in front of step `before`."""
    sequence = list(range(len(program.steps)))
    place = at(program, before)
    sequence[place:place] = [at(program, label) for label in steps]
    return rerun(program, sequence)


def subject(graph: TrainableGraph, steps: Sequence[str], before: str) -> Subject:
    reference = derive(graph)
    return Subject(reference, placed(again(Order().run(reference), steps, before)))


@pytest.fixture
def good() -> Subject:
    """h0 and a0 are made again for the gradient of the layer behind them."""
    found = subject(tower(), ["fc0:forward", "gelu0:forward"], "fc1:calc_gradient")
    assert found.violations(found.plan) == ()
    return found


def test_a_repetition_before_its_input_is_made_again(good: Subject) -> None:
    program = good.plan.program
    early, late = at(program, "fc0:forward.again1"), at(program, "gelu0:forward.again1")
    order = list(range(len(program.steps)))
    order[early], order[late] = late, early
    wrong = placed(program.reordered(order))
    assert ("h0@again1",) in good.named(wrong, "undefined")


def test_a_repetition_behind_the_update_of_its_weight() -> None:
    """The loss once more at the end, from a weight that has moved: not what the reference leaves."""
    reference = derive(tower())
    program = Order().run(reference)
    late = [at(program, "fc2:forward"), at(program, "mse:forward")]
    made = rerun(program, [*range(len(program.steps)), *late])
    assert prove(reference, placed(made)) == ()
    other = made.by_label["loss@again1"]
    exits = tuple(replace(e, value=other) if e.value == made.by_label["loss"] else e for e in made.exit)
    found = Subject(reference, placed(replace(made, exit=exits)))
    assert found.named(found.plan, "value") == {("loss@again1",)}


def test_a_reader_that_takes_the_instance_that_is_gone(good: Subject) -> None:
    """Its bytes hold something else by now: that is what the first one was dropped for."""
    reader = step(good.plan.program, "fc1:calc_gradient")
    slot = next(b.slot for b in reader.bindings if b.value == good.plan.program.by_label["a0@again1"])
    first = good.plan.program.by_label["a0"]
    wrong = with_step_changed(good.plan, "fc1:calc_gradient", lambda s: rebound(s, slot, value=first))
    # In its old place, where the value of another step has been written since.
    taken = moved(wrong, "a0", offset_of(wrong, "h1"))
    assert good.rules(taken) & {"undefined", "value", "overlap"}


def test_a_repetition_that_writes_over_what_is_still_read(good: Subject) -> None:
    offset = offset_of(good.plan, "a1")
    assert good.rules(moved(good.plan, "h0@again1", offset)) <= {"undefined", "value", "overlap"}
    assert good.rules(moved(good.plan, "h0@again1", offset))


def test_a_repetition_of_another_step(good: Subject) -> None:
    program = good.plan.program
    other = step(program, "fc1:forward").reference
    wrong = with_step_changed(good.plan, "fc0:forward.again1", lambda s: replace(s, reference=other))
    assert "attributes or condition differ" in good.said(wrong, "step")


@pytest.mark.parametrize(("slot", "label"), [("x3", "mean"), ("x4", "variance")])
def test_running_statistics_that_move_twice(slot: str, label: str) -> None:
    found = subject(batch_normalised(), ["norm:forward"], "relu:calc_derivative")
    assert found.violations(found.plan) == ()
    first = {b.slot: b for b in step(found.plan.program, "norm:forward").bindings}
    changes = {"value": first[slot].value, "access": Access.UPDATE}
    twice = with_step_changed(found.plan, "norm:forward.again1", lambda s: rebound(s, slot, **changes))
    assert (label,) in found.named(twice, "value")


def test_a_co_output_that_is_written_over() -> None:
    """The first state of a cell is still to be read when its gates are made again."""
    reference = derive(classifier())
    cell = next(
        label
        for t, label in enumerate(reference.step_labels)
        if reference.kernel(reference.steps[t]) == "LSTMCell" and label.endswith(":forward")
    )
    seed = next(label for label in reference.step_labels if label.endswith(".seed"))
    found = subject(classifier(), [cell], seed)
    assert found.violations(found.plan) == ()
    program = found.plan.program
    written = [b for b in step(program, f"{cell}.again1").bindings if b.access is Access.WRITE]
    other = next(v for v in program.values if v.label.endswith("loss"))
    for binding in written:
        label = program.values[binding.value].label
        wrong = moved(found.plan, label, offset_of(found.plan, other.label))
        assert found.rules(wrong)


def test_a_mask_that_is_drawn_for_another_operation() -> None:
    """Dropout is keyed by its operation: a repetition under another one would draw another mask."""
    found = subject(tower(dropout=True), ["drop0:forward"], "fc1:calc_gradient")
    assert found.violations(found.plan) == ()
    program = found.plan.program
    node = program.operations[step(program, "drop0:forward").operation]
    other = replace(node, operation=replace(node.operation, id="drop1"))
    program = replace(program, operations=(*program.operations, other))
    wrong = with_step_changed(
        replace(found.plan, program=program),
        "drop0:forward.again1",
        lambda s: replace(s, operation=len(program.operations) - 1),
    )
    assert "attributes or condition differ" in found.said(wrong, "step")


def test_scratch_of_another_budget(good: Subject) -> None:
    """Other chunks are other roundings."""
    program = good.plan.program
    node = program.operations[step(program, "fc0:forward").operation]
    program = replace(program, operations=(*program.operations, replace(node, scratch_budget=1)))
    wrong = with_step_changed(
        replace(good.plan, program=program),
        "fc0:forward.again1",
        lambda s: replace(s, operation=len(program.operations) - 1),
    )
    assert "attributes or condition differ" in good.said(wrong, "step")


def test_a_repetition_at_another_residue(good: Subject) -> None:
    number = good.plan.program.by_label["h0@again1"]
    offsets = tuple(o + 16 if k == number else o for k, o in enumerate(good.plan.offsets))
    spaces = tuple(replace(space, alignment=16) for space in good.plan.program.spaces)
    program = replace(good.plan.program, spaces=spaces)
    wrong = settled(replace(good.plan, offsets=offsets, program=program))
    assert good.rules(wrong) & {"residue", "overlap", "place"}


def test_a_first_run_that_is_left_out(good: Subject) -> None:
    program = good.plan.program
    order = [t for t in range(len(program.steps)) if t != at(program, "fc0:forward")]
    wrong = placed(program.reordered(order))
    assert good.rules(wrong) & {"undefined", "value"}


def test_a_repetition_in_place_of_what_it_reads(good: Subject) -> None:
    """An alias that the operator does not promise, for a step that runs again as for any other."""
    program = good.plan.program
    source = next(b for b in step(program, "fc0:forward.again1").bindings if b.slot == "x0")
    bound = Binding("y0", source.value, Access.WRITE)
    wrong = with_step_changed(
        good.plan,
        "fc0:forward.again1",
        lambda s: replace(s, bindings=tuple(bound if b.slot == "y0" else b for b in s.bindings)),
    )
    assert good.rules(wrong)


def test_a_size_below_what_the_steps_need() -> None:
    graph = tower()
    made = plan(graph, PlanOptions(capacity=plan(graph).arena_bytes - 64, recompute=True))
    found = Subject(reference_of(graph, made.options), made)
    assert found.violations(made) == ()
    small = replace(made, sizes=(made.sizes[0] - 64,))
    assert found.rules(small) & {"place", "size", "certificate", "bound"}
