"""Commands that take plans: show them, export them, compare them, hold a runtime's accesses against them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.commands.options import (
    AsJson,
    Commands,
    EntryPointName,
    ModelChoices,
    PlanFile,
    PlanServer,
    Server,
    examples,
    grouped,
    on_one_thread,
)
from service.cli.console import Exit, reporting, write_document

__all__ = ["app"]

app = Commands()


def _allowance(text: str) -> Any:
    """``1%`` or ``64KiB``."""
    from solver.documents import read_allowance

    try:
        return read_allowance(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


Report = Annotated[
    str | None, typer.Option("--format", help="text, json, markdown (for a pull request) or junit.")
]
ReportFile = Annotated[
    Path, typer.Option("-o", "--output", help="Where the report goes; - is standard output.")
]


@app.command(
    epilog=examples(
        "arenaplan show plan.json",
        "arenaplan show plan.json --width 132",
        "arenaplan show plan.json --entry-point infer",
        "arenaplan show plan.json --json | jq .arena_bytes",
    )
)
def show(
    plan: PlanFile,
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
    width: Annotated[
        int | None, typer.Option("--width", min=40, help="Columns to fill; the terminal's if left out.")
    ] = None,
) -> None:
    """Show a plan on the terminal.

    Bytes by kind, the certificate, what is live at the peak, what the passes did, and a map of the arena.
    Of a plan with entry points: a table of them, and a map in which each of them runs once.
    """
    on_one_thread()
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import show as tables

        tables.run(plan, width, entry_point=entry_point, as_json=as_json, server=server)


@app.command(
    epilog=examples(
        "arenaplan offsets plan.json -o offsets.csv",
        "arenaplan offsets plan.json -o offsets.json",
        "arenaplan offsets plan.json --entry-point infer -o infer.csv",
    )
)
def offsets(
    plan: PlanFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the rows go, .csv or .json; - is standard output.")
    ] = Path("-"),
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> None:
    """Write where each value of a plan lies, and when it is live.

    For runtimes that want addresses alone.
    """
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import exporting
        from solver import exporters

        made = exporting.loaded_plan(plan, server, entry_point)
        as_csv = output.suffix.lower() == ".csv" or (str(output) == "-" and not as_json)
        write_document(output, exporters.dump_offsets(made, as_csv=as_csv))


@app.command(
    epilog=examples(
        "arenaplan export plan.json -o plan.h",
        "arenaplan export plan.json --to c-header --prefix net --split -o net.h",
        "arenaplan export plan.json -o plan.trace.json",
        "arenaplan export plan.json --entry-point infer -o infer.h",
        "arenaplan export plan.json --to memory-viz -o plan.pickle",
        "arenaplan export plan.json --model model.circle --weights trained.npz -o trained.circle",
        "arenaplan export plan.json --to c-training --model model.onnx --dim batch=4 -o net",
    )
)
def export(
    plan: PlanFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where it goes; its suffix says what is written.")
    ] = Path("-"),
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="NAME",
            help="What is written: c-header, report, perfetto, memory-viz, offsets-csv, offsets-json,"
            " minimalloc, circle or c-training (a directory).",
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", help="What names in a C header begin with; else the name of the graph."),
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="A C header for each space, in files beside the first.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="For circle and c-training: the model that the plan was made from.",
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            help="For c-training: the size of a dimension that the model leaves open; repeatable.",
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            "--loss",
            metavar="LOSS",
            help="For c-training with entry points: the loss that the model was planned with.",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="For circle: trained weights by name, as .safetensors or .npz, to put in. For c-training"
            " where first values go: embed, blob or none; left out, embed up to 8 MiB, else blob.",
        ),
    ] = None,
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> None:
    """Write a plan as a C header, a trace, a snapshot or rows.

    For a device's runtime, a viewer or a table.
    """
    with reporting(as_json=as_json, document=str(plan)):
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


@app.command(
    epilog=examples(
        "arenaplan report plan.json -o plan.html",
        "arenaplan report old.json new.json -o change.html",
    )
)
def report(
    plan: PlanFile,
    new: Annotated[
        Path | None, typer.Argument(help="A second plan: the page shows what changed between them.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Where the page goes; - is standard output, which is also taken without -o. A terminal shows"
            " the summary in its place.",
        ),
    ] = None,
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows a plan, or what changed in it.

    The arena over time, what is live when, and why the peak is what it is.
    """
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import exporting

        first = exporting.loaded_plan(plan, server)
    with reporting(as_json=as_json, document=str(new or plan)):
        second = None if new is None else exporting.loaded_plan(new, server)
        options = {"entry_point": entry_point, "server": server}
        exporting.report((plan, new), (first, second), output, options)


