"""The pass `aliases`: which values are defined in the bytes of another one.

    conv ──► x ──► Relu ──► y ──► Flatten ──► z ──► Gemm         one region, three values:
                                                                 y overwrites x, z is a view of y
Two things may happen to a region when a step defines a value in it:

* the step overwrites it: only where no later step reads any of the values whose contents it holds. Gelu and
  Swish read X in their backward step, so X is not overwritten, unless no backward step comes;
* the step leaves it as it is, a view: only where neither value is overwritten while the other is still
  read, as an accumulation would do.

With `sub_ranges` the same holds for what is cut out of a value (Slice, Split) or put together from several
(Concat), where that is contiguous: one region then begins inside another, or several become one. Bytes may
have to stay longer for it, so it is done only where the footprint of the whole program says that it helps.

    Slice:  x ───────────────►          Concat:  x ─────►             one region as long as the result,
               y ──►                                     y ─────►     from the first part on
                                             z ─────►
Inputs, labels, parameters, states, constants, results and the loss are never overwritten. Which
kernels can do it at all, their operators say (`OperationType.in_place`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from solver.errors import OptionsError
from solver.graph.ops import lookup
from solver.graph.ops.base import InPlace, Part
from solver.passes.base import Pass
from solver.program import (
    NO_CONSTRAINTS,
    OWN_KERNELS,
    Access,
    Alias,
    Binding,
    Constraints,
    Footprint,
    Phase,
    Program,
    Step,
    conflicts,
    lent,
    loads,
    permitted,
    regions,
)

__all__ = ["Aliases", "Allowed", "define_in_place"]

#: Later than every level: when what outlives the iteration is read last, and then when nothing happens.
_AFTER, _NEVER = 2**62, 2**63

#: Whether a promise may be used in a step.
Allowed = Callable[[Program, Step, InPlace], bool]


@dataclass(frozen=True, slots=True)
class Aliases(Pass):
    """Whether values may be defined in the bytes of others, and whether in parts of them, too.

    Raises OptionsError for `sub_ranges` without `in_place`.
    """

    name: ClassVar[str] = "aliases"
    requires: ClassVar[frozenset[str]] = frozenset({"own memory"})
    keeps: ClassVar[frozenset[str]] = frozenset({"sequential"})

    in_place: bool = False
    sub_ranges: bool = False
    constraints: Constraints = NO_CONSTRAINTS

    def __post_init__(self) -> None:
        if self.sub_ranges and not self.in_place:
            raise OptionsError(
                "The option sub_ranges is about what is defined in place.",
                remedy="Give in_place as well.",
                path=("sub_ranges",),
            )

    def run(self, program: Program) -> Program:
        if not self.in_place:
            return program
        apart: frozenset[int] = frozenset()
        while True:
            changed = define_in_place(program, sub_ranges=self.sub_ranges, apart=apart)
            further = self._colliding(changed) - apart
            if not further:
                return changed
            apart |= further

    def _colliding(self, program: Program) -> frozenset[int]:
        """The values that are defined in the bytes of others where that keeps a constraint from being kept.

        The constraints may collide without them, too: that is for the layout to say.
        """
        if not self.constraints:
            return frozenset()
        inside = {alias.value for alias in program.aliases}
        rules = self.constraints.rules(program)
        return frozenset(
            member
            for conflict in conflicts(program, regions(program), rules)
            for region in conflict.regions
            for member in region.members
            if member in inside
        )

    def facts(self, before: Program, after: Program) -> dict[str, int | str | bool]:
        views = sum(alias.view for alias in after.aliases)
        return {
            "views": views,
            "overwritten": len(after.aliases) - views,
            "peak_before": _peak(loads(before)),
            "peak_after": _peak(loads(after)),
        }


def define_in_place(
    program: Program,
    allowed: Allowed | None = None,
    *,
    sub_ranges: bool = False,
    apart: Container[int] = (),
) -> Program:
    """The same steps, with an alias for everything that can be done in place. Linear in the bindings.

    Decided step by step, in the execution order; what the steps of a level touch lives at the same time. With
    `sub_ranges` O(log n) for each part, n being the levels; the peak is never above the one without. Values
    that are `apart` are defined in bytes of their own.
    """
    whole = replace(program, aliases=_Walk(program, allowed or _all, apart).run())
    if not sub_ranges or not any(_parts(program, step) for step in program.steps):
        return whole
    footprint = Footprint(program)
    parts = replace(program, aliases=_Walk(program, allowed or _all, apart, footprint).run())
    better = (footprint.peak, footprint.area) < _room(whole)
    return parts if better else whole


def _parts(program: Program, step: Step) -> Sequence[Part]:
    """The parts that a step cuts out of a value, or puts together to one."""
    node = program.operations[step.operation]
    if step.phase is Phase.EXPLICIT or node.operation.type in OWN_KERNELS:
        return ()
    return lookup(node.operation.type).parts(node, step.phase is Phase.FORWARD)


def _peak(curves: Sequence[Sequence[int]]) -> int:
    return sum(max(curve, default=0) for curve in curves)


def _room(program: Program) -> tuple[int, int]:
    """Peak and area, as a footprint has them."""
    curves = loads(program)
    return _peak(curves), sum(map(sum, curves))


def _apart(footprint: Footprint, sources: Sequence[int], offsets: Sequence[int]) -> bool:
    """Whether the regions of the sources share no bytes where each source is at its place, -offset."""
    places = []
    for source, offset in zip(sources, offsets, strict=True):
        region = footprint.region(source)
        start = -offset - region.offsets[region.members.index(source)]
        places.append((start, start + region.nbytes))
    return all(a[1] <= b[0] for a, b in pairwise(sorted(places)))


def _all(program: Program, step: Step, promise: InPlace) -> bool:
    return True


@dataclass(slots=True, eq=False)
class _Region:
    """The values whose contents some bytes hold, until when they must stay, and when they are overwritten.

    `until` is the level of the last touch of any of them; `redefined` that of the next update. A region that
    has become part of another one is known by that one, `into`.
    """

    holds: set[int]
    until: int
    redefined: int
    into: _Region | None = None


class _Walk:
    """Goes through the steps once; lives for one call of `define_in_place`.

    With a footprint of the program parts are shared, too; it is kept up to date.
    """

    def __init__(
        self,
        program: Program,
        allowed: Allowed,
        apart: Container[int],
        footprint: Footprint | None = None,
    ) -> None:
        self.program = program
        self.allowed = allowed
        self.apart = apart
        self.footprint = footprint
        self.aliases: dict[int, list[Alias]] = {}
        self.regions: dict[int, _Region] = {}
        self.given = {entry.value for entry in program.entry}
        self.kept = self.given | {exit_.value for exit_ in program.exit}
        # With an alias they would hold their bytes all the time.
        self.lent = lent(program)
        self.levels: dict[int, list[Step]] = defaultdict(list)
        self.last: dict[int, int] = {}
        self.redefinitions: dict[int, list[int]] = defaultdict(list)
        #: The step that writes each value first: behind it a value has its place.
        self.first: dict[int, int] = {}
        last = self.last
        for t, step in enumerate(program.steps):
            level, until = step.level, step.until
            self.levels[level].append(step)
            for later in range(level + 1, until + 1):  # a copy may take several
                self.levels[later].append(step)
            for binding in step.bindings:
                value = binding.value
                if last.get(value, -1) < until:
                    last[value] = until
                if binding.access.defines and (
                    self.first.setdefault(value, t) != t or binding.access is Access.UPDATE
                ):
                    self.redefinitions[value].append(level)

    def run(self) -> tuple[Alias, ...]:
        for t, step in enumerate(self.program.steps):
            for promise in self._promises(step):
                self._keep(promise, t, step)
            if self.footprint is not None:
                self._keep_parts(self.footprint, t, step)
            for binding in step.bindings:
                if binding.access is Access.UPDATE or (
                    binding.access is Access.WRITE and self.first[binding.value] != t
                ):
                    self._hold(self._region(binding.value), binding.value, step.level)
        return tuple(alias for aliases in self.aliases.values() for alias in aliases)

    def _promises(self, step: Step) -> Iterable[InPlace]:
        node = self.program.operations[step.operation]
        if step.phase is Phase.EXPLICIT:
            return permitted(node)
        if node.operation.type in OWN_KERNELS:
            return ()
        promises = lookup(node.operation.type).in_place(node)
        return (promise for promise in promises if self.allowed(self.program, step, promise))

    def _keep(self, promise: InPlace, t: int, step: Step) -> None:
        """Let source and target of a promise share bytes if the step has both and nothing forbids it."""
        by_slot = {binding.slot: binding for binding in step.bindings}
        source, target = by_slot.get(promise.source), by_slot.get(promise.target)
        if source is None or source.access is not Access.READ or source.value in self.lent:
            return
        if target is None or not self._fits(source.value, target, promise, t, step):
            return
        region = self._region(source.value)
        if source.value not in region.holds:
            return
        if promise.view and self._may_view(region, target.value):
            region.holds.add(target.value)
            region.until = max(region.until, self._until(target.value))
            region.redefined = min(region.redefined, self._redefined(target.value, step.level))
        elif not promise.view and self._may_overwrite(region, step.level):
            self._hold(region, target.value, step.level)
        else:
            return
        self.regions[target.value] = region
        self.aliases[target.value] = [Alias(target.value, source.value, t, promise.view)]
        if self.footprint is not None:
            self.footprint.share(target.value, source.value)

    def _keep_parts(self, footprint: Footprint, t: int, step: Step) -> None:
        """Let what a step puts together lie where its parts are, if they can stay and that takes less."""
        parts: dict[str, list[Part]] = defaultdict(list)
        for part in _parts(self.program, step):
            parts[part.target].append(part)
        by_slot = {binding.slot: binding for binding in step.bindings} if parts else {}
        for slot, of in parts.items():
            target = by_slot.get(slot)
            sources = [by_slot[part.source].value for part in of if part.source in by_slot]
            if target is None or len(sources) < len(of) or not self._may_define(target, t, step):
                continue
            alignment = self.program.spaces[self.program.values[target.value].space].alignment
            offsets = [part.start - part.target_start for part in of]
            regions = [self._region(source) for source in sources]
            if (
                any(offset % alignment for offset in offsets)
                or len(set(map(id, regions))) < len(of)
                or any(source in self.lent for source in sources)
                or not all(source in region.holds for source, region in zip(sources, regions, strict=True))
                or not all(self._may_view(region, target.value) for region in regions)
                or not _apart(footprint, sources, offsets)
            ):
                continue
            before = footprint.peak, footprint.area
            undo = [
                footprint.share(target.value, source, offset)
                for source, offset in zip(sources, offsets, strict=True)
            ]
            if (footprint.peak, footprint.area) >= before:
                for edit in reversed(undo):
                    footprint.restore(edit)
                continue
            self._join(target.value, regions, step.level)
            self.aliases[target.value] = [
                Alias(target.value, source, t, view=True, offset=offset)
                for source, offset in zip(sources, offsets, strict=True)
            ]

    def _join(self, target: int, regions: Sequence[_Region], level: int) -> None:
        """Make one region of several, with a view of all of them."""
        joined = _Region(
            {target}.union(*(region.holds for region in regions)),
            max([self._until(target), *(region.until for region in regions)]),
            min([self._redefined(target, level), *(region.redefined for region in regions)]),
        )
        for region in regions:
            region.into = joined
        self.regions[target] = joined

    def _may_define(self, target: Binding, t: int, step: Step) -> bool:
        """Whether the value of a binding may be defined in the bytes of others."""
        return (
            target.access is Access.WRITE
            and self.first[target.value] == t
            and target.value not in self.given
            and target.value not in self.aliases
            and all(b.value != target.value or b.access is Access.WRITE for b in step.bindings)
            and target.value not in self.apart
        )

    def _fits(self, source: int, target: Binding, promise: InPlace, t: int, step: Step) -> bool:
        ours, theirs = self.program.values[target.value].type, self.program.values[source].type
        writes = sum(binding.access.defines for binding in step.bindings)
        return (
            self._may_define(target, t, step)
            and ours.elements == theirs.elements
            and ours.dtype is theirs.dtype
            and ours.storage is theirs.storage is None
            and not (promise.alone and writes > 1)
        )

    def _may_view(self, region: _Region, target: int) -> bool:
        return self._until(target) < region.redefined and region.until < self._redefined(target, -1)

    def _may_overwrite(self, region: _Region, level: int) -> bool:
        """Nothing is read later, and on this level one value, once: the source."""
        if region.until > level:
            return False
        touched = [binding.value for step in self.levels[level] for binding in step.bindings]
        return sum(value in self.regions and self._region(value) is region for value in touched) == 1

    # ------------------------------------------------------------------------------------ regions

    def _region(self, value: int) -> _Region:
        """The region of a value; at first it is alone in its own."""
        region = self.regions.get(value)
        if region is None:
            region = self.regions[value] = _Region({value}, self._until(value), self._redefined(value, -1))
        while region.into is not None:
            region = self.regions[value] = region.into
        return region

    def _hold(self, region: _Region, value: int, level: int) -> None:
        """From `level` on the region holds one value, and what it held before is gone."""
        region.holds = {value}
        region.until = self._until(value)
        region.redefined = self._redefined(value, level)

    def _until(self, value: int) -> int:
        return _AFTER if value in self.kept else self.last[value]

    def _redefined(self, value: int, level: int) -> int:
        times = self.redefinitions.get(value)
        if times is None or times[-1] <= level:
            return _NEVER
        return times[bisect_right(times, level)]
