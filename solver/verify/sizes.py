"""The proof of one plan at another size than it was made at."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from solver.plan import Plan, resized
from solver.program import EntryKind, Program
from solver.reports.validation import Violation
from solver.verify.proof import prove

__all__ = ["prove_at"]


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
