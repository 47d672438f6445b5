"""Which files can be imported: a row a format, found by suffix and by the first bytes.

A row names what its importer needs beyond the project's own packages. The importer itself is loaded when a
file of its format is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from solver.errors import DocumentError
from solver.importers.options import Imported, ImportOptions

__all__ = ["IMPORTERS", "Importer", "find_importer", "load_model", "unknown_format"]

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
    return replace(imported, notes=(*imported.notes, imported.summary))


def unknown_format(name: str) -> DocumentError:
    """For bytes that are neither a document nor of a format that is known."""
    known = ", ".join(f"{importer.title} ({', '.join(importer.suffixes)})" for importer in IMPORTERS)
    return DocumentError(
        f"{name!r:.200} is of no format that is known here: it is not JSON, either.",
        remedy=f"Give a graph or program document (.json), or a model: {known}. Other models can be exported"
        " to ONNX, as by torch.onnx.export; then `arenaplan plan model.onnx --loss cross-entropy`.",
    )
