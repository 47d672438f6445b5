"""A value lends its bytes in the levels between its last touch and the copy that brings it back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.executor.memory import in_spaces, on_their_own
from solver.executor.run import Runner
from solver.graph import TrainingRules
from solver.layout import Lifespan
from solver.plan import Plan
from solver.program import (
    Access,
    Alias,
    EntryKind,
    Footprint,
    Program,
    expiring,
    lent,
    lives,
    loads,
    regions,
    without,
)
from solver.reports.arenas import live_curve, report
from solver.training import derive
from solver.verify import prove
from tests.support.derived import at
from tests.support.graphs import chain
from tests.support.small_plans import lending, longest_rest, placed


def lent_weight(ahead: int = 0, name: str = "w1") -> tuple[Program, Program, int]:
    """A chain, the same with a weight away between its two longest touches, and that weight."""
    reference = derive(chain())
    value = reference.by_label[name]
    return reference, lending(reference, value, *longest_rest(reference, value), ahead), value


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_weight_lends_its_bytes_while_it_is_away(ahead: int) -> None:
    """0 fc1 1 [out] ... [back] ... w1: between the copies, with the levels that they last."""
    _, program, value = lent_weight(ahead)
    out, back = (t for t, step in enumerate(program.steps) if step.reference is None)
    assert lent(program) == {value: (Lifespan(out + ahead + 1, back),)}
    assert lives(program)[value] == Lifespan(0, program.duration)
    (region,) = [region for region in regions(program) if region.members == (value,)]
    assert region.spans == (Lifespan(0, out + ahead + 1), Lifespan(back, program.duration))
    assert [level for level, values in expiring(program).items() if value in values] == [out + ahead]


def test_loads_and_footprint_count_what_is_held() -> None:
    _, program, value = lent_weight()
    (span,) = lent(program)[value]
    size = next(region.size for region in regions(program) if region.members == (value,))
    whole = loads(program, {value: Lifespan(0, 1)})[0]
    curve = loads(program)[0]
    assert [whole[t] - curve[t] for t in range(program.duration)] == [
        size if span.start <= t < span.end else 0 for t in range(program.duration)
    ]
    footprint = Footprint(program)
    assert footprint.peak == sum(map(max, loads(program)))
    held = Footprint(program, {value: Lifespan(0, 1)})
    assert held.peak == sum(map(max, loads(program, {value: Lifespan(0, 1)})))


def test_what_a_target_holds_lends_nothing() -> None:
    _, program, value = lent_weight()
    found = {region.members: region.lent for region in regions(program, {value: Lifespan(0, 1)})}
    assert found[value,] == ()


def test_what_is_fed_lends_nothing() -> None:
    """The caller may write it at any time before the iteration."""
    _, program, value = lent_weight()
    fed = tuple(replace(e, kind=EntryKind.FED) if e.value == value else e for e in program.entry)
    assert lent(replace(program, entry=fed)) == {}


def test_what_shares_its_bytes_lends_nothing() -> None:
    _, program, value = lent_weight()
    alias = Alias(program.by_label["h1"], value, at(program, "fc1:forward"), view=True)
    assert lent(replace(program, aliases=(alias,))) == {}


def test_a_result_that_a_copy_writes_twice_lends_nothing() -> None:
    """Only what is there at the start: other stays in a space are values of their own."""
    _, program, value = lent_weight()
    gone = tuple(e for e in program.entry if e.value != value)
    assert lent(replace(program, entry=gone)) == {}


def test_a_weight_is_held_on_the_first_level() -> None:
    """It is there when the caller has fed everything; what is fed lives from level 0."""
    _, program, value = lent_weight()
    steps = [step for step in program.steps if step.reference is not None]
    first = next(s for s in steps if any(b.value == value for b in s.bindings))
    later = [replace(s, level=t, until=t) for t, s in enumerate(s for s in program.steps if s is not first)]
    assert lent(replace(program, steps=tuple(later)))[value][0].start == 1


def test_intervals_without_parts() -> None:
    whole = Lifespan(2, 9)
    assert without(whole, ()) == (whole,)
    gone = (Lifespan(3, 4), Lifespan(5, 8))
    assert without(whole, gone) == (Lifespan(2, 3), Lifespan(4, 5), Lifespan(8, 9))


def shared(plan: Plan, value: int) -> list[int]:
    """The values that have bytes of `value` while it is away."""
    low, high = plan.offsets[value], plan.offsets[value] + plan.program.values[value].type.nbytes
    return [
        v
        for v, other in enumerate(plan.program.values)
        if v != value
        and other.space == plan.program.values[value].space
        and plan.offsets[v] < high
        and low < plan.offsets[v] + other.type.nbytes
    ]


@pytest.mark.parametrize("ahead", [0, 1])
def test_others_have_the_bytes_and_training_is_the_same(ahead: int) -> None:
    reference, program, value = lent_weight(ahead)
    plan = placed(program)
    assert shared(plan, value)
    assert prove(reference, plan) == ()
    generator = np.random.default_rng(7)
    runs = [
        Runner(plan.program, in_spaces(plan), {}, poison=True),
        Runner(reference, on_their_own(reference, [0] * len(reference.values)), {}),
    ]
    for _ in range(3):
        fed = {
            reference.values[e.reference].label: generator.normal(
                size=reference.values[e.reference].type.shape
            )
            for e in reference.entry
            if e.kind is EntryKind.FED
        }
        for run in runs:
            for label, given in fed.items():
                run.value(label)[...] = given
            run.run()
        ours, theirs = (run.kept() for run in runs)
        assert ours.keys() == theirs.keys()
        for number in ours:
            np.testing.assert_array_equal(ours[number], theirs[number])


def test_reports_show_what_is_held() -> None:
    _, program, value = lent_weight()
    plan = placed(program)
    curve = live_curve(plan.arenas[0].buffers, plan.duration)
    assert curve == loads(program)[0]
    (buffer,) = [b for b in plan.arenas[0].buffers if b.id == program.values[value].label]
    assert buffer.lent == lent(program)[value]
    found = report(plan).arenas[0]
    assert sum(b.size for b in found.live) == found.live_bytes == plan.sizes[0]


def test_a_value_that_is_read_while_it_is_away_is_named() -> None:
    """Without the copy back the bytes hold something else by then."""
    reference, program, _ = lent_weight()
    plan = placed(program)
    back = next(t for t in reversed(range(len(program.steps))) if program.steps[t].reference is None)
    steps = [step for t, step in enumerate(program.steps) if t != back]
    timed = tuple(replace(step, level=t, until=t) for t, step in enumerate(steps))
    (violation, *_) = prove(reference, replace(plan, program=replace(program, steps=timed)))
    assert violation.rule in ("undefined", "value")
    assert any(b.access is Access.READ for b in program.steps[back].bindings)


def test_what_comes_back_only_with_the_updates_lends_nothing() -> None:
    reference = derive(chain(training=TrainingRules(accumulate=2)))
    value = reference.by_label["w1"]
    program = lending(reference, value, *longest_rest(reference, value))
    assert value in lent(program)
    steps = tuple(replace(step, due=step.due or step.reference is None) for step in program.steps)
    assert lent(replace(program, steps=steps)) == {}
    assert value in lent(replace(program, steps=steps, period=1))
