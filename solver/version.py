"""The version of the installed distribution."""

from __future__ import annotations

from functools import cache
from importlib import metadata

__all__ = ["producer", "version"]


@cache
def version() -> str:
    """``0+unknown`` when the code runs without being installed. Read from disk once a process."""
    try:
        return metadata.version("arenaplan")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def producer() -> str:
    """What plans name as their maker."""
    return f"arenaplan {version()}"
