"""The facts of a plan, each with its value and its sentences: terminal, page and JSON print these rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Final

from solver.options import MEASURES
from solver.plan.deployment import Deployment, entry_point_reports
from solver.plan.plan import Plan
from solver.plan.views import PlanView
from solver.reports.arenas import (
    frozen_storage_note,
    gradient_notes,
    level_report,
    order_note,
    sharing,
    storage_note,
)
from solver.reports.records import homes, paging, recomputation

__all__ = ["Row", "row_named", "rows", "summary"]

#: Prefix of facts of the record `like`: each names a value that has left its old place, and says why.
_MOVED: Final = "moved."


@dataclass(frozen=True, slots=True)
class Row:
    """A fact of a plan. `value` is for scripts, with sizes in bytes and times in nanoseconds, and None if the
    plan has no such fact; `sentences` are for people. Summaries leave a `detail` out.
    """

    name: str
    value: Any = None
    sentences: tuple[str, ...] = ()
    detail: bool = False


def rows(plan: PlanView) -> Iterator[Row]:
    """All facts, in the order in which people read them. O(n log n + steps) for n buffers."""
    return (row_named(name, plan) for name in _ROWS)


def row_named(name: str, plan: PlanView) -> Row:
    """The fact of this name."""
    return _ROWS[name](name, plan)


def _facts(plan: PlanView, record: str) -> Mapping[str, Any] | None:
    return next((one.facts for one in plan.records if one.name == record), None)


def _in_place(name: str, plan: PlanView) -> Row:
    """Values in the bytes of others. Plans for other runtimes record no live bytes."""
    shared, facts = sharing(plan), _facts(plan, "aliases")
    before, after = (int((facts or {}).get(key, 0)) for key in ("peak_before", "peak_after"))
    saved = f"; {before:,} live bytes become {after:,}" if before != after else ""
    sentence = (
        f"in place: {shared.values:,} values lie in the bytes of others, {shared.views:,} of them as views,"
        f" {shared.size:,} bytes{saved}"
    )
    is_detail = facts is None or (bool(facts) and not saved)
    return Row(name, asdict(shared), (sentence,) if shared.values else (), is_detail)


def _noted(note_of: Callable[[PlanView], str | None], *, detail: bool) -> Callable[[str, PlanView], Row]:
    """The row of a fact that is one sentence, if any."""

    def row(name: str, plan: PlanView) -> Row:
        note = note_of(plan)
        return Row(name, note, () if note is None else (note,), detail)

    return row


def _planned_sizes(name: str, plan: PlanView) -> Row:
    """The sizes that a plan serves, and a sentence for each that it does not."""
    sizes = plan.planned_sizes if isinstance(plan, Plan) else None
    if sizes is None:
        return Row(name)
    count = prod(each.most - each.least + 1 for each in sizes.ranges)
    inside = sum(each.sizes in sizes for each in sizes.refused)
    known = f"{len(sizes.proved):,} of them proved"
    if inside:
        known += f", {inside:,} refused"
    if count > len(sizes.proved) + inside:
        known += ", others proved when they are used"
    if count == len(sizes.proved):
        known = "all of them proved"
    ranges = ", ".join(map(str, sizes.ranges))
    sentences = [f"sizes: {ranges}: {count:,} in one arena, {known}"]
    for refused in sizes.refused:
        there = ", ".join(f"{dim} {size}" for dim, size in zip(sizes.names, refused.sizes, strict=True))
        sentences.append(f"not {there}: {refused.reason}")
    return Row(name, asdict(sizes), tuple(sentences))


def _levels(name: str, plan: PlanView) -> Row:
    """Steps at the same time, and what that costs."""
    if plan.options.parallelism == 1:
        return Row(name)
    levels = level_report(plan)
    lost = levels.count - levels.unbounded
    more = f", {lost} more than without the capacity" if lost else ""
    sentence = (
        f"parallelism {levels.parallelism}: {levels.steps} steps on {levels.count} levels{more}, at most"
        f" {levels.widest} at the same time; one after the other, in this order, they would need"
        f" {levels.sequential_bytes:,} bytes"
    )
    return Row(name, asdict(levels), (sentence,))


def _recomputation(name: str, plan: PlanView) -> Row:
    again = recomputation(plan)
    if again is None:
        return Row(name)
    time, flops = 100 * again.extra / max(again.step, 1), 100 * again.extra_flops / max(again.step_flops, 1)
    count = len(again.repetitions)
    sentence = (
        f"recomputed: {count:,} {'step runs' if count == 1 else 'steps run'} again,"
        f" +{time:.2f} % of the modelled time and +{flops:.2f} % of the products of the same steps run once"
        f" ({again.proof})"
    )
    return Row(name, asdict(again), (sentence,))


def _paging(name: str, plan: PlanView) -> Row:
    moved = paging(plan)
    if moved is None:
        return Row(name)
    first, *others = moved.tiers
    if not moved.moved:
        return Row(name, asdict(moved), (f"paged: nothing, everything fits {first.name}",))
    written = ", ".join(f"{tier.written:,} bytes to {tier.name}" for tier in others if tier.written)
    least = f", {_seconds(moved.least_time)} at least are proved" if moved.least_time else ""
    bytes_moved = (
        f"paged: {moved.moved_out:,} bytes out of {first.name} and {moved.moved_in:,} back in an iteration,"
        f" {moved.proof}; moving everything that can leave would be {moved.baseline:,}"
    )
    times = (
        f"modelled time: {_seconds(moved.time)} with transfers, {_seconds(moved.compute)} without{least};"
        f" written in an iteration: {written or 'nothing'}"
    )
    return Row(name, asdict(moved), (bytes_moved, times))


def _homes(name: str, plan: PlanView) -> Row:
    """Memories that kernels reach: how long accesses take, and at least."""
    placed = homes(plan)
    if placed is None:
        return Row(name)
    used = ", ".join(f"{use.used:,} of {use.bytes:,} bytes in {use.name}" for use in placed.memories)
    sentence = (
        f"homes: {used}; accesses take {_seconds(placed.accesses)} of the modelled {_seconds(placed.time)},"
        f" {placed.proof}"
    )
    return Row(name, asdict(placed), (sentence,))


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.4g} s"


def _like(name: str, plan: PlanView) -> Row:
    """A plan like another one: what stays, the price of that, and each value that moves."""
    facts = _facts(plan, "like")
    if facts is None:
        return Row(name)
    stayed, stayed_bytes, moved, without = (
        int(facts.get(key, 0)) for key in ("kept", "kept_bytes", "moved", "bytes_without")
    )
    extra = plan.arena_bytes - without
    price = f"{abs(extra):,} bytes {'more' if extra >= 0 else 'fewer'} than the plan without the old one"
    sentence = (
        f"like {facts.get('plan', '')!s:.12}: {stayed:,} persistent values, {stayed_bytes:,} bytes, stay"
        f" where they were; {moved:,} do not; {price} ({without:,})"
    )
    reasons = (f"  {key.removeprefix(_MOVED)}: {why}" for key, why in facts.items() if key.startswith(_MOVED))
    return Row(name, dict(facts), (sentence, *reasons))


def _gradients(name: str, plan: PlanView) -> Row:
    notes = gradient_notes(plan)
    return Row(name, list(notes), notes, detail=True)


def _replacements(name: str, plan: PlanView) -> Row:
    """Operations that were rewritten, with the lower bound before and after all of them."""
    value = [asdict(replacement) for replacement in plan.replacements]
    if not value:
        return Row(name, value, detail=True)
    first, last = plan.replacements[0], plan.replacements[-1]
    sentence = f"Rewritten: bound {first.bytes_before:,} -> {last.bytes_after:,} bytes"
    return Row(name, value, (sentence,), detail=True)


_ROWS: Final[Mapping[str, Callable[[str, PlanView], Row]]] = {
    "in_place": _in_place,
    "order": _noted(order_note, detail=False),
    "planned_sizes": _planned_sizes,
    "levels": _levels,
    "recomputation": _recomputation,
    "paging": _paging,
    "homes": _homes,
    "like": _like,
    "gradients": _gradients,
    "storage": _noted(storage_note, detail=True),
    "frozen_storage": _noted(frozen_storage_note, detail=True),
    "replacements": _replacements,
}


def summary(plan: PlanView | Deployment) -> dict[str, Any]:
    """The figures that scripts ask for; sizes are bytes."""
    if isinstance(plan, Deployment):
        about = zip(entry_point_reports(plan), plan.entry_points, strict=True)
        return {
            "name": plan.name,
            "digest": plan.digest,
            "arena_bytes": plan.arena_bytes,
            "lower_bound": plan.lower_bound,
            "gap": plan.arena_bytes / plan.lower_bound - 1 if plan.lower_bound else 0.0,
            "persistent_bytes": plan.persistent_bytes,
            "persistent_values": len(plan.persistent),
            "entry_points": [
                asdict(report) | {"proof": report.proof and report.proof.value, "digest": entry.plan.digest}
                for report, entry in about
            ],
        }
    again = recomputation(plan)
    return {
        "graph": plan.graph,
        "digest": plan.digest,
        "target": plan.options.target,
        "arena_bytes": plan.arena_bytes,
        "lower_bound": plan.lower_bound,
        "gap": plan.arena_bytes / plan.lower_bound - 1 if plan.lower_bound else 0.0,
        "deterministic": plan.deterministic,
        "steps": len(plan.steps),
        "measures": [name for name in MEASURES if getattr(plan.options, name)],
        "repeated_steps": 0 if again is None else len(again.repetitions),
        "extra_time": 0.0 if again is None else again.extra / max(again.step, 1),
        "levels": row_named("levels", plan).value,
        "arenas": [
            {
                "name": arena.name,
                "bytes": arena.size,
                "buffers": len(arena.buffers),
                "lower_bound": arena.certificate.lower_bound,
                "status": arena.certificate.status.value,
                "proof": arena.certificate.proof.value if arena.certificate.proof else None,
                "witness_step": arena.certificate.witness_step,
                "solver": arena.certificate.solver,
            }
            for arena in plan.arenas
        ],
        "planned_sizes": row_named("planned_sizes", plan).value,
    }
