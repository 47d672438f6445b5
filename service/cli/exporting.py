"""Plans as files for other tools, and as pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.cli.command_line import command_line, print_commands
from service.cli.console import print_json, print_line, read_document, write_document
from solver import documents, exporters
from solver.errors import DocumentError, OptionsError
from solver.plan import Plan, PlanView

__all__ = ["ModelFile", "export", "loaded_plan", "print_report", "report"]

#: What is written into a model file, by name, with the suffix that says it.
_INTO_MODELS: Final[Mapping[str, str]] = {"circle": ".circle", "tflm": ".tflite"}


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The other inputs of a model file: the `model` itself, trained `weights`, the bytes that TFLM has."""

    model: Path | None = None
    weights: Path | None = None
    capacity: int | None = None


_NONE: Final = ModelFile()


def export(
    path: Path,
    output: Path,
    to: str | None,
    prefix: str | None,
    *,
    split: bool,
    into: ModelFile = _NONE,
    server: str | None = None,
    as_json: bool = False,
) -> None:
    """Write the plan of a file, or a kept one. Without `to` the suffix of the output says as what."""
    name = to or next((n for n, suffix in _INTO_MODELS.items() if output.suffix.lower() == suffix), None)
    _check_options(name, prefix, into, split=split)
    if name == "circle":
        _export_circle(read_plan(path, server), output, into, as_json=as_json)
        return
    if name == "tflm":
        _export_tflm(path, output, into, as_json=as_json)
        return
    if to is not None and to not in exporters.EXPORTERS:
        known = ", ".join((*exporters.EXPORTERS, *_INTO_MODELS))
        raise OptionsError(f"There is no exporter {to!r:.80}.", remedy=f"Choose from {known}.", path=("to",))
    exporter = exporters.exporter_of_file(output.name) if to is None else exporters.exporter_named(to)
    if (split or prefix is not None) and exporter.name != "c-header":
        raise _not_for(exporter.name, "split" if split else "prefix", "c-header")
    if split and str(output) == "-":
        raise OptionsError(
            "Several files cannot go to standard output.",
            remedy="Name a file with -o, or leave out --split.",
            path=("split",),
        )
    data = read_plan(path, server)
    if exporter.name != "c-header":
        write_document(output, exporter.dump(documents.load_plan(data)))
        return
    from solver.exporters import c_header

    plan = documents.load_plan(data)
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
    if name in _INTO_MODELS and (split or prefix is not None):
        raise _not_for(name, "split" if split else "prefix", "c-header")
    for option, value, fitting in (
        ("model", into.model, "circle"),
        ("weights", into.weights, "circle"),
        ("capacity", into.capacity, "tflm"),
    ):
        if value is not None and name != fitting:
            raise _not_for(name, option, fitting)


def _export_circle(document: bytes, output: Path, into: ModelFile, *, as_json: bool) -> None:
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
    plan, data = documents.load_plan(document), into.model.read_bytes()
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


def _export_tflm(path: Path, output: Path, into: ModelFile, *, as_json: bool) -> None:
    """The model with offsets for its inference, which are planned here and now."""
    from solver.exporters.tflm import with_offline_plan
    from solver.importers.registry import find_importer

    data = read_document(path)
    importer = find_importer(data[:64])
    if importer is None or importer.name != "circle":
        raise DocumentError(
            f"{path.name!r:.200} is not a TensorFlow Lite model: TFLM runs inference, and a plan of training"
            " has nothing for it.",
            remedy="Give the model itself: arenaplan export model.tflite --to tflm -o planned.tflite.",
        )
    planned = with_offline_plan(data, capacity=into.capacity)
    write_document(output, planned.data)
    if str(output) == "-":
        return
    bound, left_bytes = planned.outcome.lower_bound, sum(planned.left.values())
    if as_json:
        left = {"tensors": len(planned.left), "bytes": left_bytes}
        facts = {
            "tensors": len(planned.offsets),
            "arena_bytes": planned.size,
            "lower_bound": bound,
            "left": left,
        }
        print_json(facts)
        return
    line = f"{output.name}: {len(planned.offsets)} tensors in {planned.size:,} bytes, bound {bound:,}"
    if planned.left:
        line += f"; state and handles left to the interpreter: {left_bytes:,} bytes"
    print_line(line)


def read_plan(path: Path, server: str | None = None) -> bytes:
    """The document of a plan: a file, standard input, or by its digest what the service at `server` keeps."""
    if server is None:
        return read_document(path)
    from service.cli import remote

    return remote.read_plan(path, server)


def loaded_plan(path: Path, server: str | None = None) -> Plan:
    """The plan of a document: of a file, standard input, or kept by the service at `server`."""
    return documents.load_plan(read_plan(path, server))


def print_report(path: Path, new: Path | None, plan: Plan, server: str | None) -> None:
    """Print the summary of `plan`, the newer of the two, and the command that writes the page."""
    from service.cli.planning import print_summary

    print_summary(plan, as_json=False, beside=False)
    options = {"server": server}
    files = (path,) if new is None else (path, new)
    name = "change.html" if new is not None else f"{path.stem if str(path) != '-' else 'plan'}.html"
    commands = [("to write the page", command_line("report", *files, options=options, output=name))]
    if new is None:
        commands.append(("to see the same here", command_line("show", path, options=options)))
    else:
        commands.append(("to see what changed here", command_line("diff", *files, options=options)))
    print_commands(commands)


def report(plan: PlanView, old: PlanView | None, output: Path) -> None:
    """Write the page of a plan, or of the change from an older one to it."""
    from solver.exporters import html

    write_document(output, html.dump_report(plan, old))
