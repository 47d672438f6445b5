"""Networks on the command line: their plans, their graph documents, what their steps cost, and the operators
that they may have.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.answers import answer, asked, read_source, read_sources
from service.cli.console import (
    command_line,
    errors_may_be_seen,
    explain_command,
    print_commands,
    print_json,
    print_line,
    print_written,
    read_document,
    read_options,
    reading_commands,
    reporting,
    write_document,
)
from service.cli.options import (
    AsJson,
    Commands,
    ModelChoices,
    ModelFile,
    PlaceOptions,
    RuntimeOptions,
    ScheduleOptions,
    SearchOptions,
    Server,
    StepOptions,
    on_one_thread,
)
from solver import documents, requests
from solver.errors import CapacityError, DocumentError, OptionsError
from solver.options import DEPLOYMENT_OPTIONS

if TYPE_CHECKING:
    from solver.pipeline import TrainableGraph
    from solver.plan import Deployment, Plan, PlanOptions
    from solver.requests import Source

__all__ = ["app"]

app = Commands()


@app.add(
    "arenaplan plan graph.json -o plan.json",
    "arenaplan plan graph.json --batch 32 --capacity 24MiB -o plan.json",
    "arenaplan plan graph.json --rewrite --json -o plan.json",
    "arenaplan plan graph.json --batch 1..32 -o plan.json",
    "arenaplan plan graph.json --as-written -o plan.json",
    "arenaplan plan graph.json --batch 32 --tier ram=12MiB --tier flash=1GiB,bandwidth=45MB/s -o p.json",
    "arenaplan plan graph.json --entry train --entry infer:batch=1 -o plan.json",
    "arenaplan plan graph.json --like old.json -o plan.json",
    "arenaplan plan graph.json --pin conv1.weight=8KiB --align 'conv*=64' --reserve 0..8KiB -o plan.json",
    "arenaplan plan mnist.ini --batch 32 --target nntrainer -o plan.json",
    "arenaplan plan model.onnx --loss cross-entropy --optimizer adam --dim batch=32 -o plan.json",
    words={
        "models MODEL...": "Graph document, program document (explicit operations), or a model: ONNX (.onnx),"
        " Circle or TensorFlow Lite (.circle, .tflite), nntrainer's (.ini); - for standard input. Several"
        " with --share.",
        "entry ENTRY": DEPLOYMENT_OPTIONS["entries"].help,
        "share": "Several models in one arena, one at a time.",
        "tie NAMES=NAMES": DEPLOYMENT_OPTIONS["ties"].help,
        "like PLAN": "A plan whose persistent values stay at their places, as far as they can: a firmware"
        " update keeps its weights.",
        "output": "Where the plan goes; - is standard output, which is also taken without -o. A terminal"
        " shows the summary in its place.",
    },
)
def plan(
    models: list[Path],
    *,
    entry: list[str] | None = None,
    share: bool = False,
    tie: list[str] | None = None,
    like: Path | None = None,
    output: Path | None = None,
    schedule: ScheduleOptions,
    places: PlaceOptions,
    search: SearchOptions,
    steps: StepOptions,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Plan the arena of a training graph or of a program.

    A program consists of explicit operations. The plan is proved before it is written.
    """
    fields = {**steps, **search, **schedule, **places}
    # Importing another tool's model computes its constants, which takes matrix products.
    if search.get("costs") == "measured" or all(model.suffix in ("", ".json") for model in models):
        on_one_thread()
    again = {**fields, **choices, "server": server}
    planned: Plan | Deployment
    if entry or share or tie or len(models) > 1:
        again |= {"entry": entry, "tie": tie, "share": True if len(models) > 1 else None}
        _check_deployment(models, fields, share=share, like=like)
        planned = _deployment(models, entry or (), tie or (), fields, choices, as_json, server)
    else:
        planned = _plan(models[0], fields, choices, like, as_json, server)
    _deliver(planned, models, output, again, choices, as_json=as_json)


