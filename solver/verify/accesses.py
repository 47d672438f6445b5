"""Compares a log of the addresses that a runtime touched with the plan: reads of bytes that no step wrote, or
that another step changed since.

    accesses step 3 writes [0, 64)   step 4 writes [32, 96)   step 5 reads [0, 64)
                   │                       │                        │
    log      ......333333333333      ......333333444444...     bytes 32 to 64 hold step 4's result,
    plan     ......333333333333      ......333333......444     but in the plan step 3's: a fault

Two maps from bytes to the step that wrote them last: one follows the log, the other the plan. A read is right
where both agree. No value of a byte is looked at, so a log of addresses is enough, from any runtime.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from solver.errors import PlanError
from solver.plan import Plan
from solver.program import Access, EntryKind, held_lives

__all__ = ["AccessFault", "AccessRule", "MemoryAccess", "check_accesses"]

#: Written by no step.
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """A step reads or writes `nbytes` from `offset` of a space on. `step` and `space` are positions.

    `iteration` counts from 0; None where the order of levels says which it is. `line` leads to the log.
    """

    step: int
    writes: bool
    space: int
    offset: int
    nbytes: int
    iteration: int | None = None
    line: int = 0


class AccessRule(Enum):
    """The kinds of faults of an access.

    `UNWRITTEN`: it reads what no step wrote. `OVERWRITTEN`: a later step wrote there since. `STALE`: the
    step that should have written has not, and what is there is older. `OUTSIDE`: the plan gives the step
    other bytes.
    """

    UNWRITTEN = "unwritten"
    OVERWRITTEN = "overwritten"
    STALE = "stale"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class AccessFault:
    """One wrong access: bytes ``[start, end)`` of a space, the first of the access that are wrong.

    `value` is the value that the plan has there for the step. `writer_in_plan` and `writer_in_log` are the
    steps that wrote these bytes last; None where the caller did, or nothing. `count` is the number of faults
    of this kind by this step.
    """

    rule: AccessRule
    line: int
    iteration: int
    step: str
    value: str | None
    space: str
    start: int
    end: int
    writer_in_plan: str | None
    writer_in_log: str | None
    detail: str
    count: int = 1


class _Bytes:
    """Who wrote each byte of a space last: runs of bytes, in order of their beginnings."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._starts, self._tags = [0], [_NOBODY]

    def write(self, low: int, high: int, tag: int) -> None:
        """O(log n), and what moving a list costs."""
        if low >= high:
            return
        first, last = bisect_left(self._starts, low), bisect_left(self._starts, high)
        starts, tags = [low], [tag]
        if high < self._size and (last == len(self._starts) or self._starts[last] != high):
            starts.append(high)
            tags.append(self._tags[last - 1])
        self._starts[first:last], self._tags[first:last] = starts, tags

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Runs within ``[low, high)`` with who wrote them."""
        k = bisect_right(self._starts, low) - 1
        while low < high:
            end = self._starts[k + 1] if k + 1 < len(self._starts) else self._size
            yield low, min(end, high), self._tags[k]
            low, k = end, k + 1


def check_accesses(plan: Plan, log: Iterable[MemoryAccess]) -> tuple[AccessFault, ...]:
    """The faults of a log, in its order; faults of one step that are alike are counted, not repeated.

    Whoever writes a log lists the accesses of a step in the order in which they happen. Steps that only view
    bytes need not be in it. Inputs, weights and constants count as written when an iteration begins, and
    steps that are due in the last micro-batch as run where the log has them. O(log n) an access, and what
    moving a list of n runs costs. Raises PlanError for a plan with a value outside its space.
    """
    for value, offset in zip(plan.program.values, plan.offsets, strict=True):
        if offset + value.type.nbytes > plan.sizes[value.space]:
            raise PlanError(
                f"{value.label!r} lies outside space {plan.program.spaces[value.space].name!r}.",
                remedy="Plan again.",
            )
    faults: dict[tuple[AccessRule, int, str | None, str | None], AccessFault] = {}
    for step, fault in _Checker(plan, _in_iterations(plan, log)).run():
        key = (fault.rule, step, fault.value, fault.writer_in_log)
        if key in faults:
            faults[key] = replace(faults[key], count=faults[key].count + 1)
        else:
            faults[key] = fault
    return tuple(faults.values())


def _in_iterations(plan: Plan, log: Iterable[MemoryAccess]) -> list[list[MemoryAccess]]:
    """The accesses of each iteration: a new one begins where a step of an earlier level follows."""
    steps, level, now = plan.program.steps, 0, 0
    accesses_by_iteration: list[list[MemoryAccess]] = [[]]
    for access in log:
        step = steps[access.step]
        if access.iteration is not None:
            begins = access.iteration > now
            now = max(now, access.iteration)
        else:
            begins = step.until < level  # a copy that runs beside others is not a step back
            now += begins
        if begins:
            level = 0
            accesses_by_iteration += [[] for _ in range(now + 1 - len(accesses_by_iteration))]
        level = max(level, step.level)
        accesses_by_iteration[now].append(access)
    return accesses_by_iteration


class _Checker:
    """Both maps, and how far the plan has been followed."""

    def __init__(self, plan: Plan, iterations: Sequence[Sequence[MemoryAccess]]) -> None:
        self._plan, self._iterations = plan, iterations
        program = plan.program
        self._steps = program.steps
        self._in_log = [_Bytes(size) for size in plan.sizes]
        self._in_plan = [_Bytes(size) for size in plan.sizes]
        self._views = {(alias.step, alias.value) for alias in program.aliases if alias.view}
        # In the order in which results are there.
        self._order = sorted(range(len(self._steps)), key=lambda t: (self._steps[t].until, t))
        self._lives = held_lives(program, plan.holds)

    def run(self) -> Iterator[tuple[int, AccessFault]]:
        for number, accesses in enumerate(self._iterations):
            self._begin(number)
            ran = {access.step for access in accesses}
            done = 0
            for access in accesses:
                level = self._steps[access.step].level
                while done < len(self._order) and self._steps[self._order[done]].until < level:
                    self._follow(number, self._order[done], ran)
                    done += 1
                if access.offset + access.nbytes > self._plan.sizes[access.space]:
                    fault: AccessFault | None = self._beyond(number, access)
                else:
                    fault = self._write(number, access) if access.writes else self._read(number, access)
                if fault is not None:
                    yield access.step, fault
            for t in self._order[done:]:
                self._follow(number, t, ran)

    def _tag(self, iteration: int, step: int) -> int:
        """Later steps have larger ones; the caller, who feeds an iteration, is step -1."""
        return iteration * (len(self._steps) + 1) + step + 1

    def _begin(self, iteration: int) -> None:
        for entry in self._plan.program.entry:
            if iteration == 0 or entry.kind is EntryKind.FED:
                space, low, high = self._place(entry.value)
                for held in (self._in_log, self._in_plan):
                    held[space].write(low, high, self._tag(iteration, -1))

    def _place(self, value: int) -> tuple[int, int, int]:
        tensor, offset = self._plan.program.values[value], self._plan.offsets[value]
        return tensor.space, offset, offset + tensor.type.nbytes

    def _follow(self, iteration: int, t: int, ran: set[int]) -> None:
        """Write what a step leaves by the plan. An update may leave bytes alone: there the log decides."""
        if self._steps[t].due and t not in ran:
            return
        tag = self._tag(iteration, t)
        for binding in self._steps[t].bindings:
            space, low, high = self._place(binding.value)
            if binding.access is Access.UPDATE:
                for start, end, who in list(self._in_log[space].runs(low, high)):
                    if who == tag:
                        self._in_plan[space].write(start, end, tag)
            elif binding.access is Access.SCRATCH:
                self._in_plan[space].write(low, high, _NOBODY)
            elif binding.access is Access.WRITE and (t, binding.value) not in self._views:
                self._in_plan[space].write(low, high, tag)

    def _bound(self, access: MemoryAccess) -> Iterator[tuple[int, int, int | None, Access | None]]:
        """The access in pieces: each with the value that the step has there and how; None where it has none.

        Where several are bound in the same bytes, one that the step may use as the log says.
        """
        low, high = access.offset, access.offset + access.nbytes
        held = []
        for binding in self._steps[access.step].bindings:
            space, start, end = self._place(binding.value)
            if space == access.space and start < high and low < end:
                fits = binding.access.writes if access.writes else binding.access.reads
                held.append((not fits, max(start, low), min(end, high), binding.value, binding.access))
        held.sort(key=lambda one: one[:3])
        edges = sorted({low, high, *(edge for one in held for edge in one[1:3])})
        for start, end in pairwise(edges):
            here = next((one for one in held if one[1] <= start and end <= one[2]), None)
            yield (start, end, None, None) if here is None else (start, end, here[3], here[4])

    def _write(self, iteration: int, access: MemoryAccess) -> AccessFault | None:
        fault = None
        for start, end, value, how in self._bound(access):
            if value is not None and (access.step, value) in self._views:
                continue  # a copy of bytes to themselves leaves what was there
            if (value is None or how is Access.READ) and fault is None:
                fault = self._outside(iteration, access, start, end, value)
            self._in_log[access.space].write(start, end, self._tag(iteration, access.step))
        return fault

    def _read(self, iteration: int, access: MemoryAccess) -> AccessFault | None:
        own = self._tag(iteration, access.step)
        for start, end, value, how in self._bound(access):
            if value is None:
                return self._outside(iteration, access, start, end, None)
            # What the step itself has written it may read again; of results and scratch nothing else.
            writers = [(start, end, own)]
            if how is not None and how.reads:
                writers = list(self._in_plan[access.space].runs(start, end))
            for low, high, right in writers:
                for first, last, who in self._in_log[access.space].runs(low, high):
                    if who != own and (who != right or who == _NOBODY):
                        return self._mismatch(iteration, access, first, last, value, right, who)
        return None

    # ------------------------------------------------------------------------------------ in words

    def _who(self, tag: int) -> str | None:
        step = tag % (len(self._steps) + 1) - 1
        return None if tag == _NOBODY or step < 0 else self._plan.program.step_labels[step]

    def _mismatch(
        self,
        iteration: int,
        access: MemoryAccess,
        start: int,
        end: int,
        value: int,
        expected: int,
        actual: int,
    ) -> AccessFault:
        label = self._plan.program.values[value].label
        right, wrong = self._who(expected), self._who(actual)
        writer = right or "the caller"
        if actual == _NOBODY:
            rule = AccessRule.UNWRITTEN
            detail = "no step has written there"
            if right is not None and expected != self._tag(iteration, access.step):
                detail = f"no step has written there; {writer} should have"
            elif expected == self._tag(iteration, access.step):
                detail = "the step has not written it yet, and finds nothing there"
        elif actual > expected:
            rule = AccessRule.OVERWRITTEN
            detail = f"{wrong or 'the caller'} has written there since {writer} did"
        else:
            rule = AccessRule.STALE
            detail = f"{writer} has not written there; what is there is by {wrong or 'the caller'}"
        return self._fault(rule, iteration, access, start, end, label, right, wrong, detail)

    def _outside(
        self, iteration: int, access: MemoryAccess, start: int, end: int, value: int | None
    ) -> AccessFault:
        program, level = self._plan.program, self._steps[access.step].level
        if value is not None:
            label = program.values[value].label
            detail = f"the step may read {label!r} there, and not write it"
            return self._fault(AccessRule.OUTSIDE, iteration, access, start, end, label, None, None, detail)
        there = [
            program.values[k].label
            for k, span in self._lives.items()
            for space, low, high in (self._place(k),)
            if space == access.space and low < end and start < high and span.start <= level < span.end
        ]
        detail = "the plan gives the step other bytes"
        if there:
            names = ", ".join(map(repr, there[:3])) + (f" and {len(there) - 3} more" if there[3:] else "")
            detail += f"; these are of {names} at that time"
        writer = next(self._in_log[access.space].runs(start, end))[2]
        return self._fault(
            AccessRule.OUTSIDE, iteration, access, start, end, None, None, self._who(writer), detail
        )

    def _beyond(self, iteration: int, access: MemoryAccess) -> AccessFault:
        size, end = self._plan.sizes[access.space], access.offset + access.nbytes
        detail = f"the space ends at {size:,}"
        start = max(access.offset, size)
        return self._fault(AccessRule.OUTSIDE, iteration, access, start, end, None, None, None, detail)

    def _fault(
        self,
        rule: AccessRule,
        iteration: int,
        access: MemoryAccess,
        start: int,
        end: int,
        value: str | None,
        expected: str | None,
        actual: str | None,
        detail: str,
    ) -> AccessFault:
        program = self._plan.program
        step, space = program.step_labels[access.step], program.spaces[access.space].name
        verb = "writes" if access.writes else "reads"
        what = f"{value!r}, " if value is not None else ""
        text = f"{step} {verb} {what}bytes {start:,} to {end:,} of {space}: {detail}."
        return AccessFault(
            rule, access.line, iteration, step, value, space, start, end, expected, actual, text
        )
