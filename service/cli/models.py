"""Reading what a command is given to plan: a graph or program document, or an nntrainer model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from solver import documents
from solver.pipeline import TrainableGraph

if TYPE_CHECKING:
    from solver.pipeline import BlockProgram

__all__ = ["read_graph", "read_model"]


def read_model(document: bytes, path: Path, batch: int | None) -> TrainableGraph | BlockProgram:
    """The extension tells a model file, the format inside a program from a graph."""
    if path.suffix.lower() == ".ini":
        return read_graph(document, path, batch)
    value = documents.parse_json(document)
    if isinstance(value, dict) and value.get("format") == documents.PROGRAM_FORMAT:
        return documents.load_program(value)
    return documents.load_graph(value, batch=batch)


def read_graph(document: bytes, path: Path, batch: int | None) -> TrainableGraph:
    if path.suffix.lower() != ".ini":
        return documents.load_graph(document, batch=batch)
    from solver.importers.nntrainer_ini import load_nntrainer_ini

    return load_nntrainer_ini(document, batch=batch, name=path.stem)
