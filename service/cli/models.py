"""Files that commands plan: graph and program documents, and models of other tools."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from service.cli.console import print_json, print_line, print_notes, read_document, write_document
from solver import documents
from solver.canonical import to_bytes
from solver.errors import DocumentError, OptionsError
from solver.pipeline import TrainableGraph

if TYPE_CHECKING:
    from service.cli.remote import Service
    from solver.importers.registry import Importer
    from solver.pipeline import BlockProgram
    from solver.plan import PlanOptions
    from solver.verdict import Batches

__all__ = ["ModelFile", "dims_of_document", "print_operators", "read_model_file", "run_import"]

_NO_CHOICES: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The content of a file that a command plans, and the importer that reads it: None for a document.

    `choices` of its methods are those of `solver.importers.options.import_options`, and `weights` may be a
    file of weights, the only choice that documents take. Notes of importers go to standard error.
    """

    path: Path
    data: bytes
    importer: Importer | None
    prints_notes: bool = True

    @property
    def document(self) -> bytes | None:
        """The text of a document of this project; None for a model of another tool."""
        return self.data if self.importer is None else None

    @property
    def name(self) -> str:
        """The name of a graph that has none of its own."""
        return "model" if str(self.path) == "-" else self.path.stem

    def read(
        self, batch: int | None, choices: Mapping[str, Any] = _NO_CHOICES
    ) -> TrainableGraph | BlockProgram:
        """The graph, or the program of a program document. Raises ArenaplanError."""
        if self.importer is not None:
            return self._imported(self.importer, batch, choices)
        value = self.parsed()
        if isinstance(value, dict) and value.get("format") == documents.PROGRAM_FORMAT:
            self._check_no_choices(choices)
            return documents.load_program(value)
        return self._graph_of(value, batch, choices)

    def graph(self, batch: int | None, choices: Mapping[str, Any] = _NO_CHOICES) -> TrainableGraph:
        """The graph, also where the document says that it is something else. Raises ArenaplanError."""
        if self.importer is not None:
            return self._imported(self.importer, batch, choices)
        return self._graph_of(self.parsed(), batch, choices)

    def read_for(
        self, service: Service, batch: int | None, choices: Mapping[str, Any] = _NO_CHOICES
    ) -> TrainableGraph | BlockProgram:
        """As `read`; the service imports a model whose package is not installed here."""
        if self.importer is not None and not self.importer.installed:
            return service.import_model(self.name, self.data, batch, choices)
        return self.read(batch, choices)

    def parsed(self) -> Any:
        """The JSON value of a document. Raises DocumentError; for binary data, one that names the formats."""
        if self.path.suffix.lower() != ".json":
            from solver.importers.registry import unknown_format

            if b"\0" in self.data[:1024]:
                raise unknown_format(self.path.name)
            try:
                self.data[:4096].decode()
            except UnicodeDecodeError as error:
                if error.start < len(self.data[:4096]) - 4:  # not a character that the cut has divided
                    raise unknown_format(self.path.name) from None
        return documents.parse_json(self.data)

    def document_with(self, choices: Mapping[str, Any]) -> bytes | None:
        """The text of a document, with what choices replace of it. Raises ArenaplanError."""
        if self.importer is not None or not set(choices) & set(_document_choices()):
            return self.document
        return to_bytes(self._trained_as(self.parsed(), choices))

    def batches(
        self, graph: TrainableGraph, options: PlanOptions, choices: Mapping[str, Any]
    ) -> Batches | None:
        """Other batches of the graph that this file is with these options and choices; None if it has one."""
        from solver.verdict import batches_of, batches_of_model

        document, importer = self.document_with(choices), self.importer
        if importer is None:
            return None if document is None else batches_of(document, options)
        return batches_of_model(
            graph, choices, lambda batch, words: self._imported(importer, batch, words, prints_notes=False)
        )

    def _graph_of(self, value: Any, batch: int | None, choices: Mapping[str, Any]) -> TrainableGraph:
        weights, choices = _weights_apart(choices)
        if choices:
            known = _document_choices()
            self._check_no_choices({name: word for name, word in choices.items() if name not in known})
            value = self._trained_as(value, choices)
        return _with_weights(documents.load_graph(value, batch=batch, folder=self.path.parent), weights)

    def _trained_as(self, value: Any, choices: Mapping[str, Any]) -> Any:
        """The value of a graph document, trained as choices say."""
        from solver.importers.options import training_fields

        return {**value, **training_fields(value, choices)} if isinstance(value, dict) else value

    def _imported(
        self, importer: Importer, batch: int | None, choices: Mapping[str, Any], *, prints_notes: bool = True
    ) -> TrainableGraph:
        from solver.importers.options import import_options
        from solver.importers.registry import load_model

        weights, choices = _weights_apart(choices)
        if not importer.chooses:
            self._check_no_choices({k: word for k, word in choices.items() if (k, word) != ("loss", "none")})
        options = import_options(choices, batch=batch)
        path = None if str(self.path) == "-" else self.path
        imported = load_model(importer, self.data, options=options, path=path, name=self.name)
        if prints_notes and self.prints_notes:  # else the caller has read the same model before
            print_notes(imported.notes)
        return _with_weights(imported.graph, weights)

    def _check_no_choices(self, choices: Mapping[str, Any]) -> None:
        for name in choices:
            option = "output_name" if name == "output" else name
            raise OptionsError(
                f"{str(self.path)!r:.200} says itself how it is trained.",
                remedy=f"Leave out --{option.replace('_', '-')}, which is for models of other tools, as"
                " ONNX's.",
                path=(option,),
            )


