"""Words of messages: lists of names, texts of a file, and words of a command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

__all__ = ["argument", "shown", "some"]

#: Characters that a shell interprets, but for brackets, which it passes on where no file matches.
_SHELL: Final = re.compile(r"[^\w\[\]=.,:/@%+-]")
#: Characters of a file's text that a message repeats.
_MAX_CHARACTERS: Final = 60


def some(names: Sequence[str], most: int = 8, *, quoted: bool = False) -> str:
    """The first names and the number of the others: ``a, b and 3 more``."""
    text = ", ".join(f"{name!r:.80}" if quoted else f"{name:.60}" for name in names[:most])
    return f"{text} and {len(names) - most:,} more" if len(names) > most else text


def shown(text: str) -> str:
    """A text in quotes, cut off if it is long."""
    quoted = repr(text)
    return quoted if len(quoted) <= _MAX_CHARACTERS else f"{quoted[: _MAX_CHARACTERS - 3]}..."


def argument(text: str) -> str:
    """A word of a command line as a remedy shows it: in quotes where a shell would take it apart."""
    return shlex.quote(text) if _SHELL.search(text) else text
