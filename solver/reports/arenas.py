"""Facts about the arenas of a plan: bytes by kind, the worst step, how full an arena is, a map of it,
when its buffers are taken and given back, and what steps that run at the same time gain and cost.

Everything is recomputed from the plan's buffers. Sizes are bytes as reserved, alignment included.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from solver.graph import DType
from solver.graph.storage import storage_of_word
from solver.layout import Certificate, Lifespan, Proof
from solver.plan import AliasedValue, Arena, PlannedBuffer, PlanView
from solver.program import CLIP, UPDATE, Kind, Lifetime, dependencies, list_schedule

__all__ = [
    "ArenaReport",
    "KindBytes",
    "LevelReport",
    "MemoryMap",
    "PlanReport",
    "RecycledStep",
    "Recycling",
    "SharingReport",
    "certificate_note",
    "frozen_storage_note",
    "gradient_notes",
    "level_report",
    "live_curve",
    "memory_map",
    "order_note",
    "recycling",
    "report",
    "sharing",
    "storage_note",
]


@dataclass(frozen=True, slots=True)
class KindBytes:
    """`total` bytes without any reuse; `peak` bytes are live at once at the kind's own worst step."""

    kind: Kind
    buffers: int
    total: int
    peak: int


@dataclass(frozen=True, slots=True)
class ArenaReport:
    """One arena at its worst step, the first at which most bytes are live.

    `curve` has the live bytes of each step; `live` the buffers at `peak_step`, largest first. Where
    steps run at the same time, a level takes the place of a step; its id has those of its steps.
    `certificate` is the arena's; `is_checkable` tells whether it can be checked by adding up.
    """

    name: str
    size: int
    peak_step: int | None
    peak_step_id: str | None
    live_bytes: int
    live: tuple[PlannedBuffer, ...]
    curve: tuple[int, ...]
    certificate: Certificate

    @property
    def is_checkable(self) -> bool:
        """Whether the lower bound can be added up at the witness step, without trust in a solver."""
        return self.certificate.proof is Proof.MAX_LOAD

    @property
    def utilisation(self) -> float:
        """Share of the arena in use at the worst step; 1.0 for an empty arena."""
        return self.live_bytes / self.size if self.size else 1.0

    @property
    def fragmentation(self) -> float:
        """Share of the arena that is free even at the worst step, yet cannot be given back."""
        return 1.0 - self.utilisation


@dataclass(frozen=True, slots=True)
class PlanReport:
    """`total` is what the same buffers take without any reuse; what is in place is in `sharing`."""

    kinds: tuple[KindBytes, ...]
    arenas: tuple[ArenaReport, ...]
    total: int


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """An arena as a grid, for printing: `rows[y][x]` is what fills most of that patch.

    offset
    end    +-----------------+     x: steps 0 .. steps, `columns` patches
           | .  . DD .  .  . |     y: offsets, the last row lies at offset 0
    0      | AA AA AA DD  .  |     None: most of the patch is free
           +-----------------+
           step 0       steps
    """

    size: int
    steps: int
    rows: tuple[tuple[Kind | None, ...], ...]


def report(plan: PlanView) -> PlanReport:
    """All facts at once. O(n log n + steps) for n buffers."""
    buffers = [buffer for _, buffer in plan.buffers()]
    steps = plan.duration
    kinds = tuple(_kind(kind, buffers, steps) for kind in Kind)
    return PlanReport(
        kinds=tuple(row for row in kinds if row.buffers),
        arenas=tuple(_arena(arena, plan) for arena in plan.arenas),
        total=sum(buffer.size for buffer in buffers),
    )


def live_curve(buffers: Iterable[PlannedBuffer], steps: int) -> tuple[int, ...]:
    """Bytes live at each of `steps` steps."""
    change = [0] * (steps + 1)
    for buffer in buffers:
        for span in buffer.spans:
            change[min(span.start, steps)] += buffer.size
            change[min(span.end, steps)] -= buffer.size
    return tuple(accumulate(change))[:steps]


def _kind(kind: Kind, buffers: Sequence[PlannedBuffer], steps: int) -> KindBytes:
    mine = [buffer for buffer in buffers if buffer.kind is kind]
    peak = max(live_curve(mine, steps), default=0)
    return KindBytes(kind, len(mine), sum(buffer.size for buffer in mine), peak)


