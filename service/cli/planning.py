"""Planning for the command line: stages on the terminal while it runs, a summary when it is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from service.cli.command_line import command_line, explain_command, print_commands, reading_commands
from service.cli.console import (
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
from solver.options import MEASURES
from solver.plan import (
    Deployment,
    Plan,
    PlanOptions,
    PlanView,
    RequestedOptions,
    homes,
    paging,
    purpose_of_plan,
    recomputation,
    split_ranges,
)
from solver.schedules import SearchProgress

if TYPE_CHECKING:
    from rich.console import Console

    from service.cli.tables import FittingTable

__all__ = [
    "certificate_table",
    "make_plan",
    "plan_at",
    "print_homes",
    "print_in_place",
    "print_levels",
    "print_likeness",
    "print_order",
    "print_paging",
    "print_recomputation",
    "print_sizes",
    "print_summary",
    "progress_line",
    "run",
    "summary",
]


#: What the facts of the record `like` begin with that say why a value does not stay.
MOVED: Final = "moved."

#: Letters of the longest solver that has room beside the other columns.
_LONG_SOLVER = 18


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
        print_summary(plan, as_json=False, beside=False)
        again = {**asked, **wished, "server": server}
        write = command_line("plan", model, options=again, output="plan.json")
        print_commands([("to write the plan", write), *_next_commands(model, "plan.json", plan, wished)])
        return
    write_document(output or Path("-"), documents.dump_plan(plan, indent=2) + b"\n")
    print_summary(plan, as_json=as_json, beside=output is None or str(output) == "-")
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


def _errors_may_be_seen() -> bool:
    """Whether rich, which takes a while to load, could take standard error for a terminal."""
    return sys.stderr.isatty() or any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))


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
    if not _errors_may_be_seen():
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


def summary(plan: PlanView) -> dict[str, Any]:
    """The figures that scripts ask for; sizes are bytes."""
    from solver.plan import level_report

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
        "levels": None if plan.options.parallelism == 1 else asdict(level_report(plan)),
        "arenas": [_arena(arena) for arena in plan.arenas],
        "planned_sizes": asdict(plan.planned_sizes)
        if isinstance(plan, Plan) and plan.planned_sizes is not None
        else None,
    }


def _arena(arena: Any) -> dict[str, Any]:
    certificate = arena.certificate
    return {
        "name": arena.name,
        "bytes": arena.size,
        "buffers": len(arena.buffers),
        "lower_bound": certificate.lower_bound,
        "status": certificate.status.value,
        "proof": certificate.proof.value if certificate.proof else None,
        "witness_step": certificate.witness_step,
        "solver": certificate.solver,
    }


def print_summary(plan: PlanView, *, as_json: bool, beside: bool) -> None:
    """`beside`: standard output holds the plan already, so the table goes to a terminal's standard error."""
    if as_json and not beside:
        print_json(summary(plan))
    elif not as_json and (not beside or _errors_may_be_seen()):
        from rich.console import Console

        console = Console(stderr=beside)
        if not beside or console.is_terminal:
            console.print(certificate_table(plan))
            print_in_place(console, plan)
            print_order(console, plan)
            print_sizes(console, plan)
            print_levels(console, plan)
            print_recomputation(console, plan)
            print_paging(console, plan)
            print_homes(console, plan)
            print_likeness(console, plan)


def print_in_place(console: Console, plan: PlanView) -> None:
    """One line for a plan with values in the bytes of others: how many, and what that saves, if anything.

    Plans for other runtimes record no bytes: what is in place there is counted alone.
    """
    facts = next((record.facts for record in plan.records if record.name == "aliases"), None)
    if facts is None:
        return
    from solver.plan.report import sharing

    shared = sharing(plan)
    note = f"in place: {shared.values:,} values lie in the bytes of others, {shared.views:,} of them as views"
    if facts:
        before, after = (int(facts.get(name, 0)) for name in ("peak_before", "peak_after"))
        if before == after:
            return
        note = f"{note}; {before:,} live bytes become {after:,}"
    if shared.values:
        console.print(note, highlight=False)


def print_order(console: Console, plan: PlanView) -> None:
    """One line for a plan whose steps could have another order: what was found, and what is left."""
    from solver.plan.report import order_note

    note = order_note(plan)
    if note is not None:
        console.print(note, highlight=False)


def print_sizes(console: Console, plan: PlanView) -> None:
    """A line for a plan that serves several sizes, and one for each size that it does not."""
    sizes = plan.planned_sizes if isinstance(plan, Plan) else None
    if sizes is None:
        return
    count = prod(each.most - each.least + 1 for each in sizes.ranges)
    inside = sum(each.sizes in sizes for each in sizes.refused)
    known = f"{len(sizes.proved):,} of them proved"
    if inside:
        known += f", {inside:,} refused"
    if count > len(sizes.proved) + inside:
        known += ", others proved when they are used"
    if count == len(sizes.proved):
        known = "all of them proved"
    console.print(
        f"sizes: {', '.join(map(str, sizes.ranges))}: {count:,} in one arena, {known}", highlight=False
    )
    for refused in sizes.refused:
        there = ", ".join(f"{name} {size}" for name, size in zip(sizes.names, refused.sizes, strict=True))
        console.print(f"not {there}: {refused.reason}", highlight=False, markup=False)


