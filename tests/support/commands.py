"""The command line in this process."""

from __future__ import annotations

from typing import Final

from click.testing import CliRunner, Result
from typer.main import get_command

from service.cli.commands import app

__all__ = ["run"]

#: Built once: the runner of typer builds it for each call, which takes longer than most commands.
_COMMAND: Final = get_command(app)


def run(*words: object, stdin: str | None = None, columns: int = 160) -> Result:
    """The exit code and both streams of ``arenaplan WORD...`` on a terminal that is `columns` wide."""
    runner = CliRunner(env={"COLUMNS": str(columns)})
    return runner.invoke(_COMMAND, [*map(str, words)], input=stdin)  # type: ignore[arg-type]  # typer has a copy of click
