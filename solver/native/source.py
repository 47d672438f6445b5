"""A function that is to be compiled, and what its machine code depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeAlias, cast

__all__ = ["Kind", "Source"]

#: ``int``, ``float``, an array as ``int64[2]`` (element type and dimensions), or the fields of a named tuple,
#: each with its kind.
Kind: TypeAlias = "str | tuple[tuple[str, Kind], ...]"


class Source:
    """One function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = cast(FunctionType, function)

    @property
    def name(self) -> str:
        """Module and function, as ``sweep.disjoint``."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__qualname__}"

    @property
    def returns(self) -> str:
        """``int``, ``bool`` or ``None``, as annotated."""
        annotation = self.function.__annotations__["return"]
        return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "None")

    def meaning(self) -> str:
        """Text that changes whenever the machine code would: the code, and all that it reaches."""
        return "\0".join(_meaning(self, set()))


def _meaning(source: Source, seen: set[Source]) -> Iterator[str]:
    seen.add(source)
    function, code = source.function, source.function.__code__
    constants = [one for one in code.co_consts if one != function.__doc__]
    annotation = function.__annotations__.get("return")
    yield repr((source.name, annotation, code.co_code, constants, code.co_varnames))
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, Source):
            if value not in seen:
                yield from _meaning(value, seen)
        elif isinstance(value, int | float | tuple):
            yield f"{name}={value!r}"
        else:
            yield name
