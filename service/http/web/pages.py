"""Pages for people, each with the policy that holds its browser to what it needs."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html import escape
from types import MappingProxyType
from typing import Any, Final

from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from service.problems import CATALOGUE, Problem, ProblemType

__all__ = [
    "GuideFiles",
    "guides_page",
    "page_response",
    "problem_page",
    "problem_type_page",
    "problems_page",
    "redoc_page",
    "swagger_page",
]

_INLINE: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)

_CODE: Final = re.compile(r"`([^`]*)`")

#: Where `fastapi_offline` serves scripts, styles and pictures.
_ASSETS: Final = "/static-offline-docs"

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · arenaplan</title>
<link rel="icon" href="{root}/static-offline-docs/favicon.png">
<style>
body {{ font: 1.05rem/1.6 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }}
h1 {{ line-height: 1.25; }}
p, dd, code {{ overflow-wrap: anywhere; }}
code {{ background: #8882; padding: .1em .3em; border-radius: .2em; }}
dt {{ margin-top: 1rem; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #161616; color: #ddd; }} a {{ color: #8bf; }} }}
</style>
</head>
<body>
<header><a href="{root}/">arenaplan</a></header>
<main>
{content}
</main>
</body>
</html>
"""


def page_response(
    html: str, status: int = 200, headers: Mapping[str, str] = MappingProxyType({}), **sources: str
) -> HTMLResponse:
    """A page of this service, in which everything that a caller has sent is escaped.

    Its inline scripts and styles are allowed by their digests; `sources` are further sources by directive, as
    ``connect_src="'self'"``. Nothing else is loaded, framed or sent anywhere.
    """
    allowed = {"script": [sources.pop("script_src", "")], "style": [sources.pop("style_src", "")]}
    for kind, text in _INLINE.findall(html):
        if "'unsafe-inline'" not in allowed[kind][0]:  # beside a digest it would not count
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            allowed[kind].append(f"'sha256-{digest}'")
    rules = {f"{kind}_src": " ".join(filter(None, places)) for kind, places in allowed.items()} | sources
    policy = "; ".join(f"{name.replace('_', '-')} {places}" for name, places in rules.items() if places)
    fixed = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return HTMLResponse(html, status, {**headers, "Content-Security-Policy": f"{fixed}; {policy}"})


def swagger_page(title: str, root: str, parameters: dict[str, Any] | None) -> HTMLResponse:
    """The routes, to be tried out; `root` is the path prefix that a proxy strips."""
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title=title,
        swagger_js_url=f"{root}{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{root}{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{root}{_ASSETS}/favicon.png",
        swagger_ui_parameters=parameters,
    )
    return page_response(
        _in_english(page),
        script_src="'self'",
        style_src="'self' 'unsafe-inline'",  # of its library, which sets styles as it draws
        img_src="'self' data:",
        connect_src="'self'",
    )


def redoc_page(title: str, root: str) -> HTMLResponse:
    """The routes, to be read."""
    page = get_redoc_html(
        openapi_url=f"{root}/openapi.json",
        title=title,
        redoc_js_url=f"{root}{_ASSETS}/redoc.standalone.js",
        redoc_favicon_url=f"{root}{_ASSETS}/favicon.png",
        with_google_fonts=False,
    )
    return page_response(
        _in_english(page),
        script_src="'self'",
        style_src="'unsafe-inline'",  # as above
        img_src="'self' data:",
        connect_src="'self'",
        worker_src="blob:",  # its search
    )


def _in_english(page: HTMLResponse) -> str:
    """FastAPI's page, with its language, by which a screen reader chooses how to speak."""
    return bytes(page.body).decode().replace("<html>", '<html lang="en">', 1)


def _page(title: str, content: str, root: str) -> str:
    return _PAGE.format(title=escape(title), content=content, root=escape(root, quote=True))


def _words(text: str) -> str:
    """Text as HTML, with what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def problem_page(problem: Problem, instance: str, root: str) -> str:
    """The page that tells a person of one failed request; `root` is the path prefix that a proxy strips."""
    prefix, kind = escape(root, quote=True), problem.kind
    remedy = f"<p>{_words(problem.remedy)}</p>\n" if problem.remedy else ""
    content = (
        f"<h1>{escape(kind.title)}</h1>\n"
        f"<p>{_words(problem.detail)}</p>\n"
        f"{remedy}"
        f'<p><a href="{prefix}/">Plan a network</a>, or read '
        f'<a href="{prefix}{kind.uri}">more about this problem</a>.</p>\n'
        f"<p>Status {kind.status}, request <code>{escape(instance)}</code></p>"
    )
    return _page(kind.title, content, root)


def problem_type_page(kind: ProblemType, root: str) -> str:
    """What one problem type means."""
    content = (
        f"<h1>{escape(kind.title)}</h1>\n"
        f"<p><code>{kind.uri}</code>, status {kind.status}</p>\n"
        f"<p>{_words(kind.explanation)}</p>\n"
        f'<p><a href="{escape(root, quote=True)}/problems">All problem types</a></p>'
    )
    return _page(kind.title, content, root)


class GuideFiles(StaticFiles):
    """The built documentation, whose theme has scripts and styles inside its pages."""

    def file_response(self, *arguments: Any, **more: Any) -> Response:
        response = super().file_response(*arguments, **more)
        response.headers["Content-Security-Policy"] = (
            "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline';"
            " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
            " object-src 'none'"
        )
        return response


def guides_page(root: str) -> str:
    """Where the guides are, if this service does not show them."""
    content = (
        "<h1>Guides</h1>\n"
        "<p>This service does not show the guides. They are in the folder <code>docs</code> of the source: "
        "tutorials, one page a task, the reference, and explanations.</p>\n"
        "<p><code>./run docs</code> builds them into the folder <code>site</code>. Whoever runs the service "
        "shows them here with <code>ARENAPLAN_GUIDES=site</code>.</p>\n"
        f'<p>Here are <a href="{escape(root, quote=True)}/docs">the HTTP routes</a>, with examples that run, '
        f'and <a href="{escape(root, quote=True)}/problems">the problems</a>.</p>'
    )
    return _page("Guides", content, root)


def problems_page(root: str) -> str:
    prefix = escape(root, quote=True)
    entries = "\n".join(
        f'<dt><a href="{prefix}{kind.uri}"><code>{kind.code}</code></a> '
        f"{escape(kind.title)} ({kind.status})</dt>"
        f"<dd>{_words(kind.explanation)}</dd>"
        for kind in CATALOGUE.values()
    )
    return _page("Problem types", f"<h1>Problem types</h1>\n<dl>\n{entries}\n</dl>", root)
