"""Which files can be imported: a row a format, found by suffix and by the first bytes.

A row names what its importer needs beyond the project's own packages. The importer itself is loaded when a
file of its format is read.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from solver.errors import BatchError, DocumentError
from solver.graph import Role, TrainableGraph
from solver.importers.options import Imported, ImportOptions

__all__ = [
    "IMPORTERS",
    "Importer",
    "find_importer",
    "load_model",
    "onnx_operators",
    "own_operators",
    "unknown_format",
]

#: Bytes at the beginning of a file that tell formats apart.
_HEAD_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Importer:
    """One format. `load` is ``module:function``; it takes the bytes, and options, path and name by keyword.

    `sniff` says of the first bytes whether they may be of this format; `needs` is a module that `install`
    brings. Without `chooses`, the file says itself how it is trained.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    media_types: tuple[str, ...]
    load: str
    sniff: Callable[[bytes], bool] = lambda head: False
    needs: str = ""
    install: str = ""
    chooses: bool = True

    @property
    def installed(self) -> bool:
        """Whether the module that it needs is there; it is loaded by that."""
        try:
            if self.needs:
                importlib.import_module(self.needs)
        except ImportError:
            return False
        return True


def _is_onnx(head: bytes) -> bool:
    """A protobuf whose first field is ir_version, a small number, and whose second one a model may have."""
    return (
        len(head) > 2
        and head[0] == 0x08
        and 0 < head[1] < 0x40
        and head[2] in b"\x12\x1a\x22\x28\x32\x3a\x42"
    )


IMPORTERS: Final[tuple[Importer, ...]] = (
    Importer(
        name="onnx",
        title="ONNX",
        suffixes=(".onnx",),
        media_types=("application/onnx", "application/vnd.onnx"),
        load="solver.importers.onnx:load_onnx",
        sniff=_is_onnx,
        needs="onnx",
        install="pip install 'onnx>=1.19'",
    ),
    Importer(
        name="circle",
        title="Circle, TensorFlow Lite",
        suffixes=(".circle", ".tflite"),
        media_types=("application/vnd.circle", "application/vnd.tflite"),
        load="solver.importers.circle:load_circle_model",
        sniff=lambda head: head[4:8] in (b"CIR0", b"TFL3"),
        needs="circle_schema",
        install="pip install 'circle-schema>=0.10' 'flatbuffers>=24'",
    ),
    Importer(
        name="nntrainer",
        title="nntrainer's model file",
        suffixes=(".ini",),
        media_types=(),
        load="solver.importers.nntrainer:load_nntrainer",
        chooses=False,
    ),
)


def find_importer(head: bytes, path: Path | None = None) -> Importer | None:
    """By the suffix, else by the first bytes; None for a document of this project, or an unknown format."""
    suffix = "" if path is None else path.suffix.lower()
    by_suffix = next((importer for importer in IMPORTERS if suffix in importer.suffixes), None)
    if by_suffix is not None or suffix == ".json":
        return by_suffix
    return next((importer for importer in IMPORTERS if importer.sniff(head[:_HEAD_BYTES])), None)


def load_model(
    importer: Importer, data: bytes | memoryview, *, options: ImportOptions, path: Path | None, name: str
) -> Imported:
    """The graph of a file, with the summary of what is trained as the last note.

    Raises what its importer raises, and DocumentError for a missing package.
    """
    module, _, function = importer.load.partition(":")
    if not importer.installed:
        raise DocumentError(
            f"{importer.title} is read with the package {importer.needs!r}, which is not installed.",
            remedy=importer.install,
        )
    load: Callable[..., Imported] = getattr(importlib.import_module(module), function)
    imported = load(data, options=options, path=path, name=name).frozen(options.frozen)
    model = _Model(importer.name, path or data, name, options, _shapes(imported.graph))
    graph = replace(imported.graph, resizable=model) if model.sizes else imported.graph
    return replace(imported, graph=graph, notes=(*imported.notes, imported.summary))


