"""The differences between two plans, and their causes: the growth of the arenas, added up by operand.

    arenas after - arenas before  =  sum over operands (live at the peak after - live at the peak before)
                                     + what lies idle at the peak after - what lay idle before

Each arena has a peak of its own, and arenas are compared by name. So every byte of growth stands beside the
operand, the kind or the layer that it is for, and nothing is counted twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from solver.layout import Alignment, Pin
from solver.plan.deployment import Deployment, JoinedPlan, persistent_rows
from solver.plan.options import PlanOptions
from solver.plan.views import AliasedValue, PlannedBuffer, PlanView
from solver.program import COPY, Lifetime, ReservedRange, Tier
from solver.reports.arenas import ArenaReport, report

__all__ = [
    "ArenaChange",
    "Change",
    "DeploymentDifference",
    "EntryPointChange",
    "Move",
    "OptionChange",
    "PersistentMove",
    "PlanDifference",
    "deployment_difference",
    "difference",
    "layers",
    "options_in_words",
]


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes that are live at the peaks of the arenas, in both plans; 0 where there are none."""

    name: str
    before: int
    after: int

    @property
    def growth(self) -> int:
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class ArenaChange:
    """One arena, by name: its size, its load at the peak, and the step of that; None where there is none."""

    name: str
    before: int
    after: int
    load_before: int
    load_after: int
    step_before: str | None
    step_after: str | None


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option of planning that is another one now, in words."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Move:
    """A value that both plans keep from one iteration to the next, at another place: arenas and offsets."""

    name: str
    arena_before: str
    before: int
    arena_after: str
    after: int


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """Sizes are bytes. Operands, kinds and layers are those whose bytes at the peak differ.

    The largest change comes first. `idle` is what lies idle at the peaks: the arenas without what is live.
    Of the values that both plans keep from one iteration to the next, `stayed` lie where they did.
    """

    before: int
    after: int
    bound_before: int
    bound_after: int
    steps_before: int
    steps_after: int
    arenas: tuple[ArenaChange, ...]
    operands: tuple[Change, ...]
    kinds: tuple[Change, ...]
    layers: tuple[Change, ...]
    idle: Change
    options: tuple[OptionChange, ...]
    same_graph: bool
    stayed: int
    moved: tuple[Move, ...]

    @property
    def growth(self) -> int:
        """Bytes that the arenas take more; negative where they take less."""
        return self.after - self.before

    def facts(self) -> dict[str, Any]:
        """All of it for scripts, as JSON has it; the share is null where there was nothing before."""
        facts = {"growth": self.growth, "share": self.share if self.before else None}
        return {**facts, **asdict(self)}

    @property
    def share(self) -> float:
        """The growth as a share of what it was; infinite where there was nothing."""
        if self.before:
            return self.growth / self.before
        return float("inf") if self.after else 0.0


@dataclass(frozen=True, slots=True)
class EntryPointChange:
    """An entry point of two deployments, by name: its arena bytes, None where it is not there."""

    name: str
    before: int | None
    after: int | None
    difference: PlanDifference | None


@dataclass(frozen=True, slots=True)
class PersistentMove:
    """A persistent value that has another place: its space and offset, None where it is not there."""

    name: str
    before: tuple[str, int] | None
    after: tuple[str, int] | None
    nbytes: int


@dataclass(frozen=True, slots=True)
class DeploymentDifference:
    """`whole` compares the arenas, with one run of each entry point after the other in them."""

    whole: PlanDifference
    entry_points: tuple[EntryPointChange, ...]
    moves: tuple[PersistentMove, ...]

    def facts(self) -> dict[str, Any]:
        """All of it for scripts, as JSON has it."""
        return {
            **self.whole.facts(),
            "entry_points": [
                {
                    "name": one.name,
                    "before": one.before,
                    "after": one.after,
                    "difference": None if one.difference is None else one.difference.facts(),
                }
                for one in self.entry_points
            ],
            "persistent_moves": [asdict(move) for move in self.moves],
        }


def deployment_difference(old: Deployment, new: Deployment) -> DeploymentDifference:
    """The changes from `old` to `new`: of the arena, of each entry point, and of persistent places."""
    before, after = ({e.name: e.plan for e in one.entry_points} for one in (old, new))
    entry_points = []
    for name in dict.fromkeys((*before, *after)):
        first, second = before.get(name), after.get(name)
        entry_points.append(
            EntryPointChange(
                name,
                None if first is None else first.arena_bytes,
                None if second is None else second.arena_bytes,
                None if first is None or second is None else difference(first, second),
            )
        )
    rows = [{row.name: row for row in persistent_rows(one)} for one in (old, new)]
    moves = []
    for name in dict.fromkeys((*rows[0], *rows[1])):
        sides = [side.get(name) for side in rows]
        places = [None if row is None else (row.space, row.offset) for row in sides]
        if places[0] != places[1]:
            nbytes = max(row.nbytes for row in sides if row is not None)
            moves.append(PersistentMove(name, places[0], places[1], nbytes))
    whole = difference(JoinedPlan(old), JoinedPlan(new))
    return DeploymentDifference(whole, tuple(entry_points), tuple(moves))


