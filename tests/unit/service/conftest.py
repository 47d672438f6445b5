"""An application over fake tasks, talked to without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from service.http.app import create_app
from service.settings import Settings


@pytest.fixture
def settings() -> Settings:
    return Settings(workers=1, body_limit_bytes=1000, deadline_grace_seconds=0.0)


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    return create_app(settings, tasks="tests.support.fake_tasks")


@pytest_asyncio.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """The application started, with its workers."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client
