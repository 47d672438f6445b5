"""Strict JSON: what RFC 8259 leaves open is refused, with the place and a remedy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Final, NoReturn

from solver.documents.scan import MAX_DEPTH, MAX_DIGITS, Fault, find_fault, place
from solver.errors import DocumentError

__all__ = ["PROGRAM_FORMAT", "canonical_json", "parse_json", "to_bytes"]

#: What tells a document of an explicit program from one of a graph, before either of them is read.
PROGRAM_FORMAT: Final = "arenaplan.program"

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
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


def to_bytes(value: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """JSON in UTF-8 with the keys in the order given; on one line unless `indent` is set."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
    return text.encode()


def canonical_json(value: Any) -> bytes:
    """The one text of a value: sorted keys, no spaces, UTF-8. Digests are taken over it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _decode(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        where = place(data[: error.start].decode(), error.start)
        raise DocumentError(
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
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _may_be_long(data: bytes) -> bool:
    """Whether an integer may have too many digits. It would fill a block of half that size with digits."""
    half = MAX_DIGITS // 2
    return any(data[at : at + half].isdigit() for at in range(0, len(data), half))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Refused
    return found


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
        return DocumentError("The document is empty.", remedy="Send a JSON object.")
    return DocumentError(
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
