"""Where a model comes from: a file of bytes, a parsed document, or a network; and what is read of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from solver import documents
from solver.canonical import to_bytes
from solver.errors import OptionsError, TooManyOperationsError
from solver.graph import TrainableGraph
from solver.plan import PlanOptions, SizeRange, split_ranges

if TYPE_CHECKING:
    from solver.importers.registry import Importer
    from solver.pipeline import BlockProgram
    from solver.verdict import Batches

__all__ = ["Model", "Source", "source_of_file"]

_STANDARD_INPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from.

    `content` is the bytes of a file, a parsed document, or a network. `importer` reads the bytes of another
    tool's model; a document has none. `name` is that of a network that has none of its own. Files that a
    document or a model names are looked for beside `path`; without it none is opened. `choices` are those of
    `solver.importers.options.import_options`, of which documents take a few; `weights` is a file of first
    values. `format` is the format that a document must have, if it must have one. `network` is the graph of a
    parsed document at its own batch, if it was read before.
    """

    content: bytes | Mapping[str, Any] | TrainableGraph | BlockProgram
    name: str = "model"
    importer: Importer | None = None
    path: Path | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    weights: Any = None
    format: str | None = None
    network: TrainableGraph | None = None

    @property
    def label(self) -> str:
        """What messages call it: the name of its file, or its own."""
        return self.name if self.path is None else self.path.name

    @property
    def is_network(self) -> bool:
        """Whether the content is a network, which has one size."""
        return not isinstance(self.content, bytes | Mapping)

    def read(self, batch: int | None, *, max_operations: int | None = None) -> Model:
        """The network at a batch. Raises ArenaplanError. Cost: linear in the content."""
        if self.importer is not None:
            return self._imported(batch, self.choices, max_operations)
        content = self.content
        if not isinstance(content, bytes | Mapping):
            if batch is not None and isinstance(content, TrainableGraph):
                raise OptionsError(
                    f"A batch of {batch} is asked for, but the shapes of a graph are concrete.",
                    remedy="Give the batch where the graph is loaded or captured, or a range as 1..32 here.",
                    path=("batch",),
                )
            return Model(self, content)
        if self.network is not None and batch is None:
            return Model(self, self.network, cast("Mapping[str, Any]", content))
        value = self.parsed()
        limit: dict[str, Any] = {} if max_operations is None else {"max_operations": max_operations}
        format_ = self.format or (value.get("format") if isinstance(value, Mapping) else None)
        if format_ == documents.PROGRAM_FORMAT:
            self._check_no_choices(self.choices)
            return Model(self, documents.load_program(value, **limit))
        value = self._trained(value)
        folder = None if self.path is None else self.path.parent
        return self._with_weights(
            Model(self, documents.load_graph(value, batch=batch, folder=folder, **limit), value)
        )

    def parsed(self) -> Any:
        """The JSON value of a document. Raises DocumentError; for binary data, one that names the formats."""
        data = self.content
        if not isinstance(data, bytes):
            return data
        if self.path is not None and self.path.suffix.lower() != ".json":
            from solver.importers.registry import unknown_format

            if b"\0" in data[:1024]:
                raise unknown_format(self.path.name)
            try:
                data[:4096].decode()
            except UnicodeDecodeError as error:
                if error.start < len(data[:4096]) - 4:  # not a character that the cut has divided
                    raise unknown_format(self.path.name) from None
        return documents.parse_json(data)

    def document(self) -> bytes | None:
        """The text of a document, with what choices replace of it; None for another tool's model, and for a
        network."""
        if self.importer is not None or self.is_network:
            return None
        if self.choices or not isinstance(self.content, bytes):
            return to_bytes(self._trained(self.parsed()))
        return self.content

    @contextlib.contextmanager
    def with_values(self, graph: TrainableGraph) -> Iterator[TrainableGraph]:
        """A graph of this source with its first values where they can be read, while the context lasts.

        Those of a model without a path lie in its bytes, which a file in memory has meanwhile.
        """
        if self.importer is None or self.path is not None:
            yield graph
            return
        with _nameless_file() as file:  # gone with this process
            file.write(cast("bytes", self.content))
            file.flush()
            place = f"/dev/fd/{file.fileno()}"
            operands = dict(graph.operands)
            for operand in graph.operands.values():
                initializer = operand.initializer
                if initializer is not None and initializer.file is not None:
                    here = replace(initializer, file=replace(initializer.file, path=place))
                    operands[operand.id] = replace(operand, initializer=here)
            yield graph.with_graph(operands=operands)

    def sized(self, fields: Mapping[str, Any]) -> tuple[Source, dict[str, Any]]:
        """The source and the fields of an options document, with the ``dim`` of a document among the fields.

        Raises OptionsError for a text that is no name and size.
        """
        if self.importer is not None or "dim" not in self.choices:
            return self, dict(fields)
        dims = dict[str, Any]()
        for text in self.choices["dim"]:
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
        choices = {name: word for name, word in self.choices.items() if name != "dim"}
        return replace(self, choices=choices), {**fields, "dims": dims} if dims else dict(fields)

    def ranged(self) -> tuple[Source, tuple[SizeRange, ...]]:
        """The source, another tool's model at its largest sizes, and the ranges that its choices name."""
        choices, ranges = split_ranges(self.choices)
        return replace(self, choices=choices), ranges

    def at_first(self, name: str, batch: int | None) -> tuple[Source, int | None]:
        """The source and a batch with which another tool's model can be read although it leaves the
        dimension `name` open."""
        if self.importer is None:
            return self, batch
        dims = self.choices.get("dim", ())
        if name == "batch" and not dims:
            return self, batch or 1
        if any(str(text).startswith(f"{name}=") for text in dims):
            return self, batch
        return replace(self, choices={**self.choices, "dim": [*dims, f"{name}=1"]}), batch

    def _trained(self, value: Any) -> Any:
        """The value of a graph document, trained as choices say."""
        if not self.choices:
            return value
        from solver.importers.options import DOCUMENT_CHOICES, training_fields

        self._check_no_choices({k: word for k, word in self.choices.items() if k not in DOCUMENT_CHOICES})
        return {**value, **training_fields(value, self.choices)} if isinstance(value, Mapping) else value

    def _imported(self, batch: int | None, choices: Mapping[str, Any], max_operations: int | None) -> Model:
        from solver.importers.options import import_options
        from solver.importers.registry import load_model

        assert self.importer is not None
        if not self.importer.chooses:
            self._check_no_choices({k: word for k, word in choices.items() if (k, word) != ("loss", "none")})
        chosen = import_options(choices, batch=batch)
        path = None if str(self.path) == _STANDARD_INPUT else self.path
        data = cast("bytes", self.content)
        imported = load_model(self.importer, data, options=chosen, path=path, name=self.name)
        if max_operations is not None and len(imported.graph.operations) > max_operations:
            count = len(imported.graph.operations)
            raise TooManyOperationsError(
                f"The model has {count:,} operations; {max_operations:,} are allowed.",
                remedy="Plan it with `arenaplan plan`.",
            )
        return self._with_weights(Model(self, imported.graph, None, imported.notes))

    def _with_weights(self, model: Model) -> Model:
        if self.weights is None:
            return model
        if not isinstance(self.weights, str | os.PathLike) or not Path(self.weights).is_file():
            raise OptionsError(
                f"There is no file {self.weights!r:.200}.",
                remedy="Give a .safetensors, .gguf or .npz file, reference (as the model says) or none"
                " (drawn).",
                path=("weights",),
            )
        from solver.importers.weights import with_weights

        loaded = with_weights(model.graph, Path(self.weights))
        return replace(model, network=loaded.graph, notes=(*model.notes, *loaded.notes))

    def _check_no_choices(self, choices: Mapping[str, Any]) -> None:
        for name in choices:
            option = "output_name" if name == "output" else name
            raise OptionsError(
                f"{str(self.path or self.name)!r:.200} says itself how it is trained.",
                remedy=f"Leave out --{option.replace('_', '-')}, which is for models of other tools, as"
                " ONNX's.",
                path=(option,),
            )


