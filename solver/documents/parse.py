"""Strict JSON: what RFC 8259 leaves open is refused, with the place and a remedy."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, NoReturn

from solver.collector import collector_paused
from solver.errors import DocumentError, NotJsonError

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "PROGRAM_FORMAT", "Fault", "Place", "find_fault", "parse_json", "place"]

#: What tells a document of an explicit program from one of a graph, before either of them is read.
PROGRAM_FORMAT: Final = "arenaplan.program"

#: Documents of ours nest six deep; this leaves room and keeps every recursive reader safe.
MAX_DEPTH: Final = 64

#: Digits of an integer. No size, offset or seed has more than 19, and reading is quadratic in them.
MAX_DIGITS: Final = 1000

_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _Refused(Exception):
    """Raised from inside the decoder, which cannot say where it stands."""


def parse_json(data: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises DocumentError for invalid UTF-8, anything that is not JSON, duplicate keys, NaN and
    infinities (``1e999`` included), integers of more than `MAX_DIGITS` digits, and nesting deeper
    than `MAX_DEPTH`. Linear, and never recurses deeper than `MAX_DEPTH`.
    """
    text = _decode(data)
    if _depth(data) > MAX_DEPTH:
        raise _explain(find_fault(text))
    try:
        with collector_paused():  # it would look through millions of lists again and again
            value = json.loads(
                text,
                object_pairs_hook=_unique,
                parse_int=_integer if _may_be_long(data) else None,
                parse_float=_finite,
                parse_constant=_refuse,
            )
    except _Refused:
        raise _explain(find_fault(text)) from None
    except json.JSONDecodeError as error:
        raise _not_json(text, error) from None
    if _SURROGATE.search(data):
        _check_encodable(value)
    return value


def _decode(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        where = place(data[: error.start].decode(), error.start)
        raise NotJsonError(
            f"Byte {error.start:,} of the document (line {where.line}) is not UTF-8.",
            remedy="Save the document as UTF-8.",
        ) from None
    if text.startswith("\ufeff"):
        raise DocumentError(
            "The document starts with a byte order mark.",
            remedy="Save it as UTF-8 without a byte order mark.",
        )
    return text


def _depth(data: bytes) -> int:
    """Deepest nesting of brackets outside strings, without parsing."""
    if b"\\" in data:  # so that every quote left is the beginning or the end of a string
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(data.split(b'"')[::2]).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _may_be_long(data: bytes) -> bool:
    """Whether an integer may have too many digits. It would fill a block of half that size with digits."""
    half = MAX_DIGITS // 2
    return any(data[at : at + half].isdigit() for at in range(0, len(data), half))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused
    return value


def _integer(token: str) -> int:
    if len(token) > MAX_DIGITS:
        raise _Refused
    return int(token)


def _finite(token: str) -> float:
    value = float(token)
    if math.isinf(value):
        raise _Refused
    return value


def _refuse(token: str) -> NoReturn:
    raise _Refused


def _explain(fault: Fault | None) -> DocumentError:
    if fault is None:  # the decoder and the scanner disagree: still the caller's text
        return DocumentError("The document is not valid JSON.", remedy="Check it with a JSON validator.")
    message, remedy = {
        "duplicate": (
            f"Key {_short(fault.token)} stands twice in one object",
            "Keys are unique: remove or rename one of them.",
        ),
        "constant": (
            f"{fault.token} is not a JSON number",
            f'Write a finite number, or "{fault.token}" in quotes where a float may be one.',
        ),
        "overflow": (
            f"{_short(fault.token)} is beyond the largest floating-point number",
            "Write a smaller number.",
        ),
        "digits": (
            f"The integer {_short(fault.token)} has more than {MAX_DIGITS:,} digits",
            "No field takes integers of this size.",
        ),
        "depth": (
            f"The document nests deeper than {MAX_DEPTH:,} levels",
            "No document of ours nests that deep: flatten it.",
        ),
    }[fault.kind]
    path = fault.path if fault.kind != "depth" else fault.path[:8]
    return DocumentError(f"{message} ({fault.place}).", remedy=remedy, path=path)


def _short(token: str) -> str:
    return token if len(token) <= 40 else f"{token[:20]}...{token[-10:]}"


def _not_json(text: str, error: json.JSONDecodeError) -> DocumentError:
    if not text.strip():
        return DocumentError("The document is empty.", remedy="Give a JSON object.")
    return NotJsonError(
        f"The document is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).",
        remedy="Correct it there; a JSON validator shows the same place.",
    )


def _check_encodable(value: Any) -> None:
    """Half a surrogate pair decodes to a string that nothing can write again."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DocumentError(
            "A string holds half of a surrogate pair, which is not a character.",
            remedy="Write both halves, or the character itself.",
        ) from None


# Where a JSON text breaks a rule that `json` reports without a place, or does not report at all. The tokens
# are walked once, with the path to the current value. This runs after a document was refused, so its speed
# matters little; it is linear, and keeps a stack of its own instead of the interpreter's.

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
    """A broken rule, with the token at fault and the path of the value that holds it."""

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
