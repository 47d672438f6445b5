"""An application over fake tasks, talked to without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from service.http.app import create_app
from service.settings import Settings
from service.store import Store, open_store, upgrade
from tests.support.postgres import Postgres

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
def settings(tmp_path: Path) -> Settings:
    return Settings(
        workers=1,
        body_limit_bytes=1000,
        deadline_grace_seconds=0.0,
        database_url=f"sqlite:///{tmp_path}/arenaplan.db",
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/arenaplan.db"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.new_database()


@pytest.fixture
def empty_store(database_url: str) -> Iterator[Store]:
    """Without any table."""
    store = open_store(database_url)
    yield store
    store.close()


@pytest.fixture
def store(empty_store: Store) -> Store:
    upgrade(empty_store)
    return empty_store


@pytest.fixture
def app(settings: Settings) -> FastAPI:
    return create_app(settings, tasks="tests.support.fake_tasks")


@asynccontextmanager
async def started(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client, without a socket, of the application, which is started with its workers."""
    transport = PatientTransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


@pytest_asyncio.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with started(app) as client:
        yield client
