"""Tables of plans for the command line: several plans for a range of sizes, written into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from service.cli.answers import asked
from service.cli.console import heed, print_json, write_document
from service.cli.tables import make_table
from solver import documents, pipeline
from solver.errors import OptionsError
from solver.plan import PlannedSizes

__all__ = ["check_request", "run"]


def check_request(*, alone: bool) -> None:
    """Raises OptionsError where entry points, several models or an older plan are asked for as well."""
    if not alone:
        raise OptionsError(
            "A table of plans is of one network, whose plans are made anew.",
            remedy="Leave out --plans; or give one model, without --entry, --share, --tie and --like.",
            path=("plans",),
        )


def run(
    model: Path,
    fields: Mapping[str, Any],
    count: int,
    output: Path | None,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
    server: str | None = None,
) -> None:
    """Plan a range of sizes by at most `count` plans, write them into the folder `output`, print the table.

    `fields` and `choices` as for one plan. Raises OptionsError without a folder and at a service.
    """
    if output is None or str(output) == "-":
        raise OptionsError(
            "Several plans are written into a folder, and none is named.",
            remedy="Add -o plans.",
            path=("output",),
        )
    if server is not None:
        raise OptionsError(
            "The command makes tables of plans here, not at a service.",
            remedy="Leave out --server, or --plans.",
            path=("server",),
        )
    source, requested = asked(model, fields, choices, has_sizes=True)
    network = source.read(requested.options.batch).network
    table = pipeline.plan_table(network, requested, count, follow=lambda *_: heed())
    output.mkdir(parents=True, exist_ok=True)
    rows, facts = [], []
    for plan, ratio in zip(table.plans, table.worst, strict=True):
        part = (plan.planned_sizes or PlannedSizes((), ())).ranges[0]
        path = output / f"{part.name}-{part.least}-{part.most}.json"
        write_document(path, documents.dump_plan(plan, indent=2) + b"\n")
        rows.append(
            (f"{part.name} {part.least}..{part.most}", f"{plan.arena_bytes:,}", f"{ratio - 1:.1%}", path.name)
        )
        facts.append(
            {
                "from": part.least,
                "to": part.most,
                "arena_bytes": plan.arena_bytes,
                "worst_ratio": ratio,
                "file": path.name,
            }
        )
    if as_json:
        print_json({"graph": table.plans[0].graph, "plans": facts, "own": table.own, "enough": table.enough})
        return
    console = Console(highlight=False)
    headings = ("~sizes", ">bytes", ">most above a size's own plan", "~file")
    console.print(make_table(f"{table.plans[0].graph}: plans by size", headings, rows))
    near = f"{pipeline.NEAR:.0%}"
    if max(table.worst) > 1 + pipeline.NEAR and table.enough:
        console.print(f"{table.enough} plans would bring every size within {near} of its own plan.")
