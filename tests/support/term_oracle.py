"""The independent judge of the symbolic proof: an interpreter of terms, byte by byte.

    arena    [e3.0 e3.1 e3.2 e3.3 | t7.0 t7.1 t7.2 t7.3 | ? ? ? ?]     one cell a byte: term and index, or ?
    t7     = (reference step 4, "y0", (("x0", bytes of e3), ("x1", bytes of t5)))

It shares nothing with `solver.verify` but the types of programs and plans and the facts of operators. It is
slow and plain on purpose: each obligation of the proof is a method or two, and arenas have to be tiny.
Contents are tuples of symbols. Terms are interned, so contents are equal where one computation made them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from solver.graph.ops import lookup
from solver.graph.ops.base import InPlace, Part
from solver.layout import Certificate, Proof, Status
from solver.plan import Plan
from solver.program import (
    ACCUMULATE,
    CLIP,
    CONVERT,
    COPY,
    SEED,
    UPDATE,
    Access,
    Alias,
    Binding,
    EntryKind,
    Initial,
    Phase,
    Program,
    Step,
    permitted,
)

__all__ = ["Broken", "TermOracle", "broken_certificate", "certified"]

#: A byte: the number of its term and its index in it; None is undefined.
Symbol = tuple[int, int] | None
Contents = tuple[Symbol, ...]

_OWN_KERNELS = frozenset({SEED, ACCUMULATE, CLIP, UPDATE, COPY, CONVERT})

#: What a carried or constant value holds first where nothing is said.
_ZEROS = Initial("zeros")

#: Addresses are compared modulo this many bytes: the widest vector registers, and a cache line.
_RESIDUE = 64


@dataclass(frozen=True)
class Broken(Exception):
    """The obligation that a plan does not meet, by its number in the design or a word, and why."""

    obligation: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Range:
    """The bytes ``[start, end)`` of a space that a binding of a step touches."""

    binding: Binding
    space: int
    start: int
    end: int
    changes: bool

    def meets(self, other: _Range) -> bool:
        return self.space == other.space and self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class _Run:
    """The reference program in one mode: contents of read slots by step, and of all values at the end."""

    reads: Mapping[int, Mapping[str, Contents]]
    final: tuple[Contents, ...]
    #: What values hold at some time.
    known: frozenset[Contents]


class _Arena:
    """The bytes of all spaces of a plan, undefined at first."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.spaces: list[list[Symbol]] = [[None] * size for size in plan.sizes]

    def fetch(self, value: int) -> Contents:
        place = _place(self.plan, value)
        return tuple(self.spaces[place.space][place.start : place.end])

    def store(self, value: int, contents: Contents) -> None:
        place = _place(self.plan, value)
        self.spaces[place.space][place.start : place.end] = contents

    def clear(self, value: int) -> None:
        self.store(value, (None,) * self.plan.program.values[value].type.nbytes)


