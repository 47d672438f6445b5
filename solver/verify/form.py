"""Obligations *form*, *steps* and *names*: a plan speaks of the values and steps of its reference.

Numbers refer to something, places lie inside their spaces, entry and exit are those of the reference, each
step is a copy or the reference step that it names, and names that callers use lead to the right values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import pairwise

from solver.errors import OptionsError
from solver.graph.ops.base import Node
from solver.plan import Plan
from solver.program import (
    COPY,
    Access,
    EntryKind,
    Kind,
    Phase,
    Program,
    Step,
    Value,
    exact,
    first_contents,
    is_pure,
    touched,
)
from solver.reports.validation import Violation
from solver.verify.sharing import step_name

__all__ = ["check_form", "check_labels", "check_names", "check_steps"]


def check_form(reference: Program, plan: Plan) -> Iterator[Violation]:
    """The form that all other obligations rely on. Linear. The first part with a violation ends the check."""
    for check in (_check_numbers, _check_times, _check_places, _check_interface):
        violations = tuple(check(reference, plan))
        yield from violations
        if violations:
            return


def _check_numbers(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Nothing refers to what is not there."""
    program = plan.program
    values, steps, spaces = len(program.values), len(program.steps), len(program.spaces)
    detail = ""
    if len(plan.offsets) != values:
        detail = f"There are {len(plan.offsets):,} offsets for {values:,} values."
    elif not len(plan.sizes) == len(plan.certificates) == spaces:
        detail = f"There are {len(plan.sizes)} sizes for {spaces} spaces."
    elif not all(type(number) is int for number in (*plan.offsets, *plan.sizes)):
        detail = "An offset or a size is not an integer."
    elif not all(0 <= value.space < spaces for value in program.values):
        detail = "A value lies in a space that the plan does not have."
    elif len({value.label for value in program.values}) < values:
        detail = "Two values have one label."
    else:
        bound = touched(program).value
        numbers = [int(bound.min()), int(bound.max())] if len(bound) else []
        numbers += [x for alias in program.aliases for x in (alias.value, alias.source)]
        numbers += [entry.value for entry in program.entry] + [exit_.value for exit_ in program.exit]
        numbers += [*program.initial, *plan.holds]
        references = [entry.reference for entry in program.entry] + [e.reference for e in program.exit]
        kernels = [step.reference for step in program.steps if step.reference is not None]
        for what, used, count in (
            ("a value", numbers, values),
            ("a step", [alias.step for alias in program.aliases], steps),
            ("an operation", [step.operation for step in program.steps], len(program.operations)),
            ("a value of the reference", references, len(reference.values)),
            ("a step of the reference", kernels, len(reference.steps)),
        ):
            if used and not 0 <= min(used) <= max(used) < count:
                detail = f"The plan refers to {what} that does not exist."
                break
    if detail:
        yield Violation("form", (), detail)
        return
    at = {alias.value: alias.step for alias in program.aliases}
    if len(at) < len(program.aliases):
        pairs = Counter((alias.value, alias.source) for alias in program.aliases)
        times = Counter(alias.value for alias in program.aliases)
        if max(pairs.values()) > 1 or any(
            times[alias.value] > 1 and not (alias.view and alias.step == at[alias.value])
            for alias in program.aliases
        ):
            detail = "A value is defined in the bytes of two others, and is not a view of both."
            yield Violation("form", (), detail)
    for alias in program.aliases:
        if alias.value == alias.source or at.get(alias.source, -1) >= alias.step:
            label = program.values[alias.value].label
            detail = f"{label!r} is defined in the bytes of a value that comes later."
            yield Violation("form", (label,), detail)