def print_levels(console: Console, plan: PlanView) -> None:
    """One line for a plan with steps at the same time: on how many levels, and what that costs."""
    if plan.options.parallelism > 1:
        from solver.plan import level_report

        levels = level_report(plan)
        lost = levels.count - levels.unbounded
        kept = f", {lost} more than without the capacity" if lost else ""
        console.print(
            f"parallelism {levels.parallelism}: {levels.steps} steps on {levels.count} levels{kept}, at most"
            f" {levels.widest} at the same time; one after the other, in this order, they would need"
            f" {levels.sequential_bytes:,} bytes",
            highlight=False,
        )


def print_recomputation(console: Console, plan: PlanView) -> None:
    """One line for a plan with repeated steps: what they cost, and what they cost at least."""
    again = recomputation(plan)
    if again is None:
        return
    time, flops = 100 * again.extra / max(again.step, 1), 100 * again.extra_flops / max(again.step_flops, 1)
    count = len(again.repetitions)
    console.print(
        f"recomputed: {count:,} {'step runs' if count == 1 else 'steps run'} again,"
        f" +{time:.2f} % of the modelled time and +{flops:.2f} % of the products of the same steps run once"
        f" ({again.proof})",
        highlight=False,
    )


def print_likeness(console: Console, plan: PlanView) -> None:
    """A few lines for a plan like another one: what stays, the price of that, and each value that moves."""
    facts = next((record.facts for record in plan.records if record.name == "like"), None)
    if facts is None:
        return
    kept, kept_bytes, moved, without = (
        int(facts.get(name, 0)) for name in ("kept", "kept_bytes", "moved", "bytes_without")
    )
    extra = plan.arena_bytes - without
    price = f"{abs(extra):,} bytes {'more' if extra >= 0 else 'fewer'} than the plan without the old one"
    console.print(
        f"like {facts.get('plan', '')!s:.12}: {kept:,} persistent values, {kept_bytes:,} bytes, stay where"
        f" they were; {moved:,} do not; {price} ({without:,})",
        highlight=False,
    )
    for fact, why in facts.items():
        if fact.startswith(MOVED):
            console.print(f"  {fact.removeprefix(MOVED)}: {why}", highlight=False, markup=False)


def print_paging(console: Console, plan: PlanView) -> None:
    """A few lines for a plan with several memories: what is moved, at least, and in which time."""
    moved = paging(plan)
    if moved is None:
        return
    first, *others = moved.tiers
    if not moved.moved:
        console.print(f"paged: nothing, everything fits {first.name}", highlight=False)
        return
    console.print(
        f"paged: {moved.moved_out:,} bytes out of {first.name} and {moved.moved_in:,} back in an iteration,"
        f" {moved.proof}; moving everything that can leave would be {moved.baseline:,}",
        highlight=False,
    )
    written = ", ".join(f"{tier.written:,} bytes to {tier.name}" for tier in others if tier.written)
    console.print(
        f"modelled time: {_seconds(moved.time)} with transfers, {_seconds(moved.compute)} without"
        f"{f', {_seconds(moved.least_time)} at least are proved' if moved.least_time else ''};"
        f" written in an iteration: {written or 'nothing'}",
        highlight=False,
    )


def print_homes(console: Console, plan: PlanView) -> None:
    """One line for a plan with memories that kernels reach: how long accesses take, and at least."""
    placed = homes(plan)
    if placed is None:
        return
    used = ", ".join(f"{use.used:,} of {use.bytes:,} bytes in {use.name}" for use in placed.memories)
    console.print(
        f"homes: {used}; accesses take {_seconds(placed.accesses)} of the modelled {_seconds(placed.time)},"
        f" {placed.proof}",
        highlight=False,
    )


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.4g} s"


def certificate_table(plan: PlanView) -> FittingTable:
    """One line an arena: size, bound, and why nothing smaller exists. It fits the usual 80 columns."""
    from rich.markup import escape

    from service.cli.tables import make_table

    several = len(plan.arenas) > 1  # a single one needs no name
    rows = []
    for arena in plan.arenas:
        facts = _arena(arena)
        figures = (f"{arena.size:,}", f"{facts['lower_bound']:,}", f"{arena.gap:.2%}")
        solver = facts["solver"]
        if several or len(solver) > _LONG_SOLVER:
            solver = solver.replace("/", "/\n")  # the stage on a line of its own
        names = [escape(arena.name)] if several else []
        rows.append((*names, *figures, facts["status"], facts["proof"] or "-", solver))
    headings = (">bytes", ">lower bound", ">gap", "status", "proof", "~solver")
    title = f"{escape(plan.graph)}: {plan.arena_bytes:,} bytes"
    return make_table(title, ("arena", *headings) if several else headings, rows)