def dims_of_document(
    choices: Mapping[str, Any], fields: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Choices and fields of an options document, with the ``dim`` of a graph document among the fields.

    Raises OptionsError for a text that is no name and size.
    """
    rest, dims = dict(choices), dict[str, Any]()
    for text in rest.pop("dim", ()):
        name, _, size = str(text).rpartition("=")
        if not name or name in dims:
            raise OptionsError(
                f"The dimension is {text!r:.80}."
                if not name
                else f"The dimension {name!r:.80} is given twice.",
                remedy="Give a name and a size, as seq=128, or a range, as seq=16..512.",
                path=("dim",),
            )
        dims[name] = int(size) if size.isdecimal() and len(size) < 19 else size
    return rest, {**fields, "dims": dims} if dims else dict(fields)


def _document_choices() -> tuple[str, ...]:
    from solver.importers.options import DOCUMENT_CHOICES  # with numpy, which most documents do without

    return DOCUMENT_CHOICES


def read_model_file(path: Path) -> ModelFile:
    """Read a file, or standard input. The suffix, or else the first bytes, tell a model from a document."""
    data = read_document(path)
    if path.suffix.lower() == ".json":
        return ModelFile(path, data, None)  # the usual case, for which no importer has to be loaded
    from solver.importers.registry import find_importer

    return ModelFile(path, data, find_importer(data, path))


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
    file = read_model_file(path)
    if file.importer is None:
        file.parsed()
        command = f"arenaplan plan {shlex.quote(str(path))} -o plan.json"
        raise DocumentError(f"{str(path)!r:.200} is a document already.", remedy=f"Plan it: {command}")
    if server is None:
        graph = file.graph(batch, choices)
    else:
        from service.cli.remote import Service

        graph = Service(server, as_json=as_json).import_model(file.name, file.data, batch, choices)
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


def print_operators(*, onnx: bool, target: str | None, as_json: bool) -> None:
    """Operators by family; or ONNX's that are imported, with those that ONNX itself defines by others.

    Of the target `c` those that have a kernel.
    """
    from solver.importers.operators import onnx_operators, own_operators

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


def _weights_apart(choices: Mapping[str, Any]) -> tuple[Path | None, Mapping[str, Any]]:
    """The file that --weights names, and the choices without it; the words of --weights stay among them."""
    weights = choices.get("weights")
    if weights in (None, "reference", "none"):
        return None, choices
    if not isinstance(weights, str | os.PathLike) or not Path(weights).is_file():
        raise OptionsError(
            f"There is no file {weights!r:.200}.",
            remedy="Give a .safetensors, .gguf or .npz file, reference (as the model says) or none (drawn).",
            path=("weights",),
        )
    return Path(weights), {name: value for name, value in choices.items() if name != "weights"}


def _with_weights(graph: TrainableGraph, weights: Path | None) -> TrainableGraph:
    if weights is None:
        return graph
    from solver.importers.weights import with_weights

    loaded = with_weights(graph, weights)
    print_notes(loaded.notes)
    return loaded.graph


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
