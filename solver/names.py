"""Checks names for characters that a reader cannot see, or that change how the rest is shown."""

from __future__ import annotations

import unicodedata
from typing import Final

from solver.errors import ArenaplanError, GraphError

__all__ = ["check_characters", "first_hidden"]

#: Unicode's categories of control characters, of format characters (those that turn the direction of writing,
#: among others), of surrogates, and of line and paragraph separators.
_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def check_characters(
    what: str, name: str, path: tuple[str | int, ...], error: type[ArenaplanError] = GraphError
) -> None:
    """Raises `error`, which shows `name` escaped, where a character of it has no shape of its own.

    `what` is the kind of what is named. Names reach terminals, tables and pictures: a newline or
    U+202E in one could make a plan look like another one. Cost: linear in the name.
    """
    position = first_hidden(name)
    if position is not None:
        raise error(
            f"The {what} name {name!r} has a control or format character, U+{ord(name[position]):04X}, at"
            f" position {position:,}.",
            remedy="Use characters that can be seen.",
            path=path,
        )


def first_hidden(name: str) -> int | None:
    """The position of the first character that a name may not contain; None where all can be seen."""
    if name.isprintable():
        return None
    refused = (i for i, character in enumerate(name) if unicodedata.category(character) in _REFUSED)
    return next(refused, None)
