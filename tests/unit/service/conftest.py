"""An application over fake tasks, talked to without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from service.http.app import create_app
from service.settings import Settings

#: Ends a request that hangs; nothing here takes this long.
PATIENCE = 60.0


class PatientTransport(httpx.ASGITransport):
    """A broken pool fails the test that asks it, with the request in the message."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            async with asyncio.timeout(PATIENCE):
                return await super().handle_async_request(request)
        except TimeoutError:
            message = f"no answer to {request.method} {request.url.path} within {PATIENCE:g} s"
            raise AssertionError(message) from None


@pytest.fixture
def settings() -> Settings:
    return Settings(workers=1, body_limit_bytes=1000, deadline_grace_seconds=0.0)


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    return create_app(settings, tasks="tests.support.fake_tasks")


@pytest_asyncio.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """The application started, with its workers."""
    transport = PatientTransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client
