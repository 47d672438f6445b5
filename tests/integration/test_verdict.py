"""`/v1/tradeoff` and `/v1/explain` through the real server, and the short verdict of a 409."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from clients import AsyncClient, CapacityExceeded, Client, ProblemError
from service.problems import MEDIA_TYPE
from solver import documents
from solver.plan import PlanOptions, VerdictStatus
from solver.verdict import explain, tradeoff
from tests.support.graphs import chain
from tests.support.refused_options import REFUSED, Refused
from tests.support.server import Server, running_server

Graph = dict[str, Any]


def ask(http: httpx.Client, route: str, **request: Any) -> httpx.Response:
    return http.post(route, json=request)


def test_a_curve(http: httpx.Client, mnist: Graph) -> None:
    response = ask(http, "/v1/tradeoff", graph=mnist, points=4)
    assert response.status_code == 200
    assert documents.load_tradeoff(response.content) == tradeoff(documents.load_graph(mnist), points=4)
    assert ask(http, "/v1/tradeoff", graph=mnist, points=4).content == response.content


def test_a_verdict(http: httpx.Client, mnist: Graph) -> None:
    response = ask(http, "/v1/explain", graph=mnist, options={"capacity": "16.6MB"})
    assert response.status_code == 200
    made = documents.load_verdict(response.content)
    assert made == explain(documents.load_graph(mnist), PlanOptions(capacity=16_600_000))
    assert made.status is VerdictStatus.IMPOSSIBLE


def test_what_changes_the_training(http: httpx.Client, mnist: Graph) -> None:
    response = ask(http, "/v1/explain", graph=mnist, options={"capacity": "12MB"}, training=True)
    found = documents.load_verdict(response.content).remedies
    assert any("training" in remedy.graph_fields for remedy in found)


def test_the_clients_of_the_project(server: Server, mnist: Graph) -> None:
    with Client(server.url) as client:
        curve = client.tradeoff(mnist, points=4)
        assert curve.points[0].extra == 0.0
        assert curve.floor <= curve.points[-1].peak
        found = client.explain(mnist, "16.6MB")
        assert (found.status, found.extra) == ("impossible", None)
        assert found.remedies[0].measures == ("rewrite", "1 MiB of scratch")
        assert found.remedies[0].options["capacity"] == 16_600_000
        best = client.plan(mnist, found.remedies[0].options)
        assert best.arena_bytes == found.remedies[0].arena_bytes


async def test_the_asynchronous_client_of_the_project(server: Server, tiny: Graph) -> None:
    async with AsyncClient(server.url) as client:
        curve = await client.tradeoff(tiny, points=3, batch=4)
        assert (await client.explain(tiny, curve.points[0].peak, batch=4)).status == "plan"


# --------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("route", "more", "code", "pointer", "words"),
    [
        ("/v1/tradeoff", {"points": 1}, "invalid-request", "/points", "a whole number from 2 to 100"),
        ("/v1/tradeoff", {"points": "ten"}, "invalid-request", "/points", "a whole number"),
        ("/v1/tradeoff", {"steps": 3}, "invalid-request", "/steps", "Send one object"),
        ("/v1/tradeoff", {"options": {"target": "onert"}}, "invalid-options", "/options/target", "reference"),
        ("/v1/explain", {}, "invalid-request", "", '"options"'),
        ("/v1/explain", {"options": {}}, "invalid-options", "/options/capacity", "Give a capacity"),
        ("/v1/explain", {"options": {"capacity": -1}}, "invalid-options", "/options/capacity", ""),
        (
            "/v1/explain",
            {"options": {"capacity": 1, "target": "nntrainer"}},
            "invalid-options",
            "/options/target",
            "reference",
        ),
        ("/v1/explain", {"options": {"capacity": 1}, "training": 1}, "invalid-request", "/training", "true"),
    ],
)
def test_bad_requests(
    http: httpx.Client, tiny: Graph, route: str, more: Graph, code: str, pointer: str, words: str
) -> None:
    response = ask(http, route, graph=tiny, **more)
    assert response.status_code == 422
    assert response.headers["content-type"] == MEDIA_TYPE
    problem = response.json()
    assert (problem["type"], problem["pointer"]) == (f"/problems/{code}", pointer)
    assert words in problem["remedy"]


@pytest.mark.parametrize("refused", REFUSED, ids=str)
def test_options_that_no_plan_takes_are_refused_alike(http: httpx.Client, refused: Refused) -> None:
    graph = documents.parse_json(documents.dump_graph(chain((16,) * 7, batch=64)))
    options = ({} if "tiers" in refused.fields else {"capacity": 30_000}) | refused.fields
    planned = ask(http, "/v1/plan", graph=graph, options=options)
    problem = planned.json()
    assert (planned.status_code, problem["pointer"]) == (422, f"/options{refused.pointer}")
    assert refused.words in f"{problem['detail']} {problem['remedy']}"
    for task in ("explain", "tradeoff"):
        said = ask(http, f"/v1/{task}", graph=graph, options=options)
        assert said.status_code == 422
        assert {**said.json(), "instance": ""} == {**problem, "instance": ""}
        job = ask(http, "/v1/jobs", task=task, request={"graph": graph, "options": options}).json()
        for _ in range(600):
            job = http.get(job["links"]["self"]).json()
            if job["state"] not in ("queued", "running"):
                break
            time.sleep(0.05)
        assert (job["state"], job["error"]["pointer"]) == ("failed", problem["pointer"])


@pytest.mark.parametrize("route", ["/v1/tradeoff", "/v1/explain"])
def test_what_is_not_a_model(http: httpx.Client, tiny: Graph, route: str) -> None:
    del tiny["operands"]
    problem = ask(http, route, graph=tiny, options={"capacity": 1}).json()
    assert problem["type"] == "/problems/invalid-document"
    assert problem["pointer"].startswith("/graph")


def test_time_that_has_run_out_is_an_answer(http: httpx.Client, mnist: Graph) -> None:
    options = {"deadline_seconds": 0.0, "capacity": 1}
    curve = documents.load_tradeoff(ask(http, "/v1/tradeoff", graph=mnist, options=options).content)
    assert (len(curve.points), curve.complete) == (1, False)
    verdict = documents.load_verdict(ask(http, "/v1/explain", graph=mnist, options=options).content)
    assert (verdict.status, verdict.complete) == (VerdictStatus.IMPOSSIBLE, False)


def test_the_service_has_a_longest_time_of_its_own(mnist: Graph) -> None:
    with running_server(workers=1, deadline_max_seconds=0.001) as own, own.client() as http:
        response = ask(http, "/v1/explain", graph=mnist, options={"capacity": 10**6})
        assert response.status_code == 200
        assert not documents.load_verdict(response.content).complete


# --------------------------------------------------------------------------------- capacities of plans


@pytest.mark.parametrize(
    ("options", "recompute"),
    [
        ({"capacity": 17_000_000}, "impossible"),
        ({"capacity": 20_000_000}, "open"),
        ({"capacity": 17_000_000, "recompute": True}, "impossible"),
    ],
    ids=str,
)
def test_a_capacity_that_is_not_kept_carries_a_verdict(
    http: httpx.Client, mnist: Graph, options: Graph, recompute: str
) -> None:
    response = ask(http, "/v1/plan", graph=mnist, options=options)
    assert response.status_code == 409
    problem = response.json()
    assert problem["type"] == "/problems/capacity-exceeded"
    assert problem["verdict"] == {
        "floor": 17_035_072,
        "floor_step": "conv2:calc_gradient",
        "smallest": 21_613_184,
        "recompute": recompute,
    }


def test_between_the_floor_and_the_smallest_plan(http: httpx.Client, mnist: Graph) -> None:
    options = {"capacity": 17_100_000, "recompute": True}
    verdict = ask(http, "/v1/plan", graph=mnist, options=options).json()["verdict"]
    assert verdict["recompute"] == "open"
    assert 17_100_000 < verdict["smallest"] < 21_613_184


def test_targets_that_run_each_step_once_have_no_verdict(http: httpx.Client, mnist: Graph) -> None:
    problem = ask(http, "/v1/plan", graph=mnist, options={"capacity": 20_000_000, "target": "onert"}).json()
    assert problem["type"] == "/problems/capacity-exceeded"
    assert "verdict" not in problem


def test_clients_have_the_verdict(server: Server, mnist: Graph) -> None:
    with Client(server.url) as client:
        with pytest.raises(CapacityExceeded) as caught:
            client.plan(mnist, capacity=20_000_000)
        assert caught.value.verdict is not None
        assert caught.value.verdict["recompute"] == "open"
        with pytest.raises(ProblemError):
            client.explain(mnist, 1, target="onert")
