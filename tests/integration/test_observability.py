"""Alert rules, dashboard and scrape configuration: what they name is what the service says of itself."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.telemetry.metrics import Metrics
from tests.support.server import PATIENCE, ROOT, Server

FOLDER = ROOT / "deploy/observability"
RUNBOOK = ROOT / "docs/how-to/runbook.md"
#: A metric's name, with the labels that an expression chooses by.
CHOSEN = re.compile(r"\b((?:arenaplan|process)_\w+|up\b)(?:\{([^}]*)\})?")
#: Of every target: Prometheus adds them.
TARGET = {"job", "instance"}


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def known(http: httpx.Client) -> dict[str, set[str]]:
    """Every sample's name that the service may give, with its labels."""
    families = list(text_string_to_metric_families(http.get("/metrics").text))
    names = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    # Counters with labels show nothing before they have counted.
    for family in Metrics().registry.collect():
        names |= {sample.name: set(sample.labels) for sample in family.samples}
    return {"up": set(), **names}


@pytest.fixture(scope="module")
def declared() -> dict[str, set[str]]:
    """Makes the events happen that have not happened in this server."""
    metrics = Metrics()
    metrics.answered("/v1/plan", "POST", 200, 0.1)
    metrics.problem("overloaded")
    metrics.worked("plan", "result", 0.1)
    facts = {"solver": "greedy", "status": "optimal", "lower_bound": 1, "arena_bytes": 1}
    metrics.made("plan", facts, 0.1)
    metrics.stage("layout", 0.1)
    metrics.jobs(lambda: {"queued": 1})
    metrics.job_ended("plan", "succeeded", 0.1)
    return {
        sample.name: set(sample.labels) for family in metrics.registry.collect() for sample in family.samples
    }


def chosen(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Names of metrics with the labels that are asked of them."""
    for name, labels in CHOSEN.findall(expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]~?", labels))


def check(expressions: list[str], names: dict[str, set[str]]) -> None:
    assert expressions
    for expression in expressions:
        for name, labels in chosen(expression):
            assert name in names, expression
            assert labels <= names[name] | TARGET, expression


def test_rules_name_what_there_is(
    rules: list[dict[str, Any]], known: dict[str, set[str]], declared: dict[str, set[str]]
) -> None:
    check([rule["expr"] for rule in rules], known | declared)


def test_the_dashboard_names_what_there_is(
    dashboard: dict[str, Any], known: dict[str, set[str]], declared: dict[str, set[str]]
) -> None:
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    check([target["expr"] for target in targets], known | declared)
    legends = [
        (set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])), target["expr"]) for target in targets
    ]
    for labels, expression in legends:
        grouped = set(re.findall(r"\w+", ",".join(re.findall(r"by \(([^)]*)\)", expression))))
        assert labels <= grouped | TARGET, expression


def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(identities) == len(set(identities))


def test_every_alert_has_its_section(rules: list[dict[str, Any]]) -> None:
    text = RUNBOOK.read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (Arenaplan\w+)$", text, re.MULTILINE))
    assert headings == {rule["alert"] for rule in rules}
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_what_is_scraped_is_there(http: httpx.Client) -> None:
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    assert configuration["rule_files"] == ["alerts.yml"]
    (scraped,) = configuration["scrape_configs"]
    assert scraped["job_name"] == "arenaplan"
    assert http.get(scraped["metrics_path"]).status_code == 200


def test_labels_take_few_values(http: httpx.Client) -> None:
    """Paths and names that callers make up are in no label."""

    def ask(first: int) -> str:
        for number in range(first, first + 15):
            http.get(f"/v1/plans/{number:064x}")
            http.get(f"/made-up/{number}")
            http.request(f"VERB{number}", "/v1/plan")
        return http.get("/metrics").text

    before, text = ask(0), ask(15)
    assert "made-up" not in text
    assert "VERB" not in text
    assert 'route="/v1/plans/{digest}"' in text
    assert len(text.splitlines()) == len(before.splitlines())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool of Prometheus is not installed")
def test_promtool_agrees(http: httpx.Client) -> None:
    """Its own checks of rules and configuration, the tests of the rules, and its reading of the metrics."""

    def promtool(*arguments: str, text: str | None = None) -> None:
        run = subprocess.run(
            ["promtool", *arguments], cwd=FOLDER, input=text, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr

    promtool("check", "rules", "alerts.yml")
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "alerts.test.yml")
    promtool("check", "metrics", text=http.get("/metrics").text)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
def test_prometheus_answers_what_the_dashboard_asks(
    server: Server, http: httpx.Client, tiny: dict[str, Any], dashboard: dict[str, Any], tmp_path: Path
) -> None:
    """A real one scrapes this server, and understands each expression with the variables filled in."""
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(FOLDER / "alerts.yml")]
    configuration["scrape_configs"][0]["static_configs"] = [
        {"targets": [httpx.URL(server.url).netloc.decode()]}
    ]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address={address}"]
    with (
        subprocess.Popen(
            [*command, "--storage.tsdb.path=data", "--log.level=error"], cwd=tmp_path
        ) as process,
        httpx.Client(base_url=f"http://{address}/api/v1", timeout=PATIENCE) as prometheus,
    ):

        def ask(expression: str) -> list[dict[str, Any]]:
            answer = prometheus.get("/query", params={"query": expression}).json()
            assert answer["status"] == "success", (expression, answer)
            found: list[dict[str, Any]] = answer["data"]["result"]
            return found

        def until(wanted: Callable[[], bool]) -> None:
            last = time.monotonic() + PATIENCE
            while True:
                with contextlib.suppress(httpx.TransportError, json.JSONDecodeError):
                    if wanted():
                        return
                assert process.poll() is None
                assert time.monotonic() < last
                # Panels show something of each: an answer, a problem, a job.
                assert http.post("/v1/plan", json={"graph": tiny}).status_code == 200
                assert http.post("/v1/plan", json={}).status_code == 422
                assert http.post("/v1/jobs", json={"task": "plan", "request": {"graph": tiny}}).is_success

        try:
            # Rates need two scrapes.
            until(lambda: bool(ask("rate(arenaplan_jobs_ended_total[1m]) > 0")))
            silent = []
            for panel in dashboard["panels"]:
                filled = [
                    target["expr"].replace("$__rate_interval", "1m").replace("$__range", "1m")
                    .replace("$job", "arenaplan").replace("$instance", ".*")
                    for target in panel.get("targets", ())
                ]  # fmt: skip
                if filled and not sum(len(ask(expression)) for expression in filled):
                    silent.append(panel["title"])
            rules = prometheus.get("/rules").json()["data"]["groups"]
            assert all(rule["health"] != "err" for group in rules for rule in group["rules"])
        finally:
            process.kill()
    assert silent == []