class TermOracle:
    """Judges plans of one reference program, which it runs once for each mode."""

    def __init__(self, reference: Program) -> None:
        self.reference = reference
        self._terms: dict[Hashable, int] = {}
        self._sizes: list[int] = []
        #: With micro-batches: all steps, and without the due ones.
        modes = (True, False) if reference.period > 1 else (True,)
        self._runs = {due: self._run_reference(due) for due in modes}

    def judge(self, plan: Plan) -> Broken | None:
        """The first obligation that the plan breaks, certificates included; None: it is accepted."""
        try:
            _check_form(plan)
            if plan.program.period != self.reference.period:
                raise Broken("7", "Another period than the reference's.")
            self._check_places(plan)
            self._check_steps(plan)
            aliased = self._check_aliases(plan)
            ranges = _ranges(plan, aliased)
            for t in range(len(plan.program.steps)):
                _check_overlaps(t, ranges[t], aliased[t])
            _check_intervals(plan)
            self._check_entry(plan)
            self._check_exit(plan.program)
            self._check_names(plan.program)
            self._check_residues(plan)
            for due, run in self._runs.items():
                _check_meetings(plan, ranges, due)
                self._run_plan(plan, due, run)
        except Broken as broken:
            return broken
        return broken_certificate(plan)

    # -------------------------------------------------------------------------------------- terms

    def _contents(self, term: Hashable, nbytes: int) -> Contents:
        number = self._terms.setdefault((term, nbytes), len(self._terms))
        if number == len(self._sizes):
            self._sizes.append(nbytes)
        return tuple((number, i) for i in range(nbytes))

    def _is_whole(self, contents: Contents, run: _Run) -> bool:
        """Whether these are all bytes of one term, in order, or of a value of the reference."""
        if contents in run.known:
            return True
        first = contents[0]
        if first is None or self._sizes[first[0]] != len(contents):
            return False
        return contents == tuple((first[0], i) for i in range(len(contents)))

    def _entry(self, value: int) -> Contents:
        return self._contents(("entry", value), self.reference.values[value].type.nbytes)

    def _result(self, number: int, slot: str, read: Mapping[str, Contents]) -> Contents:
        """The contents that reference step `number` writes to `slot` if its read slots have `read`."""
        needs = _needs(self.reference, number, slot)
        copied = _copied(self.reference, number, slot)
        if copied is not None:
            return read[copied]
        pieces = _assembled(self.reference, number, slot)
        if pieces:
            return tuple(itertools.chain(*(read[p.source][p.start : p.start + p.nbytes] for p in pieces)))
        binding = next(b for b in self.reference.steps[number].bindings if b.slot == slot)
        nbytes = self.reference.values[binding.value].type.nbytes
        return self._contents((number, slot, tuple((name, read[name]) for name in needs)), nbytes)

    def _run_reference(self, due: bool) -> _Run:
        """Each value in memory of its own, step after step."""
        program = self.reference
        memory: list[Contents] = [(None,) * value.type.nbytes for value in program.values]
        for entry in program.entry:
            memory[entry.value] = self._entry(entry.value)
        reads: dict[int, Mapping[str, Contents]] = {}
        known: set[Contents] = set()
        for t, step in enumerate(program.steps):
            if step.due and not due:
                continue
            read = {b.slot: memory[b.value] for b in step.bindings if b.access.reads}
            reads[t] = read
            written = {b.value: self._result(t, b.slot, read) for b in step.bindings if _defines(b)}
            for value, contents in written.items():
                memory[value] = contents
                if None not in contents:
                    known.add(contents)
        return _Run(reads, tuple(memory), frozenset(known))

    # ------------------------------------------------------------- (1) places, (2) steps, (8) residues

    def _check_places(self, plan: Plan) -> None:
        program = plan.program
        for number, value in enumerate(program.values):
            offset, space = plan.offsets[number], program.spaces[value.space]
            if offset < 0 or offset + value.type.nbytes > plan.sizes[value.space]:
                raise Broken("1", f"{value.label} at {offset} is outside of space {space.name}.")
            if offset % space.alignment:
                raise Broken("1", f"{value.label} at {offset} is not aligned to {space.alignment}.")
        for t, step in enumerate(program.steps):
            if _is_copy(program, step):
                continue
            for binding in step.bindings:
                if not program.spaces[program.values[binding.value].space].addressable:
                    raise Broken("1", f"Step {t} works in a space that kernels cannot address.")

    def _check_steps(self, plan: Plan) -> None:
        program = plan.program
        for t, step in enumerate(program.steps):
            if step.reference is None:
                self._check_copy(program, t)
                continue
            if not 0 <= step.reference < len(self.reference.steps):
                raise Broken("2", f"Step {t} repeats step {step.reference}, which is not there.")
            original = self.reference.steps[step.reference]
            ours, theirs = program.operations[step.operation], self.reference.operations[original.operation]
            if _bits(ours) != _bits(theirs) or (step.phase, step.part) != (original.phase, original.part):
                raise Broken("2", f"Step {t} calls another kernel than reference step {step.reference}.")
            is_pure = self.reference.operations[original.operation].attributes.get("pure", False)
            if program.runs[t] and original.phase is Phase.EXPLICIT and not is_pure:
                raise Broken("2", f"Step {t} repeats an explicit step that need not compute the same again.")
            if step.due != original.due:
                raise Broken("2", f"Step {t} runs on another condition than its reference step.")
            if [b.slot for b in step.bindings] != [b.slot for b in original.bindings]:
                raise Broken("2", f"Step {t} has other slots than its reference step.")
            for binding, model in zip(step.bindings, original.bindings, strict=True):
                may_drop = binding.access is Access.SCRATCH and model.access.writes
                if binding.access is not model.access and not may_drop:
                    raise Broken("2", f"Step {t} has another access in slot {binding.slot}.")
                if program.values[binding.value].type != self.reference.values[model.value].type:
                    raise Broken("2", f"Step {t} has another type in slot {binding.slot}.")

    def _check_copy(self, program: Program, t: int) -> None:
        step = program.steps[t]
        if not _is_copy(program, step):
            raise Broken("2", f"Step {t} repeats no reference step and is not a copy.")
        if [b.access for b in step.bindings] != [Access.READ, Access.WRITE]:
            raise Broken("2", f"Copy {t} does not read one value and write one.")
        a, b = (program.values[binding.value].type for binding in step.bindings)
        if a != b:
            raise Broken("2", f"Copy {t} is between different types.")
        node = program.operations[step.operation]
        if (*node.inputs, *node.outputs) != (a, b):
            raise Broken("2", f"The operation of copy {t} is for other types.")

    def _check_residues(self, plan: Plan) -> None:
        program = plan.program
        seen: dict[tuple[int, str], tuple[int, int]] = {}
        for t, step in enumerate(program.steps):
            if step.reference is None:
                continue
            for binding in step.bindings:
                space = program.values[binding.value].space
                # The base of a space is known modulo its alignment only.
                base = -1 if program.spaces[space].alignment % _RESIDUE == 0 else space
                residue = (base, plan.offsets[binding.value] % _RESIDUE)
                if seen.setdefault((step.reference, binding.slot), residue) != residue:
                    raise Broken("8", f"Step {t} has another address modulo {_RESIDUE} in {binding.slot}.")

    # ------------------------------------------------------------------------------------ (3) aliases

    def _check_aliases(self, plan: Plan) -> list[dict[tuple[str, str], bool]]:
        """By step the pairs (read slot, written slot) that may share bytes, and whether as a view.

        Every alias must be true, and of a value that stands where it is already.
        """
        program = plan.program
        since = {alias.value: alias.step for alias in program.aliases}
        for a, b in itertools.combinations(program.aliases, 2):
            twice = a.source == b.source or a.step != b.step or not (a.view and b.view)
            if a.value == b.value and twice:
                raise Broken("3", "A value has two aliases, and is not a view of two sources in one step.")
        found: list[dict[tuple[str, str], bool]] = [{} for _ in program.steps]
        for alias in program.aliases:
            if not since.get(alias.source, -1) < alias.step < len(program.steps):
                raise Broken("3", f"The alias of {alias.value} comes before its source, or at no step.")
            if program.values[alias.value].space != program.values[alias.source].space or (
                plan.offsets[alias.value] != plan.offsets[alias.source] + alias.offset
            ):
                raise Broken("3", f"Value {alias.value} does not lie where its alias says.")
            pairs = set(self._promised(program, alias))
            if not pairs:
                raise Broken("3", f"No operator allows {alias.value} in the bytes of {alias.source}.")
            found[alias.step].update(dict.fromkeys(pairs, alias.view))
        for alias in program.aliases:
            # What a view is put together from lies in its bytes, all of it.
            for target in {target for _, target in found[alias.step]} & {
                b.slot for b in program.steps[alias.step].bindings if b.value == alias.value
            }:
                wanted = {part.source for part in _parts(program, program.steps[alias.step], target)}
                if alias.view and wanted - {a for a, b in found[alias.step] if b == target}:
                    raise Broken("3", f"Value {alias.value} is a view of some of its parts only.")
        return found

    def _promised(self, program: Program, alias: Alias) -> Iterator[tuple[str, str]]:
        """The pairs of slots of the alias's step for which its operator promises what the alias does."""
        step = program.steps[alias.step]
        a, b = program.values[alias.source].type, program.values[alias.value].type
        if step.reference is None:
            return
        sources = {b.slot for b in step.bindings if (b.value, b.access) == (alias.source, Access.READ)}
        targets = {b.slot for b in step.bindings if (b.value, b.access) == (alias.value, Access.WRITE)}
        for target in targets if alias.view else ():
            for part in _parts(program, step, target):
                if part.source in sources and part.start - part.target_start == alias.offset:
                    yield part.source, target
        # Any other promise is one of two slots in one memory: at the same address, of the same size.
        if alias.offset or (a.nbytes, a.dtype) != (b.nbytes, b.dtype):
            return
        # The kernel also writes what a repeated step only has as scratch.
        writes = sum(_defines(b) for b in self.reference.steps[step.reference].bindings)
        for promise in _promises(program, step):
            if promise.source not in sources or promise.target not in targets:
                continue
            if (alias.view and not promise.view) or (promise.alone and writes > 1):
                continue
            yield promise.source, promise.target

    # ------------------------------------------------------------------------- (6) entry and exit

    def _check_entry(self, plan: Plan) -> None:
        program, given = plan.program, {entry.value: entry for entry in self.reference.entry}
        exits = {(exit_.value, exit_.reference) for exit_ in program.exit}
        for entry in program.entry:
            model = given.get(entry.reference)
            if model is None or entry.kind is not model.kind:
                raise Broken("6", f"Entry {entry.value} is of a kind that the reference does not have.")
            if program.values[entry.value].type != self.reference.values[entry.reference].type:
                raise Broken("6", f"Entry {entry.value} has another type than the reference's.")
            ours = program.initial.get(entry.value, _ZEROS)
            theirs = self.reference.initial.get(entry.reference, _ZEROS)
            if entry.kind is not EntryKind.FED and _bits(_floating(ours)) != _bits(_floating(theirs)):
                raise Broken("6", f"Entry {entry.value} has other first contents than the reference's.")
            if entry.kind is EntryKind.CARRIED and (entry.value, entry.reference) not in exits:
                raise Broken("6", f"Carried entry {entry.value} is not an exit.")
        if given.keys() - {entry.reference for entry in program.entry}:
            raise Broken("6", "The plan takes less at the start than the reference.")
        for a, b in itertools.combinations(program.entry, 2):
            if _place(plan, a.value).meets(_place(plan, b.value)):
                raise Broken("6", f"Entries {a.value} and {b.value} overlap.")

    def _check_exit(self, program: Program) -> None:
        wanted = {exit_.reference for exit_ in self.reference.exit}
        for exit_ in program.exit:
            if exit_.reference not in wanted:
                raise Broken("6", f"Exit {exit_.value} is for what is not an exit of the reference.")
            if program.values[exit_.value].type != self.reference.values[exit_.reference].type:
                raise Broken("6", f"Exit {exit_.value} has another type than the reference's.")
        if wanted - {exit_.reference for exit_ in program.exit}:
            raise Broken("6", "The plan leaves less at the end than the reference.")

    def _check_names(self, program: Program) -> None:
        """A caller who writes and reads by the names of the reference reaches what has these names there."""
        for number, value in enumerate(self.reference.values):
            named = [k for k, ours in enumerate(program.values) if ours.label == value.label]
            fed = any(e.value == number and e.kind is EntryKind.FED for e in self.reference.entry)
            stays = any(e.value == number and e.kind is not EntryKind.FED for e in self.reference.entry)
            left = any(exit_.value == number for exit_ in self.reference.exit)
            written = [k for k in named if any(e.value == k and e.reference == number for e in program.entry)]
            found = [k for k in named if any(e.value == k and e.reference == number for e in program.exit)]
            if (fed and not written) or (left and not found) or (stays and not written and not found):
                raise Broken("name", f"The name {value.label} leads to something else.")

    # ------------------------------------------------------------------- (5), (6): the run in the arena

    def _run_plan(self, plan: Plan, due: bool, run: _Run) -> None:
        program, arena = plan.program, _Arena(plan)
        for entry in program.entry:
            arena.store(entry.value, self._entry(entry.reference))
        steps = [(t, step) for t, step in enumerate(program.steps) if due or not step.due]
        under_way: list[tuple[int, int, Contents]] = []
        gone = sorted(_gone(plan))
        for level, together in itertools.groupby(steps, key=lambda item: item[1].level):
            under_way = _arrived(arena, under_way, level)
            while gone and gone[0][0] < level:
                arena.clear(gone.pop(0)[1])
            # All steps of a level read before any of them writes: which comes first makes no difference.
            found = [(step, self._written(program, t, arena, run)) for t, step in together]
            for step, written in found:
                for binding in step.bindings:
                    if binding.access is not Access.READ:
                        arena.clear(binding.value)
                under_way += [(step.until, value, contents) for value, contents in written]
        _arrived(arena, under_way, program.duration)
        self._check_end(program, arena, run)

    def _check_end(self, program: Program, arena: _Arena, run: _Run) -> None:
        for exit_ in program.exit:
            if arena.fetch(exit_.value) != run.final[exit_.reference]:
                raise Broken("6", f"Exit {exit_.value} does not hold what the reference holds.")
        for entry in program.entry:
            held = arena.fetch(entry.value)
            stays = entry.kind in (EntryKind.CONSTANT, EntryKind.HELD)
            if stays and held != self._entry(entry.reference):
                raise Broken("6", f"Entry {entry.value} does not hold what it held at the start.")

    def _written(self, program: Program, t: int, arena: _Arena, run: _Run) -> list[tuple[int, Contents]]:
        """The values that step `t` defines, with their contents; every read slot that matters is whole."""
        step = program.steps[t]
        if step.reference is None:
            source, target = step.bindings
            contents = arena.fetch(source.value)
            if not self._is_whole(contents, run):
                raise Broken("5", f"Copy {t} copies what is not a whole value.")
            return [(target.value, contents)]
        originals = {b.slot: b for b in self.reference.steps[step.reference].bindings}
        read: dict[str, Contents] = {}
        for binding in step.bindings:
            if originals[binding.slot].access.reads:
                contents = arena.fetch(binding.value)
                # What a repeated step updates in scratch, it finds undefined.
                read[binding.slot] = contents if binding.access.reads else (None,) * len(contents)
        if not any(map(_defines, originals.values())) and read != run.reads[step.reference]:
            raise Broken("5", f"Step {t}, which only reads, does not find what the reference finds.")
        written = []
        for binding in filter(_defines, step.bindings):
            for slot in _needs(self.reference, step.reference, binding.slot):
                if not self._is_whole(read[slot], run):
                    raise Broken("5", f"Step {t} reads no whole value in slot {slot}.")
            written.append((binding.value, self._result(step.reference, binding.slot, read)))
        return written


