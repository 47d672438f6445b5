"""Whether each step of a plan is a copy, or the step of the reference program that it names."""

from __future__ import annotations

from collections.abc import Iterator

from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import COPY, Access, Program, Step
from solver.verify.addresses import step_name

__all__ = ["check_steps"]


def check_steps(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Every step is a copy, or equals the reference step that it names."""
    program = plan.program
    same_values = program.values is reference.values
    known: dict[tuple[int, int], bool] = {}
    for t, step in enumerate(program.steps):
        node = program.operations[step.operation]
        if step.reference is None:
            if node.operation.type != COPY or [b.access for b in step.bindings] != [
                Access.READ,
                Access.WRITE,
            ]:
                yield Violation("step", (), f"{step_name(plan, t)} is neither a copy nor a reference step.")
                return
            source, target = (program.values[binding.value] for binding in step.bindings)
            if source.type != target.type:
                yield Violation(
                    "step",
                    (source.label, target.label),
                    f"{step_name(plan, t)} copies {source.type} to {target.type}.",
                )
            continue
        wanted = reference.steps[step.reference]
        if step is wanted and same_values and program.operations is reference.operations:
            continue
        original = reference.operations[wanted.operation]
        pair = (step.operation, wanted.operation)
        if node is not original and pair not in known:
            known[pair] = node == original
        alike = step.phase is wanted.phase and step.part == wanted.part and step.due == wanted.due
        if not alike or not (node is original or known[pair]):
            yield Violation(
                "step",
                (),
                f"{step_name(plan, t)} says that it is step {reference.step_labels[step.reference]!r} of the"
                " reference; its kernel, attributes or condition differ.",
            )
            return
        if (step.bindings is wanted.bindings or step.bindings == wanted.bindings) and same_values:
            continue
        detail = _binds_alike(reference, program, wanted, step)
        if detail:
            yield Violation("step", (), f"{step_name(plan, t)} {detail}")
            return


def _binds_alike(reference: Program, program: Program, wanted: Step, step: Step) -> str:
    """What is wrong with the bindings of a step, beside those of its reference step; empty if nothing.

    A result may go to scratch, where a repetition must not define it again.
    """
    if [b.slot for b in step.bindings] != [b.slot for b in wanted.bindings]:
        return f"binds the slots {[b.slot for b in step.bindings]}, not {[b.slot for b in wanted.bindings]}."
    for ours, theirs in zip(step.bindings, wanted.bindings, strict=True):
        dropped = ours.access is Access.SCRATCH and theirs.access.writes
        if ours.access is not theirs.access and not dropped:
            return f"has {ours.access.value} access to slot {ours.slot}, not {theirs.access.value}."
        found, type_ = program.values[ours.value].type, reference.values[theirs.value].type
        if found is not type_ and found != type_:
            return f"binds {found} to slot {ours.slot}, not {type_}."
    return ""
