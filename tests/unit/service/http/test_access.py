"""Every route of the application, asked by everybody who must not get in. Made from the routes themselves:
a new one is closed, or this test wants to know what it is for.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI
from starlette.routing import Mount
from structlog.testing import capture_logs

from service.auth import table
from service.auth.principal import ALL_SCOPES, needed_scope
from service.auth.table import Key, Tenant, new_key
from service.http.app import create_app
from service.http.examples import example
from service.settings import Settings
from service.store import open_database
from solver import documents, pipeline
from solver.exporters import EXPORTERS
from solver.plan import PlanOptions
from tests.support.server import PATIENCE
from tests.unit.service.conftest import started

#: Open to everybody, as they say nothing about anybody. Whoever opens another route has to say so here.
PUBLIC = {
    "/", "/docs", "/guides/", "/healthz", "/openapi.json", "/page/{name}", "/problems", "/problems/{code}",
    "/readyz", "/redoc", "/static-offline-docs/{file}", "/v1/schemas", "/v1/schemas/{name}",
}  # fmt: skip
#: In all that belongs to the first tenant, and in no answer to anybody else.
MARK = "mark-of-the-first-tenant"


@dataclass
class Owned:
    """What the first tenant has: values of the parameters of paths, by the beginning of the path."""

    values: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def things(self) -> set[str]:
        """What is named by what is in it, or by chance."""
        return {
            value
            for values in self.values.values()
            for value in values.get("digest", []) + values.get("id", [])
        }

    def paths(self, template: str) -> Iterator[str]:
        """The template with everything that the tenant has in its places."""
        found = [template]
        for part in [part for part in template.split("/") if part.startswith("{")]:
            name = part.strip("{}").partition(":")[0]
            beginning = max((b for b in self.values if template.startswith(b)), key=len)
            assert name in self.values[beginning], f"tell this test what {part} of {template} may be"
            found = [path.replace(part, value) for path in found for value in self.values[beginning][name]]
        yield from found


def graph(name: str) -> dict[str, Any]:
    return {**example("tiny")["graph"], "name": name}


#: Stored by the first tenant.
GRAPH = json.dumps(graph(MARK)).encode()


def body(path: str, mark: str) -> Any:
    """A request that the route takes, and that says who has sent it."""
    kind = path.removeprefix("/v1")
    if kind in ("/plan", "/tradeoff"):
        return {"graph": graph(mark)}
    if kind == "/explain":
        return {"graph": graph(mark), "options": {"capacity": 10_000}}
    if kind == "/program":
        return {"program": {**example("momentum")["program"], "name": mark}}
    if kind == "/layout":
        problem = example("buffers")["problem"]
        buffers = [{**buffer, "id": f"{mark}-{k}"} for k, buffer in enumerate(problem["buffers"])]
        return {"problem": {**problem, "buffers": buffers}}
    if kind == "/validate":
        made = pipeline.plan(documents.load_graph(graph(mark)), PlanOptions(solver="greedy"))
        return {"graph": graph(mark), "plan": json.loads(documents.dump_plan(made)), "steps": 1}
    if kind == "/jobs":
        return {"task": "plan", "request": {"graph": graph(mark)}}
    raise AssertionError(f"tell this test what {path} takes")


class Keys:
    """A key of each kind, by name; `text` is what is sent."""

    def __init__(self, url: str) -> None:
        self.text: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        store = open_database(url)
        now = time.time()
        with store.transaction() as connection:
            for name, tenant, scopes, ends in [
                ("first", "first", ALL_SCOPES, None),
                ("second", "second", ALL_SCOPES, now + 3600),
                ("expired", "first", ALL_SCOPES, now - 1),
                ("revoked", "first", ALL_SCOPES, None),
                ("disabled", "gone", ALL_SCOPES, None),
                *((f"only {one}", "first", frozenset({one}), None) for one in ALL_SCOPES),
            ]:
                made = new_key()
                key = Key(made.id, tenant, f"subject {name}", scopes, made.digest, now, ends)
                table.add_key(connection, key)
                self.text[name], self.ids[name] = made.text, made.id
            table.revoke_key(connection, self.ids["revoked"], now)
            table.set_tenant(connection, Tenant("gone", disabled=True))
        store.close()
        self.text["unknown"] = new_key().text
        self.text["another secret"] = f"ap_{self.ids['first']}_{'0' * 64}"
        self.text["cut off"] = self.text["first"][:-1]
        self.text["a token"] = "eyJhbGciOiJub25lIn0.e30."


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    place: Path = tmp_path_factory.mktemp("users")
    return f"sqlite:///{place}/arenaplan.db"


@pytest.fixture(scope="module")
def keys(url: str) -> Keys:
    return Keys(url)


@pytest.fixture(scope="module")
def app(url: str, keys: Keys) -> FastAPI:
    """With real workers: what is exported and validated is what would leak."""
    return create_app(Settings(workers=1, auth="keys", database_url=url))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with started(app) as client:
        yield client


def bearer(token: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {token}")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owned(http: httpx.AsyncClient, keys: Keys) -> Owned:
    """Things of the first tenant."""
    headers = bearer(keys.text["first"])
    plans = []
    for path in ("/v1/plan", "/v1/program"):
        made = await http.post(path, json=body(path, MARK), headers=headers)
        assert made.status_code == 200, made.text
        plans.append(made.json()["digest"])
    layout = await http.post("/v1/layout", json=body("/v1/layout", MARK), headers=headers)
    assert layout.status_code == 200, layout.text
    digest = hashlib.sha256(GRAPH).hexdigest()
    typed = [*headers, ("Content-Type", "application/json")]
    put = await http.put(f"/v1/graphs/{digest}", content=GRAPH, headers=typed)
    assert put.status_code == 201, put.text
    job = (await http.post("/v1/jobs", json=body("/v1/jobs", MARK), headers=headers)).json()
    async with asyncio.timeout(PATIENCE):
        await http.get(f"/v1/jobs/{job['id']}/events", headers=headers)  # until it is finished
    formats = [*EXPORTERS, "difference", "document"]
    return Owned(
        {
            "/v1/plans": {"digest": plans, "format": formats},
            "/plans": {"digest": plans},
            "/v1/layouts": {"digest": [layout.json()["digest"]]},
            "/v1/graphs": {"digest": [digest]},
            "/v1/jobs": {"id": [job["id"]]},
            "/v1/schemas": {"name": ["graph"]},
            "/problems": {"code": ["quota"]},
            "/page": {"name": ["page.js"]},
            "/static-offline-docs": {"file": ["favicon.png"]},
        }
    )


@dataclass(frozen=True)
class Route:
    method: str
    template: str


def routes(app: FastAPI) -> list[Route]:
    """Of all paths, also those in routers that the application includes; a directory has files."""
    found, rest = [], list(app.routes)
    while rest:
        route = rest.pop(0)
        if included := getattr(route, "original_router", None):
            rest += included.routes
            continue
        template = str(getattr(route, "path", ""))
        assert template.startswith("/"), route
        if isinstance(route, Mount):
            template += "/{file}"
        found += [Route(method, template) for method in sorted(getattr(route, "methods", None) or {"GET"})]
    return sorted(set(found), key=lambda one: (one.template, one.method != "POST", one.method))


@dataclass(frozen=True)
class Asked:
    """One request; `template` is that of its route."""

    method: str
    template: str
    path: str
    content: bytes | None = None

    @property
    def public(self) -> bool:
        return needed_scope(self.path.partition("?")[0]) is None


def requests(app: FastAPI, owned: Owned, mark: str) -> Iterator[Asked]:
    """Every method of every path, with a body where one is sent."""
    for route in routes(app):
        for path in owned.paths(route.template):
            if path.endswith("/difference"):
                path += f"?against={owned.values['/plans']['digest'][0]}"
            if route.method == "DELETE" and mark == MARK:
                continue  # the first keeps its things for the second to ask for
            sent = json.dumps(body(path, mark)).encode() if route.method == "POST" else None
            if route.method == "PUT":
                sent = GRAPH
            yield Asked(route.method, route.template, path, sent)
            if route.method == "GET":
                yield Asked("HEAD", route.template, path)


async def ask(http: httpx.AsyncClient, asked: Asked, headers: Sequence[tuple[str, str]]) -> httpx.Response:
    """The answer to somebody else than the first tenant."""
    headers = [*headers, ("Content-Type", "application/json")]
    answer = await http.request(asked.method, asked.path, content=asked.content, headers=headers)
    for text in (answer.text, str(answer.headers)):
        assert MARK not in text, (asked, headers)
        assert "subject" not in text, (asked, headers)
    return answer


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_what_is_open_to_everybody(app: FastAPI) -> None:
    assert {route.template for route in routes(app) if needed_scope(route.template) is None} == PUBLIC


async def test_public_pages_need_no_key(app: FastAPI, http: httpx.AsyncClient, owned: Owned) -> None:
    for asked in requests(app, owned, "nobody"):
        if asked.public:
            assert (await ask(http, asked, [])).status_code in (200, 307), asked


async def test_the_owner_gets_in_everywhere(
    app: FastAPI, http: httpx.AsyncClient, owned: Owned, keys: Keys
) -> None:
    """Else the refusals below would say nothing."""
    for asked in requests(app, owned, MARK):
        headers = [*bearer(keys.text["first"]), ("Content-Type", "application/json")]
        answer = await http.request(asked.method, asked.path, content=asked.content, headers=headers)
        assert answer.status_code < 400, (asked, answer.text)


#: What is sent, and the status of all answers. What stands in front of the service might have looked at the
#: other one of two keys.
WITHOUT_A_GOOD_KEY = {
    **dict.fromkeys(("nothing", "no scheme", "expired", "revoked", "unknown"), 401),
    **dict.fromkeys(("another secret", "cut off", "a token"), 401),
    "two keys": 400,
    "disabled": 403,
}


@pytest.mark.parametrize("name", WITHOUT_A_GOOD_KEY)
async def test_without_a_good_key(
    app: FastAPI, http: httpx.AsyncClient, owned: Owned, keys: Keys, name: str
) -> None:
    sent = {
        "nothing": [],
        "no scheme": [("Authorization", keys.text["first"])],
        "two keys": [*bearer(keys.text["second"]), *bearer(keys.text["first"])],
    }
    headers = sent[name] if name in sent else bearer(keys.text[name])
    refused = 0
    for asked in requests(app, owned, "nobody"):
        if not asked.public:
            answer = await ask(http, asked, headers)
            assert answer.status_code == WITHOUT_A_GOOD_KEY[name], asked
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"].startswith('Bearer realm="arenaplan"')
            assert answer.headers["content-type"] == "application/problem+json"
            refused += 1
    assert refused >= 50


async def test_with_the_wrong_scope(app: FastAPI, http: httpx.AsyncClient, owned: Owned, keys: Keys) -> None:
    for asked in requests(app, owned, "nobody"):
        needed = needed_scope(asked.path.partition("?")[0])
        for scope in ALL_SCOPES - {needed} if needed else ():
            answer = await ask(http, asked, bearer(keys.text[f"only {scope}"]))
            assert answer.status_code == 403, (asked, scope)
            assert f'scope="{needed}"' in answer.headers["www-authenticate"]


async def test_another_tenant(app: FastAPI, http: httpx.AsyncClient, owned: Owned, keys: Keys) -> None:
    """Nothing of the first is there for the second: it is told what it is told of things that never were."""
    headers = bearer(keys.text["second"])
    for asked in requests(app, owned, "second"):
        if asked.public:
            continue
        answer = await ask(http, asked, headers)
        if asked.method == "PUT":
            assert answer.status_code == 201, asked  # and not 204, which would say that somebody has it
            continue
        if "{" not in asked.template:
            assert answer.status_code < 500, (asked, answer.text)
            continue
        assert answer.status_code == 404, asked
        made_up = dict.fromkeys(owned.things(), "0" * 64)
        path = asked.path
        for value, other in made_up.items():
            path = path.replace(value, other)
        never = await http.request(asked.method, path, headers=headers)
        assert (never.status_code, set(never.headers)) == (404, set(answer.headers))
        if asked.method == "GET":
            assert never.json()["type"] == answer.json()["type"]


async def test_the_first_still_has_what_the_second_asked_for(
    http: httpx.AsyncClient, owned: Owned, keys: Keys
) -> None:
    for template in ("/v1/plans/{digest}", "/v1/layouts/{digest}"):
        for path in owned.paths(template):
            assert (await http.get(path, headers=bearer(keys.text["first"]))).status_code == 200


async def test_nothing_is_found_in_the_cache_of_another(
    http: httpx.AsyncClient, owned: Owned, keys: Keys
) -> None:
    """The very bytes that the first tenant has sent are computed again, and kept apart."""
    for path in ("/v1/plan", "/plan", "/v1/program", "/v1/layout"):
        sent = body(path, MARK)
        first = await http.post(path, json=sent, headers=bearer(keys.text["first"]))
        second = await http.post(path, json=sent, headers=bearer(keys.text["second"]))
        assert first.headers["x-cache"] == "hit"
        assert second.headers["x-cache"] == ("miss" if path != "/plan" else "hit")
        assert second.content == first.content


async def test_what_jobs_refer_to_is_their_own(http: httpx.AsyncClient, owned: Owned, keys: Keys) -> None:
    """A graph of another is not there to be planned, and the same Idempotency-Key is that of another job."""
    graphs = json.dumps({**graph(MARK), "batch": 3}).encode()
    digest = hashlib.sha256(graphs).hexdigest()
    typed = [*bearer(keys.text["first"]), ("Content-Type", "application/json")]
    assert (await http.put(f"/v1/graphs/{digest}", content=graphs, headers=typed)).status_code == 201
    for name, status in (("second", 404), ("first", 202)):
        order = {"task": "plan", "graph": digest}
        answer = await http.post("/v1/jobs", json=order, headers=bearer(keys.text[name]))
        assert answer.status_code == status, answer.text
    ids = set()
    for name in ("first", "second"):
        headers = [*bearer(keys.text[name]), ("Idempotency-Key", "the-same")]
        for _ in range(2):
            answer = await http.post("/v1/jobs", json=body("/v1/jobs", "x"), headers=headers)
            ids.add(answer.json()["id"])
    assert len(ids) == 2


async def test_no_job_by_the_back_door(http: httpx.AsyncClient, owned: Owned, keys: Keys) -> None:
    """A preference is left aside where the key has no scope for jobs."""
    for name, status in (("only plan", 200), ("first", 202)):
        headers = [*bearer(keys.text[name]), ("Prefer", "respond-async")]
        answer = await http.post("/v1/tradeoff", json=body("/v1/tradeoff", "x"), headers=headers)
        assert answer.status_code == status, answer.text


async def test_lists_hold_what_is_ones_own(http: httpx.AsyncClient, owned: Owned, keys: Keys) -> None:
    (job,) = owned.values["/v1/jobs"]["id"]
    listed = {}
    for name in ("first", "second"):
        answer = await http.get("/v1/jobs?limit=1000", headers=bearer(keys.text[name]))
        listed[name] = {one["id"] for one in answer.json()["jobs"]}
    assert job in listed["first"]
    assert not listed["first"] & listed["second"]


async def test_what_is_audited(http: httpx.AsyncClient, owned: Owned, keys: Keys) -> None:
    """All that changes something, and refusals; what was only read is not."""
    with capture_logs() as events:
        for method, name in (("POST", "first"), ("GET", "first"), ("GET", "only metrics")):
            await http.request(method, "/v1/jobs", headers=bearer(keys.text[name]))
    lines = [event for event in events if event["event"] == "audit"]
    assert [(line["action"], line["result"], line["key"]) for line in lines] == [
        ("POST", "415", keys.ids["first"]),
        ("GET", "403", keys.ids["only metrics"]),
    ]
    assert {(line["target"], line["tenant"]) for line in lines} == {("/v1/jobs", "first")}


async def test_no_secret_in_the_logs(app: FastAPI, http: httpx.AsyncClient, owned: Owned, keys: Keys) -> None:
    secrets = {text.rpartition("_")[2] for text in keys.text.values()}
    with capture_logs() as events:
        for text in keys.text.values():
            await http.get(next(owned.paths("/v1/plans/{digest}")), headers=bearer(text))
    said = json.dumps(events, default=str)
    assert keys.ids["first"] in said
    assert not any(secret in said for secret in secrets)
