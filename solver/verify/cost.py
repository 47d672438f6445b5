"""Adds up bounds in whole numbers, from rows with multipliers: on what recomputation costs, and on how long
accesses to several memories take (obligation *homes*).

No solver is asked: what each row says is worked out from the program. `solver.program.records` explains the
rows of recomputation and `solver.accounting.homes` those of homes, and why their sums are bounds. A higher
bound that a search proved is only compared with what the plan itself takes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from solver.accounting.clocks import home_figures
from solver.accounting.homes import added_up_homes, home_problem, places_of
from solver.accounting.problem import joined, may_share
from solver.graph.ops import lookup
from solver.plan import Plan
from solver.program import (
    CONVERT,
    OWN_KERNELS,
    Access,
    CostBound,
    DualRow,
    EntryKind,
    Phase,
    Program,
    RowKind,
    Step,
    is_pure,
)
from solver.reports.validation import Violation

__all__ = ["added_up", "check_cost_bound", "check_homes"]


#: A variable: whether a value is held at a moment, or a step made again behind it.
_Variable: TypeAlias = tuple[str, int, int]


def check_cost_bound(
    reference: Program, bound: CostBound, cost: Sequence[int], *, in_place: bool = False
) -> Iterator[Violation]:
    """A violation if the rows of `bound` do not prove it; `cost` has nanoseconds of the reference's steps.

    Rule ``cost``. As linear as `added_up`.
    """
    try:
        proved = added_up(reference, bound, cost, in_place=in_place)
    except ValueError as error:
        yield Violation("cost", (), f"The bound on the cost of recomputation cannot be added up: {error}")
        return
    if proved < bound.nanoseconds:
        detail = (
            f"Recomputation is claimed to cost {bound.nanoseconds:,} nanoseconds at least; the rows add up to"
            f" {proved:,}."
        )
        yield Violation("cost", (), detail)


def added_up(reference: Program, bound: CostBound, cost: Sequence[int], *, in_place: bool = False) -> int:
    """Nanoseconds that the rows of `bound` prove, whatever it claims.

    With `in_place` they have to prove it for schedules as well that define values in the bytes of others, as
    operators permit. Raises ValueError, with a sentence, for rows that do not hold for every schedule. Linear
    in the bindings of the reference, and in the rows times the readers of a value; in the values for each row
    of a budget.
    """
    _check_form(reference, bound)
    facts = _Facts(reference, bound, in_place=in_place)
    total = 0
    weight: dict[_Variable, int] = {}
    for row in bound.rows:
        right, left = facts.row(row)
        total += row.multiplier * right
        for variable, coefficient in left:
            weight[variable] = weight.get(variable, 0) + row.multiplier * coefficient
    for (what, number, _), sum_ in weight.items():
        own = cost[number] * bound.denominator if what == "made" else 0
        total += min(0, own - sum_)
    return max(0, -(-total // bound.denominator))


def _check_form(reference: Program, bound: CostBound) -> None:
    steps = len(reference.steps)
    if sorted(bound.order) != list(range(steps)):
        raise ValueError("its order does not have every step of the reference program once.")
    if bound.denominator < 1:
        raise ValueError(f"its denominator is {bound.denominator}.")
    if any(a >= b for a, b in pairwise(bound.moments)) or not all(0 <= t < steps for t in bound.moments):
        raise ValueError("its moments are not rising positions in its order.")
    for row in bound.rows:
        if row.multiplier < 0:
            raise ValueError(f"a multiplier is {row.multiplier}, which is negative.")
        if not 0 <= row.moment < len(bound.moments):
            raise ValueError(f"a row is about moment {row.moment}, which there is not.")
        if not -1 <= row.value < len(reference.values) or not -1 <= row.step < steps:
            raise ValueError("a row names a value or a step that the reference program does not have.")


class _Facts:
    """The reference program in the order of the bound: positions take the place of steps."""

    def __init__(self, reference: Program, bound: CostBound, *, in_place: bool) -> None:
        self.reference, self.bound, self.in_place = reference, bound, in_place
        self.steps = [reference.steps[t] for t in bound.order]
        self.at = {t: position for position, t in enumerate(bound.order)}
        self.persistent = {e.value for e in reference.entry if e.kind is not EntryKind.FED}
        self.held = {e.value for e in reference.entry if e.kind is EntryKind.HELD}
        self.fed = {e.value for e in reference.entry if e.kind is EntryKind.FED}
        self.exits = {exit_.value for exit_ in reference.exit}
        count, end = len(reference.values), len(self.steps)
        self.first = [-1 if v in self.fed else end for v in range(count)]
        self.last = [-1] * count
        self.readers: list[list[int]] = [[] for _ in range(count)]
        self.definers: list[list[int]] = [[] for _ in range(count)]
        for position, step in enumerate(self.steps):
            for binding in step.bindings:
                v, access = binding.value, binding.access
                if access is Access.SCRATCH or v in self.persistent:
                    if access.defines:
                        self.definers[v].append(position)
                    continue
                self.last[v] = position
                if access.reads:
                    self.readers[v].append(position)
                if access.defines:
                    self.first[v] = min(self.first[v], position)
                    self.definers[v].append(position)
        for v in self.exits:
            self.last[v] = end
        self.until = [self._until(position) for position in range(end)]
        #: By value the step that makes it again, as a position; of all others it must be kept.
        self.maker = {
            b.value: position
            for position, step in enumerate(self.steps)
            if self.until[position] >= 0
            for b in step.bindings
            if b.access is Access.WRITE
        }
        read_again = {
            b.value
            for position, step in enumerate(self.steps)
            if self.until[position] >= 0
            for b in step.bindings
            if b.access.reads and b.value not in self.persistent
        }
        #: Values that a schedule may choose to hold or not.
        self.choosable = read_again | self.maker.keys()
        self._rooms: dict[int, tuple[int, list[int]]] = {}
        #: For each value a number that it shares with the values that show the same contents, by views.
        views = (pair for step in self.steps if in_place for pair in may_share(reference, step, views=True))
        self.shown = joined(count, views)

    def row(self, row: DualRow) -> tuple[int, list[tuple[_Variable, int]]]:
        """The right-hand side of a row, and its variables with their coefficients."""
        i = row.moment
        if row.kind is RowKind.BUDGET:
            return self._budget(i, row.divisor, frozenset(row.without))
        sources = self._sources(row.value, i)
        if row.kind is RowKind.READER:
            behind = bisect_right(self.readers[row.value], self.bound.moments[i])
            if behind == len(self.readers[row.value]) or self.readers[row.value][behind] > self._end(i):
                raise ValueError(f"no step reads {self._label(row.value)} behind moment {i}.")
            return 1, sources
        if row.kind is RowKind.REPETITION:
            position = self.at.get(row.step, -1)
            if position < 0 or not self._may_run(position, i):
                raise ValueError(f"step {row.step} may not run again behind moment {i}.")
            reads = {b.value for b in self.steps[position].bindings if b.access.reads}
            if row.value not in reads:
                raise ValueError(f"step {row.step} does not read {self._label(row.value)}.")
            return 0, [*sources, (("made", row.step, i), -1)]
        if i + 1 == len(self.bound.moments) or not self._free(row.value, i + 1):
            raise ValueError(f"nothing is decided about {self._label(row.value)} behind moment {i}.")
        return 0, [*sources, (("held", row.value, i + 1), -1)]

    def _budget(
        self, i: int, divisor: int, without: frozenset[int]
    ) -> tuple[int, list[tuple[_Variable, int]]]:
        if divisor < 1:
            raise ValueError(f"a budget is divided by {divisor}.")
        need, free = self._room(i)
        if not without <= set(free):
            raise ValueError(f"a row leaves out what cannot be held or dropped at moment {i}.")
        rest = max(0, need - sum(map(self._size, without)))
        most = -(-rest // divisor)
        weights = [(v, -(-min(rest, self._size(v)) // divisor)) for v in free if v not in without]
        held: list[tuple[_Variable, int]] = [(("held", v, i), -weight) for v, weight in weights]
        return most - sum(weight for _, weight in weights), held

    def _room(self, i: int) -> tuple[int, list[int]]:
        """How many bytes of what may be held at a moment are too many, and which values these are."""
        if i not in self._rooms:
            step = self.steps[self.bound.moments[i]]
            touched = {b.value for b in step.bindings if b.access is not Access.SCRATCH} - self.persistent
            sure = [v for v in range(len(self.first)) if v in touched or self._waits(v, i)]
            free = [v for v in sorted(self.choosable) if v not in touched and self._free(v, i)]
            used = {b.value for s in self.steps for b in s.bindings} | self.held
            need = sum(map(self._size, (v for v in self.persistent if v in used)))
            need += sum(self._size(b.value) for b in step.bindings if b.access is Access.SCRATCH)
            if self.in_place:
                sure, free = self._apart(step, sure, free)
            need += sum(map(self._size, (*sure, *free))) - self.bound.budget
            self._rooms[i] = need, free
        return self._rooms[i]

    def _apart(self, step: Step, sure: list[int], free: list[int]) -> tuple[list[int], list[int]]:
        """Those of the values that certainly have bytes of their own while the step runs.

        Two values may lie in the same bytes where both show the same contents, by views, or where the step
        defines one in the other's. The largest that is there in any case counts; without one, of those that
        may be held the one that is read last.
        """
        group = {v: self.shown[v] for v in (*sure, *free)}
        for a, b in may_share(self.reference, step):
            if a in group and b in group:
                group = {v: group[a] if g == group[b] else g for v, g in group.items()}
        there: dict[int, int] = {}
        for v in sorted(sure, key=self._size):
            there[group[v]] = v
        held: dict[int, int] = {}
        for v in sorted(free, key=lambda v: (self.last[v], self._size(v), -v)):
            if group[v] not in there:
                held[group[v]] = v
        return sorted(there.values()), sorted(held.values())

    def _sources(self, v: int, i: int) -> list[tuple[_Variable, int]]:
        """The variables of which one must be 1 if a value from before moment i is there after it."""
        if v < 0 or v in self.persistent or self.first[v] > self.bound.moments[i] or self._sure(v, i):
            raise ValueError(f"{self._label(v)} needs no source behind moment {i}.")
        sources: list[tuple[_Variable, int]] = [(("held", v, i), 1)] if self._free(v, i) else []
        maker = self.maker.get(v, -1)
        if maker >= 0 and self._may_run(maker, i):
            sources.append((("made", self.bound.order[maker], i), 1))
        return sources

    def _sure(self, v: int, i: int) -> bool:
        step = self.steps[self.bound.moments[i]]
        return self._waits(v, i) or any(
            b.value == v and b.access is not Access.SCRATCH for b in step.bindings
        )

    def _waits(self, v: int, i: int) -> bool:
        """Whether a value that nothing makes again is read behind a moment, or is an exit."""
        return v not in self.maker and self.first[v] < self.bound.moments[i] < self.last[v]

    def _free(self, v: int, i: int) -> bool:
        return v in self.choosable and self.first[v] < self.bound.moments[i] and not self._sure(v, i)

    def _may_run(self, position: int, i: int) -> bool:
        return position <= self.bound.moments[i] < self.until[position]

    def _end(self, i: int) -> int:
        """The last position of the stretch behind moment i."""
        return self.bound.moments[i + 1] if i + 1 < len(self.bound.moments) else len(self.steps) - 1

    def _size(self, v: int) -> int:
        value = self.reference.values[v]
        alignment = self.reference.spaces[value.space].alignment
        return -(-value.type.nbytes // alignment) * alignment

    def _label(self, v: int) -> str:
        return repr(self.reference.values[v].label) if v >= 0 else "no value"

    def _until(self, position: int) -> int:
        """The first position at which a repetition would find something else; -1: it must not run again."""
        step = self.steps[position]
        wrote = [b.value for b in step.bindings if b.access is Access.WRITE]
        alone = all(
            len(self.definers[v]) == 1 and v not in self.exits and v not in self.persistent for v in wrote
        )
        if not wrote or not alone or not self._repeats_bits(step):
            return -1
        read = (b.value for b in step.bindings if b.access is Access.READ)
        changes: Iterable[int] = (p for v in read for p in self.definers[v] if p > position)
        return min(changes, default=len(self.steps))

    def _repeats_bits(self, step: Step) -> bool:
        """Whether what a second run writes depends on nothing that the first one has changed."""
        node = self.reference.operations[step.operation]
        if step.phase is Phase.EXPLICIT:
            return is_pure(self.reference, step) and not any(b.access is Access.UPDATE for b in step.bindings)
        if step.phase is not Phase.FORWARD or step.due or node.operation.type in OWN_KERNELS - {CONVERT}:
            return False
        updated = {b.slot for b in step.bindings if b.access is Access.UPDATE}
        if not updated or node.operation.type == CONVERT:
            return not updated
        kind = lookup(node.operation.type)
        return all(
            b.value in self.persistent
            if b.access is Access.UPDATE
            else updated <= kind.ignores(node, True, b.slot)
            for b in step.bindings
            if b.access.defines
        )


def check_homes(plan: Plan) -> Iterator[Violation]:
    """What the homes of values, the record of them and the bound claim wrongly. Rule ``home``.

    Without memories in the options there must be neither. O(b + r log l) for b bindings, r regions, l rows.
    """
    yield from (Violation("home", (), detail) for detail in _homes(plan))


def _homes(plan: Plan) -> Iterator[str]:
    program, memories, tiers = plan.program, plan.options.memories, plan.options.tiers
    facts = next((record.facts for record in plan.records if record.name == "homes"), None)
    if not memories:
        if facts is not None or plan.home_bound is not None:
            yield "Homes are recorded, and the options have no memories."
        return
    expected = [(m.name, True) for m in memories] + [(tier.name, False) for tier in tiers]
    spaces = [(space.name, space.addressable) for space in program.spaces]
    if spaces != expected:
        yield f"The options have the memories {expected}, with whether kernels reach them; the plan {spaces}."
        return
    known = {memory.name for memory in memories}
    for text in plan.options.place:
        if text.rpartition("=")[2] not in known:
            yield f"The place {text!r} is in no memory of the options, which are {', '.join(sorted(known))}."
            return
    allowed = places_of(program, plan.options.place, memories)
    for value, memory in allowed.items():
        if program.values[value].space != memory:
            there = program.spaces[program.values[value].space].name
            yield (
                f"{program.values[value].label!r} must lie in memory {memories[memory].name!r}, and lies in"
                f" {there!r}."
            )
            return
    if facts is None or plan.home_bound is None:
        yield "The plan has several memories, and does not record how long accesses take, or a bound on that."
        return
    figures = home_figures(program, memories, tiers, plan.options.costs)
    figures["checked_nanoseconds"] = plan.home_bound.nanoseconds
    accesses = figures["access_nanoseconds"]
    for name, figure in figures.items():
        if facts.get(name, 0) != figure:
            yield f"The record 'homes' claims {name} {facts.get(name, 0)}; the plan says {figure}."
    bound = facts.get("bound_nanoseconds", 0)
    if not isinstance(bound, int) or not plan.home_bound.nanoseconds <= bound <= accesses:
        yield (
            f"Accesses are claimed to take {bound} nanoseconds at least; {plan.home_bound.nanoseconds} are"
            f" added up, and the plan takes {accesses}."
        )
    inside = [region for region in plan.regions if region.space < len(memories)]
    problem = home_problem(program, inside, memories, allowed)
    try:
        proved = added_up_homes(problem, plan.home_bound.rows, plan.home_bound.denominator)
    except ValueError as error:
        yield f"The bound on accesses cannot be added up: {error}"
        return
    if proved < plan.home_bound.nanoseconds:
        yield (
            f"Accesses are claimed to take {plan.home_bound.nanoseconds:,} nanoseconds at least; the rows add"
            f" up to {proved:,}."
        )