def difference(old: PlanView, new: PlanView) -> PlanDifference:
    """The changes from `old` to `new`. O(n log n) for n buffers."""
    reports = tuple({arena.name: arena for arena in report(plan).arenas} for plan in (old, new))
    names = dict.fromkeys(name for side in reports for name in side)
    arenas = tuple(_arena(name, reports[0].get(name), reports[1].get(name)) for name in names)
    where = (layers(old), layers(new))

    def by(key: Callable[[AliasedValue, Mapping[str, str]], str]) -> tuple[Change, ...]:
        """The differences by key, the largest first, among equals in the order of names."""
        sums: tuple[dict[str, int], dict[str, int]] = (defaultdict(int), defaultdict(int))
        for total, side, layer in zip(sums, reports, where, strict=True):
            for arena in side.values():
                for buffer in arena.live:
                    total[key(_holder(buffer, arena.peak_step), layer)] += buffer.size
        changes = (Change(name, sums[0].get(name, 0), sums[1].get(name, 0)) for name in {*sums[0], *sums[1]})
        grown = [change for change in changes if change.growth]
        return tuple(sorted(grown, key=lambda change: (-abs(change.growth), change.name)))

    places = _persistent_places(old), _persistent_places(new)
    moved = tuple(
        Move(name, *place, *places[1][name])
        for name, place in places[0].items()
        if name in places[1] and places[1][name] != place
    )
    before, now = options_in_words(old.options), options_in_words(new.options)
    idle = [sum(arena.size - arena.live_bytes for arena in side.values()) for side in reports]
    return PlanDifference(
        old.arena_bytes,
        new.arena_bytes,
        old.lower_bound,
        new.lower_bound,
        len(old.steps),
        len(new.steps),
        arenas,
        by(lambda value, _: value.id),
        by(lambda value, _: value.kind.word),
        by(lambda value, layer: layer.get(value.id, value.id)),
        Change("idle", *idle),
        tuple(OptionChange(name, was, now[name]) for name, was in before.items() if was != now[name]),
        old.graph_digest == new.graph_digest,
        len(places[0].keys() & places[1].keys()) - len(moved),
        moved,
    )


def _persistent_places(plan: PlanView) -> dict[str, tuple[str, int]]:
    """The arena and the offset of each value that is kept from one iteration to the next."""
    return {
        value.id: (arena.name, value.offset)
        for arena, buffer in plan.buffers()
        for value in buffer.values
        if value.lifetime is Lifetime.MAX
    }


def _holder(buffer: PlannedBuffer, level: int | None) -> AliasedValue:
    """The value that a buffer is held for at a level: the largest that is live then, of equals the first.

    So a buffer that an operand takes over in place counts for that operand, as it does where it has its own.
    """
    live = [v for v in buffer.values if level is not None and v.lifespan.start <= level < v.lifespan.end]
    return max(live or buffer.values, key=lambda value: value.nbytes)


def _arena(name: str, old: ArenaReport | None, new: ArenaReport | None) -> ArenaChange:
    return ArenaChange(
        name,
        old.size if old else 0,
        new.size if new else 0,
        old.live_bytes if old else 0,
        new.live_bytes if new else 0,
        old.peak_step_id if old else None,
        new.peak_step_id if new else None,
    )


#: Entries of an option with several that are written out.
_MOST_NAMED: Final = 8


def options_in_words(options: PlanOptions) -> dict[str, str]:
    """Each option by name, in words: ``not set``, ``yes``, ``no``, a number with its digits in groups."""
    return {field.name: _said(getattr(options, field.name)) for field in fields(options)}


def _said(value: Any) -> str:
    if value is None or value == ():
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        named = "; ".join(map(_said, value[:_MOST_NAMED]))
        return named if len(value) <= _MOST_NAMED else f"{named}; {len(value) - _MOST_NAMED} more"
    if isinstance(value, Pin):
        return f"{value.name} at {value.offset:,}"
    if isinstance(value, Alignment):
        return f"{value.name} at multiples of {value.bytes:,}"
    if isinstance(value, ReservedRange):
        return str(value)
    if isinstance(value, Tier):
        return ", ".join(
            f"{name} {_said(x)}" if name != "name" else x for name, x in asdict(value).items() if x
        )
    return f"{value:,}" if isinstance(value, int) else str(value)


_STEP: Final = re.compile(
    r"(?P<operation>.*):(?:forward|calc_gradient|calc_derivative|apply_gradient)(?:\..*)?", re.DOTALL
)


def layers(plan: PlanView) -> dict[str, str]:
    """For each value the operation that it belongs to: the first that touches it. Linear.

    What an update or a seed touches belongs to the operation of the operand that it is for. A value and its
    copies in other memories belong to one operation, that of the first other step that touches any of them.
    """
    source: dict[str, str] = {}

    def first(name: str) -> str:
        """Of a value and its copies the one that was there before the others."""
        while name in source:
            name = source[name]
        return name

    for step in plan.steps:
        if step.kernel == COPY and first(step.uses[0]) != first(step.defs[0]):
            source[first(step.defs[0])] = first(step.uses[0])
    layer_by_name: dict[str, str] = {}
    for step in plan.steps:
        if step.kernel == COPY:
            continue
        match = _STEP.fullmatch(step.id)
        operation = match["operation"] if match else step.id
        layer = layer_by_name.get(first(operation), operation)
        for name in (*step.uses, *step.defs, *step.scratch):
            layer_by_name.setdefault(first(name), layer)
    touched = {name for step in plan.steps for name in (*step.uses, *step.defs, *step.scratch)}
    return {name: layer_by_name.get(first(name), first(name)) for name in touched}
