"""Plan documents: lossless, sealed, and refused after any change."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from solver.documents import canonical_json, dump_plan, graph_digest, load_plan, parse_json, seal
from solver.errors import DocumentError, PlanError
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions, verify
from tests.support.graphs import chain, convolutional
from tests.support.rewritable import mobile_block


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(chain(learning_rate=0.1), PlanOptions(alignment=32, deadline_seconds=None))


@pytest.fixture
def document(made: Plan) -> dict[str, Any]:
    found: dict[str, Any] = parse_json(dump_plan(made))
    return found


def test_round_trip(made: Plan) -> None:
    again = load_plan(dump_plan(made))
    assert again == made
    assert dump_plan(again) == dump_plan(made)
    assert load_plan(dump_plan(made, indent=2)) == made
    assert verify(again) == ()


def test_waves_are_written_for_several_workers_only(made: Plan, document: dict[str, Any]) -> None:
    """A plan from before there were waves reads, and has the digest that it had."""
    assert "workers" not in document["options"]
    assert all("wave" not in step for step in document["steps"])
    assert load_plan(document).times == tuple(range(len(made.steps)))
    several = plan(chain(learning_rate=0.1), PlanOptions(parallelism=2))
    again = load_plan(dump_plan(several))
    assert again == several
    assert [step.wave for step in again.steps] == list(several.times)


def test_replacements_are_written_where_there_are_any(made: Plan, document: dict[str, Any]) -> None:
    """A plan from before there was rewriting reads, and has the digest that it had."""
    assert "replacements" not in document
    assert load_plan(document).replacements == ()
    rewritten = plan(mobile_block(), PlanOptions(rewrite=True))
    again = load_plan(dump_plan(rewritten))
    assert again == rewritten
    assert again.replacements[0].rule == "fuse-bias"
    written = parse_json(dump_plan(rewritten))["replacements"]
    assert written[0] == {
        "rule": "fuse-bias", "operations": ["expand", "expand.sum.op"], "into": ["expand"], "group": 0,
        "bytes_before": rewritten.replacements[0].bytes_before,
        "bytes_after": rewritten.replacements[0].bytes_after,
    }  # fmt: skip


def test_tenants_are_written_where_there_are_any(document: dict[str, Any]) -> None:
    """A plan from before anything was in place reads, and has the digest that it had."""
    assert "in_place" not in document["options"]
    buffers = document["arenas"][0]["buffers"]
    assert all("tenants" not in buffer for buffer in buffers)
    assert all(buffer.tenants == () for _, buffer in load_plan(document).buffers())


@pytest.fixture
def shared() -> dict[str, Any]:
    """Of a plan in place: two operands of the graph are views of each other, two derivatives too."""
    found: dict[str, Any] = parse_json(dump_plan(plan(convolutional(), PlanOptions(in_place=True))))
    return found


def _tenants(document: dict[str, Any]) -> list[dict[str, Any]]:
    buffers = document["arenas"][0]["buffers"]
    found: list[dict[str, Any]] = next(b["tenants"] for b in buffers if b["id"] == "d" and "tenants" in b)
    return found


def test_tenants(shared: dict[str, Any]) -> None:
    first, second = _tenants(shared)
    assert (first["id"], first["source"], first["view"], first["shape"]) == ("d", None, False, [2, 2, 2, 4])
    assert (second["id"], second["source"], second["view"], second["shape"]) == ("e", "d", True, [2, 16])
    again = load_plan(shared)
    assert again.options.in_place
    assert parse_json(dump_plan(again)) == shared
    assert verify(again) == ()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"source": 3}, DocumentError),
        ({"kind": "magic"}, DocumentError),
        ({"lifetime": "forever"}, DocumentError),
        ({"view": "yes"}, DocumentError),
        ({"start": -1}, PlanError),
        ({"start": 10**6}, PlanError),
    ],
)
def test_bad_tenants_are_named(
    shared: dict[str, Any], changes: dict[str, Any], error: type[Exception]
) -> None:
    _tenants(shared)[1].update(changes)
    with pytest.raises(error) as caught:
        load_plan(shared)
    path = getattr(caught.value, "path", ())
    assert "tenants" in path


def test_a_tenant_cannot_be_changed_unnoticed(shared: dict[str, Any]) -> None:
    _tenants(shared)[1]["view"] = False
    with pytest.raises(PlanError, match="digest"):
        load_plan(shared)


def test_document_says_what_it_sums_up(made: Plan, document: dict[str, Any]) -> None:
    assert document["arena_bytes"] == made.arena_bytes
    assert document["lower_bound"] == made.lower_bound
    assert document["graph_digest"] == graph_digest(chain(learning_rate=0.1))


def test_digest_can_be_checked_by_anyone(document: dict[str, Any]) -> None:
    digest = document.pop("digest")
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    assert canonical_json(document) == text.encode()


def test_seal_does_not_depend_on_an_earlier_seal(made: Plan) -> None:
    assert seal(seal(dataclasses.replace(made, digest="x"))) == made


def test_seconds_seal_alike_however_they_are_written(made: Plan) -> None:
    whole = seal(dataclasses.replace(made, options=PlanOptions(deadline_seconds=5)))
    assert load_plan(dump_plan(whole)) == whole


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict | list) and value:
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*path, key))
    else:
        yield path


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value + "x" if isinstance(value, str) else 1


def test_every_change_of_content_is_refused(document: dict[str, Any]) -> None:
    for path in leaves(document):
        other = copy.deepcopy(document)
        target: Any = other
        for part in path[:-1]:
            target = target[part]
        target[path[-1]] = changed(target[path[-1]])
        with pytest.raises((PlanError, DocumentError)) as caught:
            load_plan(other)
        assert caught.value.remedy


def test_words_of_a_broken_seal(document: dict[str, Any]) -> None:
    document["arenas"][0]["buffers"][0]["offset"] += 32
    with pytest.raises(PlanError, match="does not match its digest") as caught:
        load_plan(document)
    assert caught.value.pointer == "/digest"


@pytest.mark.parametrize("name", ["arena_bytes", "lower_bound", "gap_bytes"])
def test_wrong_sum(document: dict[str, Any], name: str) -> None:
    document[name] += 1
    with pytest.raises(PlanError, match=f"says {name}") as caught:
        load_plan(document)
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
def test_bad_buffer(
    document: dict[str, Any], field: str, value: Any, error: type[Exception], word: str
) -> None:
    document["arenas"][0]["buffers"][1][field] = value
    with pytest.raises((DocumentError, PlanError)) as caught:
        load_plan(document)
    assert type(caught.value) is error
    assert caught.value.pointer.startswith("/arenas/0/buffers/1/")
    assert word in str(caught.value)


def test_missing_and_unknown_fields(document: dict[str, Any]) -> None:
    del document["arenas"][0]["certificate"]["proof"]
    with pytest.raises(DocumentError, match=r"arenas\[0\]\.certificate\.proof is missing") as caught:
        load_plan(document)
    assert caught.value.pointer == "/arenas/0/certificate/proof"
    document["arenas"][0]["certificate"]["prof"] = None
    with pytest.raises(DocumentError, match="Did you mean 'proof'"):
        load_plan(document)


def test_a_graph_is_no_plan() -> None:
    with pytest.raises(DocumentError, match=r"'arenaplan\.graph', not 'arenaplan\.plan'"):
        load_plan(b'{"format": "arenaplan.graph", "version": 1}')
