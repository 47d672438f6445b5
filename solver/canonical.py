"""JSON as documents are written and digests are taken: one text for equal values, words for NaN and infinity.

The sign and the payload bits of a NaN are not kept. ``base64`` keeps the bits of inline values.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final, Literal

__all__ = ["NotFinite", "canonical_json", "digest_of", "float_of", "to_bytes", "without_words", "word_for"]

NotFinite = Literal["NaN", "Infinity", "-Infinity"]

_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_bytes(value: Mapping[str, Any], *, indent: int | None = None) -> bytes:
    """JSON in UTF-8 with the keys in the order of the mapping; on one line unless `indent` is set."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
    return text.encode()


def canonical_json(value: Any) -> bytes:
    """The one text of a value: sorted keys, no spaces, UTF-8. Digests are taken over it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def digest_of(value: Any) -> str:
    """SHA-256, in hexadecimal, over the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def word_for(value: Any) -> Any:
    """The value as JSON has it: a word in place of a float that is not finite, in a tuple too."""
    if isinstance(value, tuple):
        return [word_for(element) for element in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def float_of(value: Any) -> Any:
    """The float that a word stands for; every other value as it is."""
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def without_words(values: list[Any]) -> list[Any]:
    """The list with floats in place of words; the very same list where it has no string."""
    return [float_of(value) for value in values] if str in set(map(type, values)) else values
