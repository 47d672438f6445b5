"""What the routes do with whatever the workers answer; the workers run fake tasks."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI, Request
from structlog.testing import capture_logs

from service.http.app import create_app
from service.http.cache import MOST_KEYS
from service.http.routers.plan import plan
from service.problems import CATALOGUE, MEDIA_TYPE
from service.settings import Settings
from solver.version import version
from tests.support.every import every
from tests.unit.service.conftest import started

#: Ends a test that hangs; nothing here takes this long.
PATIENCE = 60.0

JSON = {"Content-Type": "application/json"}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def talking(
    settings: Settings, tasks: str = "tests.support.fake_tasks"
) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """An application with its workers, and a client of it."""
    app = create_app(settings, tasks=tasks)
    async with asyncio.timeout(PATIENCE), started(app) as http:
        yield app, http


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """One for all tests of this file: each sends bodies of its own."""
    place = tmp_path_factory.mktemp("app")
    settings = Settings(
        workers=1,
        body_limit_bytes=1000,
        deadline_grace_seconds=0.0,
        database_url=f"sqlite:///{place}/arenaplan.db",
    )
    app = create_app(settings, tasks="tests.support.fake_tasks")

    # Routes of bugs stand in front of the others.
    @app.get("/bug")
    async def bug() -> None:
        raise RuntimeError("secret")

    @app.get("/number/{value}")
    async def number(value: int) -> int:
        return value

    return app


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with started(app) as client:
        yield client


async def post(
    http: httpx.AsyncClient, body: str | bytes, path: str = "/plan", **headers: str
) -> httpx.Response:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post(path, content=body, headers=JSON | more)


def problem(response: httpx.Response) -> str:
    """Code of the problem that a response is, after checking its form."""
    assert response.headers["content-type"] == MEDIA_TYPE
    document = response.json()
    assert document["status"] == response.status_code
    assert document["instance"] == f"urn:request:{response.headers['x-request-id']}"
    code = str(document["type"]).removeprefix("/problems/")
    assert document["title"] == CATALOGUE[code].title
    return code


async def test_a_plan_is_kept(http: httpx.AsyncClient) -> None:
    """Not planned twice, found by its digest, and by what it means in another spelling."""
    first = await post(http, "echo\n{}")
    assert (first.status_code, first.content) == (200, b"{}")
    assert first.headers["content-type"] == "application/json"
    assert first.headers["etag"] == '"dddddddd"'
    assert first.headers["content-location"] == "/v1/plans/dddddddd"
    assert first.headers["x-content-type-options"] == "nosniff"
    again = await post(http, "echo\n{}", "/v1/plan")
    assert [answer.headers["x-cache"] for answer in (first, again)] == ["miss", "hit"]
    kept = await http.get(first.headers["content-location"])
    for answer in (again, kept):
        assert (answer.content, answer.headers["etag"]) == (first.content, first.headers["etag"])
    answers = [
        await post(http, f"offer\n{text}") for text in ("plan", "another spelling", "another spelling")
    ]
    assert {answer.content for answer in answers} == {b"plan"}
    assert [answer.headers["x-cache"] for answer in answers] == ["miss", "hit", "hit"]


async def test_no_number_of_spellings_makes_a_request_new(http: httpx.AsyncClient) -> None:
    """Only so many are remembered, but what they mean always is."""
    first = await post(http, "offer\nplan")
    for number in range(3 * MOST_KEYS):
        answer = await post(http, f"offer\nspelling {number}")
        assert (answer.content, answer.headers["x-cache"]) == (first.content, "hit")


async def test_not_modified(http: httpx.AsyncClient) -> None:
    with every() as case:
        for tag in ('"dddddddd"', 'W/"dddddddd"', '"x", "dddddddd"', "*"):
            with case(tag):
                computed = await post(http, "echo\n{}", If_None_Match=tag)
                kept = await http.get("/v1/plans/dddddddd", headers={"If-None-Match": tag})
                for response in (computed, kept):
                    assert (response.status_code, response.content) == (304, b"")
                    assert response.headers["etag"] == '"dddddddd"'
    assert (await post(http, "echo\n{}", If_None_Match='"other"')).status_code == 200


async def test_a_late_plan_is_an_answer_but_not_kept(http: httpx.AsyncClient) -> None:
    for _ in range(2):
        response = await post(http, "late\n{}")
        assert response.status_code == 200
        assert response.content == b"{}"
        assert response.headers["x-cache"] == "miss"
        assert "content-location" not in response.headers
    assert (await http.get("/v1/plans/late")).status_code == 404


async def test_a_crash_is_503(http: httpx.AsyncClient) -> None:
    response = await post(http, "die")
    assert response.status_code == 503
    assert problem(response) == "worker-lost"
    assert response.headers["retry-after"] == "1"
    assert (await post(http, "echo\n{}")).status_code == 200


async def test_a_bug_in_a_worker_is_500_and_tells_nothing(http: httpx.AsyncClient) -> None:
    response = await post(http, "unknown command")
    assert response.status_code == 500
    assert problem(response) == "internal-error"
    assert "Traceback" not in response.text
    assert "unknown command" not in response.text


async def test_a_problem_of_the_core(http: httpx.AsyncClient) -> None:
    response = await post(http, "problem\nThe shapes differ.")
    assert response.status_code == 422
    assert problem(response) == "shape-mismatch"
    document = response.json()
    assert document["detail"] == "The shapes differ."
    assert document["pointer"] == "/graph"
    assert document["extra"] == 1


async def test_too_large(http: httpx.AsyncClient) -> None:
    for path in ("/plan", "/v1/plan", "/v1/validate"):
        response = await post(http, b"x" * 1001, path)
        assert (response.status_code, problem(response)) == (413, "body-too-large")
        assert response.json()["limit"] == 1000
    assert (await post(http, b"echo\n".ljust(1000))).status_code == 200


async def test_too_large_without_a_length(http: httpx.AsyncClient) -> None:
    read = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 100
            yield b"x" * 100

    response = await http.post("/plan", content=chunks(), headers=JSON)
    assert response.status_code == 413
    assert problem(response) == "body-too-large"


async def test_bodies_beyond_memory_wait_on_disk() -> None:
    """They reach the worker whole, are recognised again, and their room is given back."""
    settings = Settings(workers=1, intake_memory_bytes=0, intake_disk_bytes=300_000)
    text = b"x" * 200_000
    async with talking(settings) as (app, http):
        intake = app.state.arenaplan.intake
        first, second = await post(http, b"echo\n" + text), await post(http, b"echo\n" + text)
        assert first.content == second.content == text
        assert (first.headers["x-cache"], second.headers["x-cache"]) == ("miss", "hit")
        assert (await post(http, b"echo\n" + text, "/v1/validate")).content == text
        refused = await post(http, b"echo\n" + text * 2)
        assert (refused.status_code, problem(refused)) == (429, "too-many-bytes")
        assert refused.headers["retry-after"]
        assert (intake.in_memory, intake.on_disk) == (0, 0)


WRONG: dict[str, tuple[str, bytes, int, str]] = {
    "no JSON": ("/v1/plan", b"{", 400, "invalid-json"),
    "no graph": ("/v1/plan", b"{}", 422, "invalid-request"),
    "an unknown member": ("/v1/layout", b'{"problem": {}, "p": 1}', 422, "invalid-request"),
    "an unknown option": ("/v1/plan", b'{"graph": {}, "options": {"x": 1}}', 422, "invalid-document"),
    "a long deadline": (
        "/v1/program",
        b'{"program": {}, "options": {"deadline_seconds": 1000}}',
        422,
        "invalid-options",
    ),
    "no plan": ("/v1/validate", b'{"graph": {}}', 422, "invalid-request"),
    "no options": ("/v1/explain", b'{"graph": {}}', 422, "invalid-request"),
}


async def test_what_is_plainly_wrong_waits_for_no_worker(app: FastAPI, http: httpx.AsyncClient) -> None:
    await post(http, "echo\n{}")
    async with app.state.arenaplan.pool.lease():
        for path, body, status, code in WRONG.values():
            response = await post(http, body, path)
            assert (response.status_code, problem(response)) == (status, code)


async def test_readiness_tells_overload() -> None:
    async with talking(Settings(workers=1, queue_limit=1)) as (app, http):
        await post(http, "echo\n{}")
        async with app.state.arenaplan.pool.lease():
            waiting = asyncio.create_task(post(http, b"echo\n".ljust(1 << 17)))
            ready = await http.get("/readyz")
            while ready.status_code == 200:
                await asyncio.sleep(0.01)
                ready = await http.get("/readyz")
            assert ready.json()["status"] == "overloaded"
        assert (await waiting).status_code == 200
        assert (await http.get("/readyz")).status_code == 200


async def test_readiness_falls_before_the_service_stops(app: FastAPI, http: httpx.AsyncClient) -> None:
    """Requests are answered all the same while load balancers take notice."""
    await post(http, "echo\n{}")
    app.state.arenaplan.draining = True
    try:
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        assert (await http.get("/healthz")).status_code == 200
        assert (await post(http, "echo\nother")).status_code == 200
    finally:
        app.state.arenaplan.draining = False


async def test_a_body_in_pieces() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"echo\n", b"in ", b"pieces"):
            yield piece

    async with talking(Settings(workers=1)) as (_, http):
        whole = await post(http, b"echo\nin pieces")
        parts = await http.post("/plan", content=pieces(), headers=JSON)
    assert (whole.content, parts.content, parts.headers["x-cache"]) == (b"in pieces", b"in pieces", "hit")


async def test_media_types(http: httpx.AsyncClient) -> None:
    """Also of a body whose answer is known."""
    assert (await post(http, b"echo\n{}")).status_code == 200
    wrong: list[dict[str, str]] = [
        {"Content-Type": kind}
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1")
    ]
    for headers in ({}, *wrong, {"Content-Type": "application/json", "Content-Encoding": "gzip"}):
        response = await http.post("/plan", content=b"echo\n{}", headers=headers)
        assert (response.status_code, problem(response)) == (415, "unsupported-media-type"), headers
        assert response.headers["accept"] == "application/json"
    for declared in ("application/json", "Application/JSON", 'application/json; charset="UTF-8"'):
        response = await http.post("/plan", content=b"echo\n{}", headers={"Content-Type": declared})
        assert response.status_code == 200, declared


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("/nowhere", "not-found", "There is nothing at /nowhere."),
        ("/plans/x", "plan-not-found", "No plan &#x27;x&#x27; is kept here."),
        ("/v1/plans/x", "plan-not-found", "Send the request to /v1/plan again"),
        ("/problems/x", "not-found", "There is no problem type"),
        ("/v1/schemas/none", "not-found", "There is no schema"),
        ("/number/x", "invalid-request", "unable to parse string as an integer"),
        ("/plan", "method-not-allowed", "/plan does not take GET."),
        ("/bug", "internal-error", "that is a bug in the service"),
        (
            "/nowhere/%3Cscript%3Ealert(1)%3C/script%3E",
            "not-found",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
        ),
    ],
)
async def test_a_person_reads_a_page_and_a_program_a_problem(
    http: httpx.AsyncClient, path: str, code: str, text: str
) -> None:
    status = CATALOGUE[code].status
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
    page = await http.get(path, headers={"Accept": browser})
    assert page.status_code == status
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["vary"] == "Accept"
    assert "script-src" not in page.headers["content-security-policy"]
    assert text in page.text
    assert page.headers["x-request-id"] in page.text
    assert page.headers.get("allow") == ("POST" if path == "/plan" else None)
    for accept in ("*/*", "application/json", "application/problem+json"):
        document = await http.get(path, headers={"Accept": accept})
        assert (document.status_code, problem(document)) == (status, code)
        assert document.json()["detail"] in html.unescape(page.text)
        assert document.json().get("pointer") == ("/path/value" if path == "/number/x" else None)
    assert "secret" not in page.text + document.text


async def test_what_is_sent_is_answered_with_a_problem_even_to_a_browser(http: httpx.AsyncClient) -> None:
    response = await post(http, "{", Accept="text/html", Content_Type="text/plain")
    assert response.status_code == 415
    assert problem(response) == "unsupported-media-type"


async def test_the_guides(tmp_path: Path) -> None:
    """The files of a folder; without one, a page that says where they are."""
    (tmp_path / "index.html").write_text("<p>the guides</p>", encoding="utf-8")
    shown, hidden = (create_app(Settings(workers=1, guides=folder)) for folder in (tmp_path, None))
    for app, text in ((shown, "the guides"), (hidden, "ARENAPLAN_GUIDES=site")):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            assert (await http.get("/guides")).headers["location"].endswith("/guides/")
            page = await http.get("/guides/")
            assert page.status_code == 200
            assert text in page.text
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
            assert (await http.get("/guides/nowhere.html")).status_code == 404


async def test_validate(http: httpx.AsyncClient) -> None:
    response = await post(http, 'echo\n{"identical":true}', "/v1/validate")
    assert response.status_code == 200
    assert response.json() == {"identical": True}
    assert "etag" not in response.headers


async def test_validation_has_a_time_limit() -> None:
    async with talking(Settings(workers=1, validate_max_seconds=0.01)) as (_, http):
        response = await post(http, "hang", "/v1/validate")
    assert response.status_code == 422
    assert problem(response) == "time-limit"


async def test_health(http: httpx.AsyncClient) -> None:
    await post(http, "echo\n{}")
    assert (await http.get("/healthz")).json() == {"status": "ok"}
    ready = await http.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {"status": "ready", "workers": 1, "wanted": 1, "jobs": "ready"}


async def test_health_without_supervision() -> None:
    """A supervisor that has ended would leave the service without workers for good: restart it."""
    others = asyncio.all_tasks()
    async with talking(Settings(workers=1), tasks="tests.support.no_such_module") as (_, http):
        assert (await http.get("/healthz")).status_code == 200
        for task in asyncio.all_tasks() - others:
            if "supervise" in str(task.get_coro()):
                task.cancel()
        await asyncio.sleep(0)
        answer = await http.get("/healthz")
        while answer.status_code == 200:
            await asyncio.sleep(0.01)
            answer = await http.get("/healthz")
    assert answer.json() == {"status": "unsupervised"}


async def test_the_head_of_whatever_can_be_got(http: httpx.AsyncClient) -> None:
    await post(http, "echo\n{}")
    for path in (
        "/v1/schemas", "/v1/schemas/graph", "/problems/overloaded", "/v1/plans/dddddddd", "/v1/plans/x",
        "/healthz", "/readyz",
    ):  # fmt: skip
        head, got = await http.head(path), await http.get(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        ours = {name: value for name, value in head.headers.items() if name != "x-request-id"}
        assert ours == {name: value for name, value in got.headers.items() if name != "x-request-id"}, path


async def test_all_methods_of_a_path_are_allowed(http: httpx.AsyncClient) -> None:
    for path, allowed in (
        ("/v1/jobs", "GET, HEAD, POST"),
        ("/v1/jobs/0", "DELETE, GET, HEAD"),
        ("/v1/graphs/0", "DELETE, GET, HEAD, PUT"),
        ("/v1/plan", "POST"),
    ):
        response = await http.options(path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed), path
    for method in ("HEAD", "PUT"):
        response = await http.request(method, "/v1/plan")
        assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_parts_that_do_not_load_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_WARM", '{"compiled_search": false, "cp_sat": true}')
    with capture_logs() as events:
        async with talking(Settings(workers=1, confine_workers=False)) as (_, http):
            answer = await http.get("/readyz")
            while "cp_sat" not in answer.json():
                await asyncio.sleep(0.01)
                answer = await http.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "workers": 1,
        "wanted": 1,
        "jobs": "ready",
        "compiled_search": False,
        "cp_sat": True,
    }
    (said,) = (event for event in events if event["event"] == "worker warmed up")
    assert (said["log_level"], said["compiled_search"], said["cp_sat"]) == ("warning", False, True)


async def test_not_ready_before_the_workers_are() -> None:
    app = create_app(Settings(workers=1), tasks="tests.support.fake_tasks")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200


async def test_request_ids(http: httpx.AsyncClient) -> None:
    given = await http.get("/healthz", headers={"X-Request-ID": "build-7.a"})
    assert given.headers["x-request-id"] == "build-7.a"
    assert len((await http.get("/healthz")).headers["x-request-id"]) == 32
    for bad in ("", "a b", "x" * 129, '"quoted"', "{}"):
        response = await http.get("/healthz", headers={"X-Request-ID": bad})
        assert response.headers["x-request-id"] != bad
        assert len(response.headers["x-request-id"]) == 32


async def test_a_caller_that_leaves_frees_the_worker(app: FastAPI, http: httpx.AsyncClient) -> None:
    """The request gets no answer, and the worker is free for the next one."""
    await post(http, "echo\n{}")
    messages = iter([{"type": "http.request", "body": b"hang", "more_body": False}])

    async def receive() -> dict[str, object]:
        return dict(next(messages, {"type": "http.disconnect"}))

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "app": app, "headers": headers, "state": {"facts": {}}, "method": "POST"}
    scope["query_string"] = b""
    response = await plan(Request(scope, receive))
    assert response.status_code == 499
    async with asyncio.timeout(60):
        assert (await post(http, "echo\nnext")).content == b"next"


async def test_the_page_and_its_parts(http: httpx.AsyncClient) -> None:
    """Nothing inline, nothing from elsewhere: the policy says so, and the page needs no more."""
    page = await http.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'self';")
    for name in re.findall(r'(?:src|href)="(page/[^"]+)"', page.text):
        part = await http.get(f"/{name}")
        assert part.status_code == 200
        again = await http.get(f"/{name}", headers={"If-None-Match": part.headers["etag"]})
        assert again.status_code == 304
    client = await http.get("/page/client.js")
    assert (client.status_code, "generate one from /openapi.json" in client.json()["detail"]) == (404, True)
    assert re.search(r"<script(?![^>]*src=)|<style|style=|onclick=|https?://", page.text) is None


async def test_behind_a_prefix() -> None:
    transport = httpx.ASGITransport(create_app(Settings(workers=1)), root_path="/arena")
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        page = (await http.get("/docs")).text
        assert "'/arena/openapi.json'" in page
        assert '"/arena/static-offline-docs/swagger-ui-bundle.js"' in page
        assert re.search(r'(src|href)="/', (await http.get("/")).text) is None


async def test_every_problem_type_is_answered(http: httpx.AsyncClient) -> None:
    with every() as case:
        for code, kind in CATALOGUE.items():
            with case(code):
                facts = (await http.get(kind.uri)).json()
                assert (facts["type"], facts["status"]) == (kind.uri, kind.status)
                page = await http.get(kind.uri, headers={"Accept": "text/html,*/*"})
                assert page.headers["content-type"].startswith("text/html")
                assert kind.title in page.text


async def test_all_problem_types(http: httpx.AsyncClient) -> None:
    listed = [kind["type"] for kind in (await http.get("/problems")).json()]
    page = (await http.get("/problems", headers={"Accept": "text/html"})).text
    assert listed == [kind.uri for kind in CATALOGUE.values()]
    assert all(uri in page for uri in listed)
    assert (await http.get("/problems/none")).status_code == 404


async def test_schemas(http: httpx.AsyncClient) -> None:
    names = (await http.get("/v1/schemas")).json()["schemas"]
    assert {"graph", "options", "plan", "report"} <= set(names)
    for name in names:
        answer = await http.get(f"/v1/schemas/{name}")
        assert answer.headers["content-type"] == "application/schema+json"
        assert "$schema" in answer.json() or "type" in answer.json()


async def test_version_is_that_of_the_distribution(app: FastAPI) -> None:
    assert app.version == version()
