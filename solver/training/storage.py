"""Storage in 16 bits: what waits from the forward to the backward pass is kept in half its bytes.

    conv1 ──► x ──► relu ──► store ──► x@float16 ...      ... x@float16 ──► restore ──► x@restored ──► relu'
              float32        last forward use                               first backward use

The forward pass computes as before; the backward pass reads what was rounded. Derivatives, gradients, weights
and optimizer variables stay as they are: the master weights of mixed precision (Micikevicius et al. 2018;
nntrainer keeps activations so).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from solver.graph.ops.base import Node
from solver.graph.types import DType, Operation, TensorType
from solver.program import (
    CONVERT,
    SEED,
    Access,
    Binding,
    EntryKind,
    Kind,
    Phase,
    Program,
    Step,
    Value,
)

__all__ = ["STORAGE_TYPES", "with_storage"]

#: Element types in which activations may be kept.
STORAGE_TYPES = (DType.FLOAT16, DType.BFLOAT16)

#: Bytes that a conversion must save: less is lost to the alignment of places.
_MIN_SAVED_BYTES = 64

#: Elements that are rounded at a time: their bits and flags stay in the first-level cache.
_BLOCK_ELEMENTS = 4096


def with_storage(program: Program, dtype: DType) -> Program:
    """The reference program in which activations are kept as `dtype` between the two passes. Linear.

    A value is converted if all of these hold: it is a float32 that the forward pass computes or the caller
    feeds, or a gate of a recurrent cell; a derivative reads it; it is no output; and at least one kernel runs
    while it waits. Labels, masks, integers and the statistics of normalisations keep their types. If no value
    is converted, the same program is returned.
    """
    waits = tuple(_waiting(program))
    if not waits:
        return program
    builder = _Narrowed(program, dtype)
    stores: dict[int, list[_Wait]] = {}
    restores: dict[int, list[_Wait]] = {}
    for wait in waits:
        stores.setdefault(wait.last, []).append(wait)
        restores.setdefault(wait.first, []).append(wait)
    for t, step in enumerate(program.steps):
        for wait in restores.get(t, ()):
            builder.restore(wait.value)
        builder.add(step)
        for wait in stores.get(t, ()):
            builder.store(wait.value)
    return replace(
        program,
        values=tuple(builder.values),
        operations=tuple(builder.operations),
        steps=tuple(builder.steps),
    )


@dataclass(frozen=True, slots=True)
class _Wait:
    """Forward steps touch `value` until step `last`, backward steps read it from step `first` on."""

    value: int
    last: int
    first: int


def _waiting(program: Program) -> Iterator[_Wait]:
    from solver.graph.ops.recurrent import GATES  # a family of operators, only where something is converted

    turn = next(
        (t for t, step in enumerate(program.steps) if step.phase is not Phase.FORWARD), len(program.steps)
    )
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    changed: set[int] = set()
    for t, step in enumerate(program.steps):
        gates = program.kernel(step) in GATES
        for binding in step.bindings:
            value = program.values[binding.value]
            saved = value.kind is Kind.SAVED and gates
            if t < turn:
                if value.kind in (Kind.ACTIVATION, Kind.INPUT) or saved:
                    last[binding.value] = t
            elif binding.access is Access.READ:
                first.setdefault(binding.value, t)
            else:
                changed.add(binding.value)
    kept = {exit_.value for exit_ in program.exit}
    kept |= {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
    # A kernel other than the seed has to run in between, or nothing is gained.
    busy = [0]
    for step in program.steps:
        busy.append(busy[-1] + (program.kernel(step) != SEED))
    for number in sorted(last.keys() & first.keys()):
        type_ = program.values[number].type
        if (
            type_.dtype is DType.FLOAT32
            and number not in kept
            and number not in changed
            and type_.nbytes // 2 >= _MIN_SAVED_BYTES
            and busy[first[number]] > busy[last[number] + 1]
        ):
            yield _Wait(number, last[number], first[number])


class _Narrowed:
    """The program in the making."""

    def __init__(self, program: Program, dtype: DType) -> None:
        self.dtype = dtype
        self.values = list(program.values)
        self.operations = list(program.operations)
        self.steps: list[Step] = []
        #: Of values that are kept in 16 bits, the one that keeps them; then the one that has them again.
        self._kept: dict[int, int] = {}
        self._again: dict[int, int] = {}

    def add(self, step: Step) -> None:
        bindings = tuple(
            replace(b, value=self._again[b.value]) if b.value in self._again else b for b in step.bindings
        )
        position = len(self.steps)
        self.steps.append(
            replace(step, bindings=bindings, reference=position, level=position, until=position)
        )

    def store(self, value: int) -> None:
        original = self.values[value]
        type_ = TensorType(original.type.shape, self.dtype)
        self._kept[value] = self._value(f"{original.label}@{self.dtype.value}", type_, Kind.SAVED, original)
        self._convert(original.label, value, self._kept[value], Phase.FORWARD, "store")

    def restore(self, value: int) -> None:
        original = self.values[value]
        kind = Kind.ACTIVATION if original.kind is Kind.INPUT else original.kind
        self._again[value] = self._value(f"{original.label}@restored", original.type, kind, original)
        self._convert(original.label, self._kept[value], self._again[value], Phase.CALC_DERIVATIVE, "restore")

    def _value(self, label: str, type_: TensorType, kind: Kind, value: Value) -> int:
        self.values.append(Value(label, type_, kind, value.origin, value.space))
        return len(self.values) - 1

    def _convert(self, name: str, source: int, target: int, phase: Phase, part: str) -> None:
        """A step of value `name`, with the blocks that rounding to bfloat16 takes."""
        wide, narrow = self.values[source], self.values[target]
        bindings = [Binding("x0", source, Access.READ), Binding("y0", target, Access.WRITE)]
        if narrow.type.dtype is DType.BFLOAT16:
            size = min(_BLOCK_ELEMENTS, narrow.type.elements)
            for slot, dtype in (("bits", DType.INT32), ("nan", DType.BOOL)):
                label = f"{name}@{part}.{slot}"
                scratch = self._value(label, TensorType((size,), dtype), Kind.SCRATCH, wide)
                bindings.append(Binding(slot, scratch, Access.SCRATCH))
        operation = Operation(name, CONVERT, ("x0",), ("y0",))
        self.operations.append(Node(operation, (wide.type,), (narrow.type,), (None,), {}))
        position = len(self.steps)
        self.steps.append(
            Step(len(self.operations) - 1, phase, tuple(bindings), position, position, position, part)
        )
