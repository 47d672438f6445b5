"""The differences between two plans, and their causes: the growth of the arenas, added up by operand.

    arenas after - arenas before  =  sum over operands (live at the peak after - live at the peak before)
                                     + what lies idle at the peak after - what lay idle before

Each arena has a peak of its own, and arenas are compared by name. So every byte of growth stands beside the
operand, the kind or the layer that it is for, and nothing is counted twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from solver.plan.options import PlanOptions
from solver.plan.report import ArenaReport, report
from solver.plan.views import AliasedValue, PlannedBuffer, PlanView
from solver.program import COPY, Tier

__all__ = [
    "ArenaChange",
    "Change",
    "OptionChange",
    "PlanDifference",
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
class PlanDifference:
    """Sizes are bytes. Operands, kinds and layers are those whose bytes at the peak differ.

    The largest change comes first. `idle` is what lies idle at the peaks: the arenas without what is live.
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


def difference(old: PlanView, new: PlanView) -> PlanDifference:
    """The changes from `old` to `new`. O(n log n) for n buffers."""
    reports = tuple({arena.name: arena for arena in report(plan).arenas} for plan in (old, new))
    names = dict.fromkeys(name for side in reports for name in side)
    arenas = tuple(_arena(name, reports[0].get(name), reports[1].get(name)) for name in names)
    where = (layers(old), layers(new))

    def by(key: Callable[[AliasedValue, Mapping[str, str]], str]) -> tuple[Change, ...]:
        sums: tuple[dict[str, int], dict[str, int]] = (defaultdict(int), defaultdict(int))
        for total, side, layer in zip(sums, reports, where, strict=True):
            for arena in side.values():
                for buffer in arena.live:
                    total[key(_holder(buffer, arena.peak_step), layer)] += buffer.size
        return _changes(*sums)

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
        tuple(_options(old, new)),
        old.graph_digest == new.graph_digest,
    )


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


def _changes(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[Change, ...]:
    """The differences, the largest first, among equals in the order of names."""
    names = {*old, *new}
    changes = [Change(name, old.get(name, 0), new.get(name, 0)) for name in names]
    changes = [change for change in changes if change.growth]
    return tuple(sorted(changes, key=lambda change: (-abs(change.growth), change.name)))


def _options(old: PlanView, new: PlanView) -> Iterator[OptionChange]:
    now = options_in_words(new.options)
    for name, before in options_in_words(old.options).items():
        if before != now[name]:
            yield OptionChange(name, before, now[name])


def options_in_words(options: PlanOptions) -> dict[str, str]:
    """Each option by name, in words: ``not set``, ``yes``, ``no``, a number with its digits in groups."""
    return {field.name: _said(getattr(options, field.name)) for field in fields(options)}


def _said(value: Any) -> str:
    if value is None or value == ():
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return "; ".join(map(_said, value))
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
