"""Checks of a build: whether a plan grew, and whether every network keeps its budget.

Reports are text, JSON, Markdown or JUnit's XML.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from service.cli.answers import answer, read_sources
from service.cli.console import Exit, read_document, write_document
from solver import documents
from solver.errors import ArenaplanError, CapacityError, OptionsError
from solver.plan import Deployment, Plan, PlanView, plans_to_compare, read_entry
from solver.reports.budget import Allowance, Budget, Check, checks
from solver.reports.comparison import (
    Change,
    DeploymentDifference,
    EntryPointChange,
    PlanDifference,
    deployment_difference,
    difference,
)
from solver.requests import Request

__all__ = ["FORMATS", "Judged", "check_budgets", "diff", "format_of"]

FORMATS: Final = ("text", "json", "markdown", "junit")

#: Rows of a table of operands or layers; --format json has all of them.
_MOST_ROWS: Final = 12


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
    case = _Case(name, f"{_headline(change)}{_judgement(allowed, grown)}", grown, False)
    facts = change.facts() if both is None else both.facts()
    writers: dict[str, Callable[[], str]] = {
        "text": lambda: _diff_text(name, change, allowed, grown, both),
        "json": lambda: _json({"graph": names[-1], "limit": limit, "passed": not grown, **facts}),
        "markdown": lambda: _diff_markdown(name, change, allowed, grown, both),
        "junit": lambda: _junit("arenaplan.diff", [case]),
    }
    write_document(output, writers[form]().encode("utf-8", "replace"))
    return Exit.TOO_LARGE if grown else Exit.OK


def _headline(change: PlanDifference) -> str:
    if not change.growth:
        return f"{change.after:,} bytes, as before"
    share = f", {100 * change.share:+.2f} %" if change.before else ""
    return f"{change.before:,} -> {change.after:,} bytes ({change.growth:+,}{share})"


def _judgement(allowed: Allowance | None, grown: bool) -> str:
    if allowed is None:
        return ""
    return (
        f"; more than the {allowed} that it may grow" if grown else f"; within the {allowed} that it may grow"
    )


def _groups(change: PlanDifference) -> tuple[tuple[str, tuple[Change, ...]], ...]:
    return (("operand", change.operands), ("kind", change.kinds), ("layer", change.layers))


def _diff_text(
    name: str,
    change: PlanDifference,
    allowed: Allowance | None,
    grown: bool,
    both: DeploymentDifference | None = None,
) -> str:
    lines = [f"{name}: {_headline(change)}{_judgement(allowed, grown)}"]
    lines.append(f"lower bound {change.bound_before:,} -> {change.bound_after:,}")
    if both is not None:
        lines += _entry_points_text(both)
        for one in both.entry_points:
            if one.difference is not None and _differs(one.difference):
                lines += ["", *_changes_text(f"entry point {one.name}", one.difference)]
        return "\n".join(lines) + "\n"
    return "\n".join([*lines, *_details_text(change)]) + "\n"


def _changes_text(name: str, change: PlanDifference) -> list[str]:
    """Of one entry point, without persistent values, which have one place in all of them."""
    bounds = f"lower bound {change.bound_before:,} -> {change.bound_after:,}"
    return [f"{name}: {_headline(change)}", bounds, *_details_text(replace(change, moved=(), stayed=0))]


def _differs(change: PlanDifference) -> bool:
    return bool(change.growth or change.operands or change.options) or not change.same_graph


def _entry_points_text(both: DeploymentDifference) -> list[str]:
    """Which entry points came or went or grew, and which persistent values have another place."""
    rows = [(one.name, _bytes(one.before), _bytes(one.after), _growth(one)) for one in both.entry_points]
    lines = ["", *_table(("entry point", "before", "after", "growth"), rows)]
    if both.moves:
        moves = [
            (move.name, _place(move.before), _place(move.after), f"{move.nbytes:,}")
            for move in both.moves[:_MOST_ROWS]
        ]
        lines += ["", *_table(("persistent", "offset before", "after", "bytes"), moves)]
        if rest := len(both.moves) - len(moves):
            lines.append(f"{rest} more")
    else:
        lines += ["", "Every persistent value lies where it was."]
    return lines


def _bytes(size: int | None) -> str:
    return "-" if size is None else f"{size:,}"


def _growth(one: EntryPointChange) -> str:
    if one.before is None or one.after is None:
        return "new" if one.before is None else "gone"
    return f"{one.after - one.before:+,}"


def _place(place: tuple[str, int] | None) -> str:
    return "-" if place is None else f"{place[1]:,} in {place[0]}"


def _details_text(change: PlanDifference) -> list[str]:
    lines = []
    if not change.same_graph:
        lines.append("The plans are for different graphs.")
    for arena in change.arenas:
        if (arena.before, arena.step_before) != (arena.after, arena.step_after) or len(change.arenas) > 1:
            steps = f"the peak was at {arena.step_before or '-'}, and is at {arena.step_after or '-'}"
            lines.append(f"{arena.name}: {arena.before:,} -> {arena.after:,}; {steps}")
    lines += [f"option {o.name}: {o.before} -> {o.after}" for o in change.options]
    if change.moved or change.stayed:
        lines.append(f"persistent values: {change.stayed:,} where they were, {len(change.moved):,} elsewhere")
    for move in change.moved[:_MOST_ROWS]:
        arenas = [f" in {a}" if len(change.arenas) > 1 else "" for a in (move.arena_before, move.arena_after)]
        lines.append(f"  {move.name}: {move.before:,}{arenas[0]} -> {move.after:,}{arenas[1]}")
    if len(change.moved) > _MOST_ROWS:
        lines.append(f"  {len(change.moved) - _MOST_ROWS:,} more")
    for what, changes in _groups(change):
        if changes:
            rows = [(c.name, f"{c.before:,}", f"{c.after:,}", f"{c.growth:+,}") for c in changes[:_MOST_ROWS]]
            if rest := changes[_MOST_ROWS:]:
                before, after = sum(c.before for c in rest), sum(c.after for c in rest)
                rows.append((f"{len(rest)} more", f"{before:,}", f"{after:,}", f"{after - before:+,}"))
            if change.idle.growth:
                idle = change.idle
                rows.append(("idle at the peak", f"{idle.before:,}", f"{idle.after:,}", f"{idle.growth:+,}"))
            lines += ["", *_table((what, "at the peak before", "after", "growth"), rows)]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of plain text, the first to the left, the others to the right."""
    widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
    return [
        "  ".join(
            cell.rjust(widths[k]) if k else cell.ljust(widths[k]) for k, cell in enumerate(row)
        ).rstrip()
        for row in (head, *rows)
    ]


