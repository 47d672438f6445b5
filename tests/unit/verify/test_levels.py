"""Plans for several workers: every claim about waves is checked, and every corruption is named."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver.layout.model.problem import Lifespan
from solver.pipeline import plan, plan_program
from solver.plan import Plan, PlannedBuffer, PlanOptions, verify
from tests.support.graphs import convolutional, residual
from tests.support.programs import program


@pytest.fixture(scope="module")
def good() -> Plan:
    return plan(residual(), PlanOptions(parallelism=3))


def rules(found: Plan) -> set[str]:
    return {violation.rule for violation in verify(found)}


def with_wave(found: Plan, step: str, wave: int | None) -> Plan:
    return replace(found, steps=tuple(replace(s, wave=wave) if s.id == step else s for s in found.steps))


def with_buffer(found: Plan, name: str, **changes: object) -> Plan:
    buffers = tuple(
        replace(b, **changes) if b.id == name else b  # type: ignore[arg-type]  # passed on as it came
        for b in found.arenas[0].buffers
    )
    size = max(b.end for b in buffers)
    return replace(found, arenas=(replace(found.arenas[0], buffers=buffers, size=size),))


@pytest.mark.parametrize("workers", [2, 3, 4, 64])
def test_right_plans_have_no_violations(workers: int) -> None:
    assert verify(plan(residual(), PlanOptions(parallelism=workers))) == ()
    assert verify(plan(convolutional(), PlanOptions(parallelism=workers, solver="bump"))) == ()


def test_two_dependent_steps_moved_into_one_wave(good: Plan) -> None:
    """h2 is written by fc2 and read by join; whatever else breaks, the two are named."""
    fc2 = next(s for s in good.steps if s.id == "fc2:forward")
    found = [v for v in verify(with_wave(good, "join:forward", fc2.wave)) if v.rule == "wave"]
    assert any(v.buffers == ("h2",) and "in the same wave" in v.detail for v in found)


def test_every_dependent_pair_moved_together_is_found(good: Plan) -> None:
    """Neighbours in the order, one of which writes what the other touches."""
    for first, second in zip(good.steps, good.steps[1:], strict=False):
        touched = {*second.uses, *second.defs}
        if first.wave == second.wave or not ({*first.defs} & touched or {*first.uses} & {*second.defs}):
            continue
        assert "wave" in rules(with_wave(good, second.id, first.wave)), (first.id, second.id)


def test_two_steps_that_write_the_same_buffer() -> None:
    made = plan_program(program((("a", "b"), ("c", "d"))), PlanOptions(parallelism=2))
    assert [s.wave for s in made.steps] == [0, 0]
    both = replace(made, steps=(made.steps[0], replace(made.steps[1], defs=("b",))))
    assert ("wave", ("b",)) in {(v.rule, v.buffers) for v in verify(both)}


def test_scratch_of_one_step_used_by_another_of_its_wave(good: Plan) -> None:
    beside = [s for s in good.steps if sum(s.wave == other.wave for other in good.steps) > 1]
    owner = next(s for s in beside if s.scratch)
    other = next(s for s in beside if s.wave == owner.wave and s is not owner)
    thief = replace(other, scratch=(*other.scratch, owner.scratch[0]))
    found = verify(replace(good, steps=tuple(thief if s is other else s for s in good.steps)))
    assert {v.buffers for v in found if v.rule == "wave"} == {(owner.scratch[0],)}


def test_overlapping_scratch_of_concurrent_steps() -> None:
    """Legal one after the other, wrong side by side: the lifespans are the wave's, so the sweep sees it."""
    good = plan(convolutional(), PlanOptions(parallelism=2))
    buffers = {b.id: b for b in good.arenas[0].buffers}
    pairs = [
        (a, b)
        for one in good.steps
        for two in good.steps
        if one.wave == two.wave and one.id < two.id
        for a in one.scratch
        for b in two.scratch
    ]
    assert pairs
    for a, b in pairs:
        found = verify(with_buffer(good, a, offset=buffers[b].offset))
        assert frozenset({a, b}) in {frozenset(v.buffers) for v in found if v.rule == "overlap"}


def test_more_steps_at_once_than_workers(good: Plan) -> None:
    assert rules(replace(good, options=replace(good.options, parallelism=1))) == {"wave"}
    assert rules(replace(good, options=replace(good.options, parallelism=4))) == set()


@pytest.mark.parametrize("wave", [None, 40, 10**18])
def test_waves_that_do_not_count_up(good: Plan, wave: int | None) -> None:
    assert "wave" in rules(with_wave(good, good.steps[-1].id, wave))
    assert "wave" in rules(with_wave(good, good.steps[3].id, wave))


def test_waves_that_go_back(good: Plan) -> None:
    assert "wave" in rules(replace(good, steps=good.steps[::-1]))


def test_a_plan_for_several_workers_without_waves(good: Plan) -> None:
    assert "wave" in rules(replace(good, steps=tuple(replace(s, wave=None) for s in good.steps)))


def test_waves_in_a_plan_for_one_worker() -> None:
    """One step each, counting up, is what a plan without waves means."""
    made = plan(residual())
    assert rules(replace(made, steps=tuple(replace(s, wave=t) for t, s in enumerate(made.steps)))) == set()
    assert "wave" in rules(replace(made, steps=tuple(replace(s, wave=0) for s in made.steps)))


def test_a_lifespan_that_leaves_out_a_wave(good: Plan) -> None:
    h1 = next(b for b in good.arenas[0].buffers if b.id == "h1")
    shorter = Lifespan(h1.lifespan.start, h1.lifespan.end - 1)
    found = [v for v in verify(with_buffer(good, "h1", lifespan=shorter)) if v.rule == "lifespan"]
    assert found[0].detail.startswith(f"Wave {shorter.end} ")


def test_a_lifespan_counted_in_steps_is_too_long(good: Plan) -> None:
    weight = next(b for b in good.arenas[0].buffers if b.id == "w1")
    assert weight.lifespan == Lifespan(0, good.duration)
    assert "lifespan" in rules(with_buffer(good, "w1", lifespan=Lifespan(0, len(good.steps))))


def test_every_one_of_five_hundred_moves_onto_live_bytes_is_named(good: Plan) -> None:
    rng = random.Random(11)
    buffers = good.arenas[0].buffers
    moves = 0
    while moves < 500:
        buffer = rng.choice(buffers)
        offset = rng.randrange(0, good.arena_bytes - buffer.size + 1, buffer.alignment)
        if any(_meets(buffer, offset, other) for other in buffers):
            moves += 1
            found = verify(with_buffer(good, buffer.id, offset=offset))
            assert any(v.rule == "overlap" and buffer.id in v.buffers for v in found)


def _meets(buffer: PlannedBuffer, offset: int, other: PlannedBuffer) -> bool:
    apart = offset >= other.end or other.offset >= offset + buffer.size
    return other.id != buffer.id and buffer.lifespan.overlaps(other.lifespan) and not apart
