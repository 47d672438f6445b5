"""The symbolic proof against its oracle: right plans, thousands of random edits, and named mistakes.

The oracle (`tests.support.term_oracle`) was written from the obligations alone. Behind every edit the two
must say the same, right or wrong; which rule is named is for people.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.graph import TrainableGraph, TrainingRules
from solver.passes import Aliases
from solver.plan import Plan
from solver.program import Access, Alias, Binding, EntryKind, Phase, Program, Space, Step
from solver.training import derive
from solver.verify import prove
from tests.support.every import every, grid
from tests.support.graphs import Sketch
from tests.support.plan_edits import EDITS, edited
from tests.support.random_graphs import random_graphs
from tests.support.small_plans import Case, cases, paged, placed, prepared, repeated, resident
from tests.support.term_oracle import TermOracle, certified

FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)

#: Edits of the long run: ten for each fuzz example.
LONG = 10 * FUZZ or 300


@cache
def by_name() -> dict[str, Case]:
    return {case.name: case for case in cases()}


@cache
def oracle(name: str) -> TermOracle:
    return TermOracle(by_name()[name].reference)


def verdicts(judge: TermOracle, reference: Program, plan: Plan) -> tuple[str, str]:
    """The objections of oracle and proof; empty for an accepted plan."""
    broken, found = judge.judge(plan), prove(reference, plan)
    return (
        f"{broken.obligation}: {broken.detail}" if broken else "",
        f"{found[0].rule}: {found[0].detail}" if found else "",
    )


# --------------------------------------------------------------------------------------- right plans


def test_a_right_plan_is_accepted_by_both() -> None:
    with every() as check:
        for case in cases():
            with check(case.name):
                assert verdicts(oracle(case.name), case.reference, case.plan) == ("", "")


def test_the_plans_have_what_may_go_wrong() -> None:
    programs = [case.plan.program for case in cases()]
    steps = [(program, step) for program in programs for step in program.steps]
    assert any(alias.view for program in programs for alias in program.aliases)
    assert any(not alias.view for program in programs for alias in program.aliases)
    assert sum(alias.offset < 0 for program in programs for alias in program.aliases) > 10
    assert sum(alias.offset > 0 for program in programs for alias in program.aliases) > 10
    assert any(step.until > step.level for _, step in steps)
    assert any(step.due for _, step in steps)
    assert any(step.phase is Phase.EXPLICIT for _, step in steps)
    for program in programs:
        assert all(value.type.nbytes <= 256 for value in program.values), program.name
    repeats = [Counter(step.reference for step in program.steps) for program in programs]
    assert sum(max(count.values()) > 1 for count in repeats) > 20


# ------------------------------------------------------------------------------------- random edits


def disagreements(seeds: range) -> tuple[list[str], Counter[str]]:
    """Edits of which oracle and proof think differently, and how many of each kind were accepted."""
    found, accepted, names = [], Counter[str](), [*by_name()]
    for seed in seeds:
        rng = random.Random(seed)
        case = by_name()[rng.choice(names)]
        edit, plan = edited(case.plan, rng)
        ours, theirs = verdicts(oracle(case.name), case.reference, plan)
        if bool(ours) != bool(theirs):
            found.append(f"seed {seed}, {case.name}, {edit}: oracle {ours!r}, proof {theirs!r}")
        accepted[edit if not ours else "rejected"] += 1
    return found, accepted


@pytest.mark.parametrize("part", range(4))
def test_oracle_and_proof_agree_on_random_edits(part: int) -> None:
    found, accepted = disagreements(range(100 * part, 100 * part + 100))
    assert not found
    assert 50 <= accepted["rejected"] <= 95


@pytest.mark.fuzz
@grid("part", range(10))
def test_oracle_and_proof_agree_on_many_random_edits(part: int) -> None:
    count = LONG // 10
    found, accepted = disagreements(range(10**6 + part * count, 10**6 + part * count + count))
    assert not found
    assert accepted["rejected"] < count


def transformed(program: Program, rng: random.Random) -> Program:
    """The program with steps repeated and values paged anywhere, right or wrong."""
    for _ in range(rng.randrange(4)):
        t, u = sorted(rng.sample(range(len(program.steps)), 2))
        written = [b.value for b in program.steps[t].bindings if b.access.writes]
        how = rng.randrange(3)
        if how == 0:
            program = repeated(program, t, u)
        elif how == 1 and written:
            program = paged(program, rng.choice(written), t, u, min(rng.randrange(3), u - t - 1))
        else:
            carried = [e.value for e in program.entry if e.kind is not EntryKind.FED]
            program = resident(program, rng.choice(carried))
    return program


@pytest.mark.fuzz
@given(random_graphs(4), st.integers(0, 2**32), st.sampled_from([1, 2]), st.booleans())
def test_oracle_and_proof_agree_on_random_graphs(
    graph: TrainableGraph, seed: int, parallelism: int, in_place: bool
) -> None:
    reference, rng = derive(graph), random.Random(seed)
    judge = TermOracle(reference)
    plan = placed(prepared(reference, parallelism=parallelism, in_place=in_place))
    assert verdicts(judge, reference, plan) == ("", "")
    changed = placed(Aliases(in_place=in_place).run(transformed(reference, rng)))
    ours, theirs = verdicts(judge, reference, changed)
    assert bool(ours) == bool(theirs), (ours, theirs)
    for _ in range(5):
        edit, edited_plan = edited(plan if ours else changed, rng)
        found = verdicts(judge, reference, edited_plan)
        assert bool(found[0]) == bool(found[1]), (edit, found)


@grid("kind", EDITS)
def test_every_kind_of_edit_is_judged_alike(kind: str) -> None:
    judged = 0
    for seed in range(500):
        rng = random.Random(f"{kind} {seed}")
        case = by_name()[rng.choice([*by_name()])]
        plan = EDITS[kind](case.plan, rng)
        if plan is not None:
            ours, theirs = verdicts(oracle(case.name), case.reference, plan)
            assert bool(ours) == bool(theirs), (case.name, seed, ours, theirs)
            judged += 1
        if judged == 12:
            break
    assert judged == 12


# ----------------------------------------------------------------------------------- named mistakes


def rejected(reference: Program, plan: Plan) -> tuple[str, str]:
    """The obligation of the oracle and the rule of the proof that the plan breaks; both must object."""
    broken, found = TermOracle(reference).judge(plan), prove(reference, plan)
    assert broken is not None
    assert found
    return broken.obligation, found[0].rule


def line(**hyper: Any) -> Program:
    """fc1, relu, fc2, mean squared error, two weights; addresses are multiples of 64."""
    s = Sketch("line")
    h = s.op("Gemm", [s.input("x", 1, 2), s.parameter("w1", 2, 2)], "a", "fc1")
    h = s.op("Gelu", [h], "b", "act")
    h = s.op("Gemm", [h, s.parameter("w2", 2, 2)], "c", "fc2")
    s.op("MeanSquaredError", [h, s.label("t", 1, 2)], "loss", "mse")
    return derive(s.graph(**hyper))


def position(program: Program, label: str) -> int:
    return program.step_labels.index(label)


def with_step(program: Program, t: int, step: Step) -> Program:
    return replace(program, steps=(*program.steps[:t], step, *program.steps[t + 1 :]))


def rebound(program: Program, t: int, slot: str, value: int, access: Access | None = None) -> Program:
    step = program.steps[t]
    bindings = tuple(Binding(slot, value, access or b.access) if b.slot == slot else b for b in step.bindings)
    return with_step(program, t, replace(step, bindings=bindings))


def moved(program: Program, t: int, to: int) -> Program:
    order = [*range(len(program.steps))]
    order.insert(to, order.pop(t))
    return program.reordered(order)


def put(offsets: tuple[int, ...], value: int, offset: int) -> tuple[int, ...]:
    return (*offsets[:value], offset, *offsets[value + 1 :])


@pytest.mark.parametrize(("alignment", "right"), [(64, True), (8, False)])
def test_a_repetition_in_another_space_whose_base_is_known_modulo_its_alignment(
    alignment: int, right: bool
) -> None:
    reference = line()
    back = position(reference, "act:calc_derivative")
    program = repeated(reference, 0, back)
    again = next(b.value for b in program.steps[back].bindings if b.slot == "y0")
    values = [*program.values]
    values[again] = replace(values[again], space=1)
    program = replace(program, values=tuple(values), spaces=(*program.spaces, Space("more", alignment)))
    plan = placed(program)
    first = next(b.value for b in program.steps[0].bindings if b.slot == "y0")
    plan = certified(replace(plan, offsets=put(plan.offsets, again, plan.offsets[first] % 64)))
    assert (TermOracle(reference).judge(plan) is None) is right
    assert (prove(reference, plan) == ()) is right


def difference() -> Program:
    """A difference: the derivative of A is a copy, that of B is not."""
    s = Sketch("difference")
    a = s.op("Gemm", [s.input("x", 1, 2), s.parameter("w1", 2, 2)], "a", "fc1")
    b = s.op("Gemm", [s.input("z", 1, 2), s.parameter("w2", 2, 2)], "b", "fc2")
    h = s.op("Sub", [a, b], "c", "minus")
    s.op("MeanSquaredError", [h, s.label("t", 1, 2)], "loss", "mse")
    return derive(s.graph())


def test_a_value_that_one_step_defines_twice_is_not_a_view() -> None:
    reference = difference()
    t = position(reference, "minus:calc_derivative")
    value = {b.slot: b.value for b in reference.steps[t].bindings}
    program = rebound(reference, t, "dx1", value["dx0"])
    program = replace(program, aliases=(Alias(value["dx0"], value["dy0"], t, view=True),))
    assert rejected(reference, placed(program)) == ("3", "overlap")


def test_a_promise_of_a_kernel_that_writes_nothing_else_is_not_for_one_that_writes_scratch() -> None:
    s = Sketch("product")
    a = s.op("Gemm", [s.input("x", 1, 2), s.parameter("w1", 2, 2)], "a", "fc1")
    b = s.op("Gemm", [s.input("z", 1, 2), s.parameter("w2", 2, 2)], "b", "fc2")
    h = s.op("Mul", [a, b], "c", "times")
    s.op("MeanSquaredError", [h, s.label("t", 1, 2)], "loss", "mse")
    reference = derive(s.graph())
    t = position(reference, "times:calc_derivative")
    program = repeated(reference, t, t + 1)
    value = {b.slot: b.value for b in program.steps[t + 1].bindings}
    program = rebound(program, t + 1, "dx1", value["dx1"], Access.SCRATCH)
    original = next(b.value for b in reference.steps[t].bindings if b.slot == "dx1")
    for u in range(t + 2, len(program.steps)):
        for binding in program.steps[u].bindings:
            if binding.value == value["dx1"]:
                program = rebound(program, u, binding.slot, original)
    assert prove(reference, placed(program)) == ()
    assert TermOracle(reference).judge(placed(program)) is None
    alone = replace(program, aliases=(Alias(value["dx0"], value["dy0"], t + 1, view=False),))
    assert rejected(reference, placed(alone)) == ("3", "alias")


def test_a_copy_is_not_read_before_it_has_come() -> None:
    case = by_name()["paged, 2 ahead"]
    program = case.plan.program
    back = next(t for t in reversed(range(len(program.steps))) if program.steps[t].reference is None)
    step = program.steps[back]
    late = with_step(program, back, replace(step, until=step.until + 1))
    assert rejected(case.reference, certified(replace(case.plan, program=late))) == ("4", "level")


def test_a_carried_value_that_does_not_go_back() -> None:
    case = by_name()["weight in flash"]
    program = case.plan.program
    steps = program.steps[:-1]
    assert rejected(case.reference, certified(replace(case.plan, program=replace(program, steps=steps)))) == (
        "6",
        "value",
    )


def test_what_is_kept_with_the_due_steps_only() -> None:
    """A weight changes in the last micro-batch alone, and may go back then; its gradient changes in each."""
    reference = line(training=TrainingRules(accumulate=2))
    for label, right in (("w1", True), ("w1@grad", False)):
        program = resident(reference, reference.by_label[label])
        last = len(program.steps) - 1
        plan = placed(with_step(program, last, replace(program.steps[last], due=True)))
        assert (TermOracle(reference).judge(plan) is None) is right, label
        assert (prove(reference, plan) == ()) is right, label
        assert prove(reference, placed(program)) == ()


def test_another_condition_or_period() -> None:
    case = by_name()["micro-batches, plain"]
    program = case.plan.program
    always = replace(program, steps=tuple(replace(step, due=False) for step in program.steps))
    assert rejected(case.reference, replace(case.plan, program=always)) == ("2", "step")
    once = replace(program, period=1)
    assert rejected(case.reference, replace(case.plan, program=once)) == ("7", "period")


def test_a_page_that_comes_in_before_it_has_gone_out() -> None:
    reference = line()
    program = paged(reference, reference.by_label["a"], 1, position(reference, "act:calc_derivative"))
    assert prove(reference, placed(program)) == ()
    out, back = (t for t, step in enumerate(program.steps) if step.reference is None)
    assert rejected(reference, placed(moved(program, back, out))) == ("5", "undefined")


def test_of_two_places_of_a_carried_value_one_is_not_kept() -> None:
    case = by_name()["weight in both"]
    program = case.plan.program
    count = Counter(entry.reference for entry in program.entry)
    (twice,) = (reference for reference, places in count.items() if places == 2)
    for place in (exit_ for exit_ in program.exit if exit_.reference == twice):
        exits = tuple(exit_ for exit_ in program.exit if exit_ != place)
        plan = certified(replace(case.plan, program=replace(program, exit=exits)))
        assert rejected(case.reference, plan) == ("6", "exit")


@grid("channels", [(None, None), (1, None), (1, 1), (0, 1), (1, 2)])
@grid("together", [True, False])
def test_two_copies_on_one_channel(channels: tuple[int | None, int | None], together: bool) -> None:
    """Between two memories there is one channel, whatever copies say."""
    reference = line()
    program = reference
    for label in ("w1", "w2"):
        program = resident(program, reference.by_label[label])
    for number, channel in zip((-2, -1), channels, strict=True):
        node = replace(program.operations[number], attributes={} if channel is None else {"channel": channel})
        at = len(program.operations) + number
        program = replace(program, operations=(*program.operations[:at], node, *program.operations[at + 1 :]))
    if together:
        levels = [max(t - 1, 0) for t in range(len(program.steps))]
        program = program.reordered(range(len(program.steps)), levels)
    plan = placed(program)
    assert (TermOracle(reference).judge(plan) is None) is not together
    assert (prove(reference, plan) == ()) is not together


def test_copies_from_two_memories_at_the_same_time() -> None:
    reference = line()
    program = resident(resident(reference, reference.by_label["w1"]), reference.by_label["w2"])
    # The second weight lies in a memory of its own, with a channel of its own.
    there = program.by_label["w2"]
    values = [replace(v, space=2) if i == there else v for i, v in enumerate(program.values)]
    spaces = (*program.spaces, Space("disk", 4, addressable=False))
    program = replace(program, values=tuple(values), spaces=spaces)
    levels = [max(t - 1, 0) for t in range(len(program.steps))]
    plan = placed(program.reordered(range(len(program.steps)), levels))
    assert [step.level for step in plan.program.steps if step.reference is None][:2] == [0, 0]
    assert TermOracle(reference).judge(plan) is None
    assert prove(reference, plan) == ()


def test_a_promise_for_one_slot_does_not_speak_of_another_slot_of_the_same_value() -> None:
    s = Sketch("slope")
    a = s.op("Gemm", [s.input("x", 1, 2), s.parameter("w", 2, 2)], "a", "fc1")
    h = s.op("PRelu", [a, a], "b", "act")
    s.op("MeanSquaredError", [h, s.label("t", 1, 2)], "loss", "mse")
    reference = derive(s.graph(trainable=[]))
    t = position(reference, "act:forward")
    value = {b.slot: b.value for b in reference.steps[t].bindings}
    assert value["x0"] == value["x1"]
    program = replace(reference, aliases=(Alias(value["y0"], value["x0"], t, view=False),))
    assert rejected(reference, placed(program)) == ("3", "overlap")


def test_cases_have_names_of_their_own() -> None:
    found: list[Case] = [*cases()]
    assert len(found) == len(by_name())