# ------------------------------------------------------------------------------- what operators promise


def _bits(value: object) -> str:
    """A text that two values share only where they have the same types and bits."""
    if dataclasses.is_dataclass(value):
        parts = [(field.name, _bits(getattr(value, field.name))) for field in dataclasses.fields(value)]
        return f"{type(value).__name__}{parts}"
    if isinstance(value, Mapping):
        return f"map{sorted((_bits(key), _bits(item)) for key, item in value.items())}"
    if isinstance(value, tuple | list):
        return f"list{[_bits(item) for item in value]}"
    return f"float {value.hex()}" if isinstance(value, float) else f"{type(value).__name__} {value!r}"


def _floating(initial: Initial) -> Initial:
    """Numbers of schemes are floating, however a graph writes them."""
    return replace(initial, value=float(initial.value), scale=float(initial.scale))


def _promises(program: Program, step: Step) -> tuple[InPlace, ...]:
    """The promises of the step's operator, or what an explicit step permits; own kernels make none."""
    node = program.operations[step.operation]
    if step.phase is Phase.EXPLICIT:
        return permitted(node)
    if node.operation.type in _OWN_KERNELS:
        return ()
    return lookup(node.operation.type).in_place(node)


def _copied(reference: Program, number: int, slot: str) -> str | None:
    """The read slot that a written slot is a plain copy of."""
    step = reference.steps[number]
    types = {b.slot: reference.values[b.value].type for b in step.bindings}
    read = {b.slot for b in step.bindings if b.access is Access.READ}
    for promise in _promises(reference, step):
        if promise.view and promise.target == slot and promise.source in read:
            a, b = types[promise.source], types[slot]
            if (a.nbytes, a.dtype) == (b.nbytes, b.dtype):
                return promise.source
    return None