def _check_times(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Levels begin with 0 and never fall; only copies last longer; nothing is beyond the iteration."""
    program, before = plan.program, 0
    for t, step in enumerate(program.steps):
        label = program.step_labels[t]
        if step.level < before or step.level > before + 1 or (t == 0 and step.level):
            yield Violation("level", (), f"Step {label!r} is on level {step.level}, behind level {before}.")
            return
        before = step.level
        if step.until < step.level or (step.until > step.level and step.reference is not None):
            yield Violation("level", (), f"Step {label!r} lasts from level {step.level} to {step.until}.")
        elif step.until >= program.duration:
            yield Violation("level", (), f"Step {label!r} lasts beyond the end of the iteration.")
    for number, hold in plan.holds.items():
        if not 0 <= hold.start < hold.end <= program.duration:
            label = program.values[number].label
            yield Violation("level", (label,), f"{label!r} is held on [{hold.start}, {hold.end}).")


def _check_places(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Places lie in their spaces, aligned; kernels touch addressable spaces only."""
    program = plan.program
    for space in program.spaces:
        if space.alignment < 1 or space.alignment & (space.alignment - 1):
            detail = f"The alignment {space.alignment} of {space.name!r} is not a power of two."
            yield Violation("place", (), detail)
            return
    alignments = [space.alignment for space in program.spaces]
    for value, offset in zip(program.values, plan.offsets, strict=True):
        alignment, size = alignments[value.space], plan.sizes[value.space]
        if not offset % alignment and 0 <= offset <= size - value.type.nbytes:
            continue
        space = program.spaces[value.space]
        if offset % alignment:
            detail = f"{value.label!r} at offset {offset} is not aligned to {space.alignment}."
            yield Violation("place", (value.label,), detail)
        else:
            detail = (
                f"{value.label!r} takes [{offset}, {offset + value.type.nbytes}) of {space.name!r},"
                f" which has {size:,} bytes."
            )
            yield Violation("place", (value.label,), detail)
    yield from _check_constraints(plan)
    if all(space.addressable for space in program.spaces):
        return
    for t, step in enumerate(program.steps):
        for binding in step.bindings:
            value = program.values[binding.value]
            if step.reference is not None and not program.spaces[value.space].addressable:
                detail = (
                    f"Step {program.step_labels[t]!r} touches {value.label!r} in"
                    f" {program.spaces[value.space].name!r}, which kernels cannot reach."
                )
                yield Violation("place", (value.label,), detail)


def _check_constraints(plan: Plan) -> Iterator[Violation]:
    """Pinned values lie at their offsets, aligned ones at multiples, none in a reserved range."""
    program = plan.program
    try:
        rules = plan.options.constraints.rules(program)
    except OptionsError as error:
        yield Violation("place", (), f"The options of the plan place what it does not have. {error.message}")
        return
    for value, offset in rules.offsets.items():
        if plan.offsets[value] != offset:
            label = program.values[value].label
            detail = f"{label!r} is pinned at {offset} and lies at {plan.offsets[value]}."
            yield Violation("place", (label,), detail)
    for value, multiple in rules.alignments.items():
        if plan.offsets[value] % multiple:
            label = program.values[value].label
            detail = (
                f"{label!r} at offset {plan.offsets[value]} is not aligned to {multiple} as it is asked for."
            )
            yield Violation("place", (label,), detail)
    if not plan.options.reserved:
        return
    for each, offset in zip(program.values, plan.offsets, strict=True):
        for range_ in rules.reserved[each.space]:
            if max(offset, range_.low) < min(offset + each.type.nbytes, range_.high):
                detail = f"{each.label!r} at offset {offset} lies in the reserved range {range_}."
                yield Violation("place", (each.label,), detail)


def _check_interface(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Entry, exit, first contents and period are those of the reference."""
    program = plan.program
    if program.period != reference.period:
        yield Violation(
            "period",
            (),
            f"The plan runs {program.period} times for each update, the reference {reference.period} times.",
        )
    kinds = {entry.value: entry.kind for entry in reference.entry}
    ranges, entered = [], set()
    for entry in program.entry:
        value, original = program.values[entry.value], reference.values[entry.reference]
        if kinds.get(entry.reference) is not entry.kind or (
            value.type is not original.type and value.type != original.type
        ):
            detail = (
                f"{value.label!r} does not hold {original.label!r} at the start as the reference says it."
            )
            yield Violation("entry", (value.label,), detail)
        if value.type.nbytes:
            ranges.append((value.space, plan.offsets[entry.value], entry.value))
        entered.add(entry.reference)
        if entry.kind is EntryKind.FED:
            continue
        ours, theirs = program.initial.get(entry.value), reference.initial.get(entry.reference)
        if ours is not theirs and _first(program, entry.value) != _first(reference, entry.reference):
            detail = f"{value.label!r} begins with other values than the reference."
            yield Violation("initial", (value.label,), detail)
    missing = sorted(kinds.keys() - entered)
    if missing:
        label = reference.values[missing[0]].label
        yield Violation("entry", (label,), f"Nothing holds {label!r} at the start.")
    ranges.sort()
    for (space, low, a), (other, high, b) in pairwise(ranges):
        if space == other and low + program.values[a].type.nbytes > high:
            names = (program.values[a].label, program.values[b].label)
            yield Violation("overlap", names, f"{names[0]!r} and {names[1]!r} share bytes at the start.")
    exits = {exit_.reference for exit_ in reference.exit}
    named = set()
    for exit_ in program.exit:
        value, original = program.values[exit_.value], reference.values[exit_.reference]
        if exit_.reference not in exits or (value.type is not original.type and value.type != original.type):
            detail = f"{value.label!r} is not where {original.label!r} must be at the end."
            yield Violation("exit", (value.label,), detail)
        named.add(exit_.reference)
    for missed in sorted(exits - named):
        label = reference.values[missed].label
        yield Violation("exit", (label,), f"The plan keeps {label!r} nowhere at the end.")


def _first(program: Program, value: int) -> Hashable:
    """The first contents of a carried or constant value, and where the graph has them."""
    initial = program.initial.get(value)
    return first_contents(program, value), initial.source if initial else ""


def check_steps(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Every step is a copy, or the reference step that it names; explicit ones that repeat are pure."""
    program = plan.program
    same_values = program.values is reference.values
    known: dict[tuple[int, int], str] = {}
    for t, (step, run) in enumerate(zip(program.steps, program.runs, strict=True)):
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
                detail = (
                    f"{step_name(plan, t)} copies {source.type} to {target.type}; its operation copies"
                    f" {', '.join(map(str, node.inputs))}."
                )
                yield Violation("step", (source.label, target.label), detail)
            continue
        original = reference.steps[step.reference]
        if run and original.phase is Phase.EXPLICIT and not is_pure(reference, original):
            detail = f"{step_name(plan, t)} runs again, and the program does not say that it is pure."
            yield Violation("step", (), detail)
            return
        if step is original and same_values and program.operations is reference.operations:
            continue
        original_node = reference.operations[original.operation]
        pair = (step.operation, original.operation)
        if node is not original_node and pair not in known:
            known[pair] = _difference(node, original_node)
        difference = "" if node is original_node else known[pair]
        if step.phase is not original.phase or step.part != original.part or step.due is not original.due:
            difference = "the phase, part or condition"
        if difference:
            detail = (
                f"{step_name(plan, t)} says that it is step {reference.step_labels[step.reference]!r} of the"
                f" reference; its kernel, attributes or condition differ: {difference}."
            )
            yield Violation("step", (), detail)
            return
        if (step.bindings is original.bindings or step.bindings == original.bindings) and same_values:
            continue
        detail = _binds_alike(reference, program, original, step)
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
                attributes = (repr(*x) if x else "left out" for x in (here, there))
                return f"the attribute {name!r} is {', not '.join(attributes)}"
    for name in ("constants", "floats", "scratch_budget"):
        a, b = getattr(node, name), getattr(original, name)
        if a is not b and exact(a) != exact(b):
            return f"the {name.replace('_', ' ')}"
    return ""


_WORDS = {"type": "kernel", "id": "operation"}


def _binds_alike(reference: Program, program: Program, original: Step, step: Step) -> str:
    """The difference between the bindings of a step and those of its reference step; empty if there is none.

    A result may go to scratch, where a repetition must not define it again.
    """
    if [b.slot for b in step.bindings] != [b.slot for b in original.bindings]:
        return (
            f"binds the slots {[b.slot for b in step.bindings]}, not {[b.slot for b in original.bindings]}."
        )
    for ours, theirs in zip(step.bindings, original.bindings, strict=True):
        dropped = ours.access is Access.SCRATCH and theirs.access.writes
        if ours.access is not theirs.access and not dropped:
            return f"has {ours.access.value} access to slot {ours.slot}, not {theirs.access.value}."
        type_, expected_type = program.values[ours.value].type, reference.values[theirs.value].type
        if type_ is not expected_type and type_ != expected_type:
            return f"binds {type_} to slot {ours.slot}, not {expected_type}."
    return ""


def check_names(reference: Program, program: Program) -> Iterator[Violation]:
    """Names of what enters and leaves the reference that lead to other values of the program. Rule ``name``.

    The name of a fed value leads to an entry of it, that of a result to an exit of it, and that of what is
    both to one value that is both. Linear in the entries and exits.
    """
    entries = {(entry.value, entry.reference) for entry in program.entry}
    exits = {(exit_.value, exit_.reference) for exit_ in program.exit}
    kinds = {entry.reference: entry.kind for entry in reference.entry}
    results = {exit_.reference for exit_ in reference.exit}
    for number in sorted(kinds.keys() | results):
        label = reference.values[number].label
        place = (program.by_label.get(label, -1), number)
        if kinds.get(number) is EntryKind.FED and place not in entries:
            detail = f"The name {label!r} leads to something else than what is fed."
        elif number in results and place not in exits:
            detail = f"The name {label!r} leads to something else than the result."
        elif place not in entries and place not in exits:
            detail = f"The name {label!r} leads to something else."
        else:
            continue
        yield Violation("name", (label,), detail)


def check_labels(reference: Program, plan: Plan) -> Iterator[Violation]:
    """The first value or memory that is called as another one, of a plan that is right. Rule ``name``.

    Memories have the names of the tiers, or those of the reference. A value has the origin and the kind of
    the value of the reference that it stands for, and its label, or that label with ``@`` and a suffix. No
    result depends on it, but reports and exporters say so. Linear in the bindings.
    """
    program = plan.program
    memories = [memory.name for memory in (*plan.options.memories, *plan.options.tiers) or reference.spaces]
    called = [space.name for space in program.spaces]
    if memories != called[: len(memories)]:
        yield Violation("name", (), f"The memories are called {called}, not {memories}.")
        return
    used = {value.space for value in program.values}
    for number in range(len(memories), len(called)):
        if called[number] in called[:number] or number not in used:
            detail = f"The memory {called[number]!r} is listed a second time, or holds nothing."
            yield Violation("name", (), detail)
            return
    ours, theirs = program.values, reference.values
    bound = {(entry.value, entry.reference): False for entry in program.entry}
    bound |= {(exit_.value, exit_.reference): False for exit_ in program.exit}
    stands_for = dict(list(bound))
    copies = []
    for step in program.steps:
        if step.reference is None:
            copies.append(step.bindings)
            continue
        for a, b in zip(step.bindings, reference.steps[step.reference].bindings, strict=True):
            stands_for.setdefault(a.value, b.value)
            if ours[a.value] is not theirs[b.value]:
                pair = (a.value, b.value)
                bound[pair] = bound.get(pair, True) and a.access is Access.SCRATCH
    # What only copies touch stands for what is at the other end.
    for ends in (*copies, *reversed(copies)):
        for here, there in (ends, ends[::-1]):
            if here.value in stands_for and there.value not in stands_for:
                stands_for[there.value] = stands_for[here.value]
                bound[there.value, stands_for[here.value]] = False
    for (value, original), scratch in sorted(bound.items()):
        if not _is_called(ours[value], theirs[original], reference, scratch=scratch):
            label = ours[value].label
            detail = (
                f"{label!r} stands for {theirs[original].label!r} of the reference, and has another name,"
                " origin or kind."
            )
            yield Violation("name", (label,), detail)
            return


def _is_called(value: Value, original: Value, reference: Program, *, scratch: bool) -> bool:
    label = value.label
    if label != original.label and (
        label in reference.by_label or not label.startswith(f"{original.label}@")
    ):
        return False
    # A repetition leaves in scratch what it would update.
    kind = value.kind is original.kind or (scratch and value.kind is Kind.SCRATCH)
    return kind and value.origin == original.origin
