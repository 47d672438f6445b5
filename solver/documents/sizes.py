"""Sizes as people write them: ``65536``, ``24MiB``, ``1.5 GB``. Whole numbers in documents are bytes."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ByteSize, TypeAdapter, WithJsonSchema
from pydantic_core import PydanticCustomError

from solver.documents.fields import Natural
from solver.documents.limits import MAX_INTEGER

__all__ = ["Size", "read_size"]

#: A number and a unit of `ByteSize`, with nothing around them. Read by itself, that type ignores what follows
#: a number (20,971,520 would be 20 bytes) and drops parts of a byte.
_WRITTEN: Final = r"^\s*([0-9]+(?:\.[0-9]+)?)\s*((?:[kKmMgGtTpPeE][iI]?)?[bB]|[kKmMgGtTpPeE]?)\s*$"
_WORDS: Final = "bytes, or a number with kB, MB, GB, KiB, MiB or GiB"


@cache
def _unit() -> TypeAdapter[ByteSize]:
    """Made when the first size is read as text: it takes ten milliseconds."""
    return TypeAdapter(ByteSize)


def read_size(text: str) -> int:
    """The bytes that `text` means, whole ones, below 2**63. Raises ValueError, which says what to give."""
    found = re.match(_WRITTEN, text, re.ASCII)
    size = Fraction(found[1]) * int(_unit().validate_python(f"1{found[2]}")) if found else None
    if size is None or size.denominator != 1:
        raise ValueError(f"give {_WORDS}")
    if size > MAX_INTEGER:
        raise ValueError(f"give at most {MAX_INTEGER:,} bytes")
    return int(size)


def _of_text(value: Any) -> Any:
    """Text becomes bytes; all else is for the strict integer to judge."""
    if not isinstance(value, str):
        return value
    try:
        return read_size(value)
    except ValueError as error:
        raise PydanticCustomError("wanted", "{words}", {"words": str(error).removeprefix("give ")}) from None


#: Bytes, as a whole number or as text with a unit.
Size = Annotated[
    Natural,
    BeforeValidator(_of_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER},
                {"type": "string", "pattern": _WRITTEN},
            ]
        }
    ),
]
