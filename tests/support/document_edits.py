"""Edits of a document, one value each: what its JSON Schema allows, and what it does not.

The schema is walked beside the document, so that fields which the document leaves out are edited, too. A path
without its positions is a pattern: ``spaces[*][4].lower_bound``.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Edit", "edits", "pattern"]

Path = tuple[str | int, ...]

#: Takes the place of what is left out.
_ABSENT: Any = object()

_MOST = 2**63 - 1


@dataclass(frozen=True)
class Edit:
    """The value at `path` becomes `value`; `name` says how."""

    path: Path
    name: str
    value: Any
    #: Whether the path goes by position through a table, as against the columns of a row.
    tables: tuple[bool, ...]

    @property
    def pattern(self) -> str:
        """The path with a star for each position in a table and each name that is not the schema's."""
        return pattern(self.path, self.tables)

    def applied(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the document with the edit."""
        made = copy.deepcopy(dict(document))
        holder: Any = made
        for key in self.path[:-1]:
            holder = holder[key]
        if self.value is _ABSENT:
            del holder[self.path[-1]]
        else:
            holder[self.path[-1]] = self.value
        return made


def pattern(path: Path, tables: Sequence[bool]) -> str:
    text = ""
    for key, star in zip(path, tables, strict=True):
        if star:
            text += "[*]" if isinstance(key, int) else ".*"
        else:
            text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.removeprefix(".")


def edits(document: Mapping[str, Any], schema: Mapping[str, Any], rng: random.Random) -> Iterator[Edit]:
    """Every edit of every value of the document and of every field that it leaves out, in its order."""
    return _walk(document, schema, schema["$defs"], (), (), rng, document)


def _walk(
    value: Any, schema: Any, defs: Any, path: Path, tables: tuple[bool, ...], rng: random.Random, whole: Any
) -> Iterator[Edit]:
    options = _alternatives(schema, defs)
    if path:
        seen = {_text(value)}
        for name, other in _changed(value, options, defs, rng):
            if _text(other) not in seen:
                seen.add(_text(other))
                yield Edit(path, name, other, tables)
    if isinstance(value, dict):
        known = [option for option in options if option.get("type") == "object"]
        fields = {name: each for option in known for name, each in option.get("properties", {}).items()}
        more = [each for option in known for each in option.get("patternProperties", {}).values()]
        for name in [*value, *(name for name in fields if name not in value)]:
            inner = fields.get(name) or (more[0] if more else {})
            free = name not in fields and bool(more)
            # Facts of records are known by name, those of attributes are not.
            free = free and "records" not in path
            yield from _walk(
                value.get(name, _ABSENT), inner, defs, (*path, name), (*tables, free), rng, whole
            )
            if name in value:
                yield Edit((*path, name), "left out", _ABSENT, (*tables, free))
        yield Edit((*path, "unknown!"), "a field more", 1, (*tables, True))
    elif isinstance(value, list):
        rows = [option for option in options if option.get("type") == "array"]
        columns = next((option["x-columns"] for option in rows if "x-columns" in option), None)
        items: Any = next((option["items"] for option in rows if "items" in option), {})
        for i, item in enumerate(value):
            inner = columns[i] if columns is not None else items
            yield from _walk(item, inner, defs, (*path, i), (*tables, columns is None), rng, whole)


def _text(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, sort_keys=True)


def _alternatives(schema: Any, defs: Any) -> list[dict[str, Any]]:
    """The alternatives of a schema, without references."""
    if "$ref" in schema:
        return _alternatives(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        return [each for option in schema["anyOf"] for each in _alternatives(option, defs)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": each} for each in schema["type"]]
    return [dict(schema)]


def _changed(
    value: Any, options: Sequence[Mapping[str, Any]], defs: Any, rng: random.Random
) -> Iterator[tuple[str, Any]]:
    """Other values: of the same type, of the other types that are allowed, and of types that are not."""
    if isinstance(value, bool):
        yield "negated", not value
        yield "as a number", int(value)
    elif isinstance(value, int):
        yield from ((f"{step:+}", value + step) for step in (1, -1, 64, -64))
        yield from (("sign", -value), ("doubled", 2 * value), ("zero", 0), ("one", 1), ("half", value // 2))
        yield from (("most", _MOST), ("least", -_MOST - 1), ("beyond", _MOST + 1))
        yield from (("floating", float(value)), ("a flag", bool(value)), ("text", str(value)))
        yield "any", rng.randrange(max(2 * abs(value), 16))
    elif isinstance(value, float):
        yield from (("sign", -value), ("doubled", 2 * value), ("zero", 0.0), ("negative zero", -0.0))
        yield from (("tiny", 5e-324), ("huge", 1.7e308), ("text", str(value)), ("nan", "NaN"))
        yield "next", value * (1 + 2**-52)
        if value == int(value):
            yield "whole", int(value)
    elif isinstance(value, str):
        yield from (("empty", ""), ("longer", f"{value}!"), ("cut", value[:-1]), ("other", "other"))
        yield from (("turned", value[::-1]), ("a number", 1), ("suffix", f"{value}@again1"))
        yield from (
            ("one character", f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"),
            ("control", "\x1b"),
        )
    elif isinstance(value, list):
        yield from _lists(value, rng)
    elif isinstance(value, dict):
        yield from (("emptied", {}), ("a list", []))
    for option in options:
        for word in (*option.get("enum", ()), *((option["const"],) if "const" in option else ())):
            yield f"the word {word}", word
        yield from (("made up", made) for made in _made(option, defs, 0))
    if value is not None and value is not _ABSENT:
        yield "null", None


def _lists(value: list[Any], rng: random.Random) -> Iterator[tuple[str, Any]]:
    yield "emptied", []
    count = len(value)
    for i in range(min(count, 3)):
        k = rng.randrange(count) if count > 3 else i
        yield f"without {k}", value[:k] + value[k + 1 :]
        yield f"{k} twice", value[: k + 1] + value[k:]
        yield f"{k} at the end again", [*value, value[k]]
        other = rng.randrange(count)
        swapped = list(value)
        swapped[k], swapped[other] = swapped[other], swapped[k]
        yield f"{k} and {other} swapped", swapped
        over = list(value)
        over[k] = over[other]
        yield f"{other} over {k}", over
    yield "turned round", value[::-1]
    yield "shuffled", rng.sample(value, count)
    yield "a number", 7


def _made(option: Mapping[str, Any], defs: Any, depth: int) -> Iterator[Any]:
    """A value or two of a type, whatever stands there."""
    kind = option.get("type")
    if kind == "integer":
        yield from (option.get("minimum", 0), 3)
    elif kind == "number":
        yield from (0.5, -0.0)
    elif kind == "boolean":
        yield from (True, False)
    elif kind == "string":
        yield option.get("enum", ["made"])[0]
    elif kind == "array" and "x-columns" in option and depth < 3:
        columns = [_alternatives(part, defs)[0] for part in option["x-columns"]]
        yield [next(_made(column, defs, depth + 1), None) for column in columns]
    elif kind == "array" and depth < 3:
        yield []
        inner = next(_made(_alternatives(option.get("items", {}), defs)[0], defs, depth + 1), None)
        yield [inner]
    elif kind == "object" and depth < 3:
        required = option.get("required", ())
        yield {
            name: next(_made(_alternatives(each, defs)[0], defs, depth + 1), None)
            for name, each in option.get("properties", {}).items()
            if name in required
        }