def _plan(
    model: Path,
    fields: Mapping[str, Any],
    choices: Mapping[str, Any],
    like: Path | None,
    as_json: bool,
    server: str | None,
) -> Plan:
    """The plan of one network. `fields` are those of an options document, and are checked as in one, so that
    every entry point has the same rules and messages.
    """
    old = None
    if like is not None:
        if server is not None:
            raise OptionsError(
                "The command plans like another plan here, not by a service.",
                remedy="Leave out --server, or POST the graph with the plan as `like` to the service's"
                " /v1/plan.",
                path=("server",),
            )
        with reporting(as_json=as_json, document=str(like)):
            old = documents.load_planned(read_document(like))
    source, options = asked(model, fields, choices)
    try:
        request = requests.Request("plan", {source.name: source}, options, like=old)
        plan: Plan = answer(request, as_json=as_json, server=server)
    except CapacityError as error:
        if _can_be_explained(source, options.options):
            memories = options.options.memories or options.options.tiers[:1]
            left = error.available or options.options.capacity or 0  # all of it may be reserved
            capacity = sum(memory.bytes for memory in memories) if memories else left
            command = explain_command(model, fields, choices, capacity, server)
            first = f"{error.remedy} See" if memories else "Raise the capacity, or see"
            error.remedy = f"{first} what would make it fit: {command}"
        raise
    return plan


def _can_be_explained(source: Source, options: PlanOptions) -> bool:
    """Whether `explain` takes this network and its target, and can say more of what a value is denied."""
    from solver import pipeline

    if options.place:
        return False
    if source.importer is None and source.parsed().get("format") == documents.PROGRAM_FORMAT:
        return True
    return pipeline.TARGETS[options.target].capabilities.recompute


def _deployment(
    models: Sequence[Path],
    entries: Sequence[str],
    ties: Sequence[str],
    fields: Mapping[str, Any],
    choices: Mapping[str, Any],
    as_json: bool,
    server: str | None,
) -> Deployment:
    """The plan of the entry points of networks: `fields` and `choices` hold for every one of them."""
    from solver.plan import read_entry, read_tie

    options = read_options(fields)
    sources = read_sources(models, choices)
    if choices.get("dim") and any(source.importer is None for source in sources.values()):
        raise OptionsError(
            "Entry points of a graph document have the dimensions that it states.",
            remedy="Write the sizes into the document's `dims`, and leave out --dim.",
            path=("dim",),
        )
    specs, tied = [read_entry(text) for text in entries], [read_tie(text) for text in ties]
    try:
        request = requests.Request("deployment", sources, options, specs, ties=tied)
        deployment: Deployment = answer(request, as_json=as_json, server=server)
    except CapacityError as error:
        # `explain` answers for a training step by itself: if nothing else takes memory from it, it can help.
        spec = next((spec for spec in specs if error.entry_point in (spec.name, spec.purpose)), None)
        if len(models) == 1 and not error.held and (spec is None or spec.purpose == "train"):
            asked = {**fields, **choices, "server": server}
            asked |= {"batch": spec.batch} if spec and spec.batch else {}
            capacity = asked.pop("capacity", error.available)
            command = explain_command(models[0], asked, {}, capacity, None)
            error.remedy = f"Raise the capacity, or see what would make it fit: {command}"
        else:
            known = "at least " if error.proved else ""
            error.remedy = (
                f"Raise the capacity to {known}{error.required:,} bytes, or ask for a smaller batch."
            )
        raise
    return deployment


def _check_deployment(
    models: Sequence[Path], fields: Mapping[str, Any], *, share: bool, like: Path | None
) -> None:
    """Raises OptionsError for several models that nobody said are to share an arena, for `like` and costs."""
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
    if fields.get("costs") not in (None, "roofline"):
        raise OptionsError(
            "Entry points take no costs: they are of the steps of one program.",
            remedy="Leave out --costs, or plan each entry point by itself.",
            path=("costs",),
        )


