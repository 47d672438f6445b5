"""An exact skyline branch and bound on the question "do all buffers fit under C bytes?".

The skyline is the height, section by section, below which everything is settled. Take any niche, a plateau
of the skyline that is lower than both of its neighbours::

         C ________________________________________
                                                    slack[s]: how much of C - load[s] is not yet
      skyline  ______                               wasted
              |      |            ________
         _____|      |           |                  g: the height at which waste at s can end
                     |   waste   |
                     |____[s]____|                  f: the niche, sections [left, right)
         ---------------------------------- sections

Move every buffer of a layout down as far as it goes. Then section s of the niche has either some unplaced
buffer that lives wholly inside the niche exactly on its skyline, or waste: the first buffer above s rests on
a neighbour, or on a buffer inside the niche that does not cover s, so the waste reaches at least to
``g = min(neighbours, f + smallest such buffer)``. It costs ``g - f`` of slack[s]; when slack runs out, the
branch is dead. A section that no buffer inside the niche covers is wasted at once. Branch on the section with
the fewest alternatives for its weight, where sections that caused failures grow heavier (dom/wdeg,
Boussemart et al., 2004).

Where the sections fall apart into parts that no unplaced buffer joins, the parts are solved one by
one, and a part without a solution refutes the choice that created it. Refuted parts are remembered
exactly (skyline and unplaced buffers), not by a hash. The skyline view follows MiniMalloc (ASPLOS
2023) in spirit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

import numpy as np

from solver.layout.model.instance import Instance
from solver.layout.model.options import Rules
from solver.layout.model.problem import Deadline
from solver.layout.model.reduce import components

__all__ = ["Answer", "Budget", "Placed", "SkylineSearch"]

_INFINITY: Final = 2**63

#: Numbers kept to remember refuted parts; each takes 8 bytes, or 40 where it is not shared.
MEMORY_LIMIT: Final = 4_000_000

#: How often the deadline is looked at, in units of work; about a millisecond.
POLL: Final = 4096


class Answer(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Budget:
    """Work left, in buffers and sections looked at, and the wall time that may cut in before."""

    work: int
    deadline: Deadline = field(default_factory=Deadline)
    cut: bool = False

    @property
    def spent(self) -> bool:
        return self.cut or self.work <= 0

    def spend(self, work: int) -> bool:
        """Take this much; false when nothing was left. `cut` is set when the deadline has passed."""
        if self.spent:
            return False
        if self.work // POLL != (self.work - work) // POLL:
            self.cut = self.deadline.expired
        self.work -= work
        return not self.cut


@dataclass(frozen=True, slots=True)
class _Part:
    """Sections [first, last) and the unplaced `items` in them, by start and kind.

    `parent` is how many frames remain on the stack if the part fails.
    """

    first: int
    last: int
    items: tuple[int, ...]
    parent: int


_Parts: TypeAlias = "tuple[_Part, _Parts] | None"
Placed: TypeAlias = "tuple[int, int, Placed] | None"
_Key: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _State:
    """A node: nothing here is changed after it was made. `parts` and `placed` are linked lists."""

    skyline: list[int]
    slack: list[int]
    parts: _Parts
    placed: Placed


@dataclass(frozen=True, slots=True)
class _Frame:
    """A choice point: the alternatives not tried yet, and what is refuted when none is left."""

    alternatives: Iterator[_State]
    key: _Key
    parent: int


@dataclass(frozen=True, slots=True)
class _Niche:
    """The plateau over sections [left, right) and the height of the lower of its two neighbours."""

    left: int
    right: int
    neighbour: int


@dataclass(frozen=True, slots=True)
class _Branch:
    """The section to branch on, the niche it lies in, and where waste there would end (None: it cannot)."""

    niche: _Niche
    section: int
    waste_end: int | None


class SkylineSearch:
    """One question "fits under `capacity`?", asked in several runs that share what was learnt."""

    def __init__(self, instance: Instance, capacity: int, rules: Rules | None = None) -> None:
        """Heeds all `rules` but `fill` and `span`, which it does not have, and `decomposition`."""
        self._capacity, self._rules = capacity, rules or Rules()
        self._start, self._end = instance.start.tolist(), instance.end.tolist()
        self._size, self._exact = instance.size.tolist(), instance.exact.tolist()
        self._slack = _slack(instance, capacity)
        self._kind = _kinds(instance) if self._rules.symmetry else list(range(len(instance)))
        self._weight = [1] * instance.sections
        self._refuted: set[_Key] = set()
        self._memory = MEMORY_LIMIT if self._rules.transposition else 0

    def run(self, rank: list[int], nodes: int, budget: Budget) -> tuple[Answer, Placed]:
        """Depth first with `rank` (lowest first) as priority among buffers, at most `nodes` nodes."""
        if min(self._slack, default=0) < 0:
            return Answer.NO, None
        stack: list[_Frame] = []
        items = sorted(range(len(self._start)), key=lambda i: (self._start[i], self._kind[i]))
        everything = components(self._start, self._end, items)
        state: _State | None = _State(
            [0] * len(self._slack), list(self._slack), _linked(everything, 0, None), None
        )
        while state is not None:
            if state.parts is None:
                return Answer.YES, state.placed
            part = state.parts[0]
            if nodes <= 0 or not budget.spend(len(part.items) + part.last - part.first):
                return Answer.UNKNOWN, None
            nodes -= 1
            state = self._step(state, state.parts, stack, rank)
        return Answer.NO, None

    def _step(
        self, state: _State, parts: tuple[_Part, _Parts], stack: list[_Frame], rank: list[int]
    ) -> _State | None:
        """The next node: the first alternative of this one, or the next of an earlier choice."""
        part, rest = parts
        skyline, slack = list(state.skyline), list(state.slack)
        branch = self._propagate(part, skyline, slack)
        if branch is not None:
            key = self._key(part, skyline)
            if key not in self._refuted:
                here = _State(skyline, slack, rest, state.placed)
                alternatives = self._alternatives(here, part, branch, len(stack) + 1, rank)
                stack.append(_Frame(alternatives, key, part.parent))
                return self._backtrack(stack, len(stack))
        return self._backtrack(stack, part.parent)

    def _backtrack(self, stack: list[_Frame], height: int) -> _State | None:
        """Drop the frames above `height`, then take the next alternative that is left."""
        while True:
            del stack[height:]
            if not stack:
                return None
            state = next(stack[-1].alternatives, None)
            if state is not None:
                return state
            self._remember(stack[-1].key)
            height = stack[-1].parent

    def _remember(self, key: _Key) -> None:
        _, skyline, kinds = key
        if self._memory >= len(skyline) + len(kinds):
            self._memory -= len(skyline) + len(kinds)
            self._refuted.add(key)

    def _key(self, part: _Part, skyline: list[int]) -> _Key:
        """All that the fate of a part depends on: slack follows from skyline, buffers and capacity."""
        kinds = tuple(self._kind[i] for i in part.items)
        return part.first, tuple(skyline[part.first : part.last]), kinds

    def _alternatives(
        self, state: _State, part: _Part, branch: _Branch, height: int, rank: list[int]
    ) -> Iterator[_State]:
        """Every buffer inside the plateau that covers the section, on its skyline; then waste."""
        tried: set[int] = set()
        for i in sorted(self._inside(part, branch.niche), key=rank.__getitem__):
            if self._kind[i] in tried or not self._start[i] <= branch.section < self._end[i]:
                continue
            tried.add(self._kind[i])
            placed = self._place(state, part, i, height)
            if placed is not None:
                yield placed
        if branch.waste_end is not None:
            yield self._leave_waste(state, part, branch.section, branch.waste_end, height)

    def _place(self, state: _State, part: _Part, i: int, height: int) -> _State | None:
        start, end = self._start[i], self._end[i]
        bottom = state.skyline[start]
        if bottom + self._exact[i] > self._capacity:
            return None
        skyline = list(state.skyline)
        skyline[start:end] = [bottom + self._size[i]] * (end - start)
        left = components(self._start, self._end, [j for j in part.items if j != i])
        parts = _linked(left, height, state.parts)
        return _State(skyline, state.slack, parts, (i, bottom, state.placed))

    def _leave_waste(self, state: _State, part: _Part, section: int, top: int, height: int) -> _State:
        skyline, slack = list(state.skyline), list(state.slack)
        slack[section] -= top - skyline[section]
        skyline[section] = top
        same = _Part(part.first, part.last, part.items, height)
        return _State(skyline, slack, (same, state.parts), state.placed)

    def _propagate(self, part: _Part, skyline: list[int], slack: list[int]) -> _Branch | None:
        """Force waste, in place, until none is forced; None when some section has no way out."""
        while True:
            best, best_key, forced = None, (math.inf, 0), False
            for niche in self._chosen(_niches(part, skyline), skyline):
                covers, other = self._survey(part, niche)
                for section in range(niche.left, niche.right):
                    bottom = skyline[section]
                    top = min(niche.neighbour, bottom + other[section - niche.left])
                    may_waste = top < _INFINITY and top - bottom <= slack[section]
                    alternatives = covers[section - niche.left] + may_waste
                    if not alternatives:
                        self._weight[section] += self._rules.weights
                        return None
                    if self._rules.gaps and not covers[section - niche.left]:
                        slack[section] -= top - bottom
                        skyline[section] = top
                        forced = True
                    key = (alternatives / self._weight[section], slack[section])
                    if key < best_key:
                        best, best_key = _Branch(niche, section, top if may_waste else None), key
            if not forced:
                return best

    def _chosen(self, niches: Iterator[_Niche], skyline: list[int]) -> Iterator[_Niche]:
        """All of them, or only the lowest: some section of it must be covered or wasted, too."""
        if self._rules.plateaus:
            return niches
        return iter((min(niches, key=lambda niche: skyline[niche.left]),))

    def _inside(self, part: _Part, niche: _Niche) -> list[int]:
        """The buffers that live wholly inside the niche; items are sorted by start."""
        start, end = self._start, self._end
        first = bisect_left(part.items, niche.left, key=start.__getitem__)
        last = bisect_left(part.items, niche.right, lo=first, key=start.__getitem__)
        return [i for i in part.items[first:last] if end[i] <= niche.right]

    def _survey(self, part: _Part, niche: _Niche) -> tuple[list[int], list[int]]:
        """Per section of a niche: how many buffers inside cover it; the smallest that does not."""
        left, width = niche.left, niche.right - niche.left
        change, before, after = [0] * (width + 1), [_INFINITY] * (width + 1), [_INFINITY] * (width + 1)
        for i in self._inside(part, niche):
            first, last, size = self._start[i] - left, self._end[i] - left, self._size[i]
            change[first] += 1
            change[last] -= 1
            before[last] = min(before[last], size)
            after[first] = min(after[first], size)
        for k in range(width):
            change[k + 1] += change[k]
            before[k + 1] = min(before[k + 1], before[k])
        for k in range(width - 1, -1, -1):
            after[k] = min(after[k], after[k + 1])
        return change, [min(before[k], after[k + 1]) for k in range(width)]


def _niches(part: _Part, skyline: list[int]) -> Iterator[_Niche]:
    """Plateaus lower than both neighbours; the borders of a part are infinitely high."""
    left = part.first
    while left < part.last:
        right = left + 1
        while right < part.last and skyline[right] == skyline[left]:
            right += 1
        before = skyline[left - 1] if left > part.first else _INFINITY
        after = skyline[right] if right < part.last else _INFINITY
        neighbour = min(before, after)
        if neighbour > skyline[left]:
            yield _Niche(left, right, neighbour)
        left = right


def _linked(parts: list[tuple[int, int, list[int]]], parent: int, rest: _Parts) -> _Parts:
    """The parts in front of `rest`, the smallest first: it is the quickest to fail."""
    for first, last, items in sorted(parts, key=lambda part: -len(part[2])):
        rest = (_Part(first, last, tuple(items), parent), rest)
    return rest


def _slack(instance: Instance, capacity: int) -> list[int]:
    """What waste may take from each section, in whole units.

    The topmost buffer of a section may reach beyond the capacity by its padding, so a section is
    allowed the largest padding live in it; `_place` holds each buffer to its exact bytes.
    """
    padding = np.zeros(instance.sections, dtype=np.int64)
    for i in np.flatnonzero(instance.size > instance.exact).tolist():
        live = slice(int(instance.start[i]), int(instance.end[i]))
        padding[live] = np.maximum(padding[live], instance.size[i] - instance.exact[i])
    room = (capacity + padding) // instance.unit * instance.unit
    return [int(x) for x in room - instance.load()]


def _kinds(instance: Instance) -> list[int]:
    """Equal numbers for buffers that can take each other's place."""
    numbers: dict[tuple[int, ...], int] = {}
    rows = zip(
        instance.start.tolist(),
        instance.end.tolist(),
        instance.size.tolist(),
        instance.exact.tolist(),
        strict=True,
    )
    return [numbers.setdefault(row, len(numbers)) for row in rows]
