"""Checks of a build: whether a plan grew, and whether every network keeps its budget.

Reports are text, JSON, Markdown or JUnit's XML.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli.answers import answer, read_sources
from service.cli.console import Exit, read_document, reporting, write_document
from service.cli.options import AsJson, Commands, EntryPointName, PlanServer, Server
from service.cli.plans import read_planned
from service.cli.tables import aligned
from solver import documents, requests
from solver.errors import ArenaplanError, CapacityError, OptionsError

if TYPE_CHECKING:
    from solver.plan import Deployment, Plan, PlanView
    from solver.reports.budget import Allowance, Budget, Check
    from solver.reports.comparison import Change, DeploymentDifference, PlanDifference

__all__ = ["FORMATS", "app", "diff", "format_of"]

app = Commands()

FORMATS: Final = ("text", "json", "markdown", "junit")

#: Rows of a table of operands or layers; --format json has all of them.
_MOST_ROWS: Final = 12

_REPORT_WORDS: Final = {
    "form --format": "text, json, markdown (for a pull request) or junit.",
    "output": "Where the report goes; - is standard output.",
}


def format_of(name: str | None, *, as_json: bool) -> str:
    """One of FORMATS. Raises OptionsError for another."""
    chosen = name or ("json" if as_json else "text")
    if chosen not in FORMATS:
        raise OptionsError(
            f"There is no format {chosen!r:.80}.",
            remedy=f"Choose from {', '.join(FORMATS)}.",
            path=("format",),
        )
    return chosen


# ------------------------------------------------------------------------------------------- two plans


def _allowance(text: str) -> Any:
    """``1%`` or ``64KiB``."""
    from solver.documents import read_allowance

    try:
        return read_allowance(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


@app.add(
    "arenaplan diff old.json new.json",
    "arenaplan diff old.json new.json --max-growth 1%",
    "arenaplan diff old.json new.json --max-growth 64KiB --format markdown -o comment.md",
    name="diff",
    words={
        "old": "Plan document from before.",
        "new": "Plan document of now, - for standard input.",
        **_REPORT_WORDS,
    },
)
def _diff(
    old: Path,
    new: Path,
    *,
    max_growth: Annotated[
        Any,
        typer.Option(
            "--max-growth",
            parser=_allowance,
            metavar="GROWTH",
            help="Exit with 3 if arenas grow beyond this: 1% or 64KiB.",
        ),
    ] = None,
    form: str | None = None,
    output: Path = Path("-"),
    entry_point: EntryPointName = None,
    server: PlanServer = None,
    as_json: AsJson = False,
) -> Exit:
    """Compare two plans: which bytes are more or fewer.

    By operand, kind and layer, at the peak of each.
    """
    chosen = format_of(form, as_json=as_json)
    before = read_planned(old, server)
    with reporting(as_json=as_json, document=str(new)):
        return diff(before, read_planned(new, server), max_growth, chosen, output, entry_point)


def diff(
    old: PlanView | Deployment,
    new: PlanView | Deployment,
    allowed: Allowance | None,
    form: str,
    output: Path,
    entry_point: str | None = None,
) -> Exit:
    """Write what changed. TOO_LARGE where the arenas have grown beyond what is allowed, else OK.

    Of plans with entry points the whole arena counts, or the entry point of this name.
    """
    from solver.plan import Deployment, plans_to_compare
    from solver.reports.comparison import deployment_difference, difference

    pair = plans_to_compare(old, new, entry_point)
    both: DeploymentDifference | None = None
    if isinstance(pair[0], Deployment):
        both = deployment_difference(*pair)
        names, change = [side.name for side in pair], both.whole
    else:
        names, change = [side.graph for side in pair], difference(*pair)
    name = " -> ".join(dict.fromkeys(names))
    limit = None if allowed is None else allowed.limit(change.before)
    grown = limit is not None and change.after > limit
    headline = _headline(change)
    if allowed is not None:
        headline += f"; {'more than' if grown else 'within'} the {allowed} that it may grow"
    parts = [_part(name, headline, change) if both is None else _whole(name, headline, both)]
    for one in () if both is None else both.entry_points:
        inner = one.difference
        if inner is not None and (inner.growth or inner.operands or inner.options or not inner.same_graph):
            # Without persistent values, which have one place in all entry points.
            inside = replace(inner, moved=(), stayed=0)
            parts.append(_part(f"entry point {one.name}", _headline(inside), inside))
    facts = change.facts() if both is None else both.facts()
    writers: dict[str, Callable[[], str]] = {
        "text": lambda: _text(parts),
        "json": lambda: _json({"graph": names[-1], "limit": limit, "passed": not grown, **facts}),
        "markdown": lambda: _markdown(parts, change, grown=grown),
        "junit": lambda: _junit("arenaplan.diff", [_Case(name, headline, grown, False)]),
    }
    write_document(output, writers[form]().encode("utf-8", "replace"))
    return Exit.TOO_LARGE if grown else Exit.OK


def _headline(change: PlanDifference) -> str:
    if not change.growth:
        return f"{change.after:,} bytes, as before"
    share = f", {100 * change.share:+.2f} %" if change.before else ""
    return f"{change.before:,} -> {change.after:,} bytes ({change.growth:+,}{share})"


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows below headings; a page shows those with a title on a click."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a report on two plans: about all of both, or about one entry point."""

    name: str
    headline: str
    sentences: list[str]
    tables: list[_Table]


