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

from solver.graph.ops.base import InPlace, Node
from solver.graph.types import AttributeValue, Graph, Operation
from solver.training.derive import ACCUMULATE, UPDATE
from solver.training.program import (
    Binding,
    Phase,
    TrainingOperandIndex,
    TrainingProgram,
    TrainingStep,
)

__all__ = ["ALIGNMENT", "Sharing", "as_singa", "shares", "unfused"]

#: Bytes of a float: blocks are counted as they are.
ALIGNMENT = 4

#: What the backward step reads in the place of all values that it would read here.
_READS: Mapping[str, tuple[str, ...]] = {"Relu": ("x0",), "MaxPool": ("x0", "y0")}

_NORMALISATIONS = frozenset(
    {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"}
)


#: Fused activations as operators: name and attributes.
_ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, AttributeValue]]] = {
    "Relu": ("Relu", {}),
    "Relu6": ("Clip", {"min": 0.0, "max": 6.0}),
    "Sigmoid": ("Sigmoid", {}),
    "Tanh": ("Tanh", {}),
}


class Sharing(IntEnum):
    """What is defined in the memory of other blocks: each level has what the ones before it have.

    SINGA itself does no more than hand derivatives on. `RELU` lets Relu overwrite its input; `ALL` adds every
    operator that can, and the derivatives.
    """

    DERIVATIVES_OF_SUMS = 0
    RELU = 1
    ALL = 2


def shares(level: Sharing, step: TrainingStep, promise: InPlace) -> bool:
    """Whether a promise is used at a level."""
    if level is Sharing.ALL:
        return True
    if step.index.is_forward:
        return level is Sharing.RELU and step.kernel == "Relu"
    return step.kernel == "Add" and promise.view


def unfused(graph: Graph) -> Graph:
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
    return replace(graph, operands=operands, operations=tuple(operations))


def as_singa(program: TrainingProgram, nodes: Mapping[str, Node], level: Sharing) -> TrainingProgram:
    """A derived program, all updates at the end, as SINGA would buffer it. Linear."""
    converter = _Converter(nodes, relu_in_place=level >= Sharing.RELU)
    steps = tuple(step for group in _by_operation(program) for step in converter.group(group))
    touched = {operand for step in steps for operand in step.touched()}
    operands = {i: operand for i, operand in program.operands.items() if i in touched}
    return TrainingProgram(operands, steps)


def _by_operation(program: TrainingProgram) -> Iterator[list[TrainingStep]]:
    """Forward steps and updates one by one, the backward steps of an operation together."""

    def key(item: tuple[int, TrainingStep]) -> object:
        t, step = item
        alone = step.index.is_forward or step.kernel == UPDATE
        return t if alone else step.index.operation

    for _, group in groupby(enumerate(program.steps), key):
        yield [step for _, step in group]


class _Converter:
    def __init__(self, nodes: Mapping[str, Node], relu_in_place: bool) -> None:
        self.nodes = nodes
        self.reads = {**_READS, "Relu": ("y0",)} if relu_in_place else _READS

    def group(self, steps: list[TrainingStep]) -> Iterable[TrainingStep]:
        """The steps of one operation, backward: derivatives first, or everything in one."""
        converted = [self._step(step) for step in steps]
        if len(converted) == 1:
            return converted
        gradients = [step for step in converted if step.index.phase is Phase.CALC_GRADIENT]
        derivatives = [step for step in converted if step.index.phase is not Phase.CALC_GRADIENT]
        if not gradients or not derivatives or gradients[0].kernel not in _NORMALISATIONS:
            return [*derivatives, *gradients]
        return [_joined(derivatives[0], gradients[0]), *derivatives[1:], *gradients[1:]]

    def _step(self, step: TrainingStep) -> TrainingStep:
        if step.kernel == ACCUMULATE or step.index.operation not in self.nodes:
            return replace(step, scratch=())
        slots = self.reads.get(step.kernel)
        if step.index.is_forward:
            values = ("x", "y")
            kept = step.writes if slots is None else tuple(b for b in step.writes if b.slot[0] in values)
            return replace(step, writes=kept, scratch=())
        if slots is None:
            return replace(step, scratch=())
        derivatives = (b for b in step.reads if b.slot.startswith("dy"))
        return replace(step, reads=(*self._values(step, slots), *derivatives), scratch=())

    def _values(self, step: TrainingStep, slots: tuple[str, ...]) -> Iterator[Binding]:
        operation = self.nodes[step.index.operation].operation
        for slot in slots:
            names = operation.inputs if slot[0] == "x" else operation.outputs
            yield Binding(slot, TrainingOperandIndex(names[int(slot[1:])]))


def _joined(first: TrainingStep, second: TrainingStep) -> TrainingStep:
    return replace(
        first,
        reads=tuple(dict.fromkeys((*first.reads, *second.reads))),
        writes=(*first.writes, *second.writes),
    )
