"""Checks a plan without trusting the planner: no layout solver is imported here.

Each claim is recomputed from the plan's own steps and buffers: lifespans cover every touch, live
buffers never share a byte, offsets are aligned and inside the arena, and the certificate's
arithmetic holds. A full sweep with all live buffers: comparing neighbours only is unsound. Where
steps run at the same time, time counts waves, and no step of a wave touches what another one writes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from solver.layout.model.problem import Proof, Status
from solver.plan.plan import Arena, Plan, PlannedBuffer, PlannedStep, Tenant
from solver.plan.tenants import check_tenants
from solver.plan.violation import Violation
from solver.training.program import Lifetime

__all__ = ["Violation", "verify"]


def verify(plan: Plan) -> tuple[Violation, ...]:
    """Every violation in a plan, none for a right one.

    Rules: ``unique``, ``declared``, ``wave``, ``lifespan``, ``in-place``, ``size``, ``alignment``,
    ``bounds``, ``overlap``, ``capacity``, ``bound``, ``proof``. O(n log n + output) for n buffers
    and touches.
    """
    found = [*_check_names(plan), *_check_waves(plan)]
    found += _check_lifespans(plan)
    found += check_tenants(plan)
    for arena in plan.arenas:
        for buffer in arena.buffers:
            found += _check_buffer(arena, buffer)
        found += _overlaps(arena.buffers)
        found += _check_certificate(arena)
    capacity = plan.options.capacity
    if capacity is not None and plan.arena_bytes > capacity:
        detail = f"The arenas take {plan.arena_bytes} bytes, the capacity is {capacity}."
        found.append(Violation("capacity", (), detail))
    return tuple(found)


def _check_names(plan: Plan) -> Iterator[Violation]:
    counts = Counter(operand.id for operand in _operands(plan))
    for name, count in counts.items():
        if count > 1:
            yield Violation("unique", (name,), f"{name!r} is placed {count} times.")
    for step in plan.steps:
        for name in (*step.uses, *step.defs, *step.scratch):
            if name not in counts:
                yield Violation(
                    "declared", (name,), f"Step {step.id!r} touches {name!r}, which has no buffer."
                )


def _operands(plan: Plan) -> Iterator[Tenant]:
    return (operand for _, buffer in plan.buffers() for operand in buffer.operands)


def _check_waves(plan: Plan) -> Iterator[Violation]:
    """Waves count up from 0, have a worker for each step, and their steps leave each other alone."""
    workers = plan.options.workers
    if all(step.wave is None for step in plan.steps) and workers == 1:
        return
    before = -1
    for wave, steps in groupby(plan.steps, lambda step: step.wave):
        group = tuple(steps)
        if wave != before + 1:
            yield Violation("wave", (), f"Step {group[0].id!r} is in wave {wave}; {before + 1} comes next.")
        if len(group) > workers:
            detail = f"Wave {wave} has {len(group)} steps for {workers} workers."
            yield Violation("wave", (), detail)
        if wave is not None:
            yield from _check_wave(group)
            before = wave


def _check_wave(group: tuple[PlannedStep, ...]) -> Iterator[Violation]:
    """No step of a wave touches what another one writes; scratch is written."""
    writers: dict[str, list[PlannedStep]] = {}
    for step in group:
        for name in {*step.defs, *step.scratch}:
            writers.setdefault(name, []).append(step)
    for step in group:
        for name in sorted({*step.uses, *step.defs, *step.scratch}):
            for writer in writers.get(name, ()):
                if writer is not step:
                    yield Violation(
                        "wave",
                        (name,),
                        f"Step {writer.id!r} writes {name!r}, which {step.id!r} touches in the same wave.",
                    )


def _check_lifespans(plan: Plan) -> Iterator[Violation]:
    """An operand must live whenever a step touches it, and persistent ones all the time."""
    last = plan.duration
    operands = {operand.id: operand for operand in _operands(plan)}
    unit = "Step" if plan.options.workers == 1 else "Wave"
    for t, step in zip(plan.times, plan.steps, strict=True):
        for name in (*step.uses, *step.defs, *step.scratch):
            span = operands[name].lifespan if name in operands else None
            if span is not None and not span.start <= t < span.end:
                yield Violation(
                    "lifespan",
                    (name,),
                    f"{unit} {t} ({step.id}) touches {name!r}, which lives [{span.start}, {span.end}).",
                )
    for operand in operands.values():
        span = operand.lifespan
        if not 0 <= span.start < span.end <= last:
            yield Violation(
                "lifespan", (operand.id,), f"{operand.id!r} lives [{span.start}, {span.end}) of {last}."
            )
        elif operand.lifetime is Lifetime.MAX and (span.start, span.end) != (0, last):
            detail = f"{operand.id!r} carries over but lives [{span.start}, {span.end})."
            yield Violation("lifespan", (operand.id,), detail)
        elif operand.lifetime is Lifetime.EPOCH and span.end != last:
            yield Violation(
                "lifespan", (operand.id,), f"{operand.id!r} is read by the caller but ends at {span.end}."
            )


def _check_buffer(arena: Arena, buffer: PlannedBuffer) -> Iterator[Violation]:
    name = (buffer.id,)
    if buffer.size < buffer.nbytes or buffer.nbytes < 1:
        yield Violation("size", name, f"{buffer.id!r} needs {buffer.nbytes} bytes and has {buffer.size}.")
    if buffer.alignment < 1 or buffer.alignment & (buffer.alignment - 1):
        yield Violation(
            "alignment", name, f"Alignment {buffer.alignment} of {buffer.id!r} is no power of two."
        )
    elif buffer.offset % buffer.alignment:
        yield Violation(
            "alignment",
            name,
            f"{buffer.id!r} at offset {buffer.offset} is not aligned to {buffer.alignment}.",
        )
    if buffer.offset < 0 or buffer.end > arena.size:
        yield Violation(
            "bounds",
            name,
            f"{buffer.id!r} takes [{buffer.offset}, {buffer.end}) of an arena of {arena.size} bytes.",
        )


def _overlaps(buffers: Sequence[PlannedBuffer]) -> Iterator[Violation]:
    """Every pair that is live at the same time and shares a byte."""
    if _disjoint(buffers):
        return
    live: dict[int, PlannedBuffer] = {}
    for _, starts, i in _events(buffers):
        if not starts:
            live.pop(i, None)
            continue
        buffer = buffers[i]
        for other in live.values():
            if buffer.offset < other.end and other.offset < buffer.end:
                yield _overlap(other, buffer)
        live[i] = buffer


def _disjoint(buffers: Sequence[PlannedBuffer]) -> bool:
    """Whether live buffers never share a byte. O(n log n).

    As long as the live buffers, sorted by offset, are disjoint, a new one can only meet the two
    between which it falls; the first one that meets a neighbour ends the argument, and the sweep.
    """
    live: list[tuple[int, int, int]] = []
    for _, starts, i in _events(buffers):
        key = (buffers[i].offset, buffers[i].end, i)
        at = bisect_left(live, key)
        if not starts:
            del live[at]
            continue
        if (at > 0 and live[at - 1][1] > key[0]) or (at < len(live) and live[at][0] < key[1]):
            return False
        live.insert(at, key)
    return True


def _events(buffers: Sequence[PlannedBuffer]) -> list[tuple[int, bool, int]]:
    """(step, starts, index) in time order; at one step ends come before starts (half-open)."""
    events = [(b.lifespan.start, True, i) for i, b in enumerate(buffers)]
    events += [(b.lifespan.end, False, i) for i, b in enumerate(buffers)]
    return sorted(events)


def _overlap(a: PlannedBuffer, b: PlannedBuffer) -> Violation:
    start, end = max(a.offset, b.offset), min(a.end, b.end)
    first, last = max(a.lifespan.start, b.lifespan.start), min(a.lifespan.end, b.lifespan.end)
    return Violation(
        "overlap",
        (a.id, b.id),
        f"{a.id!r} and {b.id!r} share bytes [{start}, {end}) during steps [{first}, {last}).",
    )


def _check_certificate(arena: Arena) -> Iterator[Violation]:
    certificate = arena.certificate
    top = max((buffer.end for buffer in arena.buffers), default=0)
    if top != arena.size:
        yield Violation(
            "bound", (), f"Arena {arena.name!r} claims {arena.size} bytes; its buffers end at {top}."
        )
    load, step = _max_load(arena.buffers)
    if certificate.lower_bound > arena.size or certificate.lower_bound < load:
        yield Violation(
            "bound",
            (),
            f"Arena {arena.name!r} claims the lower bound {certificate.lower_bound}; {load} bytes are live at"
            f" step {step} and the arena has {arena.size}.",
        )
    if certificate.proof is Proof.MAX_LOAD:
        yield from _check_witness(arena)
    if (certificate.status is Status.OPTIMAL) != (certificate.proof is not None):
        yield Violation(
            "proof", (), f"Arena {arena.name!r} is {certificate.status.value} with no matching proof."
        )
    elif certificate.status is Status.OPTIMAL and certificate.lower_bound != arena.size:
        yield Violation("proof", (), f"Arena {arena.name!r} is claimed optimal above its lower bound.")


def _check_witness(arena: Arena) -> Iterator[Violation]:
    """Add up what is live at the witness step: the whole of the ``max-load`` proof."""
    witness = arena.certificate.witness_step
    live = live_at(arena.buffers, witness) if witness is not None else ()
    load = sum(buffer.size for buffer in live)
    if load != arena.size:
        yield Violation(
            "proof",
            tuple(buffer.id for buffer in live),
            f"Arena {arena.name!r} claims {arena.size} bytes live at step {witness}; {load} are.",
        )


def live_at(buffers: Iterable[PlannedBuffer], step: int) -> tuple[PlannedBuffer, ...]:
    """Buffers live at a step, largest first."""
    live = [b for b in buffers if b.lifespan.start <= step < b.lifespan.end]
    return tuple(sorted(live, key=lambda b: (-b.size, b.id)))


def _max_load(buffers: Sequence[PlannedBuffer]) -> tuple[int, int | None]:
    """Largest total size live at one step, and the first such step."""
    change: Counter[int] = Counter()
    for buffer in buffers:
        change[buffer.lifespan.start] += buffer.size
        change[buffer.lifespan.end] -= buffer.size
    load, best, at = 0, 0, None
    for step in sorted(change):
        load += change[step]
        if load > best:
            best, at = load, step
    return best, at
