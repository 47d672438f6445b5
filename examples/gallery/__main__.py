"""Plans, proves and trains examples of the gallery; lists them where none is named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import fmean

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from arenaplan.builder import Model
from examples.gallery import GALLERY, WINDOW, Example
from examples.models import render
from solver.errors import ArenaplanError
from solver.plan import Plan

__all__ = ["main", "run"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 when every example learnt bit-identically, 1 otherwise, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.gallery", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(GALLERY))
    parser.add_argument("--document", action="store_true", help="print graph documents instead")
    asked = parser.parse_args(arguments)
    names = asked.names
    for name in names:
        if name not in GALLERY:
            parser.error(f"there is no example {name!r}; choose from {', '.join(GALLERY)}")
    if asked.document and names:
        sys.stdout.writelines(render(GALLERY[name].model().document) for name in names)
        return 0
    console = Console()
    if not names:
        console.print(_listing())
        return 0
    try:
        verdicts = [run(console, GALLERY[name]) for name in names]
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    except ArenaplanError as error:
        console.print(f"gallery: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0 if all(verdicts) else 1


def run(console: Console, example: Example) -> bool:
    """Plan, validate and train one example; whether it was bit-identical and learnt."""
    model = example.model()
    plan = model.plan()
    console.print(f"\n[bold]{example.name}[/bold]: {example.title}, batch {example.batch}")
    console.print(_figures(model, plan))
    report = model.validate(steps=2)
    same = "identical to" if report.identical else "DIFFERENT from"
    console.print(f"{report.compared} tensors after each of 2 steps: {same} training without shared memory")
    losses = _train(console, example, example.prepare(model))
    learned = example.learned(losses)
    ends = f"loss {fmean(losses[:WINDOW]):.3f} over the first {WINDOW} steps, {fmean(losses[-WINDOW:]):.3f}"
    console.print(
        f"{ends} over the last of {len(losses)}: {'below' if learned else 'NOT below'} {example.goal:g}"
    )
    return report.identical and learned


def _figures(model: Model, plan: Plan) -> Table:
    arena = plan.arenas[0]
    trained = sum(model.graph.operands[name].type.elements for name in model.graph.trainable)
    figures = {
        "parameters": model.parameters,
        "of them trained": trained,
        "steps": len(plan.steps),
        "buffers": len(arena.buffers),
        "bytes without reuse": sum(buffer.size for buffer in arena.buffers),
        "arena, bytes": arena.size,
        "lower bound, bytes": arena.certificate.lower_bound,
    }
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, figure in figures.items():
        table.add_row(name, f"{figure:,}")
    table.add_row("proof", arena.certificate.proof.value if arena.certificate.proof else "none")
    return table


def _train(console: Console, example: Example, model: Model) -> list[float]:
    losses: list[float] = []
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=example.steps)
        for loss in example.train(model):
            losses.append(loss)
            progress.update(task, completed=len(losses), description=f"loss {loss:.4f}")
    return losses


def _listing() -> Table:
    table = Table("example", "what it is", title="python -m examples.gallery NAME...")
    for example in GALLERY.values():
        table.add_row(example.name, example.title)
    return table


if __name__ == "__main__":
    sys.exit(main())
