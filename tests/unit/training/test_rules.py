"""What training rules make of a program: steps, operands, lifetimes, and orders that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.errors import UseBeforeDefError
from solver.graph import DType, Graph, TrainingRules
from solver.liveness import lifespans, verify_program
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.schedule import training_program
from solver.training import (
    ACCUMULATE,
    CLIP,
    SEED,
    UPDATE,
    Lifetime,
    OperandKind,
    TrainingOperandIndex,
    TrainingProgram,
    TrainingStep,
    derive,
)
from tests.support.graphs import chain, residual

CLIPPED = TrainingRules(clip_global_norm=1.0)
IN_THREE = TrainingRules(accumulate=3)


def ordered(graph: Graph, update: str = "immediate") -> TrainingProgram:
    return training_program(graph, scratch_budget=1 << 20, update=update)


def kernels(program: TrainingProgram) -> list[str]:
    return [step.kernel for step in program.steps]


def updates(program: TrainingProgram) -> list[TrainingStep]:
    return [step for step in program.steps if step.kernel == UPDATE]


def gradient(weight: str) -> TrainingOperandIndex:
    return TrainingOperandIndex(weight, is_forward=False)


# ------------------------------------------------------------------------------------------- clipping


def test_one_step_reads_all_gradients_and_every_update_reads_what_it_defines() -> None:
    graph = residual(training=CLIPPED)
    program = derive(graph)
    (clip,) = [step for step in program.steps if step.kernel == CLIP]
    assert str(clip.index) == "loss:apply_gradient.clip"
    assert [str(i) for i in clip.uses] == [f"{weight}@grad" for weight in graph.trainable]
    assert [str(i) for i in clip.defs] == ["loss@factor"]
    assert program.operands[clip.defs[0]].type.nbytes == 8
    for step in updates(program):
        assert clip.defs[0] in step.uses
    verify_program(program)


@pytest.mark.parametrize("graph", [chain((6, 5, 4, 3), training=CLIPPED), residual(training=CLIPPED)])
def test_updates_stay_behind_the_clipping_in_every_mode(graph: Graph) -> None:
    for update in ("immediate", "end"):
        order = kernels(ordered(graph, update))
        assert order.index(CLIP) < order.index(UPDATE)
        assert set(order[order.index(CLIP) + 1 :]) == {UPDATE}


def test_gradients_live_until_their_update() -> None:
    program = ordered(chain((6, 5, 4, 3), training=CLIPPED))
    spans, position = lifespans(program), {str(s.index): t for t, s in enumerate(program.steps)}
    for weight in ("w1", "w3", "b2"):
        assert spans[gradient(weight)].end == position[f"{weight}:apply_gradient"] + 1


def test_an_update_before_the_clipping_is_refused() -> None:
    program = derive(chain(training=CLIPPED))
    clip = kernels(program).index(CLIP)
    steps = list(program.steps)
    steps[clip], steps[clip + 1] = steps[clip + 1], steps[clip]
    with pytest.raises(UseBeforeDefError, match="'loss@factor' before any step defines it"):
        verify_program(replace(program, steps=tuple(steps)))


def test_clipping_costs_memory() -> None:
    """All gradients live at once; the plan says what that takes."""
    graph = chain((64, 64, 64, 64))
    free, clipped = (plan(replace(graph, training=rules)) for rules in (TrainingRules(), CLIPPED))
    assert clipped.lower_bound > free.lower_bound


# ---------------------------------------------------------------------------------------- loss scaling


def test_loss_scaling_adds_no_step_but_a_block_of_scratch() -> None:
    plain, scaled = derive(chain()), derive(chain(training=TrainingRules(loss_scale=1024.0)))
    assert kernels(plain) == kernels(scaled)
    slots = [[b.slot for b in updates(program)[0].scratch] for program in (plain, scaled)]
    assert set(slots[1]) - set(slots[0]) == {"scaled_gradient"}


def test_rules_that_say_nothing_change_nothing() -> None:
    assert derive(residual(training=TrainingRules(loss_scale=1.0, accumulate=1))) == derive(residual())


# ---------------------------------------------------------------------------------------- accumulation


def test_gradients_carry_over_and_every_definition_of_one_is_added() -> None:
    program = ordered(residual(training=IN_THREE))
    verify_program(program)
    for weight in residual().trainable:
        operand = program.operands[gradient(weight)]
        assert (operand.kind, operand.lifetime) == (OperandKind.GRADIENT, Lifetime.MAX)
        assert operand.is_defined_by_caller
        writers = [step.kernel for step in program.steps if operand.index in step.defs]
        assert set(writers) == {ACCUMULATE, UPDATE}
        assert writers[-1] == UPDATE


def test_tied_weights_have_a_partial_for_each_reader() -> None:
    program = derive(residual(training=IN_THREE))
    partials = [o.id for o in program.operands.values() if o.kind is OperandKind.PARTIAL and o.origin == "w2"]
    assert partials == ["w2@fc2b.1@grad", "w2@fc2.1@grad"]


def test_partials_live_over_two_neighbouring_steps() -> None:
    program = ordered(chain((6, 5, 4, 3), training=IN_THREE))
    spans = lifespans(program)
    partials = [i for i, o in program.operands.items() if o.kind is OperandKind.PARTIAL]
    assert len(partials) == 6
    assert max(spans[i].end - spans[i].start for i in partials) <= 3, "weight and bias come from one step"


def test_accumulated_gradients_are_held_throughout() -> None:
    made = plan(chain(training=IN_THREE), PlanOptions(update="end"))
    found = [b for _, b in made.buffers() if b.kind is OperandKind.GRADIENT]
    assert len(found) == 4
    assert {(b.lifespan.start, b.lifespan.end) for b in found} == {(0, len(made.steps))}


# ---------------------------------------------------------------------------------------------- skipping


def test_where_updates_may_be_left_out_they_are_counted_in_memory() -> None:
    program = derive(chain(training=TrainingRules(skip_non_finite=True)))
    counter = program.operands[TrainingOperandIndex("loss@updates")]
    assert (counter.type.dtype, counter.type.shape, counter.lifetime) == (DType.INT64, (), Lifetime.MAX)
    (clip,) = [step for step in program.steps if step.kernel == CLIP]
    assert counter.index in clip.uses
    assert counter.index in clip.defs
    assert all(counter.index in step.uses and counter.index not in step.defs for step in updates(program))


def test_without_trainables_there_are_no_gradients_to_speak_of() -> None:
    rules = TrainingRules(clip_global_norm=1.0, loss_scale=8.0, accumulate=2, skip_non_finite=True)
    program = derive(chain(trainable=0, training=rules))
    assert {SEED, CLIP, UPDATE, ACCUMULATE}.isdisjoint(kernels(program))
