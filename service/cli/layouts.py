"""Bare buffers on the command line: `solve` and `compare`.

Scripts call `solve` once for each model, with CSV on both sides: modules that this does not need are imported
where they are used.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from service.cli.console import note_end, print_json, print_line, read_document, write_document
from solver import exporters, importers
from solver.errors import DocumentError, NotJsonError, OptionsError
from solver.layout import (
    SOLVERS,
    Certificate,
    Deadline,
    Layout,
    LayoutOptions,
    LayoutProblem,
    Outcome,
    PlacedBuffers,
    PlacedHomes,
    Progress,
    Rules,
    SolveOptions,
    solve,
)
from solver.options import CONSTRAINTS
from solver.placement import place, prepare

if TYPE_CHECKING:
    from rich.console import Console

    from service.cli.tables import FittingTable
    from solver.pictures import Scene

__all__ = [
    "Comparison",
    "Entry",
    "Painter",
    "Source",
    "compare",
    "comparison_facts",
    "comparison_table",
    "described",
    "interruptible",
    "options_of",
    "painter",
    "progress_line",
    "read_source",
    "reporter",
    "rules_without",
    "run",
    "run_comparison",
    "summary",
]

_JSON: Final = ".json"
_CSV: Final = ".csv"

#: Seconds between two lines of progress; what comes sooner is shown in place.
PAUSE: Final = 0.1

#: Writes the picture of a layout: problem, layout, second line of the title, lower bound.
Painter = Callable[[str, LayoutProblem, Layout, str, int], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A problem from a file, the layout that its hints describe, and the kind of file it was."""

    name: str
    problem: LayoutProblem
    hinted: Layout | None
    kind: str


def read_source(path: Path) -> Source:
    """Buffers document or MiniMalloc's CSV; what the text begins with decides, not the name."""
    data = read_document(path)
    name = "standard input" if str(path) == "-" else path.name
    if data.lstrip()[:1] in (b"{", b"[") or (not data.strip() and path.suffix.lower() == _JSON):
        from solver import documents

        return Source(name, documents.load_buffers(data), None, _JSON)
    if b"\0" in data[:1024]:
        raise NotJsonError(
            f"{name!r:.200} is neither a buffers document nor CSV.",
            remedy="Give MiniMalloc's CSV, or a buffers document (.json).",
        )
    table = importers.load_minimalloc(data)
    return Source(name, table.problem, table.incumbent(), _CSV)


def painter(path: Path | None) -> Painter | None:
    """How to write a memory map to `path`, by its suffix; fails now rather than after the search."""
    if path is None:
        return None
    from solver import pictures

    formats = {".png": pictures.to_png, ".svg": pictures.to_svg}
    encode = formats.get(path.suffix.lower())
    if encode is None:
        raise OptionsError(
            f"{path.name!r} is not a file name of a picture.",
            remedy="End it in .svg or .png.",
            path=("plot",),
        )
    encode(pictures.Scene(1, 1, ""))
    return partial(_paint, path, encode)


def _paint(
    path: Path,
    encode: Callable[[Scene], bytes],
    name: str,
    problem: LayoutProblem,
    layout: Layout,
    about: str,
    lower_bound: int,
) -> None:
    from solver import pictures

    title = f"{name}: {len(problem.buffers):,} buffers"
    scene = pictures.draw(problem, layout, title=title, about=about, lower_bound=lower_bound)
    write_document(path, encode(scene))


