"""Commands that take plans: show them, export them, compare them, hold a runtime's accesses against them."""

from __future__ import annotations

import gc
from pathlib import Path

import typer

from service.cli.console import Exit, reporting, write_document
from service.cli.options import (
    AsJson,
    Commands,
    EntryPointName,
    ModelChoices,
    PlanFile,
    PlanServer,
    on_one_thread,
)

__all__ = ["app"]

app = Commands()


@app.add(
    "arenaplan show plan.json",
    "arenaplan show plan.json --width 132",
    "arenaplan show plan.json --entry-point infer",
    "arenaplan show plan.json --json | jq .arena_bytes",
    words={
        "width 40..": "Columns to fill; the terminal's if left out.",
    },
)
def show(
    plan: PlanFile,
    *,
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
    width: int | None = None,
) -> None:
    """Show a plan on the terminal.

    Bytes by kind, the certificate, what is live at the peak, what the passes did, and a map of the arena.
    Of a plan with entry points: a table of them, and a map in which each of them runs once.
    """
    on_one_thread()
    from service.cli import show as tables

    tables.run(plan, width, entry_point=entry_point, as_json=as_json, server=server)


@app.add(
    "arenaplan offsets plan.json -o offsets.csv",
    "arenaplan offsets plan.json -o offsets.json",
    "arenaplan offsets plan.json --entry-point infer -o infer.csv",
    words={
        "output": "Where the rows go, .csv or .json; - is standard output.",
    },
)
def offsets(
    plan: PlanFile,
    *,
    output: Path = Path("-"),
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> None:
    """Write where each value of a plan lies, and when it is live.

    For runtimes that want addresses alone.
    """
    from service.cli import exporting
    from solver import exporters

    made = exporting.loaded_plan(plan, server, entry_point)
    as_csv = output.suffix.lower() == ".csv" or (str(output) == "-" and not as_json)
    write_document(output, exporters.dump_offsets(made, as_csv=as_csv))


@app.add(
    "arenaplan export plan.json -o plan.h",
    "arenaplan export plan.json --to c-header --prefix net --split -o net.h",
    "arenaplan export plan.json -o plan.trace.json",
    "arenaplan export plan.json --entry-point infer -o infer.h",
    "arenaplan export plan.json --to memory-viz -o plan.pickle",
    "arenaplan export plan.json --model model.circle --weights trained.npz -o trained.circle",
    "arenaplan export plan.json --to c-training --model model.onnx --dim batch=4 -o net",
    words={
        "output": "Where it goes; its suffix says what is written.",
        "to NAME": "What is written: c-header, report, perfetto, memory-viz, offsets-csv, offsets-json,"
        " minimalloc, circle or c-training (a directory).",
        "prefix": "What names in a C header begin with; else the name of the graph.",
        "split": "A C header for each space, in files beside the first.",
        "model FILE": "For circle and c-training: the model that the plan was made from.",
        "dim NAME=SIZE": "For c-training: the size of a dimension that the model leaves open; repeatable.",
        "loss LOSS": "For c-training with entry points: the loss that the model was planned with.",
        "weights FILE": "For circle: trained weights by name, as .safetensors or .npz, to put in. For"
        " c-training where first values go: embed, blob or none; left out, embed up to 8 MiB, else blob.",
    },
)
def export(
    plan: PlanFile,
    *,
    output: Path = Path("-"),
    to: str | None = None,
    prefix: str | None = None,
    split: bool = False,
    model: Path | None = None,
    dim: list[str] | None = None,
    loss: str | None = None,
    weights: Path | None = None,
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> None:
    """Write a plan as a C header, a trace, a snapshot or rows.

    For a device's runtime, a viewer or a table.
    """
    from service.cli import exporting

    choices = {name: value for name, value in (("dim", dim), ("loss", loss)) if value}
    into = exporting.ModelFile(model, choices, weights)
    exporting.export(
        plan,
        output,
        to,
        prefix,
        split=split,
        into=into,
        entry_point=entry_point,
        server=server,
        as_json=as_json,
    )


@app.add(
    "arenaplan report plan.json -o plan.html",
    "arenaplan report old.json new.json -o change.html",
    words={
        "new": "A second plan: the page shows what changed between them.",
        "output": "Where the page goes; - is standard output, which is also taken without -o. A terminal"
        " shows the summary in its place.",
    },
)
def report(
    plan: PlanFile,
    new: Path | None = None,
    *,
    output: Path | None = None,
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows a plan, or what changed in it.

    The arena over time, what is live when, and why the peak is what it is.
    """
    from service.cli import exporting

    first = exporting.loaded_plan(plan, server)
    with reporting(as_json=as_json, document=str(new or plan)):
        second = None if new is None else exporting.loaded_plan(new, server)
        options = {"entry_point": entry_point, "server": server}
        exporting.report((plan, new), (first, second), output, options)


@app.add(
    "arenaplan accesses plan.json log.jsonl",
    "arenaplan accesses plan.json log.jsonl --json",
    "arenaplan accesses plan.json --record graph.json -o log.jsonl",
    "arenaplan accesses plan.json log.jsonl --entry-point infer",
    words={
        "log": "What a runtime touched, JSON lines; - for standard input.",
        "record GRAPH": "Train this graph or model in the plan, and write what the steps touch. Repeatable,"
        " for a plan of several models.",
        "output": "Where a recorded log goes; - is standard output.",
        "steps 1..": "Training steps to record.",
        "seed 0..": "Seed of the random batches.",
    },
)
def accesses(
    plan: PlanFile,
    log: Path | None = None,
    *,
    record: list[Path] | None = None,
    output: Path = Path("-"),
    steps: int = 2,
    seed: int = 0,
    entry_point: EntryPointName = None,
    choices: ModelChoices,
    as_json: AsJson = False,
) -> Exit:
    """Find stale reads in the log of a runtime.

    Names the steps that read what no step wrote, or what was overwritten.
    """
    if (log is None) == (not record):
        raise typer.BadParameter("Give a log to check, or --record with a graph.", param_hint="LOG")
    if log is not None and choices:
        raise typer.BadParameter("How a model is trained is for --record.", param_hint="LOG")
    gc.enable()
    from service.cli import training
    from solver.plan import one_plan

    planned = training.read_planned(plan)
    made = one_plan(planned, entry_point)
    training.check_models(record or (), planned)
    right = True
    with reporting(as_json=as_json, document=str(log or (record or [])[0])):
        if record:
            graphs = training.read_networks(record, planned, choices)
            training.record_log(graphs, planned, output, entry_point=entry_point, steps=steps, seed=seed)
        elif log is not None:
            right = training.check_log(made, training.read_log(log, made), as_json=as_json)
    return Exit.OK if right else Exit.WRONG
