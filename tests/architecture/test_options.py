"""The options of the command line: each has its own flag, whatever Typer makes of a parameter's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from service.cli.commands import app


def options_of(command: Any) -> Iterator[Any]:
    """The options of a command, and of those below it."""
    yield from (option for option in command.params if option.param_type_name == "option")
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)


def test_each_option_has_its_flag() -> None:
    """A version of Typer took the metavar for the name: ``export --LOSS``."""
    options = list(options_of(get_command(app)))
    assert len(options) >= 70  # the search itself works
    metavars = [
        flag
        for option in options
        for flag in (*option.opts, *option.secondary_opts)
        if not flag.startswith("-") or flag != flag.lower()
    ]
    assert metavars == []
