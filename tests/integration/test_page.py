"""The page of the real service in a browser: a network is chosen, planned, looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from tests.support.browser import Browser, Page, chromium, running_browser
from tests.support.onnx_models import model_of, node
from tests.support.server import Server, running_server

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="pages are tested in Chromium, which is not installed here"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The page; afterwards: it logged no error, and sent requests to its own service only."""
    opened = browser.page(1000, 1100)
    opened.open(f"{server.url}/")
    yield opened
    assert [one for one in opened.complaints() if not one.startswith(f"asked for {server.url}/")] == []


def wait_for(page: Page, condition: str) -> None:
    """Until an expression of the page is true; a browser that is silent for too long ends the test."""
    look = f"const look = () => ({condition}) ? ready(1) : setTimeout(look, 20); look();"
    page.run(f"new Promise(ready => {{ {look} }})")
    page.settle()


def choose(page: Page, path: Path) -> None:
    found = page.ask("Runtime.evaluate", expression="document.getElementById('file')")
    page.ask("DOM.setFileInputFiles", files=[str(path)], objectId=found["result"]["objectId"])
    wait_for(page, f"chosen.textContent.startsWith({json.dumps(path.name)})")


def plan(page: Page) -> None:
    page.click("#plan")
    wait_for(page, "working.hidden && !(done.hidden && failed.hidden)")


def test_the_example_with_the_keyboard_alone(page: Page) -> None:
    """Planned as a job, whose stages are told; the answer is what is read next, and its report opens."""
    page.run("(window.said = [], new MutationObserver(() => said.push(stage.textContent))"
             ".observe(stage, {childList: true}), example.focus())")  # fmt: skip
    page.press("Enter")
    wait_for(page, "!plan.disabled && document.activeElement === plan")
    page.press("Enter")
    wait_for(page, "!done.hidden")
    assert page.text("#size") == "mnist: 21,613,184 bytes"
    assert page.text("#proof").startswith("Proved: ")
    assert page.run("document.activeElement.id") == "done"
    said = page.run("said")
    assert said[0] == "sending"
    assert len(said) > 1
    assert "21,613,184" in page.text("#arenas")
    page.media(scheme="dark")
    page.open(page.run("report.href"))
    assert "mnist" in page.text("h1")


def test_a_graph_that_does_not_fit(page: Page, tmp_path: Path, tiny: dict[str, Any]) -> None:
    (tmp_path / "graph.json").write_text(json.dumps(tiny), encoding="utf-8")
    choose(page, tmp_path / "graph.json")
    page.run("capacity.value = '100'")
    plan(page)
    assert page.text("#title") == "The arena does not fit the capacity"
    assert "the capacity is 100" in page.text("#detail")
    assert page.run("live.tBodies[0].rows.length") > 0
    assert page.run("document.activeElement.id") == "failed"
    page.run("capacity.value = ''")
    plan(page)
    assert page.run("failed.hidden") is True


def test_a_model(page: Page, tmp_path: Path) -> None:
    """How it is trained is asked for; it is stored at the service, and a job refers to it."""
    weight = np.ones((8, 4), np.float32)
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": (2, 8)}, {"w": weight})
    (tmp_path / "model.onnx").write_bytes(onnx.ModelProto.SerializeToString(model))
    assert page.run("training.hidden") is True
    choose(page, tmp_path / "model.onnx")
    assert page.run("training.hidden") is False
    page.run("loss.value = 'mse'")
    plan(page)
    assert page.run("failed.hidden") is True, page.text("#detail")
    assert page.text("#size").startswith("model: ")


def test_what_is_not_a_graph(browser: Browser, server: Server, tmp_path: Path) -> None:
    """The service says what is wrong; the browser notes that it has refused the request."""
    page = browser.page()
    page.open(f"{server.url}/")
    (tmp_path / "graph.json").write_text('{"format": ', encoding="utf-8")
    choose(page, tmp_path / "graph.json")
    plan(page)
    assert page.text("#title") == "Not strict JSON"
    assert page.text("#detail") != ""


def test_with_a_key(browser: Browser, tmp_path: Path) -> None:
    """The page is open to everybody, what it asks for is not; a report is saved, as a link has no key."""
    database = f"sqlite:///{tmp_path}/jobs.db"
    made = CliRunner().invoke(
        app, ["keys", "create", "--name", "page", "--json"], env={"ARENAPLAN_DATABASE_URL": database}
    )
    assert made.exit_code == 0, made.output
    with running_server(workers=1, auth="keys", database_url=database) as server:
        page = browser.page()
        page.open(f"{server.url}/")
        page.click("#example")
        wait_for(page, "!document.getElementById('plan').disabled")
        plan(page)
        assert page.text("#title") == "The caller is not known"
        page.run(f"key.value = {json.dumps(json.loads(made.stdout)['key'])}")
        plan(page)
        assert page.text("#size") == "mnist: 21,613,184 bytes"
        assert page.run("report.hidden") is True


def test_narrow_and_without_jobs(browser: Browser, tmp_path: Path, tiny: dict[str, Any]) -> None:
    """A service that keeps no jobs answers at once; nothing is wider than a telephone."""
    (tmp_path / "graph.json").write_text(json.dumps(tiny), encoding="utf-8")
    with running_server(workers=1, database_url="off") as server:
        page = browser.page(360, 800)
        page.open(f"{server.url}/")
        choose(page, tmp_path / "graph.json")
        plan(page)
        assert page.text("#size") == f"{tiny['name']}: {page.text('#arenas tbody td')} bytes"
        assert page.run("document.documentElement.scrollWidth") <= 360