def _parts(program: Program, step: Step, slot: str) -> list[Part]:
    """The parts that the operator concatenates into a slot, in order; empty where it computes the slot."""
    node = program.operations[step.operation]
    if step.phase is Phase.EXPLICIT or node.operation.type in _OWN_KERNELS:
        return []
    parts = lookup(node.operation.type).parts(node, step.phase is Phase.FORWARD)
    return sorted((part for part in parts if part.target == slot), key=lambda part: part.target_start)


def _assembled(reference: Program, number: int, slot: str) -> list[Part]:
    """The parts of a written slot if the step has them all."""
    step = reference.steps[number]
    read = {b.slot for b in step.bindings if b.access is Access.READ}
    parts = _parts(reference, step, slot)
    return parts if all(part.source in read for part in parts) else []


def _needs(reference: Program, number: int, slot: str) -> tuple[str, ...]:
    """The read slots on which what a step writes to `slot` depends."""
    copied = _copied(reference, number, slot)
    if copied is not None:
        return (copied,)
    pieces = _assembled(reference, number, slot)
    if pieces:
        return tuple(part.source for part in pieces)
    step = reference.steps[number]
    node = reference.operations[step.operation]
    ignored: frozenset[str] = frozenset()
    if step.phase is not Phase.EXPLICIT and node.operation.type not in _OWN_KERNELS:
        ignored = lookup(node.operation.type).ignores(node, step.phase is Phase.FORWARD, slot)
    return tuple(b.slot for b in step.bindings if b.access.reads and b.slot not in ignored)


