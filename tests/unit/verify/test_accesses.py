"""Logs of what a runtime touched: right ones pass, and what is wrong is named; byte by byte, by an oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import pipeline
from solver.errors import PlanError
from solver.plan import Plan
from solver.program import Access, EntryKind
from solver.verify import AccessFault, AccessRule, MemoryAccess, check_accesses
from tests.support.every import every
from tests.support.graphs import chain
from tests.support.small_plans import cases


@cache
def plans() -> dict[str, Plan]:
    return {case.name: case.plan for case in cases()}


def planned(plan: Plan, iterations: int = 2) -> Iterator[MemoryAccess]:
    """The accesses of a runtime that obeys the plan: a step's reads, then its writes."""
    program = plan.program
    for iteration in range(iterations):
        for t, step in enumerate(program.steps):
            if step.due and (iteration + 1) % program.period:
                continue
            for writes in (False, True):
                for b in step.bindings:
                    if b.access.writes if writes else b.access.reads:
                        value = program.values[b.value]
                        at = plan.offsets[b.value]
                        yield MemoryAccess(t, writes, value.space, at, value.type.nbytes, iteration)


def numbered(log: list[MemoryAccess]) -> list[MemoryAccess]:
    return [replace(access, line=k) for k, access in enumerate(log, 1)]


def test_what_obeys_the_plan_is_right() -> None:
    with every() as case:
        for name, plan in plans().items():
            with case(name):
                assert check_accesses(plan, planned(plan, 3)) == ()


def test_iterations_can_be_told_from_the_order() -> None:
    for plan in plans().values():
        if len(plan.program.steps) > 1 and plan.program.steps[0].level < plan.program.steps[-1].level:
            log = [replace(access, iteration=None) for access in planned(plan, 3)]
            assert check_accesses(plan, log) == ()


# ------------------------------------------------------------------------------------------ one by one


@pytest.fixture(scope="module")
def plan() -> Plan:
    return pipeline.plan(chain((3, 2, 1), 2))


def label(plan: Plan, name: str) -> int:
    return plan.program.by_label[name]


def log_without(plan: Plan, step: int, value: int) -> list[MemoryAccess]:
    """Where the step does not write the value."""
    return [
        access
        for access in planned(plan, 1)
        if not (access.writes and access.step == step and access.offset == plan.offsets[value])
    ]


def written_and_read(plan: Plan) -> tuple[int, int, int]:
    """A step, a value that it writes, and a step that reads it."""
    program = plan.program
    for t, step in enumerate(program.steps):
        for b in step.bindings:
            if b.access is Access.WRITE:
                for later in range(t + 1, len(program.steps)):
                    if any(o.value == b.value and o.access.reads for o in program.steps[later].bindings):
                        return t, b.value, later
    raise AssertionError("no such value")


def test_a_result_that_nobody_wrote(plan: Plan) -> None:
    writer, value, reader = written_and_read(plan)
    found = check_accesses(plan, log_without(plan, writer, value))[0]
    labels = plan.program.step_labels
    assert (found.rule, found.step, found.writer_in_plan) == (
        AccessRule.UNWRITTEN,
        labels[reader],
        labels[writer],
    )
    assert found.value == plan.program.values[value].label
    assert found.detail.endswith(f"no step has written there; {labels[writer]} should have.")


def test_a_result_that_was_overwritten(plan: Plan) -> None:
    writer, value, reader = written_and_read(plan)
    low, size = plan.offsets[value], plan.program.values[value].type.nbytes
    log = list(planned(plan, 1))
    between = next(k for k, access in enumerate(log) if access.step == reader)
    stray = MemoryAccess(max(writer, reader - 1), True, 0, low + size - 4, 4, 0)
    stray = replace(stray, step=max(reader - 1, 0))
    log.insert(between, stray)
    rules = {(found.rule, found.step) for found in check_accesses(plan, log)}
    labels = plan.program.step_labels
    if reader - 1 != writer:
        assert (AccessRule.OUTSIDE, labels[reader - 1]) in rules
        assert (AccessRule.OVERWRITTEN, labels[reader]) in rules


def test_old_contents_are_stale(plan: Plan) -> None:
    """A value that is not written in the second iteration: what is there is from the first."""
    writer, value, reader = written_and_read(plan)
    log = [
        access
        for access in planned(plan, 2)
        if not (
            access.iteration == 1
            and access.writes
            and (access.step, access.offset) == (writer, plan.offsets[value])
        )
    ]
    found = next(f for f in check_accesses(plan, log) if f.step == plan.program.step_labels[reader])
    assert found.rule is AccessRule.STALE
    assert found.iteration == 1
    assert "has not written there; what is there is by" in found.detail


def test_bytes_of_others(plan: Plan) -> None:
    size = plan.sizes[0]
    log = [*planned(plan, 1), MemoryAccess(len(plan.program.steps) - 1, False, 0, 0, size, 0)]
    (found,) = check_accesses(plan, log)
    assert found.rule is AccessRule.OUTSIDE
    beyond = [MemoryAccess(0, True, 0, size - 1, 2, 0)]
    (found,) = check_accesses(plan, beyond)
    assert (found.rule, found.start, found.end) == (AccessRule.OUTSIDE, size, size + 1)
    assert f"the space ends at {size:,}" in found.detail


def test_what_is_only_read_must_not_be_written(plan: Plan) -> None:
    step, binding = next(
        (t, b) for t, step in enumerate(plan.program.steps) for b in step.bindings if b.access is Access.READ
    )
    size = plan.program.values[binding.value].type.nbytes
    (found,) = check_accesses(plan, [MemoryAccess(step, True, 0, plan.offsets[binding.value], size, 0)])
    assert found.rule is AccessRule.OUTSIDE
    assert "may read" in found.detail