def _part(name: str, headline: str, change: PlanDifference) -> _Part:
    return _Part(name, headline, [*_sentences(change)], [*_tables(change)])


def _whole(name: str, headline: str, both: DeploymentDifference) -> _Part:
    """Which entry points came or went or grew, and which persistent values have another place."""
    rows = []
    for one in both.entry_points:
        sizes = ("-" if size is None else f"{size:,}" for size in (one.before, one.after))
        growth = "new" if one.before is None else "gone"
        if one.before is not None and one.after is not None:
            growth = f"{one.after - one.before:+,}"
        rows.append((one.name, *sizes, growth))
    moves = []
    for move in both.moves:
        places = ("-" if at is None else f"{at[1]:,} in {at[0]}" for at in (move.before, move.after))
        moves.append((move.name, *places, f"{move.nbytes:,}"))
    tables = [_Table("", ("entry point", "before", "after", "growth"), rows)]
    if moves:
        title = f"{len(moves)} persistent values have another place"
        more = [(f"{len(moves) - _MOST_ROWS} more", "", "", "")] if len(moves) > _MOST_ROWS else []
        head = ("persistent", "offset before", "after", "bytes")
        tables.append(_Table(title, head, [*moves[:_MOST_ROWS], *more]))
    else:
        tables.append(_Table("", ("Every persistent value lies where it was.",), []))
    return _Part(name, headline, [_bounds(both.whole)], tables)


def _bounds(change: PlanDifference) -> str:
    return f"lower bound {change.bound_before:,} -> {change.bound_after:,}"


def _sentences(change: PlanDifference) -> Iterator[str]:
    yield _bounds(change)
    if not change.same_graph:
        yield "The plans are for different graphs."
    several = len(change.arenas) > 1
    for arena in change.arenas:
        if several or (arena.before, arena.step_before) != (arena.after, arena.step_after):
            steps = f"the peak was at {arena.step_before or '-'}, and is at {arena.step_after or '-'}"
            yield f"{arena.name}: {arena.before:,} -> {arena.after:,}; {steps}"
    for option in change.options:
        yield f"option {option.name}: {option.before} -> {option.after}"
    if change.moved or change.stayed:
        yield f"persistent values: {change.stayed:,} where they were, {len(change.moved):,} elsewhere"
    for move in change.moved[:_MOST_ROWS]:
        arenas = [f" in {name}" if several else "" for name in (move.arena_before, move.arena_after)]
        yield f"  {move.name}: {move.before:,}{arenas[0]} -> {move.after:,}{arenas[1]}"
    if len(change.moved) > _MOST_ROWS:
        yield f"  {len(change.moved) - _MOST_ROWS:,} more"


def _tables(change: PlanDifference) -> Iterator[_Table]:
    def row(name: str, changes: Iterable[Change]) -> tuple[str, ...]:
        before, after = (sum(sizes) for sizes in zip(*((c.before, c.after) for c in changes), strict=True))
        return name, f"{before:,}", f"{after:,}", f"{after - before:+,}"

    for title, changes in (("operand", change.operands), ("kind", change.kinds), ("layer", change.layers)):
        if changes:
            rows = [row(one.name, [one]) for one in changes[:_MOST_ROWS]]
            if rest := changes[_MOST_ROWS:]:
                rows.append(row(f"{len(rest)} more", rest))
            if change.idle.growth:
                rows.append(row("idle at the peak", [change.idle]))
            yield _Table(f"By {title}", (title, "at the peak before", "after", "growth"), rows)


