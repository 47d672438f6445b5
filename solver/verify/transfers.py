"""Adds up what a plan says that paging moves, how long that takes, and what both are compared with.

What would be moved if all left that can, and the peak without copies, follow from the plan's own program
without its copies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from solver.accounting.clocks import elapsed, is_copy, level_costs, traffic
from solver.accounting.gaps import paging_problem
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import Program, exact, loads
from solver.verify.addresses import step_name
from solver.verify.before import unpaged

__all__ = ["check_copies", "check_paging"]


_Facts: TypeAlias = Mapping[str, int | str | bool]


def check_paging(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Every figure in the record of paging that the copies of the plan do not bear out.

    Rule ``record``. What a search proved of bytes and time is only held against what the plan itself takes,
    and may not be more; so are peaks where values lie in place, which they may do otherwise without copies.
    O(n log n) for n steps.
    """
    facts = next((record.facts for record in plan.records if record.name == "paging"), None)
    program, tiers = plan.program, plan.options.tiers
    if facts is None:
        return
    if [tier.name for tier in tiers] != [space.name for space in program.spaces]:
        yield Violation(
            "record",
            (),
            f"Paging is recorded between the tiers {[tier.name for tier in tiers]}; the memories of the plan"
            f" are {[space.name for space in program.spaces]}.",
        )
        return
    if any(check_copies(plan)):
        return
    moved = traffic(program)
    took = elapsed(program, tiers, plan.options.costs)
    found = {
        "moved_in": moved.moved_in,
        "moved_out": moved.moved_out,
        "transfers": sum(is_copy(program, step) for step in program.steps),
        "nanoseconds": took,
        "compute_nanoseconds": sum(level_costs(program, plan.options.costs)),
    } | {f"written.{tier.name}": written for tier, written in zip(tiers[1:], moved.written[1:], strict=True)}
    for name, figure in found.items():
        said = facts.get(name, 0)
        if said != figure:
            yield Violation(
                "record", (), f"Paging claims {name} {said}; the copies of the plan say {figure}."
            )
    both = moved.moved_in + moved.moved_out
    for name, most in (("bound", both), ("least_nanoseconds", took)):
        said = facts.get(name, 0)
        if not isinstance(said, int) or not 0 <= said <= most:
            yield Violation("record", (), f"Paging claims {name} {said}; the plan itself takes {most}.")
    yield from _check_compared(reference, plan, facts)


def check_copies(plan: Plan) -> Iterator[Violation]:
    """Copies inside one tier, between tiers that name no bandwidth for them, and on other channels.

    Rule ``record``. None where the memories are no tiers, which `check_paging` names. Linear in the steps.
    """
    program, tiers = plan.program, plan.options.tiers
    if [tier.name for tier in tiers] != [space.name for space in program.spaces]:
        return
    for t, step in enumerate(program.steps):
        if is_copy(program, step):
            source, target = (program.values[binding.value] for binding in step.bindings)
            names = (source.label, target.label)
            rates = tiers[source.space].read, tiers[target.space].write
            channel = {"channel": max(source.space, target.space)}
            attributes = program.operations[step.operation].attributes
            if source.space == target.space:
                detail = f"{step_name(plan, t)} copies inside tier {tiers[source.space].name!r}."
            elif max(rates) <= 0:
                detail = (
                    f"{step_name(plan, t)} copies from tier {tiers[source.space].name!r} to"
                    f" {tiers[target.space].name!r}, and neither says how fast that is."
                )
            elif attributes and exact(attributes) != exact(channel):
                # Between two memories there is one, and its time is that of all copies between them.
                detail = f"{step_name(plan, t)} has the attributes {dict(attributes)}, not {channel}."
            else:
                continue
            yield Violation("record", names, detail)


def _check_compared(reference: Program, plan: Plan, facts: _Facts) -> Iterator[Violation]:
    """Lookahead, the baseline for it, and the peaks in the first tier before and behind."""
    program = plan.program
    copies = [step for step in program.steps if is_copy(program, step)]
    before = unpaged(program)
    lookahead = facts.get("lookahead", 0)
    # On how many levels of steps a copy runs.
    levels = sorted({step.level for step in program.steps if not is_copy(program, step)})
    spans = (bisect_right(levels, copy.until) - bisect_left(levels, copy.level) for copy in copies)
    most = max(spans, default=0)
    if not isinstance(lookahead, int) or lookahead < most:
        yield Violation(
            "record",
            (),
            f"Paging claims lookahead {lookahead}; a copy of the plan takes {most} levels of steps.",
        )
        return
    baseline = 0
    if copies:
        problem = paging_problem(before, lookahead)
        baseline = sum(problem.cost(frozenset(range(len(problem.gaps)))))
    if facts.get("baseline", 0) != baseline:
        yield Violation(
            "record",
            (),
            f"Paging claims baseline {facts.get('baseline', 0)}; {baseline} bytes are moved if all leaves"
            " that can.",
        )
    if not any(program.runs):  # what runs again was aligned for that before anything was paged
        alike = zip(before.spaces, reference.spaces * len(before.spaces), strict=False)
        before = replace(before, spaces=tuple(replace(s, alignment=r.alignment) for s, r in alike))
    for name, of in (("peak_before", before), ("peak_after", program)):
        found = max(loads(of)[0], default=0)
        said = facts.get(name, 0)
        if said != found and not (plan.options.in_place and isinstance(said, int) and 0 <= said <= found):
            yield Violation("record", (), f"Paging claims {name} {said}; the plan's values say {found}.")
