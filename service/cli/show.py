"""A plan on the terminal: tables, the worst step, and a map of the arena in letters."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from service.cli.tables import FittingTable, make_table, say
from solver.layout import Proof
from solver.pipeline import PROGRAM, TARGETS
from solver.plan import (
    Arena,
    Deployment,
    JoinedPlan,
    PlanView,
    deployment_notes,
    entry_point_reports,
    persistent_rows,
)
from solver.reports.arenas import (
    ArenaReport,
    MemoryMap,
    PlanReport,
    Recycling,
    certificate_note,
    memory_map,
    recycling,
    report,
)
from solver.reports.records import Paging, Recomputation, paging, recomputation
from solver.reports.rows import row_named, rows, summary

__all__ = [
    "LETTERS",
    "curve_line",
    "entry_point_line",
    "facts",
    "map_lines",
    "print_summary",
    "render",
]

#: One letter for each kind of operand in the map.
LETTERS: Final = {
    "input": "i", "label": "l", "parameter": "W", "state": "s", "constant": "c", "activation": "A",
    "loss": "L", "derivative": "D", "partial": "p", "gradient": "G", "optimizer_variable": "O",
    "saved": "S", "scratch": "x", "result": "R",
}  # fmt: skip

#: A line of a table.
_Cells = tuple[str, ...]

_FREE: Final = "."
_BARS: Final = " ▁▂▃▄▅▆▇█"
_ASCII_BARS: Final = " .:-=+*#@"
#: Operands named at the worst step of each arena; --json has all of them.
_MOST_NAMED: Final = 8
#: Lines of the table of allocations; the first is no operation.
_MOST_OPERATIONS: Final = 41
#: Letters of the longest solver that has room beside the other columns.
_LONG_SOLVER: Final = 18
#: Lines of the map of a single arena; several share the screen.
_MAP_LINES: Final = 20


def facts(plan: PlanView | Deployment) -> dict[str, Any]:
    """Everything `render` shows and more, for scripts; sizes are bytes."""
    statistics = report(JoinedPlan(plan) if isinstance(plan, Deployment) else plan)
    kinds = [
        {"kind": row.kind.value, "buffers": row.buffers, "bytes": row.total, "peak": row.peak}
        for row in statistics.kinds
    ]
    arenas = [_arena_facts(arena) for arena in statistics.arenas]
    if isinstance(plan, Deployment):
        names = [{"name": arena.name, "bytes": arena.size} for arena in statistics.arenas]
        return {
            **summary(plan),
            "persistent": [asdict(row) for row in persistent_rows(plan)],
            "bytes_without_reuse": statistics.total,
            "kinds": kinds,
            "arenas": [name | arena for name, arena in zip(names, arenas, strict=True)],
        }
    for one, certificate in zip(arenas, summary(plan)["arenas"], strict=True):
        one |= certificate
    return {
        **summary(plan),
        "bytes_without_reuse": statistics.total,
        "kinds": kinds,
        "arenas": arenas,
        "recycling": asdict(recycling(plan)),
        "target_note": _target_note(plan),
        **{row.name: row.value for row in rows(plan)},
    }


def _arena_facts(arena: ArenaReport) -> dict[str, Any]:
    return {
        "peak_step": arena.peak_step,
        "peak_step_id": arena.peak_step_id,
        "live_bytes": arena.live_bytes,
        "utilisation": arena.utilisation,
        "fragmentation": arena.fragmentation,
        "live_at_peak": [{"operand": b.id, "kind": b.kind.value, "bytes": b.size} for b in arena.live],
        "live_curve": list(arena.curve),
    }


def render(plan: PlanView | Deployment, width: int | None) -> None:
    """Print everything within `width` columns, the terminal's by default; of a deployment the arena with one
    run of each entry point after the other.
    """
    width = width or shutil.get_terminal_size((100, 24)).columns
    console = Console(width=width)
    print_summary(plan, console)
    joined = JoinedPlan(plan) if isinstance(plan, Deployment) else plan
    statistics = report(joined)
    console.print(_kinds(joined, statistics))
    for arena, about in zip(joined.arenas, statistics.arenas, strict=True):
        if arena.size:
            _render_arena(console, joined, arena, about)
    say(*_notes(joined), console=console)
    if not isinstance(plan, Deployment):
        details = [row for row in rows(plan) if row.detail and row.name != "replacements"]
        say(*(sentence for row in details for sentence in row.sentences), console=console)
        if (remark := _target_note(plan)) is not None:
            say(remark, console=console)
        if plan.options.target == PROGRAM:
            console.print(_recycling(recycling(plan)))
        if (moved := paging(plan)) is not None:
            console.print(_copies(moved))
        if (again := recomputation(plan)) is not None:
            console.print(_repetitions(again))
        if plan.replacements:
            console.print(_replacements(plan))
    digest = joined.digest if width >= 80 else f"{joined.digest[:16]}..."
    is_certain = "" if joined.deterministic else "not "
    console.print(f"digest {digest}, {is_certain}deterministic", highlight=False)


def _notes(plan: PlanView) -> Iterator[str]:
    """Notes on arenas whose bound was proved by a solver: adding up sizes does not confirm it."""
    for arena in plan.arenas:
        if arena.certificate.proof is Proof.SOLVER:
            yield f"{arena.name}: {certificate_note(arena.certificate)}"


def print_summary(
    plan: PlanView | Deployment, console: Console | None = None, *, to_errors: bool = False
) -> None:
    """Print the table of certificates, and the rows but details; of a deployment that of its entry points.

    `to_errors`: on standard error, if that is a terminal.
    """
    console = console or Console(stderr=to_errors)
    if to_errors and not console.is_terminal:
        return
    if isinstance(plan, Deployment):
        console.print(_entry_points(plan))
        for note in deployment_notes(plan):
            console.print(note, highlight=False, markup=False)
        return
    console.print(_certificates(plan))
    say(*(line for row in rows(plan) if not row.detail for line in row.sentences), console=console)


def _certificates(plan: PlanView) -> FittingTable:
    """One line an arena: size, bound, and why nothing smaller exists. It fits the usual 80 columns."""
    several = len(plan.arenas) > 1  # a single one needs no name
    lines = []
    for arena in plan.arenas:
        certificate, solver = arena.certificate, arena.certificate.solver
        if several or len(solver) > _LONG_SOLVER:
            solver = solver.replace("/", "/\n")  # the stage on a line of its own
        figures = (f"{arena.size:,}", f"{certificate.lower_bound:,}", f"{arena.gap:.2%}")
        names = [escape(arena.name)] if several else []
        proof = certificate.proof.value if certificate.proof else "-"
        lines.append((*names, *figures, certificate.status.value, proof, solver))
    headings = (">bytes", ">lower bound", ">gap", "status", "proof", "~solver")
    title = f"{escape(plan.graph)}: {plan.arena_bytes:,} bytes"
    return make_table(title, ("arena", *headings) if several else headings, lines)


def _entry_points(deployment: Deployment) -> FittingTable:
    """One line an entry point: its bytes, its bound, and what it adds to the arena."""
    lines = []
    for about in entry_point_reports(deployment):
        batch = "" if about.batch is None else f", batch {about.batch:,}"
        # Names say the purpose as a rule.
        purpose = "" if about.name.rpartition(".")[2] == about.purpose else f": {about.purpose}"
        proof = about.proof.value if about.proof else f"gap {about.gap_bytes:,}"
        figures = (about.arena_bytes, about.transient_bytes, about.lower_bound)
        name = escape(f"{about.name}{purpose}{batch}")
        lines.append((name, *(f"{figure:,}" for figure in figures), proof, f"{about.added_bytes:,}"))
    headings = ("~entry point", ">bytes", ">transient", ">lower bound", "proof", ">adds")
    return make_table(f"{escape(deployment.name)}: {deployment.arena_bytes:,} bytes", headings, lines)


def _target_note(plan: PlanView) -> str | None:
    """A note on what is proved of a plan for another runtime; None for plans that can be run here."""
    target = TARGETS.get(plan.options.target)
    if target is None or target.capabilities.trains:
        return None
    return (
        f"Memory safety is proved under {target.name}'s own model of steps and lifespans; its kernels are not"
        " run here."
    )


def _repetitions(recomputation: Recomputation) -> FittingTable:
    """The steps that run again, their level, and the step that reads their results."""
    # The bound is 0 where paging brings values that the search did not count.
    floor = recomputation.floor
    least = (
        f"; no order and no recomputation takes less than {floor:,} where only steps run again that may"
        if floor
        else ""
    )
    title = (
        f"Run again: {recomputation.peak_before:,} -> {recomputation.peak_after:,} bytes live at once{least}"
    )
    rows = [
        (str(one.level), escape(one.step), _some(one.values), escape(one.reader or "-"))
        for one in recomputation.repetitions
    ]
    return make_table(title, (">level", "~step", "~values", "~for"), rows)


def _copies(paging: Paging) -> FittingTable:
    """The copies out of the memory where kernels run, and back."""
    sizes = ", ".join(f"{tier.used:,} of {tier.bytes:,} in {tier.name}" for tier in paging.tiers)
    title = f"Paged: without it {paging.peak_before:,} bytes are live at once; used are {sizes}"
    rows = [
        (str(one.level), escape(one.step), escape(one.from_tier), escape(one.to_tier), f"{one.nbytes:,}")
        for one in paging.copies
    ]
    return make_table(title, (">level", "~step", "~from", "~to", ">bytes"), rows)


def _replacements(plan: PlanView) -> FittingTable:
    """The operations that were rewritten, with the lower bound after each group."""
    lines = [
        (one.rule, _some(one.operations), _some(one.into) or "-", f"{one.bytes_after:,}")
        for one in plan.replacements
    ]
    (title,) = row_named("replacements", plan).sentences
    return make_table(title, ("~rule", "~operations", "~now", ">bound after"), lines)


def _some(names: tuple[str, ...]) -> str:
    rest = len(names) - _MOST_NAMED
    return escape(", ".join((*names[:_MOST_NAMED], *([f"{rest} more"] if rest > 0 else []))))


def _kinds(plan: PlanView, statistics: PlanReport) -> FittingTable:
    saved = 1 - plan.arena_bytes / statistics.total if statistics.total else 0.0
    footer = (
        "",
        f"{sum(k.buffers for k in statistics.kinds):,}",
        f"{statistics.total:,}",
        f"{saved:.1%} saved",
    )
    headings = ("kind", ">buffers", ">without reuse", ">own peak")
    lines = [
        (
            f"{LETTERS[row.kind.value]} {row.kind.value.replace('_', ' ')}",
            *(f"{figure:,}" for figure in (row.buffers, row.total, row.peak)),
        )
        for row in statistics.kinds
    ]
    return make_table("By kind", headings, lines, footer=footer)


def _render_arena(console: Console, plan: PlanView, arena: Arena, about: ArenaReport) -> None:
    rows = [(escape(b.id), f"{b.size:,}", f"{b.offset:,}") for b in about.live[:_MOST_NAMED]]
    if rest := about.live[_MOST_NAMED:]:
        rows.append((f"{len(rest)} more", f"{sum(b.size for b in rest):,}", ""))
    unit = "step" if plan.options.parallelism == 1 else "level"  # of lifespans
    title = (
        f"{escape(about.name)}: {about.live_bytes:,} bytes live at {unit} {about.peak_step}"
        f" ({escape(about.peak_step_id or '')}), {about.utilisation:.1%} of the arena"
    )
    console.print(make_table(title, ("~live at the peak", ">bytes", ">offset"), rows))
    rows_of_map = _MAP_LINES if len(plan.arenas) == 1 else _MAP_LINES // 3
    grid = memory_map(arena, plan.duration, columns=max(console.width - 2, 1), rows=rows_of_map)
    bars = _BARS if console.encoding.startswith("utf") else _ASCII_BARS
    wide = max(1, (console.width - 2) // max(plan.duration, 1))
    lines = map_lines(grid, wide, unit)
    if isinstance(plan, JoinedPlan) and grid.rows:
        lines.append(entry_point_line(plan, wide * len(grid.rows[0])))
    for line in (*lines, curve_line(about.curve, console.width - 2, bars, wide)):
        console.print(line, markup=False, highlight=False, no_wrap=True)


def _recycling(recycling: Recycling) -> FittingTable:
    """The blocks that each operation allocates, and those that are freed after it."""

    def row(step: str, allocated: _Cells, freed: _Cells = (), live: str = "") -> _Cells:
        return step, escape(" ".join(allocated)), escape(" ".join(freed)), live

    rows = [row("(before)", recycling.before)]
    rows += [row(escape(s.id), s.allocated, s.freed, f"{s.live_bytes:,}") for s in recycling.steps]
    shown = rows[:_MOST_OPERATIONS]
    if more := len(rows) - len(shown):
        shown.append((f"{more} more", "", "", ""))
    shown.append(row("(kept)", recycling.kept))
    headings = ("~operation", "~allocated", "~freed after it", ">live bytes")
    return make_table("Allocation and recycling", headings, shown, max_rows=len(shown))


def map_lines(grid: MemoryMap, wide: int = 1, unit: str = "step") -> list[str]:
    """The map with a frame: steps from left to right, each patch `wide` letters."""
    columns = wide * len(grid.rows[0]) if grid.rows else 0
    body = ["|" + "".join(wide * (LETTERS[k.value] if k else _FREE) for k in row) + "|" for row in grid.rows]
    edge = "+" + "-" * columns + "+"
    left, right = f"{unit} 0", str(grid.steps)
    axis = left + right.rjust(max(columns + 2 - len(left), len(right) + 1))
    return [f"offset {grid.size:,}", edge, *body, edge, axis]


def entry_point_line(plan: JoinedPlan, columns: int) -> str:
    """The name of each entry point below its first step in a map of this width, as far as it has room."""
    line = [" "] * columns
    starts = [start * columns // max(plan.duration, 1) for start in plan.starts]
    for entry_point, left, right in zip(plan.deployment.entry_points, starts, starts[1:], strict=False):
        name = f"|{entry_point.name}"[: right - left]
        line[left : left + len(name)] = name
    return " " + "".join(line).rstrip()


def curve_line(curve: tuple[int, ...], columns: int, bars: str = _BARS, wide: int = 1) -> str:
    """Live bytes over the steps as one line, each character the highest of its steps."""
    columns = min(columns, len(curve))
    top = max(curve, default=0)
    if not top:
        return ""
    levels = (
        max(curve[x * len(curve) // columns : -(-(x + 1) * len(curve) // columns)]) for x in range(columns)
    )
    return " " + "".join(wide * bars[-(-level * (len(bars) - 1) // top)] for level in levels)
