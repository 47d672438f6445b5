"""The documentation pages bring everything they need with them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import onnx
import pytest

from tests.support.browser import chromium, running_browser
from tests.support.onnx_models import perceptron
from tests.support.server import Server

#: What may stand between quotes after src, href or url and names another host.
REMOTE = re.compile(r"""(?:src|href|url)\s*[=:(]\s*["']?(?:https?:)?//""", re.IGNORECASE)
LINKS = re.compile(r"""(?:src|href)="([^"#]+)"|url: '([^']+)'""")


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/problems", "/problems/shape-mismatch"])
def test_pages_need_no_other_host(http: httpx.Client, path: str) -> None:
    page = http.get(path, headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert REMOTE.search(page.text) is None
    for groups in LINKS.findall(page.text):
        link = "".join(groups)
        assert link.startswith("/")
        asset = http.get(link)
        assert asset.status_code == 200, link
        assert asset.content


def test_style_sheets_need_no_other_host(http: httpx.Client) -> None:
    sheet = http.get("/static-offline-docs/swagger-ui.css").text
    assert re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet) is None


def test_no_validator_badge(http: httpx.Client) -> None:
    assert '"validatorUrl": null' in http.get("/docs").text


def test_examples_run_as_the_page_sends_them(http: httpx.Client) -> None:
    """Each example of each POST, as "Execute" sends it; the first answer is the first one that is shown.

    Curves and verdicts are not compared: those that are shown are kept in files.
    """
    document = http.get("/openapi.json").json()
    values = {name: one["value"] for name, one in document["components"]["examples"].items()}
    ran = 0
    for path, methods in document["paths"].items():
        if "post" not in methods:
            continue
        body = methods["post"]["requestBody"]["content"]["application/json"]
        answers = []
        for name in body["examples"]:
            answers.append(http.post(path, json=values[name]))
            good = {code for code in methods["post"]["responses"] if code.startswith("2")}
            assert str(answers[-1].status_code) in good, (path, answers[-1].text)
            assert answers[-1].json().get("identical", True), (path, answers[-1].text)
            ran += 1
        if path in ("/plan", "/v1/plan", "/v1/layout", "/v1/validate"):
            shown = [*methods["post"]["responses"]["200"]["content"]["application/json"]["examples"]]
            assert answers[0].json() == values[shown[0]]
            assert all(values[name] in [answer.json() for answer in answers] for name in shown)
    assert ran > 8


def test_a_graph_is_stored_under_the_digest_that_is_shown(http: httpx.Client) -> None:
    """The page indents what it sends by two spaces."""
    document = http.get("/openapi.json").json()
    values = {name: one["value"] for name, one in document["components"]["examples"].items()}
    stored = http.put(
        f"/v1/graphs/{values['graph_digest']}",
        content=json.dumps(values["graph"], indent=2),
        headers={"Content-Type": "application/json"},
    )
    assert stored.status_code in (201, 204), stored.text


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed here")
def test_try_it_out_plans_a_model_with_a_loss(server: Server, tmp_path: Path) -> None:
    onnx.save(perceptron(), tmp_path / "model.onnx")
    block = "document.getElementById('operations-plans-plan')"
    with running_browser() as browser:
        page = browser.page()
        page.open(f"{server.url}/docs#/plans/plan")
        page.wait_for(f"{block}?.querySelector('.execute')")
        for element, kind, value in (
            ("select.content-type", "Select", "application/octet-stream"),
            ("tr[data-param-name=loss] select", "Select", "cross-entropy"),
            ("tr[data-param-name=batch] input", "Input", "1..8"),
            ("tr[data-param-name=capacity] input", "Input", "24MiB"),
        ):
            page.run(
                f"(element => {{ Object.getOwnPropertyDescriptor(HTML{kind}Element.prototype, 'value')"
                f".set.call(element, '{value}'); for (const name of ['input', 'change', 'focusout'])"
                f" element.dispatchEvent(new Event(name, {{bubbles: true}})); }})"
                f"({block}.querySelector('.opblock-section {element}'))"
            )
            page.settle()
        file = page.ask("Runtime.evaluate", expression=f"{block}.querySelector('input[type=file]')")
        page.ask(
            "DOM.setFileInputFiles",
            files=[str(tmp_path / "model.onnx")],
            objectId=file["result"]["objectId"],
        )
        page.click(".execute")
        page.wait_for(f"{block}.querySelector('.live-responses-table tbody .response-col_status')")
        assert page.text(".live-responses-table tbody .response-col_status").startswith("200")
        plan = json.loads(page.text(".live-responses-table .microlight"))
    assert (plan["options"]["batch"], plan["options"]["capacity"]) == (8, 24 * 2**20)
