"""Collects the values, operations and steps of a program, and numbers them.

Of the kernels of explicit programs is known what the program says. It stands among the attributes of an
operation, where the plan has it and the proof finds it: permissions to put results into the bytes of values
that the step reads, as slots in pairs (``w0=r1,w1=r0``); whether it is pure, and what it costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from solver.graph.ops.base import InPlace, Node
from solver.graph.types import TensorType
from solver.program.ir import (
    Access,
    Alias,
    Binding,
    Entry,
    EntryKind,
    Exit,
    Initial,
    Kind,
    Phase,
    Program,
    Space,
    Step,
    Value,
)

__all__ = ["PURE", "Builder", "is_pure", "permission_attributes", "permitted", "touching"]


class Builder:
    """A program in the making. Values are numbered as they are declared, steps as they are added.

    Values that no step touches are left out of the finished program, with their entries and exits.
    """

    def __init__(self, name: str, spaces: Iterable[Space]) -> None:
        self.name = name
        self.spaces = tuple(spaces)
        self.values: list[Value] = []
        self.steps: list[Step] = []
        self.entries: dict[int, EntryKind] = {}
        self.exits: dict[int, None] = {}
        self.initial: dict[int, Initial] = {}
        self._operations: list[Node] = []
        self._numbers: dict[str, int] = {}

    def value(self, label: str, type_: TensorType, kind: Kind, origin: str, space: int = 0) -> int:
        """The number of the value with this label, which is declared if it is new."""
        number = self._numbers.setdefault(label, len(self.values))
        if number == len(self.values):
            self.values.append(Value(label, type_, kind, origin, space))
        return number

    def operation(self, node: Node) -> int:
        """The number of a new operation. Steps that call one kernel for one operation share it."""
        self._operations.append(node)
        return len(self._operations) - 1

    def step(
        self, operation: int, phase: Phase, bindings: Iterable[Binding], *, part: str = "", due: bool = False
    ) -> None:
        """Add a step behind all others. A value in a slot that reads and one that writes is updated."""
        position = len(self.steps)
        self.steps.append(Step(operation, phase, _joined(bindings), position, position, position, part, due))

    def kernel(self, step: Step) -> str:
        """The name of the kernel that a step calls."""
        return self._operations[step.operation].operation.type

    def finish(self, *, period: int = 1, aliases: Iterable[Alias] = (), all_values: bool = False) -> Program:
        """The program of what was collected, with values that no step touches if asked for. Linear."""
        touched = sorted({binding.value for step in self.steps for binding in step.bindings})
        if all_values:
            touched = list(range(len(self.values)))
        number = {old: new for new, old in enumerate(touched)}
        steps = tuple(self.steps)
        if len(number) < len(self.values):
            steps = tuple(_renumbered(step, number) for step in steps)
        return Program(
            name=self.name,
            spaces=self.spaces,
            values=tuple(self.values[old] for old in touched),
            operations=tuple(self._operations),
            steps=steps,
            entry=tuple(
                Entry(number[value], kind, number[value])
                for value, kind in sorted(self.entries.items())
                if value in number
            ),
            exit=tuple(Exit(number[v], number[v]) for v in sorted(self.exits) if v in number),
            aliases=tuple(
                replace(alias, value=number[alias.value], source=number[alias.source]) for alias in aliases
            ),
            period=period,
            initial={number[value]: initial for value, initial in self.initial.items() if value in number},
        )


def touching(program: Program) -> Program:
    """The program without the values that no step touches, their entries and their exits. Linear."""
    bound = sorted({binding.value for step in program.steps for binding in step.bindings})
    if len(bound) == len(program.values):
        return program
    number = {old: new for new, old in enumerate(bound)}
    return replace(
        program,
        values=tuple(program.values[old] for old in bound),
        steps=tuple(_renumbered(step, number) for step in program.steps),
        entry=tuple(
            replace(e, value=number[e.value], reference=number[e.reference])
            for e in program.entry
            if e.value in number
        ),
        exit=tuple(
            replace(e, value=number[e.value], reference=number[e.reference])
            for e in program.exit
            if e.value in number
        ),
        initial={number[value]: first for value, first in program.initial.items() if value in number},
    )


def _joined(bindings: Iterable[Binding]) -> tuple[Binding, ...]:
    """One binding for each slot; where one reads and one writes the same value, the two are an update."""
    bindings = tuple(bindings)
    if len({binding.slot for binding in bindings}) == len(bindings):
        return bindings
    by_slot: dict[tuple[int, str], Binding] = {}
    for binding in bindings:
        key = (binding.value, binding.slot)
        before = by_slot.get(key)
        if before is not None and {before.access, binding.access} == {Access.READ, Access.WRITE}:
            by_slot[key] = Binding(binding.slot, binding.value, Access.UPDATE)
        else:
            by_slot[key] = binding
    return tuple(by_slot.values())


def _renumbered(step: Step, number: Mapping[int, int]) -> Step:
    bindings = tuple([Binding(b.slot, number[b.value], b.access) for b in step.bindings])
    return Step(
        step.operation, step.phase, bindings, step.reference, step.level, step.until, step.part, step.due
    )


_KEY = "overwrites"

#: The attribute of an explicit operation that is pure.
PURE = "pure"


def permission_attributes(slots: Mapping[str, str]) -> dict[str, str]:
    """The attributes of an operation that permits each slot that it writes to lie in one that it reads."""
    return {_KEY: ",".join(f"{target}={source}" for target, source in slots.items())} if slots else {}


def permitted(node: Node) -> tuple[InPlace, ...]:
    """The permissions of an explicit operation, as an operator's promises. Linear."""
    pairs = [pair.partition("=") for pair in str(node.attributes.get(_KEY, "")).split(",")]
    return tuple([InPlace(source, target) for target, _, source in pairs if source])


def is_pure(program: Program, step: Step) -> bool:
    """Whether an explicit step is pure: what it reads decides what it writes, and it changes nothing else."""
    return program.operations[step.operation].attributes.get(PURE) is True
