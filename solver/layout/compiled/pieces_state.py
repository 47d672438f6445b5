"""What the fields of buffers and pieces are called; see `pieces_kernel`."""

from __future__ import annotations

from typing import Final

__all__ = ["ALIGNMENT", "END", "EXACT", "HIGH", "LOW", "NONE", "OFFSET", "OWNER", "START", "USED"]

#: In place of an entry: the end of a list.
NONE: Final = -1

# Fields of a buffer, and of a piece.
EXACT, ALIGNMENT, OFFSET = range(3)
START, END, LOW, HIGH, OWNER = range(5)
# Counter: entries in use.
USED: Final = 0
