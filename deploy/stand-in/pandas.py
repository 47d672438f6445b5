"""Stands where pandas is left out of the images, 38 MB.

OR-Tools' Python interface imports pandas for functions that make series of variables, none of which the
project calls. What is named while the interface is imported is here; the use of anything more is an
ImportError that says what is missing. Installing pandas puts the real one in its place.
"""

from __future__ import annotations

__all__ = ["Index", "Series"]

_MISSING = "pandas is not in this image: install it beside arenaplan, or call OR-Tools without series"


class Index:
    """The name that OR-Tools imports; making one raises ImportError."""

    def __init__(self, *_: object, **__: object) -> None:
        raise ImportError(_MISSING)


class Series(Index):
    """The same."""


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(_MISSING)
