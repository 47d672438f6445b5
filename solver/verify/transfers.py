"""Adds up what a plan says that paging moves, and how long an iteration takes with it."""

from __future__ import annotations

from collections.abc import Iterator

from solver.plan import Plan
from solver.plan.violation import Violation
from solver.schedules.paging.clocks import elapsed, is_copy, level_costs, traffic

__all__ = ["check_paging"]


def check_paging(plan: Plan) -> Iterator[Violation]:
    """Every figure in the record of paging that the copies of the plan do not bear out.

    Rule ``record``. What a search proved of bytes and time is only held against what the plan itself takes,
    and may not be more. O(n log n) for n steps.
    """
    facts = next((record.facts for record in plan.records if record.name == "paging"), None)
    program, tiers = plan.program, plan.options.tiers
    if facts is None:
        return
    if len(tiers) != len(program.spaces):
        yield Violation(
            "record",
            (),
            f"Paging is recorded between {len(tiers)} tiers; the plan has {len(program.spaces)} memories.",
        )
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
        said = facts.get(name, 0 if name.startswith("written.") else figure)
        if said != figure:
            yield Violation(
                "record", (), f"Paging claims {name} {said}; the copies of the plan say {figure}."
            )
    both = moved.moved_in + moved.moved_out
    for name, most in (("bound", both), ("least_nanoseconds", took)):
        said = facts.get(name, 0)
        if not isinstance(said, int) or not 0 <= said <= most:
            yield Violation("record", (), f"Paging claims {name} {said}; the plan itself takes {most}.")
