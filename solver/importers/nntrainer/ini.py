"""INI files as iniparser reads them, but strictly: every mistake is named with its line, section and key.

[fc1]                   # sections and keys are case-insensitive, names keep their spelling
Type = fully_connected  ; both marks start a comment, at the start of a line or behind a blank
Unit = "10"             quotes around a value are not part of it
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn

from solver.errors import DocumentError
from solver.importers.text import shown

__all__ = ["Section", "read_sections", "with_backbones"]

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


_KEYS: Final = frozenset(
    {
        *("backbone", "trainable", "preload", "scalesize", "inputshape", "input_shape", "input_layers"),
        *("inputlayer", "outputlayer"),
    }
)
#: A name of a layer in a list, with the number of its output.
_READ: Final = re.compile(r"(.+?)(\(\d{1,3}\))?")


def with_backbones(
    sections: Sequence[Section], others: Collection[str], folder: Path | None
) -> dict[str, Section]:
    """The layers by name in lower case, those of backbones in the place of the sections that name them.

        [block1]                    the layers of base.ini, called block1/NAME; the first reads the section
        backbone = base.ini         before, or input_layers; who reads block1 reads the last of them
        trainable = true            false without it
        InputLayer, OutputLayer     the first and the last layer that is taken

    Sections of the other file that are not layers ([Model], [Dataset], ...) are ignored, as nntrainer does.
    The file lies in the folder of the model file or below.

    `sections` are those of layers; `others` are the names of sections in other files that are none. `folder`
    is that of the model file, None where it was not read from one. Raises DocumentError with file, line,
    section and key. Linear in the files.
    """
    layers: dict[str, Section] = {}
    for layer in _Reader(frozenset(others), folder).layers(sections, ()):
        if layer.name.lower() in layers:
            layer.fail("type", "belongs to a layer whose name is taken", "Rename one of the two sections.")
        layers[layer.name.lower()] = layer
    return layers


@dataclass(slots=True)
class _Reader:
    others: frozenset[str]
    folder: Path | None
    #: Last layer of each backbone, by the name of its section in lower case.
    last: dict[str, str] = field(default_factory=dict)

    def layers(self, sections: Sequence[Section], within: tuple[Path, ...]) -> list[Section]:
        layers: list[Section] = []
        for section in sections:
            section = self._reading_last(section)
            if "backbone" in section:
                layers += self._backbone(section, layers[-1].name if layers else "", within)
            else:
                layers.append(section)
        return layers

    def _reading_last(self, section: Section) -> Section:
        """The section with the last layers of the backbones that it reads."""
        if "input_layers" not in section:
            return section
        names = [_renamed(name, self.last) for name in section.words("input_layers")]
        return replace(section, values={**section.values, "input_layers": ",".join(names)})

    def _backbone(self, section: Section, before: str, within: tuple[Path, ...]) -> list[Section]:
        section.check_keys(_KEYS)
        path = self._path(section, within)
        inside = _Reader(self.others, self.folder).layers(self._read(section, path), (*within, path))
        taken = _between(section, inside)
        names = {layer.name.lower(): f"{section.name}/{layer.name}" for layer in inside}
        trainable = "true" if section.flag("trainable", default=False) else "false"
        sections = []
        for layer in taken:
            values = {**layer.values, "trainable": trainable}
            if "input_layers" in layer:
                inputs = [_renamed(name, names) for name in layer.words("input_layers")]
                values["input_layers"] = ",".join(inputs)
            sections.append(replace(layer, name=names[layer.name.lower()], values=values))
        first = sections[0].values
        first.pop("input_layers", None)
        reads = section.values.get("input_layers", before)
        if reads:
            first["input_layers"] = reads
        shape = section.values.get("input_shape", section.values.get("inputshape"))
        if shape is not None:
            first["input_shape"] = shape
        self.last[section.name.lower()] = sections[-1].name
        return sections

    def _path(self, section: Section, within: tuple[Path, ...]) -> Path:
        written = section.values["backbone"]
        if Path(written).suffix.lower() != ".ini":
            what = f"is {written!r:.80}, a model of another framework, which nntrainer does not train"
            section.fail("backbone", what, "Give the output of that model as an input_shape instead.")
        if section.flag("preload", default=False):
            section.fail("preload", "reads weights that are not part of a plan", "Leave it out.")
        if "scalesize" in section and section.number("scalesize") != 1:
            section.fail(
                "scalesize", "scales layers", "Write the units and filters into the backbone's file."
            )
        if self.folder is None:
            section.fail("backbone", "names another file", "Plan the file from its folder, by its path.")
        path = (self.folder / written).resolve()
        if not path.is_relative_to(self.folder.resolve()) or not path.is_file():
            what = f"names {written!r:.80}, which is not in the folder of the model file"
            section.fail("backbone", what, "Put the file beside the model file.")
        if path in within:
            section.fail("backbone", "is part of itself", "Name another file.")
        return path

    def _read(self, section: Section, path: Path) -> list[Section]:
        try:
            data = path.read_bytes()
        except OSError as error:
            section.fail("backbone", f"cannot be read: {error.strerror}", "Allow it to be read.")
        source = path.name
        try:
            read = read_sections(data)
        except DocumentError as error:
            section.fail(
                "backbone", f"names {source!r:.80}, which has a mistake: {error.message}"[:-1], error.remedy
            )
        sections = [replace(s, source=source) for s in read if s.name.lower() not in {"model", *self.others}]
        if not sections:
            section.fail("backbone", f"names {source!r:.80}, which has no layers", "Add a section for each.")
        return sections


def _renamed(name: str, names: dict[str, str]) -> str:
    """A layer that is read, under its name in `names`, with the number of its output as it is."""
    match = _READ.fullmatch(name)
    assert match is not None
    if name.lower() in names or match[1].lower() not in names:
        return names.get(name.lower(), name)
    return names[match[1].lower()] + (match[2] or "")


def _between(section: Section, layers: Sequence[Section]) -> Sequence[Section]:
    """The layers from InputLayer to OutputLayer."""
    places = {layer.name.lower(): k for k, layer in enumerate(layers)}
    bounds = [0, len(layers) - 1]
    for side, key in enumerate(("inputlayer", "outputlayer")):
        if key in section:
            name = section.word(key)
            if name not in places:
                known = ", ".join(layer.name for layer in layers)
                section.fail(key, f"is {section.values[key]!r:.80}", f"Choose one of {known}.")
            bounds[side] = places[name]
    if bounds[0] > bounds[1]:
        section.fail("outputlayer", "stands before InputLayer", "Exchange the two.")
    return layers[bounds[0] : bounds[1] + 1]
