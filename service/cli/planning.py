"""Planning for the command line: stages on the terminal while it runs, a summary when it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.cli.answers import answer, asked
from service.cli.command_line import command_line, explain_command, print_commands, reading_commands
from service.cli.console import errors_may_be_seen, print_json, read_document, reporting, write_document
from solver import documents, pipeline
from solver.errors import CapacityError, OptionsError
from solver.plan import Deployment, Plan, PlanOptions, purpose_of_plan
from solver.reports.rows import summary
from solver.requests import Request, Source

__all__ = ["run"]


def run(
    model: Path,
    fields: Mapping[str, Any],
    output: Path | None,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
    server: str | None = None,
    like: Path | None = None,
) -> None:
    """Plan the network in the file `model`, here or by the service at `server`; write it, print a summary.

    Without `output` the plan goes to standard output; a terminal shows the summary alone. `fields` are those
    of an options document, and are checked as in one, so that every entry point has the same rules and
    messages. `choices` are those for models of other tools.
    """
    old = None if like is None else _old_plan(like, server, as_json=as_json)
    source, options = asked(model, fields, choices, has_sizes=True)
    try:
        request = Request("plan", {source.name: source}, options, like=old)
        plan = answer(request, as_json=as_json, server=server)
    except CapacityError as error:
        if _can_be_explained(source, options.options):
            memories = options.options.memories or options.options.tiers[:1]
            left = error.available or options.options.capacity or 0  # all of it may be reserved
            capacity = sum(memory.bytes for memory in memories) if memories else left
            command = explain_command(model, fields, choices, capacity, server)
            first = f"{error.remedy} See" if memories else "Raise the capacity, or see"
            error.remedy = f"{first} what would make it fit: {command}"
        raise
    if output is None and not as_json and sys.stdout.isatty():
        _print_summary(plan, as_json=False, beside=False)
        again = {**fields, **choices, "server": server}
        write = command_line("plan", model, options=again, output="plan.json")
        print_commands([("to write the plan", write), *_next_commands(model, "plan.json", plan, choices)])
        return
    write_document(output or Path("-"), documents.dump_plan(plan, indent=2) + b"\n")
    _print_summary(plan, as_json=as_json, beside=output is None or str(output) == "-")
    if output is not None and str(output) != "-" and not as_json and sys.stdout.isatty():
        print_commands(_next_commands(model, str(output), plan, choices))


def _can_be_explained(source: Source, options: PlanOptions) -> bool:
    """Whether `explain` takes this network and its target, and can say more of what a value is denied."""
    if options.place:
        return False
    if source.importer is None and source.parsed().get("format") == documents.PROGRAM_FORMAT:
        return True
    return pipeline.TARGETS[options.target].capabilities.recompute


def _next_commands(
    model: Path, plan_file: str, plan: Plan, choices: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The next steps with a plan: the purpose of each, and its command."""
    yield from reading_commands(plan_file)
    target = pipeline.TARGETS.get(plan.options.target)
    if target is not None and target.capabilities.trains and str(model) != "-":
        validate = command_line("validate", model, plan_file, options=choices)
        run = "train" if purpose_of_plan(plan) == "train" else "run"
        yield f"to {run} in it, and compare bit for bit", validate


def _old_plan(path: Path, server: str | None, *, as_json: bool) -> Plan | Deployment:
    """The plan whose values are to stay where they are."""
    if server is not None:
        raise OptionsError(
            "The command plans like another plan here, not by a service.",
            remedy="Leave out --server, or POST the graph with the plan as `like` to the service's /v1/plan.",
            path=("server",),
        )
    with reporting(as_json=as_json, document=str(path)):
        return documents.load_planned(read_document(path))


def _print_summary(plan: Plan, *, as_json: bool, beside: bool) -> None:
    """`beside`: standard output holds the plan already, so the table goes to a terminal's standard error."""
    if as_json and not beside:
        print_json(summary(plan))
    elif not as_json and (not beside or errors_may_be_seen()):
        from service.cli.show import print_summary

        print_summary(plan, to_errors=beside)
