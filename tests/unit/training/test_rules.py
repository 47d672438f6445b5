"""The program under training rules: steps, values, entry and exit, and orders that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.errors import UseBeforeDefError
from solver.graph import DType, TrainableGraph, TrainingRules
from solver.passes import Order
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import (
    ACCUMULATE,
    CLIP,
    SEED,
    UPDATE,
    Access,
    EntryKind,
    Kind,
    Program,
    Step,
    check_program,
    lives,
)
from solver.training import derive
from tests.support.derived import at, entries, exits, reads, slots, with_steps, writes
from tests.support.graphs import chain, residual

CLIPPED = TrainingRules(clip_global_norm=1.0)
IN_THREE = TrainingRules(accumulate=3)


def ordered(graph: TrainableGraph, update: str = "immediate") -> Program:
    return Order(update).run(derive(graph))


def kernels(program: Program) -> list[str]:
    return [program.kernel(step) for step in program.steps]


def updates(program: Program) -> list[Step]:
    return [step for step in program.steps if program.kernel(step) == UPDATE]


def clipping(program: Program) -> Step:
    (found,) = [step for step in program.steps if program.kernel(step) == CLIP]
    return found


# ------------------------------------------------------------------------------------------- clipping


def test_one_step_reads_all_gradients_and_every_update_reads_what_it_defines() -> None:
    graph = residual(training=CLIPPED)
    program = derive(graph)
    clip = clipping(program)
    assert program.step_labels[program.steps.index(clip)] == "loss:apply_gradient.clip"
    assert reads(program, clip) == [f"{weight}@grad" for weight in graph.trainable]
    assert writes(program, clip) == ["loss@factor"]
    assert program.values[program.by_label["loss@factor"]].type.nbytes == 8
    for step in updates(program):
        assert "loss@factor" in reads(program, step)
    check_program(program)


@pytest.mark.parametrize("graph", [chain((6, 5, 4, 3), training=CLIPPED), residual(training=CLIPPED)])
def test_updates_stay_behind_the_clipping_in_every_mode(graph: TrainableGraph) -> None:
    for update in ("immediate", "end"):
        order = kernels(ordered(graph, update))
        assert order.index(CLIP) < order.index(UPDATE)
        assert set(order[order.index(CLIP) + 1 :]) == {UPDATE}


def test_gradients_live_until_their_update() -> None:
    program = ordered(chain((6, 5, 4, 3), training=CLIPPED))
    spans = lives(program)
    for weight in ("w1", "w3", "b2"):
        update = at(program, f"{weight}:apply_gradient")
        assert spans[program.by_label[f"{weight}@grad"]].end == update + 1


def test_an_update_before_the_clipping_is_refused() -> None:
    program = derive(chain(training=CLIPPED))
    clip = kernels(program).index(CLIP)
    steps = list(program.steps)
    steps[clip], steps[clip + 1] = steps[clip + 1], steps[clip]
    with pytest.raises(UseBeforeDefError, match="'loss@factor' before any step defines it"):
        check_program(with_steps(program, steps))


def test_clipping_costs_memory() -> None:
    """All gradients live at once; the plan says what that takes."""
    graph = chain((64, 64, 64, 64))
    free, clipped = (plan(graph.with_spec(rules=rules)) for rules in (TrainingRules(), CLIPPED))
    assert clipped.lower_bound > free.lower_bound


# ---------------------------------------------------------------------------------------- loss scaling


def test_loss_scaling_adds_no_step_but_a_block_of_scratch() -> None:
    plain, scaled = derive(chain()), derive(chain(training=TrainingRules(loss_scale=1024.0)))
    assert kernels(plain) == kernels(scaled)
    blocks = [set(slots(updates(program)[0], Access.SCRATCH)) for program in (plain, scaled)]
    assert blocks[1] - blocks[0] == {"scaled_gradient"}


def test_rules_that_say_nothing_change_nothing() -> None:
    assert derive(residual(training=TrainingRules(loss_scale=1.0, accumulate=1))) == derive(residual())


# ---------------------------------------------------------------------------------------- accumulation


def test_gradients_carry_over_and_every_definition_of_one_is_added() -> None:
    program = ordered(residual(training=IN_THREE))
    check_program(program)
    for weight in residual().trainable:
        label = f"{weight}@grad"
        assert program.values[program.by_label[label]].kind is Kind.GRADIENT
        assert entries(program)[label] is EntryKind.CARRIED
        assert label in exits(program)
        assert program.by_label[label] not in program.initial, "it begins with zeros"
        writers = [program.kernel(step) for step in program.steps if label in writes(program, step)]
        assert set(writers) == {ACCUMULATE, UPDATE}
        assert writers[-1] == UPDATE


def test_tied_weights_have_a_partial_for_each_reader() -> None:
    program = derive(residual(training=IN_THREE))
    partials = [v.label for v in program.values if v.kind is Kind.PARTIAL and v.origin == "w2"]
    assert partials == ["w2@fc2b.1@grad", "w2@fc2.1@grad"]


def test_partials_live_over_two_neighbouring_steps() -> None:
    program = ordered(chain((6, 5, 4, 3), training=IN_THREE))
    spans = lives(program)
    partials = [i for i, value in enumerate(program.values) if value.kind is Kind.PARTIAL]
    assert len(partials) == 6
    assert max(spans[i].end - spans[i].start for i in partials) <= 3, "weight and bias come from one step"


def test_accumulated_gradients_are_held_throughout() -> None:
    made = plan(chain(training=IN_THREE), PlanOptions(update="end"))
    found = [b for _, b in made.buffers() if b.kind is Kind.GRADIENT]
    assert len(found) == 4
    assert {(b.lifespan.start, b.lifespan.end) for b in found} == {(0, len(made.steps))}


def test_with_micro_batches_the_updates_alone_are_due_in_the_last_one() -> None:
    for rules in (IN_THREE, replace(IN_THREE, clip_global_norm=1.0)):
        program = derive(residual(training=rules))
        assert program.period == 3
        for step in program.steps:
            assert step.due == (program.kernel(step) in (CLIP, UPDATE))
        for update in updates(program):
            assert slots(update, Access.UPDATE)[:2] == ["x0", "dx0"], "the update clears what was added up"


def test_without_micro_batches_an_update_only_reads_its_gradient() -> None:
    for update in updates(derive(residual())):
        assert "dx0" in slots(update, Access.READ)


# ---------------------------------------------------------------------------------------------- skipping


def test_where_updates_may_be_left_out_they_are_counted_in_memory() -> None:
    program = derive(chain(training=TrainingRules(skip_non_finite=True)))
    counter = "loss@updates"
    type_ = program.values[program.by_label[counter]].type
    assert (type_.dtype, type_.shape) == (DType.INT64, ())
    assert entries(program)[counter] is EntryKind.CARRIED
    clip = clipping(program)
    assert counter in reads(program, clip)
    assert counter in writes(program, clip)
    for step in updates(program):
        assert counter in reads(program, step)
        assert counter not in writes(program, step)


def test_without_trainables_there_are_no_gradients_to_speak_of() -> None:
    rules = TrainingRules(clip_global_norm=1.0, loss_scale=8.0, accumulate=2, skip_non_finite=True)
    program = derive(chain(trainable=0, training=rules))
    assert {SEED, CLIP, UPDATE, ACCUMULATE}.isdisjoint(kernels(program))
