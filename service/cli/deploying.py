"""Planning of entry points for the command line: several programs in one arena, and a summary of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.cli.answers import answer, read_sources
from service.cli.command_line import command_line, explain_command, print_commands, reading_commands
from service.cli.console import print_json, read_options, write_document
from service.cli.entry_points import overview_facts, print_overview
from solver import documents
from solver.errors import CapacityError, OptionsError
from solver.plan import Deployment, RequestedOptions, read_entry, read_tie
from solver.requests import Request

__all__ = ["check_request", "run"]


def run(
    models: Sequence[Path],
    entries: Sequence[str],
    ties: Sequence[str],
    fields: Mapping[str, Any],
    output: Path | None,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
    server: str | None = None,
) -> None:
    """Plan the entry points of the networks in files `models` for one arena, here or by the service at
    `server`; write it, print a summary.

    Without `output` the plan goes to standard output; a terminal shows the summary alone. `fields` and
    `choices` as for one plan: they hold for every entry point and every model.
    """
    if fields.get("costs") not in (None, "roofline"):
        raise OptionsError(
            "Entry points take no costs: they are of the steps of one program.",
            remedy="Leave out --costs, or plan each entry point by itself.",
            path=("costs",),
        )
    options = read_options(fields) if fields else RequestedOptions()
    sources = read_sources(models, choices)
    if choices.get("dim") and any(source.importer is None for source in sources.values()):
        raise OptionsError(
            "Entry points of a graph document have the dimensions that it states.",
            remedy="Write the sizes into the document's `dims`, and leave out --dim.",
            path=("dim",),
        )
    specs, tied = [read_entry(text) for text in entries], [read_tie(text) for text in ties]
    try:
        request = Request("deployment", sources, options, specs, ties=tied)
        deployment = answer(request, as_json=as_json, server=server)
    except CapacityError as error:
        _explain(error, models, entries, {**fields, **choices, "server": server})
        raise
    if output is None and not as_json and sys.stdout.isatty():
        print_overview(deployment)
        again = {**fields, **choices, "entry": list(entries), "tie": list(ties), "server": server}
        again["share"] = True if len(models) > 1 else None
        write = command_line("plan", *models, options=again, output="plan.json")
        print_commands(
            [("to write the plan", write), *_next_commands(models, "plan.json", deployment, choices)]
        )
        return
    write_document(output or Path("-"), documents.dump_deployment(deployment, indent=2) + b"\n")
    beside = output is None or str(output) == "-"
    if as_json and not beside:
        print_json(overview_facts(deployment))
    elif not as_json and not beside:
        print_overview(deployment)
        if sys.stdout.isatty():
            print_commands(_next_commands(models, str(output), deployment, choices))


def _next_commands(
    models: Sequence[Path], plan_file: str, deployment: Deployment, choices: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The next steps with a plan: the purpose of each, and its command."""
    yield from reading_commands(plan_file)
    name = deployment.entry_points[0].name
    yield f"to see {name} alone", command_line("show", plan_file, options={"entry_point": name})
    if all(one.purpose != "run" for one in deployment.entry_points) and Path("-") not in models:
        validate = command_line("validate", *models, plan_file, options=choices)
        yield "to run all of them in it, and compare bit for bit", validate


def _explain(
    error: CapacityError, models: Sequence[Path], entries: Sequence[str], options: Mapping[str, Any]
) -> None:
    """Say in the remedy what to do: how many bytes are enough, or which command looks for what would help.

    `explain` answers for a training step by itself, so it is named where nothing else takes memory from it.
    """
    specs = [read_entry(text) for text in entries]
    spec = next((spec for spec in specs if error.entry_point in (spec.name, spec.purpose)), None)
    if len(models) == 1 and not error.held and (spec is None or spec.purpose == "train"):
        fields = {**options, **({"batch": spec.batch} if spec and spec.batch else {})}
        capacity = fields.pop("capacity", error.available)
        command = explain_command(models[0], fields, {}, capacity, None)
        error.remedy = f"Raise the capacity, or see what would make it fit: {command}"
    else:
        known = "at least " if error.proved else ""
        error.remedy = f"Raise the capacity to {known}{error.required:,} bytes, or ask for a smaller batch."


def check_request(models: Sequence[Path], *, share: bool, like: Path | None) -> None:
    """Raises OptionsError for several models that nobody said are to share an arena, and for `like`."""
    if like is not None:
        raise OptionsError(
            "Entry points cannot be planned like another plan.",
            remedy="Leave out --like, or plan the networks one by one.",
            path=("like",),
        )
    if len(models) > 1 and not share:
        raise OptionsError(
            f"There are {len(models)} models, and nothing says that they share an arena.",
            remedy="Add --share to plan one arena for all of them, or plan them one by one.",
            path=("share",),
        )
