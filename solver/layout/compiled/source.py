"""A function that is to be compiled, and how its arguments are told apart."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias, cast

__all__ = ["Kind", "Source"]

#: ``int``, ``float``, an array as ``int64[2]`` (element and axes), or a tuple of these.
Kind: TypeAlias = "str | tuple[Kind, ...]"


class Source:
    """One function. `inline`: it is put in place wherever compiled code calls it."""

    def __init__(self, function: Callable[..., Any], *, inline: bool) -> None:
        self.function = cast(FunctionType, function)
        self.inline = inline

    @property
    def name(self) -> str:
        """As ``sweep.disjoint``: enough to tell one from another."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__qualname__}"

    @property
    def returns(self) -> str:
        """``int``, ``bool`` or ``None``, as annotated."""
        told = self.function.__annotations__["return"]
        return told if isinstance(told, str) else getattr(told, "__name__", "None")
