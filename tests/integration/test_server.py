"""The whole service as a process: plans, validations, caching, crashes, deadlines, shutdown."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from solver import documents
from solver.layout import Status
from tests.integration.test_bad_input import example
from tests.support.server import NO_EVENT, PATIENCE, Server, is_running, running_server

Graph = dict[str, Any]


def plan(http: httpx.Client, graph: Graph, **options: Any) -> httpx.Response:
    return http.post("/v1/plan", json={"graph": graph, "options": options})


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


def test_request_ids_and_answers_are_in_the_log(server: Server, http: httpx.Client, tiny: Graph) -> None:
    # Bodies that no other test of this server sends: a kept answer is told by its digest alone.
    buffers = example("buffers")
    buffers["problem"]["buffers"][0]["id"] = "found-in-the-log"
    for path, body in (("/plan", {"graph": {**tiny, "name": "found-in-the-log"}}), ("/v1/layout", buffers)):
        identity = f"find-{path.rpartition('/')[2]}"
        response = http.post(path, json=body, headers={"X-Request-ID": identity})
        assert response.headers["x-request-id"] == identity
        event = server.request_event(identity)
        assert (event["status"], event["method"], event["path"]) == (200, "POST", path)
        assert event["milliseconds"] >= 0
        assert (event["digest"], event["claim"]) == (response.json()["digest"], "optimal")
        assert event["arena_bytes"] > 0


# ------------------------------------------------------------------- with a server for the test alone


def test_a_worker_that_is_gone_is_replaced(slow: Graph) -> None:
    """Killed while it waits, killed at work, or left by its caller: it costs one request at most."""
    with running_server(workers=1, validate_max_steps=10_000) as server, server.client() as http:
        document = plan(http, slow).json()
        request = {"graph": slow, "plan": document, "steps": 10_000}

        def replaced(pid: int, batch: int) -> None:
            server.wait_for(lambda event: event["event"] == "worker ended" and event["pid"] == pid)
            assert plan(http, slow, batch=batch).status_code == 200
            assert pid not in server.worker_pids()

        (pid,) = server.worker_pids()
        os.kill(pid, signal.SIGKILL)
        replaced(pid, 1)

        (pid,) = server.worker_pids()
        with ThreadPoolExecutor(1) as thread:
            answer = thread.submit(http.post, "/v1/validate", json=request)
            wait_until_busy(pid, ticks=50)  # more than what the plan before may have left to do
            os.kill(pid, signal.SIGKILL)
            response = answer.result(PATIENCE)
        assert (response.status_code, response.json()["type"]) == (503, "/problems/worker-lost")
        assert response.headers["retry-after"]
        replaced(pid, 2)

        (pid,) = server.worker_pids()
        body = json.dumps(request).encode()
        head = f"POST /v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", httpx.URL(server.url).port or 0)) as caller:
            caller.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            wait_until_busy(pid, ticks=50)
        replaced(pid, 3)

        (pid,) = server.worker_pids()
        server.kill()
        wait_until_gone(pid)


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
    settings = {"drain_seconds": 2, "shutdown_seconds": 1, "validate_max_steps": 10_000}
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
    """Idle connections take none from the workers: beyond a limit they are closed."""
    with running_server(workers=1, open_files=128) as server, server.client() as http:
        assert plan(http, tiny).status_code == 200
        (pid,) = server.worker_pids()
        address = ("127.0.0.1", httpx.URL(server.url).port or 0)
        with contextlib.ExitStack() as idle:
            for _ in range(140):
                idle.enter_context(socket.create_connection(address, PATIENCE))
            os.kill(pid, signal.SIGKILL)
            server.wait_for(lambda event: event["event"] == "worker ended")
            server.wait_for(lambda event: event["event"] == "worker warmed up")
            assert server.worker_pids() != [pid]


def test_without_optional_packages(tmp_path: Path, tiny: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans go without the compiled search and CP-SAT; the log, /readyz and answers say so."""
    for package in ("llvmlite", "numba", "ortools"):
        (tmp_path / package).mkdir()
        broken = tmp_path / package / "__init__.py"
        broken.write_text(f"raise ImportError('{package} is not here')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "nothing compiled before"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    buffers = example("buffers")["problem"]
    with running_server(workers=1) as server, server.client() as http:
        event = server.wait_for(lambda event: event["event"] == "worker warmed up")
        assert (event["level"], event["compiled_search"], event["cp_sat"]) == ("warning", False, False)
        ready = http.get("/readyz")
        assert ready.status_code == 200
        assert (ready.json()["compiled_search"], ready.json()["cp_sat"]) == (False, False)
        assert documents.load_plan(plan(http, tiny).content).certificates[0].status is Status.OPTIMAL
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
