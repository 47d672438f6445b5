"""Costs and tiers inside requests, through the real server."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from clients import Client
from service.problems import MEDIA_TYPE
from solver import documents
from solver.pipeline import modelled_costs, plan
from solver.plan import Costs, PlanOptions, paging
from solver.program import Tier
from tests.support.graphs import chain
from tests.support.server import Server

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
        ({"tiers": [WORDS[0], "flash=64,bandwidth=1MB/s"]}, 409, "/options/tiers/1/bytes", "room for 64"),
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
