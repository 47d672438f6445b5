"""The whole service as a process: plans, validations, caching, crashes, deadlines, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients import AsyncClient, CapacityExceeded, Client
from solver import documents
from solver.layout import Proof, Status
from solver.plan import Certificate
from tests.support.proofs import moved, violations
from tests.support.server import NO_EVENT, PATIENCE, ROOT, Server, running_server

Graph = dict[str, Any]


def plan(http: httpx.Client, graph: Graph, **options: Any) -> httpx.Response:
    return http.post("/v1/plan", json={"graph": graph, "options": options})


def certificate_of(response: httpx.Response) -> Certificate:
    """That of the only arena of the plan that was answered."""
    (certificate,) = documents.load_plan(response.content).certificates
    return certificate


def test_plan_and_validate(http: httpx.Client, tiny: Graph) -> None:
    made = plan(http, tiny)
    assert made.status_code == 200
    document = made.json()
    assert made.headers["etag"] == f'"{document["digest"]}"'
    assert certificate_of(made).status is Status.OPTIMAL
    report = http.post("/v1/validate", json={"graph": tiny, "plan": document, "steps": 3})
    assert report.status_code == 200
    assert report.json()["identical"] is True
    assert len(report.json()["steps"]) == 3


def test_plan_and_validate_for_several_steps_at_the_same_time(http: httpx.Client, tiny: Graph) -> None:
    one, two = plan(http, tiny, parallelism=1), plan(http, tiny, parallelism=2)
    assert one.content == plan(http, tiny).content
    made = documents.load_plan(two.content)
    assert violations(documents.load_graph(tiny), made) == ()
    assert made.duration < len(made.steps) == len(one.json()["steps"])
    report = http.post("/v1/validate", json={"graph": tiny, "plan": two.json(), "steps": 3}).json()
    assert report["identical"] is True
    refused = plan(http, tiny, parallelism=65)
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/options/parallelism")
    refused = plan(http, tiny, parallelism=2, target="nntrainer")
    assert refused.json()["pointer"] == "/options/parallelism"


def test_a_wrong_plan_is_named(http: httpx.Client, tiny: Graph) -> None:
    """Two live buffers at one offset: never run, and the rule and both buffers are in the report."""
    made = documents.load_plan(plan(http, tiny).content)
    first, second, *_ = made.arenas[0].buffers
    wrong = json.loads(documents.dump_plan(documents.with_digest(moved(made, second.id, first.offset))))
    response = http.post("/v1/validate", json={"graph": tiny, "plan": wrong})
    assert response.status_code == 200
    report = response.json()
    assert report["identical"] is False
    assert report["steps"] == []
    overlaps = [set(found["buffers"]) for found in report["violations"] if found["rule"] == "overlap"]
    assert {first.id, second.id} in overlaps


def test_mnist(http: httpx.Client, mnist: Graph) -> None:
    document = plan(http, mnist).json()
    made = documents.load_plan(document)
    assert made.certificates[0].proof is Proof.MAX_LOAD
    assert made.arena_bytes == made.lower_bound <= 26_000_000
    report = http.post("/v1/validate", json={"graph": mnist, "plan": document, "steps": 1}).json()
    assert report["identical"] is True


def test_rewriting(http: httpx.Client, mnist: Graph) -> None:
    """A plan that was rewritten is validated with the graph as it was; a forged replacement is refused."""
    document = plan(http, mnist, rewrite=True).json()
    made = documents.load_plan(document)
    assert made.arena_bytes < documents.load_plan(plan(http, mnist).content).arena_bytes
    assert {one.rule for one in made.replacements} == {"pool-first"}
    report = http.post("/v1/validate", json={"graph": mnist, "plan": document, "steps": 1})
    assert report.json()["identical"] is True
    forged = replace(made, replacements=(replace(made.replacements[0], rule="fuse-bias"),))
    sealed = json.loads(documents.dump_plan(documents.with_digest(forged)))
    refused = http.post("/v1/validate", json={"graph": mnist, "plan": sealed})
    assert (refused.status_code, "does not hold" in refused.text) == (422, True)


def test_the_same_request_has_the_same_bytes(http: httpx.Client, tiny: Graph) -> None:
    tiny["name"] = "same-bytes"
    spelled = json.dumps({"options": {"batch": 4}, "graph": tiny}, indent=3)
    first = plan(http, tiny, batch=4)
    again = plan(http, tiny, batch=4)
    other = http.post("/plan", content=spelled, headers={"Content-Type": "application/json"})
    assert first.content == again.content == other.content
    assert [r.headers["x-cache"] for r in (first, again, other)] == ["miss", "hit", "hit"]


def test_a_new_service_gives_the_same_bytes(http: httpx.Client, tiny: Graph) -> None:
    with running_server(workers=1, cache_bytes=0) as other, other.client() as fresh:
        assert plan(fresh, tiny).content == plan(http, tiny).content
        assert plan(fresh, tiny).headers["x-cache"] == "miss"


def test_entity_tags(http: httpx.Client, tiny: Graph) -> None:
    made = plan(http, tiny)
    tag = {"If-None-Match": made.headers["etag"]}
    kept = http.get(made.headers["content-location"])
    assert kept.content == made.content
    assert http.get(made.headers["content-location"], headers=tag).status_code == 304
    assert http.post("/plan", json={"graph": tiny, "options": {}}, headers=tag).status_code == 304
    assert http.get("/v1/plans/" + "0" * 64).status_code == 404


def test_too_large(server: Server, http: httpx.Client) -> None:
    json_type = {"Content-Type": "application/json"}
    body = b" " * (2 << 20)
    assert http.post("/plan", content=body, headers=json_type).status_code == 413
    chunks: Iterator[bytes] = (b" " * 65536 for _ in range(64))
    with server.client() as other:
        assert other.post("/plan", content=chunks, headers=json_type).status_code == 413


def test_not_declared_as_json(http: httpx.Client) -> None:
    assert http.post("/plan", content=b"{}").status_code == 415


def test_large_requests_are_recognised_too(http: httpx.Client, tiny: Graph) -> None:
    padded = json.dumps({"graph": tiny}).encode().ljust(500_000)
    answers = [
        http.post("/plan", content=padded, headers={"Content-Type": "application/json"}) for _ in range(2)
    ]
    assert answers[1].headers["x-cache"] == "hit"
    assert answers[0].content == answers[1].content == plan(http, tiny).content


def test_many_at_once(server: Server, tiny: Graph) -> None:
    def ask(batch: int) -> bytes:
        with server.client() as http:
            response = plan(http, tiny, batch=batch % 8 + 1)
            assert response.status_code == 200
            return response.content

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ask, range(48)))
    assert len(set(answers)) == 8
    assert all(answers[n] == answers[n + 8] for n in range(40))


def test_a_short_deadline_is_an_answer(http: httpx.Client, mnist: Graph) -> None:
    made = documents.load_plan(plan(http, mnist, deadline_seconds=0.0).content)
    assert made.certificates[0].status in (Status.FEASIBLE, Status.OPTIMAL)
    assert made.arena_bytes >= made.lower_bound > 0
    assert made.options.deadline_seconds == 0.0


def test_request_ids_are_in_the_log(server: Server, http: httpx.Client, tiny: Graph) -> None:
    response = http.post("/plan", json={"graph": tiny}, headers={"X-Request-ID": "find-me"})
    assert response.headers["x-request-id"] == "find-me"
    event = server.request_event("find-me")
    assert event["status"] == 200
    assert event["method"] == "POST"
    assert event["path"] == "/plan"
    assert event["milliseconds"] >= 0
    assert event["digest"] == response.json()["digest"]


def test_the_client_of_the_project(server: Server, tiny: Graph) -> None:
    with Client(server.url) as client:
        assert client.ready()
        result = client.plan(tiny, batch=2)
        assert client.stored_plan(result.digest).document == result.document
        assert client.fits(tiny, result.arena_bytes, batch=2)
        assert not client.fits(tiny, result.lower_bound - 1, batch=2)
        with pytest.raises(CapacityExceeded) as caught:
            client.plan(tiny, capacity=100)
        assert caught.value.available == 100
        assert client.validate(tiny, result.document, steps=2).identical


async def test_the_asynchronous_client_of_the_project(server: Server, tiny: Graph) -> None:
    async with AsyncClient(server.url) as client:
        first, second = await asyncio.gather(client.plan(tiny, batch=5), client.plan(tiny, batch=6))
        assert first.digest != second.digest
        assert (await client.validate(tiny, first.document, steps=1)).identical


# ------------------------------------------------------------------- with a server for the test alone


def test_a_killed_worker_is_replaced(tiny: Graph) -> None:
    with running_server(workers=1) as server, Client(server.url) as client:
        first = client.plan(tiny)
        (pid,) = server.worker_pids()
        os.kill(pid, signal.SIGKILL)
        server.wait_for(lambda event: event["event"] == "worker ended")
        assert client.plan(tiny, batch=3).digest != first.digest
        assert server.worker_pids() != [pid]


def test_a_worker_killed_at_work_costs_one_request(slow: Graph) -> None:
    with running_server(workers=1, validate_max_steps=10_000) as server, Client(server.url) as client:
        document = client.plan(slow).document
        request = {"graph": slow, "plan": document, "steps": 10_000}
        with ThreadPoolExecutor(1) as thread, server.client() as http:
            answer = thread.submit(http.post, "/v1/validate", json=request)
            (pid,) = server.worker_pids()
            wait_until_busy(pid, ticks=50)  # more than what the plan before may have left to do
            os.kill(pid, signal.SIGKILL)
            response = answer.result(PATIENCE)
        assert response.status_code == 503
        assert response.json()["type"] == "/problems/worker-lost"
        assert response.headers["retry-after"]
        assert client.plan(slow, batch=1).status == "optimal"


def test_a_search_beyond_its_deadline_is_killed() -> None:
    """Without any grace no search is in time: the greedy plan is the answer, and says so."""
    graph = json.loads((ROOT / "examples/mobilenet_v2.json").read_bytes())
    with running_server(workers=1, deadline_grace_seconds=0.0) as server, server.client() as http:
        (pid,) = server.worker_pids()
        response = plan(http, graph, deadline_seconds=0.0)
        assert response.status_code == 200
        made = documents.load_plan(response.content)
        assert made.deterministic is False
        assert violations(documents.load_graph(graph), made) == ()
        assert made.arena_bytes >= made.lower_bound > 0
        server.wait_for(lambda event: event["event"] == "worker ended" and event["pid"] == pid)
        assert "content-location" not in response.headers


def test_a_validation_is_killed_at_its_limit(slow: Graph) -> None:
    limits = {"validate_max_steps": 10_000, "validate_max_seconds": 1.0}
    with running_server(workers=1, **limits) as server, server.client() as http:
        document = plan(http, slow).json()
        (pid,) = server.worker_pids()
        response = http.post("/v1/validate", json={"graph": slow, "plan": document, "steps": 10_000})
        assert response.status_code == 422
        assert response.json()["type"] == "/problems/time-limit"
        server.wait_for(lambda event: event["event"] == "worker ended" and event["pid"] == pid)
        assert plan(http, slow, batch=1).status_code == 200


def test_a_caller_that_hangs_up_frees_the_worker(slow: Graph) -> None:
    with running_server(workers=1, validate_max_steps=10_000) as server, server.client() as http:
        document = plan(http, slow).json()
        (pid,) = server.worker_pids()
        with pytest.raises(httpx.ReadTimeout):
            http.post(
                "/v1/validate",
                json={"graph": slow, "plan": document, "steps": 10_000},
                timeout=httpx.Timeout(PATIENCE, read=0.5),
            )
        server.wait_for(lambda event: event["event"] == "worker ended" and event["pid"] == pid)
        assert plan(http, slow, batch=1).status_code == 200


def test_running_requests_finish_before_the_service_stops(slow: Graph) -> None:
    with running_server(workers=1) as server, server.client() as http:
        document = plan(http, slow).json()
        (pid,) = server.worker_pids()
        request = {"graph": slow, "plan": document, "steps": 5}
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(http.post, "/v1/validate", json=request)
            wait_until_busy(pid)
            code = server.stop()
            assert answer.result(PATIENCE).json()["identical"] is True
        assert code == 0
        assert server.log[-1]["event"].startswith("Finished server process")
        wait_until_gone(pid)


def test_a_service_that_stops_says_so_first_and_leaves_no_request_without_an_answer(slow: Graph) -> None:
    """Readiness falls, then the port is closed; what is not finished by then is told to come back."""
    settings = {"drain_seconds": 1, "shutdown_seconds": 1, "validate_max_steps": 10_000}
    with running_server(workers=1, **settings) as server, server.client() as http:
        document = plan(http, slow).json()
        (pid,) = server.worker_pids()
        request = {"graph": slow, "plan": document, "steps": 10_000}
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(http.post, "/v1/validate", json=request)
            wait_until_busy(pid)
            server.process.send_signal(signal.SIGTERM)
            with server.client() as probe:
                ready = probe.get("/readyz")
                while ready.status_code == 200:
                    ready = probe.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "draining")
            response = answer.result(PATIENCE)
        assert response.status_code == 503
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["type"] == "/problems/stopping"
        assert response.headers["retry-after"]
        assert server.process.wait(PATIENCE) == 0


def test_few_descriptors(tiny: Graph) -> None:
    """Idle connections take none from the workers: those that wait longest are closed instead."""
    with running_server(workers=1, open_files=128) as server, server.client() as http:
        assert plan(http, tiny).status_code == 200
        (pid,) = server.worker_pids()
        address = ("127.0.0.1", httpx.URL(server.url).port or 0)
        with contextlib.ExitStack() as idle:
            for _ in range(140):
                idle.enter_context(socket.create_connection(address, PATIENCE))
            os.kill(pid, signal.SIGKILL)
            server.wait_for(lambda event: event["event"] == "worker ended")
            assert plan(http, tiny, batch=2).status_code == 200
            assert http.get("/readyz").status_code == http.get("/healthz").status_code == 200


def test_workers_end_with_a_service_that_was_killed(tiny: Graph) -> None:
    with running_server(workers=1) as server, Client(server.url) as client:
        client.plan(tiny)
        (pid,) = server.worker_pids()
        server.kill()
        wait_until_gone(pid)


def test_without_optional_packages(tmp_path: Path, tiny: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans go without the compiled search and CP-SAT; the log, /readyz and answers say so."""
    for package in ("llvmlite", "numba", "ortools"):
        (tmp_path / package).mkdir()
        broken = tmp_path / package / "__init__.py"
        broken.write_text(f"raise ImportError('{package} is not here')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    buffers = json.loads((ROOT / "service/http/web/examples/buffers.json").read_bytes())["problem"]
    with running_server(workers=1) as server, server.client() as http:
        event = server.wait_for(lambda event: event["event"] == "worker warmed up")
        assert (event["level"], event["compiled_search"], event["cp_sat"]) == ("warning", False, False)
        ready = http.get("/readyz")
        assert ready.status_code == 200
        assert (ready.json()["compiled_search"], ready.json()["cp_sat"]) == (False, False)
        assert certificate_of(plan(http, tiny)).status is Status.OPTIMAL
        exact = http.post("/v1/layout", json={"problem": buffers, "options": {"solver": "cp-sat"}})
        assert exact.status_code == 200
        tight = http.post("/v1/layout", json={"problem": buffers, "options": {"solver": "bump"}}).json()
        assert tight["proved"] is False
        assert "The compiled search does not load in this service" in tight["detail"]
        (pid,) = server.worker_pids()
        assert pid == event["pid"]
        server.stop()
    reasons = [event["event"] for event in server.log if event["level"] == "warning"]
    assert any("llvmlite is not here" in reason for reason in reasons)
    assert any("ortools is not here" in reason for reason in reasons)
    assert [event for event in server.log if event["event"] == NO_EVENT] == []


def processor_time(pid: int) -> int:
    """Clock ticks that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_until_busy(pid: int, ticks: int = 2) -> None:
    """Until the process has worked so many hundredths of a second."""
    used, until = processor_time(pid), time.monotonic() + PATIENCE
    while processor_time(pid) < used + ticks:
        assert time.monotonic() < until
        time.sleep(0.01)


def wait_until_gone(pid: int) -> None:
    """A process closes its files a moment before it is gone."""
    until = time.monotonic() + PATIENCE
    while is_running(pid):
        assert time.monotonic() < until
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
