"""The command line and the script `run`, each in the words of its own help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from docs.generator.markdown import page, table
from service.cli.commands import app

__all__ = ["command_line", "run_script"]

ROOT = Path(__file__).resolve().parents[2]

#: Columns of the help texts: what a page of the site shows without scrolling.
WIDTH = "92"


def command_line() -> str:
    """`arenaplan` and each of its commands, as ``--help`` prints them."""
    names = list(_names(get_command(app)))
    return page(
        "Command line",
        "Every command has `--help`; this page is what it prints. `-` stands for standard input or output, "
        "`--json` prints for scripts, and progress goes to standard error on a terminal only. A plan file is "
        "replaced only by a finished plan.",
        _help(),
        *(f"## arenaplan {name}\n\n{_help(*name.split())}" for name in names),
    )


def _names(group: Any) -> Iterator[str]:
    """Every command; of those that have commands of their own, these behind it."""
    for name, command in group.commands.items():
        yield name
        if hasattr(command, "commands"):
            yield from (f"{name} {below}" for below in _names(command))


def _help(*command: str) -> str:
    result = CliRunner().invoke(
        app, [*command, "--help"], prog_name="arenaplan", env={"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH}
    )
    return f"```text\n{result.output.strip()}\n```"


def run_script() -> str:
    """The commands of ``./run``."""
    usage = (ROOT / "run").read_text(encoding="utf-8").split("TEXT")[1].strip("'\n")
    commands = re.findall(r"^  ([a-z]+)", usage, re.MULTILINE)
    return page(
        "The script run",
        "`./run` is the entry point for people who work on the project and for its continuous "
        "integration. It "
        "needs bash and Python 3.11 or newer, and makes the environment that a command needs.",
        table(("command", "as you type it"), ((name, f"`./run {name}`") for name in commands)),
        f"```text\n{usage}\n```",
    )
