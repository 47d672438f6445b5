"""The symbolic proof: a plan run on terms instead of numbers, in the arena's bytes, beside its reference.

    reference    each value has bytes of its own            x ─► t1     w ─► t2     conv(t1, t2) ─► t3
    plan         bytes [0, 64) hold t1, [64, 128) t2 ...    step 3 reads [0, 64): t1, [64, 128): t2
                                                            writes [128, 192): t3, and ends what was there

What the reference leaves at the end of an iteration, the plan must leave at the places where it says so; then
the next iteration begins alike, and by induction all of them do. No pass is known here: whatever order,
level, alias, repetition or copy a plan has, it is judged by what its bytes hold.

Validation of the result instead of the optimizer, as for register allocation: Rideau and Leroy, *Validating
register allocation and spilling*, CC 2010; the checker of Cranelift's regalloc2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from solver.accounting.costs import step_costs
from solver.layout import Lifespan
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import RESIDUE, Program, reference_digest
from solver.verify.addresses import Line
from solver.verify.aliases import check_aliases, check_overlaps
from solver.verify.cost import check_cost_bound, check_recomputation
from solver.verify.execution import check_contents
from solver.verify.figures import check_figures
from solver.verify.form import check_form
from solver.verify.levels import check_levels, check_residues
from solver.verify.names import check_names
from solver.verify.records import check_records
from solver.verify.steps import check_steps
from solver.verify.transfers import check_copies, check_paging

__all__ = ["prove"]


def prove(
    reference: Program, plan: Plan, holds: Mapping[int, Lifespan] | None = None
) -> tuple[Violation, ...]:
    """Everything that keeps `plan` from computing what `reference` computes, none for a right one.

    A plan that passes leaves, after each iteration, the bits of the reference in every exit, on a machine
    whose kernels keep the facts that operators state, with the threads and libraries of the reference; and
    its figures are those of its own buffers (`check_figures`). `holds` are the lives that the target makes
    longer; where they are given, the plan's must be the same, for longer lives raise its bounds.

    Rules: ``form``, ``place``, ``entry``, ``exit``, ``initial``, ``period``, ``step``, ``hold``, ``alias``,
    ``overlap``, ``level``, ``residue``, ``undefined``, ``value``, ``name``; the first that fails ends the
    proof.
    Figures come last, with the rules of `check_figures`, ``digest``, ``record`` and ``cost``.
    O(b log r) for b bindings and r ranges of bytes.
    """
    found = tuple(check_form(reference, plan)) or tuple(check_steps(reference, plan))
    if found:
        return found
    if holds is not None and dict(holds) != dict(plan.holds):
        return (Violation("hold", (), "The plan holds values longer than its target does, or not as long."),)
    line = Line(plan)
    # What an alias exempts is asked for only where every alias is a promise of an operator.
    found = tuple(check_aliases(reference, plan)) or (
        *check_overlaps(plan, line),
        *check_levels(plan, line),
        *check_residues(plan),
    )
    if found:
        return found
    found = check_contents(reference, plan, line) or tuple(check_names(reference, plan.program))
    if found:
        return found
    # A copy that moves nothing between memories makes figures wrong, too: it is named first.
    found = (
        *islice(check_copies(plan), 1),
        *check_figures(plan),
        *_check_digest(reference, plan),
        *check_records(reference, plan),
    )
    return found or (*_check_cost(reference, plan), *check_paging(reference, plan))


def _check_digest(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Whether the plan is for this reference. One in the making has no digest; titles make no difference."""
    program = replace(reference, name=plan.program.name)
    if plan.graph != plan.program.name:
        yield Violation("digest", (), f"The plan is of {plan.graph!r}, its program of {plan.program.name!r}.")
    if plan.reference_digest and plan.reference_digest != reference_digest(program):
        yield Violation("digest", (), "The reference program does not have the digest that the plan names.")


def _check_cost(reference: Program, plan: Plan) -> Iterator[Violation]:
    """What is claimed of the cost of recomputation, where anything is."""
    if plan.cost_bound is None and all(record.name != "recompute" for record in plan.records):
        return
    cost = step_costs(reference, plan.options.costs)
    yield from check_recomputation(reference, plan, cost)
    if plan.cost_bound is not None:
        shared = plan.options.in_place or bool(plan.program.aliases)
        if plan.program.spaces[0].alignment == RESIDUE:
            reference = reference.at_same_residues()
        yield from check_cost_bound(reference, plan.cost_bound, cost, in_place=shared)
