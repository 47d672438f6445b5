"""A page is one file that fetches nothing and says what the plan says."""

from __future__ import annotations

import base64
import json
import re
from array import array
from typing import Any

import pytest

from solver import pipeline
from solver.exporters.html import dump_report
from solver.plan import (
    JoinedPlan,
    PlanOptions,
    PlanView,
    deployment_notes,
    entry_point_reports,
    persistent_rows,
)
from solver.reports.comparison import deployment_difference, difference
from tests.support.entry_points import small_deployment, trained_and_used
from tests.support.graphs import chain, convolutional
from tests.unit.reports.test_arenas import SMALL, A, arena, buffer, plan

TYPES = {"u1": "B", "u2": "H", "u4": "I", "f8": "d"}


def data_of(page: bytes) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.decode(), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def column(packed: dict[str, str]) -> list[int]:
    return [int(x) for x in array(TYPES[packed["t"]], base64.b64decode(packed["d"]))]


@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(target="onert"), PlanOptions(in_place=True)])
def test_the_tables_are_the_plans(options: PlanOptions) -> None:
    made: PlanView = pipeline.plan(convolutional(1), options)
    (found,) = data_of(dump_report(made))["plans"]
    buffers = [buffer for _, buffer in made.buffers()]
    assert column(found["buffers"]["offset"]) == [buffer.offset for buffer in buffers]
    assert column(found["buffers"]["size"]) == [buffer.size for buffer in buffers]
    assert column(found["buffers"]["end"]) == [buffer.lifespan.end for buffer in buffers]
    kinds = found["words"]["kinds"]
    assert [kinds[k] for k in column(found["buffers"]["kind"])] == [buffer.kind.word for buffer in buffers]
    labels = found["values"]["labels"]
    assert labels == [value.id for buffer in buffers for value in buffer.values]
    first = column(found["steps"]["first"])
    touched, access = column(found["steps"]["value"]), column(found["steps"]["access"])
    for t, step in enumerate(made.steps):
        rows = range(first[t], first[t + 1])
        assert {labels[touched[k]] for k in rows if access[k] in (0, 2)} == set(step.uses)
        assert {labels[touched[k]] for k in rows if access[k] in (1, 2)} == set(step.defs)
        assert {labels[touched[k]] for k in rows if access[k] == 3} == set(step.scratch)
    assert [space["bound"] for space in found["spaces"]] == [
        arena.certificate.lower_bound for arena in made.arenas
    ]


def test_notes_say_what_lifespans_count_and_what_is_proved_of_repetitions() -> None:
    beside = pipeline.plan(convolutional(1), PlanOptions(parallelism=2))
    (found,) = data_of(dump_report(beside))["plans"]
    assert found["spaces"][0]["note"].startswith("The lower bound is what is live at level ")
    graph = chain((16,) * 7, batch=64)
    least = pipeline.plan(graph).arena_bytes - 2048
    again = pipeline.plan(graph, PlanOptions(capacity=least, recompute=True))
    (found,) = data_of(dump_report(again))["plans"]
    assert found["spaces"][0]["note"].startswith("The lower bound is what is live at step ")
    assert any(" again, +" in note and "proved" in note for note in found["notes"])


def test_columns_are_as_narrow_as_they_may_be() -> None:
    wide = plan(
        2, arena(1 << 40, buffer("small", A, 0, 200, 0, 1), buffer("large", A, 1 << 33, 1 << 34, 0, 2))
    )
    (found,) = data_of(dump_report(wide))["plans"]
    assert found["buffers"]["start"]["t"] == "u1"
    assert found["buffers"]["offset"]["t"] == "f8"
    assert column(found["buffers"]["size"]) == [200, 1 << 34]


def test_names_cannot_end_the_script() -> None:
    evil = "</script><script>alert(1)</script><!--"
    page = dump_report(plan(1, arena(4, buffer(evil, A, 0, 4, 0, 1))))
    assert data_of(page)["plans"][0]["values"]["labels"] == [evil]
    assert page.decode().count("</script>") == 2


def test_the_policy_allows_what_is_there_and_nothing_else() -> None:
    text = dump_report(SMALL).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert re.findall(r"(?:https?:)?//[a-z]", re.sub(r"http://www\.w3\.org|^\s*//.*$", "", text)) == []


def test_equal_plans_give_equal_bytes() -> None:
    first, second = (pipeline.plan(chain((3, 2), 1)) for _ in range(2))
    assert dump_report(first) == dump_report(second)


def test_a_change() -> None:
    old = pipeline.plan(convolutional(1))
    new = pipeline.plan(convolutional(1), PlanOptions(in_place=True))
    data = data_of(dump_report(new, old))
    assert [one["digest"] for one in data["plans"]] == [new.digest, old.digest]
    found = difference(old, new)
    assert (data["change"]["before"], data["change"]["after"]) == (found.before, found.after)
    assert data["change"]["groups"]["kind"] == [[c.name, c.before, c.after] for c in found.kinds]


def test_entry_points_together_and_one_by_one() -> None:
    """The first plan is that of all runs; persistent buffers are of one kind in each."""
    deployment = small_deployment()
    data = data_of(dump_report(deployment))
    assert data["shown"] == [[0, "All"], [1, "train"], [2, "infer"], [3, "evaluate"]]
    assert data["change"] is None
    joined, *plans = data["plans"]
    assert joined["digest"] == deployment.digest
    assert [one["digest"] for one in plans] == [e.plan.digest for e in deployment.entry_points]
    starts = JoinedPlan(deployment).starts
    assert joined["marks"] == [
        [start, name] for start, (_, name) in zip(starts, data["shown"][1:], strict=False)
    ]
    offsets = sorted(row.offset for row in persistent_rows(deployment))
    for one in data["plans"]:
        persistent = one["words"]["kinds"].index("persistent")
        kinds, places = column(one["buffers"]["kind"]), column(one["buffers"]["offset"])
        assert sorted(p for k, p in zip(kinds, places, strict=True) if k == persistent) == offsets
    assert "persistent" in joined["words"]["kinds"]
    rows = data["entry_points"]["rows"]
    assert [(row["name"], row["arena_bytes"], row["added_bytes"]) for row in rows] == [
        (row.name, row.arena_bytes, row.added_bytes) for row in entry_point_reports(deployment)
    ]
    assert data["entry_points"]["notes"] == [*deployment_notes(deployment)]


def test_a_change_of_entry_points() -> None:
    old, new = small_deployment(), trained_and_used(chain((8, 3, 4), 6, optimizer="Adam"), "train", "infer")
    data = data_of(dump_report(new, old))
    assert data["shown"] == [[1, "Before"], [0, "After"], [2, "train"], [3, "infer"]]
    assert [one["digest"] for one in data["plans"][:2]] == [new.digest, old.digest]
    found = deployment_difference(old, new)
    assert [name for name, _, _ in data["change"]["entry_points"]] == ["train", "infer", "evaluate"]
    assert len(data["change"]["moves"]) == len(found.moves) > 0
    assert data["change"]["after"] == new.arena_bytes
    mixed = data_of(dump_report(new["train"].plan, old))
    assert mixed["entry_points"] is None
    assert mixed["change"]["before"] == old.arena_bytes