def _diff_markdown(
    name: str,
    change: PlanDifference,
    allowed: Allowance | None,
    grown: bool,
    both: DeploymentDifference | None = None,
) -> str:
    mark = "❌ " if grown else ""
    lines = [
        f"### {mark}Memory of {_plain(name)}",
        "",
        f"{_headline(change)}{_judgement(allowed, grown)}.",
        "",
    ]
    rows = [
        (arena.name, f"{arena.before:,}", f"{arena.after:,}", f"{arena.after - arena.before:+,}",
         arena.step_after or "-")
        for arena in change.arenas
    ]  # fmt: skip
    lines += _markdown_table(("memory", "before", "after", "growth", "peak at"), rows)
    if both is None:
        return "\n".join([*lines, *_details_markdown(change)]) + "\n"
    entries = [(one.name, _bytes(one.before), _bytes(one.after), _growth(one)) for one in both.entry_points]
    lines += ["", *_markdown_table(("entry point", "before", "after", "growth"), entries)]
    if both.moves:
        moves = [(m.name, _place(m.before), _place(m.after), f"{m.nbytes:,}") for m in both.moves]
        lines += [
            "",
            "<details>",
            f"<summary>{len(moves)} persistent values have another place</summary>",
            "",
        ]
        lines += [*_markdown_table(("persistent", "offset before", "after", "bytes"), moves[:_MOST_ROWS])]
        lines += [
            *([f"{len(moves) - _MOST_ROWS} more."] if len(moves) > _MOST_ROWS else []),
            "",
            "</details>",
        ]
    for one in both.entry_points:
        if one.difference is not None and _differs(one.difference):
            lines += ["", f"#### Entry point {_plain(one.name)}", "", f"{_headline(one.difference)}."]
            lines += _details_markdown(one.difference)
    return "\n".join(lines) + "\n"