def run(
    path: Path,
    options: LayoutOptions,
    output: Path,
    plot: Path | None,
    *,
    as_json: bool,
    server: str | None = None,
) -> None:
    """Solve the problem of a file and write its layout, as CSV or JSON by the name of the output.

    The service at `server` is not told of the layout that hints in the file describe.
    """
    paint = painter(plot)
    if paint is not None and options.memories:
        raise OptionsError(
            "A picture is of one memory, and several are given.",
            remedy="Leave the plot out, or the memories.",
            path=("plot",),
        )
    source = read_source(path)
    kind = _kind(output, source)
    if server is None:
        with interruptible() as cancel, reporter(source) as progress:
            placed = place(source.problem, options, incumbent=source.hinted, progress=progress, cancel=cancel)
    else:
        from service.cli.remote import Service

        placed = Service(server, as_json=as_json).layout(source.name, source.problem, options)
    beside = str(output) == "-"
    if kind == _JSON or (as_json and not beside):
        from solver import documents

        placed = documents.layout_with_digest(placed)
    write_document(output, _solution(placed, kind))
    if paint is not None:
        about = described(placed.certificate)
        paint(source.name, placed.problem, placed.layout, about, placed.certificate.lower_bound)
    if as_json and not beside:
        print_json(summary(placed))
    elif not as_json and (not beside or sys.stderr.isatty()):
        print_line(_sentence(source, placed), to_errors=beside)


def options_of(choices: Mapping[str, Any], without: Sequence[str]) -> LayoutOptions:
    """The options of a layout. Raises OptionsError, whose path is an option."""
    texts = {name: choices[name] for name in (*CONSTRAINTS, "memories", "place") if name in choices}
    options = LayoutOptions(
        **{name: value for name, value in choices.items() if name not in texts}, rules=rules_without(without)
    )
    if not texts:
        return options
    from solver import documents

    try:
        read = documents.load_layout_options(texts)
    except DocumentError as error:
        raise OptionsError(error.message, remedy=error.remedy, path=error.path) from error
    return replace(options, **{name: getattr(read, name) for name in texts})


def rules_without(names: Sequence[str]) -> Rules:
    """All rules but these. Raises OptionsError for an unknown name."""
    known = [field.name for field in fields(Rules)]
    for name in names:
        if name not in known:
            remedy = f"Choose from {', '.join(known)}."
            raise OptionsError(f"There is no rule {name!r}.", remedy=remedy, path=("without",))
    return replace(Rules(), **dict.fromkeys(names, False))


@contextlib.contextmanager
def interruptible() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set: compiled code hears of nothing else. Ends in KeyboardInterrupt
    then.
    """
    cancel = Event()

    def end(number: int, _frame: object) -> None:
        note_end(number)
        # In a thread: the handler may interrupt this one while it holds the lock of the event.
        Thread(target=cancel.set).start()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield cancel
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if cancel.is_set():
            raise KeyboardInterrupt


@contextlib.contextmanager
def reporter(source: Source) -> Iterator[Callable[[Progress], None] | None]:
    """Shows each better layout or bound on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    last = [-PAUSE]
    with console.status(f"placing {len(source.problem.buffers):,} buffers of {source.name}") as status:

        def show(news: Progress) -> None:
            line = progress_line(news)
            status.update(f"{source.name}: {line}")
            if news.seconds - last[0] >= PAUSE:
                last[0] = news.seconds
                console.print(line)

        yield show


def progress_line(news: Progress) -> str:
    """``   0.03 s  peak 1,018,880  bound 989,184  gap 3.00%  greedy``."""
    figures = f"peak {news.incumbent:,}  bound {news.bound:,}  gap {news.gap:.2%}"
    return f"{news.seconds:7.2f} s  {figures}  {news.stage}"


def _kind(output: Path, source: Source) -> str:
    suffix = output.suffix.lower()
    return suffix if suffix in (_JSON, _CSV) else source.kind


def _solution(placed: PlacedBuffers, kind: str) -> bytes:
    if kind == _JSON:
        from solver import documents

        return documents.dump_layout(placed, indent=2) + b"\n"
    homes = placed.homes
    if homes is None:
        return exporters.dump_minimalloc(placed.problem, placed.layout)
    names = [each.memory.name for each in homes.memories]
    return exporters.dump_minimalloc(placed.problem, placed.layout, [names[home] for home in homes.homes])


