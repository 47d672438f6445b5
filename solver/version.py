"""The version of the code: that of the distribution, whose metadata takes a while to read."""

from __future__ import annotations

from typing import Final

__all__ = ["producer", "version"]

#: That of `pyproject.toml`; a test compares the two.
_VERSION: Final = "0.1.0"


def version() -> str:
    """As the distribution has it, also when the code runs without being installed."""
    return _VERSION


def producer() -> str:
    """The name and version that plans record as their maker."""
    return f"arenaplan {version()}"
