"""Whether each step of a plan is a copy, or the step of the reference program that it names."""

from __future__ import annotations

from collections.abc import Iterator

from solver.graph.ops.base import Node
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import COPY, Access, Program, Step, exact
from solver.verify.addresses import step_name

__all__ = ["check_steps"]


def check_steps(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Every step is a copy, or equals the reference step that it names."""
    program = plan.program
    same_values = program.values is reference.values
    known: dict[tuple[int, int], str] = {}
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
            if (*node.inputs, *node.outputs, target.type) != (source.type,) * 3:
                yield Violation(
                    "step",
                    (source.label, target.label),
                    f"{step_name(plan, t)} copies {source.type} to {target.type}; its operation copies"
                    f" {', '.join(map(str, node.inputs))}.",
                )
            continue
        wanted = reference.steps[step.reference]
        if step is wanted and same_values and program.operations is reference.operations:
            continue
        original = reference.operations[wanted.operation]
        pair = (step.operation, wanted.operation)
        if node is not original and pair not in known:
            known[pair] = _difference(node, original)
        difference = "" if node is original else known[pair]
        if step.phase is not wanted.phase or step.part != wanted.part or step.due is not wanted.due:
            difference = "the phase, part or condition"
        if difference:
            yield Violation(
                "step",
                (),
                f"{step_name(plan, t)} says that it is step {reference.step_labels[step.reference]!r} of the"
                f" reference; its kernel, attributes or condition differ: {difference}.",
            )
            return
        if (step.bindings is wanted.bindings or step.bindings == wanted.bindings) and same_values:
            continue
        detail = _binds_alike(reference, program, wanted, step)
        if detail:
            yield Violation("step", (), f"{step_name(plan, t)} {detail}")
            return


def _difference(node: Node, original: Node) -> str:
    """In what two operations differ, as the end of a sentence; empty if both compute the same bits.

    Numbers are compared by type and bytes.
    """
    if (node.inputs, node.outputs) != (original.inputs, original.outputs):
        return "the types of operands"
    ours, theirs = node.operation, original.operation
    for name in ("type", "id", "inputs", "outputs"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"the {_WORDS.get(name, name)} is {getattr(ours, name)!r}, not {getattr(theirs, name)!r}"
    if node.attributes is not original.attributes:
        for name in sorted(node.attributes.keys() | original.attributes.keys()):
            here, there = ([x.attributes[name]] if name in x.attributes else [] for x in (node, original))
            if exact(here) != exact(there):
                said = (repr(*x) if x else "left out" for x in (here, there))
                return f"the attribute {name!r} is {', not '.join(said)}"
    for name in ("constants", "floats", "scratch_budget"):
        a, b = getattr(node, name), getattr(original, name)
        if a is not b and exact(a) != exact(b):
            return f"the {name.replace('_', ' ')}"
    return ""


_WORDS = {"type": "kernel", "id": "operation"}


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
