"""Answers that come before the end of an upload reach HTTP clients that send all of it first."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import httpx
import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from tests.support.server import PATIENCE, running_server

#: The body of every upload: more bytes than the buffers of any socket hold.
BODY: Final = bytes(50_000_000)

#: Posts `BODY` to a URL with headers; the status and the text of the answer.
Post = Callable[[str, Mapping[str, str]], tuple[int, str]]


def by_http_client(url: str, headers: Mapping[str, str]) -> tuple[int, str]:
    parts = httpx.URL(url)
    connection = http.client.HTTPConnection(parts.host, parts.port, timeout=PATIENCE)
    try:
        connection.request("POST", parts.path, BODY, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def by_requests(url: str, headers: Mapping[str, str]) -> tuple[int, str]:
    requests = pytest.importorskip("requests")
    answer = requests.post(url, data=BODY, headers=headers, timeout=PATIENCE)
    return answer.status_code, answer.text


def by_httpx(url: str, headers: Mapping[str, str]) -> tuple[int, str]:
    answer = httpx.post(url, content=BODY, headers=headers, timeout=PATIENCE)
    return answer.status_code, answer.text


def by_httpx_in_chunks(url: str, headers: Mapping[str, str]) -> tuple[int, str]:
    pieces = (BODY[:1_000_000] for _ in range(len(BODY) // 1_000_000))
    answer = httpx.post(url, content=pieces, headers=headers, timeout=PATIENCE)
    return answer.status_code, answer.text


def by_curl(url: str, headers: Mapping[str, str], *more: str) -> tuple[int, str]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    options = [text for name, value in headers.items() for text in ("--header", f"{name}: {value}")]
    command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *options, *more]
    done = subprocess.run(
        [*command, "--data-binary", "@-", url], input=BODY, capture_output=True, check=True, timeout=PATIENCE
    )
    text, _, status = done.stdout.decode().rpartition("\n")
    return int(status), text


def by_curl_at_once(url: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """Curl asks before it sends a large body, unless it is told not to."""
    return by_curl(url, headers, "--header", "Expect:")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of a service that takes bodies of 1 MiB and stores half of that for a tenant; and a key."""
    database = f"sqlite:///{tmp_path_factory.mktemp('refusals')}/arenaplan.db"
    settings = {"body_limit_bytes": 1 << 20, "quota_stored_bytes": 1 << 19, "database_url": database}
    with running_server(workers=1, auth="keys", **settings) as server:
        environment = {name: None for name in os.environ if name.startswith("ARENAPLAN_")}
        created = CliRunner().invoke(
            app,
            ["keys", "create", "--tenant", "acme", "--name", "key"],
            env={**environment, "ARENAPLAN_DATABASE_URL": database},
        )
        assert created.exit_code == 0, created.stderr
        yield server.url, created.stdout.strip()


@pytest.mark.parametrize(
    "post", [by_http_client, by_requests, by_httpx, by_httpx_in_chunks, by_curl, by_curl_at_once]
)
@pytest.mark.parametrize(
    ("path", "known", "status", "code"),
    [
        ("/v1/plan", False, 401, "unauthorized"),
        ("/v1/plan", True, 413, "body-too-large"),
        ("/v1/jobs", True, 429, "quota"),
        ("/v1/nothing", True, 404, "not-found"),
    ],
)
def test_a_refusal_during_an_upload_is_read(
    served: tuple[str, str], post: Post, path: str, known: bool, status: int, code: str
) -> None:
    url, key = served
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if known else {})
    answered, text = post(url + path, headers)
    assert (answered, json.loads(text)["type"]) == (status, f"/problems/{code}")
