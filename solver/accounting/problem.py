"""A scheduling problem: what steps read and write, what that costs, and which steps may run again.

    fixed      weights, optimizer variables, constants: there throughout, not decided about
    fed        written by the caller: there from the start, until its last reader
    kept       an exit: there until the end
    made       by a step that may run again, a forward or a pure one: kept, or dropped and made again
    the rest   derivatives, gradients, partials: made once, kept until their last reader

Steps and values are numbers, positions in the tuples. Nothing here knows a graph or a layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from solver.graph.ops import lookup
from solver.program import (
    CONVERT,
    OWN_KERNELS,
    Access,
    EntryKind,
    Phase,
    Program,
    Step,
    is_pure,
    permitted,
)

__all__ = ["ScheduleProblem", "joined", "may_share", "schedule_problem"]


@dataclass(frozen=True, slots=True)
class ScheduleProblem:
    """`steps` are labels in the given order. Sizes are bytes as reserved, costs are nanoseconds.

    `reads[t]` and `writes[t]` are the values that step t reads and defines; what it updates in place stands
    in `reads[t]` and in `updates[t]`. `scratch[t]` are bytes, `scratch_again[t]` those of a repetition,
    which has in scratch what the first run updates for good. `until[t]` is the last step in front of which
    a repetition of t finds what t itself found, -1 where t must not run again. `maker[v]` is the step that
    can make value v again, -1 where there is none. `together[v]` is a number that values share which some
    alias might put into the same bytes. `fixed` are bytes that are there throughout.
    """

    steps: tuple[str, ...]
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    updates: tuple[tuple[int, ...], ...]
    scratch: tuple[int, ...]
    scratch_again: tuple[int, ...]
    cost: tuple[int, ...]
    until: tuple[int, ...]
    values: tuple[str, ...]
    size: tuple[int, ...]
    fed: tuple[bool, ...]
    kept: tuple[bool, ...]
    maker: tuple[int, ...]
    together: tuple[int, ...]
    fixed: int

    @property
    def touches(self) -> tuple[tuple[int, ...], ...]:
        """For each value the steps that read or define it, in order."""
        steps_by_value: list[list[int]] = [[] for _ in self.values]
        for t in range(len(self.steps)):
            for v in dict.fromkeys((*self.reads[t], *self.writes[t])):
                steps_by_value[v].append(t)
        return tuple(map(tuple, steps_by_value))

    @property
    def spans(self) -> tuple[list[int], list[int]]:
        """For each value the step that defines it first, -1 if the caller does; and its last reader, n if it
        is kept. Without either they are n and -1, for n steps. Linear in the touches.
        """
        steps = len(self.steps)
        first = [-1 if from_caller else steps for from_caller in self.fed]
        last = [-1] * len(self.values)
        for t in range(steps):
            for v in self.writes[t]:
                first[v] = min(first[v], t)
            for v in (*self.reads[t], *self.writes[t]):
                last[v] = t
        return first, [steps if kept else t for kept, t in zip(self.kept, last, strict=True)]

    @property
    def counted(self) -> set[int]:
        """One of all values that may share bytes, the largest: at least its bytes are taken. Linear."""
        largest: dict[int, int] = {}
        for v, root in enumerate(self.together):
            largest[root] = max(largest.get(root, v), v, key=lambda v: (self.size[v], -v))
        return set(largest.values())

    def in_order(self, order: Sequence[int]) -> Self:
        """The same problem with its steps in another order; values keep their numbers. Linear."""
        place = {t: k for k, t in enumerate(order)}
        return replace(
            self,
            steps=tuple(self.steps[t] for t in order),
            reads=tuple(self.reads[t] for t in order),
            writes=tuple(self.writes[t] for t in order),
            updates=tuple(self.updates[t] for t in order),
            scratch=tuple(self.scratch[t] for t in order),
            scratch_again=tuple(self.scratch_again[t] for t in order),
            cost=tuple(self.cost[t] for t in order),
            until=tuple(place.get(until, until) for until in (self.until[t] for t in order)),
            maker=tuple(place.get(t, -1) for t in self.maker),
        )


def schedule_problem(program: Program, cost: Sequence[int], *, in_place: bool = False) -> ScheduleProblem:
    """The problem of a sequential program without aliases, in one space. Linear in the bindings.

    `cost` has the nanoseconds of each step. With `in_place` the values that operators promise to define in
    the bytes of others count as sharing them where bounds are concerned.
    """
    persistent = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
    fed = {entry.value for entry in program.entry if entry.kind is EntryKind.FED}
    exits = {exit_.value for exit_ in program.exit}
    alignment = [space.alignment for space in program.spaces]
    size = [-(-v.type.nbytes // alignment[v.space]) * alignment[v.space] for v in program.values]
    definitions: dict[int, list[int]] = {}
    number: dict[int, int] = {}
    taking_bytes = {entry.value for entry in program.entry if entry.kind is EntryKind.HELD}
    for t, step in enumerate(program.steps):
        for binding in step.bindings:
            value = binding.value
            taking_bytes.add(value)
            if binding.access.defines:
                definitions.setdefault(value, []).append(t)
            if value not in persistent and binding.access is not Access.SCRATCH:
                number.setdefault(value, len(number))
    reads, writes, updates, scratch, scratch_again, until = [], [], [], [], [], []
    maker = [-1] * len(number)
    for t, step in enumerate(program.steps):
        read = dict.fromkeys(number[b.value] for b in step.bindings if b.access.reads and b.value in number)
        wrote = [b.value for b in step.bindings if b.access is Access.WRITE and b.value in number]
        reads.append(tuple(read))
        writes.append(tuple(number[value] for value in wrote))
        updates.append(
            tuple(number[b.value] for b in step.bindings if b.access is Access.UPDATE and b.value in number)
        )
        scratch.append(sum(size[b.value] for b in step.bindings if b.access is Access.SCRATCH))
        dropped = (size[b.value] for b in step.bindings if b.access is Access.UPDATE)
        scratch_again.append(scratch[-1] + sum(dropped))
        until.append(-1)
        alone = all(len(definitions[value]) == 1 and value not in exits for value in wrote)
        if alone and wrote and _repeatable(program, step, persistent):
            read_only = [b.value for b in step.bindings if b.access is Access.READ]
            changes = (c for value in read_only for c in definitions.get(value, ()) if c > t)
            until[t] = min(changes, default=len(program.steps))
            for value in wrote:
                maker[number[value]] = t
    return ScheduleProblem(
        steps=program.step_labels,
        reads=tuple(reads),
        writes=tuple(writes),
        updates=tuple(updates),
        scratch=tuple(scratch),
        scratch_again=tuple(scratch_again),
        cost=tuple(cost),
        until=tuple(until),
        values=tuple(program.values[value].label for value in number),
        size=tuple(size[value] for value in number),
        fed=tuple(value in fed for value in number),
        kept=tuple(value in exits for value in number),
        maker=tuple(maker),
        together=_together(program, number) if in_place else tuple(range(len(number))),
        fixed=sum(size[value] for value in persistent & taking_bytes),
    )


def _repeatable(program: Program, step: Step, persistent: set[int]) -> bool:
    """Whether a second run writes the same bits: a forward step whose results ignore what it updates, or an
    explicit one that is pure and updates nothing.

    What it updates, the running statistics of a normalisation, goes to scratch the second time. What it
    updates beside these, or writes for the next iteration, a second run must not write again.
    """
    node = program.operations[step.operation]
    if step.phase is Phase.EXPLICIT:
        return is_pure(program, step) and all(
            b.access is not Access.UPDATE and not (b.access is Access.WRITE and b.value in persistent)
            for b in step.bindings
        )
    if step.phase is not Phase.FORWARD or step.due:
        return False
    if node.operation.type in OWN_KERNELS:
        return node.operation.type == CONVERT
    if any(b.access is Access.WRITE and b.value in persistent for b in step.bindings):
        return False
    updated = {b.slot for b in step.bindings if b.access is Access.UPDATE}
    kind = lookup(node.operation.type)
    return all(
        b.value in persistent if b.access is Access.UPDATE else updated <= kind.ignores(node, True, b.slot)
        for b in step.bindings
        if updated and b.access.defines
    )


def _together(program: Program, number: dict[int, int]) -> tuple[int, ...]:
    """For each value the least of those that promises, and parts, one after the other, lead to."""
    pairs = (pair for step in program.steps for pair in may_share(program, step))
    return tuple(
        joined(len(number), ((number[a], number[b]) for a, b in pairs if a in number and b in number))
    )


def may_share(program: Program, step: Step, *, views: bool = False) -> Iterator[tuple[int, int]]:
    """Values of the program of which the step may define the second one in the bytes of the first one.

    With `views` only those that then show the same contents.
    """
    node = program.operations[step.operation]
    if node.operation.type in OWN_KERNELS and step.phase is not Phase.EXPLICIT:
        return
    bound = {b.slot: b.value for b in step.bindings}
    if step.phase is Phase.EXPLICIT:
        yield from ((bound[each.source], bound[each.target]) for each in permitted(node) if not views)
        return
    kind = lookup(node.operation.type)
    shared = [(each.source, each.target) for each in kind.in_place(node) if each.view or not views]
    shared += [(part.source, part.target) for part in kind.parts(node, step.phase is Phase.FORWARD)]
    for source, target in shared:
        if source in bound and target in bound:
            yield bound[source], bound[target]


def joined(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """For each of `count` numbers the least that pairs, one after the other, lead to."""
    root = list(range(count))

    def find(v: int) -> int:
        while root[v] != v:
            root[v] = root[root[v]]
            v = root[v]
        return v

    for pair in pairs:
        low, high = sorted(map(find, pair))
        root[high] = low
    return [find(v) for v in range(count)]
