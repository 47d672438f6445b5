"""Plans as files for other tools, and as pages."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from service.cli.answers import answer, read_sources
from service.cli.command_line import command_line, print_commands
from service.cli.console import print_json, print_line, read_document, write_document
from solver import documents, exporters
from solver.errors import DocumentError, OptionsError
from solver.plan import Deployment, Plan, PlanView, one_plan, plan_of, plans_to_compare
from solver.removed import removed
from solver.requests import Request

__all__ = ["ModelFile", "export", "loaded_plan", "report"]

#: What is written into a model file, by name, with the suffix that says it.
_INTO_MODELS: Final[Mapping[str, str]] = {"circle": ".circle"}


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Inputs of an export beside the plan: the `model`, `choices` of its import, `weights`."""

    model: Path | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None


_NONE: Final = ModelFile()


def export(
    path: Path,
    output: Path,
    to: str | None,
    prefix: str | None,
    *,
    split: bool,
    into: ModelFile = _NONE,
    entry_point: str | None = None,
    server: str | None = None,
    as_json: bool = False,
) -> None:
    """Write the plan of a file, or a kept one. Without `to` the suffix of the output says as what.

    Of a plan with entry points all of them, or the one named `entry_point`.
    """
    name = to or next((n for n, suffix in _INTO_MODELS.items() if output.suffix.lower() == suffix), None)
    _check_options(name, prefix, into, split=split)
    if name == "circle":
        _export_circle(one_plan(_planned(path, server), entry_point), output, into, as_json=as_json)
        return
    if name == "c-training":
        _export_c_training(plan_of(_planned(path, server), entry_point), output, into, as_json=as_json)
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
    plan = plan_of(_planned(path, server), entry_point)
    if exporter.name != "c-header":
        write_document(output, exporter.dump(plan))
        return
    from solver.exporters import c_header

    if split:
        for name, text in c_header.c_header_files(plan, output.stem, prefix).items():
            write_document(output.with_name(name), text)
    else:
        write_document(output, c_header.dump_c_header(plan, prefix))


def _not_for(name: str | None, option: str, fitting: str) -> OptionsError:
    return OptionsError(
        f"This is for {fitting}, not for {name or 'what the suffix says'}.",
        remedy=f"Leave it out, or write --to {fitting}.",
        path=(option,),
    )


def _check_options(name: str | None, prefix: str | None, into: ModelFile, *, split: bool) -> None:
    """Raises OptionsError for an option that is for another kind of file."""
    if (name in _INTO_MODELS or name == "c-training") and (split or prefix is not None):
        raise _not_for(name, "split" if split else "prefix", "c-header")
    for option, value, fitting in (
        ("model", into.model, ("circle", "c-training")),
        ("weights", into.weights, ("circle", "c-training")),
        *((option, value, ("c-training",)) for option, value in into.choices.items()),
    ):
        if value is not None and name not in fitting:
            raise _not_for(name, option, " or ".join(fitting))


def _export_c_training(plan: Plan | Deployment, output: Path, into: ModelFile, *, as_json: bool) -> None:
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
    sources = {} if into.model is None else read_sources([into.model], into.choices)
    settings = {} if into.weights is None else {"weights": str(into.weights)}
    files = answer(Request("c-training", sources, plan=plan, settings=settings), as_json=as_json)
    if zipped:
        write_document(output, zip_archive(files))
    else:
        for name, content in files.items():
            place = output / name
            place.parent.mkdir(parents=True, exist_ok=True)
            write_document(place, content)
    facts = {"files": len(files), "bytes": sum(map(len, files.values())), "arena_bytes": plan.arena_bytes}
    if as_json:
        print_json(facts)
        return
    end = "" if zipped else f"; make -C {output} builds an example"
    print_line(f"{output}: {facts['files']} files, which train in {plan.arena_bytes:,} bytes{end}")


def _export_circle(plan: Plan, output: Path, into: ModelFile, *, as_json: bool) -> None:
    """The model of a plan, with how the plan trains it, and trained weights where they are given."""
    from solver.exporters import circle
    from solver.importers.circle import load_circle
    from solver.importers.weights import read_arrays

    if into.model is None:
        raise OptionsError(
            "A plan has no operators of Circle: they are in the model that it was made from.",
            remedy="Give --model model.circle, too.",
            path=("model",),
        )
    data = into.model.read_bytes()
    training = circle.training_of_plan(plan, data)
    places = load_circle(data, training=training).weights
    values = {}
    if into.weights is not None:
        values = {n: v for n, v in read_arrays(into.weights).items() if n in places}
        if not values:
            raise DocumentError(
                f"{str(into.weights)!r:.200} has no weight of the model.",
                remedy=f"Its weights are {', '.join(places)}.",
            )
        data = circle.with_weights(data, places, values)
    write_document(output, circle.with_training(data, training))
    facts = {
        "optimizer": training.optimizer.type, "loss": training.loss, "batch": training.batch,
        "operators": None if training.trainable is None else list(training.trainable),
        "weights": len(values),
    }  # fmt: skip
    if str(output) == "-":
        return
    if as_json:
        print_json(facts)
        return
    trained = "all weights" if training.trainable is None else f"operators {list(training.trainable)}"
    weights_note = (
        f", {len(values)} of {len(places)} weights from {into.weights.name}" if into.weights else ""
    )
    line = f"{output.name}: {training.optimizer.type} on {training.loss}, batch {training.batch}, {trained}"
    print_line(line + weights_note)


def _planned(path: Path, server: str | None) -> Plan | Deployment:
    """The contents of a plan: of a file, standard input, or kept by the service at `server`."""
    if server is None:
        return documents.load_planned(read_document(path))
    from service.cli import remote

    return documents.load_planned(remote.read_plan(path, server))


def loaded_plan(path: Path, server: str | None = None, entry_point: str | None = None) -> Plan | Deployment:
    """The plan of a document: all entry points that it has, or the one of this name."""
    return plan_of(_planned(path, server), entry_point)


def report(
    files: tuple[Path, Path | None],
    plans: tuple[Plan | Deployment, Plan | Deployment | None],
    output: Path | None,
    options: Mapping[str, Any],
) -> None:
    """Write the page of a plan, or of the change from the first of two plans to the second.

    Without `output` it goes to standard output; a terminal shows the summary instead. `options` are those of
    the command.
    """
    first, second = plans
    entry_point = options["entry_point"]
    old: PlanView | Deployment | None = None
    new: PlanView | Deployment
    if second is None:
        new = plan_of(first, entry_point)
    else:
        old, new = plans_to_compare(first, second, entry_point)
    if output is None and sys.stdout.isatty():
        _print_report(files, new, options)
        return
    from solver.exporters import html

    write_document(output or Path("-"), html.dump_report(new, old))


def _print_report(
    files: tuple[Path, Path | None], plan: PlanView | Deployment, options: Mapping[str, Any]
) -> None:
    """Print the summary of `plan`, the newer of the two, and the command that writes the page."""
    if isinstance(plan, Deployment):
        from service.cli.entry_points import print_overview

        print_overview(plan)
    else:
        from service.cli.show import print_summary

        print_summary(plan)
    path, new = files
    paths = (path,) if new is None else (path, new)
    name = "change.html" if new is not None else f"{path.stem if str(path) != '-' else 'plan'}.html"
    commands = [("to write the page", command_line("report", *paths, options=options, output=name))]
    if new is None:
        commands.append(("to see the same here", command_line("show", path, options=options)))
    else:
        commands.append(("to see what changed here", command_line("diff", *paths, options=options)))
    print_commands(commands)
