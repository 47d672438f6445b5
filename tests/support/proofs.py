"""The faults of a plan beside the reference program of its graph."""

from __future__ import annotations

from dataclasses import replace

from solver.executor import rewritten
from solver.graph import TrainableGraph
from solver.pipeline import BlockProgram, reference_of
from solver.plan import Plan
from solver.verify import Violation, prove
from solver.verify.proof import OBLIGATIONS

__all__ = ["moved", "offset_of", "violations"]


def violations(subject: TrainableGraph | BlockProgram, made: Plan) -> tuple[Violation, ...]:
    """Every violation of a plan, none for a right one."""
    given = rewritten(subject, made) if isinstance(subject, TrainableGraph) else subject
    found = prove(reference_of(given, made.options), made)
    # Violations come from one row of obligations, and bear the rules that the row lists.
    rules = [{rule for obligation in row for rule in obligation.rules} for row in OBLIGATIONS]
    assert not found or any({violation.rule for violation in found} <= row for row in rules), found
    return found


def moved(made: Plan, label: str, offset: int) -> Plan:
    """`made` with one value elsewhere, and the values that lie with it; the space grows if it has to."""
    number = made.program.by_label[label]
    region = next(region for region in made.regions if number in region.members)
    shift = offset - made.offsets[number]
    offsets = list(made.offsets)
    for member in region.members:
        offsets[member] += shift
    sizes = list(made.sizes)
    sizes[region.space] = max(sizes[region.space], offsets[region.members[0]] + region.size)
    return replace(made, offsets=tuple(offsets), sizes=tuple(sizes))


def offset_of(made: Plan, label: str) -> int:
    return made.offsets[made.program.by_label[label]]
