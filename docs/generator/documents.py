"""A page for each kind of document, from its committed JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from docs.generator.markdown import code, page, table
from solver.documents import SCHEMAS

__all__ = ["bounds", "pages"]

Schema = Mapping[str, Any]


def pages() -> dict[str, Callable[[], str]]:
    """One page for each schema, and a list of them."""
    named = {
        f"reference/documents/{name.replace('_', '-')}.md": partial(_page, name) for name in sorted(SCHEMAS)
    }
    return {"reference/documents/index.md": _index, **named}


def _index() -> str:
    rows = [
        (
            f"[{_title(name)}]({name.replace('_', '-')}.md)",
            code(_constant(schema, "format")),
            _constant(schema, "version"),
            schema.get("description", "").split("\n")[0],
        )
        for name, schema in sorted(SCHEMAS.items())
    ]
    return page(
        "Documents",
        "Everything that goes in or comes out is strict, versioned JSON: no unknown field, no key "
        "twice, no NaN. "
        "These pages are made from the JSON Schemas that the project commits under "
        "`solver/documents/schemas` "
        "and serves at `/v1/schemas/{name}`. [Versions](../versions.md) says what may change and when.",
        table(("document", "format", "version", "what it is"), rows),
    )


def _constant(schema: Schema, key: str) -> str:
    rule = schema["properties"].get(key, {})
    return str(rule.get("const", " or ".join(map(str, rule.get("enum", ())))))


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _page(name: str) -> str:
    schema = SCHEMAS[name]
    parts = [f"## {kind}\n\n{_described(rules)}" for kind, rules in sorted(schema.get("$defs", {}).items())]
    return page(
        f"{_title(name)} document",
        _described(schema),
        *parts,
        f'## JSON Schema\n\n??? note "The whole schema"\n\n{_indented(json.dumps(schema, indent=2))}',
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in ("```json", *text.splitlines(), "```"))


def _described(schema: Schema) -> str:
    """What an object, a row or a word is: its description, and the table of its fields or columns."""
    text: str = schema.get("description", "")
    if "enum" in schema:
        return f"{text}\n\nOne of {bounds(schema)}."
    if "x-columns" in schema:
        columns = [
            (str(i), _column(rule), bounds(rule), rule.get("description", ""))
            for i, rule in enumerate(schema["x-columns"])
        ]
        return (
            f"{text}\n\nA row is an array:\n\n{table(('position', 'column', 'values', 'meaning'), columns)}"
        )
    required = set(schema.get("required", ()))
    rows = [
        (
            code(key),
            bounds(rule),
            "required" if key in required else _default(rule),
            rule.get("description", ""),
        )
        for key, rule in schema.get("properties", {}).items()
    ]
    return f"{text}\n\n{table(('field', 'values', 'default', 'meaning'), rows)}" if rows else text


def _column(rule: Schema) -> str:
    """What a column of a row is called. A reference has no title: there it is its last word."""
    if "$ref" in rule:
        named = rule["$ref"].rsplit("/", 1)[1].removesuffix("OfPlan")
        return code(re.findall("[A-Z][a-z]*", named)[-1].lower())
    return code(rule.get("title", "").replace(" ", "_").lower())


def _default(rule: Schema) -> str:
    return code(json.dumps(rule["default"])) if "default" in rule else "may be left out"


def bounds(rule: Schema) -> str:
    """What values a JSON Schema admits, in words: ``integer, 1 to 64``."""
    if "$ref" in rule:
        name = rule["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "const" in rule:
        return code(json.dumps(rule["const"]))
    if "enum" in rule:
        words = [code(json.dumps(value)) for value in rule["enum"]]
        return ", ".join(words if len(words) < 20 else [*words[:3], "...", words[-1]])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in rule:
            return " or ".join(bounds(one) for one in rule[key])
    if rule.get("type") == "array":
        # A tuple of fixed positions, or a list of any length.
        inner = rule.get("items") or {}
        prefix = rule.get("x-columns", ())
        return f"[{', '.join(map(bounds, prefix))}]" if prefix else f"list of {bounds(inner)}"
    kind = rule.get("type", "any value")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "object" and isinstance(rule.get("additionalProperties"), Mapping):
        return f"object of {bounds(rule['additionalProperties'])}"
    if kind == "object" and "patternProperties" in rule:
        return f"object of {' or '.join(map(bounds, rule['patternProperties'].values()))}"
    return f"{kind}{_range(rule)}"


def _range(rule: Schema) -> str:
    least, most = rule.get("minimum"), rule.get("maximum")
    # Integers of 64 bits are what JSON documents may hold anyway.
    most = None if most is not None and most >= 2**63 - 1 else most
    least = None if least is not None and least <= -(2**63) else least
    if least is not None and most is not None:
        return f", {least} to {most}"
    if least is not None:
        return f", at least {least}"
    return f", at most {most}" if most is not None else ""