@dataclass(frozen=True, slots=True)
class Model:
    """A network that was read, its document if it stands in one, and notes on its import, a sentence each."""

    source: Source
    network: TrainableGraph | BlockProgram
    document: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def graph(self) -> TrainableGraph:
        """The network, which is a graph. Raises OptionsError for a program."""
        if isinstance(self.network, TrainableGraph):
            return self.network
        raise OptionsError(
            f"{self.network.name!r} is a program of explicit operations, which has neither dimensions nor"
            " layers.",
            remedy="Give a graph; or ask for a plan, a verdict or a curve, which programs have.",
        )

    def batches(self, options: PlanOptions) -> Batches | None:
        """How the graph is read at other batches; None if its source has one batch."""
        from solver.verdict import batches_of, batches_of_model

        source = self.source
        if not isinstance(self.network, TrainableGraph):
            return None
        if source.importer is not None:
            return batches_of_model(
                self.network,
                source.choices,
                lambda batch, words: source._imported(batch, words, None).graph,
            )
        return None if self.document is None else batches_of(self.document, options)


def _nameless_file() -> BinaryIO:
    """A file in memory, as workers cannot write elsewhere; a temporary one where the system has none."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("model"), "wb")
    return cast("BinaryIO", tempfile.TemporaryFile())


def source_of_file(path: Path, data: bytes, choices: Mapping[str, Any] | None = None) -> Source:
    """The source of a file's bytes. The suffix, or else the first bytes, tell a model from a document.

    ``weights`` among the choices may be a file of weights.
    """
    name = "model" if str(path) == _STANDARD_INPUT else path.stem
    importer = None
    if path.suffix.lower() != ".json":  # the usual case, for which no importer has to be loaded
        from solver.importers.registry import find_importer

        importer = find_importer(data, path)
    words = dict(choices or {})
    weights = words.get("weights")
    if weights in (None, "reference", "none"):
        return Source(data, name, importer, path, words)
    del words["weights"]
    return Source(data, name, importer, path, words, weights)
