"""INI files as iniparser reads them, but strictly: every mistake is named with its line, section and key.

[fc1]                   # sections and keys are case-insensitive, names keep their spelling
Type = fully_connected  ; both marks start a comment, at the start of a line or behind a blank
Unit = "10"             quotes around a value are not part of it
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from solver.errors import DocumentError
from solver.importers.text import shown

__all__ = ["Section", "read_sections"]

_COMMENT: Final = re.compile(r"(?:^|\s)[#;].*")
_INTEGER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_FLAGS: Final[Mapping[str, bool]] = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Section:
    """One section: `values` and `lines` by key, keys in lower case.

    `source` is the name of the file where that is not the one which the caller gave.
    """

    name: str
    line: int
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    source: str = ""

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def fail(self, key: str, what: str, remedy: str) -> NoReturn:
        """Raise DocumentError that names line, section and key."""
        message = f"{self.place(key)}: {key!r} of section {shown(self.name)} {what}."
        raise DocumentError(message, remedy=remedy, path=(self.name, key))

    def place(self, key: str = "") -> str:
        """Where the key stands, or the section: "Line 7", "Line 7 of base.ini"."""
        line = f"Line {self.lines.get(key, self.line)}"
        return f"{line} of {self.source}" if self.source else line

    def check_keys(self, known: Collection[str]) -> None:
        for key in self.values:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"Did you mean {close[0]}? " if close else ""
                self.fail(key, "is not known here", f"{hint}Known keys: {', '.join(sorted(known))}.")

    # ------------------------------------------------------------------------------------ values

    def word(self, key: str, default: str = "") -> str:
        """A value in lower case."""
        return self.values.get(key, default).lower()

    def choice(self, key: str, known: Iterable[str], default: str = "") -> str:
        word, words = self.word(key, default), list(known)
        if word not in words:
            what = f"is {shown(self.values[key])}" if key in self else "is missing"
            self.fail(key, what, f"Choose one of {', '.join(words)}.")
        return word

    def words(self, key: str) -> list[str]:
        """A list, separated by commas, in the file's spelling."""
        return [part.strip() for part in self.values.get(key, "").split(",") if part.strip()]

    def integers(
        self, key: str, counts: Collection[int], *, separator: str = ",", least: int = 0
    ) -> list[int]:
        """As many integers as one of `counts` says, none below `least`."""
        parts = [part.strip() for part in self.values.get(key, "").split(separator)]
        if len(parts) not in counts or not all(_INTEGER.fullmatch(part) for part in parts):
            what = f"is {shown(self.values[key])}" if key in self else "is missing"
            numbers = " or ".join(map(str, counts))
            self.fail(key, what, f"Write {numbers} whole number(s), separated by {separator!r}.")
        values = [int(part) for part in parts]
        if min(values) < least:
            self.fail(key, f"contains {min(values)}", f"It must be at least {least}.")
        return values

    def integer(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        if default is not None and key not in self:
            return default
        return self.integers(key, (1,), least=least)[0]

    def pair(self, key: str, default: tuple[int, int] | None = None, *, least: int = 1) -> tuple[int, int]:
        """Two integers, for height and width; one stands for both."""
        if default is not None and key not in self:
            return default
        sizes = self.integers(key, (1, 2), least=least)
        return sizes[0], sizes[-1]

    def number(self, key: str) -> float:
        try:
            value = float(self.values[key])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.fail(key, f"is {shown(self.values[key])}", "Write a number.")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        word = self.word(key, str(default))
        if word not in _FLAGS:
            self.fail(key, f"is {shown(self.values[key])}", "Write true or false.")
        return _FLAGS[word]


def read_sections(data: bytes) -> tuple[Section, ...]:
    """The sections in the order of the file. Raises DocumentError for what is not such a file. Linear."""
    sections: dict[str, Section] = {}
    current: Section | None = None
    for number, line in enumerate(_text(data).splitlines(), 1):
        content = _COMMENT.sub("", line).strip()
        if content.startswith("["):
            current = _section(content, number, sections)
            sections[current.name.lower()] = current
        elif content:
            _entry(content, number, current)
    if not sections:
        raise DocumentError("The file has no sections.", remedy="Start it with [Model].")
    return tuple(sections.values())


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"Line {line} is not UTF-8.", remedy="Save the file as UTF-8.") from None


def _section(content: str, number: int, sections: Mapping[str, Section]) -> Section:
    name = content[1:-1].strip()
    if not content.endswith("]") or not name:
        raise _bad(number, f"{shown(content)} is not a section", "Write the name in brackets: [name].")
    if name.lower() in sections:
        first = sections[name.lower()].line
        what = f"section {shown(name)} stands there twice, first in line {first}"
        raise _bad(number, what, "Rename one of the two; case makes no difference.")
    return Section(name, number)


def _entry(content: str, number: int, section: Section | None) -> None:
    key, equals, value = content.partition("=")
    name = key.strip().lower()
    if not equals or not name:
        raise _bad(number, f"{shown(content)} is not an entry", "Write key = value.")
    if section is None:
        raise _bad(number, f"{name!r} stands before the first section", "Start the file with [Model].")
    if name in section:
        section.fail(name, f"is given again in line {number}", "Give it once.")
    section.values[name] = value.strip().strip("\"'").strip()
    section.lines[name] = number


def _bad(number: int, what: str, remedy: str) -> DocumentError:
    return DocumentError(f"Line {number}: {what}.", remedy=remedy)
