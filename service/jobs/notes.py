"""Notes on an imported model, as workers send them and a response header carries them: one line of ASCII."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.jobs.query import in_query

__all__ = ["MOST_BYTES", "NOTES_HEADER", "notes_headers", "notes_text"]

NOTES_HEADER: Final = "Arenaplan-Notes"

#: Longest text of the header. Reverse proxies drop an answer whose headers exceed their buffer, which often
#: has 4 KiB for all headers together.
MOST_BYTES: Final = 3 << 10


def notes_text(notes: Sequence[str]) -> str:
    """A JSON array of the notes in ASCII, of at most `MOST_BYTES`; the empty text without notes.

    Flags of the command line are named as parameters of a query. If not all notes fit, the last element says
    how many are left out; the last note, which sums up what is trained, is kept before all others.
    """
    texts = [in_query(note) for note in notes]
    if len(text := _ascii(texts)) <= MOST_BYTES:
        return text if texts else ""
    room = MOST_BYTES - len(_ascii([_left_out(len(texts))]))
    kept = set[int]()
    for number in (len(texts) - 1, *range(len(texts) - 1)):
        if (size := len(_ascii(texts[number]) + ", ")) <= room:
            kept.add(number)
            room -= size
    return _ascii([*(texts[number] for number in sorted(kept)), _left_out(len(texts) - len(kept))])


def notes_headers(facts: Mapping[str, Any]) -> dict[str, str]:
    """The header of an answer whose facts, as a worker sends them, have notes; nothing without notes."""
    return {NOTES_HEADER: facts["notes"]} if facts.get("notes") else {}


def _left_out(count: int) -> str:
    more = "1 more note is" if count == 1 else f"{count:,} more notes are"
    return f"{more} left out: `arenaplan import` prints all."


def _ascii(value: str | list[str]) -> str:
    return json.dumps(value).replace("\x7f", "\\u007f")