def _deliver(
    planned: Plan | Deployment,
    models: Sequence[Path],
    output: Path | None,
    again: Mapping[str, Any],
    choices: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Write the plan, print a summary of it, and on a terminal what to do next.

    Without `output` the plan goes to standard output; a terminal shows the summary alone, and the command
    that writes the plan, whose options are `again`.
    """
    from solver.plan import Plan

    on_terminal = sys.stdout.isatty() and not as_json
    is_summary = output is None and on_terminal
    if not is_summary:
        write_document(output or Path("-"), documents.dump_planned(planned, indent=2) + b"\n")
    # If standard output holds the plan already, the summary goes to standard error, if that is a terminal.
    beside = not is_summary and str(output or "-") == "-"
    if as_json and not beside:
        from solver.reports.rows import summary

        print_json(summary(planned))
    elif not as_json and (not beside or (isinstance(planned, Plan) and errors_may_be_seen())):
        from service.cli.show import print_summary

        print_summary(planned, to_errors=beside)
    if on_terminal and not beside:
        written = str(output or "plan.json")
        commands = [*reading_commands(written), *_next_commands(planned, models, written, choices)]
        if output is None:
            write = command_line("plan", *models, options=again, output=written)
            commands.insert(0, ("to write the plan", write))
        print_commands(commands)


def _next_commands(
    planned: Plan | Deployment, models: Sequence[Path], plan_file: str, choices: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The next steps with a plan but reading it: the purpose of each, and its command."""
    from solver import pipeline
    from solver.plan import Plan, purpose_of_plan

    validate = command_line("validate", *models, plan_file, options=choices)
    if isinstance(planned, Plan):
        target = pipeline.TARGETS.get(planned.options.target)
        if target is not None and target.capabilities.trains and Path("-") not in models:
            run = "train" if purpose_of_plan(planned) == "train" else "run"
            yield f"to {run} in it, and compare bit for bit", validate
        return
    name = planned.entry_points[0].name
    yield f"to see {name} alone", command_line("show", plan_file, options={"entry_point": name})
    if all(one.purpose != "run" for one in planned.entry_points) and Path("-") not in models:
        yield "to run all of them in it, and compare bit for bit", validate


# ------------------------------------------------------------------------- documents, operators, costs


@app.add(
    "arenaplan import model.onnx --loss cross-entropy -o graph.json",
    "arenaplan import model.onnx --loss mse --optimizer adam --dim batch=32 -o graph.json",
    "arenaplan import model.onnx --loss cross-entropy --trainable last:2 --weights none -o graph.json",
    "arenaplan import model.onnx --loss cross-entropy --weights trained.safetensors -o graph.json",
    name="import",
    words={
        "model MODEL": "Of another tool: .onnx, .circle, .tflite, or nntrainer's .ini; - for standard input.",
        "output": "Where the graph document goes; - is standard output.",
        "batch": "Value of the first dimension, where it is open.",
    },
)
def import_(
    model: Path,
    *,
    output: Path = Path("-"),
    batch: int | None = None,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Write the graph document of a model of another tool.

    It says how the model is trained as well.
    """
    from solver.plan import PlanOptions, RequestedOptions

    source = read_source(model, choices)
    if source.importer is None:
        source.parsed()
        command = f"arenaplan plan {shlex.quote(str(model))} -o plan.json"
        raise DocumentError(f"{str(model)!r:.200} is a document already.", remedy=f"Plan it: {command}")
    options = RequestedOptions(PlanOptions(batch=batch))
    graph = answer(requests.Request("import", {source.name: source}, options), as_json=as_json, server=server)
    folder = Path.cwd() if str(output) == "-" else output.resolve().parent
    write_document(output, documents.dump_graph(_from(folder, graph), indent=2) + b"\n")
    facts = {
        "graph": graph.name,
        "operations": len(graph.operations),
        "trained": len(graph.trainable),
        "parameters": sum(graph.operands[name].type.elements for name in graph.trainable),
    }
    sentence = (
        f"{graph.name}: {facts['operations']:,} operations, {facts['trained']:,} trained tensors of"
        f" {facts['parameters']:,} elements"
    )
    print_written(output, facts, sentence, as_json=as_json)


def _from(folder: Path, graph: TrainableGraph) -> TrainableGraph:
    """The same graph with the places of files as seen from a folder."""
    operands = {}
    for operand in graph.operands.values():
        initializer = operand.initializer
        if initializer is not None and initializer.file is not None and initializer.file.path:
            place = os.path.relpath(Path(initializer.file.path).resolve(), folder)
            operand = replace(
                operand, initializer=replace(initializer, file=replace(initializer.file, path=place))
            )
        operands[operand.id] = operand
    return graph.with_graph(operands=operands)


@app.add(
    "arenaplan operators",
    "arenaplan operators --onnx",
    "arenaplan operators --target c",
    "arenaplan operators --json",
    words={
        "onnx": "Those of ONNX, and what becomes of each when it is imported.",
        "target NAME": "Of the target c those that have a kernel in C.",
    },
)
def operators(
    *,
    onnx: bool = False,
    target: str | None = None,
    as_json: AsJson = False,
) -> None:
    """List the operators of graphs, or those of ONNX."""
    from solver.importers.registry import onnx_operators, own_operators

    if target not in (None, "c") or (target and onnx):
        raise OptionsError(
            "A target and ONNX have lists of their own."
            if onnx
            else f"The target {target!r:.80} has no list of operators.",
            remedy="Leave out --onnx." if onnx else "Write --target c, or leave it out for all operators.",
            path=("target",),
        )
    operators = onnx_operators() if onnx else own_operators()
    if target is not None:
        from solver.c_kernels import KERNELS

        with_kernels = {family: [n for n in names if n in KERNELS] for family, names in operators.items()}
        operators = {family: names for family, names in with_kernels.items() if names}
    if as_json:
        print_json(operators)
        return
    for family, names in operators.items():
        print_line(f"{family}: {', '.join(names)}")


@app.add(
    "arenaplan costs graph.json -o costs.json",
    "arenaplan costs graph.json --batch 32 --repeats 20 -o costs.json",
    "arenaplan costs model.onnx --loss cross-entropy --dim batch=32 -o costs.json",
    "arenaplan plan graph.json --capacity 18MiB --costs costs.json -o plan.json",
    short_help="Write what each training step takes on this machine.",
    words={
        "output": "Where the costs go; - is standard output.",
        "repeats COUNT 1..1000": "Iterations to take the median of.",
        "roofline": "What plans without costs use, in the place of measuring.",
    },
)
def costs(
    model: ModelFile,
    *,
    output: Path = Path("-"),
    repeats: int = 5,
    roofline: bool = False,
    schedule: ScheduleOptions,
    runtime: RuntimeOptions,
    steps: StepOptions,
    choices: ModelChoices,
    as_json: AsJson = False,
) -> None:
    """Write what each training step takes on this machine, for plans to decide by and people to edit.

    Takes the options of `plan`, since it depends on them which steps there are. Those that schedule are left
    aside while it is measured.
    """
    if not roofline:
        on_one_thread()
    from solver import pipeline

    requested = read_options({**steps, **runtime, **schedule})
    source = read_source(model, choices)
    if not pipeline.checked(requested.options).capabilities.recompute:
        raise OptionsError(
            f"Target {requested.options.target!r} runs each step once, whatever it takes.",
            remedy="Leave it out: costs are for plans that decide by them.",
            path=("target",),
        )
    request = requests.Request("costs", {source.name: source}, requested, repeats=0 if roofline else repeats)
    made = answer(request, as_json=as_json)
    write_document(output, documents.dump_costs(made, indent=2) + b"\n")
    count, total = len(made.nanoseconds), sum(cost for _, cost in made.nanoseconds)
    facts = {"steps": count, "nanoseconds": total, "about": made.about}
    sentence = f"{count:,} steps, {total / 1e6:,.3f} ms an iteration ({made.about})."
    print_written(output, facts, sentence, as_json=as_json)