def described(certificate: Certificate | Outcome) -> str:
    """``optimal (max-load), solver greedy``."""
    proof = f" ({certificate.proof.value})" if certificate.proof else ""
    return f"{certificate.status.value}{proof}, solver {certificate.solver}"


def summary(placed: PlacedBuffers) -> dict[str, Any]:
    """The figures that scripts ask for; sizes are bytes."""
    certificate = placed.certificate
    return {
        "digest": placed.digest,
        "buffers": len(placed.problem.buffers),
        "capacity": placed.problem.capacity,
        "peak": placed.layout.peak,
        "lower_bound": certificate.lower_bound,
        "gap": placed.gap,
        "status": certificate.status.value,
        "proof": certificate.proof.value if certificate.proof else None,
        "witness_step": certificate.witness_step,
        "solver": certificate.solver,
        "deterministic": placed.deterministic,
        **({} if placed.homes is None else {"homes": _homes_facts(placed.homes)}),
    }


def _sentence(source: Source, placed: PlacedBuffers) -> str:
    """``A.csv: 154 buffers in 1,048,576 bytes, optimal (max-load), solver portfolio/greedy``."""
    if placed.homes is not None:
        return _homes_sentence(source, placed, placed.homes)
    bound = placed.certificate.lower_bound
    gap = "" if placed.layout.peak == bound else f"{placed.gap:.2%} above the lower bound {bound:,}, "
    count = len(placed.problem.buffers)
    size = f"{count:,} buffers in {placed.layout.peak:,} bytes"
    return f"{source.name}: {size}, {gap}{described(placed.certificate)}"


def _homes_sentence(source: Source, placed: PlacedBuffers, homes: PlacedHomes) -> str:
    """``A.csv: 3 buffers, 64 bytes in tcm, 128 in psram; accesses take 4,000 ns, proved to be the least``."""
    used = ", ".join(f"{each.peak:,} bytes in {each.memory.name}" for each in homes.memories)
    proof = "proved to be the least"
    if homes.accesses > homes.bound:
        proof = f"{homes.bound:,} at least are proved"
    count = len(placed.problem.buffers)
    return f"{source.name}: {count:,} buffers, {used}; accesses take {homes.accesses:,} ns, {proof}"


def _homes_facts(homes: PlacedHomes) -> dict[str, Any]:
    return {
        "accesses": homes.accesses,
        "bound": homes.bound,
        "memories": [
            {"name": each.memory.name, "bytes": each.memory.bytes, "peak": each.peak}
            | {"lower_bound": each.certificate.lower_bound, "status": each.certificate.status.value}
            for each in homes.memories
        ],
    }


# ----------------------------------------------------------------------------------- several solvers


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome of one solver."""

    name: str
    outcome: Outcome

    @property
    def peak(self) -> int | None:
        return self.outcome.layout.peak if self.outcome.layout else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcomes of all solvers, by peak, then by time."""

    name: str
    problem: LayoutProblem
    entries: tuple[Entry, ...]

    @property
    def lower_bound(self) -> int:
        """The largest bound that any solver proved."""
        return max((entry.outcome.lower_bound for entry in self.entries), default=0)

    def ratio(self, entry: Entry) -> float | None:
        """Peak over bound; 1.0 where nothing needs to be placed."""
        if entry.peak is None:
            return None
        return entry.peak / self.lower_bound if self.lower_bound else 1.0


def run_comparison(
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


def comparison_facts(comparison: Comparison) -> dict[str, Any]:
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


def comparison_table(comparison: Comparison) -> FittingTable:
    """One line a solver. A ``*`` says that time, not work, ended the search."""
    from service.cli.tables import make_table

    count = f"{len(comparison.problem.buffers):,}"
    title = f"{comparison.name}: {count} buffers, lower bound {comparison.lower_bound:,}"
    headings = ("solver", ">peak", ">peak / bound", "status", "proof", ">seconds")
    return make_table(title, headings, [_row(comparison, entry) for entry in comparison.entries])


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
