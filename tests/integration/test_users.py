"""The service as users meet it: keys from the command line, tokens of a provider, hosts, HTTPS, pages."""

from __future__ import annotations

import datetime
import json
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from clients import Client
from service.cli.commands import app
from tests.support.browser import Browser, chromium, running_browser
from tests.support.issuer import running_issuer
from tests.support.server import PATIENCE, Server, running_server

Graph = dict[str, Any]


def arenaplan(*arguments: str, **settings: object) -> Result:
    """A command, with `settings` in its environment."""
    environment = {name: None for name in os.environ if name.startswith("ARENAPLAN_")}
    given = {f"ARENAPLAN_{name.upper()}": str(value) for name, value in settings.items()}
    return CliRunner().invoke(app, arguments, env={**environment, **given})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/arenaplan.db"


def test_a_key_from_its_making_to_its_end(database: str, tiny: Graph) -> None:
    """Made, used, seen in use, revoked, refused: within seconds, and without a restart."""
    with running_server("--host", "0.0.0.0", workers=1, auth="keys", database_url=database) as server:
        made = arenaplan("keys", "create", "--tenant", "acme", "--name", "farm", database_url=database)
        key = made.stdout.strip()
        assert made.exit_code == 0
        assert "shown once" in made.stderr
        assert key not in made.stderr
        with httpx.Client(
            base_url=f"http://127.0.0.1:{httpx.URL(server.url).port}", timeout=PATIENCE
        ) as http:
            assert http.post("/v1/plan", json={"graph": tiny}).status_code == 401
            answer = http.post("/v1/plan", json={"graph": tiny}, headers=bearer(key))
            assert answer.status_code == 200, answer.text
            assert http.get(answer.headers["content-location"], headers=bearer(key)).status_code == 200
            listed = json.loads(arenaplan("keys", "list", "--json", database_url=database).stdout)["keys"]
            assert [(one["id"], one["state"]) for one in listed] == [(key[:19], "good")]
            assert arenaplan("keys", "revoke", key[:19], database_url=database).exit_code == 0
            pause = threading.Event()
            while (refused := http.get("/v1/plans/x", headers=bearer(key))).status_code == 404:
                pause.wait(0.1)  # for SYNC_SECONDS in all
            assert (refused.status_code, "was revoked" in refused.text) == (401, True)
        assert server.stop() == 0
        assert key.rpartition("_")[2] not in json.dumps(server.log)
        lines = [event for event in server.log if event["event"] == "audit"]
    assert {("POST", "/v1/plan", "200", "acme"), ("POST", "/v1/plan", "401", None)} <= {
        (line["action"], line["target"], line["result"], line["tenant"]) for line in lines
    }
    assert all(line["request_id"] for line in lines)
    assert not any(line["action"] == "GET" and line["result"] == "200" for line in lines)
    (used,) = json.loads(arenaplan("tenants", "list", "--json", database_url=database).stdout)["tenants"]
    assert used["usage"]["requests"] >= 2
    assert arenaplan("keys", "list", database_url=database).stdout.count(key[:19]) == 1


def test_tokens_of_a_provider(database: str, tiny: Graph) -> None:
    with running_issuer() as issuer:
        settings = {"auth": "keys+oidc", "oidc_issuer": issuer.url, "oidc_audience": "arenaplan"}
        with running_server(workers=1, database_url=database, **settings) as server, server.client() as http:

            def plan(token: str) -> httpx.Response:
                return http.post("/v1/plan", json={"graph": tiny}, headers=bearer(token))

            assert plan(issuer.token()).headers["x-cache"] == "miss"
            assert plan(issuer.token(sub="a colleague")).headers["x-cache"] == "hit"
            assert plan(issuer.token(tenant="other")).headers["x-cache"] == "miss"
            assert plan(issuer.token(scope="metrics")).status_code == 403
            assert plan(issuer.token(aud="other")).status_code == 401
            event = server.wait_for(lambda event: event.get("tenant") == "other")
            assert event["subject"] == "somebody"


# -------------------------------------------------------------------------------------- listening


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_no_stranger_gets_in_by_mistake(host: str, database: str) -> None:
    refused = arenaplan("serve", "--host", host, "--port", "0", database_url=database)
    assert refused.exit_code == 2
    assert "--allow-anonymous" in refused.stderr
    assert "ARENAPLAN_AUTH" in refused.stderr