@app.command(
    epilog=examples(
        "arenaplan diff old.json new.json",
        "arenaplan diff old.json new.json --max-growth 1%",
        "arenaplan diff old.json new.json --max-growth 64KiB --format markdown -o comment.md",
    )
)
def diff(
    old: Annotated[Path, typer.Argument(help="Plan document from before.")],
    new: Annotated[Path, typer.Argument(help="Plan document of now, - for standard input.")],
    max_growth: Annotated[
        Any,
        typer.Option(
            "--max-growth",
            parser=_allowance,
            metavar="GROWTH",
            help="Exit with 3 if arenas grow beyond this: 1% or 64KiB.",
        ),
    ] = None,
    form: Report = None,
    output: ReportFile = Path("-"),
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> None:
    """Compare two plans: which bytes are more or fewer.

    By operand, kind and layer, at the peak of each.
    """
    with reporting(as_json=as_json):
        from service.cli import exporting, gates

        chosen = gates.format_of(form, as_json=as_json)
    with reporting(as_json=as_json, document=str(old)):
        before = exporting.loaded_plan(old, server)
    with reporting(as_json=as_json, document=str(new)):
        now = exporting.loaded_plan(new, server)
        code = gates.diff(before, now, max_growth, chosen, output, entry_point)
    raise typer.Exit(code)


@app.command(
    epilog=examples(
        "arenaplan budget check budgets.toml",
        "arenaplan budget check budgets.toml --format junit -o budgets.xml",
    )
)
def budget(
    action: Annotated[str, typer.Argument(metavar="check", help="What to do with the budgets: check.")],
    file: Annotated[Path, typer.Argument(help="Budget file, TOML.")],
    form: Report = None,
    output: ReportFile = Path("-"),
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Plan many networks and see that each keeps its budget. Exit code 3: one does not."""
    if action != "check":
        raise typer.BadParameter(f"There is no action {action!r}. Choose check.", param_hint="ACTION")
    with reporting(as_json=as_json, document=str(file)):
        from service.cli import gates

        code = gates.check_budgets(file, gates.format_of(form, as_json=as_json), output, server)
    raise typer.Exit(code)


@app.command(
    epilog=examples(
        "arenaplan accesses plan.json log.jsonl",
        "arenaplan accesses plan.json log.jsonl --json",
        "arenaplan accesses plan.json --record graph.json -o log.jsonl",
        "arenaplan accesses plan.json log.jsonl --entry-point infer",
    )
)
@grouped
def accesses(
    plan: PlanFile,
    log: Annotated[
        Path | None, typer.Argument(help="What a runtime touched, JSON lines; - for standard input.")
    ] = None,
    record: Annotated[
        list[Path] | None,
        typer.Option(
            "--record",
            metavar="GRAPH",
            help="Train this graph or model in the plan, and write what the steps touch. Repeatable, for a"
            " plan of several models.",
        ),
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where a recorded log goes; - is standard output.")
    ] = Path("-"),
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps to record.")] = 2,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random batches.")] = 0,
    entry_point: EntryPointName = None,
    choices: ModelChoices,
    as_json: AsJson = False,
) -> None:
    """Find stale reads in the log of a runtime.

    Names the steps that read what no step wrote, or what was overwritten.
    """
    if (log is None) == (not record):
        raise typer.BadParameter("Give a log to check, or --record with a graph.", param_hint="LOG")
    if log is not None and choices:
        raise typer.BadParameter("How a model is trained is for --record.", param_hint="LOG")
    gc.enable()
    with reporting(as_json=as_json, document=str(plan)):
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
    if not right:
        raise typer.Exit(Exit.WRONG)
