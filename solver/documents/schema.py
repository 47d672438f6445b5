"""The JSON Schemas of all documents: committed files, generated from the models.

``python -m solver.documents.schema`` writes them anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from solver.documents.buffers import BuffersDocument
from solver.documents.costs import CostsDocument
from solver.documents.deployment import DeploymentDocument
from solver.documents.fields import DocumentModel
from solver.documents.graph import GraphDocument
from solver.documents.layout import LayoutDocument
from solver.documents.options import LayoutOptionsDocument, OptionsDocument
from solver.documents.plan import PlanDocument
from solver.documents.program import ProgramDocument
from solver.documents.report import ReportDocument
from solver.documents.rows import RowSchemas
from solver.documents.tradeoff import TradeOffDocument
from solver.documents.verdict import VerdictDocument

__all__ = ["generate", "text", "write"]

_FOLDER = Path(__file__).with_name("schemas")

_MODELS: Mapping[str, type[DocumentModel]] = MappingProxyType(
    {
        "buffers": BuffersDocument,
        "costs": CostsDocument,
        "deployment": DeploymentDocument,
        "graph": GraphDocument,
        "layout": LayoutDocument,
        "layout_options": LayoutOptionsDocument,
        "options": OptionsDocument,
        "plan": PlanDocument,
        "program": ProgramDocument,
        "report": ReportDocument,
        "tradeoff": TradeOffDocument,
        "verdict": VerdictDocument,
    }
)


def generate(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a kind of document, from its model."""
    schema = _MODELS[name].model_json_schema(schema_generator=RowSchemas)
    if name in ("options", "layout_options"):
        schema["required"] = [key for key in schema["required"] if key not in ("format", "version")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def text(name: str) -> str:
    """The committed text of a schema."""
    return json.dumps(generate(name), indent=2, sort_keys=True) + "\n"


def write(folder: Path = _FOLDER) -> None:
    """Write every schema to its file."""
    for name in _MODELS:
        (folder / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    write()
