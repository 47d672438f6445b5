"""Choices for a model are flags of a command line, ``--dim n=4``, and parameters of a query, ``dim=n=4``.

The core speaks of flags, as most of its callers have a command line; callers of a service hear of parameters.
So do notes on an imported model, which workers send, and a response header carries, as one line of ASCII.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = [
    "MOST_BYTES",
    "NOTES_HEADER",
    "in_flags",
    "in_query",
    "notes_headers",
    "notes_text",
]

_DIM_FLAG: Final = re.compile(r"(?<![\w-])--(dim|input) (?=\S+=)")
_FLAG: Final = re.compile(r"(?<![\w-])(no )?--([a-z]+(?:-[a-z]+)*)")
_DIM: Final = re.compile(r"(?<!\S)(dim|input)=(?=\S+=)")
_PARAMETER: Final = re.compile(r"\b(the|no) parameter ([a-z]+(?:_[a-z]+)*)")
#: Of a model; --output of a command line is the file that is written.
_OUTPUT_FLAG, _OUTPUT = "output-name", "output"


def in_query(text: str) -> str:
    """A sentence about flags as one about parameters; commands, between backticks, stay as they are."""
    parts = text.split("`")
    parts[::2] = [
        _FLAG.sub(
            lambda flag: f"{'no' if flag[1] else 'the'} parameter {_parameter(flag[2])}",
            _DIM_FLAG.sub(r"\1=", part),
        )
        for part in parts[::2]
    ]
    return "`".join(parts)


def in_flags(text: str) -> str:
    """The inverse of `in_query`, for a command line that has asked a service."""
    parts = text.split("`")
    parts[::2] = [
        _PARAMETER.sub(
            lambda name: f"{'no ' if name[1] == 'no' else ''}--{_flag(name[2])}", _DIM.sub(r"--\1 ", part)
        )
        for part in parts[::2]
    ]
    return "`".join(parts)


def _parameter(flag: str) -> str:
    return _OUTPUT if flag == _OUTPUT_FLAG else flag.replace("-", "_")


def _flag(parameter: str) -> str:
    return _OUTPUT_FLAG if parameter == _OUTPUT else parameter.replace("_", "-")


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
    fitting = set[int]()
    for number in (len(texts) - 1, *range(len(texts) - 1)):
        if (size := len(_ascii(texts[number]) + ", ")) <= room:
            fitting.add(number)
            room -= size
    return _ascii([*(texts[number] for number in sorted(fitting)), _left_out(len(texts) - len(fitting))])


def notes_headers(facts: Mapping[str, Any]) -> dict[str, str]:
    """The header of an answer whose facts, as a worker sends them, have notes; nothing without notes."""
    return {NOTES_HEADER: facts["notes"]} if facts.get("notes") else {}


def _left_out(count: int) -> str:
    more = "1 more note is" if count == 1 else f"{count:,} more notes are"
    return f"{more} left out: `arenaplan import` prints all."


def _ascii(value: str | list[str]) -> str:
    return json.dumps(value).replace("\x7f", "\\u007f")