def test_who_says_so_may_listen_everywhere() -> None:
    with running_server("--host", "0.0.0.0", "--allow-anonymous", workers=1) as server:
        port = httpx.URL(server.url).port
        assert httpx.get(f"http://127.0.0.1:{port}/v1/plans/x").status_code == 404


def test_hosts(server: Server) -> None:
    """A page of another site could let its name lead to loopback, but cannot change the Host."""

    def ask(url: str, host: str) -> httpx.Response:
        return httpx.get(f"{url}/healthz", headers={"Host": host})

    for host in ("localhost:1", "127.0.0.1", "[::1]:80", "app.localhost", "10.0.0.1"):
        assert ask(server.url, host).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[evil"):
        answer = ask(server.url, host)
        assert (answer.status_code, answer.json()["type"]) == (421, "/problems/unknown-host"), host


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """For this machine, signed by itself."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return pem, private


def test_https(certificate: tuple[Path, Path], tiny: Graph) -> None:
    pem, key = certificate
    with running_server(workers=1, tls_certificate=pem, tls_key=key) as server:
        assert server.url.startswith("https://")
        address = f"https://localhost:{httpx.URL(server.url).port}"
        trusted = ssl.create_default_context(cafile=str(pem))
        with httpx.Client(base_url=address, verify=trusted, timeout=PATIENCE) as http:
            answer = http.post("/v1/plan", json={"graph": tiny})
            assert answer.status_code == 200
            assert answer.headers["strict-transport-security"].startswith("max-age=")
        old = ssl.create_default_context(cafile=str(pem))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with httpx.Client(base_url=address, verify=old, timeout=PATIENCE) as http:
            assert http.get("/healthz").status_code == 200


def test_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    place = tmp_path / "none.pem"
    refused = arenaplan("serve", "--port", "0", tls_certificate=place, tls_key=place, database_url="off")
    assert refused.exit_code == 2
    assert "certificate" in refused.stderr


# ------------------------------------------------------------------------------------------ pages


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("pages are tested in Chromium, which is not installed here")
    with running_browser() as running:
        yield running


def complaints(browser: Browser) -> list[str]:
    """The browser's refusals and failures since the last call, without that of a logo of Redoc's library,
    which would come from elsewhere.
    """
    found = [
        str(event["params"]["entry"]["text"])
        for event in browser.events
        if event["method"] == "Log.entryAdded"
        and event["params"]["entry"]["level"] == "error"
        and "cdn.redoc.ly" not in event["params"]["entry"]["text"]
    ]
    browser.events.clear()
    return found


def test_pages_work_under_their_policies(server: Server, browser: Browser, tiny: Graph) -> None:
    """The policies allow all that a page needs: the browser has no complaints."""
    with Client(server.url) as client:
        digest = client.plan(tiny).digest
    page = browser.page()
    for path, wanted in [
        ("/", "main form"),
        ("/docs", ".opblock-summary-path"),
        ("/redoc", "h1"),
        ("/problems", "dt"),
        ("/problems/quota", "h1"),
        (f"/plans/{digest}", "canvas"),
    ]:
        page.open(f"{server.url}{path}")
        look = (
            f"const look = () => document.querySelector('{wanted}') ? done(1) : setTimeout(look, 20); look();"
        )
        page.run(f"new Promise(done => {{ {look} }})")
        assert complaints(browser) == [], path
    page.open(f"{server.url}/docs")
    assert page.run("fetch('/readyz').then(answer => answer.status)") == 200
    assert complaints(browser) == []
    # A script that somebody had smuggled in would not run.
    page.run(
        "document.body.appendChild(Object.assign(document.createElement('script'), {textContent: 'x = 1'}))"
    )
    assert page.run("typeof x") == "undefined"
    assert any("Content Security Policy" in one for one in complaints(browser))


HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@pytest.mark.parametrize("path", ["/docs", "/healthz", "/v1/plans/x", "/nowhere", "/problems/quota"])
def test_headers_for_browsers(http: httpx.Client, path: str) -> None:
    answer = http.get(path, headers={"Accept": "text/html"})
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'unsafe-inline'" not in policy
    assert "strict-transport-security" not in answer.headers
