"""Routes and problems of the service, from its OpenAPI document and its catalogue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from docs.generator.documents import bounds
from docs.generator.markdown import code, page, table
from service.http.app import create_app
from service.problems import CATALOGUE
from service.settings import Settings

__all__ = ["problems", "routes"]

#: Longest example that is shown whole; the service's own page has them all.
SHOWN = 1500


def routes() -> str:
    """Every route with its parameters, body, and answers."""
    document = create_app(Settings()).openapi()
    found = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    rows = [
        (f"[`{method} {path}`](#{_anchor(method, path)})", operation["summary"])
        for method, path, operation in found
    ]
    return page(
        "HTTP routes",
        "A running service shows the same with examples that run from the page at `/docs`, and the document "
        "behind it at `/openapi.json`.",
        table(("route", "what it does"), rows),
        "Every answer carries `X-Request-ID`, which a request may give. Plans and layouts have an "
        "`ETag`, the SHA-256 of "
        "what was made; `If-None-Match` answers 304. `X-Cache: hit` marks what was not computed "
        "again. `Arenaplan-Notes` has the notes on the import of a model, as a JSON array of sentences. "
        "Errors are "
        "[problems](problems.md).",
        *(_route(document, method, path, operation) for method, path, operation in found),
    )


def _anchor(method: str, path: str) -> str:
    return "-".join([method.lower(), *re.findall(r"\w+", path)])


def _route(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"## {method} {path} {{ #{_anchor(method, path)} }}", operation.get("description", "")]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        parts += _body(document, body)
    query = [one["$ref"].rpartition("/")[2] for one in operation.get("parameters", ()) if "$ref" in one]
    if query:
        parts.append(
            f"Query of a [model](options.md#of-a-model-of-another-tool): {', '.join(map(code, query))}."
        )
    rows = [(status, answer["description"]) for status, answer in sorted(operation["responses"].items())]
    return "\n\n".join([*parts, table(("status", "answer"), rows)])


def _body(document: dict[str, Any], body: dict[str, Any]) -> Iterator[str]:
    if "$ref" not in body["schema"]:  # bytes that are stored as they are
        return
    name = body["schema"]["$ref"].rsplit("/", 1)[1]
    schema = document["components"]["schemas"][name]
    required = set(schema.get("required", ()))
    rows = [
        (code(key), _kind(rule), "yes" if key in required else "no", rule.get("description", ""))
        for key, rule in schema["properties"].items()
    ]
    yield table(("field of the body", "values", "required", "meaning"), rows)
    for name in body.get("examples", {}):
        example = document["components"]["examples"][name]
        text = json.dumps(example["value"], indent=1)
        if len(text) <= SHOWN:
            yield f"{example['summary']}:\n\n```json\n{text}\n```"


def _kind(rule: dict[str, Any]) -> str:
    """Documents have pages of their own, so only their names are given here."""
    text = bounds(rule)
    return text if "](#" not in text else text.split("](#")[0].replace("[", "")


def problems() -> str:
    """Every problem type that the service answers."""
    parts = [
        f"## {kind.title} {{ #{code_} }}\n\n`{kind.uri}`, status {kind.status}. {kind.explanation}"
        for code_, kind in CATALOGUE.items()
    ]
    return page(
        "Problems",
        "Errors of the service are RFC 9457 problem details (`application/problem+json`): `type`, "
        "`title`, `status`, "
        "`detail`, `instance` (the request), `pointer` (RFC 6901, into the request) and `remedy`. "
        "Types are stable; "
        "titles and explanations may be reworded. `GET /problems/{code}` answers with what stands here.",
        *parts,
    )
