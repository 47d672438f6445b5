"""Reading what a command is given to plan: a graph or program document, or a model of another tool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from service.cli.console import print_json, print_line, print_notes, read_document, write_document
from solver import documents
from solver.errors import DocumentError, OptionsError
from solver.pipeline import TrainableGraph

if TYPE_CHECKING:
    from service.cli.remote import Service
    from solver.pipeline import BlockProgram

__all__ = [
    "is_document",
    "print_operators",
    "read_graph",
    "read_model",
    "read_model_for",
    "run_import",
]

_NOTHING: Final[Mapping[str, Any]] = {}


def is_document(data: bytes, path: Path) -> bool:
    """Whether this is JSON of this project, and not a model of another tool."""
    if path.suffix.lower() == ".json":
        return True  # as usual, and nothing of other tools is loaded
    from solver.importers.registry import find_importer

    return find_importer(data, path) is None


def read_model(
    document: bytes, path: Path, batch: int | None, choices: Mapping[str, Any] = _NOTHING
) -> TrainableGraph | BlockProgram:
    """The suffix, or the first bytes, tell a model from a document; the format inside a program from a graph.

    `choices` are those of `solver.importers.options.import_options`, and `weights` may be a file of weights;
    documents take no other one. What an importer wants to be known goes to standard error.
    """
    if not is_document(document, path):
        return _imported(document, path, batch, choices)
    value = _parsed(document, path)
    if isinstance(value, dict) and value.get("format") == documents.PROGRAM_FORMAT:
        _check_no_choices(path, choices)
        return documents.load_program(value)
    return _graph_of_document(value, path, batch, choices)


def read_graph(
    document: bytes, path: Path, batch: int | None, choices: Mapping[str, Any] = _NOTHING
) -> TrainableGraph:
    """The same where only a graph will do."""
    if not is_document(document, path):
        return _imported(document, path, batch, choices)
    return _graph_of_document(_parsed(document, path), path, batch, choices)


def read_model_for(
    service: Service, document: bytes, path: Path, batch: int | None, choices: Mapping[str, Any] = _NOTHING
) -> TrainableGraph | BlockProgram:
    """As `read_model`; a model whose package is not installed here is imported by the service."""
    if not is_document(document, path):
        from solver.importers.registry import find_importer

        importer = find_importer(document, path)
        if importer is not None and not importer.installed:
            return service.import_model(path, document, batch, choices)
    return read_model(document, path, batch, choices)


def run_import(
    path: Path,
    output: Path,
    batch: int | None,
    choices: Mapping[str, Any],
    *,
    as_json: bool,
    server: str | None = None,
) -> None:
    """Write the graph document of a model; weights by where they are, from the folder of `output`.

    The service at `server` imports it without the packages that its format needs here.
    """
    data = read_document(path)
    if is_document(data, path):
        _parsed(data, path)
        raise DocumentError(f"{str(path)!r:.200} is a document already.", remedy="Plan it as it is.")
    if server is None:
        graph = _imported(data, path, batch, choices)
    else:
        from service.cli.remote import Service

        graph = Service(server, as_json=as_json).import_model(path, data, batch, choices)
    folder = Path.cwd() if str(output) == "-" else output.resolve().parent
    write_document(output, documents.dump_graph(_from(folder, graph), indent=2) + b"\n")
    if str(output) == "-":
        return
    facts = {
        "graph": graph.name,
        "operations": len(graph.operations),
        "trained": len(graph.trainable),
        "parameters": sum(graph.operands[name].type.elements for name in graph.trainable),
    }
    if as_json:
        print_json(facts)
    else:
        print_line(
            f"{graph.name}: {facts['operations']:,} operations, {facts['trained']:,} trained tensors of"
            f" {facts['parameters']:,} elements"
        )


def print_operators(*, onnx: bool, as_json: bool) -> None:
    """Operators by family; or ONNX's that are imported, with those that ONNX itself defines by others."""
    from solver.importers.operators import onnx_operators, own_operators

    found = onnx_operators() if onnx else own_operators()
    if as_json:
        print_json(found)
        return
    for family, names in found.items():
        print_line(f"{family}: {', '.join(names)}")


def _graph_of_document(
    value: Any, path: Path, batch: int | None, choices: Mapping[str, Any]
) -> TrainableGraph:
    weights, choices = _weights_apart(choices)
    _check_no_choices(path, choices)
    return _with_weights(documents.load_graph(value, batch=batch, folder=path.parent), weights)


def _imported(data: bytes, path: Path, batch: int | None, choices: Mapping[str, Any]) -> TrainableGraph:
    from solver.importers.options import import_options
    from solver.importers.registry import find_importer, load_model

    importer = find_importer(data, path)
    assert importer is not None, "documents are read elsewhere"
    weights, choices = _weights_apart(choices)
    if not importer.chooses:
        _check_no_choices(path, choices)
    place = None if str(path) == "-" else path
    name = "model" if place is None else path.stem
    found = load_model(importer, data, options=import_options(choices, batch=batch), path=place, name=name)
    print_notes(found.notes)
    return _with_weights(found.graph, weights)


def _weights_apart(choices: Mapping[str, Any]) -> tuple[Path | None, Mapping[str, Any]]:
    """The file that --weights names, and the choices without it; the words of --weights stay among them."""
    given = choices.get("weights")
    if given in (None, "reference", "none"):
        return None, choices
    if not Path(given).is_file():
        raise OptionsError(
            f"There is no file {given!r:.200}.",
            remedy="Give a .safetensors or .npz file, reference (as the model says) or none (drawn).",
            path=("weights",),
        )
    return Path(given), {name: value for name, value in choices.items() if name != "weights"}


def _with_weights(graph: TrainableGraph, weights: Path | None) -> TrainableGraph:
    if weights is None:
        return graph
    from solver.importers.weights import with_weights

    found = with_weights(graph, weights)
    print_notes(found.notes)
    return found.graph


def _check_no_choices(path: Path, choices: Mapping[str, Any]) -> None:
    for name in choices:
        option = "output_name" if name == "output" else name
        raise OptionsError(
            f"{str(path)!r:.200} says itself how it is trained.",
            remedy=f"Leave out --{option.replace('_', '-')}, which is for models of other tools, as ONNX's.",
            path=(option,),
        )


def _parsed(data: bytes, path: Path) -> Any:
    """Raises DocumentError; of what is not text at all, one that names the formats."""
    if path.suffix.lower() == ".json":
        return documents.parse_json(data)
    from solver.importers.registry import unknown_format

    if b"\0" in data[:1024]:
        raise unknown_format(path.name)
    try:
        data[:4096].decode()
    except UnicodeDecodeError as error:
        if error.start < len(data[:4096]) - 4:
            raise unknown_format(path.name) from None
    return documents.parse_json(data)


def _from(folder: Path, graph: TrainableGraph) -> TrainableGraph:
    """The same graph with the places of files as seen from a folder."""
    operands = {}
    for operand in graph.operands.values():
        given = operand.initializer
        if given is not None and given.file is not None and given.file.path:
            place = os.path.relpath(Path(given.file.path).resolve(), folder)
            operand = replace(operand, initializer=replace(given, file=replace(given.file, path=place)))
        operands[operand.id] = operand
    return graph.with_graph(operands=operands)
