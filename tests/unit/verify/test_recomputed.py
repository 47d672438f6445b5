"""The proof of plans with repeated steps: each way to get recomputation wrong is named without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from solver.accounting import is_copy, paging_problem
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import Order
from solver.pipeline import plan, reference_of
from solver.plan import PlanOptions
from solver.program import Access, Binding, Program, Tier, loads
from solver.schedules import rerun
from solver.training import derive
from solver.verify import prove
from solver.verify.figures import once, unpaged
from tests.support.damaged import Subject, moved, settled, with_step_changed
from tests.support.derived import at, rebound, step
from tests.support.graphs import Sketch, batch_normalised, tower
from tests.support.operator_graphs import attention
from tests.support.proofs import offset_of
from tests.support.sequence_graphs import classifier
from tests.support.small_plans import placed
from tests.support.usual_networks import residual_with_statistics


def gelu_tower(*, dropout: bool = False) -> TrainableGraph:
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
    found = subject(gelu_tower(), ["fc0:forward", "gelu0:forward"], "fc1:calc_gradient")
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
    reference = derive(gelu_tower())
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
    found = subject(gelu_tower(dropout=True), ["drop0:forward"], "fc1:calc_gradient")
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
    graph = gelu_tower()
    made = plan(graph, PlanOptions(capacity=plan(graph).arena_bytes - 64, recompute=True))
    found = Subject(reference_of(graph, made.options), made)
    assert found.violations(made) == ()
    small = replace(made, sizes=(made.sizes[0] - 64,))
    assert found.rules(small) & {"place", "size", "certificate", "bound"}


# -------------------------------------------------------------------------------------- the program of before


NETWORKS: dict[str, Callable[[], TrainableGraph]] = {
    "tower": partial(tower, 6, outputs=("h1",), optimizer="Adam"),
    "micro-batches": partial(tower, 6, training=TrainingRules(accumulate=2)),
    "attention": attention,
    "statistics": residual_with_statistics,
}


def idle(program: Program) -> Counter[tuple[str, int, int, int]]:
    return Counter((g.kind.value, g.start, g.end, g.size) for g in paging_problem(program, 0).gaps)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("name", NETWORKS)
def test_without_copies_each_value_lives_and_waits_as_before(name: str, share: float) -> None:
    """Fed values wait in both memories from the start, carried values in either of them."""
    graph = NETWORKS[name]()
    program = Order().run(reference_of(graph, PlanOptions()))
    low, peak = paging_problem(program, 0).smallest, max(loads(program)[0])
    size = low + int(share * (peak - low))
    slow = Tier("slow", 2**24, 10**9, 10**9)
    made = plan(graph, PlanOptions(tiers=(Tier("fast", size + size // 20), slow)))
    assert any(is_copy(made.program, step) for step in made.program.steps)
    before = unpaged(made.program)
    assert loads(before)[0] == loads(program)[0]
    assert idle(before) == idle(program)


def test_without_repetitions_the_order_is_that_of_first_runs() -> None:
    graph = tower(6)
    program = Order().run(reference_of(graph, PlanOptions()))
    made = plan(graph, PlanOptions(capacity=max(loads(program)[0]) * 3 // 4, recompute=True))
    assert any(made.program.runs)
    first = once(reference_of(graph, made.options), made)
    assert first.step_labels == program.step_labels
    assert loads(first) == loads(program)
