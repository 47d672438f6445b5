"""One server for all tests that only talk to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.server import NO_EVENT, ROOT, Server, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running_server(
        workers=2, body_limit_bytes=1 << 20, max_operations=100, validate_max_steps=6
    ) as running:
        yield running
        assert [event for event in running.log if event["event"] == NO_EVENT] == []


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A fresh copy of the small graph, to break at will."""
    graph: dict[str, Any] = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())["graph"]
    return graph


@pytest.fixture
def slow(tiny: dict[str, Any]) -> dict[str, Any]:
    """A graph whose training steps take long enough to interrupt them."""
    for operand in tiny["operands"]:
        operand["shape"] = [{16: 512, 32: 1024}.get(size, size) for size in operand["shape"]]
    return {**tiny, "name": "slow", "batch": 256}


@pytest.fixture
def mnist() -> dict[str, Any]:
    graph: dict[str, Any] = json.loads((ROOT / "examples/mnist.json").read_bytes())
    return graph
