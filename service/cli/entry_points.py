"""The entry points of a plan on the terminal: a table of them, and what they have in common."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from service.cli.tables import FittingTable, make_table
from solver.plan import Deployment, EntryPointReport, deployment_notes, entry_point_reports

__all__ = ["overview_facts", "print_overview"]


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


def _overview(deployment: Deployment) -> FittingTable:
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


def print_overview(deployment: Deployment, console: Console | None = None) -> None:
    """Print the table and the sentences."""
    console = console or Console()
    console.print(_overview(deployment))
    for note in deployment_notes(deployment):
        console.print(note, highlight=False, markup=False)
