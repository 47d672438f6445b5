"""The symbolic proof: a plan run on terms instead of numbers, in the arena's bytes, beside its reference.

    reference    each value has bytes of its own            x ─► t1     w ─► t2     conv(t1, t2) ─► t3
    plan         bytes [0, 64) hold t1, [64, 128) t2 ...    step 3 reads [0, 64): t1, [64, 128): t2
                                                            writes [128, 192): t3, and ends what was there

docs/explanation/proof.md has the formal statement: the state, the transfer of each step, the obligations
under the names that they have here, and the theorem. No pass is known here: whatever order, level, alias,
repetition or copy a plan has, it is judged by what its bytes hold.

Validation of the result instead of the optimizer, as for register allocation: Rideau and Leroy, *Validating
register allocation and spilling*, CC 2010; the checker of Cranelift's regalloc2.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from solver.accounting import step_costs
from solver.layout import Lifespan
from solver.plan import Plan, resized
from solver.program import RESIDUE, EntryKind, Program, reference_digest
from solver.reports.validation import Violation
from solver.verify.cost import check_cost_bound, check_homes
from solver.verify.execution import check_contents
from solver.verify.figures import (
    check_copies,
    check_figures,
    check_paging,
    check_planned_sizes,
    check_recomputation,
    check_records,
)
from solver.verify.form import check_form, check_names, check_steps
from solver.verify.sharing import Line, check_aliases, check_levels, check_overlaps, check_residues

__all__ = ["OBLIGATIONS", "Obligation", "Subject", "prove", "prove_at"]


class Subject:
    """The claim of a proof: `plan` computes what `reference` does. A target extends the lives `holds`."""

    def __init__(self, reference: Program, plan: Plan, holds: Mapping[int, Lifespan] | None) -> None:
        self.reference, self.plan, self.holds = reference, plan, holds

    @cached_property
    def line(self) -> Line:
        """The places of a plan of right form."""
        return Line(self.plan)


@dataclass(frozen=True, slots=True)
class Obligation:
    """One part of the proof: its name, the rules that its violations bear, and its check."""

    name: str
    rules: tuple[str, ...]
    check: Callable[[Subject], Iterable[Violation]]


def prove(
    reference: Program, plan: Plan, holds: Mapping[int, Lifespan] | None = None
) -> tuple[Violation, ...]:
    """The violations that keep `plan` from computing what `reference` computes; none for a right plan.

    A plan that passes leaves, after each iteration, the bits of the reference in every exit, on a machine
    whose kernels keep the facts that operators state, with the threads and libraries of the reference; and
    its figures are those of its own buffers. `holds` are the lives that the target makes longer; where they
    are passed, the plan's must be the same, for longer lives raise its bounds.

    Obligations are checked in the order of `OBLIGATIONS`; the first row with a violation ends the proof.
    O(b log r) for b bindings and r ranges of bytes.
    """
    subject = Subject(reference, plan, holds)
    for row in OBLIGATIONS:
        violations = tuple(v for obligation in row for v in obligation.check(subject))
        if violations:
            return violations
    return ()


def _check_holds(subject: Subject) -> Iterator[Violation]:
    if subject.holds is not None and dict(subject.holds) != dict(subject.plan.holds):
        yield Violation("hold", (), "The plan holds values longer than its target does, or not as long.")


def _check_digests(subject: Subject) -> Iterator[Violation]:
    """Whether the plan is for this reference. An unfinished plan has no digest; titles make no difference."""
    plan = subject.plan
    program = replace(subject.reference, name=plan.program.name)
    if plan.graph != plan.program.name:
        yield Violation("digest", (), f"The plan is of {plan.graph!r}, its program of {plan.program.name!r}.")
    if plan.reference_digest and plan.reference_digest != reference_digest(program):
        yield Violation("digest", (), "The reference program does not have the digest that the plan names.")


def _check_recomputation(subject: Subject) -> Iterator[Violation]:
    """The claims on the cost of recomputation, where there are any."""
    reference, plan = subject.reference, subject.plan
    if plan.cost_bound is None and all(record.name != "recompute" for record in plan.records):
        return
    cost = step_costs(reference, plan.options.costs)
    yield from check_recomputation(reference, plan, cost)
    if plan.cost_bound is not None:
        shared = plan.options.in_place or bool(plan.program.aliases)
        if plan.program.spaces[0].alignment == RESIDUE:
            reference = reference.at_same_residues()
        yield from check_cost_bound(reference, plan.cost_bound, cost, in_place=shared)


_FORM: Final = ("form", "level", "place", "entry", "exit", "initial", "period", "overlap")
_FIGURES: Final = ("size", "overlap", "bound", "proof", "capacity")

#: The obligations in the order in which they are checked. Each row relies on the rows above it: which pairs
#: an alias exempts, for instance, is asked only where every alias is a promise of an operator. The violations
#: of one row are reported together.
OBLIGATIONS: Final[tuple[tuple[Obligation, ...], ...]] = (
    (Obligation("form", _FORM, lambda s: check_form(s.reference, s.plan)),),
    (Obligation("steps", ("step",), lambda s: check_steps(s.reference, s.plan)),),
    (Obligation("holds", ("hold",), _check_holds),),
    (Obligation("aliases", ("alias",), lambda s: check_aliases(s.reference, s.plan)),),
    (
        Obligation("inside a step", ("overlap",), lambda s: check_overlaps(s.plan, s.line)),
        Obligation("levels", ("level",), lambda s: check_levels(s.plan, s.line)),
        Obligation("residues", ("residue",), lambda s: check_residues(s.plan)),
    ),
    (
        Obligation(
            "contents", ("undefined", "value", "exit"), lambda s: check_contents(s.reference, s.plan, s.line)
        ),
    ),
    (Obligation("names", ("name",), lambda s: check_names(s.reference, s.plan.program)),),
    (Obligation("homes", ("home",), lambda s: check_homes(s.plan)),),
    (
        # A copy that moves nothing between memories makes figures wrong, too: it is named first.
        Obligation("copies", ("record",), lambda s: islice(check_copies(s.plan), 1)),
        Obligation("figures", _FIGURES, lambda s: check_figures(s.plan)),
        Obligation("digests", ("digest",), _check_digests),
        Obligation("sizes", ("range",), lambda s: check_planned_sizes(s.plan)),
        Obligation("records", ("record",), lambda s: check_records(s.reference, s.plan)),
    ),
    (
        Obligation("recomputation", ("record", "cost"), _check_recomputation),
        Obligation("paging", ("record",), lambda s: check_paging(s.reference, s.plan)),
    ),
)


def prove_at(
    plan: Plan, planned: Program, reference: Program, graph_digest: str = "", *, grows: bool = False
) -> tuple[Plan, tuple[Violation, ...]]:
    """The plan at the size of `reference`, and what keeps it from computing what that does there.

    `planned` is the reference program at the size that was planned. Beside the proof of an ordinary plan,
    what one iteration leaves to the next must lie where the plan has it, so that iterations of both sizes may
    follow each other. Raises PlanError where the steps at the two sizes differ. With `grows` it may take more
    bytes than the plan. Cost: that of `prove`.
    """
    other = resized(plan, planned, reference, graph_digest, grows=grows)
    violations = prove(reference, other) or tuple(_moved(plan, other))
    if not violations and not grows and any(map(operator.gt, other.sizes, plan.sizes)):
        violations = (Violation("size", (), "The plan has fewer bytes than it takes at this size."),)
    return other, violations


def _moved(plan: Plan, other: Plan) -> Iterator[Violation]:
    """The values that stay from one iteration to the next, and lie elsewhere at the other size."""
    ours, theirs = (_staying(each) for each in (plan, other))
    for label in sorted(ours.keys() | theirs.keys()):
        if ours.get(label) != theirs.get(label):
            detail = f"{label!r} stays from one iteration to the next, and is another one at this size."
            yield Violation("range", (label,), detail)


def _staying(plan: Plan) -> dict[str, tuple[object, ...]]:
    """Space, place and type of what stays, by label. The contents of constants may depend on the size."""
    values = plan.program.values
    return {
        values[e.value].label: (
            e.kind,
            values[e.value].space,
            plan.offsets[e.value],
            values[e.value].type if e.kind is EntryKind.CARRIED else None,
        )
        for e in plan.program.entry
        if e.kind is not EntryKind.FED
    }
