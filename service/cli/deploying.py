"""Planning of entry points for the command line: several programs in one arena, and a summary of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.cli.console import heed, print_json, read_options, write_document
from service.cli.models import ModelFile, read_model_file
from solver import documents
from solver.errors import OptionsError
from solver.pipeline import Networks, entry_requests, plan_deployment
from solver.plan import Deployment, EntryPoint, RequestedOptions, read_entry, read_tie

__all__ = ["check_request", "deployment_summary", "print_deployment", "run"]


def run(
    models: Sequence[Path],
    entries: Sequence[str],
    ties: Sequence[str],
    fields: Mapping[str, Any],
    output: Path | None,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
) -> None:
    """Plan the entry points of the networks in files `models` for one arena; write it, print a summary.

    Without `output` the plan goes to standard output; a terminal shows the summary alone. `fields` and
    `choices` as for one plan: they hold for every entry point and every model.
    """
    options = read_options(fields) if fields else RequestedOptions()
    files = _files(models)
    networks: Networks = {name: partial(file.read, choices=choices) for name, file in files.items()}
    specs = [read_entry(text) for text in entries]
    requests = entry_requests(networks, specs, options)
    tied = [read_tie(text) for text in ties]
    deployment = plan_deployment("+".join(files), requests, tied, follow=lambda *_: heed())
    if output is None and not as_json and sys.stdout.isatty():
        print_deployment(deployment)
        return
    write_document(output or Path("-"), documents.dump_deployment(deployment, indent=2) + b"\n")
    beside = output is None or str(output) == "-"
    if as_json and not beside:
        print_json(deployment_summary(deployment))
    elif not as_json and not beside:
        print_deployment(deployment)


def check_request(models: Sequence[Path], *, share: bool, server: str | None) -> None:
    """Raises OptionsError for several models that nobody said are to share an arena."""
    if len(models) > 1 and not share:
        raise OptionsError(
            f"There are {len(models)} models, and nothing says that they share an arena.",
            remedy="Add --share to plan one arena for all of them, or plan them one by one.",
            path=("share",),
        )
    if server is not None:
        raise OptionsError(
            "The command plans entry points here, not by a service.",
            remedy="Leave out --server, or POST the graph with `entries` to the service's /v1/plan.",
            path=("server",),
        )


def _files(models: Sequence[Path]) -> dict[str, ModelFile]:
    """The files by the names of their models: those of the files, without suffixes."""
    files: dict[str, ModelFile] = {}
    for path in models:
        file = read_model_file(path)
        name = file.name.removesuffix(".graph")
        if name in files:
            raise OptionsError(
                f"Two models are called {name!r}.",
                remedy="Give the files different names: entry points are named after them.",
                path=("models",),
            )
        files[name] = file
    return files


def deployment_summary(deployment: Deployment) -> dict[str, Any]:
    """The figures that scripts ask for; sizes are bytes."""
    return {
        "name": deployment.name,
        "digest": deployment.digest,
        "arena_bytes": deployment.arena_bytes,
        "lower_bound": deployment.lower_bound,
        "gap": deployment.arena_bytes / deployment.lower_bound - 1 if deployment.lower_bound else 0.0,
        "persistent_bytes": deployment.persistent_bytes,
        "persistent_values": len(deployment.persistent),
        "entry_points": [_entry_point(entry_point) for entry_point in deployment.entry_points],
    }


def _entry_point(entry_point: EntryPoint) -> dict[str, Any]:
    plan = entry_point.plan
    return {
        "name": entry_point.name,
        "model": entry_point.model,
        "purpose": entry_point.purpose,
        "batch": plan.options.batch,
        "arena_bytes": plan.arena_bytes,
        "lower_bound": plan.lower_bound,
        "steps": len(plan.program.steps),
        "digest": plan.digest,
    }


def print_deployment(deployment: Deployment) -> None:
    """A table with one line an entry point, and one below for the arena."""
    from rich.console import Console

    from service.cli.tables import make_table

    rows = [
        (
            entry_point.name,
            entry_point.purpose,
            f"{entry_point.plan.arena_bytes:,}",
            f"{entry_point.plan.arena_bytes - deployment.persistent_bytes:,}",
            f"{entry_point.plan.lower_bound:,}",
            "proved" if not entry_point.plan.gap_bytes else f"gap {entry_point.plan.gap_bytes:,}",
        )
        for entry_point in deployment.entry_points
    ]
    console = Console()
    headings = ("entry point", "purpose", ">bytes", ">of its own", ">lower bound", "smallest")
    console.print(make_table(f"{deployment.name}: {deployment.arena_bytes:,} bytes", headings, rows))
    gap = deployment.gap_bytes
    proof = f"{gap:,} above the bound" if gap else "nothing smaller exists"
    console.print(
        f"{deployment.persistent_bytes:,} bytes are {len(deployment.persistent):,} values that stay from one"
        f" run to the next; lower bound {deployment.lower_bound:,}, {proof}",
        highlight=False,
    )
