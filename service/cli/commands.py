"""The command line. Heavy imports wait inside the commands, so that help and errors are quick."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from service.cli import gates, layouts, operation, planning, plans, training, users, verdicts
from service.cli.console import Exit, fail
from service.cli.options import examples
from solver.removed import removed

__all__ = ["app"]


class _Commands(TyperGroup):
    """The commands; one that was removed is answered with what replaces it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if sentence := removed(f"arenaplan {args[0]}"):
            fail(sentence, Exit.USAGE)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="arenaplan",
    cls=_Commands,
    help="Plan the memory of neural-network training, prove the plan, train inside it.",
    epilog=examples(
        "arenaplan plan graph.json -o plan.json    plan the memory of a training graph",
        "arenaplan plan model.onnx --loss cross-entropy -o plan.json    the same of an ONNX model",
        "arenaplan show plan.json                  what is live at the peak, and where",
        "arenaplan tradeoff graph.json             what less memory costs in time",
        "arenaplan explain graph.json --capacity 16MB   whether that fits, and what would make it fit",
        "arenaplan validate graph.json plan.json   train in the planned arena, and compare",
        "arenaplan solve problem.csv -o out.csv    place buffers with known lifespans",
        "arenaplan --install-completion            complete commands and options in this shell",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for topic in (planning, verdicts, training, plans, gates, layouts, operation, users):
    app.add_typer(topic.app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from solver.version import version

        typer.echo(f"arenaplan {version()}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
