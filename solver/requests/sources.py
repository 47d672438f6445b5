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
from solver.errors import DocumentError, OptionsError, TooManyOperationsError
from solver.graph import TrainableGraph
from solver.plan import PlanOptions, SizeRange, split_ranges

if TYPE_CHECKING:
    from solver.importers.registry import Importer
    from solver.pipeline import BlockProgram
    from solver.verdict import Batches

__all__ = ["Model", "Source"]

_STANDARD_INPUT: Final = "-"

#: What choices may say of weights beside the name of a file.
_WORDS_OF_WEIGHTS: Final = (None, "reference", "none")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from.

    `content` is the bytes of a file, a parsed document, or a network. `name` is that of a network that has
    none of its own: that of the file, without a name. Files that a document or a model names are looked for
    beside `path`; without it none is opened. `choices` are those of
    `solver.importers.options.import_options`, of which documents take a few; their ``weights`` may be a file
    of first values. `format` is the format that a document must have, if it must have one. `network` is the
    graph of a parsed document at its own batch, if it was read before.
    """

    content: bytes | Mapping[str, Any] | TrainableGraph | BlockProgram
    name: str = ""
    path: Path | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None
    network: TrainableGraph | None = None

    def __post_init__(self) -> None:
        if not self.name:
            has_name = self.path is not None and str(self.path) != _STANDARD_INPUT
            object.__setattr__(self, "name", self.path.stem if self.path and has_name else "model")

    @property
    def label(self) -> str:
        """What messages call it: the name of its file, or its own."""
        return self.name if self.path is None else self.path.name

    @property
    def importer(self) -> Importer | None:
        """What reads the bytes of another tool's model; None for a document. The suffix, or else the first
        bytes, tell.
        """
        suffix = "" if self.path is None else self.path.suffix.lower()
        if suffix == ".json" or not isinstance(self.content, bytes):
            return None  # the usual case, for which no importer has to be loaded
        from solver.importers.registry import find_importer

        return find_importer(self.content[:64], Path(f"model{suffix}"))

    @property
    def without_weights(self) -> Source:
        """The source without a file of weights; words for weights stay among the choices."""
        if self.choices.get("weights") in _WORDS_OF_WEIGHTS:
            return self
        return replace(self, choices={k: word for k, word in self.choices.items() if k != "weights"})

    @property
    def is_network(self) -> bool:
        """Whether the content is a network, which has one size."""
        if isinstance(self.content, bytes | Mapping):
            return False
        from solver.training import BlockProgram  # which plans of graphs do without

        return isinstance(self.content, TrainableGraph | BlockProgram)

    def read(self, batch: int | None, *, max_operations: int | None = None) -> Model:
        """The network at a batch. Raises ArenaplanError. Cost: linear in the content."""
        if self.path is not None and self.choices.get("weights") not in _WORDS_OF_WEIGHTS:
            return self._with_weights(batch, max_operations)
        content, importer = self.content, self.importer
        if importer is not None:
            return self._imported(importer, batch, max_operations)
        if not isinstance(content, bytes | Mapping) and self.is_network:
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
        if self.choices:
            value = self._trained(value)
        folder = None if self.path is None else self.path.parent
        return Model(self, documents.load_graph(value, batch=batch, folder=folder, **limit), value)

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
        source = self.without_weights
        if source.choices or not isinstance(self.content, bytes):
            value = self.parsed()
            return to_bytes(source._trained(value) if source.choices else value)
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

    def sized(self, *, dims: bool) -> tuple[Source, tuple[SizeRange, ...]]:
        """The source without the ranges of sizes that its choices name, and these: another tool's model is
        read at the largest.

        The ``dim`` of a document are ranges as well, if `dims`. Raises OptionsError for a text that is none.
        """
        if self.importer is not None:
            choices, ranges = split_ranges(self.choices)
            return replace(self, choices=choices), ranges
        if not dims or "dim" not in self.choices:
            return self, ()
        sizes = dict[str, Any]()
        for text in self.choices["dim"]:
            name, _, size = str(text).rpartition("=")
            if not name or name in sizes:
                raise OptionsError(
                    f"The dimension is {text!r:.80}."
                    if not name
                    else f"The dimension {name!r:.80} is given twice.",
                    remedy="Give a name and a size, as seq=128, or a range, as seq=16..512.",
                    path=("dim",),
                )
            sizes[name] = int(size) if size.isdecimal() and len(size) < 19 else size
        try:
            ranges = documents.load_options({"dims": sizes}).ranges
        except DocumentError as error:
            raise OptionsError(error.message, remedy=error.remedy, path=error.path) from error
        choices = {name: word for name, word in self.choices.items() if name != "dim"}
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
        from solver.importers.options import DOCUMENT_CHOICES, training_fields

        self._check_no_choices({k: word for k, word in self.choices.items() if k not in DOCUMENT_CHOICES})
        return {**value, **training_fields(value, self.choices)} if isinstance(value, Mapping) else value

    def _imported(self, importer: Importer, batch: int | None, max_operations: int | None) -> Model:
        from solver.importers.options import import_options
        from solver.importers.registry import load_model

        choices = self.choices
        if not importer.chooses:
            self._check_no_choices({k: word for k, word in choices.items() if (k, word) != ("loss", "none")})
        chosen = import_options(choices, batch=batch)
        path = None if str(self.path) == _STANDARD_INPUT else self.path
        data = cast("bytes", self.content)
        imported = load_model(importer, data, options=chosen, path=path, name=self.name)
        if max_operations is not None and len(imported.graph.operations) > max_operations:
            count = len(imported.graph.operations)
            raise TooManyOperationsError(
                f"The model has {count:,} operations; {max_operations:,} are allowed.",
                remedy="Plan it with `arenaplan plan`.",
            )
        return Model(self, imported.graph, None, imported.notes)

    def _with_weights(self, batch: int | None, max_operations: int | None) -> Model:
        """The model with first values from the file that its choices name."""
        from solver.importers.weights import with_weights

        model = self.without_weights.read(batch, max_operations=max_operations)
        weights = self.choices["weights"]
        if not isinstance(weights, str | os.PathLike) or not Path(weights).is_file():
            raise OptionsError(
                f"There is no file {weights!r:.200}.",
                remedy="Give a .safetensors, .gguf or .npz file, reference (as the model says) or none"
                " (drawn).",
                path=("weights",),
            )
        loaded = with_weights(model.graph, Path(weights))
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
                lambda batch, words: replace(source, choices=words).read(batch).graph,
            )
        return None if self.document is None else batches_of(self.document, options)


def _nameless_file() -> BinaryIO:
    """A file in memory, as workers cannot write elsewhere; a temporary one where the system has none."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("model"), "wb")
    return cast("BinaryIO", tempfile.TemporaryFile())
