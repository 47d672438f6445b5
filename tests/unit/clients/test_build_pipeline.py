"""The example that fails a build: exit codes and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients import Client
from examples import build_pipeline
from tests.support.scripted_service import problem
from tests.unit.clients.test_client import CAPACITY, PLAN


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_text("{}", encoding="utf-8")
    return path


def run(monkeypatch: pytest.MonkeyPatch, reply: httpx.Response, *arguments: str) -> int:
    def client(url: str) -> Client:
        return Client(url, transport=httpx.MockTransport(lambda _request: reply), sleep=lambda _s: None)

    monkeypatch.setattr(build_pipeline, "Client", client)
    return build_pipeline.main([*arguments])


def test_what_it_prints_and_how_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], graph: Path
) -> None:
    loss: dict[str, Any] = {"type": "/problems/invalid-loss", "status": 422, "detail": "No loss."}
    bug: dict[str, Any] = {"type": "/problems/internal-error", "status": 500, "detail": "A bug."}
    for reply, code, words in (
        (httpx.Response(200, json=PLAN), 0, f"ok   {graph}: 120 of 1,024 bytes (optimal, plan abc)\n"),
        (problem(CAPACITY), 1, f"FAIL {graph}: needs 120 bytes, 20 more than 1,024."),
        (problem(CAPACITY), 1, "live at the peak: w (80 bytes)"),
        (problem(loss), 1, "No loss."),
        (problem(bug), 2, "cannot tell: A bug."),
    ):
        assert run(monkeypatch, reply, "--capacity", "1KiB", str(graph)) == code
        printed = capsys.readouterr()
        assert words in (printed.err if code == 2 else printed.out)


def test_no_such_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.json")
    assert run(monkeypatch, httpx.Response(200, json=PLAN), "--capacity", "100", missing) == 2
    assert "missing.json" in capsys.readouterr().err


def test_sizes() -> None:
    texts = ("7", "2KiB", "3MiB", "1GiB", "1.5GB")
    assert [build_pipeline.size(text) for text in texts] == [7, 2048, 3 * 2**20, 2**30, 1_500_000_000]


def test_what_is_not_a_size(capsys: pytest.CaptureFixture[str], graph: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        build_pipeline.main(["--capacity", "20,97", str(graph)])
    assert caught.value.code == 2
    assert "invalid size value: '20,97'" in capsys.readouterr().err


def test_the_request_carries_the_capacity(monkeypatch: pytest.MonkeyPatch, graph: Path) -> None:
    bodies: list[Any] = []

    def reply(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=PLAN)

    monkeypatch.setattr(
        build_pipeline, "Client", lambda url: Client(url, transport=httpx.MockTransport(reply))
    )
    assert build_pipeline.main(["--capacity", "2KiB", str(graph), str(graph)]) == 0
    assert bodies == [{"graph": {}, "options": {"capacity": 2048}}] * 2
