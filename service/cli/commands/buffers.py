"""Commands that take bare buffers with lifespans: place them, compare those who place them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.commands.options import (
    AsJson,
    Commands,
    LayoutChoices,
    Plot,
    Server,
    examples,
    grouped,
    on_one_thread,
)
from service.cli.console import print_json, reporting

__all__ = ["app"]

app = Commands()

ProblemFile = Annotated[Path, typer.Argument(help="CSV or buffers document, - for standard input.")]


@app.command(
    epilog=examples(
        "arenaplan solve problem.csv -o layout.csv",
        "arenaplan solve problem.csv --capacity 1MiB -o layout.csv",
        "arenaplan solve problem.csv --memory tcm=64KiB,read=4GB/s,write=4GB/s --memory sram=1MiB -o l.csv",
        "arenaplan solve problem.csv --pin b1=64 --reserve 0..64 -o layout.csv",
        "arenaplan solve buffers.json --deadline 10 --target-gap 0.5% --plot layout.svg -o layout.json",
    )
)
@grouped
def solve(
    problem: ProblemFile,
    *,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where the layout goes, .csv or .json; - is standard output."),
    ] = Path("-"),
    choices: LayoutChoices,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="RULE", help="Leave out a rule of the search; repeatable."),
    ] = None,
    plot: Plot = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Place buffers with known lifespans.

    MiniMalloc's CSV or a buffers document goes in, offsets come out.
    """
    on_one_thread()
    with reporting(as_json=as_json, document=str(problem)):
        from service.cli import layouts

        options = layouts.options_of(choices, without or ())
        layouts.run(problem, options, output, plot, as_json=as_json, server=server)


@app.command(
    epilog=examples(
        "arenaplan compare problem.csv --deadline 5",
        "arenaplan compare problem.csv --solver greedy --solver portfolio --json",
    )
)
def compare(
    problem: ProblemFile,
    solver: Annotated[
        list[str] | None,
        typer.Option("--solver", help="A solver to take part; repeatable. All, if left out."),
    ] = None,
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", help="Time of each solver.")
    ] = 10.0,
    alignment: Annotated[
        int | None, typer.Option("--alignment", help="Least alignment of every buffer, in bytes.")
    ] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Rank what every layout solver makes of the same buffers."""
    with reporting(as_json=as_json, document=str(problem)):
        from rich.console import Console

        from service.cli import layouts

        console = Console(stderr=True)
        comparison = layouts.run_comparison(problem, solver or (), deadline, alignment, plot, console)
        if as_json:
            print_json(layouts.comparison_facts(comparison))
        else:
            Console().print(layouts.comparison_table(comparison))
