"""Obligation *homes*: memories that kernels reach, what must lie in which, and how long accesses take.

The bound is added up in whole numbers from the rows of the plan (`solver.accounting.homes`). A higher one
that a search proved is only compared with what the plan itself takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.accounting.clocks import home_figures
from solver.accounting.homes import added_up_homes, home_problem, places_of
from solver.plan import Plan
from solver.reports.validation import Violation

__all__ = ["check_homes"]


def check_homes(plan: Plan) -> Iterator[Violation]:
    """What the homes of values, the record of them and the bound claim wrongly. Rule ``home``.

    Without memories in the options there must be neither. O(b + r log l) for b bindings, r regions, l rows.
    """
    yield from (Violation("home", (), detail) for detail in _homes(plan))


def _homes(plan: Plan) -> Iterator[str]:
    program, memories, tiers = plan.program, plan.options.memories, plan.options.tiers
    facts = next((record.facts for record in plan.records if record.name == "homes"), None)
    if not memories:
        if facts is not None or plan.home_bound is not None:
            yield "Homes are recorded, and the options have no memories."
        return
    expected = [(m.name, True) for m in memories] + [(tier.name, False) for tier in tiers]
    spaces = [(space.name, space.addressable) for space in program.spaces]
    if spaces != expected:
        yield f"The options have the memories {expected}, with whether kernels reach them; the plan {spaces}."
        return
    known = {memory.name for memory in memories}
    for text in plan.options.place:
        if text.rpartition("=")[2] not in known:
            yield f"The place {text!r} is in no memory of the options, which are {', '.join(sorted(known))}."
            return
    allowed = places_of(program, plan.options.place, memories)
    for value, memory in allowed.items():
        if program.values[value].space != memory:
            there = program.spaces[program.values[value].space].name
            yield (
                f"{program.values[value].label!r} must lie in memory {memories[memory].name!r}, and lies in"
                f" {there!r}."
            )
            return
    if facts is None or plan.home_bound is None:
        yield "The plan has several memories, and does not record how long accesses take, or a bound on that."
        return
    figures = home_figures(program, memories, tiers, plan.options.costs)
    figures["checked_nanoseconds"] = plan.home_bound.nanoseconds
    accesses = figures["access_nanoseconds"]
    for name, figure in figures.items():
        if facts.get(name, 0) != figure:
            yield f"The record 'homes' claims {name} {facts.get(name, 0)}; the plan says {figure}."
    bound = facts.get("bound_nanoseconds", 0)
    if not isinstance(bound, int) or not plan.home_bound.nanoseconds <= bound <= accesses:
        yield (
            f"Accesses are claimed to take {bound} nanoseconds at least; {plan.home_bound.nanoseconds} are"
            f" added up, and the plan takes {accesses}."
        )
    inside = [region for region in plan.regions if region.space < len(memories)]
    problem = home_problem(program, inside, memories, allowed)
    try:
        proved = added_up_homes(problem, plan.home_bound.rows, plan.home_bound.denominator)
    except ValueError as error:
        yield f"The bound on accesses cannot be added up: {error}"
        return
    if proved < plan.home_bound.nanoseconds:
        yield (
            f"Accesses are claimed to take {plan.home_bound.nanoseconds:,} nanoseconds at least; the rows add"
            f" up to {proved:,}."
        )
