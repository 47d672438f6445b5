"""What preparations and passes recorded in a plan, worked out again: people read it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from solver.accounting.clocks import is_copy
from solver.accounting.costs import step_costs
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import CONVERT, Phase, Program, loads
from solver.verify.before import once

__all__ = ["check_records"]

_Facts: TypeAlias = Mapping[str, int | str | bool]


def _integers(*names: str) -> dict[str, type]:
    return dict.fromkeys(names, int)


#: By record its facts with their types. A number that is left out is zero, as reports take it.
_FACTS: Final[Mapping[str, Mapping[str, type]]] = MappingProxyType(
    {
        "rewrite": _integers("replacements", "bound_before", "bound_after"),
        "fit_scratch": _integers("budget_before", "budget_after", "bound_before", "bound_after"),
        "storage": _integers("conversions", "nanoseconds", "step_nanoseconds"),
        "order": {"update": str, "steps_moved": int},
        "search_order": {
            "for_recomputation": bool,
            **_integers("order_bound", "peak_before", "peak_after"),
            **_integers("every_order_nanoseconds", "step_nanoseconds"),
        },
        "recompute": _integers(
            "floor", "peak_before", "peak_after", "budget", "order_bound", "repeated_steps",
            "step_nanoseconds", "extra_nanoseconds", "bound_nanoseconds", "checked_nanoseconds",
            "step_flops", "extra_flops",
        ),
        "levels": _integers("parallelism", "steps", "levels"),
        "paging": _integers(
            "lookahead", "moved_in", "moved_out", "bound", "baseline", "nanoseconds", "transfers",
            "peak_before", "peak_after", "compute_nanoseconds", "least_nanoseconds",
        ),
        "aliases": _integers("views", "overwritten", "peak_before", "peak_after"),
    }
)  # fmt: skip


def check_records(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Facts that mean nothing, and figures that plan and reference do not bear out. Rule ``record``.

    Records of recomputation and paging have checks of their own. Linear in the steps.
    """
    details = [*_unknown(plan)]
    if plan.replacements and any(step.phase is Phase.EXPLICIT for step in reference.steps):
        details.append("Operations of an explicit program are said to be replaced, which no rule does.")
    if not details:
        facts = {record.name: record.facts for record in plan.records}
        for name, check in _CHECKS.items():
            if name in facts:
                details += check(reference, plan, facts[name])
    yield from (Violation("record", (), detail) for detail in details)


def _unknown(plan: Plan) -> Iterator[str]:
    names = [record.name for record in plan.records]
    for record in plan.records:
        if record.name not in _FACTS or names.count(record.name) > 1:
            yield f"The record {record.name!r} is there twice, or of nothing that a plan records."
            continue
        known = dict(_FACTS[record.name])
        if record.name == "paging":
            known |= _integers(*(f"written.{tier.name}" for tier in plan.options.tiers[1:]))
        for fact, value in record.facts.items():
            if type(value) is not known.get(fact):
                yield f"The record {record.name!r} says {fact} = {value!r}, which it cannot."


def _differing(name: str, facts: _Facts, figures: Mapping[str, int]) -> Iterator[str]:
    for fact, figure in figures.items():
        if facts.get(fact, 0) != figure:
            yield f"The record {name!r} claims {fact} {facts.get(fact, 0)}; the plan says {figure}."


def _rising(name: str, facts: _Facts, *order: str) -> Iterator[str]:
    """What keeps the facts of these names from rising in this order, from zero."""
    figures = [int(facts.get(fact, 0)) for fact in order]
    if [0, *figures] != sorted([0, *figures]):
        yield f"The record {name!r} claims {', '.join(order)} of {figures}, which do not rise."


def _rewrite(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    made = plan.replacements
    figures = {
        "replacements": len(made),
        "bound_before": made[0].bytes_before if made else 0,
        "bound_after": made[-1].bytes_after if made else 0,
    }
    yield from _differing("rewrite", facts, figures)


def _fit_scratch(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    yield from _differing("fit_scratch", facts, {"budget_after": plan.options.scratch_budget})
    yield from _rising("fit_scratch", facts, "budget_after", "budget_before")
    yield from _rising("fit_scratch", facts, "bound_after", "bound_before")


def _storage(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    cost = step_costs(reference, plan.options.costs)
    converting = [t for t, step in enumerate(reference.steps) if reference.kernel(step) == CONVERT]
    figures = {
        "conversions": len(converting),
        "nanoseconds": sum(cost[t] for t in converting),
        "step_nanoseconds": sum(cost),
    }
    yield from _differing("storage", facts, figures)


def _order(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    if facts.get("update") != plan.options.update:
        yield f"The record 'order' says update {facts.get('update')!r}, not {plan.options.update!r}."
    moved = int(facts.get("steps_moved", 0))
    searched = any(record.name == "search_order" for record in plan.records)
    if plan.options.parallelism == 1 and not searched:
        first = _first_runs(plan)
        yield from _differing("order", facts, {"steps_moved": sum(t != s for t, s in enumerate(first))})
    elif not 0 <= moved <= len(reference.steps):
        yield f"The record 'order' claims that {moved} of {len(reference.steps)} steps were moved."


def _first_runs(plan: Plan) -> Sequence[int]:
    steps = zip(plan.program.steps, plan.program.runs, strict=True)
    return [step.reference for step, run in steps if step.reference is not None and not run]


def _search_order(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    if plan.options.parallelism == 1:  # levels have an order of their own
        peak = max(loads(once(reference, plan))[0], default=0)
        yield from _differing("search_order", facts, {"peak_after": peak})
    yield from _rising("search_order", facts, "order_bound", "peak_after")
    if not facts.get("for_recomputation"):
        yield from _rising("search_order", facts, "peak_after", "peak_before")
    if "every_order_nanoseconds" in facts or "step_nanoseconds" in facts:
        cost = sum(step_costs(reference, plan.options.costs))
        yield from _differing("search_order", facts, {"step_nanoseconds": cost})


def _levels(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    steps = [step for step in plan.program.steps if not is_copy(plan.program, step)]
    figures = {
        "parallelism": plan.options.parallelism,
        "steps": len(steps),
        "levels": len({step.level for step in steps}),
    }
    yield from _differing("levels", facts, figures)


def _peak(program: Program) -> int:
    return sum(max(curve, default=0) for curve in loads(program))


def _aliases(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    program = plan.program
    views = sum(alias.view for alias in program.aliases)
    figures = {
        "views": views,
        "overwritten": len(program.aliases) - views,
        "peak_before": _peak(replace(program, aliases=())),
        "peak_after": _peak(program),
    }
    if facts:  # passes of targets record none
        yield from _differing("aliases", facts, figures)


_CHECKS: Final[Mapping[str, Callable[[Program, Plan, _Facts], Iterator[str]]]] = MappingProxyType(
    {
        "rewrite": _rewrite,
        "fit_scratch": _fit_scratch,
        "storage": _storage,
        "order": _order,
        "search_order": _search_order,
        "levels": _levels,
        "aliases": _aliases,
    }
)
