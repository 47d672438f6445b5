"""What a name may not contain: characters that a reader cannot see, or that change how the rest is shown."""

from __future__ import annotations

import unicodedata
from typing import Final

from solver.errors import GraphError

__all__ = ["check_characters"]

#: Unicode's categories of control characters, of format characters (those that turn the direction of writing,
#: among others), of surrogates, and of line and paragraph separators.
_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def check_characters(what: str, name: str, path: tuple[str | int, ...]) -> None:
    """Raises GraphError, which shows `name` escaped, where a character of it has no shape of its own.

    `what` is the kind of what is named. Names reach terminals, tables and pictures: a newline or
    U+202E in one could make a plan look like another one. Cost: linear in the name.
    """
    if name.isprintable():
        return
    for position, character in enumerate(name):
        if unicodedata.category(character) in _REFUSED:
            raise GraphError(
                f"The {what} name {name!r} has a control or format character, U+{ord(character):04X}, at"
                f" position {position}.",
                remedy="Use characters that can be seen.",
                path=path,
            )
