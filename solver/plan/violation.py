"""Violations: broken promises of a plan, one at a time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: the `rule`, the `buffers` involved, and a sentence with the figures."""

    rule: str
    buffers: tuple[str, ...]
    detail: str
