"""Plan documents of version 1: people and allocators go on reading them, training and proving do not.

The last version that wrote such documents wrote these: `plain.json` for one step at a time, `levels.json` for
two workers, in place, rewritten.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from solver.documents import load_plan, load_plan_tables
from solver.errors import DocumentError, PlanError
from solver.layout import Proof
from solver.plan import PlanOptions, PlanTables, recycling
from solver.plan.levels import level_report
from solver.plan.report import memory_map, report, sharing
from solver.program import Kind, Lifetime

FOLDER = Path(__file__).with_name("version1")


def text(name: str) -> bytes:
    return (FOLDER / f"{name}.json").read_bytes()


@pytest.fixture
def plain() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text("plain"))
    return found


@pytest.fixture
def levels() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text("levels"))
    return found


def test_tables(plain: dict[str, Any]) -> None:
    found = load_plan_tables(text("plain"))
    assert (found.arena_bytes, found.lower_bound, found.gap_bytes) == (896, 896, 0)
    assert (found.graph, found.graph_digest) == (plain["graph"], plain["graph_digest"])
    assert (found.digest, found.deterministic) == (plain["digest"], True)
    assert found.options == PlanOptions()
    assert [step.id for step in found.steps] == [step["id"] for step in plain["steps"]]
    assert found.times == tuple(range(12))
    offsets = {buffer.id: buffer.offset for _, buffer in found.buffers()}
    assert offsets == {buffer["id"]: buffer["offset"] for buffer in plain["arenas"][0]["buffers"]}
    assert found.arenas[0].certificate.proof is Proof.MAX_LOAD


def test_workers_waves_and_tenants_have_other_names_today(levels: dict[str, Any]) -> None:
    found = load_plan_tables(text("levels"))
    assert found.options == PlanOptions(parallelism=2, in_place=True, rewrite=True)
    assert list(found.times) == [step["wave"] for step in levels["steps"]]
    assert len(found.replacements) == len(levels["replacements"]) == 9
    assert found.replacements[0].rule == levels["replacements"][0]["rule"]
    written = [b["tenants"] for b in levels["arenas"][0]["buffers"] if "tenants" in b]
    aliases = [buffer.aliases for _, buffer in found.buffers() if buffer.aliases]
    assert [[alias.id for alias in each] for each in aliases] == [[t["id"] for t in each] for each in written]
    assert [each[1].source for each in aliases] == [each[1]["source"] for each in written]


@pytest.mark.parametrize("name", ["plain", "levels"])
def test_reports(name: str) -> None:
    found: PlanTables = load_plan_tables(text(name))
    (arena,) = report(found).arenas
    assert (arena.size, arena.live_bytes) == (found.arena_bytes, found.lower_bound)
    assert {row.kind for row in report(found).kinds} > {Kind.INPUT, Kind.PARAMETER, Kind.GRADIENT}
    assert max(step.live_bytes for step in recycling(found).steps) == found.lower_bound
    assert level_report(found).parallelism == found.options.parallelism
    assert memory_map(found.arenas[0], found.duration, columns=20, rows=10).rows
    assert any(buffer.lifetime is Lifetime.MAX for _, buffer in found.buffers())
    assert sharing(found).values == sum(len(b.aliases[1:]) for _, b in found.buffers())


@pytest.mark.parametrize("name", ["plain", "levels"])
def test_it_is_no_plan_to_train_in(name: str) -> None:
    with pytest.raises(PlanError, match="version 1, which does not hold the program") as caught:
        load_plan(text(name))
    assert caught.value.pointer == "/version"
    assert "Plan again" in (caught.value.remedy or "")


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [place for key, child in items for place in places(child, (*path, key))]
    return [path]


def test_every_change_of_content_is_refused(levels: dict[str, Any]) -> None:
    for path in places(levels):
        other = copy.deepcopy(levels)
        target: Any = other
        for part in path[:-1]:
            target = target[part]
        value = target[path[-1]]
        other_value = value + 1 if isinstance(value, int) else f"{value}x"
        target[path[-1]] = not value if isinstance(value, bool) else other_value
        with pytest.raises((PlanError, DocumentError)) as caught:
            load_plan_tables(other)
        assert caught.value.remedy


@pytest.mark.parametrize("name", ["arena_bytes", "lower_bound", "gap_bytes"])
def test_wrong_sum(plain: dict[str, Any], name: str) -> None:
    plain[name] += 1
    with pytest.raises(PlanError, match=f"says {name}") as caught:
        load_plan_tables(plain)
    assert caught.value.pointer == f"/{name}"


@pytest.mark.parametrize(
    ("field", "value", "error", "word"),
    [
        ("kind", "weights", DocumentError, "'parameter'"),
        ("lifetime", "forever", DocumentError, "'max'"),
        ("dtype", "float16", DocumentError, "'float32'"),
        ("size", 2**63, PlanError, "at most"),
        ("offset", 1.0, DocumentError, "an integer"),
        ("end", 0, PlanError, "half-open"),
        ("start", -1, PlanError, "half-open"),
        ("shape", 3, DocumentError, "a list"),
        ("id", "a\u001b[2J", DocumentError, "control characters"),
    ],
)
def test_bad_buffer(plain: dict[str, Any], field: str, value: Any, error: type[Exception], word: str) -> None:
    plain["arenas"][0]["buffers"][1][field] = value
    with pytest.raises((DocumentError, PlanError)) as caught:
        load_plan_tables(plain)
    assert type(caught.value) is error
    assert caught.value.pointer.startswith("/arenas/0/buffers/1/")
    assert word in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"source": 3}, DocumentError),
        ({"kind": "magic"}, DocumentError),
        ({"view": "yes"}, DocumentError),
        ({"start": -1}, PlanError),
        ({"start": 10**6}, PlanError),
    ],
)
def test_bad_tenants_are_named(
    levels: dict[str, Any], changes: dict[str, Any], error: type[Exception]
) -> None:
    tenants = next(b["tenants"] for b in levels["arenas"][0]["buffers"] if "tenants" in b)
    tenants[1].update(changes)
    with pytest.raises(error) as caught:
        load_plan_tables(levels)
    assert "tenants" in getattr(caught.value, "path", ())
