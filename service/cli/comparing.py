"""Every solver on one problem: who packs tightest, how near to the bound, in what time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from service.cli.layouts import Source, described, painter, read_source
from solver.errors import OptionsError
from solver.layout import SOLVERS, Deadline, LayoutOptions, LayoutProblem, Outcome, SolveOptions, solve
from solver.placement import prepare

__all__ = ["Comparison", "Entry", "compare", "facts", "run", "table"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one solver made of the problem."""

    name: str
    outcome: Outcome

    @property
    def peak(self) -> int | None:
        return self.outcome.layout.peak if self.outcome.layout else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All entries: the smallest peak first, among equals the quickest."""

    name: str
    problem: LayoutProblem
    entries: tuple[Entry, ...]

    @property
    def lower_bound(self) -> int:
        """The best that any of them proved."""
        return max((entry.outcome.lower_bound for entry in self.entries), default=0)

    def ratio(self, entry: Entry) -> float | None:
        """Peak over bound; 1.0 where nothing needs to be placed."""
        if entry.peak is None:
            return None
        return entry.peak / self.lower_bound if self.lower_bound else 1.0


def run(
    path: Path,
    names: Sequence[str],
    seconds: float | None,
    alignment: int | None,
    plot: Path | None,
    console: Console,
) -> Comparison:
    """Compare solvers on the problem of a file, and draw the best layout into `plot`."""
    paint = painter(plot)
    _check(names, seconds)
    source = read_source(path)
    comparison = compare(source, names or tuple(SOLVERS), seconds, alignment, console)
    best = comparison.entries[0].outcome
    if paint is not None and best.layout is not None:
        paint(source.name, comparison.problem, best.layout, described(best), comparison.lower_bound)
    return comparison


def _check(names: Sequence[str], seconds: float | None) -> None:
    for name in names:
        if name not in SOLVERS:
            remedy = f"Choose from {', '.join(SOLVERS)}."
            raise OptionsError(f"There is no solver {name!r}.", remedy=remedy, path=("solver",))
    if seconds is not None and not seconds >= 0:
        raise OptionsError(f"deadline is {seconds}.", remedy="Give zero or more.", path=("deadline",))


def compare(
    source: Source, names: Sequence[str], seconds: float | None, alignment: int | None, console: Console
) -> Comparison:
    """One after the other, `seconds` each; a capacity of the problem plays no part."""
    problem = LayoutProblem(prepare(source.problem, LayoutOptions(alignment=alignment)).buffers)
    entries, search = [], SolveOptions() if seconds is None else SolveOptions(work=None)
    with console.status("") as status:
        for k, name in enumerate(dict.fromkeys(names), 1):
            status.update(f"{name} ({k} of {len(names)}) on {source.name}")
            deadline = Deadline.after(seconds)
            outcome = solve(problem, solver=name, deadline=deadline, options=search)
            entries.append(Entry(name, outcome))
    entries.sort(key=lambda entry: (entry.peak is None, entry.peak or 0, entry.outcome.seconds))
    return Comparison(source.name, problem, tuple(entries))


def facts(comparison: Comparison) -> dict[str, Any]:
    """For scripts; sizes are bytes."""
    return {
        "buffers": len(comparison.problem.buffers),
        "lower_bound": comparison.lower_bound,
        "solvers": [_entry_facts(comparison, entry) for entry in comparison.entries],
    }


def _entry_facts(comparison: Comparison, entry: Entry) -> dict[str, Any]:
    outcome = entry.outcome
    return {
        "solver": entry.name,
        "peak": entry.peak,
        "ratio": comparison.ratio(entry),
        "status": outcome.status.value,
        "proof": outcome.proof.value if outcome.proof else None,
        "lower_bound": outcome.lower_bound,
        "stage": outcome.solver,
        "deterministic": outcome.deterministic,
        "seconds": outcome.seconds,
    }


def table(comparison: Comparison) -> Table:
    """One line a solver. A ``*`` says that time, not work, ended the search."""
    count = f"{len(comparison.problem.buffers):,}"
    title = f"{comparison.name}: {count} buffers, lower bound {comparison.lower_bound:,}"
    made = Table(title=title, title_justify="left")
    for heading in ("solver", "peak", "peak / bound", "status", "proof", "seconds"):
        made.add_column(heading, justify="left" if heading in ("solver", "status", "proof") else "right")
    for entry in comparison.entries:
        made.add_row(*_row(comparison, entry))
    return made


def _row(comparison: Comparison, entry: Entry) -> tuple[str, ...]:
    outcome, ratio = entry.outcome, comparison.ratio(entry)
    return (
        entry.name,
        "-" if entry.peak is None else f"{entry.peak:,}",
        "-" if ratio is None else f"{ratio:.5f}",
        outcome.status.value,
        outcome.proof.value if outcome.proof else "-",
        f"{outcome.seconds:.3f}{' ' if outcome.deterministic else '*'}",
    )
