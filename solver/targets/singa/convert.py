"""The singa target: the operations that Apache SINGA buffers for one training iteration.

SINGA allocates a block when an operation first writes it and frees it after the last one that uses it;
inputs, parameters, optimizer variables and running statistics stay. What its operations keep differs from
what this project's kernels keep:

    Relu               backward reads X, so that X and Y both stay
    MaxPool            backward reads X and Y, no arg-max
    Add                backward hands dY on as the derivative of both operands: no memory of their own
    Conv, Gemm, ...    the derivative of X first, then the gradients; each is a buffered operation
    normalisations     one operation computes all derivatives
    fused activations  there are none: each becomes an operation of its own

Operators without a line keep what this project's kernels keep. Workspaces of kernels are SINGA's own
affair and no blocks of the program: they are left out. In place, Relu overwrites X and reads Y.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from itertools import groupby

from solver.graph.ops.base import InPlace
from solver.graph.types import AttributeValue, Operation, TrainableGraph
from solver.program import ACCUMULATE, UPDATE, Access, Binding, Builder, Phase, Program, Step

__all__ = ["ALIGNMENT", "Sharing", "as_singa", "shares", "unfused"]

#: Bytes of a float: blocks are counted as they are.
ALIGNMENT = 4

#: What the backward step reads in the place of all values that it would read here.
_READS: Mapping[str, tuple[str, ...]] = {"Relu": ("x0",), "MaxPool": ("x0", "y0")}

_NORMALISATIONS = frozenset(
    {
        *("BatchNormalization", "GroupNormalization", "InstanceNormalization"),
        *("LayerNormalization", "RMSNormalization"),
    }
)


#: Fused activations as operators: name and attributes.
_ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, AttributeValue]]] = {
    "Relu": ("Relu", {}),
    "Relu6": ("Clip", {"min": 0.0, "max": 6.0}),
    "Sigmoid": ("Sigmoid", {}),
    "Tanh": ("Tanh", {}),
}


class Sharing(IntEnum):
    """The values that are defined in the memory of other blocks; each level includes the levels before it.

    SINGA itself does no more than hand derivatives on. `RELU` lets Relu overwrite its input; `ALL` adds every
    operator that can, and the derivatives.
    """

    DERIVATIVES_OF_SUMS = 0
    RELU = 1
    ALL = 2


def shares(level: Sharing, program: Program, step: Step, promise: InPlace) -> bool:
    """Whether a promise is used at a level."""
    if level is Sharing.ALL:
        return True
    if step.phase is Phase.FORWARD:
        return level is Sharing.RELU and program.kernel(step) == "Relu"
    return program.kernel(step) == "Add" and promise.view


def unfused(graph: TrainableGraph) -> TrainableGraph:
    """The graph with every fused activation as an operation of its own, behind the one that had it."""
    operands, operations = dict(graph.operands), list[Operation]()
    for operation in graph.operations:
        name = operation.attributes.get("activation", "None")
        if name not in _ACTIVATIONS:
            operations.append(operation)
            continue
        (output,) = operation.outputs
        before = f"{output}@linear"
        operands[before] = replace(graph.operands[output], id=before)
        rest = {key: value for key, value in operation.attributes.items() if key != "activation"}
        operations.append(replace(operation, outputs=(before,), attributes=rest))
        type_, attributes = _ACTIVATIONS[str(name)]
        operations.append(Operation(f"{operation.id}@activation", type_, (before,), (output,), attributes))
    return graph.with_graph(operands=operands, operations=tuple(operations))


def as_singa(program: Program, graph: TrainableGraph, level: Sharing) -> Program:
    """The derived program of a graph, all updates at the end, as SINGA would buffer it. Linear."""
    converter = _Converter(program, graph, relu_in_place=level >= Sharing.RELU)
    builder = Builder(program.name, program.spaces)
    for value in program.values:
        builder.value(value.label, value.type, value.kind, value.origin, value.space)
    for node in program.operations:
        builder.operation(node)
    builder.entries = {entry.value: entry.kind for entry in program.entry}
    builder.exits = dict.fromkeys(exit_.value for exit_ in program.exit)
    builder.initial = dict(program.initial)
    for group in _by_operation(program):
        for step in converter.group(group):
            builder.step(step.operation, step.phase, step.bindings, part=step.part, due=step.due)
    return builder.finish(period=program.period)


def _by_operation(program: Program) -> Iterator[list[Step]]:
    """Forward steps and updates one by one, the backward steps of an operation together."""

    def key(item: tuple[int, Step]) -> object:
        t, step = item
        alone = step.phase is Phase.FORWARD or program.kernel(step) == UPDATE
        return t if alone else program.operations[step.operation].operation.id

    for _, group in groupby(enumerate(program.steps), key):
        yield [step for _, step in group]


class _Converter:
    def __init__(self, program: Program, graph: TrainableGraph, *, relu_in_place: bool) -> None:
        self.program = program
        self.graph = {operation.id: operation for operation in graph.operations}
        self.reads = {**_READS, "Relu": ("y0",)} if relu_in_place else _READS

    def group(self, steps: list[Step]) -> Iterable[Step]:
        """The steps of one operation, backward: derivatives first, or everything in one."""
        converted = [self._step(step) for step in steps]
        if len(converted) == 1:
            return converted
        gradients = [step for step in converted if step.phase is Phase.CALC_GRADIENT]
        derivatives = [step for step in converted if step.phase is not Phase.CALC_GRADIENT]
        if not gradients or not derivatives or self.program.kernel(gradients[0]) not in _NORMALISATIONS:
            return [*derivatives, *gradients]
        joint = (*derivatives[0].bindings, *gradients[0].bindings)
        return [replace(derivatives[0], bindings=joint), *derivatives[1:], *gradients[1:]]

    def _step(self, step: Step) -> Step:
        bindings = tuple(b for b in step.bindings if b.access is not Access.SCRATCH)
        kernel = self.program.kernel(step)
        slots = self.reads.get(kernel)
        operation = self.graph.get(self.program.operations[step.operation].operation.id)
        if kernel == ACCUMULATE or operation is None or slots is None:
            return replace(step, bindings=bindings)
        if step.phase is Phase.FORWARD:
            kept = (b for b in bindings if b.access is Access.READ or b.slot[0] in "xy")
            return replace(step, bindings=tuple(kept))
        derivatives = (b for b in bindings if b.access is not Access.READ or b.slot.startswith("dy"))
        return replace(step, bindings=(*self._values(operation, slots), *derivatives))

    def _values(self, operation: Operation, slots: tuple[str, ...]) -> Iterator[Binding]:
        for slot in slots:
            names = operation.inputs if slot[0] == "x" else operation.outputs
            yield Binding(slot, self.program.by_label[names[int(slot[1:])]], Access.READ)
