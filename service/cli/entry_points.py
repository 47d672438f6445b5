"""The entry points of a plan on the terminal: a table of them, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.markup import escape

from service.cli.tables import FittingTable, make_table
from solver.plan import Deployment, EntryPointReport, entry_point_reports

__all__ = ["overview", "overview_facts", "overview_notes"]


def overview_facts(deployment: Deployment) -> dict[str, Any]:
    """The figures that scripts ask for; sizes are bytes."""
    bound = deployment.lower_bound
    return {
        "name": deployment.name,
        "digest": deployment.digest,
        "arena_bytes": deployment.arena_bytes,
        "lower_bound": bound,
        "gap": deployment.arena_bytes / bound - 1 if bound else 0.0,
        "persistent_bytes": deployment.persistent_bytes,
        "persistent_values": len(deployment.persistent),
        "entry_points": [
            asdict(report) | {"proof": report.proof and report.proof.value, "digest": entry_point.plan.digest}
            for report, entry_point in zip(
                entry_point_reports(deployment), deployment.entry_points, strict=True
            )
        ],
    }


def overview(deployment: Deployment) -> FittingTable:
    """One line an entry point: its bytes, its bound, and what it adds to the arena."""
    headings = ("~entry point", ">bytes", ">transient", ">lower bound", "proof", ">adds")
    rows = [_row(report) for report in entry_point_reports(deployment)]
    return make_table(f"{escape(deployment.name)}: {deployment.arena_bytes:,} bytes", headings, rows)


def _row(report: EntryPointReport) -> tuple[str, ...]:
    batch = "" if report.batch is None else f", batch {report.batch:,}"
    # Names say the purpose as a rule.
    purpose = "" if report.name.rpartition(".")[2] == report.purpose else f": {report.purpose}"
    proof = report.proof.value if report.proof else f"gap {report.gap_bytes:,}"
    figures = (report.arena_bytes, report.transient_bytes, report.lower_bound)
    name = escape(f"{report.name}{purpose}{batch}")
    return (name, *(f"{figure:,}" for figure in figures), proof, f"{report.added_bytes:,}")


def overview_notes(deployment: Deployment) -> Iterator[str]:
    """Sentences on what the entry points have in common, and on which of them decides the arena."""
    reports = entry_point_reports(deployment)
    yield (
        f"Persistent: {len(deployment.persistent):,} values take {deployment.persistent_bytes:,} bytes, at the"
        " same place for every entry point."
    )
    deciding = [report.name for report in reports if report.decides]
    if len(deployment.entry_points) > 1 and deciding:
        *others, last = deciding
        names = f"{', '.join(others)} and {last} decide" if others else f"{last} decides"
        proof = (
            "nothing smaller runs all entry points"
            if not deployment.gap_bytes
            else f"{deployment.gap_bytes:,} bytes above the lower bound {deployment.lower_bound:,}"
        )
        yield (
            f"{names} the size of the arena: {proof}. An entry point adds the bytes that the arena would be"
            " smaller without it."
        )