#: The name of the first axis of the inputs, where no dimension is called so.
_BATCH: Final = "batch"


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that a graph was imported from, which can be imported with other sizes.

    Nothing in a file says which axes count examples: those that change with the size that is asked for.
    """

    importer: str
    source: Path | bytes | memoryview
    name: str
    options: ImportOptions
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def sizes(self) -> Mapping[str, int]:
        batch = self.options.batch
        if batch is None and not self.options.dims:
            batch = next((shape[0] for shape in self.shapes.values() if shape), None)
        return {**({} if batch is None else {_BATCH: batch}), **self.options.dims}

    @property
    def axes(self) -> Mapping[str, tuple[str | None, ...]]:
        """Found by importing the model at another size of each dimension."""
        names = {label: list[str | None](itertools.repeat(None, len(s))) for label, s in self.shapes.items()}
        for name, size in self.sizes.items():
            other = size - 1 if size > 1 else size + 1
            for label, shape in _shapes(self.at({**self.sizes, name: other})).items():
                for axis, (ours, theirs) in enumerate(zip(self.shapes[label], shape, strict=True)):
                    if (ours, theirs) == (size, other):
                        names[label][axis] = name
        return {label: tuple(axes) for label, axes in names.items()}

    def at(self, sizes: Mapping[str, int]) -> TrainableGraph:
        importer = next(each for each in IMPORTERS if each.name == self.importer)
        data = self.source.read_bytes() if isinstance(self.source, Path) else self.source
        path = self.source if isinstance(self.source, Path) else None
        dims = {name: sizes[name] for name in self.options.dims}
        batch = self.options.batch if _BATCH in dims else sizes.get(_BATCH)
        options = replace(self.options, dims=dims, batch=batch)
        graph = load_model(importer, data, options=options, path=path, name=self.name).graph
        if sizes != self.sizes and _shapes(graph) == self.shapes:
            asked = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise BatchError(
                f"The model {self.name!r:.80} has the same inputs at {asked}.",
                remedy="Export it with that dimension open.",
            )
        return graph


def _shapes(graph: TrainableGraph) -> dict[str, tuple[int, ...]]:
    fed = (operand for operand in graph.operands.values() if operand.role in (Role.INPUT, Role.LABEL))
    return {operand.id: operand.shape for operand in fed}


def unknown_format(name: str) -> DocumentError:
    """For bytes that are neither a document nor of a format that is known."""
    known = ", ".join(f"{importer.title} ({', '.join(importer.suffixes)})" for importer in IMPORTERS)
    return DocumentError(
        f"{name!r:.200} is of no format that is known here: it is not JSON, either.",
        remedy=f"Give a graph or program document (.json), or a model: {known}. Other models can be exported"
        " to ONNX, as by torch.onnx.export; then `arenaplan plan model.onnx --loss cross-entropy`.",
    )


def own_operators() -> dict[str, list[str]]:
    """Names by family, in the families' order; sequences are unrolled into cells."""
    from solver.graph.ops import FAMILIES, SEQUENCES

    return {**{family: list(names) for family, names in FAMILIES.items()}, "sequences": sorted(SEQUENCES)}


def onnx_operators() -> dict[str, list[str]]:
    """The operators of ONNX that can be imported, by how.

    `translated` ones become operations; `expanded` ones are defined by ONNX itself through others, which
    have to be translated; `computed` ones are taken where all that they are given is known when the model is
    imported. The last two need the package onnx.
    """
    from solver.importers.onnx.evaluate import can_evaluate
    from solver.importers.onnx.lowering import LOWERINGS
    from solver.importers.onnx.walk import expanded_by_onnx

    translated = sorted({*LOWERINGS, "Constant", "If", "Loop", "Scan", "Shape", "Size"})
    names, expanded = expanded_by_onnx()
    rest = set(names) - set(translated)
    return {
        "translated": translated,
        "expanded": sorted(rest & set(expanded)),
        "computed": sorted(name for name in rest - set(expanded) if can_evaluate(name)),
    }