def _arrived(
    arena: _Arena, under_way: list[tuple[int, int, Contents]], level: int
) -> list[tuple[int, int, Contents]]:
    """Store what was written until before `level`; what is still under way then is returned."""
    for until, value, contents in under_way:
        if until < level:
            arena.store(value, contents)
    return [result for result in under_way if result[0] >= level]


# ----------------------------------------------------------------------------------------- statics


def _defines(binding: Binding) -> bool:
    return binding.access in (Access.WRITE, Access.UPDATE)


def _is_copy(program: Program, step: Step) -> bool:
    return step.reference is None and program.operations[step.operation].operation.type == COPY


def _place(plan: Plan, value: int) -> _Range:
    return _range(plan, Binding("", value, Access.READ), changes=False)


def _range(plan: Plan, binding: Binding, *, changes: bool) -> _Range:
    value, start = plan.program.values[binding.value], plan.offsets[binding.value]
    return _Range(binding, value.space, start, start + value.type.nbytes, changes)


def _check_form(plan: Plan) -> None:
    """Every number names something."""
    program = plan.program
    if len(plan.offsets) != len(program.values):
        raise Broken("form", "There is not one offset for each value.")
    if not len(plan.sizes) == len(plan.certificates) == len(program.spaces):
        raise Broken("form", "There is not one size and one certificate for each space.")
    values = [b.value for step in program.steps for b in step.bindings]
    values += [e.value for e in program.entry] + [e.value for e in program.exit]
    values += [v for alias in program.aliases for v in (alias.value, alias.source)]
    values += [*program.initial, *plan.holds]
    if not all(0 <= value < len(program.values) for value in values):
        raise Broken("form", "A value is named that is not declared.")
    if not all(0 <= value.space < len(program.spaces) for value in program.values):
        raise Broken("form", "A space is named that is not declared.")
    if not all(0 <= step.operation < len(program.operations) for step in program.steps):
        raise Broken("form", "An operation is named that is not declared.")
    if len({value.label for value in program.values}) < len(program.values):
        raise Broken("form", "Two values have one label.")
    if not all(0 <= hold.start < hold.end <= program.duration for hold in plan.holds.values()):
        raise Broken("form", "A value is held on levels that are not there.")


