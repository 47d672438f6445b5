"""What preparations and passes did, as plans keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Record", "Replacement"]


@dataclass(frozen=True, slots=True)
class Record:
    """What a preparation or a pass did: its name, and figures for people. Nothing relies on it."""

    name: str
    facts: Mapping[str, int | str | bool]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What one use of a rewriting rule did: operations by id, `into` what stands in their place.

    Replacements of one `group` were tried and taken together; the bytes are the lower bounds of the
    arena before and after the group.
    """

    rule: str
    operations: tuple[str, ...]
    into: tuple[str, ...]
    group: int
    bytes_before: int
    bytes_after: int
