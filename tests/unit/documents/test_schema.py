"""The committed JSON Schemas are those of the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import solver.documents
from solver.documents import SCHEMAS
from solver.documents.fields import DTypeName, StoredDTypeName
from solver.documents.schema import generate, text, write
from solver.graph import DType
from solver.layout.model.problem import Proof, Status
from solver.program import Access, EntryKind, Kind, Phase

FOLDER = Path(solver.documents.__file__).with_name("schemas")
KINDS = (
    "buffers",
    "costs",
    "deployment",
    "graph",
    "layout",
    "layout_options",
    "options",
    "plan",
    "program",
    "report",
    "tradeoff",
    "verdict",
)


@pytest.mark.parametrize("kind", KINDS)
def test_committed_schema_is_current(kind: str) -> None:
    """`python -m solver.documents.schema` writes them anew."""
    assert (FOLDER / f"{kind}.json").read_text(encoding="utf-8") == text(kind)
    assert SCHEMAS[kind] == generate(kind)


def test_all_kinds() -> None:
    assert tuple(SCHEMAS) == KINDS


def test_write(tmp_path: Path) -> None:
    write(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == set(KINDS)


def test_nothing_unknown_is_allowed() -> None:
    for schema in SCHEMAS.values():
        assert schema["additionalProperties"] is False
        assert {"format", "version"} <= set(schema["properties"])
        for name, definition in schema.get("$defs", {}).items():
            numbers = {"type": ["number", "boolean"]}
            if definition["type"] == "object":
                assert definition["additionalProperties"] == (
                    numbers if name == "OptimizerDocument" else False
                )
            elif definition["type"] == "array":
                assert definition["minItems"] == definition["maxItems"] == len(definition["x-columns"])


def test_every_row_of_a_plan_is_described() -> None:
    rows = {name: row for name, row in SCHEMAS["plan"]["$defs"].items() if row["type"] == "array"}
    assert {"StepOfPlan", "ValueOfPlan", "SlotOfPlan", "FloatsOfPlan"} <= set(rows)
    for name, row in rows.items():
        assert row["description"]
        assert not row["description"].startswith(f"{name}("), name
    assert rows["StepOfPlan"]["x-columns"][0]["description"] == "A position in `operations`."


def choices(schema: dict[str, Any], definition: str, name: str) -> set[str]:
    found = schema["$defs"][definition]["properties"][name]
    return set(found["enum"] if "enum" in found else found["anyOf"][0]["enum"])


def test_lists_of_choices_are_those_of_the_core() -> None:
    plan = SCHEMAS["plan"]
    for words in (Access, EntryKind, Kind, Phase):
        assert plan["$defs"][words.__name__]["enum"] == [word.value for word in words]
    assert choices(plan, "CertificateOfPlan", "status") == {status.value for status in Status}
    assert choices(plan, "CertificateOfPlan", "proof") == {proof.value for proof in Proof}
    assert choices(SCHEMAS["layout"], "CertificateOfPlan", "status") == {status.value for status in Status}
    assert set(DTypeName.__args__) == {dtype.value for dtype in DType}  # type: ignore[attr-defined]  # a Literal
    stored = {dtype.value for dtype in DType.__members__.values()}
    assert set(StoredDTypeName.__args__) == stored  # type: ignore[attr-defined]


def test_optional_header_of_options() -> None:
    for name in ("options", "layout_options"):
        assert SCHEMAS[name].get("required", []) == []
    assert {"format", "version"} <= set(SCHEMAS["graph"]["required"])
