"""When and where bytes of values must stay: lives, what lives lend, regions, and conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.executor.memory import in_spaces, on_their_own
from solver.executor.run import Runner
from solver.graph import DType, TensorType, TrainingRules
from solver.graph.ops.base import Node
from solver.graph.types import Operation
from solver.layout import Lifespan
from solver.plan import Plan
from solver.program import (
    Access,
    Alias,
    Binding,
    Builder,
    Entry,
    EntryKind,
    Exit,
    Footprint,
    Kind,
    Phase,
    Program,
    Region,
    Space,
    alias_sets,
    conflict_pairs,
    conflict_sets,
    expiring,
    held_lives,
    lent,
    lives,
    loads,
    regions,
    without,
)
from solver.reports.arenas import live_curve, report
from solver.training import derive
from solver.verify import prove
from tests.support.derived import at, with_steps
from tests.support.graphs import chain, convolutional, residual
from tests.support.small_plans import lending, longest_rest, placed


def spans(program: Program) -> dict[str, tuple[int, int]]:
    return {program.values[i].label: (s.start, s.end) for i, s in lives(program).items()}


def test_the_lifespans_of_a_chain() -> None:
    # 0 fc1 1 fc2 2 mse 3 seed 4 mse' 5 fc2 grad 6 fc2 deriv 7 fc1 grad 8 w1 9 b1 10 w2 11 b2
    found = spans(derive(chain()))
    assert found["x"] == (0, 8)
    assert found["t"] == (0, 5)
    assert found["h1"] == (0, 8)
    assert found["h2"] == (1, 5)
    assert found["loss"] == (2, 12)
    assert found["loss@grad"] == (3, 5)
    assert found["h2@grad"] == (4, 7)
    assert found["h1@grad"] == (6, 8)
    assert found["w2@grad"] == (5, 11)
    assert found["w1"] == (0, 12)


def test_persistent_operands_live_the_whole_iteration() -> None:
    program = derive(residual())
    kept = [entry.value for entry in program.entry if entry.kind is not EntryKind.FED]
    assert len(kept) == 4 + 4 * 2, "four weights with two moments each"
    for value in kept:
        assert lives(program)[value] == Lifespan(0, len(program.steps))


def test_declared_outputs_live_to_the_end() -> None:
    program = derive(convolutional())
    assert spans(program)["f"][1] == len(program.steps)


def test_an_unused_output_lives_in_its_own_step_only() -> None:
    program = derive(chain(trainable=0))
    assert spans(program)["h2"] == (1, 3)


def test_scratch_lives_for_one_step() -> None:
    program = derive(convolutional())
    found = lives(program)
    scratch = [i for i, value in enumerate(program.values) if value.kind is Kind.SCRATCH]
    assert scratch
    assert all(found[i].end - found[i].start == 1 for i in scratch)


def test_what_the_forward_saves_lives_until_its_backward() -> None:
    program = derive(convolutional())
    (saved,) = [value.label for value in program.values if value.kind is Kind.SAVED]
    ends = at(program, "pool1:forward"), at(program, "pool1:calc_derivative") + 1
    assert spans(program)[saved] == ends


def test_gradients_that_accumulate_live_across_iterations() -> None:
    program = derive(chain(training=TrainingRules(accumulate=2)))
    assert spans(program)["w1@grad"] == (0, len(program.steps))


def test_what_no_step_touches_has_no_life() -> None:
    """Not even where the caller defines it, or it is to be there at the end."""
    program = derive(chain())
    idle = replace(program.values[0], label="idle")
    more = replace(
        program,
        values=(*program.values, idle),
        entry=(*program.entry, replace(program.entry[0], value=len(program.values))),
        exit=(*program.exit, Exit(len(program.values), 0)),
    )
    assert lives(more) == lives(program)


def test_a_copy_touches_its_values_until_it_has_ended() -> None:
    program = derive(chain())
    t = at(program, "fc1:forward")
    longer = with_steps(program, [replace(s, until=6) if k == t else s for k, s in enumerate(program.steps)])
    assert spans(longer)["x"] == (0, 8)
    later = with_steps(program, [replace(s, until=9) if k == t else s for k, s in enumerate(program.steps)])
    assert spans(later)["x"] == (0, 10)
    assert spans(later)["h1"] == (0, 10)


def test_steps_of_a_level_touch_at_the_same_time() -> None:
    program = derive(chain())
    pairs = program.reordered(range(len(program.steps)), [t // 2 for t in range(len(program.steps))])
    assert spans(pairs)["h2"] == (0, 3)
    assert spans(pairs)["w1"] == (0, 6)


@pytest.mark.parametrize(
    ("hold", "expected"),
    [
        (Lifespan(0, 2), Lifespan(0, 5)),
        (Lifespan(4, 9), Lifespan(1, 9)),
        (Lifespan(2, 3), Lifespan(1, 5)),
        (Lifespan(0, 12), Lifespan(0, 12)),
    ],
)
def test_a_hold_makes_a_life_longer_and_never_shorter(hold: Lifespan, expected: Lifespan) -> None:
    program = derive(chain())
    value = program.by_label["h2"]
    found = held_lives(program, {value: hold})
    assert found[value] == expected
    assert {k: v for k, v in found.items() if k != value} == {
        k: v for k, v in lives(program).items() if k != value
    }


def test_a_value_that_is_only_held_lives_as_long_as_that() -> None:
    program = derive(chain())
    idle = replace(program, values=(*program.values, replace(program.values[0], label="idle")))
    number = len(program.values)
    assert held_lives(idle, {number: Lifespan(1, 3)})[number] == Lifespan(1, 3)


def test_nothing_has_no_life() -> None:
    assert lives(Program("empty", (), (), (), (), (), ())) == {}


# -------------- A value lends its bytes in the levels between its last touch and the copy that brings it back


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
            for label, values in fed.items():
                run.value(label)[...] = values
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


# ---------------------------------------------------------- Alias sets, and the bytes that their values share


A, B, C, D = range(4)


def made(aliases: Sequence[Alias] = (), *, space_of_d: int = 0) -> Program:
    """Step t touches those of a, b, c, d, of 15 floats each, that live then:

    a [0, 3)   b [1, 4)   c [2, 6)   d [5, 7)
    """
    builder = Builder("regions", [Space("arena", 64), Space("other", 16)])
    type_ = TensorType((3, 5), DType.FLOAT32)
    for name in "abcd":
        builder.value(name, type_, Kind.ACTIVATION, name, space_of_d if name == "d" else 0)
    spans = (Lifespan(0, 3), Lifespan(1, 4), Lifespan(2, 6), Lifespan(5, 7))
    for t in range(7):
        node = Node(Operation(f"op{t}", "", (), ()), (), (), (), {})
        builder.step(
            builder.operation(node),
            Phase.EXPLICIT,
            [
                Binding("abcd"[value], value, Access.WRITE if span.start == t else Access.READ)
                for value, span in enumerate(spans)
                if span.start <= t < span.end
            ],
        )
    return builder.finish(aliases=aliases)


def alone(value: int, start: int, end: int) -> Region:
    return Region((value,), (0,), 0, 60, 64, Lifespan(start, end))


def test_without_aliases_each_value_has_a_region() -> None:
    assert alias_sets(made()) == {}
    assert regions(made()) == (alone(A, 0, 3), alone(B, 1, 4), alone(C, 2, 6), alone(D, 5, 7))


def test_a_chain_is_one_region_in_the_place_of_its_first_value() -> None:
    program = made([Alias(B, A, 1, view=True), Alias(D, B, 5, view=False)])
    assert alias_sets(program) == {A: [(A, 0), (B, 0), (D, 0)]}
    assert regions(program) == (
        Region((A, B, D), (0, 0, 0), 0, 60, 64, Lifespan(0, 7)),
        alone(C, 2, 6),
    )


def test_several_alias_sets() -> None:
    found = regions(made([Alias(B, A, 1, view=False), Alias(D, C, 5, view=False)]))
    assert [(region.members, region.lifespan) for region in found] == [
        ((A, B), Lifespan(0, 4)),
        ((C, D), Lifespan(2, 7)),
    ]


def test_views_of_a_part_of_a_value() -> None:
    """Offsets add up along a chain; the region ends with whatever reaches furthest."""
    program = made([Alias(B, A, 1, view=True, offset=64), Alias(D, B, 5, view=True, offset=128)])
    assert alias_sets(program) == {A: [(A, 0), (B, 64), (D, 192)]}
    first, _ = regions(program)
    assert (first.offsets, first.nbytes, first.size) == ((0, 64, 192), 252, 256)


def test_a_view_of_several_values_makes_one_region_of_them() -> None:
    """d is put together from a and, 64 bytes behind it, b."""
    program = made([Alias(D, A, 5, view=True), Alias(D, B, 5, view=True, offset=-64)])
    assert alias_sets(program) == {A: [(A, 0), (B, 64), (D, 0)]}
    first, _ = regions(program)
    assert (first.members, first.offsets) == ((A, B, D), (0, 64, 0))
    assert (first.nbytes, first.size, first.lifespan) == (124, 128, Lifespan(0, 7))


def test_a_region_begins_with_what_lies_in_front() -> None:
    """Which need not be its first value: c begins 64 bytes in front of b, which is a part of a."""
    program = made([Alias(B, A, 1, view=True, offset=64), Alias(C, B, 3, view=True, offset=-128)])
    assert alias_sets(program) == {C: [(C, 0), (A, 64), (B, 128)]}
    assert [(region.members, region.lifespan) for region in regions(program)] == [
        ((C, A, B), Lifespan(0, 6)),
        ((D,), Lifespan(5, 7)),
    ]


def test_sets_that_have_grown_come_together() -> None:
    """b is a part of a, d lies over c, and then d over both a and c."""
    program = made(
        [
            Alias(B, A, 1, view=True, offset=64),
            Alias(D, C, 5, view=True),
            Alias(D, B, 5, view=True, offset=-192),
        ]
    )
    assert alias_sets(program) == {C: [(C, 0), (A, 128), (B, 192), (D, 0)]}


def test_the_first_value_of_a_set_may_become_part_of_another_one() -> None:
    """b is a view of a; later a, which carries over, is defined 64 bytes behind c."""
    program = made([Alias(B, A, 1, view=True), Alias(A, C, 5, view=False, offset=64)])
    assert alias_sets(program) == {C: [(C, 0), (A, 64), (B, 64)]}


def test_values_of_which_nothing_is_held_behind_a_level() -> None:
    assert expiring(made()) == {2: [A], 3: [B], 5: [C], 6: [D]}
    shared = made([Alias(B, A, 1, view=True), Alias(D, B, 5, view=False)])
    assert expiring(shared) == {6: [A, B, D], 5: [C]}
    assert expiring(made([Alias(B, A, 1, view=True)])) == {3: [A, B], 5: [C], 6: [D]}


def test_what_the_next_iteration_needs_is_held_with_all_that_shares_its_bytes() -> None:
    program = made([Alias(B, A, 1, view=True)])
    for kind in EntryKind:
        begun = replace(program, entry=(Entry(A, kind, A), Entry(C, kind, C)))
        fed = {3: [A, B], 5: [C], 6: [D]}
        assert expiring(begun) == (fed if kind is EntryKind.FED else {6: [D]})
    assert expiring(replace(program, exit=(Exit(B, B),))) == {5: [C], 6: [D]}
    assert expiring(replace(program, exit=(Exit(D, D),))) == {3: [A, B], 5: [C]}


@pytest.mark.parametrize("kind", EntryKind)
@pytest.mark.parametrize("value", [A, B])
def test_a_region_lives_as_long_as_its_most_lasting_value(kind: EntryKind, value: int) -> None:
    program = replace(made([Alias(B, A, 1, view=True)]), entry=(Entry(value, kind, value),))
    end = 4 if kind is EntryKind.FED else 7
    assert regions(program)[0].lifespan == Lifespan(0, end)


@pytest.mark.parametrize(("alignment", "size"), [(1, 60), (4, 60), (16, 64), (256, 256)])
def test_sizes_are_rounded_up_to_the_alignment_of_the_space(alignment: int, size: int) -> None:
    program = replace(made(), spaces=(Space("arena", alignment),))
    assert {(region.nbytes, region.size) for region in regions(program)} == {(60, size)}


def test_each_region_lies_in_the_space_of_its_values() -> None:
    found = regions(made(space_of_d=1))
    assert [region.space for region in found] == [0, 0, 0, 1]
    assert found[D].size == 64


def test_what_is_held_lengthens_its_region() -> None:
    program = made([Alias(B, A, 1, view=True)])
    found = regions(program, {B: Lifespan(0, 6)})
    assert found[0].lifespan == Lifespan(0, 6)


def test_every_value_that_is_touched_is_in_one_region() -> None:
    program = made([Alias(B, A, 1, view=True), Alias(D, B, 5, view=False)])
    members = [member for region in regions(program) for member in region.members]
    assert sorted(members) == [A, B, C, D]


# -------------------------------------------------------- Conflict sets: which operands live at the same time


intervals = st.dictionaries(
    st.integers(0, 40),
    st.tuples(st.integers(0, 20), st.integers(1, 8)).map(lambda p: Lifespan(p[0], p[0] + p[1])),
    max_size=14,
)


@given(intervals)
def test_conflict_pairs_are_exactly_the_overlapping_ones(found: dict[int, Lifespan]) -> None:
    expected = {frozenset(p) for p in combinations(found, 2) if found[p[0]].overlaps(found[p[1]])}
    pairs = [frozenset(p) for p in conflict_pairs(found)]
    assert set(pairs) == expected
    assert len(pairs) == len(expected)


@given(intervals)
def test_conflict_sets_are_symmetric(found: dict[int, Lifespan]) -> None:
    sets = conflict_sets(found)
    assert set(sets) == set(found)
    assert all(a in sets[b] and b not in sets[b] for b in sets for a in sets[b])


def test_half_open_lifespans_that_touch_do_not_conflict() -> None:
    assert not list(conflict_pairs({"a": Lifespan(0, 3), "b": Lifespan(3, 5)}))
