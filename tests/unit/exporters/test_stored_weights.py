"""Plans with stored weights, as people and other tools see them: the bytes are those of the storage."""

from __future__ import annotations

import json

import pytest

from solver.documents import dump_plan, load_plan
from solver.exporters import EXPORTERS
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.reports.arenas import frozen_storage_note, sharing
from tests.support.stored_graphs import adapted

#: By name: bytes, and how it is stored.
STORED = {
    "table": (9 * 2 * (4 + 4), "int4 in groups of 8"),
    "base": (16 * 2 * (2 + 1 + 8), "int8 in groups of 8 with zero points"),
    "filters": (4 * (2 + 1 + 12), "int4 in groups of 24 with zero points"),
}


@pytest.fixture(name="found", scope="module")
def _found() -> Plan:
    return load_plan(dump_plan(plan(adapted(), PlanOptions(in_place=True))))


def test_buffers_say_how_they_are_stored(found: Plan) -> None:
    buffers = {buffer.id: buffer for _, buffer in found.buffers()}
    for name, (size, words) in STORED.items():
        (value,) = buffers[name].values
        assert (value.nbytes, value.dtype, value.storage) == (size, "float32", words)
        assert value.elements == f"float32 stored as {words}"
    assert buffers["down"].values[0].elements == "float32"
    assert {buffer.id for buffer in buffers.values() if buffer.storage} == set(STORED)


def test_a_note_counts_the_bytes(found: Plan) -> None:
    size = sum(size for size, _ in STORED.values())
    whole = 4 * (9 * 16 + 16 * 16 + 4 * 24)
    assert frozen_storage_note(found) == (
        f"As they are stored, 3 frozen weights take {size:,} bytes instead of {whole:,}."
    )


def test_what_is_shared_is_counted_in_planned_bytes(found: Plan) -> None:
    shared = [(b, value) for _, b in found.buffers() for value in b.aliases[1:]]
    assert shared
    assert sharing(found).size == sum(-(-value.nbytes // b.alignment) * b.alignment for b, value in shared)


def test_every_exporter_writes_it(found: Plan) -> None:
    for exporter in EXPORTERS.values():
        assert exporter.dump(found)


def test_the_header_in_c_calls_packed_values_bytes(found: Plan) -> None:
    text = EXPORTERS["c-header"].dump(found).decode()
    assert "/* table: parameter, float32 9x16 stored as int4 in groups of 8, " in text
    assert "#define ADAPTED_BYTES_TABLE 144u" in text
    assert "TABLE lies where its elements may" not in text
    assert "DOWN lies where its elements may" in text


def test_a_report_names_the_storage(found: Plan) -> None:
    page = EXPORTERS["report"].dump(found).decode()
    for words in {words for _, words in STORED.values()}:
        assert f", stored as {words}" in page
    assert "float32 9×16, stored as int4 in groups of 8" in page


def test_rows_of_offsets_have_the_stored_bytes(found: Plan) -> None:
    rows = json.loads(EXPORTERS["offsets-json"].dump(found))
    rows = rows if isinstance(rows, list) else rows["values"]
    sizes = {row["value"]: row["bytes"] for row in rows}
    assert {name: sizes[name] for name in STORED} == {name: size for name, (size, _) in STORED.items()}
