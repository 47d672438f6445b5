"""A fast path for ``arenaplan solve`` as scripts call it, once a model.

Loading the parser of the whole command line takes as long as the search does. So the usual form is read
here: one file, one output, and options whose values are plain numbers or sizes. Help, mistakes and all
else are left to `service.cli.commands`, which knows what to say about them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["FastSolve", "read_fast", "usual_size"]

_WHOLE: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
#: The usual units among those of `solver.documents.read_size`, which takes a quarter of a second to load.
_SIZE: Final = re.compile(r"([0-9]{1,12})(kB|MB|GB|KiB|MiB|GiB)?", re.ASCII)
_UNITS: Final[Mapping[str, int]] = {
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)

#: Options of `solve` and the fields of `LayoutOptions` that they set.
_NUMBERS: Final[Mapping[str, str]] = {
    "--capacity": "capacity",
    "--alignment": "alignment",
    "--deadline": "deadline_seconds",
    "--work": "work",
    "--seed": "seed",
    "--threads": "threads",
}


@dataclass(frozen=True, slots=True)
class FastSolve:
    """`numbers` are fields of `LayoutOptions`."""

    problem: Path
    output: Path
    numbers: Mapping[str, int | float]

    def run(self) -> None:
        """Solve, write, and end as `service.cli.commands` does."""
        from service.cli.console import reporting

        with reporting(as_json=False, document=str(self.problem)):
            from service.cli import layouts
            from solver.layout import LayoutOptions

            options = LayoutOptions(**self.numbers)  # type: ignore[arg-type] # only the deadline is a float
            layouts.run(self.problem, options, self.output, None, as_json=False)


def read_fast(arguments: Sequence[str]) -> FastSolve | None:
    """What the arguments ask for; None where they are more than the fast path reads."""
    if not arguments or arguments[0] != "solve":
        return None
    files: list[str] = []
    outputs: list[str] = []
    numbers: dict[str, int | float] = {}
    words = iter(arguments[1:])
    for word in words:
        if word in ("-o", "--output"):
            outputs.append(next(words, ""))
        elif word in _NUMBERS:
            number = _number(_NUMBERS[word], next(words, ""))
            if number is None or _NUMBERS[word] in numbers:
                return None
            numbers[_NUMBERS[word]] = number
        else:
            files.append(word)
    simple = len(files) == 1 and len(outputs) <= 1 and all(map(_is_name, [*files, *outputs]))
    return FastSolve(Path(files[0]), Path(*outputs or "-"), numbers) if simple else None


def _number(field: str, text: str) -> int | float | None:
    if field == "deadline_seconds":
        return float(text) if _DECIMAL.fullmatch(text) else None
    if field == "capacity" and (size := usual_size(text)) is not None:
        return size
    return int(text) if _WHOLE.fullmatch(text) else None


def usual_size(text: str) -> int | None:
    """Bytes of a whole number with one of the usual units or none; None for what needs a closer look."""
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _UNITS.get(found[2] or "", 1) if found else None


def _is_name(text: str) -> bool:
    return text == "-" or (bool(text) and not text.startswith("-"))