def _ranges(plan: Plan, aliased: list[dict[tuple[str, str], bool]]) -> list[list[_Range]]:
    """The bytes that each step touches; a step leaves the bytes of a value that it defines as a view."""
    found = []
    for step, pairs in zip(plan.program.steps, aliased, strict=True):
        views = {target for (_, target), view in pairs.items() if view}
        found.append(
            [_range(plan, b, changes=b.access.writes and b.slot not in views) for b in step.bindings]
        )
    return found


def _check_overlaps(t: int, ranges: list[_Range], aliased: Mapping[tuple[str, str], bool]) -> None:
    for a, b in itertools.combinations(ranges, 2):
        if not a.meets(b) or not (a.changes or b.changes):
            continue
        slots = (a.binding.slot, b.binding.slot)
        if slots in aliased or slots[::-1] in aliased:
            continue
        raise Broken("3", f"Slots {slots[0]} and {slots[1]} of step {t} overlap.")


def _check_intervals(plan: Plan) -> None:
    program = plan.program
    before = -1
    for t, step in enumerate(program.steps):
        if step.level not in (max(before, 0), before + 1):
            raise Broken("4", f"The level of step {t} is neither that of the step before nor the next one.")
        before = step.level
        if step.until != step.level and not (_is_copy(program, step) and step.until > step.level):
            raise Broken("4", f"Step {t} does not end on its level and is not a copy.")
        if step.until > program.steps[-1].level:
            raise Broken("4", f"Step {t} is under way at the end of the iteration.")
    kernels = Counter(step.level for step in program.steps if not _is_copy(program, step))
    if max(kernels.values(), default=0) > plan.options.parallelism:
        raise Broken("4", "More steps run at the same time than the plan is for.")