def test_faults_that_are_alike_are_counted(plan: Plan) -> None:
    _, value, reader = written_and_read(plan)
    access = next(a for a in planned(plan, 1) if a.step == reader and a.offset == plan.offsets[value])
    found = check_accesses(plan, [access, access, access])
    assert [fault.count for fault in found] == [3]


def test_a_plan_that_is_wrong_is_refused(plan: Plan) -> None:
    wrong = replace(plan, offsets=(plan.sizes[0], *plan.offsets[1:]))
    with pytest.raises(PlanError, match="lies outside space"):
        check_accesses(wrong, [])


# ---------------------------------------------------------------------------------------- the oracle


class Oracle:
    """Every byte by itself, in dictionaries: who wrote it, in the log and in the plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.steps = plan, plan.program.steps
        self.in_log: dict[tuple[int, int], Any] = {}
        self.in_plan: dict[tuple[int, int], Any] = {}
        self.views = {(alias.step, alias.value) for alias in plan.program.aliases if alias.view}

    def places(self, value: int) -> list[tuple[int, int]]:
        found, low = self.plan.program.values[value], self.plan.offsets[value]
        return [(found.space, k) for k in range(low, low + found.type.nbytes)]

    def faulty_lines(self, log: list[MemoryAccess]) -> set[int]:
        lines = set()
        for iteration in range(2):
            accesses = [access for access in log if access.iteration == iteration]
            for entry in self.plan.program.entry:
                if iteration == 0 or entry.kind is EntryKind.FED:
                    for at in self.places(entry.value):
                        self.in_log[at] = self.in_plan[at] = (iteration, "caller")
            ran = {access.step for access in accesses}
            left = [t for t, step in enumerate(self.steps) if not step.due or t in ran]
            left.sort(key=lambda t: self.steps[t].until)
            for access in accesses:
                while left and self.steps[left[0]].until < self.steps[access.step].level:
                    self.follow(iteration, left.pop(0))
                if self.is_faulty(iteration, access):
                    lines.add(access.line)
            for t in left:
                self.follow(iteration, t)
        return lines

    def follow(self, iteration: int, t: int) -> None:
        for b in self.steps[t].bindings:
            for at in self.places(b.value):
                written = b.access is Access.WRITE and (t, b.value) not in self.views
                if written or (b.access is Access.UPDATE and self.in_log.get(at) == (iteration, t)):
                    self.in_plan[at] = (iteration, t)
                elif b.access is Access.SCRATCH:
                    self.in_plan[at] = None

    def is_faulty(self, iteration: int, access: MemoryAccess) -> bool:
        own = (iteration, access.step)
        faulty = access.offset + access.nbytes > self.plan.sizes[access.space]
        if faulty:
            return True
        bindings = [(set(self.places(b.value)), b) for b in self.steps[access.step].bindings]
        for k in range(access.offset, access.offset + access.nbytes):
            at = (access.space, k)
            here = [b for held, b in bindings if at in held]
            if access.writes:
                fitting = [b for b in here if b.access.writes]
                if not fitting or (access.step, fitting[0].value) not in self.views:
                    faulty |= not fitting
                    self.in_log[at] = own
            elif not here:
                faulty = True
            elif self.in_log.get(at) != own:
                right = self.in_plan.get(at) if any(b.access.reads for b in here) else own
                faulty |= self.in_log.get(at) is None or self.in_log.get(at) != right
        return faulty


def mutated(log: list[MemoryAccess], sizes: tuple[int, ...], rng: random.Random) -> list[MemoryAccess]:
    log = list(log)
    for _ in range(rng.randint(1, 3)):
        k = rng.randrange(len(log))
        one = log[k]
        match rng.choice(("drop", "swap", "shift", "shrink", "other", "again")):
            case "drop":
                log.pop(k)
            case "swap":
                j = rng.randrange(len(log))
                if log[j].iteration == one.iteration:
                    log[k], log[j] = log[j], log[k]
            case "shift":
                log[k] = replace(one, offset=max(one.offset + rng.choice((-4, 4, 8, 64)), 0))
            case "shrink":
                log[k] = replace(one, nbytes=rng.randrange(one.nbytes + 1))
            case "other":
                log[k] = replace(one, writes=not one.writes)
            case "again":
                log.insert(rng.randrange(len(log)), one)
        if not log:
            break
    return sorted(log, key=lambda access: access.iteration or 0)


def lines_of(faults: tuple[AccessFault, ...]) -> set[int]:
    return {fault.line for fault in faults}


@pytest.mark.fuzz
@given(st.deferred(lambda: st.sampled_from(sorted(plans()))), st.integers(0, 2**32))
def test_the_oracle_finds_the_same(name: str, seed: int) -> None:
    plan, rng = plans()[name], random.Random(seed)
    log = numbered(mutated(list(planned(plan, 2)), plan.sizes, rng))
    truth = Oracle(plan).faulty_lines(log)
    found = check_accesses(plan, log)
    assert lines_of(found) <= truth
    assert sum(fault.count for fault in found) == len(truth)


def test_due_steps_and_paging_are_among_the_plans() -> None:
    assert any(step.due for plan in plans().values() for step in plan.program.steps)
    assert any(len(plan.sizes) > 1 for plan in plans().values())
    assert any(step.until > step.level for plan in plans().values() for step in plan.program.steps)