def _arena(arena: Arena, plan: PlanView) -> ArenaReport:
    curve = live_curve(arena.buffers, plan.duration)
    peak = max(curve, default=0)
    step = curve.index(peak) if peak else None
    live = [
        buffer
        for buffer in arena.buffers
        if step is not None and any(span.start <= step < span.end for span in buffer.spans)
    ]
    return ArenaReport(
        name=arena.name,
        size=arena.size,
        peak_step=step,
        peak_step_id=None if step is None else plan.level_ids()[step],
        live_bytes=peak,
        live=tuple(sorted(live, key=lambda buffer: (-buffer.size, buffer.id))),
        curve=curve,
        certificate=arena.certificate,
    )


def memory_map(arena: Arena, steps: int, *, columns: int, rows: int) -> MemoryMap:
    """The arena as a grid of at most `columns` x `rows` patches; O(buffers x patches)."""
    columns, rows = min(columns, steps), min(rows, arena.size)
    if not columns:  # a wrong plan may have buffers and no steps
        return MemoryMap(arena.size, steps, ())
    areas: list[list[dict[Kind, int]]] = [[{} for _ in range(columns)] for _ in range(rows)]
    for buffer in arena.buffers:
        across = [share for span in buffer.spans for share in _shares(span.start, span.end, steps, columns)]
        for y, height in _shares(buffer.offset, buffer.end, arena.size, rows):
            for x, width in across:
                cell = areas[y][x]
                cell[buffer.kind] = cell.get(buffer.kind, 0) + width * height
    # In units of 1 / (columns * rows) of a patch each patch has the same area.
    whole = steps * arena.size
    grid = (tuple(_dominant(cell, whole) for cell in row) for row in reversed(areas))
    return MemoryMap(arena.size, steps, tuple(grid))


