"""The page of the real service in a browser: a network is chosen, planned, looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from solver.layout import SOLVERS
from solver.options import MEASURES
from solver.targets import TARGETS
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


def choose(page: Page, path: Path) -> None:
    found = page.ask("Runtime.evaluate", expression="document.getElementById('file')")
    page.ask("DOM.setFileInputFiles", files=[str(path)], objectId=found["result"]["objectId"])
    page.wait_for(f"chosen.textContent.startsWith({json.dumps(path.name)})")


def plan(page: Page) -> None:
    page.click("#plan")
    page.wait_for("working.hidden && !(done.hidden && failed.hidden)")


def test_the_example_with_the_keyboard_alone(page: Page) -> None:
    """Planned as a job, whose stages are told; the answer is what is read next, and its report opens."""
    page.run("(window.said = [], new MutationObserver(() => said.push(stage.textContent))"
             ".observe(stage, {childList: true}), example.focus())")  # fmt: skip
    page.press("Enter")
    page.wait_for("document.activeElement === plan")
    page.press("Enter")
    page.wait_for("!done.hidden")
    assert page.text("#size") == "mnist: 21,613,184 bytes (20.6 MiB)"
    assert page.text("#proof").startswith("Proved: ")
    assert page.run("document.activeElement.id") == "done"
    said = page.run("said")
    assert said[:2] == ["mnist.json is chosen.", "sending"]
    assert len(said) > 3
    assert said[-1] == ""
    assert "21,613,184 (20.6 MiB)" in page.text("#arenas")
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
    assert page.run("capacity.getAttribute('aria-invalid')") == "true"
    assert page.run("live.tBodies[0].rows.length") > 0
    assert page.run("document.activeElement.id") == "failed"
    page.run("capacity.value = ''")
    plan(page)
    assert page.run("failed.hidden") is True
    assert page.run("capacity.getAttribute('aria-invalid')") is None


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


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (b'{"format": ', "(line 1, column 12)"),
        (b'{\n  "format": "arenaplan.graph",\n  "version": 1\n  "name": "x"}', "(line 4, column 3)"),
        (b'{"name": 1,\n "name": 2}', 'Key "name" stands twice in one object (line 2, column 2).'),
        (b'{"a": NaN}', "NaN is not a JSON number (line 1, column 7)."),
        (b'{"a": 1}}', "(line 1, column 9)"),
        (b'\xef\xbb\xbf{"a": 1}', "starts with a byte order mark"),
        (b'{"a": "\xff"}', "Byte 7 of the document (line 1) is not UTF-8."),
    ],
)
def test_what_is_not_json_is_told_in_lines_of_the_file(
    browser: Browser, server: Server, tmp_path: Path, text: bytes, detail: str
) -> None:
    """The file stands inside of a request; the place of the mistake is the one in the file all the same."""
    page = browser.page()
    page.open(f"{server.url}/")
    (tmp_path / "graph.json").write_bytes(text)
    choose(page, tmp_path / "graph.json")
    plan(page)
    assert page.text("#title") == "Not strict JSON"
    assert detail in page.text("#detail")


def test_what_is_wrong_in_a_graph_is_found_in_the_file(
    browser: Browser, server: Server, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    page = browser.page()
    page.open(f"{server.url}/")
    tiny["operations"][1]["type"] = "Gemmm"
    (tmp_path / "graph.json").write_text(json.dumps(tiny), encoding="utf-8")
    choose(page, tmp_path / "graph.json")
    plan(page)
    assert page.text("#title") == "Unknown operator"
    assert page.text("#where") == "In graph.json: /operations/1/type"


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
        page.wait_for("chosen.textContent.startsWith('mnist.json')")
        plan(page)
        assert page.text("#title") == "The caller is not known"
        assert page.run("access.open") is True
        page.run(f"key.value = {json.dumps(json.loads(made.stdout)['key'])}")
        plan(page)
        assert page.text("#size") == "mnist: 21,613,184 bytes (20.6 MiB)"
        assert page.run("report.hidden") is True


def test_narrow_and_without_jobs(browser: Browser, tmp_path: Path, tiny: dict[str, Any]) -> None:
    """A service that keeps no jobs answers at once; nothing is wider than a telephone."""
    (tmp_path / "graph.json").write_text(json.dumps(tiny), encoding="utf-8")
    with running_server(workers=1, database_url="off") as server:
        page = browser.page(360, 800)
        page.open(f"{server.url}/")
        choose(page, tmp_path / "graph.json")
        plan(page)
        size, _, unit = page.text("#arenas tbody td").partition(" ")
        assert page.text("#size") == f"{tiny['name']}: {size} bytes {unit}"
        assert unit == "(11.3 KiB)"
        assert page.run("document.documentElement.scrollWidth") <= 360


def test_every_target_and_solver_is_offered_and_explained(page: Page) -> None:
    for select, names in (("target", TARGETS), ("solver", SOLVERS)):
        offered = page.run(f"[...{select}.options].map(one => one.value)")
        assert sorted(offered) == sorted(names)
        assert page.run(f"document.getElementById('{select}-help').textContent !== ''")
    assert page.run("[target.value, solver.value]") == ["reference", "portfolio"]
    assert page.run("advanced.open") is False


def test_measures_are_the_planners_or_chosen_by_hand(page: Page) -> None:
    """Every measure has a box; the plan says which of them it was made with."""
    boxes = "[...document.querySelectorAll('#only input')]"
    assert page.run(f"{boxes}.map(one => one.value)") == list(MEASURES)
    page.click("#example")
    page.wait_for("chosen.textContent.startsWith('mnist.json')")
    for measures, capacity, size in (
        ("as_written", "", "21,613,184 bytes (20.6 MiB)"),
        ("only", "", "20,578,944 bytes (19.6 MiB)"),
        ("", "17.5MB", "17,398,400 bytes (16.6 MiB)"),
    ):
        page.run(f"(measures.value = {json.dumps(measures)}, measures.dispatchEvent(new Event('change')))")
        assert page.run("only.hidden") is (measures != "only")
        page.run(f"{boxes}.forEach(one => {{ one.checked = one.value === 'fit_scratch'; }})")
        page.run(f"capacity.value = {json.dumps(capacity)}")
        plan(page)
        assert page.text("#size") == f"mnist: {size}"
        taken = page.text("#taken")
        assert taken.startswith("Measures: ") is bool(measures != "as_written")
        assert ("less scratch" in taken) is (measures == "only")
        assert ("steps that run again" in taken) is (measures == "")


def test_the_keyboard_reaches_everything_in_the_order_of_reading(page: Page) -> None:
    page.run("advanced.open = access.open = true")
    reached: list[str] = []
    while (name := page.run("document.activeElement.id")) != "plan":
        page.press("Tab")
        reached.append(page.run("document.activeElement.id || document.activeElement.innerText"))
        assert page.run(
            "document.activeElement.matches(':focus-visible, #file') &&"
            " getComputedStyle(document.activeElement.id === 'file' ? drop : document.activeElement)"
            ".outlineStyle !== 'none'"
        ), reached[-1]
        assert len(reached) < 40, name
    assert reached == [
        "Guides", "HTTP routes", "Problems", "The guides", "file", "example", "capacity", "batch", "Advanced",
        "target", "solver", "measures", "rewrite", "Access key", "key", "plan",
    ]  # fmt: skip
    page.press("Enter")
    assert page.run("[document.activeElement.id, stage.innerText]") == ["file", "Choose a network first."]


def test_a_screen_reader_hears_a_name_for_everything(page: Page) -> None:
    page.run("advanced.open = access.open = true")
    spoken = page.spoken()
    for role, name in spoken:
        if role in ("button", "checkbox", "combobox", "heading", "link", "textbox", "DisclosureTriangle"):
            assert name, (role, spoken)
    assert {("textbox", "Capacity"), ("textbox", "Key"), ("button", "Plan"), ("group", "Network")} <= {
        *spoken
    }
    assert [name for role, name in spoken if role == "combobox"] == ["Target", "Solver", "Measures"]
    page.click("#example")
    plan(page)
    assert page.run("document.activeElement.id") == "done"
    assert ("region", "mnist: 21,613,184 bytes (20.6 MiB)") in page.spoken()


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1000), ("dark", 1000), ("light", 375), ("dark", 375)]
)
def test_nothing_keeps_people_from_using_the_pages(
    browser: Browser, server: Server, scheme: str, width: int
) -> None:
    """axe-core has nothing to say of any page of ours in any state, and none is wider than its window."""
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    page = browser.page(width, 900)
    page.media(scheme=scheme)

    def check(state: str) -> None:
        page.run(f"{axe};1")
        found = page.run(
            "axe.run({resultTypes: ['violations']}).then(result => result.violations"
            ".map(one => [one.impact, one.id, one.nodes.map(node => node.html)]))"
        )
        assert found == [], state
        assert page.run("document.documentElement.scrollWidth") <= width, state

    page.open(f"{server.url}/")
    check("start")
    page.run("advanced.open = access.open = true")
    page.click("#example")
    page.wait_for("chosen.textContent.startsWith('mnist.json')")
    check("chosen")
    plan(page)
    check("done")
    page.run("capacity.value = '100'")
    plan(page)
    check("failed")
    for path in ("plans/x", "nowhere", "guides/", "problems", "problems/shape-mismatch"):
        page.open(f"{server.url}/{path}")
        assert page.run("document.body.innerText.length") > 100
        check(path)