def _text(parts: Sequence[_Part]) -> str:
    lines: list[str] = []
    for part in parts:
        lines += [*([""] if lines else []), f"{part.name}: {part.headline}", *part.sentences]
        for table in part.tables:
            lines += ["", *aligned([table.head, *table.rows], figures=True)]
    return "\n".join(lines) + "\n"


def _markdown(parts: Sequence[_Part], change: PlanDifference, *, grown: bool) -> str:
    rows = [
        (arena.name, f"{arena.before:,}", f"{arena.after:,}", f"{arena.after - arena.before:+,}",
         arena.step_after or "-")
        for arena in change.arenas
    ]  # fmt: skip
    memories = _Table("", ("memory", "before", "after", "growth", "peak at"), rows)
    lines: list[str] = []
    for part in parts:
        title = f"### {'❌ ' if grown else ''}Memory of {_plain(part.name)}"
        if lines:
            title = f"#### {_plain(part.name.capitalize())}"
        # A page has no room for each value that moves.
        sentences = [f"- {_plain(text)}" for text in part.sentences if not text.startswith(" ")]
        tables = part.tables if lines else [memories, *part.tables]
        lines += [*([""] if lines else []), title, "", f"{part.headline}.", "", *sentences]
        for table in tables:
            written = _markdown_table(table.head, table.rows) if table.rows else [*table.head]
            if table.title:
                summary = f"<summary>{table.title}</summary>"
                written = ["<details>", summary, "", *written, "", "</details>"]
            lines += ["", *written]
    return "\n".join(lines) + "\n"


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    first, *others = (f"| {' | '.join(map(_plain, row))} |" for row in (head, *rows))
    return [first, f"| --- |{' ---: |' * (len(head) - 1)}", *others]


def _plain(text: str) -> str:
    """Text that Markdown takes as it is: names may hold what formats."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|#~" else c for c in text)


# --------------------------------------------------------------------------------------------- budgets


@dataclass(frozen=True, slots=True)
class _Judged:
    """One budget with its plan's figures; `error` instead where there is no plan, or none that fits."""

    name: str
    model: str
    arena_bytes: int | None
    lower_bound: int | None
    checks: tuple[Check, ...]
    error: str = ""
    too_large: bool = False

    @property
    def kept(self) -> bool:
        return not self.error and all(check.kept for check in self.checks)

    @property
    def text(self) -> str:
        """Why, in a sentence."""
        return self.error or "; ".join(map(str, self.checks))


@app.add(
    "arenaplan budget check budgets.toml",
    "arenaplan budget check budgets.toml --format junit -o budgets.xml",
    words={
        "action check": "What to do with the budgets: check.",
        "file": "Budget file, TOML.",
        **_REPORT_WORDS,
    },
)
def budget(
    action: str,
    file: Path,
    *,
    form: str | None = None,
    output: Path = Path("-"),
    server: Server = None,
    as_json: AsJson = False,
) -> Exit:
    """Plan many networks and see that each keeps its budget. Exit code 3: one does not."""
    if action != "check":
        raise typer.BadParameter(f"There is no action {action!r}. Choose check.", param_hint="ACTION")
    with reporting(as_json=as_json, document=str(file)):
        chosen = format_of(form, as_json=as_json)
        judged = [_judged(each, file.parent, server) for each in documents.load_budgets(read_document(file))]
    cases = [_Case(one.name, one.text, not one.kept, bool(one.error) and not one.too_large) for one in judged]
    writers: dict[str, Callable[[], str]] = {
        "text": lambda: _budgets_text(judged),
        "json": lambda: _json({"passed": all(one.kept for one in judged), "budgets": [*map(_facts, judged)]}),
        "markdown": lambda: _budgets_markdown(judged),
        "junit": lambda: _junit("arenaplan.budget", cases),
    }
    write_document(output, writers[chosen]().encode("utf-8", "replace"))
    if any(case.broken for case in cases):
        return Exit.USAGE
    return Exit.OK if all(one.kept for one in judged) else Exit.TOO_LARGE


