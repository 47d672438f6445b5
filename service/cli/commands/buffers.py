"""Commands that take bare buffers with lifespans: place them, compare those who place them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.commands.options import AsJson, Plot, Server, examples, on_one_thread, read_bytes
from service.cli.console import print_json, reporting

__all__ = ["app"]

app = typer.Typer()

ProblemFile = Annotated[Path, typer.Argument(help="CSV or buffers document, - for standard input.")]


def _fraction(text: str) -> float:
    """``0.5%`` or ``0.005``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise typer.BadParameter("give a share of the lower bound, as 0.5% or 0.005.")
    return value


@app.command(
    epilog=examples(
        "arenaplan solve problem.csv -o layout.csv",
        "arenaplan solve problem.csv --capacity 1MiB -o layout.csv",
        "arenaplan solve buffers.json --deadline 10 --target-gap 0.5% --plot layout.svg -o layout.json",
    )
)
def solve(
    problem: ProblemFile,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where the layout goes, .csv or .json; - is standard output."),
    ] = Path("-"),
    capacity: Annotated[
        int | None,
        typer.Option(
            parser=read_bytes, metavar="SIZE", help="What the peak must fit, as 1MiB; else minimise."
        ),
    ] = None,
    alignment: Annotated[int | None, typer.Option(help="Least alignment of every buffer, in bytes.")] = None,
    solver: Annotated[str, typer.Option(help="Layout solver.")] = "portfolio",
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Search no longer than this.")
    ] = None,
    work: Annotated[
        int | None, typer.Option(help="Search no further than this many buffers and sections looked at.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    threads: Annotated[
        int, typer.Option(help="Threads of the search; they change the time, never the answer.")
    ] = 2,
    race: Annotated[
        bool,
        typer.Option("--race", help="Take the first answer of any thread, which may differ from run to run."),
    ] = False,
    target_gap: Annotated[
        float | None,
        typer.Option(parser=_fraction, metavar="GAP", help="Stop this near to the bound: 0.5% or 0.005."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave out a rule of the search; repeatable.")
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
        from solver.layout import LayoutOptions

        rules = layouts.rules_without(without or ())
        options = LayoutOptions(
            solver, capacity, alignment, deadline, work, seed, threads, race, target_gap or 0.0, rules
        )
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
        list[str] | None, typer.Option(help="A solver to take part; may be given again. All, if left out.")
    ] = None,
    deadline: Annotated[float, typer.Option(metavar="SECONDS", help="Time of each solver.")] = 10.0,
    alignment: Annotated[int | None, typer.Option(help="Least alignment of every buffer, in bytes.")] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Rank what every layout solver makes of the same buffers."""
    with reporting(as_json=as_json, document=str(problem)):
        from rich.console import Console

        from service.cli import comparing

        made = comparing.run(problem, solver or (), deadline, alignment, plot, Console(stderr=True))
        if as_json:
            print_json(comparing.facts(made))
        else:
            Console().print(comparing.table(made))
