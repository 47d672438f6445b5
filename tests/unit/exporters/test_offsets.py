"""Offsets of a plan as rows, for runtimes that want addresses alone."""

from __future__ import annotations

import csv
import io
import json

from clients.results import PlanResult
from solver.documents import dump_plan
from solver.exporters import dump_offsets, offset_rows
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import lives
from tests.support.graphs import convolutional


def test_every_value_has_a_row_with_its_own_place_and_life() -> None:
    made = plan(convolutional(), PlanOptions(in_place=True))
    program, spans = made.program, lives(made.program)
    assert program.aliases
    rows = {row["value"]: row for row in offset_rows(made)}
    assert rows.keys() == program.by_label.keys()
    for label, number in program.by_label.items():
        row, type_ = rows[label], program.values[number].type
        assert (row["offset"], row["bytes"]) == (made.offsets[number], type_.nbytes)
        assert (row["start"], row["end"]) == (spans[number].start, spans[number].end)
        assert (tuple(row["shape"]), row["dtype"]) == (type_.shape, type_.dtype.value)


def test_csv_and_json_say_the_same() -> None:
    made = plan(convolutional())
    rows = offset_rows(made)
    assert json.loads(dump_offsets(made, as_csv=False)) == rows
    table = list(csv.DictReader(io.StringIO(dump_offsets(made, as_csv=True).decode(), newline="")))
    assert [row["value"] for row in table] == [row["value"] for row in rows]
    assert [int(row["offset"]) for row in table] == [row["offset"] for row in rows]
    assert table[0]["shape"] == "x".join(map(str, rows[0]["shape"]))


def test_the_client_reads_the_same_places_from_the_document() -> None:
    made = plan(convolutional(), PlanOptions(target="onert"))
    found = PlanResult.of(json.loads(dump_plan(made))).offsets
    assert found == {row["value"]: (row["arena"], row["offset"]) for row in offset_rows(made)}