def _shares(start: int, end: int, length: int, parts: int) -> Iterator[tuple[int, int]]:
    """Parts of ``[0, length)`` that ``[start, end)`` touches, with how much of each, times `parts`."""
    start, end = start * parts, min(end, length) * parts
    for part in range(start // length, -(-end // length)):
        yield part, min(end, (part + 1) * length) - max(start, part * length)


def _dominant(cell: dict[Kind, int], whole: int) -> Kind | None:
    if 2 * sum(cell.values()) < whole:
        return None
    return max(cell, key=lambda kind: (cell[kind], kind.value), default=None)


def gradient_notes(plan: PlanView) -> tuple[str, ...]:
    """The reasons why gradients live longer than their update needs, a sentence each."""
    notes = []
    if any(step.kernel == CLIP for step in plan.steps):
        notes.append(f"All gradients live until {CLIP}: every update waits for it.")
    kept = [b for _, b in plan.buffers() if b.kind is Kind.GRADIENT and b.lifetime is Lifetime.MAX]
    if kept:
        carry = "1 gradient carries" if len(kept) == 1 else f"{len(kept):,} gradients carry"
        notes.append(f"{carry} over: several iterations (micro-batches) make one update.")
    return tuple(notes)


def storage_note(plan: PlanView) -> str | None:
    """The values that wait for the backward pass in 16 bits, in a sentence; None without conversions."""
    if plan.options.storage is None:
        return None
    stored = [
        value
        for _, buffer in plan.buffers()
        for value in buffer.values
        if value.dtype == plan.options.storage
    ]
    size = sum(value.nbytes for value in stored)
    note = f"In {plan.options.storage}: {len(stored):,} values wait in {size:,} bytes, half of their own."
    facts = next((record.facts for record in plan.records if record.name == "storage"), None)
    if facts is None:
        return note
    spent, step = (int(facts.get(name, 0)) for name in ("nanoseconds", "step_nanoseconds"))
    share = spent / max(step - spent, 1)
    count = int(facts.get("conversions", 0))
    return f"{note} {count:,} conversions add {100 * share:.2f} % to the modelled time of a step."


def frozen_storage_note(plan: PlanView) -> str | None:
    """The weights that are kept in fewer bits, in sentences; None where there are none and none were asked
    for.
    """
    asked = plan.options.frozen_storage
    values = {value.id: value for _, buffer in plan.buffers() for value in buffer.values if value.storage}
    # A weight that is paged has a copy, as w@stay0 or w@flash, beside it.
    stored = [value for name, value in values.items() if name.rpartition("@")[0] not in values]
    weights = "frozen weights" if plan.options.tile_bytes is None else "frozen weights and tiles of weights"
    if asked is None:
        return f"As they are stored, {_stored_sizes(stored, weights)}." if stored else None
    by_option = [value for value in stored if value.storage == str(storage_of_word(asked))]
    before = [value for value in stored if value.storage != str(storage_of_word(asked))]
    if by_option:
        note = (
            f"In {asked}: {_stored_sizes(by_option, weights)}. They are rounded once: losses and gradients"
            " are those of the rounded weights."
        )
    else:
        note = (
            f"In {asked}: no weight is stored. Frozen float32 matrices of products, convolutions and"
            " embeddings are, where groups divide their rows."
        )
    if before:
        kinds = " and ".join(sorted({value.storage for value in before}))
        note += f" In {kinds}, which they had before and keep: {_stored_sizes(before, weights)}."
    return note


def _stored_sizes(stored: Sequence[AliasedValue], weights: str) -> str:
    """A clause with the bytes of stored weights, and their bytes as float32."""
    size = sum(value.nbytes for value in stored)
    whole = sum(math.prod(value.shape) * DType.FLOAT32.itemsize for value in stored)
    subject = "1 frozen weight takes" if len(stored) == 1 else f"{len(stored):,} {weights} take"
    return f"{subject} {size:,} bytes instead of {whole:,}"


def order_note(plan: PlanView) -> str | None:
    """The result of the search for another order of steps, in a sentence; None for plans without one."""
    records = {record.name: record.facts for record in plan.records}
    facts = records.get("search_order")
    if facts is None:
        return None
    least, before, after = (int(facts.get(name, 0)) for name in ("order_bound", "peak_before", "peak_after"))
    if after < before:
        outcome = f"another order has a peak of {after:,} live bytes instead of {before:,}"
    elif facts.get("for_recomputation"):
        outcome = f"in another order, with a peak of {after:,} live bytes, the steps that run again cost less"
    else:
        updates = ", apart from the updates" if records.get("order", {}).get("steps_moved") else ""
        outcome = f"the steps keep theirs{updates}, with a peak of {after:,} live bytes"
    saved = "nothing" if after <= least else f"at most {100 * (after - least) / after:.2f} % of it"
    where = "each step runs once" + (" and no values share bytes" if plan.options.in_place else "")
    bound = f"Where {where}, no order takes less than {least:,}, so another one can save {saved}."
    note = f"Order: {outcome}. {bound}"
    if "every_order_nanoseconds" not in facts:
        return note
    least, step = (int(facts.get(name, 0)) for name in ("every_order_nanoseconds", "step_nanoseconds"))
    percent = 100_000 * least // max(step, 1) / 1000  # rounded down: it is a bound
    if not percent:
        return note
    return (
        f"{note} What runs again to keep the capacity adds {percent:.3f} % of time at least in every order."
    )


def certificate_note(certificate: Certificate, unit: str = "step") -> str:
    """How the lower bound of an arena is known, and whom one has to trust for it, in a sentence.

    `unit` is what lifespans count: steps, or levels where steps run at the same time.
    """
    match certificate.proof:
        case Proof.MAX_LOAD:
            return (
                f"The lower bound is what is live at {unit} {certificate.witness_step}: anyone can add it up."
            )
        case Proof.SOLVER:
            return (
                f"A complete search by {certificate.solver!r} found no smaller arena. This cannot be checked"
                " without trust in the solver, or running it again."
            )
        case None:
            return "No proof says that the arena cannot be smaller."


@dataclass(frozen=True, slots=True)
class SharingReport:
    """`values` are defined in the memory of others, `views` of them without a change; `size` is what they
    would take by themselves, in bytes.
    """

    values: int
    views: int
    size: int


def sharing(plan: PlanView) -> SharingReport:
    """The values that are in place. Linear."""
    shared = [(buffer, value) for _, buffer in plan.buffers() for value in buffer.aliases[1:]]
    sizes = (-(-value.nbytes // buffer.alignment) * buffer.alignment for buffer, value in shared)
    return SharingReport(len(shared), sum(value.view for _, value in shared), sum(sizes))


@dataclass(frozen=True, slots=True)
class RecycledStep:
    """One step: buffers first touched by it, buffers free after it, bytes live while it runs.

    Or the steps of one level, for which `id` has the ids of all.
    """

    id: str
    allocated: tuple[str, ...]
    freed: tuple[str, ...]
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Recycling:
    """`before`: buffers that hold a value when the iteration begins. `kept`: those that survive it."""

    before: tuple[str, ...]
    kept: tuple[str, ...]
    steps: tuple[RecycledStep, ...]


def recycling(plan: PlanView) -> Recycling:
    """The order of allocation and recycling that a plan's lifespans stand for: lazy allocation and automatic
    recycling, in Apache SINGA's words. For runtimes that allocate one by one. Linear.

    Each buffer is allocated once, `before` or at a step, and is freed at a step or `kept`. What is live
    at the last step counts as kept if the plan says so by its lifetime; anything else is freed there.
    Of a plan that is wrong, what lives beyond the last step lives to it.
    """
    count = plan.duration
    buffers = [buffer for _, buffer in plan.buffers()]
    defined = _defined_first(plan)
    born: list[list[str]] = [[] for _ in range(count)]
    dead: list[list[str]] = [[] for _ in range(count)]
    before: list[str] = []
    kept: list[str] = []
    for buffer in buffers:
        start, end = (min(t, count - 1) for t in (buffer.lifespan.start, buffer.lifespan.end - 1))
        stays = buffer.lifetime.outlives_iteration or not count
        (born[start] if buffer.id in defined else before).append(buffer.id)
        (kept if stays else dead[end]).append(buffer.id)
    live = live_curve(buffers, count)
    steps = (
        RecycledStep(id_, tuple(born[t]), tuple(dead[t]), live[t]) for t, id_ in enumerate(plan.level_ids())
    )
    return Recycling(tuple(before), tuple(kept), tuple(steps))


def _defined_first(plan: PlanView) -> set[str]:
    """Buffers whose first touch writes them without reading: nothing was in them before."""
    first: dict[str, bool] = {}
    for step in plan.steps:
        for name in step.uses:
            first.setdefault(name, False)
        for name in (*step.defs, *step.scratch):
            first.setdefault(name, True)
    return {name for name, inside in first.items() if inside}


@dataclass(frozen=True, slots=True)
class LevelReport:
    """`steps` steps run on `count` concurrency levels, at most `widest` of them at the same time.

    `sequential_bytes` are live at once when the same steps run one after the other in the same order. What
    the arenas take beyond that is the price of running them side by side. If none waited to keep a capacity,
    they would run on `unbounded` levels; with tiers that is `count`, as copies set the pace.
    """

    parallelism: int
    steps: int
    count: int
    widest: int
    sequential_bytes: int
    unbounded: int


def level_report(plan: PlanView) -> LevelReport:
    """As `list_schedule`. Where steps run one after the other, each has a level of its own."""
    widths = Counter(plan.times)
    steps, touches = len(plan.steps), _touches(plan)
    loads = (
        max(live_curve(_one_by_one(arena.buffers, plan.times, touches), steps), default=0)
        for arena in plan.arenas
    )
    return LevelReport(
        parallelism=plan.options.parallelism,
        steps=steps,
        count=len(widths),
        widest=max(widths.values(), default=0),
        sequential_bytes=sum(loads),
        unbounded=min(len(widths), _unbounded(plan)),
    )


def _unbounded(plan: PlanView) -> int:
    """The levels that dependencies alone ask for, with updates at the end behind all others."""
    if plan.options.tiers:
        return plan.duration
    before, stage = dependencies((step.uses, step.defs) for step in plan.steps), 0
    if plan.options.update == "end":
        stage = next((t for t, step in enumerate(plan.steps) if step.kernel == UPDATE), 0)
    late = [frozenset(s - stage for s in earlier if s >= stage) for earlier in before[stage:]]
    return sum(1 for part in (before[:stage], late) for _ in list_schedule(part, plan.options.parallelism))


def _touches(plan: PlanView) -> dict[str, list[int]]:
    """The positions of the steps that touch each value; -1 in front where it holds something at the start."""
    touches: dict[str, list[int]] = {}
    for t, step in enumerate(plan.steps):
        for name in step.uses:
            touches.setdefault(name, [-1]).append(t)
        for name in (*step.defs, *step.scratch):
            touches.setdefault(name, []).append(t)
    return touches


def _one_by_one(
    buffers: Iterable[PlannedBuffer], times: tuple[int, ...], touches: Mapping[str, list[int]]
) -> Iterator[PlannedBuffer]:
    """The buffers with lifespans that count steps, from the first touch instead of the first level."""
    for buffer in buffers:
        touched = [t for value in buffer.values for t in touches.get(value.id, ())] or [-1]
        end = len(times) if buffer.lifetime.outlives_iteration else max(touched) + 1
        yield replace(buffer, lifespan=Lifespan(max(min(touched), 0), end))
