"""Both kinds of clients: a test that opens or calls one runs for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.scripted_service import Open, Service, asynchronous, blocking


@pytest.fixture(params=[blocking, asynchronous], ids=["blocking", "asynchronous"])
def opened(request: pytest.FixtureRequest) -> Open:
    chosen: Open = request.param
    return chosen


@pytest.fixture
def call(opened: Open) -> Callable[..., Any]:
    """Call one method of a new client of a service."""

    async def called(service: Service, method: str, *arguments: Any, **more: Any) -> Any:
        async with opened(service) as client:
            return await getattr(client, method)(*arguments, **more)

    return called
