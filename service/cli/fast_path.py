"""A fast path for ``arenaplan solve``, ``plan`` and ``show`` as scripts call them, once a model.

Loading the parser of the whole command line takes as long as their work does. So the usual form is read
here: one file, one output, and options whose values are plain numbers, sizes or words. Help, mistakes and all
else are left to `service.cli.commands`, which knows what to say about them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

__all__ = ["FastPlan", "FastShow", "FastSolve", "read_fast", "usual_size"]

_WHOLE: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
#: The usual units among those of `solver.documents.read_size`, which takes a quarter of a second to load.
_SIZE: Final = re.compile(r"([0-9]{1,12})(kB|MB|GB|KiB|MiB|GiB)?", re.ASCII)
_UNITS: Final[Mapping[str, int]] = {
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_WORD: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)

#: Reads the value of an option; None for what needs a closer look.
_Reader = Callable[[str], int | float | str | None]


def usual_size(text: str) -> int | None:
    """Bytes of a whole number with one of the usual units or none; None for what needs a closer look."""
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _UNITS.get(found[2] or "", 1) if found else None


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _size(text: str) -> int | None:
    size = usual_size(text)
    return _whole(text) if size is None else size


def _decimal(text: str) -> float | None:
    return float(text) if _DECIMAL.fullmatch(text) else None


def _word(text: str) -> str | None:
    return text if _WORD.fullmatch(text) else None


def _phrase(text: str) -> str | None:
    return text if text and not text.startswith("-") else None


@dataclass(frozen=True, slots=True)
class _Command:
    """What a command takes: options with the fields that they set, those that may be given again, and flags.

    A flag sets the field of its name. A test says which options of the whole command line are not here.
    """

    options: Mapping[str, tuple[str, _Reader]]
    flags: frozenset[str]
    lists: Mapping[str, tuple[str, _Reader]] = field(default_factory=dict)


#: The fields are those of `LayoutOptions`.
_SOLVE: Final = _Command(
    {
        "--capacity": ("capacity", _size),
        "--alignment": ("alignment", _whole),
        "--solver": ("solver", _word),
        "--deadline": ("deadline_seconds", _decimal),
        "--work": ("work", _whole),
        "--seed": ("seed", _whole),
        "--threads": ("threads", _whole),
    },
    frozenset({"--race"}),
)

#: The fields are those of an options document.
_PLAN: Final = _Command(
    {
        "--target": ("target", _word),
        "--solver": ("solver", _word),
        "--batch": ("batch", _whole),
        "--alignment": ("alignment", _whole),
        "--capacity": ("capacity", _size),
        "--deadline": ("deadline_seconds", _decimal),
        "--scratch-budget": ("scratch_budget", _size),
        "--update": ("update", _word),
        "--storage": ("storage", _word),
        "--parallelism": ("parallelism", _whole),
    },
    frozenset({"--in-place", "--sub-ranges", "--rewrite", "--order", "--recompute", "--fit-scratch"}),
    {"--tier": ("tiers", _phrase)},
)


@dataclass(frozen=True, slots=True)
class FastSolve:
    """`given` are fields of `LayoutOptions`."""

    computes: ClassVar = False

    problem: Path
    output: Path
    given: Mapping[str, Any]
    as_json: bool = False

    def run(self) -> None:
        """Solve, write, and end as `service.cli.commands` does."""
        from service.cli.console import reporting

        with reporting(as_json=self.as_json, document=str(self.problem)):
            from service.cli import layouts
            from solver.layout import LayoutOptions

            options = LayoutOptions(**self.given)
            layouts.run(self.problem, options, self.output, None, as_json=self.as_json)


@dataclass(frozen=True, slots=True)
class FastPlan:
    """`given` are fields of an options document."""

    model: Path
    output: Path
    given: Mapping[str, Any]
    as_json: bool = False

    @property
    def computes(self) -> bool:
        """Whether there may be products to compute, of a model's constants."""
        return self.model.suffix not in ("", ".json")

    def run(self) -> None:
        """Plan, write, and end as `service.cli.commands` does."""
        from service.cli.console import reporting

        with reporting(as_json=self.as_json, document=str(self.model)):
            from service.cli import planning

            planning.run(self.model, self.given, self.output, as_json=self.as_json)


@dataclass(frozen=True, slots=True)
class FastShow:
    """Tables and a map as wide as the terminal."""

    computes: ClassVar = False

    plan: Path

    def run(self) -> None:
        """Show, and end as `service.cli.commands` does."""
        from service.cli.console import reporting

        with reporting(as_json=False, document=str(self.plan)):
            from service.cli import show

            show.run(self.plan, None, as_json=False)


def read_fast(arguments: Sequence[str]) -> FastSolve | FastPlan | FastShow | None:
    """What the arguments ask for; None where they are more than the fast path reads."""
    match list(arguments):
        case ["solve", *words]:
            if found := _read(words, _SOLVE):
                return FastSolve(*found)
        case ["plan", *words]:
            if found := _read(words, _PLAN):
                return FastPlan(*found)
        case ["show", plan] if _is_name(plan):
            return FastShow(Path(plan))
    return None


def _read(arguments: Sequence[str], command: _Command) -> tuple[Path, Path, dict[str, Any], bool] | None:
    """One file, the output, what the options set, and whether JSON is asked for; each option once."""
    files: list[str] = []
    outputs: list[str] = []
    given: dict[str, Any] = {}
    as_json = False
    words = iter(arguments)
    for word in words:
        if word in ("-o", "--output"):
            outputs.append(next(words, ""))
        elif word in command.options or word in command.lists:
            name, reader = command.options.get(word) or command.lists[word]
            value = reader(next(words, ""))
            if value is None or (name in given and word in command.options):
                return None
            given[name] = value if word in command.options else [*given.get(name, ()), value]
        elif word in command.flags:
            given[word.removeprefix("--").replace("-", "_")] = True
        elif word == "--json":
            as_json = True
        else:
            files.append(word)
    simple = len(files) == 1 and len(outputs) <= 1 and all(map(_is_name, [*files, *outputs]))
    return (Path(files[0]), Path(*outputs or "-"), given, as_json) if simple else None


def _is_name(text: str) -> bool:
    return text == "-" or (bool(text) and not text.startswith("-"))
