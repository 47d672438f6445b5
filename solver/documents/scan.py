"""Where a JSON text breaks a rule that `json` reports without a place, or does not report at all.

Walks the tokens once, keeping the path to the current value. It runs after a document was refused,
so its speed matters little; it is linear, and keeps a stack of its own instead of the interpreter's.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "Fault", "Place", "find_fault", "place"]

#: Documents of ours nest six deep; this leaves room and keeps every recursive reader safe.
MAX_DEPTH = 64

#: Digits of an integer. No size, offset or seed has more than 19, and reading is quadratic in them.
MAX_DIGITS = 1000

FaultKind = Literal["duplicate", "constant", "overflow", "digits", "depth"]

_TOKEN = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'  # closing quote optional: an unclosed string ends with the text
    r"|-?Infinity|NaN|-?\d[\d.eE+-]*|[\[\]{},:]",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Line and column, both from 1, the column in characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, with the token at fault and the path of the value that holds it."""

    kind: FaultKind
    token: str
    path: tuple[str | int, ...]
    place: Place


def place(text: str, position: int) -> Place:
    """Line and column of a character."""
    return Place(text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position))


class _Level:
    """An open object or array: the key or index of the value that is being read."""

    __slots__ = ("at", "expects_key", "is_object", "seen")

    def __init__(self, is_object: bool) -> None:
        self.is_object = is_object
        self.expects_key = is_object
        self.seen: set[str] = set()
        self.at: str | int | None = None if is_object else 0

    def comma(self) -> None:
        self.expects_key = self.is_object
        if isinstance(self.at, int):
            self.at += 1


def find_fault(text: str) -> Fault | None:
    """The first duplicate key, number outside of JSON, too long integer or too deep level of a JSON text."""
    levels: list[_Level] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        kind = _step(levels, token)
        if kind is not None:
            path = tuple(level.at for level in levels if level.at is not None)
            return Fault(kind, token, path, place(text, match.start()))
    return None


def _step(levels: list[_Level], token: str) -> FaultKind | None:
    """Advance by one token; the kind of fault that it is, if it is one."""
    if token in "[{":
        levels.append(_Level(token == "{"))
        return "depth" if len(levels) > MAX_DEPTH else None
    if token in "]}":
        del levels[-1:]
        return None
    if token == "," and levels:
        levels[-1].comma()
    elif token[0] == '"':
        return _key(levels[-1], token) if levels and levels[-1].expects_key else None
    return _number(token)


def _key(level: _Level, token: str) -> FaultKind | None:
    try:
        key = json.loads(token, strict=False)
    except ValueError:
        key = token
    level.at, level.expects_key = key, False
    if key in level.seen:
        return "duplicate"
    level.seen.add(key)
    return None


def _number(token: str) -> FaultKind | None:
    if token[-1] in "yN":
        return "constant"
    if token.lstrip("-").isdigit():
        return "digits" if len(token) > MAX_DIGITS else None
    try:
        return "overflow" if math.isinf(float(token)) else None
    except ValueError:
        return None
