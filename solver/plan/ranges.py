"""A plan at each size of its ranges: the same steps in the same places, with smaller types.

    made at batch 32     conv.out  float32[32, 28, 28, 32]  at 4,096      conv:forward    writes conv.out
    at batch 5           conv.out  float32[5, 28, 28, 32]   at 4,096      conv:forward    writes conv.out

A plan is made at the largest size. At a smaller one every value keeps its place, so each buffer lies inside
the bytes that it has at the largest, and nothing new overlaps. Scratch is the exception: a kernel may take
another way at a smaller size, with less scratch, none, other scratch, or more. What is larger than planned is
placed anew where there is room at its steps.

`resized` promises nothing: what it returns is an ordinary plan, which `solver.verify.prove` judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from solver.accounting import home_figures
from solver.errors import PlanError
from solver.graph.declared import MAX_BYTES
from solver.graph.ops import lookup
from solver.graph.ops.base import Node
from solver.layout import Certificate, Proof, Status, above_reserved
from solver.plan.plan import Plan
from solver.program import (
    COPY,
    OWN_KERNELS,
    Access,
    Alias,
    Binding,
    EntryKind,
    HomeBound,
    Phase,
    PlaceRules,
    Program,
    Record,
    Region,
    Step,
    Value,
    loads,
    reference_digest,
    regions,
)

__all__ = ["resized"]


def resized(
    plan: Plan, planned: Program, reference: Program, graph_digest: str = "", *, grows: bool = False
) -> Plan:
    """The plan at the size of `reference`: its steps, order, levels, copies and places, with other types.

    `planned` is the reference program of the plan, `reference` that of the same graph at another size, which
    has the digest `graph_digest`. A value inside another one keeps its distance in elements. Sizes of spaces
    and certificates are computed again; records and bounds on the cost, which hold figures of the size that
    was planned, are left out. Raises PlanError where the steps at the two sizes differ in more than scratch,
    and where what is larger than planned finds no room in the bytes of the plan; with `grows`, within its
    capacity. Nothing is proved. O(n log n) for n bindings, and quadratic for what is placed anew.
    """
    walk, options = _Walk(plan, planned, reference), plan.options
    program = walk.program()
    offsets = [plan.offsets[old] if old < len(plan.offsets) else None for old in walk.kept]
    holds = {walk.number[value]: hold for value, hold in plan.holds.items() if value in walk.number}
    placed = regions(program, holds)
    places, misfits = list[int](), list[int]()
    for k, region in enumerate(placed):
        first = offsets[region.members[0]]
        places.append(first or 0)
        apart = any(walk.kept[member] in walk.apart for member in region.members)
        if first is None or apart or first + region.size > walk.planned_end(region):
            misfits.append(k)
    rules = options.constraints.rules(program)
    if misfits:
        room = _Room(program, placed, rules)
        staying = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
        free = [k for k, region in enumerate(placed) if staying.isdisjoint(region.members)]
        if not (
            room.place_again(places, misfits, plan.sizes)
            or room.place_again(places, free, _most_bytes(plan) if grows else plan.sizes)
        ):
            label = program.values[placed[misfits[0]].members[0]].label
            raise _otherwise(f"{label!r} takes more bytes than there is room for")
    for region, place in zip(placed, places, strict=True):
        for member, shift in zip(region.members, region.offsets, strict=True):
            offsets[member] = place + shift
    sizes, least = [0] * len(program.spaces), [0] * len(program.spaces)
    for region, place in zip(placed, places, strict=True):
        if region.size:
            sizes[region.space] = max(sizes[region.space], place + region.size)
            if rules.pins(region):
                least[region.space] = max(least[region.space], place + region.size)
    curves = loads(program, placed=placed)
    for space, curve in enumerate(curves):
        least[space] = max(least[space], above_reserved(max(curve, default=0), rules.blocks[space]))
    records = []
    if options.memories:  # how long accesses take at this size
        facts = home_figures(program, options.memories, options.tiers, options.costs)
        records.append(Record("homes", {**facts, "bound_nanoseconds": 0, "checked_nanoseconds": 0}))
    return replace(
        plan,
        graph_digest=graph_digest,
        reference_digest=reference_digest(replace(reference, name=program.name)),
        program=program,
        offsets=tuple(offset or 0 for offset in offsets),
        sizes=tuple(sizes),
        certificates=tuple(map(_certificate, plan.certificates, sizes, least, curves)),
        holds=holds,
        records=tuple(records),
        cost_bound=None,
        # No multipliers prove 0.
        home_bound=None if plan.home_bound is None else HomeBound(0, 1, ()),
        planned_sizes=None,
        digest="",
    )


def _most_bytes(plan: Plan) -> tuple[int, ...]:
    """The most bytes that each space may have: those of its memory, or the capacity."""
    options, count = plan.options, len(plan.sizes)
    if memories := (*options.memories, *options.tiers):
        return tuple(memory.bytes for memory in memories)[:count]
    return (MAX_BYTES if options.capacity is None else options.capacity,) * count


class _Room:
    """Places for regions of a program among others, by first fit. Pins, alignments and reserved bytes are
    kept.
    """

    def __init__(self, program: Program, placed: Sequence[Region], rules: PlaceRules) -> None:
        self._placed, self._blocks = placed, rules.blocks
        self._rules = [rules.place(program, region) for region in placed]

    def place_again(self, places: list[int], chosen: Sequence[int], sizes: Sequence[int]) -> bool:
        """Place the chosen regions anew among the others; whether they fit the sizes of their spaces.

        Orders: by size, by size and life, by time from either end; the one that ends lowest is taken. Places
        stay as they are where no order fits.
        """
        placed = self._placed
        moving = {k for k in chosen if self._rules[k][0] is None}
        best: tuple[int, list[int]] | None = None
        orders: tuple[Callable[[int], tuple[int, ...]], ...] = (
            lambda k: (-placed[k].size, placed[k].lifespan.start),
            lambda k: (-placed[k].size * (placed[k].lifespan.end - placed[k].lifespan.start), k),
            lambda k: (placed[k].lifespan.start, -placed[k].size),
            lambda k: (-placed[k].lifespan.end, -placed[k].size),
        )
        for order in orders:
            fixed = [k for k in range(len(placed)) if k not in moving]
            attempt = list(places)
            for k in sorted(moving, key=order):
                attempt[k] = self._lowest(k, fixed, attempt)
                if attempt[k] + placed[k].size > sizes[placed[k].space]:
                    break
                fixed.append(k)
            else:
                top = max((attempt[k] + placed[k].size for k in moving), default=0)
                best = min(best, (top, attempt), key=itemgetter(0)) if best else (top, attempt)
        if best is not None:
            places[:] = best[1]
        return best is not None

    def _lowest(self, k: int, others: Sequence[int], places: Sequence[int]) -> int:
        """The lowest offset at which region k shares no bytes with the others that live at its steps."""
        region, alignment = self._placed[k], self._rules[k][1]
        meeting = [
            (places[j], places[j] + self._placed[j].size)
            for j in others
            if self._placed[j].space == region.space and _meet(region, self._placed[j])
        ]
        meeting += [(block.low, block.high) for block in self._blocks[region.space]]
        place = 0
        for start, end in sorted(meeting):
            if place + region.size <= start:
                break
            place = max(place, -(-end // alignment) * alignment)
        return place


def _meet(one: Region, other: Region) -> bool:
    return any(a.start < b.end and b.start < a.end for a in one.spans for b in other.spans)


class _Walk:
    """Goes through the steps of a plan once, beside those of its reference at two sizes.

    `kept` are the values at the other size, by their number in the plan; numbers beyond its values are those
    of scratch that is new. `number` has their numbers at the other size.
    """

    def __init__(self, plan: Plan, planned: Program, reference: Program) -> None:
        self.plan, self.planned, self.reference = plan, planned, reference
        program = plan.program
        if difference := _difference(planned, reference):
            raise _otherwise(difference)
        #: By value of the plan the value of the reference at the other size that it stands for.
        self.stands_for: dict[int, int] = {}
        self._new: list[Value] = []
        self._steps = [self._step(t, step) for t, step in enumerate(program.steps)]
        self._entry = [replace(e, reference=self._there(e.value, e.reference)) for e in program.entry]
        self._exit = [replace(e, reference=self._there(e.value, e.reference)) for e in program.exit]
        copies = [tuple(b.value for b in s.bindings) for s in program.steps if s.reference is None]
        for source, target in (*copies, *reversed(copies)):
            for here, there in ((source, target), (target, source)):
                if here in self.stands_for:  # what only copies touch stands for what is at their other end
                    self.stands_for.setdefault(there, self.stands_for[here])
        touched = {b.value for step in self._steps for b in step.bindings}
        touched |= {e.value for e in self._entry} | {e.value for e in self._exit}
        self.kept = sorted(touched)
        self.number = {old: new for new, old in enumerate(self.kept)}
        #: Values that lie inside others at the size that was planned, and would not be aligned there.
        self.apart: set[int] = set()

    def _there(self, value: int, original: int) -> int:
        """The value of the reference at the other size, for one of the plan that stands for `original`."""
        label = self.planned.values[original].label
        if label not in self.reference.by_label:
            raise _otherwise(f"nothing is called {label!r}")
        return self.stands_for.setdefault(value, self.reference.by_label[label])

    def _step(self, t: int, step: Step) -> Step:
        if step.reference is None:
            return step
        before, after = (program.steps[step.reference] for program in (self.planned, self.reference))
        ours = dict(zip([b.slot for b in before.bindings], step.bindings, strict=True))
        bindings = []
        for binding in after.bindings:
            own = ours.get(binding.slot)
            if own is None:  # scratch that the step does not have at the size that was planned
                value, run = self.reference.values[binding.value], self.plan.program.runs[t]
                self._new.append(replace(value, label=f"{value.label}@run{run}") if run else value)
                number = len(self.plan.program.values) + len(self._new) - 1
                own = Binding(binding.slot, number, Access.SCRATCH)
            bindings.append(own)
            self.stands_for.setdefault(own.value, binding.value)
        return replace(step, bindings=tuple(bindings))

    def planned_end(self, region: Region) -> int:
        """The end of the bytes that the members of a region had, rounded up to the alignment."""
        values = self.plan.program.values
        ends = [
            self.plan.offsets[old] + values[old].type.nbytes
            for old in map(self.kept.__getitem__, region.members)
            if old < len(values)
        ]
        alignment = self.plan.program.spaces[region.space].alignment
        return -(-max(ends, default=0) // alignment) * alignment

    def program(self) -> Program:
        """The program at the other size."""
        program, number = self.plan.program, self.number
        values = [*program.values, *self._new]
        operations = list(program.operations)
        for step in program.steps:
            if step.reference is not None:
                operations[step.operation] = self.reference.operations[
                    self.reference.steps[step.reference].operation
                ]
        kept = []
        for old in self.kept:
            type_ = self.reference.values[self.stands_for[old]].type
            kept.append(values[old] if values[old].type == type_ else replace(values[old], type=type_))
        for step in program.steps:
            if step.reference is None and (node := operations[step.operation]).operation.type == COPY:
                type_ = kept[number[step.bindings[0].value]].type
                operations[step.operation] = replace(node, inputs=(type_,), outputs=(type_,))
        aliases = [(a, self._offset(a, operations)) for a in program.aliases]
        self.apart = {
            a.value for a, offset in aliases if offset % program.spaces[values[a.value].space].alignment
        }
        return replace(
            program,
            values=tuple(kept),
            operations=tuple(operations),
            steps=tuple(
                replace(step, bindings=tuple([replace(b, value=number[b.value]) for b in step.bindings]))
                for step in self._steps
            ),
            entry=tuple(replace(e, value=number[e.value]) for e in self._entry),
            exit=tuple(replace(e, value=number[e.value]) for e in self._exit),
            aliases=tuple(
                replace(a, value=number[a.value], source=number[a.source], offset=offset)
                for a, offset in aliases
                if a.value not in self.apart
            ),
            initial={
                number[e.value]: self.reference.initial[e.reference]
                for e in self._entry
                if e.reference in self.reference.initial
            },
        )

    def _offset(self, alias: Alias, operations: Sequence[Node]) -> int:
        """The distance of an alias from its source at the other size: another one for parts of a value."""
        step = self.plan.program.steps[alias.step]
        node = operations[step.operation]
        if not alias.view or step.phase is Phase.EXPLICIT or node.operation.type in OWN_KERNELS:
            return alias.offset
        slot = {binding.slot: binding.value for binding in step.bindings}
        kind, forward = lookup(node.operation.type), step.phase is Phase.FORWARD
        before = kind.parts(self.plan.program.operations[step.operation], forward)
        for was, now in zip(before, kind.parts(node, forward), strict=False):
            ends = slot.get(was.source), slot.get(was.target)
            if ends == (alias.source, alias.value) and was.start - was.target_start == alias.offset:
                return now.start - now.target_start
        return alias.offset


def _difference(planned: Program, reference: Program) -> str:
    """The first step that the two programs do not share, as the end of a sentence; empty without one."""
    for t, (one, other) in enumerate(zip(_kinds(planned), _kinds(reference), strict=False)):
        if one != other:
            return f"{reference.step_labels[t]!r} stands in the place of {planned.step_labels[t]!r}"
    if len(planned.steps) != len(reference.steps):
        return f"it has {len(reference.steps)} steps, not {len(planned.steps)}"
    return ""


def _kinds(program: Program) -> Iterator[tuple[object, ...]]:
    """The properties of each step that are the same at every size: all but types and scratch."""
    label = [value.label for value in program.values]
    for step in program.steps:
        bound = [(b.slot, b.access, label[b.value]) for b in step.bindings if b.access is not Access.SCRATCH]
        yield program.operations[step.operation].operation, step.phase, step.part, step.due, bound


def _otherwise(detail: str) -> PlanError:
    return PlanError(
        f"The training step is another one at this size: {detail}.",
        remedy="Plan this size by itself, or a range without it.",
    )


def _certificate(planned: Certificate, size: int, least: int, curve: Sequence[int]) -> Certificate:
    """The certificate of a space of which `least` bytes are needed, by what is live at once or pinned."""
    if least < size:
        return Certificate(Status.FEASIBLE, None, least, None, planned.solver)
    if max(curve, default=0) < size:  # with reserved bytes, or below a pin
        return Certificate(Status.OPTIMAL, Proof.SOLVER, size, None, planned.solver)
    return Certificate(
        Status.OPTIMAL, Proof.MAX_LOAD, size, curve.index(size) if size else None, planned.solver
    )
