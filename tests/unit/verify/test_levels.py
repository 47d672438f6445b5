"""Plans with several steps on a level: what runs at the same time shares bytes only to read them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver.passes import Levels
from solver.plan import Plan, PlanOptions
from solver.program import Access, Program, Region
from solver.training import explicit_program
from tests.support.damaged import Subject, by_hand, moved, on_level, planned, settled, with_options
from tests.support.derived import at, reads, writes
from tests.support.graphs import convolutional, residual
from tests.support.programs import program as explicit
from tests.support.proofs import offset_of


@pytest.fixture(scope="module")
def good() -> Subject:
    return planned(residual(), PlanOptions(parallelism=3))


def roomy(made: Plan) -> Plan:
    """The plan for any number of steps at the same time."""
    return with_options(made, parallelism=64)


@pytest.mark.parametrize("parallelism", [2, 3, 4, 64])
def test_right_plans_have_no_violations(parallelism: int) -> None:
    for graph, solver in ((residual(), "portfolio"), (convolutional(), "bump")):
        found = planned(graph, PlanOptions(parallelism=parallelism, solver=solver))
        assert found.violations(found.plan) == ()


def test_two_dependent_steps_moved_onto_one_level(good: Subject) -> None:
    """h2 is written by fc2 and read by join; whatever else breaks, the two are named."""
    level = good.plan.program.steps[at(good.plan.program, "fc2:forward")].level
    found = good.violations(roomy(on_level(good.plan, "join:forward", level)))
    assert ("level", ("h2", "h2")) in {(v.rule, v.buffers) for v in found}
    assert "Step 'join:forward' touches 'h2' while Step 'fc2:forward' runs" in " ".join(
        v.detail for v in found
    )


def test_every_dependent_pair_moved_together_is_found(good: Subject) -> None:
    """Neighbours in the order, one of which writes what the other touches."""
    program = good.plan.program
    pairs = 0
    for first, second in zip(program.steps, program.steps[1:], strict=False):
        touched = {*reads(program, second), *writes(program, second)}
        written = {*writes(program, first)} & touched or {*reads(program, first)} & {*writes(program, second)}
        if first.level == second.level or not written:
            continue
        pairs += 1
        label = program.step_labels[program.steps.index(second)]
        assert good.rules(roomy(on_level(good.plan, label, first.level))) == {"level"}, label
    assert pairs > 5


def test_two_steps_that_write_the_same_block() -> None:
    made = Levels(2).run(explicit_program(explicit((("a", "b"), ("c", "d")))))
    found = by_hand(made, {"a": 0, "b": 64, "c": 128, "d": 192}, parallelism=2, alignment=64)
    assert [step.level for step in found.plan.program.steps] == [0, 0]
    assert found.violations(found.plan) == ()
    assert found.named(moved(found.plan, "d", 64), "level") == {("b", "d")}
    assert found.named(moved(found.plan, "d", 0), "level") == {("a", "d")}


def test_two_steps_of_a_level_may_read_the_same_bytes() -> None:
    made = Levels(2).run(explicit_program(explicit((("a", "b"), ("a", "d")))))
    found = by_hand(made, {"a": 0, "b": 64, "d": 128}, parallelism=2, alignment=64)
    assert found.plan.program.duration == 1
    assert found.violations(found.plan) == ()


def beside(program: Program) -> list[tuple[int, int]]:
    steps = program.steps
    return [(s, t) for t in range(len(steps)) for s in range(t) if steps[s].level == steps[t].level]


def scratch_of(program: Program, t: int) -> list[str]:
    return [program.values[b.value].label for b in program.steps[t].bindings if b.access is Access.SCRATCH]


def test_overlapping_scratch_of_concurrent_steps() -> None:
    """Legal one after the other, wrong side by side. The smaller is moved, so that it meets nothing else."""
    found = planned(convolutional(), PlanOptions(parallelism=2, solver="bump"))
    program = found.plan.program
    pairs = [
        (a, b) for s, t in beside(program) for a in scratch_of(program, s) for b in scratch_of(program, t)
    ]
    assert pairs
    nbytes = {value.label: value.type.nbytes for value in program.values}
    for pair in pairs:
        a, b = sorted(pair, key=nbytes.__getitem__)
        there = moved(found.plan, a, offset_of(found.plan, b))
        assert {frozenset(names) for names in found.named(there, "level")} == {frozenset(pair)}


def test_scratch_in_bytes_that_another_step_of_its_level_reads() -> None:
    found = planned(convolutional(), PlanOptions(parallelism=2))
    program = found.plan.program
    checked = 0
    for s, t in beside(program):
        for mine, other in ((s, t), (t, s)):
            for scratch in scratch_of(program, mine):
                for label in reads(program, program.steps[other]):
                    there = moved(found.plan, scratch, offset_of(found.plan, label))
                    assert found.rules(there) <= {"level", "overlap"}
                    assert found.rules(there)
                    checked += 1
    assert checked


def test_more_steps_at_once_than_the_plan_says(good: Subject) -> None:
    assert good.rules(with_options(good.plan, parallelism=1)) == {"level"}
    assert good.rules(with_options(good.plan, parallelism=4)) == set()


def test_levels_in_a_plan_for_one_step_at_a_time() -> None:
    found = planned(residual())
    program = found.plan.program
    count = len(program.steps)
    together = program.reordered(range(count), [0] * count)
    assert found.rules(settled(replace(found.plan, program=together))) == {"level"}


def test_one_step_a_level_is_right_whatever_the_parallelism() -> None:
    """Nothing says that a plan has to use what it may."""
    found = planned(residual())
    assert found.violations(with_options(found.plan, parallelism=3)) == ()


def test_a_value_is_there_for_the_whole_level(good: Subject) -> None:
    """No step can take the bytes that another step of its level still reads, in either order."""
    program = good.plan.program
    checked = 0
    for s, t in beside(program):
        for read in reads(program, program.steps[s]):
            for written in writes(program, program.steps[t]):
                if offset_of(good.plan, read) == offset_of(good.plan, written):
                    continue
                there = good.rules(moved(good.plan, written, offset_of(good.plan, read)))
                assert there, (read, written)
                checked += 1
    assert checked


def test_every_one_of_five_hundred_moves_onto_live_bytes_is_named(good: Subject) -> None:
    rng = random.Random(11)
    placed, moves = good.plan.regions, 0
    while moves < 500:
        region = rng.choice(placed)
        offset = rng.randrange(0, good.plan.arena_bytes - region.size + 1, 64)
        if any(_meets(good.plan, region, offset, other) for other in placed):
            moves += 1
            label = good.plan.program.values[region.members[0]].label
            found = good.rules(moved(good.plan, label, offset))
            assert found, (label, offset)
            assert found <= {"level", "overlap", "undefined", "value"}


def _meets(made: Plan, region: Region, offset: int, other: Region) -> bool:
    start = made.offsets[other.members[0]]
    apart = offset >= start + other.nbytes or start >= offset + region.nbytes
    return other is not region and region.lifespan.overlaps(other.lifespan) and not apart
