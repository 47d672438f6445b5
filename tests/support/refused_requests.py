"""Wrong requests as rows: the changes of a right one, and the problem that they are."""

from __future__ import annotations

import copy
from typing import Any, Final

__all__ = ["GONE", "Row", "changed", "row"]

Document = dict[str, Any]

#: In the place of a value: the member is taken out.
GONE: Final = object()

#: Problem type, changes by their place in a request, words of detail or remedy, and the pointer.
Row = tuple[str, Document, str, str]


def row(code: str, changes: Document, words: str = "", *, at: str | None = None) -> Row:
    """`at` is the pointer of the problem, if it is not the place of the first change."""
    return code, changes, words, f"/{next(iter(changes))}" if at is None else at


def changed(request: Document, changes: Document) -> Document:
    """A copy with new values at places such as ``graph/operands/0/size``; ``+`` appends to a list."""
    result = copy.deepcopy(request)
    for path, value in changes.items():
        *outer, last = path.split("/")
        place: Any = result
        for part in outer:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if value is GONE:
            del place[last]
        elif last == "+":
            place.extend(value)
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return result
