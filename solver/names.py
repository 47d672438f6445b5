"""Names: which characters they may have, which of them a pattern names, which are near another one, and how
C spells them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from solver.errors import ArenaplanError, GraphError

__all__ = [
    "c_comment",
    "c_identifiers",
    "c_string",
    "check_characters",
    "counted",
    "first_hidden",
    "matching_names",
    "nearest_names",
]

#: Unicode's categories of control characters, of format characters (those that turn the direction of writing,
#: among others), of surrogates, and of line and paragraph separators.
_REFUSED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def counted(count: int, noun: str) -> str:
    """The number with its noun: ``3 steps``, ``1 step``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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


def matching_names(pattern: str, names: Sequence[str]) -> list[int]:
    """The positions of names that are the pattern itself; else those that it describes with asterisks.

    An asterisk stands for any characters, all others for themselves. Linear.
    """
    matching = [k for k, name in enumerate(names) if name == pattern]
    if matching or "*" not in pattern:
        return matching
    first, *middle, last = pattern.split("*")
    return [k for k, name in enumerate(names) if _is_described(name, first, middle, last)]


def _is_described(name: str, first: str, middle: Sequence[str], last: str) -> bool:
    """Whether a name begins and ends like this, with the middle parts in between in their order."""
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        position = name.find(part, at, end)
        if position < 0:
            return False
        at = position + len(part)
    return True


def nearest_names(name: str, names: Sequence[str]) -> str:
    """A sentence with the names that are written most like this one."""
    near = get_close_matches(name.replace("*", ""), names, n=3, cutoff=0.4) or names[:3]
    return f"The nearest names are {', '.join(near)}." if near else "There are no names."


#: Compilers take more, people do not.
_MAX_C_NAME: Final = 120
_UNSAFE_IN_C: Final = re.compile(r"[^A-Za-z0-9_]")


def c_identifiers(
    names: Iterable[str], reserved: Collection[str] = (), *, capitals: bool = False
) -> list[str]:
    """For each name one that C can spell behind a prefix, all different; the first comer keeps its own.

    None of them is `reserved`. The same names in the same order give the same identifiers. Linear.
    """
    taken = set(reserved)
    plain = [_UNSAFE_IN_C.sub("_", name)[:_MAX_C_NAME] or "_" for name in names]
    if capitals:
        plain = [name.upper() for name in plain]
    own = set(plain)
    counts: dict[str, int] = {}
    identifiers = []
    for name in plain:
        chosen = name
        while chosen in taken:
            # A name that another value has by itself is left to that one.
            counts[name] = counts.get(name, 1) + 1
            numbered = f"{name}_{counts[name]}"
            chosen = name if numbered in own else numbered
        taken.add(chosen)
        identifiers.append(chosen)
    return identifiers


def c_comment(text: str) -> str:
    """Text inside a comment in C: it can neither end it nor seem to begin another one."""
    plain = "".join(c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")


def c_string(text: str) -> str:
    """The inside of a string literal in C, in UTF-8: three octal digits for each byte that is not plain."""
    plain = {ord(c): c for c in map(chr, range(32, 127)) if c not in '"\\?'}
    return "".join(plain.get(byte, f"\\{byte:03o}") for byte in text.encode())
