"""Every solver on one problem: who packs tightest, how near to the bound, in what time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from service.layouts import Source, described, painter, read_source
from solver.errors import OptionsError
from solver.layout import SOLVERS, Deadline, LayoutOptions, LayoutProblem, Outcome, SolveOptions, solve
from solver.placement import prepare

__all__ = ["Contest", "Entry", "facts", "hold", "run", "table"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one solver made of the problem."""

    name: str
    outcome: Outcome

    @property
    def peak(self) -> int | None:
        return self.outcome.layout.peak if self.outcome.layout else None


@dataclass(frozen=True, slots=True)
class Contest:
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
) -> Contest:
    """Hold the contest on the problem of a file, and draw the winner's layout into `plot`."""
    paint = painter(plot)
    _check(names, seconds)
    source = read_source(path)
    contest = hold(source, names or tuple(SOLVERS), seconds, alignment, console)
    best = contest.entries[0].outcome
    if paint is not None and best.layout is not None:
        paint(source.name, contest.problem, best.layout, described(best), contest.lower_bound)
    return contest


def _check(names: Sequence[str], seconds: float | None) -> None:
    for name in names:
        if name not in SOLVERS:
            remedy = f"Choose from {', '.join(SOLVERS)}."
            raise OptionsError(f"There is no solver {name!r}.", remedy=remedy, path=("solver",))
    if seconds is not None and not seconds >= 0:
        raise OptionsError(f"deadline is {seconds}.", remedy="Give zero or more.", path=("deadline",))


def hold(
    source: Source, names: Sequence[str], seconds: float | None, alignment: int | None, console: Console
) -> Contest:
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
    return Contest(source.name, problem, tuple(entries))


def facts(contest: Contest) -> dict[str, Any]:
    """For scripts; sizes are bytes."""
    return {
        "buffers": len(contest.problem.buffers),
        "lower_bound": contest.lower_bound,
        "solvers": [_entry_facts(contest, entry) for entry in contest.entries],
    }


def _entry_facts(contest: Contest, entry: Entry) -> dict[str, Any]:
    outcome = entry.outcome
    return {
        "solver": entry.name,
        "peak": entry.peak,
        "ratio": contest.ratio(entry),
        "status": outcome.status.value,
        "proof": outcome.proof.value if outcome.proof else None,
        "lower_bound": outcome.lower_bound,
        "stage": outcome.solver,
        "deterministic": outcome.deterministic,
        "seconds": outcome.seconds,
    }


def table(contest: Contest) -> Table:
    """One line a solver. A ``*`` says that time, not work, ended the search."""
    title = f"{contest.name}: {len(contest.problem.buffers):,} buffers, lower bound {contest.lower_bound:,}"
    made = Table(title=title, title_justify="left")
    for heading in ("solver", "peak", "peak / bound", "status", "proof", "seconds"):
        made.add_column(heading, justify="left" if heading in ("solver", "status", "proof") else "right")
    for entry in contest.entries:
        made.add_row(*_row(contest, entry))
    return made


def _row(contest: Contest, entry: Entry) -> tuple[str, ...]:
    outcome, ratio = entry.outcome, contest.ratio(entry)
    return (
        entry.name,
        "-" if entry.peak is None else f"{entry.peak:,}",
        "-" if ratio is None else f"{ratio:.5f}",
        outcome.status.value,
        outcome.proof.value if outcome.proof else "-",
        f"{outcome.seconds:.3f}{' ' if outcome.deterministic else '*'}",
    )
