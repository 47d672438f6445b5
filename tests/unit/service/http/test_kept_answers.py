"""Answers that are kept: which requests get them, and how they are counted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

JSON = {"Content-Type": "application/json"}


async def test_both_addresses_share_an_answer(http: httpx.AsyncClient) -> None:
    first = await http.post("/plan", content=b"echo\nplan", headers=JSON)
    second = await http.post(
        "/v1/plan", content=b"echo\nplan", headers={"Content-Type": "application/json; charset=utf-8"}
    )
    assert [one.headers["x-cache"] for one in (first, second)] == ["miss", "hit"]
    assert first.content == second.content
    unchanged = await http.post(
        "/plan", content=b"echo\nplan", headers=JSON | {"If-None-Match": second.headers["etag"]}
    )
    assert (unchanged.status_code, unchanged.content) == (304, b"")


async def test_a_body_in_pieces(http: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"echo\n", b"in ", b"pieces"):
            yield piece

    whole = await http.post("/v1/plan", content=b"echo\nin pieces", headers=JSON)
    parts = await http.post("/v1/plan", content=pieces(), headers=JSON)
    assert (whole.content, parts.content) == (b"in pieces", b"in pieces")
    assert parts.headers["x-cache"] == "hit"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 415), ({"Content-Type": "text/plain"}, 415), (JSON | {"Content-Encoding": "gzip"}, 415)],
)
async def test_a_known_body_that_is_declared_as_something_else(
    http: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    assert (await http.post("/v1/plan", content=b"echo\nknown", headers=JSON)).status_code == 200
    assert (await http.post("/v1/plan", content=b"echo\nknown", headers=headers)).status_code == status


async def test_other_methods_and_routes(http: httpx.AsyncClient) -> None:
    await http.post("/v1/plan", content=b"echo\nother", headers=JSON)
    assert (await http.put("/v1/plan", content=b"echo\nother", headers=JSON)).status_code == 405
    assert (await http.post("/v1/plan/", content=b"echo\nother", headers=JSON)).status_code in (307, 404)


async def test_it_is_counted_as_its_route(http: httpx.AsyncClient, app: FastAPI) -> None:
    for _ in range(3):
        await http.post("/v1/plan", content=b"echo\ncounted", headers=JSON)
    text = (await http.get("/metrics")).text
    assert 'arenaplan_requests_total{method="POST",route="/v1/plan",status="200"} 3.0' in text
    assert 'arenaplan_cache_requests_total{outcome="hit"} 2.0' in text
