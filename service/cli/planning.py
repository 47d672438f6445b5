"""Planning for the command line: stages on the terminal while it runs, a summary when it is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.cli.command_line import command_line, explain_command, print_commands, reading_commands
from service.cli.console import (
    errors_may_be_seen,
    heed,
    print_json,
    progress_text,
    read_document,
    read_options,
    reporting,
    write_document,
)
from service.cli.models import ModelFile, dims_of_document, read_model_file
from solver import documents, pipeline
from solver.errors import CapacityError, OptionsError
from solver.layout import Progress
from solver.plan import (
    Deployment,
    Plan,
    PlanOptions,
    RequestedOptions,
    purpose_of_plan,
    split_ranges,
)
from solver.reports.rows import summary
from solver.schedules import SearchProgress

__all__ = ["make_plan", "plan_at", "progress_line", "run"]


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
    file = read_model_file(model)
    asked, wished = fields, choices
    if file.importer is None:
        choices, fields = dims_of_document(choices, fields)
    choices, ranges = split_ranges(choices)
    if "costs" in fields:
        from service.cli import costs  # the executor, which most plans do without

        fields = costs.chosen(fields, file, choices)
    options = read_options(fields) if fields else RequestedOptions()
    options = replace(options, ranges=(*options.ranges, *ranges))
    try:
        if server is None:
            plan = make_plan(file, options, choices, old)
        else:
            plan = plan_at(server, file, options, choices, as_json=as_json)
    except CapacityError as error:
        if _can_be_explained(file, options.options):
            memories = options.options.memories or options.options.tiers[:1]
            left = error.available or options.options.capacity or 0  # all of it may be reserved
            capacity = sum(memory.bytes for memory in memories) if memories else left
            command = explain_command(model, asked, wished, capacity, server)
            first = f"{error.remedy} See" if memories else "Raise the capacity, or see"
            error.remedy = f"{first} what would make it fit: {command}"
        raise
    if output is None and not as_json and sys.stdout.isatty():
        _print_summary(plan, as_json=False, beside=False)
        again = {**asked, **wished, "server": server}
        write = command_line("plan", model, options=again, output="plan.json")
        print_commands([("to write the plan", write), *_next_commands(model, "plan.json", plan, wished)])
        return
    write_document(output or Path("-"), documents.dump_plan(plan, indent=2) + b"\n")
    _print_summary(plan, as_json=as_json, beside=output is None or str(output) == "-")
    if output is not None and str(output) != "-" and not as_json and sys.stdout.isatty():
        print_commands(_next_commands(model, str(output), plan, wished))


def _can_be_explained(file: ModelFile, options: PlanOptions) -> bool:
    """Whether `explain` takes this network and its target, and can say more of what a value is denied."""
    if options.place:
        return False
    if file.importer is None and file.parsed().get("format") == documents.PROGRAM_FORMAT:
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


def make_plan(
    file: ModelFile,
    options: RequestedOptions,
    choices: Mapping[str, Any] = MappingProxyType({}),
    like: Plan | Deployment | None = None,
) -> Plan:
    """Plan the network of a file, with the stages shown on standard error if that is a terminal.

    Persistent values stay where `like` has them, as far as they can.
    """
    if not errors_may_be_seen():
        return _planner(file, options, choices, like)[1](follow=_heeding)
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        return _planner(file, options, choices, like)[1](follow=_heeding)
    with console.status("reading the document") as status:
        name, planner = _planner(file, options, choices, like)
        # Several plans may be tried, each with all stages.
        spent: dict[str, float] = {}

        def show(now: str = "") -> None:
            done = "".join(f", {stage} {seconds:.2f} s" for stage, seconds in spent.items())
            status.update(escape(f"planning {name} (read{done}){now}"))

        def observe(stage: str, seconds: float) -> None:
            spent[stage] = spent.get(stage, 0.0) + seconds
            show()

        def follow(stage: str, progress: Progress | SearchProgress | None) -> None:
            heed()
            show(f": {progress_line(stage, progress)}")

        status.update(escape(f"planning {name}"))
        return planner(observe=observe, follow=follow)


def _heeding(_stage: str, _found: Progress | SearchProgress | None) -> None:
    heed()


def progress_line(stage: str, progress: Progress | SearchProgress | None) -> str:
    """How far a stage is, on one line."""
    if isinstance(progress, Progress):
        return progress_text(stage, {"peak_bytes": progress.incumbent, "bound_bytes": progress.bound})
    return progress_text(stage, {} if progress is None else asdict(progress))


def plan_at(
    server: str,
    file: ModelFile,
    options: RequestedOptions,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
) -> Plan:
    """As `make_plan`, by the service at `server`."""
    from service.cli.remote import Service

    if options.ranges and file.importer is not None:
        raise OptionsError(
            "The command plans a model of another tool for several sizes here, not at a service.",
            remedy="Leave out --server, or send the model itself to POST /v1/plan.",
            path=("server",),
        )
    service = Service(server, as_json=as_json)
    return service.plan(
        file.read_for(service, options.options.batch, choices), file.document_with(choices), options
    )


def _planner(
    file: ModelFile, options: RequestedOptions, choices: Mapping[str, Any], like: Plan | Deployment | None
) -> tuple[str, Callable[..., Plan]]:
    """The name of the network, and the function that plans it."""
    model = file.read(options.options.batch, choices)
    if like is None:
        return model.name, partial(pipeline.plan_requested, model, options)
    return model.name, partial(pipeline.plan_like, model, options, like)


def _print_summary(plan: Plan, *, as_json: bool, beside: bool) -> None:
    """`beside`: standard output holds the plan already, so the table goes to a terminal's standard error."""
    if as_json and not beside:
        print_json(summary(plan))
    elif not as_json and (not beside or errors_may_be_seen()):
        from service.cli.show import print_summary

        print_summary(plan, to_errors=beside)