def _check_meetings(plan: Plan, ranges: list[list[_Range]], due: bool) -> None:
    """Steps that run at the same time share bytes only where both leave them; a channel runs one copy."""
    program = plan.program
    steps = [t for t, step in enumerate(program.steps) if due or not step.due]
    for t, u in itertools.combinations(steps, 2):
        one, other = program.steps[t], program.steps[u]
        if one.until < other.level or other.until < one.level:
            continue
        for a, b in itertools.product(ranges[t], ranges[u]):
            if a.meets(b) and (a.changes or b.changes):
                raise Broken("4", f"Steps {t} and {u} run at the same time and share bytes.")
        if _is_copy(program, one) and _is_copy(program, other):
            ends = [{program.values[b.value].space for b in step.bindings} for step in (one, other)]
            if ends[0] == ends[1]:
                raise Broken("4", f"Copies {t} and {u} use the channel of two memories at the same time.")


# ------------------------------------------------------------------------------------ certificates


@dataclass(frozen=True, slots=True)
class _Region:
    """The bytes of an alias set, and the levels on which they are needed."""

    space: int
    offset: int
    size: int
    levels: frozenset[int]


def broken_certificate(plan: Plan) -> Broken | None:
    """Whether sizes, bounds and witnesses are what the program adds up to, lives computed anew."""
    regions = _regions(plan)
    for space, (size, certificate) in enumerate(zip(plan.sizes, plan.certificates, strict=True)):
        here = [region for region in regions if region.space == space]
        load = _load(here)
        bound = certificate.lower_bound
        if max((region.offset + region.size for region in here), default=0) != size:
            return Broken("bound", f"Space {space} is not as large as what lies in it.")
        if not max(load.values(), default=0) <= bound <= size:
            return Broken("bound", f"The lower bound of space {space} is not between load and size.")
        if certificate.status not in (Status.OPTIMAL, Status.FEASIBLE):
            return Broken("proof", f"Space {space} has a layout and is {certificate.status.value}.")
        if (certificate.status is Status.OPTIMAL) != (certificate.proof is not None):
            return Broken("proof", f"Status and proof of space {space} do not go together.")
        if certificate.status is Status.OPTIMAL and bound != size:
            return Broken("proof", f"Space {space} is called optimal above its bound.")
        witness = certificate.witness_step
        if certificate.proof is Proof.MAX_LOAD and size and (witness is None or load[witness] != size):
            return Broken("proof", f"Space {space} is not full at its witness.")
        if witness is not None and load[witness] != max(load.values(), default=0):
            return Broken("proof", f"Space {space} has a witness that is not its fullest level.")
        if plan.holds and any(itertools.starmap(_clash, itertools.combinations(here, 2))):
            return Broken("hold", f"Space {space} holds two buffers in the same bytes.")
    if plan.options.capacity is not None and sum(plan.sizes) > plan.options.capacity:
        return Broken("capacity", "The spaces take more than the capacity.")
    return None


def _clash(a: _Region, b: _Region) -> bool:
    return bool(a.levels & b.levels) and a.offset < b.offset + b.size and b.offset < a.offset + a.size


