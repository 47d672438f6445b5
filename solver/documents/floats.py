"""Floating-point numbers that JSON has no number for: one word for each, wherever a document has a float.

The sign and the payload bits of a NaN are not kept. ``base64`` keeps the bits of inline values.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

__all__ = ["NotFinite", "float_of", "without_words", "word_for"]

NotFinite = Literal["NaN", "Infinity", "-Infinity"]

_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


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