def _judged(budget: Budget, folder: Path, server: str | None) -> _Judged:
    from solver.reports.budget import checks

    where = budget.model or budget.plan or ""
    try:
        plan = _planned(budget, folder, server)
        old = None
        if budget.baseline is not None:
            old = documents.load_planned((folder / budget.baseline).read_bytes())
        limits = tuple(checks(budget, plan, old))
    except CapacityError as error:
        return _Judged(budget.name, where, None, None, (), error.message, too_large=True)
    except ArenaplanError as error:
        return _Judged(budget.name, where, None, None, (), str(error))
    except OSError as error:
        return _Judged(budget.name, where, None, None, (), f"{error.filename}: {error.strerror}.")
    return _Judged(budget.name, where, plan.arena_bytes, plan.lower_bound, limits)


def _planned(budget: Budget, folder: Path, server: str | None) -> Plan | Deployment:
    """The plan of a budget: read, or made here or at a service."""
    from solver.plan import read_entry

    if budget.model is None:
        return documents.load_planned((folder / (budget.plan or "")).read_bytes())
    sources = read_sources([folder / budget.model], budget.training)
    if budget.entries:
        specs = [read_entry(text) for text in budget.entries]
        request = requests.Request("deployment", sources, budget.options, specs)
    else:
        request = requests.Request("plan", sources, budget.options)
    planned: Plan | Deployment = answer(request, server=server)
    return planned


def _budgets_text(judged: Sequence[_Judged]) -> str:
    width = max(len(one.name) for one in judged)
    lines = [f"{'ok  ' if one.kept else 'FAIL'} {one.name.ljust(width)}  {one.text}" for one in judged]
    failed = sum(not one.kept for one in judged)
    return "\n".join([*lines, f"{len(judged) - failed} of {len(judged)} keep their budgets"]) + "\n"


def _facts(one: _Judged) -> dict[str, Any]:
    facts = asdict(one) | {"passed": one.kept}
    facts["checks"] = [asdict(check) | {"passed": check.kept} for check in one.checks]
    return facts


def _budgets_markdown(judged: Sequence[_Judged]) -> str:
    failed = sum(not one.kept for one in judged)
    title = (
        "Memory budgets: all are kept" if not failed else f"Memory budgets: {failed} of {len(judged)} broken"
    )
    rows = [
        ("✅" if one.kept else "❌", one.name, "-" if one.arena_bytes is None else f"{one.arena_bytes:,}",
         "-" if one.lower_bound is None else f"{one.lower_bound:,}", one.text)
        for one in judged
    ]  # fmt: skip
    head = ("", "network", "bytes", "lower bound", "limits")
    return "\n".join([f"### {title}", "", *_markdown_table(head, rows)]) + "\n"


# ------------------------------------------------------------------------------------------ for machines


@dataclass(frozen=True, slots=True)
class _Case:
    """A test case: `failed` where a limit is broken, `broken` where nothing could be found out."""

    name: str
    text: str
    failed: bool
    broken: bool


def _junit(suite: str, cases: Sequence[_Case]) -> str:
    """JUnit's XML, as build servers read it."""
    from io import BytesIO
    from xml.etree import ElementTree

    errors = sum(case.broken for case in cases)
    root = ElementTree.Element("testsuites")
    counts = {"tests": len(cases), "failures": sum(case.failed for case in cases) - errors, "errors": errors}
    attributes = {name: str(number) for name, number in counts.items()}
    element = ElementTree.SubElement(root, "testsuite", {"name": suite, **attributes})
    for case in cases:
        one = ElementTree.SubElement(element, "testcase", classname=suite, name=_xml(case.name))
        if case.failed:
            kind = "error" if case.broken else "failure"
            ElementTree.SubElement(one, kind, message=_xml(case.text)).text = _xml(case.text)
        else:
            ElementTree.SubElement(one, "system-out").text = _xml(case.text)
    ElementTree.indent(root)
    stream = BytesIO()
    ElementTree.ElementTree(root).write(stream, encoding="utf-8", xml_declaration=True)
    return stream.getvalue().decode() + "\n"


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold, not even escaped."""
    return "".join(c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" else "�" for c in text)


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, ensure_ascii=True) + "\n"
