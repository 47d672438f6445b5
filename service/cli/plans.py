"""Plans on the command line: shown, as files for other tools, and as pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from service.cli.answers import answer, read_sources
from service.cli.console import (
    command_line,
    print_commands,
    print_json,
    print_written,
    read_document,
    reporting,
    write_document,
)
from service.cli.options import AsJson, Commands, EntryPointName, PlanFile, PlanServer, on_one_thread
from solver import documents, requests
from solver.errors import DocumentError, OptionsError
from solver.removed import removed

if TYPE_CHECKING:
    from solver.plan import Deployment, Plan, PlanView

__all__ = ["app", "read_planned"]

app = Commands()

#: What is written into a model file, by name, with the suffix that says it.
_INTO_MODELS: Final[Mapping[str, str]] = {"circle": ".circle"}


def read_planned(
    path: Path, server: str | None = None, entry_point: str | None = None, *, as_json: bool = False
) -> Plan | Deployment:
    """The plan of a file, of standard input, or by its digest one that the service at `server` keeps: all
    entry points that it has, or the one of this name.
    """
    from solver.plan import plan_of

    if server is not None and re.fullmatch(r"[0-9a-f]{64}", str(path), re.ASCII) and not path.exists():
        from service.cli.remote import Service

        return plan_of(Service(server, as_json=as_json).stored_plan(str(path)), entry_point)
    return plan_of(documents.load_planned(read_document(path)), entry_point)


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
    planned = read_planned(plan, server, entry_point, as_json=as_json)
    from service.cli.show import facts, render

    if as_json:
        print_json(facts(planned))
    else:
        render(planned, width)


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
    from solver import exporters

    made = read_planned(plan, server, entry_point)
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
    from solver import exporters
    from solver.plan import one_plan

    name = to or next((n for n, suffix in _INTO_MODELS.items() if output.suffix.lower() == suffix), None)
    choices = {key: value for key, value in (("dim", dim), ("loss", loss)) if value}
    of_models = {"model": model, "weights": weights}
    for option, value in (*of_models.items(), *choices.items()):
        fitting = ("circle", "c-training") if option in of_models else ("c-training",)
        if value is not None and name not in fitting:
            raise _not_for(name, option, " or ".join(fitting))
    if name in ("circle", "c-training") and (split or prefix is not None):
        raise _not_for(name, "split" if split else "prefix", "c-header")
    if name == "circle":
        one = one_plan(read_planned(plan, server), entry_point)
        _export_circle(one, output, model, weights, as_json=as_json)
        return
    if name == "c-training":
        planned = read_planned(plan, server, entry_point)
        _export_c_training(planned, output, model, choices, weights, as_json=as_json)
        return
    if to is not None and to not in exporters.EXPORTERS:
        known = ", ".join((*exporters.EXPORTERS, *_INTO_MODELS, "c-training"))
        raise OptionsError(
            removed(to) or f"There is no exporter {to!r:.80}.", remedy=f"Choose from {known}.", path=("to",)
        )
    exporter = exporters.exporter_of_file(output.name) if to is None else exporters.exporter_named(to)
    if (split or prefix is not None) and exporter.name != "c-header":
        raise _not_for(exporter.name, "split" if split else "prefix", "c-header")
    if split and str(output) == "-":
        raise OptionsError(
            "Several files cannot go to standard output.",
            remedy="Name a file with -o, or leave out --split.",
            path=("split",),
        )
    planned = read_planned(plan, server, entry_point)
    if exporter.name != "c-header":
        write_document(output, exporter.dump(planned))
        return
    from solver.exporters import c_header

    if split:
        for name, text in c_header.c_header_files(planned, output.stem, prefix).items():
            write_document(output.with_name(name), text)
    else:
        write_document(output, c_header.dump_c_header(planned, prefix))


def _not_for(name: str | None, option: str, fitting: str) -> OptionsError:
    return OptionsError(
        f"This is for {fitting}, not for {name or 'what the suffix says'}.",
        remedy=f"Leave it out, or write --to {fitting}.",
        path=(option,),
    )


def _export_c_training(
    plan: Plan | Deployment,
    output: Path,
    model: Path | None,
    choices: Mapping[str, Any],
    weights: Path | None,
    *,
    as_json: bool,
) -> None:
    """A directory with C11 that trains, or a zip archive of it, by the suffix of `output`."""
    from solver.executor import zip_archive

    zipped = output.suffix.lower() == ".zip"
    if str(output) == "-" or (output.suffix and not zipped):
        raise OptionsError(
            f"What trains are several files, and {str(output)!r:.200} names one.",
            remedy="Name a directory or an archive: `arenaplan export plan.json --to c-training -o net`, or"
            " -o net.zip.",
            path=("output",),
        )
    sources = {} if model is None else read_sources([model], choices)
    settings = {} if weights is None else {"weights": str(weights)}
    files = answer(requests.Request("c-training", sources, plan=plan, settings=settings), as_json=as_json)
    if zipped:
        write_document(output, zip_archive(files))
    else:
        for name, content in files.items():
            place = output / name
            place.parent.mkdir(parents=True, exist_ok=True)
            write_document(place, content)
    facts = {"files": len(files), "bytes": sum(map(len, files.values())), "arena_bytes": plan.arena_bytes}
    end = "" if zipped else f"; make -C {output} builds an example"
    sentence = f"{output}: {facts['files']} files, which train in {plan.arena_bytes:,} bytes{end}"
    print_written(output, facts, sentence, as_json=as_json)


def _export_circle(
    plan: Plan, output: Path, model: Path | None, weights: Path | None, *, as_json: bool
) -> None:
    """The model of a plan, with how the plan trains it, and trained weights where they are given."""
    from solver.exporters import circle
    from solver.importers.circle import load_circle
    from solver.importers.weights import read_arrays

    if model is None:
        raise OptionsError(
            "A plan has no operators of Circle: they are in the model that it was made from.",
            remedy="Give --model model.circle, too.",
            path=("model",),
        )
    data = model.read_bytes()
    training = circle.training_of_plan(plan, data)
    places = load_circle(data, training=training).weights
    values = {}
    if weights is not None:
        values = {n: v for n, v in read_arrays(weights).items() if n in places}
        if not values:
            raise DocumentError(
                f"{str(weights)!r:.200} has no weight of the model.",
                remedy=f"Its weights are {', '.join(places)}.",
            )
        data = circle.with_weights(data, places, values)
    write_document(output, circle.with_training(data, training))
    facts = {
        "optimizer": training.optimizer.type, "loss": training.loss, "batch": training.batch,
        "operators": None if training.trainable is None else list(training.trainable),
        "weights": len(values),
    }  # fmt: skip
    trained = "all weights" if training.trainable is None else f"operators {list(training.trainable)}"
    weights_note = f", {len(values)} of {len(places)} weights from {weights.name}" if weights else ""
    line = f"{output.name}: {training.optimizer.type} on {training.loss}, batch {training.batch}, {trained}"
    print_written(output, facts, line + weights_note, as_json=as_json)


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
    from solver.plan import plan_of, plans_to_compare

    first = read_planned(plan, server)
    old: PlanView | Deployment | None = None
    after: PlanView | Deployment
    if new is None:
        after = plan_of(first, entry_point)
    else:
        with reporting(as_json=as_json, document=str(new)):
            old, after = plans_to_compare(first, read_planned(new, server), entry_point)
    if output is not None or not sys.stdout.isatty():
        from solver.exporters import html

        write_document(output or Path("-"), html.dump_report(after, old))
        return
    from service.cli.show import print_summary

    print_summary(after)
    paths = (plan,) if new is None else (plan, new)
    name = "change.html" if new is not None else f"{plan.stem if str(plan) != '-' else 'plan'}.html"
    options = {"entry_point": entry_point, "server": server}
    commands = [("to write the page", command_line("report", *paths, options=options, output=name))]
    if new is None:
        commands.append(("to see the same here", command_line("show", plan, options=options)))
    else:
        commands.append(("to see what changed here", command_line("diff", *paths, options=options)))
    print_commands(commands)
