"""One server process for the whole table."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.server import NO_EVENT, running_server


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    with running_server(workers=1) as running:
        with running.client() as client:
            yield client
        assert [event for event in running.log if event["event"] == NO_EVENT] == []