def certified(plan: Plan) -> Plan:
    """The plan with sizes that hold what lies in its spaces, and with bounds that are its loads."""
    try:
        _check_form(plan)
    except Broken:
        return plan
    regions, sizes, certificates = _regions(plan), [], []
    for space, given in enumerate(plan.certificates):
        here = [region for region in regions if region.space == space]
        size = max([0, *(region.offset + region.size for region in here)])
        bound = max(_load(here).values(), default=0)
        status, proof = (Status.OPTIMAL, Proof.SOLVER) if bound == size else (Status.FEASIBLE, None)
        certificates.append(Certificate(status, proof, bound, None, given.solver))
        sizes.append(size)
    return replace(plan, sizes=tuple(sizes), certificates=tuple(certificates))


def _load(regions: list[_Region]) -> Counter[int]:
    """Bytes that are needed on each level."""
    load: Counter[int] = Counter()
    for region in regions:
        load.update(dict.fromkeys(region.levels, region.size))
    return load


def _regions(plan: Plan) -> list[_Region]:
    program = plan.program
    times = _times(plan)
    together = _together(program)
    found = []
    for of in {min(members): sorted(members & times.keys()) for members in together.values()}.values():
        if not of:
            continue
        first = of[0]
        space, offset = program.values[first].space, min(plan.offsets[value] for value in of)
        alignment = program.spaces[space].alignment
        nbytes = max(plan.offsets[v] + program.values[v].type.nbytes for v in of) - offset
        size = -(-nbytes // alignment) * alignment
        needed = [time for value in of for time in times[value]]
        levels = frozenset(range(min(needed), max(needed) + 1))
        if len(of) == 1:
            levels -= _restored(plan, first)
        found.append(_Region(space, offset, size, levels))
    return found


def _together(program: Program) -> dict[int, set[int]]:
    """By value, the values that share bytes by aliases."""
    together = {value: {value} for value in range(len(program.values))}
    for alias in program.aliases:
        both = together[alias.value] | together[alias.source]
        together.update(dict.fromkeys(both, both))
    return together


def _gone(plan: Plan) -> Iterator[tuple[int, int]]:
    """Levels behind which the bytes of a value hold nothing, and the value.

    Nothing that shares them by an alias is needed behind such a level, or a copy is the next to touch them.
    """
    program = plan.program
    times = _times(replace(plan, holds={}))
    stay = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
    stay |= {exit_.value for exit_ in program.exit}
    together = _together(program)
    for value in times:
        sharing = together[value] & times.keys()
        if not sharing & stay:
            yield max(time for other in sharing for time in times[other]), value
        elif sharing == {value}:
            levels = _restored(replace(plan, holds={}), value)
            yield from ((level - 1, value) for level in levels if level - 1 not in levels)


def _restored(plan: Plan, value: int) -> set[int]:
    """Levels on which a value that stays is not needed, because a copy is the next one to touch it."""
    program = plan.program
    stays = any(entry.value == value and entry.kind is not EntryKind.FED for entry in program.entry)
    if not stays or value in plan.holds:
        return set()
    touching = [
        (step, binding) for step in program.steps for binding in step.bindings if binding.value == value
    ]
    found = set()
    for level in range(1, program.steps[-1].level + 1):
        later = [(step, binding) for step, binding in touching if step.level > level]
        under_way = any(step.level <= level <= step.until for step, _ in touching)
        next_level = min((step.level for step, _ in later), default=0)
        if not under_way and any(
            step.level == next_level
            and step.reference is None
            and binding.access is Access.WRITE
            and not (step.due and program.period > 1)
            for step, binding in later
        ):
            found.add(level)
    return found


def _times(plan: Plan) -> dict[int, list[int]]:
    """Levels on which each value that a step touches, or that is held for another program, is needed, the
    first and the last among them.
    """
    program = plan.program
    end = max((step.level for step in program.steps), default=-1)
    times: dict[int, list[int]] = {}
    for step in program.steps:
        for binding in step.bindings:
            times.setdefault(binding.value, []).extend((step.level, step.until))
    times |= {entry.value: [] for entry in program.entry if entry.kind is EntryKind.HELD}
    more = [(entry.value, [0] if entry.kind is EntryKind.FED else [0, end]) for entry in program.entry]
    more += [(exit_.value, [end]) for exit_ in program.exit]
    more += [(value, [hold.start, hold.end - 1]) for value, hold in plan.holds.items()]
    for value, needed in more:
        if value in times:
            times[value] += needed
    return times
