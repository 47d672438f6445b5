"""Backbones of nntrainer's model files: a section that stands for the layers of another file.

    [block1]                    the layers of base.ini, called block1/NAME; the first reads the section
    backbone = base.ini         before, or input_layers; who reads block1 reads the last of them
    trainable = true            false without it
    InputLayer, OutputLayer     the first and the last layer that is taken

Sections of the other file that are not layers ([Model], [Dataset], ...) are ignored, as nntrainer does. The
file lies in the folder of the model file or below.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from solver.errors import DocumentError
from solver.importers.nntrainer.ini import Section, read_sections

__all__ = ["with_backbones"]

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
