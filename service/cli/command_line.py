"""Commands as text, which a message shows and a reader pastes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from service.cli.console import print_line
from solver.options import REQUEST_OPTIONS, flag_of

__all__ = ["command_line", "explain_command", "print_commands", "reading_commands"]

#: Options of `plan` that `explain` does not take, and the capacity, for which it has another one.
_SCHEDULED: Final = {
    "solver",
    "capacity",
    *(n for n, o in REQUEST_OPTIONS.items() if "verdict" not in o.changes),
}

_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def command_line(
    command: str, *arguments: str | Path, options: Mapping[str, Any], output: str | None = None
) -> str:
    """``arenaplan plan graph.json --batch 4 -o plan.json``, quoted for a shell.

    `options` are by name: fields of an options document and choices for models. Those that have their default
    or are None are left out.
    """
    words = ["arenaplan", command, *map(str, arguments)]
    for name, value in options.items():
        declared = REQUEST_OPTIONS.get(name)
        if value is None or (declared is not None and value == declared.default):
            continue
        if value is True:
            words.append(flag_of(name))
            continue
        if name == "only" and not isinstance(value, str):
            words += ["--only", ",".join(value).replace("_", "-")] if value else ["--as-written"]
            continue
        is_size = declared is not None and declared.kind == "size"
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [flag_of(name), _size_text(one) if is_size else str(one)]
    return shlex.join(words + (["-o", output] if output else []))


def _size_text(size: int | str) -> str:
    """Bytes as ``512KiB`` where that is exact."""
    if isinstance(size, int):
        for unit, name in _UNITS:
            if size and size % unit == 0:
                return f"{size // unit}{name}"
    return str(size)


def explain_command(
    model: Path, fields: Mapping[str, Any], choices: Mapping[str, Any], capacity: int, server: str | None
) -> str:
    """The command that says what would make the network fit, with the options of a plan that does not."""
    kept = {name: value for name, value in fields.items() if name not in _SCHEDULED}
    if isinstance(kept.get("batch"), str):  # a range: its largest size is what does not fit
        kept["batch"] = kept["batch"].rpartition("..")[2]
    options = {**kept, "capacity": capacity, **choices, "server": server}
    return command_line("explain", model, options=options)


def reading_commands(plan_file: str) -> Iterator[tuple[str, str]]:
    """The commands that read a plan of any kind: the purpose of each, and the command."""
    yield "to see what is live at the peak, and where", command_line("show", plan_file, options={})
    page = Path(plan_file).with_suffix(".html")
    yield "to see the same as a page", command_line("report", plan_file, options={}, output=str(page))
    header = Path(plan_file).with_suffix(".h")
    yield "to use it on a device", command_line("export", plan_file, options={}, output=str(header))


def print_commands(commands: Iterable[tuple[str, str]]) -> None:
    """Print commands one a line, each below the words for what it does, so that none is cut or wrapped."""
    print_line("")
    for words, command in commands:
        print_line(f"{words}:\n  {command}")
