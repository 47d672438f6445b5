"""Costs, tiers and storage inside requests, through the real server; and input that schedules refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from clients import Client
from service.problems import MEDIA_TYPE
from solver import documents
from solver.pipeline import modelled_costs, plan
from solver.plan import Costs, PlanOptions, paging
from solver.program import Record, Tier
from tests.support.graphs import chain
from tests.support.server import ROOT, Server

GRAPH = chain((16,) * 7, batch=64)
BODY: dict[str, Any] = documents.parse_json(documents.dump_graph(GRAPH))
COSTS = modelled_costs(GRAPH, PlanOptions())
TIERS = (Tier("sram", 20_000), Tier("flash", 2**20, 45_000_000, 20_000_000, 100_000))
WORDS = ["sram=20kB", "flash=1MiB,read=45MB/s,write=20MB/s,latency=100us"]


def asked(http: httpx.Client, **options: Any) -> httpx.Response:
    return http.post("/v1/plan", json={"graph": BODY, "options": options})


def refused(response: httpx.Response) -> tuple[int, str, str]:
    assert response.headers["content-type"] == MEDIA_TYPE
    document = response.json()
    assert document["remedy"]
    return response.status_code, document["pointer"], f"{document['detail']} {document['remedy']}"


def test_a_plan_with_costs(http: httpx.Client) -> None:
    costs = Costs(tuple((name, 2 * cost) for name, cost in COSTS.nanoseconds), "of a board")
    table = documents.parse_json(documents.dump_costs(costs))
    response = asked(http, capacity=35_000, recompute=True, costs=table)
    assert response.status_code == 200
    made = documents.load_plan(response.content)
    assert made.options.costs == costs
    assert made == plan(GRAPH, PlanOptions(capacity=35_000, recompute=True, costs=costs))


@pytest.mark.parametrize("route", ["/v1/tradeoff", "/v1/explain"])
def test_curves_and_verdicts_with_costs(http: httpx.Client, route: str) -> None:
    table = {"nanoseconds": {name: 1_000_000 for name, _ in COSTS.nanoseconds}}
    options = {"costs": table} | ({"capacity": 30_000} if route == "/v1/explain" else {})
    response = http.post(route, json={"graph": BODY, "options": options})
    assert response.status_code == 200
    found = response.json()
    total = found.get("update_nanoseconds", found.get("step_nanoseconds"))
    assert total == 1_000_000 * len(COSTS.nanoseconds)


def test_nothing_is_measured_on_a_service(http: httpx.Client) -> None:
    status, pointer, words = refused(asked(http, capacity=35_000, recompute=True, costs="measured"))
    assert (status, pointer) == (422, "/options/costs")
    assert "where training runs" in words
    assert "arenaplan costs" in words


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"fc1:forward": None}, "/options/costs/nanoseconds", "neither the step 'fc1:forward'"),
        ({"fc1:forward": -1}, "/options/costs/nanoseconds/fc1:forward", "-1"),
        ({"fc1:forward": 0.5}, "/options/costs/nanoseconds/fc1:forward", "integer"),
        ({"fc1:foward": 1}, "/options/costs/nanoseconds/fc1:foward", "Did you mean 'fc1:forward'"),
    ],
)
def test_wrong_costs_are_named(http: httpx.Client, change: dict[str, Any], pointer: str, words: str) -> None:
    table = {name: cost for name, cost in {**dict(COSTS.nanoseconds), **change}.items() if cost is not None}
    status, place, said = refused(asked(http, costs={"nanoseconds": table}))
    assert status == 422
    assert place == pointer
    assert words in said


# ---------------------------------------------------------------------------------------------- tiers


def test_a_plan_in_two_memories(http: httpx.Client) -> None:
    response = asked(http, tiers=WORDS)
    assert response.status_code == 200
    made = documents.load_plan(response.content)
    assert made == plan(GRAPH, PlanOptions(tiers=TIERS))
    found = paging(made)
    assert found is not None
    assert found.moved > 0
    as_objects = [{"name": t.name, "bytes": t.bytes, "read": t.read, "write": t.write, "latency": t.latency}
                  for t in TIERS]  # fmt: skip
    assert asked(http, tiers=as_objects).content == response.content


def test_both_recomputed_and_paged(http: httpx.Client) -> None:
    response = asked(http, tiers=WORDS, recompute=True)
    assert response.status_code == 200
    assert documents.load_plan(response.content) == plan(GRAPH, PlanOptions(tiers=TIERS, recompute=True))


def test_a_plan_in_two_memories_is_valid(http: httpx.Client) -> None:
    made = asked(http, tiers=WORDS).json()
    response = http.post("/v1/validate", json={"graph": BODY, "plan": made, "steps": 2})
    assert response.status_code == 200
    assert response.json()["identical"] is True


def test_the_client_of_the_project_gives_tiers(server: Server) -> None:
    with Client(server.url) as client:
        assert (
            client.plan(BODY, {"tiers": WORDS}).arena_bytes
            == plan(GRAPH, PlanOptions(tiers=TIERS)).arena_bytes
        )


@pytest.mark.parametrize(
    ("options", "status", "pointer", "words"),
    [
        ({"tiers": ["sram=20kB"]}, 422, "/options/tiers", "nothing to page out to"),
        ({"tiers": ["sram=20kB", "flash=1MiB"]}, 422, "/options/tiers/1", "how fast tier 'flash'"),
        ({"tiers": ["sram=20kB", "flash=1MiB,bandwidth=0MB/s"]}, 422, "/options/tiers/1", "above zero"),
        ({"tiers": [WORDS[0], WORDS[0]]}, 422, "/options/tiers/1/name", "is called 'sram'"),
        ({"tiers": ["sram=64", WORDS[1]]}, 409, "/options/tiers/0/bytes", "touches"),
        ({"tiers": [WORDS[0], "flash=64,bandwidth=1MB/s"]}, 409, "/options/tiers/1/bytes", "has 64"),
        ({"tiers": WORDS, "capacity": 10_000}, 422, "/options/capacity", "Both a capacity and tiers"),
        ({"tiers": WORDS, "target": "onert"}, 422, "/options/tiers", "has memory of one kind"),
        ({"tiers": [{"name": "sram", "bytes": 0}]}, 422, "/options/tiers/0/bytes", "at least 1"),
        ({"tiers": [{"name": "sram"}]}, 422, "/options/tiers/0/bytes", "bytes"),
        ({"tiers": [{"name": "sram", "bytes": 64, "speed": 1}]}, 422, "/options/tiers/0/speed", "speed"),
        ({"tiers": "sram=20kB"}, 422, "/options/tiers", "list"),
    ],
)
def test_bad_memories_are_named(
    http: httpx.Client, options: dict[str, Any], status: int, pointer: str, words: str
) -> None:
    code, place, said = refused(asked(http, **options))
    assert code == status
    assert place == pointer
    assert words in said


# -------------------------------------------------------------------------------------------- storage


@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_a_plan_with_activations_in_16_bits(http: httpx.Client, storage: str) -> None:
    response = asked(http, storage=storage)
    assert response.status_code == 200
    assert documents.load_plan(response.content) == plan(GRAPH, PlanOptions(storage=storage))
    checked = http.post("/v1/validate", json={"graph": BODY, "plan": response.json(), "steps": 2})
    assert checked.json()["identical"] is True


def test_a_loss_scale_that_changes(http: httpx.Client) -> None:
    graph = {**BODY, "training": {"loss_scale": 1024.0, "loss_scale_growth": 5}}
    made = http.post("/v1/plan", json={"graph": graph, "options": {"storage": "float16"}})
    assert made.status_code == 200
    checked = http.post("/v1/validate", json={"graph": graph, "plan": made.json(), "steps": 3})
    assert checked.json()["identical"] is True
    bad = {**BODY, "training": {"loss_scale_growth": 0}}
    status, pointer, words = refused(http.post("/v1/plan", json={"graph": bad}))
    assert (status, pointer) == (422, "/graph/training/loss_scale_growth")
    assert "1 to" in words


@pytest.mark.parametrize(
    ("options", "pointer", "words"),
    [
        ({"storage": "float32"}, "/options/storage", "Unknown storage 'float32'"),
        ({"storage": 16}, "/options/storage", "16"),
        ({"storage": "float16", "target": "onert"}, "/options/storage", "keeps values as they are"),
    ],
)
def test_bad_types_of_storage_are_named(
    http: httpx.Client, options: dict[str, Any], pointer: str, words: str
) -> None:
    status, place, said = refused(asked(http, **options))
    assert (status, place) == (422, pointer)
    assert words in said


# --------------------------------------------------------------------------------- bad input of schedules


def test_programs_of_explicit_operations_have_no_schedules(http: httpx.Client) -> None:
    program = documents.parse_json((ROOT / "examples/programs/momentum.json").read_bytes())
    for name, value in (
        ("recompute", True),
        ("order", True),
        ("tiers", WORDS),
        ("storage", "float16"),
        ("costs", {"nanoseconds": {}}),
    ):
        body = {"program": program, "options": {name: value, "capacity": 10**6}}
        if name == "tiers":
            del body["options"]["capacity"]
        status, pointer, words = refused(http.post("/v1/program", json=body))
        assert (status, pointer) == (422, f"/options/{name}")
        assert ('"any_order": true' if name == "order" else "is for graphs") in words


def test_recomputation_needs_a_capacity_that_can_be_kept(http: httpx.Client) -> None:
    status, pointer, words = refused(asked(http, recompute=True))
    assert (status, pointer) == (422, "/options/capacity")
    assert "how many bytes" in words
    status, pointer, words = refused(asked(http, recompute=True, capacity=10_000))
    assert (status, pointer) == (409, "/options/capacity")
    assert "No order of the steps and no recomputation takes less" in words
    status, pointer, words = refused(asked(http, recompute=True, capacity=10**6, target="onert"))
    assert (status, pointer) == (422, "/options/recompute")
    assert "runs each step once" in words


def test_a_record_that_does_not_match_its_program_is_named(http: httpx.Client) -> None:
    made = plan(GRAPH, PlanOptions(capacity=35_000, recompute=True))
    (record,) = (record for record in made.records if record.name == "recompute")
    cheaper = {**record.facts, "extra_nanoseconds": int(record.facts["extra_nanoseconds"]) - 1}
    others = tuple(other for other in made.records if other is not record)
    changed = documents.with_digest(replace(made, records=(*others, Record("recompute", cheaper))))
    document = documents.parse_json(documents.dump_plan(changed))
    response = http.post("/v1/validate", json={"graph": BODY, "plan": document, "steps": 1})
    assert response.status_code == 200
    found = response.json()
    assert found["identical"] is False
    assert [violation["rule"] for violation in found["violations"]] == ["record"]
    assert "extra_nanoseconds" in found["violations"][0]["detail"]