def _details_markdown(change: PlanDifference) -> list[str]:
    lines = []
    if change.options:
        options = ", ".join(
            f"{_plain(o.name)} {_plain(o.before)} → {_plain(o.after)}" for o in change.options
        )
        lines += ["", f"Options: {options}."]
    for what, changes in _groups(change):
        if changes:
            rest = len(changes) - _MOST_ROWS
            shown = [
                (c.name, f"{c.before:,}", f"{c.after:,}", f"{c.growth:+,}") for c in changes[:_MOST_ROWS]
            ]
            more = [f"{rest} more."] if rest > 0 else []
            lines += ["", "<details>", f"<summary>By {what}</summary>", ""]
            lines += [*_markdown_table((what, "at the peak before", "after", "growth"), shown), *more, ""]
            lines += ["</details>"]
    return lines


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    edge = ["---"] + ["---:"] * (len(head) - 1)
    return [f"| {' | '.join(map(_plain, row))} |" for row in (head,)] + [
        f"| {' | '.join(edge)} |",
        *(f"| {' | '.join(map(_plain, row))} |" for row in rows),
    ]


def _plain(text: str) -> str:
    """Text that Markdown takes as it is: names may hold what formats."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|#~" else c for c in text)


# --------------------------------------------------------------------------------------------- budgets


@dataclass(frozen=True, slots=True)
class Judged:
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


def check_budgets(path: Path, form: str, output: Path, server: str | None = None) -> Exit:
    """Plan and judge every network of a budget file, here or at a service, and write a report.

    OK where all keep their budgets, TOO_LARGE where one does not, USAGE where one could not be planned.
    """
    budgets = documents.load_budgets(read_document(path))
    judged = [_judged(budget, path.parent, server) for budget in budgets]
    cases = [_Case(one.name, one.text, not one.kept, bool(one.error) and not one.too_large) for one in judged]
    writers: dict[str, Callable[[], str]] = {
        "text": lambda: _budgets_text(judged),
        "json": lambda: _json({"passed": all(one.kept for one in judged), "budgets": [*map(_facts, judged)]}),
        "markdown": lambda: _budgets_markdown(judged),
        "junit": lambda: _junit("arenaplan.budget", cases),
    }
    write_document(output, writers[form]().encode("utf-8", "replace"))
    if any(case.broken for case in cases):
        return Exit.USAGE
    return Exit.OK if all(one.kept for one in judged) else Exit.TOO_LARGE


def _judged(budget: Budget, folder: Path, server: str | None) -> Judged:
    where = budget.model or budget.plan or ""
    try:
        plan = _planned(budget, folder, server)
        old = None
        if budget.baseline is not None:
            old = documents.load_planned((folder / budget.baseline).read_bytes())
        limits = tuple(checks(budget, plan, old))
    except CapacityError as error:
        return Judged(budget.name, where, None, None, (), error.message, too_large=True)
    except ArenaplanError as error:
        return Judged(budget.name, where, None, None, (), str(error))
    except OSError as error:
        return Judged(budget.name, where, None, None, (), f"{error.filename}: {error.strerror}.")
    return Judged(budget.name, where, plan.arena_bytes, plan.lower_bound, limits)


def _planned(budget: Budget, folder: Path, server: str | None) -> Plan | Deployment:
    """The plan of a budget: read, or made here or at a service."""
    if budget.model is None:
        return documents.load_planned((folder / (budget.plan or "")).read_bytes())
    sources = read_sources([folder / budget.model], budget.training)
    if budget.entries:
        specs = [read_entry(text) for text in budget.entries]
        request = Request("deployment", sources, budget.options, specs)
    else:
        request = Request("plan", sources, budget.options)
    planned: Plan | Deployment = answer(request, server=server)
    return planned


def _budgets_text(judged: Sequence[Judged]) -> str:
    width = max(len(one.name) for one in judged)
    lines = [f"{'ok  ' if one.kept else 'FAIL'} {one.name.ljust(width)}  {one.text}" for one in judged]
    failed = sum(not one.kept for one in judged)
    return "\n".join([*lines, f"{len(judged) - failed} of {len(judged)} keep their budgets"]) + "\n"


def _facts(one: Judged) -> dict[str, Any]:
    facts = asdict(one) | {"passed": one.kept}
    facts["checks"] = [asdict(check) | {"passed": check.kept} for check in one.checks]
    return facts


def _budgets_markdown(judged: Sequence[Judged]) -> str:
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
    stream = io.BytesIO()
    ElementTree.ElementTree(root).write(stream, encoding="utf-8", xml_declaration=True)
    return stream.getvalue().decode() + "\n"


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold, not even escaped."""
    return "".join(c if c in "\t\n" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" else "�" for c in text)


def _json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, ensure_ascii=True) + "\n"
