"""Memories of a device in options: objects, or text as ``flash=1GiB,read=45MB/s,write=20MB/s``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from solver.documents.fields import DocumentModel, Name, Natural, Positive
from solver.documents.sizes import read_size

__all__ = ["TierFields", "TierOfOptions", "read_tier"]

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s)", re.ASCII)
_NANOSECONDS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_FORM: Final = "NAME=SIZE, then bandwidth=, read= or write= as 45MB/s, and latency= as 100us, with commas"


class TierFields(DocumentModel):
    """One memory. Bandwidths are bytes a second, 0 where that of another memory decides; latency is ns."""

    name: Name
    bytes: Positive
    read: Natural = 0
    write: Natural = 0
    latency: Natural = 0


def read_tier(text: str) -> dict[str, Any]:
    """The fields of a tier that is written as text. Raises ValueError, which says what to give."""
    head, *rest = [part.strip() for part in text.split(",")]
    name, separator, size = head.partition("=")
    if not separator or not name:
        raise ValueError(f"give {_FORM}")
    found: dict[str, Any] = {"name": name, "bytes": read_size(size)}
    for part in rest:
        key, _, given = part.partition("=")
        names = ("read", "write") if key == "bandwidth" else (key,)
        if key not in ("bandwidth", "read", "write", "latency") or any(name in found for name in names):
            raise ValueError(f"give {_FORM}; {part!r} is not understood")
        number = _nanoseconds(given) if key == "latency" else _rate(key, given)
        found |= dict.fromkeys(names, number)
    return found


def _rate(key: str, text: str) -> int:
    if not text.endswith("/s"):
        raise ValueError(f"give {key}= as 45MB/s")
    rate = read_size(text.removesuffix("/s"))
    if not rate:
        what = key if key == "bandwidth" else f"{key} bandwidth"
        raise ValueError(f"give a {what} above zero, or none where another tier decides")
    return rate


def _nanoseconds(text: str) -> int:
    found = _DURATION.fullmatch(text)
    length = Fraction(found[1]) * _NANOSECONDS[found[2]] if found else None
    if length is None or length.denominator != 1:
        raise ValueError("give latency= as 100us, in ns, us, ms or s")
    return int(length)


def _of_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return read_tier(value)
    except ValueError as error:
        raise PydanticCustomError("wanted", "{words}", {"words": str(error).removeprefix("give ")}) from None


#: A tier as an object or as text.
TierOfOptions = Annotated[TierFields, BeforeValidator(_of_text, json_schema_input_type=TierFields | str)]
