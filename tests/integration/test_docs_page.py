"""The documentation pages bring everything they need with them."""

from __future__ import annotations

import re

import httpx
import pytest

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
    """Each example of each POST, as "Execute" sends it."""
    document = http.get("/openapi.json").json()
    ran = 0
    for path, methods in document["paths"].items():
        if "post" not in methods:
            continue
        body = methods["post"]["requestBody"]["content"]["application/json"]
        for example in body["examples"].values():
            answer = http.post(path, json=example["value"])
            good = {code for code in methods["post"]["responses"] if code.startswith("2")}
            assert str(answer.status_code) in good, (path, answer.text)
            assert answer.json().get("identical", True), (path, answer.text)
            ran += 1
    assert ran > 8
