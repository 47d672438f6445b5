"""The form of a plan: what does not exist, lies outside, or is not what the reference says is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from solver.graph import DType, TensorType, TrainingRules
from solver.layout import Lifespan
from solver.plan import Plan
from solver.program import (
    Access,
    Alias,
    Binding,
    Entry,
    EntryKind,
    Exit,
    Initial,
    Kind,
    Program,
    Space,
    Step,
)
from tests.support.damaged import (
    Subject,
    in_one_place,
    moved,
    planned,
    settled,
    with_order,
    with_step_changed,
    with_value,
)
from tests.support.derived import at
from tests.support.graphs import batch_normalised, chain, residual
from tests.support.proofs import offset_of


@pytest.fixture(scope="module")
def good() -> Subject:
    return planned(residual())


def with_program(made: Plan, **changes: object) -> Plan:
    return replace(made, program=replace(made.program, **changes))  # type: ignore[arg-type]  # any field


# -------------------------------------------------------------------------------- what does not exist


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda p: replace(p, offsets=p.offsets[:-1]), "offsets for"),
        (lambda p: replace(p, offsets=(*p.offsets, 0)), "offsets for"),
        (lambda p: replace(p, sizes=()), "0 sizes for 1 spaces"),
        (lambda p: replace(p, certificates=p.certificates * 2), "sizes for 1 spaces"),
        (lambda p: replace(p, holds={10_000: Lifespan(0, 1)}), "a value that does not exist"),
        (
            lambda p: with_program(p, entry=(*p.program.entry, Entry(10_000, EntryKind.FED, 0))),
            "a value that",
        ),
        (
            lambda p: with_program(p, entry=(*p.program.entry, Entry(0, EntryKind.FED, -1))),
            "of the reference",
        ),
        (lambda p: with_program(p, exit=(*p.program.exit, Exit(-1, 0))), "a value that"),
        (lambda p: with_program(p, exit=(*p.program.exit, Exit(0, 10_000))), "of the reference"),
        (lambda p: with_program(p, initial={10_000: Initial("ones")}), "a value that"),
        (lambda p: with_program(p, aliases=(Alias(0, 10_000, 0, True),)), "a value that"),
        (lambda p: with_program(p, aliases=(Alias(0, 1, 10_000, True),)), "a step that"),
    ],
)
def test_what_does_not_exist(good: Subject, damage: Callable[[Plan], Plan], words: str) -> None:
    assert words in good.said(damage(good.plan), "form")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: replace(s, operation=10_000), "an operation that"),
        (lambda s: replace(s, reference=10_000), "a step of the reference that"),
        (lambda s: replace(s, reference=-1), "a step of the reference that"),
        (lambda s: replace(s, bindings=(Binding("x0", 10_000, Access.READ),)), "a value that"),
    ],
)
def test_steps_that_refer_to_what_does_not_exist(
    good: Subject, change: Callable[[Step], Step], words: str
) -> None:
    program = good.plan.program
    steps = (change(program.steps[0]), *program.steps[1:])
    assert words in good.said(with_program(good.plan, steps=steps), "form")


@pytest.mark.parametrize("space", [-1, 1])
def test_a_space_that_does_not_exist(good: Subject, space: int) -> None:
    values = (replace(good.plan.program.values[0], space=space), *good.plan.program.values[1:])
    assert "a space that" in good.said(with_program(good.plan, values=values), "form")


def test_a_label_given_twice(good: Subject) -> None:
    """Two places under one label: a report or a caller could mean either of them."""
    program = good.plan.program
    twin = replace(good.plan, offsets=(*good.plan.offsets, good.plan.offsets[0]))
    doubled = with_program(twin, values=(*program.values, program.values[0]))
    assert "one label" in good.said(doubled, "form")


@pytest.fixture(scope="module")
def shared() -> Subject:
    return in_one_place()


class TestAliases:
    """Aliases follow each other in time, and each value is defined in the bytes of one other."""

    def test_a_value_named_twice(self, shared: Subject) -> None:
        aliases = shared.plan.program.aliases
        doubled = with_program(shared.plan, aliases=(*aliases, aliases[-1]))
        assert "in the bytes of two others" in shared.said(doubled, "form")

    @pytest.mark.parametrize("view", [True, False])
    def test_two_sources_that_it_is_not_a_view_of_both(self, shared: Subject, view: bool) -> None:
        """Two views belong to one step, and none of two may overwrite."""
        aliases = shared.plan.program.aliases
        first = aliases[0]
        step = first.step if view else first.step + 1
        others = [v for v in range(len(shared.plan.program.values)) if v not in (first.value, first.source)]
        second = Alias(first.value, others[0], step, view=False)
        views = (replace(first, view=True), replace(second, view=not view))
        doubled = with_program(shared.plan, aliases=(*views, *aliases[1:]))
        assert "not a view of both" in shared.said(doubled, "form")

    def test_a_value_in_its_own_bytes(self, shared: Subject) -> None:
        first, *rest = shared.plan.program.aliases
        circle = with_program(shared.plan, aliases=(replace(first, source=first.value), *rest))
        assert "comes later" in shared.said(circle, "form")

    def test_two_that_are_defined_in_each_other(self, shared: Subject) -> None:
        aliases = shared.plan.program.aliases
        number = {alias.value: alias for alias in aliases}
        inner = next(alias for alias in aliases if alias.source in number)
        outer = number[inner.source]
        back = tuple(replace(a, source=inner.value) if a is outer else a for a in aliases)
        assert "comes later" in shared.said(with_program(shared.plan, aliases=back), "form")


# ----------------------------------------------------------------------------------------------- holds


@pytest.mark.parametrize("hold", [Lifespan(0, 10_000), Lifespan(-1, 3)])
def test_a_hold_beyond_the_iteration(good: Subject, hold: Lifespan) -> None:
    held = replace(good.plan, holds={good.plan.program.by_label["h1"]: hold})
    assert good.named(held, "level") == {("h1",)}


# ---------------------------------------------------------------------------------------------- levels


class TestLevels:
    """They begin with 0, never fall and leave none out; only copies last longer than one."""

    def leveled(self, good: Subject, t: int, level: int, until: int | None = None) -> Plan:
        steps = list(good.plan.program.steps)
        steps[t] = replace(steps[t], level=level, until=level if until is None else until)
        return with_program(good.plan, steps=tuple(steps))

    @pytest.mark.parametrize("t", [0, 3, 26])
    @pytest.mark.parametrize("level", [-1, 40, 10**18])
    def test_one_that_does_not_count_up(self, good: Subject, t: int, level: int) -> None:
        assert good.rules(self.leveled(good, t, level)) == {"level"}

    def test_one_that_is_left_out(self, good: Subject) -> None:
        assert good.rules(self.leveled(good, 26, 27)) == {"level"}

    def test_the_first_is_0(self, good: Subject) -> None:
        assert good.rules(self.leveled(good, 0, 1)) == {"level"}

    def test_they_do_not_go_back(self, good: Subject) -> None:
        backwards = with_program(good.plan, steps=good.plan.program.steps[::-1])
        assert good.rules(backwards) == {"level"}

    def test_a_kernel_does_not_last_beyond_its_level(self, good: Subject) -> None:
        assert "lasts from level 3 to 4" in good.said(self.leveled(good, 3, 3, 4), "level")
        assert "lasts from level 3 to 2" in good.said(self.leveled(good, 3, 3, 2), "level")


# ---------------------------------------------------------------------------------------------- places


@pytest.mark.parametrize("offset", [-64, 10**9])
def test_a_place_outside_its_space(good: Subject, offset: int) -> None:
    number = good.plan.program.by_label["h1"]
    offsets = tuple(offset if k == number else old for k, old in enumerate(good.plan.offsets))
    assert good.named(replace(good.plan, offsets=offsets), "place") == {("h1",)}


def test_a_space_that_is_smaller_than_its_buffers(good: Subject) -> None:
    top = max(good.plan.offsets[r.members[0]] + r.nbytes for r in good.plan.regions)
    assert good.rules(replace(good.plan, sizes=(top - 1,))) == {"place"}
    assert good.rules(replace(good.plan, sizes=(-1,))) == {"place"}


@pytest.mark.parametrize("shift", [1, 4, 32])
def test_a_place_that_is_not_aligned(good: Subject, shift: int) -> None:
    elsewhere = moved(good.plan, "h1", offset_of(good.plan, "h1") + shift)
    assert "is not aligned to 64" in good.said(elsewhere, "place")


@pytest.mark.parametrize("alignment", [0, -64, 48])
def test_an_alignment_that_is_no_power_of_two(good: Subject, alignment: int) -> None:
    spaces = (Space("arena", alignment),)
    assert "not a power of two" in good.said(with_program(good.plan, spaces=spaces), "place")


def test_a_larger_alignment_than_the_places_have(good: Subject) -> None:
    assert good.rules(with_program(good.plan, spaces=(Space("arena", 4096),))) == {"place"}


def test_kernels_cannot_reach_every_space(good: Subject) -> None:
    far = with_program(good.plan, spaces=(Space("arena", 64, addressable=False),))
    assert "which kernels cannot reach" in good.said(far, "place")


# ------------------------------------------------------------------- period, entry, initial values, exit


@pytest.mark.parametrize("period", [0, 2])
def test_another_number_of_micro_batches(good: Subject, period: int) -> None:
    assert good.rules(with_program(good.plan, period=period)) == {"period"}


def with_entry(made: Plan, label: str, change: Callable[[Entry], Entry | None]) -> Plan:
    number = made.program.by_label[label]
    found = (change(e) if e.value == number else e for e in made.program.entry)
    return settled(with_program(made, entry=tuple(e for e in found if e is not None)))


@pytest.mark.parametrize("label", ["x", "t", "w1", "w1@first_moment"])
def test_what_nothing_holds_at_the_start(good: Subject, label: str) -> None:
    missing = with_entry(good.plan, label, lambda entry: None)
    assert good.said(missing, "entry") == f"Nothing holds {label!r} at the start."


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("w1", EntryKind.CONSTANT), ("w1", EntryKind.FED), ("x", EntryKind.CONSTANT),
        ("t", EntryKind.CARRIED), ("w1@second_moment", EntryKind.FED),
    ],
)  # fmt: skip
def test_another_kind_of_entry(good: Subject, label: str, kind: EntryKind) -> None:
    assert good.named(with_entry(good.plan, label, lambda e: replace(e, kind=kind)), "entry") == {(label,)}


def test_an_entry_that_the_reference_does_not_have(good: Subject) -> None:
    """h1 would be defined from the start, and a step before its def could read it."""
    number = good.plan.program.by_label["h1"]
    for kind in EntryKind:
        more = with_program(good.plan, entry=(*good.plan.program.entry, Entry(number, kind, number)))
        assert good.named(settled(more), "entry") >= {("h1",)}


def test_an_entry_that_stands_for_another_value(good: Subject) -> None:
    """Two weights of one type, exchanged: each begins with what the other should have."""
    program = good.plan.program
    w1, w2 = program.by_label["w1"], program.by_label["w2"]
    other = {w1: w2, w2: w1}
    entry = tuple(replace(e, reference=other.get(e.value, e.reference)) for e in program.entry)
    assert good.rules(with_program(good.plan, entry=entry)) == {"initial"}
    initial = {other.get(value, value): given for value, given in program.initial.items()}
    exchanged = with_program(good.plan, entry=entry, initial=initial)
    assert good.rules(exchanged) <= {"exit", "value"}
    assert good.rules(exchanged)


@pytest.mark.parametrize("label", ["x", "t", "w2", "w2@first_moment"])
def test_two_in_one_place_at_the_start(good: Subject, label: str) -> None:
    """An input or a label too: what the caller fed first would be gone before the first step."""
    there = moved(good.plan, label, offset_of(good.plan, "w1"))
    assert {label, "w1"} in [set(names) for names in good.named(there, "overlap")]


def test_other_initial_values(good: Subject) -> None:
    program = good.plan.program
    w1, moment = program.by_label["w1"], program.by_label["w1@first_moment"]
    seeded = {**program.initial, w1: replace(program.initial[w1], seed=program.initial[w1].seed + 1)}
    assert good.named(with_program(good.plan, initial=seeded), "initial") == {("w1",)}
    zeros = {value: given for value, given in program.initial.items() if value != w1}
    assert good.named(with_program(good.plan, initial=zeros), "initial") == {("w1",)}
    ones = {**program.initial, moment: Initial("ones")}
    assert good.named(with_program(good.plan, initial=ones), "initial") == {("w1@first_moment",)}


def test_zeros_may_be_said_or_left_out(good: Subject) -> None:
    program = good.plan.program
    moment = program.by_label["w1@first_moment"]
    said = with_program(good.plan, initial={**program.initial, moment: Initial("zeros")})
    assert good.violations(said) == ()


@pytest.mark.parametrize("label", ["loss", "w1", "w1@second_moment"])
def test_what_is_kept_nowhere_at_the_end(good: Subject, label: str) -> None:
    number = good.plan.program.by_label[label]
    exit_ = tuple(e for e in good.plan.program.exit if e.value != number)
    missing = settled(with_program(good.plan, exit=exit_))
    assert good.said(missing, "exit") == f"The plan keeps {label!r} nowhere at the end."


def test_an_exit_that_the_reference_does_not_have(good: Subject) -> None:
    number = good.plan.program.by_label["h1"]
    more = settled(with_program(good.plan, exit=(*good.plan.program.exit, Exit(number, number))))
    assert good.named(more, "exit") == {("h1",)}


def test_states_and_gradients_that_carry_over_cannot_be_left_out() -> None:
    for graph, label in (
        (batch_normalised(), "mean"),
        (chain(training=TrainingRules(accumulate=2)), "w1@grad"),
    ):
        good = planned(graph)
        assert good.rules(with_entry(good.plan, label, lambda e: None)) == {"entry"}
        number = good.plan.program.by_label[label]
        exit_ = tuple(e for e in good.plan.program.exit if e.value != number)
        assert good.rules(settled(with_program(good.plan, exit=exit_))) == {"exit"}


# ------------------------------------------------------------------------------------ labels mean nothing


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("label", ["x", "t", "w1", "w1@first_moment", "loss", "h1"])
def test_a_wrong_kind_changes_nothing(good: Subject, kind: Kind, label: str) -> None:
    assert good.violations(replace(good.plan, program=_of_kind(good.plan.program, label, kind))) == ()


def _of_kind(program: Program, label: str, kind: Kind) -> Program:
    number = program.by_label[label]
    values = tuple(replace(v, kind=kind) if k == number else v for k, v in enumerate(program.values))
    return replace(program, values=values)


def test_labels_and_origins_are_for_reports(good: Subject) -> None:
    other = with_value(good.plan, "h1", label="elsewhere", origin="nowhere")
    assert good.rules(replace(good.plan, program=other.program)) == set()


def test_the_proof_does_not_believe_the_order_that_reports_show(good: Subject) -> None:
    """A step that stands before the def of what it reads, on levels that look right."""
    late = at(good.plan.program, "join:forward")
    early = with_order(good.plan, "join:forward", late - 1)
    assert good.rules(early) <= {"undefined", "value"}
    assert good.rules(early)


def test_types_are_those_of_the_reference(good: Subject) -> None:
    half = with_value(good.plan, "h1", type=TensorType((4, 3), DType.FLOAT32))
    assert good.rules(half) == {"step"}
    wide = with_step_changed(half, "fc1:forward", lambda s: s)
    assert good.rules(wide) == {"step"}
    entered = with_value(good.plan, "w1", type=TensorType((6, 3), DType.FLOAT32))
    assert good.rules(entered) <= {"entry", "exit"}
    assert good.rules(entered)
