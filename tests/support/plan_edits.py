"""Random edits of plans, most of them harmful: what a proof must notice, and what it must let pass.

Behind an edit of program or places, sizes and certificates are made anew (`certified`): a plan that is
rejected is rejected for what it does to its bytes. Edits of certificates are kinds of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from solver.graph import DType, Operation, TensorType
from solver.graph.ops import OPERATOR_NAMES, lookup
from solver.graph.ops.base import Node
from solver.layout import Lifespan, Proof, Status
from solver.plan import Plan
from solver.program import (
    COPY,
    Access,
    Alias,
    Binding,
    Entry,
    EntryKind,
    Exit,
    Initial,
    Phase,
    Program,
    Space,
    Step,
)
from tests.support.term_oracle import certified

__all__ = ["EDITS", "edited"]

T = TypeVar("T")

#: Returns the changed plan, or None where the plan has nothing to change in this way.
Edit = Callable[[Plan, random.Random], Plan | None]


def edited(plan: Plan, rng: random.Random) -> tuple[str, Plan]:
    """The plan behind one edit, now and then two, and their names. What is missing is the last edit."""
    names: list[str] = []
    wanted = 1 if rng.random() < 0.75 else 2
    while len(names) < wanted and "missing" not in names:
        name, found = "", None
        while found is None:
            name = rng.choice(_NAMES)
            found = EDITS[name](plan, rng)
        names.append(name)
        plan = found
        if name not in ("certificate", "size", "options"):
            plan = certified(plan)
    return " + ".join(names), plan


# ------------------------------------------------------------------------------------------- helpers


def _with(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, program=replace(plan.program, **changes))


def _put(items: Sequence[T], i: int, item: T) -> tuple[T, ...]:
    return (*items[:i], item, *items[i + 1 :])


def _without(items: Sequence[T], i: int) -> tuple[T, ...]:
    return (*items[:i], *items[i + 1 :])


def _any_step(plan: Plan, rng: random.Random) -> int:
    """A step that binds something, as every step does before an edit takes its last binding away."""
    return rng.choice([t for t, step in enumerate(plan.program.steps) if step.bindings])


def _any_value(plan: Plan, rng: random.Random) -> int:
    return rng.randrange(len(plan.program.values))


def _like(plan: Plan, value: int, rng: random.Random) -> int:
    """Another value of the same type where there is one."""
    type_ = plan.program.values[value].type
    same = [i for i, v in enumerate(plan.program.values) if v.type == type_ and i != value]
    return rng.choice(same or [value])


def _changed_step(plan: Plan, t: int, **changes: Any) -> Plan:
    return _with(plan, steps=_put(plan.program.steps, t, replace(plan.program.steps[t], **changes)))


def _changed_binding(plan: Plan, t: int, i: int, **changes: Any) -> Plan:
    bindings = plan.program.steps[t].bindings
    return _changed_step(plan, t, bindings=_put(bindings, i, replace(bindings[i], **changes)))


def _spread(program: Program, order: Sequence[int]) -> Program:
    """Steps in another order, one after the other; copies last as long as before, aliases keep steps."""
    steps = [program.steps[t] for t in order]
    timed = tuple(replace(step, level=t, until=t + step.until - step.level) for t, step in enumerate(steps))
    position = {old: new for new, old in enumerate(order)}
    aliases = tuple(replace(a, step=position[a.step]) for a in program.aliases if a.step in position)
    return replace(program, steps=timed, aliases=aliases)


# ------------------------------------------------------------------------------------------- places


def _offset_of_another(plan: Plan, rng: random.Random) -> Plan:
    v, u = _any_value(plan, rng), _any_value(plan, rng)
    return replace(plan, offsets=_put(plan.offsets, v, plan.offsets[u]))


def _offsets_swapped(plan: Plan, rng: random.Random) -> Plan:
    v, u = _any_value(plan, rng), _any_value(plan, rng)
    offsets = _put(plan.offsets, v, plan.offsets[u])
    return replace(plan, offsets=_put(offsets, u, plan.offsets[v]))


def _offset_shifted(plan: Plan, rng: random.Random) -> Plan:
    v = _any_value(plan, rng)
    alignment = plan.program.spaces[plan.program.values[v].space].alignment
    by = rng.choice([-1, 1, -4, 4, -alignment, -alignment, alignment, alignment, 2 * alignment])
    return replace(plan, offsets=_put(plan.offsets, v, plan.offsets[v] + by))


def _offset_outside(plan: Plan, rng: random.Random) -> Plan:
    v = _any_value(plan, rng)
    return replace(plan, offsets=_put(plan.offsets, v, rng.choice([-8, -64, 1 << 12])))


def _offset_on_top(plan: Plan, rng: random.Random) -> Plan:
    """A place of its own behind all others: right, where no alias says otherwise."""
    v = _any_value(plan, rng)
    return replace(plan, offsets=_put(plan.offsets, v, plan.sizes[plan.program.values[v].space]))


def _size(plan: Plan, rng: random.Random) -> Plan:
    s = rng.randrange(len(plan.sizes))
    return replace(plan, sizes=_put(plan.sizes, s, max(0, plan.sizes[s] + rng.choice([-8, -1, 1, 8, 64]))))


def _type(plan: Plan, rng: random.Random) -> Plan:
    v = _any_value(plan, rng)
    value = plan.program.values[v]
    shape, dtype = value.type.shape, value.type.dtype
    other = rng.choice(
        [
            TensorType(shape[::-1], dtype),
            TensorType((*shape, 1), dtype),
            TensorType((*shape, 2), dtype),
            TensorType(shape, DType.INT32),
            TensorType(shape, DType.FLOAT64),
            TensorType((1,), DType.UINT8),
        ]
    )
    return _with(plan, values=_put(plan.program.values, v, replace(value, type=other)))


def _space_of_value(plan: Plan, rng: random.Random) -> Plan:
    v = _any_value(plan, rng)
    program, number = plan.program, rng.randrange(len(plan.program.spaces) + 1)
    values = _put(program.values, v, replace(program.values[v], space=number))
    if number < len(program.spaces):
        return _with(plan, values=values)
    space = Space("more", rng.choice([8, 64]), addressable=rng.random() < 0.7)
    plan = replace(plan, sizes=(*plan.sizes, 0), certificates=(*plan.certificates, plan.certificates[0]))
    return _with(plan, values=values, spaces=(*program.spaces, space))


def _space(plan: Plan, rng: random.Random) -> Plan:
    spaces, s = plan.program.spaces, rng.randrange(len(plan.program.spaces))
    changes: dict[str, Any] = rng.choice(
        [{"alignment": 1}, {"alignment": 4}, {"alignment": 16}, {"addressable": not spaces[s].addressable}]
    )
    return _with(plan, spaces=_put(spaces, s, replace(spaces[s], **changes)))


# ------------------------------------------------------------------------------------------ aliases


def _alias_added(plan: Plan, rng: random.Random) -> Plan | None:
    program, t = plan.program, _any_step(plan, rng)
    sources = [b.value for b in program.steps[t].bindings if b.access.reads]
    targets = [b.value for b in program.steps[t].bindings if b.access.writes]
    if not sources or not targets:
        return None
    source, target = rng.choice(sources), rng.choice(targets)
    offset = rng.choice([0, 0, 0, 8])
    alias = Alias(target, source, t, rng.random() < 0.5, offset)
    if rng.random() < 0.7:
        plan = replace(plan, offsets=_put(plan.offsets, target, plan.offsets[source] + offset))
    return _with(plan, aliases=(*program.aliases, alias))


def _alias_promised(plan: Plan, rng: random.Random) -> Plan | None:
    """A value in the bytes of another one as an operator allows it; later steps may forbid it."""
    program = plan.program
    found: list[tuple[int, int, int, bool]] = []
    for t, step in enumerate(program.steps):
        node = program.operations[step.operation]
        if step.phase is Phase.EXPLICIT or node.operation.type not in OPERATOR_NAMES:
            continue
        by_slot = {b.slot: b.value for b in step.bindings}
        found += [
            (by_slot[promise.target], by_slot[promise.source], t, promise.view)
            for promise in lookup(node.operation.type).in_place(node)
            if promise.source in by_slot and promise.target in by_slot
        ]
    if not found:
        return None
    target, source, t, view = rng.choice(found)
    alias = Alias(target, source, t, view and rng.random() < 0.8)
    plan = replace(plan, offsets=_put(plan.offsets, target, plan.offsets[source]))
    return _with(plan, aliases=(*program.aliases, alias))


def _parts_promised(plan: Plan, rng: random.Random) -> Plan | None:
    """A value where its parts lie, or where the first of them lies, as an operator allows it."""
    program = plan.program
    found: list[tuple[int, list[tuple[int, int, int]]]] = []
    for t, step in enumerate(program.steps):
        node = program.operations[step.operation]
        if step.phase is Phase.EXPLICIT or node.operation.type not in OPERATOR_NAMES:
            continue
        by_slot = {b.slot: b.value for b in step.bindings}
        parts = lookup(node.operation.type).parts(node, step.phase is Phase.FORWARD)
        for slot in sorted({part.target for part in parts} & by_slot.keys()):
            of = [part for part in parts if part.target == slot and part.source in by_slot]
            lying = [(by_slot[part.source], part.start - part.target_start, t) for part in of]
            found += [(by_slot[slot], lying)] * bool(lying)
    if not found:
        return None
    target, sources = rng.choice(found)
    if rng.random() < 0.2:
        sources = rng.sample(sources, rng.randrange(1, len(sources) + 1))
    aliases = tuple(Alias(target, source, t, True, offset) for source, offset, t in sources)
    at = plan.offsets[sources[0][0]] + sources[0][1]
    offsets = _put(plan.offsets, target, at)
    if rng.random() < 0.7:
        for source, offset, _ in sources:
            offsets = _put(offsets, source, at - offset)
    kept = tuple(alias for alias in program.aliases if alias.value != target)
    return _with(replace(plan, offsets=offsets), aliases=(*kept, *aliases))


def _alias_changed(plan: Plan, rng: random.Random) -> Plan | None:
    aliases = plan.program.aliases
    if not aliases:
        return None
    i = rng.randrange(len(aliases))
    alias = aliases[i]
    how = rng.randrange(7)
    if how == 0:
        return _with(plan, aliases=_without(aliases, i))
    if how == 1:
        return _with(plan, aliases=rng.sample(aliases, len(aliases)))
    if how == 2:
        return _with(plan, aliases=(*aliases, alias))
    changes: list[dict[str, Any]] = [
        {"view": not alias.view},
        {"source": _like(plan, alias.source, rng)},
        {"step": _any_step(plan, rng)},
        {"offset": rng.choice([-8, 4, 8])},
    ]
    return _with(plan, aliases=_put(aliases, i, replace(alias, **changes[how - 3])))


# --------------------------------------------------------------------------------------------- steps


def _step_moved(plan: Plan, rng: random.Random) -> Plan:
    order = [*range(len(plan.program.steps))]
    t = order.pop(_any_step(plan, rng))
    near = min(max(t + rng.choice([-3, -2, -1, 1, 2, 3]), 0), len(order))
    order.insert(near if rng.random() < 0.7 else rng.randrange(len(order) + 1), t)
    return replace(plan, program=_spread(plan.program, order))


def _step_dropped(plan: Plan, rng: random.Random) -> Plan | None:
    order = [*range(len(plan.program.steps))]
    if len(order) < 2:
        return None
    order.pop(_any_step(plan, rng))
    return replace(plan, program=_spread(plan.program, order))


def _step_doubled(plan: Plan, rng: random.Random) -> Plan:
    """The same step once more, with the same values, or with results in places of their own."""
    program, t = plan.program, _any_step(plan, rng)
    again, at = program.steps[t], rng.randrange(t, len(program.steps)) + 1
    values, offsets = [*program.values], [*plan.offsets]
    if rng.random() < 0.5:
        bindings = []
        for b in again.bindings:
            if b.access.writes and b.access is not Access.UPDATE:
                values.append(replace(program.values[b.value], label=f"again{len(values)}"))
                offsets.append(rng.choice(plan.offsets) if rng.random() < 0.5 else plan.sizes[0])
                access = Access.SCRATCH if rng.random() < 0.3 else b.access
                bindings.append(replace(b, value=len(values) - 1, access=access))
            else:
                bindings.append(b)
        again = replace(again, bindings=tuple(bindings))
    steps = [*program.steps[:at], again, *program.steps[at:]]
    timed = tuple(replace(step, level=i, until=i + step.until - step.level) for i, step in enumerate(steps))
    aliases = tuple(replace(a, step=a.step + (a.step >= at)) for a in program.aliases)
    changed = replace(program, steps=timed, aliases=aliases, values=tuple(values))
    return replace(plan, program=changed, offsets=tuple(offsets))


def _levels(plan: Plan, rng: random.Random) -> Plan | None:
    """Steps of two levels come together, a level falls apart, or a step has the level of another one."""
    program, t = plan.program, _any_step(plan, rng)
    if rng.random() < 0.2:
        level = rng.choice(program.steps).level + rng.choice([-1, 0, 0, 1])
        return _changed_step(plan, t, level=level, until=level)
    if rng.random() < 0.6:
        down = program.steps[t].level
        shifts = [-1 if step.level > down else 0 for step in program.steps]
    else:
        shifts = [1 if i > t else 0 for i in range(len(program.steps))]
    steps = tuple(
        replace(step, level=step.level + shift, until=step.until + shift)
        for step, shift in zip(program.steps, shifts, strict=True)
    )
    return _with(plan, steps=steps)


def _until(plan: Plan, rng: random.Random) -> Plan:
    copies = [t for t, step in enumerate(plan.program.steps) if step.reference is None]
    t = rng.choice(copies) if copies and rng.random() < 0.8 else _any_step(plan, rng)
    until = plan.program.steps[t].until + rng.choice([-1, 1, 1, 2, 5, 99])
    return _changed_step(plan, t, until=until)


def _slots_swapped(plan: Plan, rng: random.Random) -> Plan | None:
    t = _any_step(plan, rng)
    bindings = plan.program.steps[t].bindings
    if len(bindings) < 2:
        return None
    i, j = rng.sample(range(len(bindings)), 2)
    swapped = _put(bindings, i, replace(bindings[i], value=bindings[j].value))
    return _changed_step(plan, t, bindings=_put(swapped, j, replace(bindings[j], value=bindings[i].value)))


def _binding(plan: Plan, rng: random.Random) -> Plan:
    t = _any_step(plan, rng)
    bindings = plan.program.steps[t].bindings
    i = rng.randrange(len(bindings))
    how = rng.randrange(7)
    if how <= 2:
        return _changed_binding(plan, t, i, value=_like(plan, bindings[i].value, rng))
    if how == 3:
        return _changed_binding(plan, t, i, slot=rng.choice(["x0", "x1", "y0", "dx0", "u0"]))
    if how == 4:
        return _changed_step(plan, t, bindings=_without(bindings, i))
    if how == 5:
        more = Binding(rng.choice(["x9", bindings[i].slot]), _any_value(plan, rng), rng.choice([*Access]))
        return _changed_step(plan, t, bindings=(*bindings, more))
    return _changed_step(plan, t, bindings=tuple(rng.sample(bindings, len(bindings))))


def _access(plan: Plan, rng: random.Random) -> Plan:
    t = _any_step(plan, rng)
    bindings = plan.program.steps[t].bindings
    writing = [i for i, b in enumerate(bindings) if b.access in (Access.WRITE, Access.UPDATE)]
    if writing and rng.random() < 0.5:
        return _changed_binding(plan, t, rng.choice(writing), access=Access.SCRATCH)
    return _changed_binding(plan, t, rng.randrange(len(bindings)), access=rng.choice([*Access]))


def _reference(plan: Plan, rng: random.Random) -> Plan:
    others: list[int | None] = [step.reference for step in plan.program.steps]
    return _changed_step(plan, _any_step(plan, rng), reference=rng.choice([*others, None, -1, 10**6]))


def _condition(plan: Plan, rng: random.Random) -> Plan:
    t = _any_step(plan, rng)
    return _changed_step(plan, t, due=not plan.program.steps[t].due)


def _phase(plan: Plan, rng: random.Random) -> Plan:
    t = _any_step(plan, rng)
    changes: list[dict[str, Any]] = [{"phase": rng.choice([*Phase])}, {"part": "other"}]
    return _changed_step(plan, t, **rng.choice(changes))


def _kernel(plan: Plan, rng: random.Random) -> Plan:
    """Another kernel, another attribute, another name, another budget; or the same one once more."""
    program, t = plan.program, _any_step(plan, rng)
    how = rng.randrange(4)
    if how == 0:
        return _changed_step(plan, t, operation=rng.randrange(len(program.operations)))
    node = program.operations[program.steps[t].operation]
    if how == 1:
        node = replace(node, scratch_budget=node.scratch_budget + 1)
    elif how == 2:
        given = node.operation
        node = replace(node, operation=Operation(f"{given.id}!", given.type, given.inputs, given.outputs))
    elif node.attributes and rng.random() < 0.8:
        key = rng.choice(sorted(node.attributes))
        node = replace(node, attributes={**node.attributes, key: 0.125})
    plan = _with(plan, operations=(*program.operations, node))
    return _changed_step(plan, t, operation=len(program.operations))


def _copy_added(plan: Plan, rng: random.Random) -> Plan:
    """A copy of a value to a place of its own, which nothing reads, or which later steps read."""
    program, v, at = plan.program, _any_value(plan, rng), rng.randrange(len(plan.program.steps) + 1)
    type_, target = program.values[v].type, len(program.values)
    node = Node(Operation("copy!", COPY, ("x0",), ("y0",)), (type_,), (type_,), (None,), {})
    bindings = (Binding("x0", v, Access.READ), Binding("y0", target, Access.WRITE))
    copy = Step(len(program.operations), Phase.FORWARD, bindings, None, 0, rng.choice([0, 0, 1]))
    later = program.steps[at:]
    if rng.random() < 0.7:
        later = tuple(
            replace(
                step,
                bindings=tuple(
                    replace(b, value=target) if b.value == v and b.access is Access.READ else b
                    for b in step.bindings
                ),
            )
            for step in later
        )
    steps = [*program.steps[:at], copy, *later]
    timed = tuple(replace(step, level=i, until=i + step.until - step.level) for i, step in enumerate(steps))
    space = program.values[v].space
    changed = replace(
        program,
        values=(*program.values, replace(program.values[v], label=f"copy{target}")),
        operations=(*program.operations, node),
        steps=timed,
        aliases=tuple(replace(a, step=a.step + (a.step >= at)) for a in program.aliases),
    )
    offset = plan.sizes[space] if rng.random() < 0.7 else rng.choice(plan.offsets)
    return replace(plan, program=changed, offsets=(*plan.offsets, offset))


# -------------------------------------------------------------------------------------- entry and exit


def _entry(plan: Plan, rng: random.Random) -> Plan | None:
    entries, v = plan.program.entry, _any_value(plan, rng)
    if not entries:
        return None
    i, how = rng.randrange(len(entries)), rng.randrange(5)
    if how == 0:
        return _with(plan, entry=_without(entries, i))
    if how == 1:
        return _with(plan, entry=(*entries, Entry(v, entries[i].kind, entries[i].reference)))
    changes: list[dict[str, Any]] = [
        {"value": _like(plan, entries[i].value, rng)},
        {"kind": rng.choice([*EntryKind])},
        {"reference": rng.choice([e.reference for e in entries] + [v])},
    ]
    return _with(plan, entry=_put(entries, i, replace(entries[i], **changes[how - 2])))


def _exit(plan: Plan, rng: random.Random) -> Plan | None:
    exits, v = plan.program.exit, _any_value(plan, rng)
    if not exits:
        return None
    i, how = rng.randrange(len(exits)), rng.randrange(5)
    if how == 0:
        return _with(plan, exit=_without(exits, i))
    if how == 1:
        return _with(plan, exit=(*exits, Exit(v, v)))
    changes: list[dict[str, Any]] = [
        {"value": _like(plan, exits[i].value, rng)},
        {"reference": _like(plan, exits[i].reference, rng)},
        {"reference": rng.choice([e.reference for e in exits] + [v, -1])},
    ]
    return _with(plan, exit=_put(exits, i, replace(exits[i], **changes[how - 2])))


def _period(plan: Plan, rng: random.Random) -> Plan:
    return _with(plan, period=plan.program.period + rng.choice([-1, 1, 3]))


def _initial(plan: Plan, rng: random.Random) -> Plan:
    initial = dict(plan.program.initial)
    if initial and rng.random() < 0.4:
        initial.pop(rng.choice([*initial]))
    elif initial and rng.random() < 0.5:
        v = rng.choice([*initial])
        initial[v] = replace(initial[v], seed=initial[v].seed + 1)
    else:
        initial[_any_value(plan, rng)] = Initial("ones")
    return _with(plan, initial=initial)


# ------------------------------------------------------------------------------- certificates, holds


def _certificate(plan: Plan, rng: random.Random) -> Plan:
    s = rng.randrange(len(plan.certificates))
    given = plan.certificates[s]
    changes: list[dict[str, Any]] = [
        {"lower_bound": given.lower_bound + rng.choice([-64, -8, -1, 1, 8, 64])},
        {"lower_bound": plan.sizes[s]},
        {"proof": rng.choice([None, *Proof])},
        {"status": rng.choice([*Status])},
        {"witness_step": rng.choice([None, -1, 10**6, *range(len(plan.program.steps))])},
        {
            "status": Status.OPTIMAL,
            "proof": rng.choice([*Proof]),
            "lower_bound": plan.sizes[s],
            "witness_step": rng.randrange(len(plan.program.steps)),
        },
    ]
    return replace(plan, certificates=_put(plan.certificates, s, replace(given, **rng.choice(changes))))


def _holds(plan: Plan, rng: random.Random) -> Plan:
    start = rng.randrange(plan.duration)
    end = rng.randrange(start, plan.duration) + 1 if rng.random() < 0.9 else plan.duration + 1
    hold = Lifespan(start, end)
    return replace(plan, holds={**plan.holds, _any_value(plan, rng): hold})


def _missing(plan: Plan, rng: random.Random) -> Plan:
    """Tables of the wrong length, and numbers that name nothing."""
    how = rng.randrange(5)
    number = rng.choice([-1, len(plan.program.values)])
    if how == 0:
        return replace(plan, offsets=plan.offsets[:-1])
    if how == 1:
        return replace(plan, certificates=(*plan.certificates, plan.certificates[0]))
    if how == 2:
        return _changed_binding(plan, _any_step(plan, rng), 0, value=number)
    if how == 3:
        return _changed_step(plan, _any_step(plan, rng), operation=rng.choice([-1, 10**6]))
    return _with(plan, exit=(*plan.program.exit, Exit(number, 0)))


def _options(plan: Plan, rng: random.Random) -> Plan:
    """Another capacity, or for another number of steps at the same time."""
    changes: list[dict[str, Any]] = [
        {"capacity": sum(plan.sizes) + rng.choice([-1, 0, 100])},
        {"parallelism": rng.choice([1, 2, 3])},
    ]
    return replace(plan, options=replace(plan.options, **rng.choice(changes)))


#: Every kind of edit by its name.
EDITS: Mapping[str, Edit] = {
    "offset of another": _offset_of_another,
    "offsets swapped": _offsets_swapped,
    "offset shifted": _offset_shifted,
    "offset outside": _offset_outside,
    "offset on top": _offset_on_top,
    "size": _size,
    "type": _type,
    "space of a value": _space_of_value,
    "space": _space,
    "alias added": _alias_added,
    "alias promised": _alias_promised,
    "parts promised": _parts_promised,
    "alias changed": _alias_changed,
    "step moved": _step_moved,
    "step dropped": _step_dropped,
    "step doubled": _step_doubled,
    "levels": _levels,
    "until": _until,
    "slots swapped": _slots_swapped,
    "binding": _binding,
    "access": _access,
    "reference": _reference,
    "condition": _condition,
    "phase": _phase,
    "kernel": _kernel,
    "copy added": _copy_added,
    "entry": _entry,
    "exit": _exit,
    "period": _period,
    "initial": _initial,
    "certificate": _certificate,
    "holds": _holds,
    "missing": _missing,
    "options": _options,
}

_NAMES = (*EDITS,)
