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
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from service.cli.console import note_end, print_json, print_line, read_document, write_document
from service.cli.options import AsJson, Commands, LayoutChoices, Plot, Server, on_one_thread
from service.cli.tables import FittingTable, make_table
from solver import documents
from solver.errors import DocumentError, NotJsonError, OptionsError
from solver.options import CONSTRAINTS

if TYPE_CHECKING:
    from solver.layout import (
        Certificate,
        Layout,
        LayoutOptions,
        LayoutProblem,
        Outcome,
        PlacedBuffers,
        Progress,
        Rules,
    )

__all__ = [
    "Source",
    "app",
    "comparison_facts",
    "comparison_table",
    "interruptible",
    "painter",
    "progress_line",
    "read_source",
    "reporter",
    "rules_without",
]

app = Commands()

_JSON: Final = ".json"
_CSV: Final = ".csv"

_PROBLEM: Final = "CSV or buffers document, - for standard input."

#: Seconds between two lines of progress; what comes sooner is shown in place.
PAUSE: Final = 0.1


@app.add(
    "arenaplan solve problem.csv -o layout.csv",
    "arenaplan solve problem.csv --capacity 1MiB -o layout.csv",
    "arenaplan solve problem.csv --memory tcm=64KiB,read=4GB/s,write=4GB/s --memory sram=1MiB -o l.csv",
    "arenaplan solve problem.csv --pin b1=64 --reserve 0..64 -o layout.csv",
    "arenaplan solve buffers.json --deadline 10 --target-gap 0.5% --plot layout.svg -o layout.json",
    words={
        "problem": _PROBLEM,
        "output": "Where the layout goes, .csv or .json; - is standard output.",
        "without RULE": "Leave out a rule of the search; repeatable.",
    },
)
def solve(
    problem: Path,
    *,
    output: Path = Path("-"),
    choices: LayoutChoices,
    without: list[str] | None = None,
    plot: Plot = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Place buffers with known lifespans.

    MiniMalloc's CSV or a buffers document goes in, offsets come out.
    """
    on_one_thread()
    options = _options_of(choices, without or ())
    paint = painter(plot)
    if paint is not None and options.memories:
        raise OptionsError(
            "A picture is of one memory, and several are given.",
            remedy="Leave the plot out, or the memories.",
            path=("plot",),
        )
    source = read_source(problem)
    kind = output.suffix.lower() if output.suffix.lower() in (_JSON, _CSV) else source.kind
    if server is None:
        from solver import placement

        with interruptible() as cancel, reporter(source) as progress:
            placed = placement.place(
                source.problem, options, incumbent=source.hinted, progress=progress, cancel=cancel
            )
    else:  # which is not told of the layout that hints in the file describe
        from service.cli.remote import Service

        placed = Service(server, as_json=as_json).layout(source.name, source.problem, options)
    beside = str(output) == "-"
    if kind == _JSON or (as_json and not beside):
        placed = documents.layout_with_digest(placed)
    write_document(output, _solution(placed, kind))
    if paint is not None:
        about = _described(placed.certificate)
        paint(source.name, placed.problem, placed.layout, about, placed.certificate.lower_bound)
    if as_json and not beside:
        print_json(_facts(placed))
    elif not as_json and (not beside or sys.stderr.isatty()):
        print_line(
            f"{source.name}: {len(placed.problem.buffers):,} buffers{_sentence(placed)}", to_errors=beside
        )


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
        return Source(name, documents.load_buffers(data), None, _JSON)
    if b"\0" in data[:1024]:
        raise NotJsonError(
            f"{name!r:.200} is neither a buffers document nor CSV.",
            remedy="Give MiniMalloc's CSV, or a buffers document (.json).",
        )
    from solver import importers

    table = importers.load_minimalloc(data)
    return Source(name, table.problem, table.incumbent(), _CSV)


def painter(path: Path | None) -> Callable[[str, LayoutProblem, Layout, str, int], None] | None:
    """A function that draws a layout into `path`, by its suffix; fails now rather than after the search.

    It takes the name and the problem, the layout, the second line of the title, and the lower bound.
    """
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

    def paint(name: str, problem: LayoutProblem, layout: Layout, about: str, lower_bound: int) -> None:
        title = f"{name}: {len(problem.buffers):,} buffers"
        scene = pictures.draw(problem, layout, title=title, about=about, lower_bound=lower_bound)
        write_document(path, encode(scene))

    return paint


def _options_of(choices: Mapping[str, Any], without: Sequence[str]) -> LayoutOptions:
    """The options of a layout. Raises OptionsError, whose path is an option."""
    from solver.layout import LayoutOptions

    texts = {name: choices[name] for name in (*CONSTRAINTS, "memories", "place") if name in choices}
    options = LayoutOptions(
        **{name: value for name, value in choices.items() if name not in texts}, rules=rules_without(without)
    )
    if not texts:
        return options
    try:
        read = documents.load_layout_options(texts)
    except DocumentError as error:
        raise OptionsError(error.message, remedy=error.remedy, path=error.path) from error
    return replace(options, **{name: getattr(read, name) for name in texts})


def rules_without(names: Sequence[str]) -> Rules:
    """All rules but these. Raises OptionsError for an unknown name."""
    from solver.layout import Rules

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


def _solution(placed: PlacedBuffers, kind: str) -> bytes:
    if kind == _JSON:
        return documents.dump_layout(placed, indent=2) + b"\n"
    from solver.exporters import dump_minimalloc

    homes = placed.homes
    if homes is None:
        return dump_minimalloc(placed.problem, placed.layout)
    names = [use.memory.name for use in homes.memories]
    return dump_minimalloc(placed.problem, placed.layout, [names[home] for home in homes.homes])


def _described(certificate: Certificate | Outcome) -> str:
    """``optimal (max-load), solver greedy``."""
    proof = f" ({certificate.proof.value})" if certificate.proof else ""
    return f"{certificate.status.value}{proof}, solver {certificate.solver}"


def _facts(placed: PlacedBuffers) -> dict[str, Any]:
    """The figures that scripts ask for; sizes are bytes."""
    certificate, homes = placed.certificate, placed.homes
    facts: dict[str, Any] = {
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
    }
    if homes is not None:
        memories = [
            {"name": use.memory.name, "bytes": use.memory.bytes, "peak": use.peak}
            | {"lower_bound": use.certificate.lower_bound, "status": use.certificate.status.value}
            for use in homes.memories
        ]
        facts["homes"] = {"accesses": homes.accesses, "bound": homes.bound, "memories": memories}
    return facts


def _sentence(placed: PlacedBuffers) -> str:
    """`` in 1,048,576 bytes, optimal (max-load), solver portfolio/greedy``; of several memories
    ``, 64 bytes in tcm, 128 bytes in psram; accesses take 4,000 ns, proved to be the least``.
    """
    homes, bound = placed.homes, placed.certificate.lower_bound
    if homes is None:
        gap = "" if placed.layout.peak == bound else f"{placed.gap:.2%} above the lower bound {bound:,}, "
        return f" in {placed.layout.peak:,} bytes, {gap}{_described(placed.certificate)}"
    used = ", ".join(f"{use.peak:,} bytes in {use.memory.name}" for use in homes.memories)
    proof = "proved to be the least"
    if homes.accesses > homes.bound:
        proof = f"{homes.bound:,} at least are proved"
    return f", {used}; accesses take {homes.accesses:,} ns, {proof}"


# ----------------------------------------------------------------------------------- several solvers


@app.add(
    "arenaplan compare problem.csv --deadline 5",
    "arenaplan compare problem.csv --solver greedy --solver portfolio --json",
    words={
        "problem": _PROBLEM,
        "solver": "A solver to take part; repeatable. All, if left out.",
        "deadline SECONDS": "Time of each solver.",
        "alignment": "Least alignment of every buffer, in bytes.",
    },
)
def compare(
    problem: Path,
    *,
    solver: list[str] | None = None,
    deadline: float = 10.0,
    alignment: int | None = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Rank what every layout solver makes of the same buffers."""
    from rich.console import Console

    from solver.layout import SOLVERS, Deadline, LayoutOptions, LayoutProblem, Outcome, SolveOptions, solve
    from solver.placement import prepare

    paint = painter(plot)
    for name in solver or ():
        if name not in SOLVERS:
            remedy = f"Choose from {', '.join(SOLVERS)}."
            raise OptionsError(f"There is no solver {name!r}.", remedy=remedy, path=("solver",))
    if not deadline >= 0:
        raise OptionsError(f"deadline is {deadline}.", remedy="Give zero or more.", path=("deadline",))
    source = read_source(problem)
    # A capacity of the problem plays no part.
    buffers = LayoutProblem(prepare(source.problem, LayoutOptions(alignment=alignment)).buffers)
    names, outcomes = tuple(dict.fromkeys(solver or SOLVERS)), dict[str, Outcome]()
    with Console(stderr=True).status("") as status:
        for k, name in enumerate(names, 1):
            status.update(f"{name} ({k} of {len(names)}) on {source.name}")
            outcomes[name] = solve(
                buffers, solver=name, deadline=Deadline.after(deadline), options=SolveOptions(work=None)
            )
    facts = comparison_facts(buffers, outcomes)
    best = outcomes[facts["solvers"][0]["solver"]]
    if paint is not None and best.layout is not None:
        paint(source.name, buffers, best.layout, _described(best), facts["lower_bound"])
    if as_json:
        print_json(facts)
    else:
        Console().print(comparison_table(source.name, facts))


def comparison_facts(problem: LayoutProblem, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The outcomes of solvers by peak, then by time; sizes are bytes. The lower bound is the largest that any
    of them proved; a ratio is 1.0 if nothing needs to be placed.
    """
    bound = max((outcome.lower_bound for outcome in outcomes.values()), default=0)
    rows: list[dict[str, Any]] = []
    for name, outcome in outcomes.items():
        peak = None if outcome.layout is None else outcome.layout.peak
        rows.append(
            {
                "solver": name,
                "peak": peak,
                "ratio": None if peak is None else peak / bound if bound else 1.0,
                "status": outcome.status.value,
                "proof": outcome.proof.value if outcome.proof else None,
                "lower_bound": outcome.lower_bound,
                "stage": outcome.solver,
                "deterministic": outcome.deterministic,
                "seconds": outcome.seconds,
            }
        )
    rows.sort(key=lambda row: (row["peak"] is None, row["peak"] or 0, row["seconds"]))
    return {"buffers": len(problem.buffers), "lower_bound": bound, "solvers": rows}


def comparison_table(name: str, facts: Mapping[str, Any]) -> FittingTable:
    """One line a solver. A ``*`` says that time, not work, ended the search."""
    title = f"{name}: {facts['buffers']:,} buffers, lower bound {facts['lower_bound']:,}"
    headings = ("solver", ">peak", ">peak / bound", "status", "proof", ">seconds")
    rows = [
        (
            row["solver"],
            "-" if row["peak"] is None else f"{row['peak']:,}",
            "-" if row["ratio"] is None else f"{row['ratio']:.5f}",
            row["status"],
            row["proof"] or "-",
            f"{row['seconds']:.3f}{' ' if row['deterministic'] else '*'}",
        )
        for row in facts["solvers"]
    ]
    return make_table(title, headings, rows)
