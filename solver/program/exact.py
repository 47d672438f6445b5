"""Equality by type and bytes: numbers that compare equal may compute other bits."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping, Sequence

__all__ = ["exact"]


def exact(value: object) -> Hashable:
    """A key that two attributes share only if they have the same types and bytes, elements included.

    -0.0 differs from 0.0, 0.0 from 0, True from 1; a NaN equals a NaN of the same bytes. Linear.
    """
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, Mapping):
        return "mapping", frozenset((exact(key), exact(item)) for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return type(value).__name__, tuple([exact(item) for item in value])
    return type(value).__name__, repr(value)
