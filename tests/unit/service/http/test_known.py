"""The short way gives the very answers of the long one, and leaves everything else to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

JSON = {"Content-Type": "application/json"}


def same(one: httpx.Response, other: httpx.Response) -> bool:
    """Equal but for the ids of the requests."""
    volatile = ("x-request-id",)
    headers = [
        sorted((k, v) for k, v in answer.headers.items() if k not in volatile) for answer in (one, other)
    ]
    return (one.status_code, one.content, headers[0]) == (other.status_code, other.content, headers[1])


@pytest.mark.parametrize("path", ["/v1/plan", "/plan"])
async def test_the_answer_is_that_of_the_long_way(http: httpx.AsyncClient, path: str) -> None:
    first = await http.post(path, content=b"echo\nplan", headers=JSON)
    short = await http.post(path, content=b"echo\nplan", headers=JSON)
    long = await http.post(
        path, content=b"echo\nplan", headers={"Content-Type": "application/json; charset=utf-8"}
    )
    assert [one.headers["x-cache"] for one in (first, short, long)] == ["miss", "hit", "hit"]
    assert same(short, long)
    tag = {"If-None-Match": short.headers["etag"]}
    short = await http.post(path, content=b"echo\nplan", headers=JSON | tag)
    assert (short.status_code, short.content) == (304, b"")


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
