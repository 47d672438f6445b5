"""From a graph to its training program: forward, calcGradient, calcDerivative, applyGradient.

Reverse-mode differentiation over the graph, with the three-way backward order of nntrainer:
for each operation, last to first, the gradients of its trainable parameters, then the derivatives
of its other inputs. Steps that lead to no trainable parameter are never emitted (onert calls
what is left the essential backward order). An operand with k consumers gets its derivative as one
def and k - 1 partials, each followed by an explicit accumulate step, so that a partial lives
over two neighbouring steps and no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from solver.graph.nodes import graph_nodes
from solver.graph.ops import lookup
from solver.graph.ops.base import Node, OperationType, ScratchRequest
from solver.graph.types import DType, Graph, Operation, Role, TensorType
from solver.training.optimizers import block as optimizer_block
from solver.training.optimizers import scratch as optimizer_scratch
from solver.training.optimizers import state_names
from solver.training.program import (
    Binding,
    Lifetime,
    OperandKind,
    Phase,
    TrainingOperand,
    TrainingOperandIndex,
    TrainingOperationIndex,
    TrainingProgram,
    TrainingStep,
)

__all__ = ["ACCUMULATE", "CLIP", "SEED", "UPDATE", "derive"]

#: Kernels of steps that stem from no operation of the graph.
SEED, ACCUMULATE, CLIP, UPDATE = "Seed", "Accumulate", "ClipByGlobalNorm", "Update"

_KIND_OF_ROLE = {
    Role.INPUT: OperandKind.INPUT,
    Role.LABEL: OperandKind.LABEL,
    Role.PARAMETER: OperandKind.PARAMETER,
    Role.STATE: OperandKind.STATE,
    Role.CONSTANT: OperandKind.CONSTANT,
    Role.INTERMEDIATE: OperandKind.ACTIVATION,
}


def derive(graph: Graph, nodes: Mapping[str, Node] | None = None) -> TrainingProgram:
    """The training program of a verified graph, all updates at the end.

    `nodes` are the graph's (`graph_nodes`); their scratch budget decides the size of scratch.
    Cost: linear in the size of the program.
    """
    return _Derivation(graph, nodes or graph_nodes(graph)).run()


class _Derivation:
    """Builds the operands and steps of one program; lives for one call of `derive`."""

    def __init__(self, graph: Graph, nodes: Mapping[str, Node]) -> None:
        self.graph = graph
        self.nodes = nodes
        self.operands: dict[TrainingOperandIndex, TrainingOperand] = {}
        self.steps: list[TrainingStep] = []
        self.varying = _varying(graph, nodes)
        #: Derivatives that already have a def.
        self.defined: set[str] = set()

    def run(self) -> TrainingProgram:
        for operation in self.graph.operations:
            self._forward(operation)
        if self.graph.trainable:
            if self.graph.training.accumulate > 1:
                self._keep_gradients()
            self._seed()
            for operation in reversed(self.graph.operations):
                self._backward(operation)
            joint = self._clip() if self.graph.training.joins_gradients else ()
            for weight in self.graph.trainable:
                self._update(weight, joint)
        self._drop_unread()
        return TrainingProgram(self.operands, tuple(self.steps))

    # ------------------------------------------------------------------------- forward

    def _forward(self, operation: Operation) -> None:
        node, kind = self.nodes[operation.id], lookup(operation.type)
        saved = [self._saved(operation, request) for request in kind.saved(node)]
        self.steps.append(
            TrainingStep(
                TrainingOperationIndex(operation.id, Phase.FORWARD),
                operation.type,
                reads=self._values("x", operation.inputs, _read_positions(operation, kind)),
                writes=(
                    *self._values("y", operation.outputs, range(len(operation.outputs))),
                    *self._values("x", operation.inputs, sorted(kind.updates(node))),
                    *saved,
                ),
                scratch=self._scratch(operation.id, Phase.FORWARD, kind.forward_scratch(node)),
            )
        )

    def _drop_unread(self) -> None:
        """What no backward step came to read is not saved, where the forward kernel does without it."""
        read = {operand for step in self.steps for operand in step.uses}
        for t, step in enumerate(self.steps):
            optional = lookup(step.kernel).optional_saved if step.index.is_forward else frozenset()
            spare = [b for b in step.writes if b.slot in optional and b.operand not in read]
            if spare:
                self.steps[t] = replace(step, writes=tuple(b for b in step.writes if b not in spare))
            for binding in spare:
                del self.operands[binding.operand]

    # ------------------------------------------------------------------------ backward

    def _keep_gradients(self) -> None:
        """Gradients carry over, from zeros: whatever defines one is a partial that is added to it."""
        for weight in self.graph.trainable:
            self._derivative(weight, lifetime=Lifetime.MAX)
        self.defined.update(self.graph.trainable)

    def _seed(self) -> None:
        """The derivative of the loss with respect to itself: where every chain begins."""
        index = self._derivative(self.graph.loss)
        self.defined.add(self.graph.loss)
        self.steps.append(
            TrainingStep(
                TrainingOperationIndex(self.graph.loss, Phase.CALC_DERIVATIVE, "seed"),
                SEED,
                writes=(Binding("dx0", index),),
            )
        )

    def _backward(self, operation: Operation) -> None:
        if not any(output in self.defined for output in operation.outputs):
            return
        node, kind = self.nodes[operation.id], lookup(operation.type)
        wanted = {i for i in kind.differentiable(node) if operation.inputs[i] in self.varying}
        trained = frozenset(i for i in wanted if operation.inputs[i] in self.graph.trained)
        self._backward_step(operation, Phase.CALC_GRADIENT, trained)
        self._backward_step(operation, Phase.CALC_DERIVATIVE, frozenset(wanted - trained))

    def _backward_step(self, operation: Operation, phase: Phase, wanted: frozenset[int]) -> None:
        if not wanted:
            return
        needs = lookup(operation.type).backward(self.nodes[operation.id], wanted)
        reads = [
            *self._values("x", operation.inputs, sorted(needs.inputs)),
            *self._values("y", operation.outputs, sorted(needs.outputs)),
            *(Binding(name, _saved_index(operation.id, name)) for name in sorted(needs.saved)),
        ]
        if needs.reads_output_derivatives:
            reads += [
                Binding(f"dy{k}", TrainingOperandIndex(output, is_forward=False))
                for k, output in enumerate(operation.outputs)
                if output in self.defined
            ]
        partials: list[tuple[int, TrainingOperandIndex]] = []
        writes = [self._define(operation, i, partials) for i in sorted(wanted)]
        index = TrainingOperationIndex(operation.id, phase)
        scratch = self._scratch(operation.id, phase, needs.scratch)
        self.steps.append(TrainingStep(index, operation.type, tuple(reads), tuple(writes), scratch))
        for position, partial in partials:
            self._accumulate(operation, phase, position, partial)

    def _define(
        self, operation: Operation, position: int, partials: list[tuple[int, TrainingOperandIndex]]
    ) -> Binding:
        """Where the derivative of an input goes: to the operand itself, or to a partial."""
        name = operation.inputs[position]
        if name not in self.defined:
            self.defined.add(name)
            return Binding(f"dx{position}", self._derivative(name))
        partial = self._derivative(name, partial=f"{operation.id}.{position}")
        partials.append((position, partial))
        return Binding(f"dx{position}", partial)

    def _accumulate(
        self, operation: Operation, phase: Phase, position: int, partial: TrainingOperandIndex
    ) -> None:
        total = Binding("x0", TrainingOperandIndex(operation.inputs[position], is_forward=False))
        self.steps.append(
            TrainingStep(
                TrainingOperationIndex(operation.id, phase, f"accumulate{position}"),
                ACCUMULATE,
                reads=(total, Binding("x1", partial)),
                writes=(Binding("y0", total.operand),),
            )
        )

    # -------------------------------------------------------------------------- update

    def _clip(self) -> tuple[Binding, ...]:
        """A step that reads all gradients and defines what every update reads, so none can come before it.

        That is the factor of all gradients and, where updates may be left out, how many there were.
        """
        loss, rules = self.graph.loss, self.graph.training
        gradients = [TrainingOperandIndex(weight, is_forward=False) for weight in self.graph.trainable]
        factor = TrainingOperandIndex(f"{loss}@factor")
        self._declare(factor, TensorType((), DType.FLOAT64), OperandKind.SAVED, Lifetime.ITERATION, loss)
        joint, counts = [Binding("factor", factor)], list[Binding]()
        if rules.skip_non_finite:
            counter = self._optimizer_variable(loss, "updates", TensorType((), DType.INT64))
            counts.append(Binding("updates", counter))
        largest = max(self.graph.operands[weight].type.elements for weight in self.graph.trainable)
        square = optimizer_block("square", TensorType((largest,), DType.FLOAT64))
        self.steps.append(
            TrainingStep(
                TrainingOperationIndex(loss, Phase.APPLY_GRADIENT, "clip"),
                CLIP,
                reads=(*(Binding(f"dx{i}", index) for i, index in enumerate(gradients)), *counts),
                writes=(*joint, *counts),
                scratch=self._scratch(loss, Phase.APPLY_GRADIENT, (square,)),
            )
        )
        return (*joint, *counts)

    def _update(self, weight: str, joint: tuple[Binding, ...]) -> None:
        """The optimizer's step of one weight; a gradient that carries over is cleared by it."""
        type_, rules = self.graph.operands[weight].type, self.graph.training
        states = [
            Binding(name, self._optimizer_variable(weight, name, type_))
            for name in state_names(self.graph.optimizer)
        ]
        value = Binding("x0", TrainingOperandIndex(weight))
        gradient = Binding("dx0", TrainingOperandIndex(weight, is_forward=False))
        scaled = bool(joint) or rules.divisor != 1
        requests = optimizer_scratch(self.graph.optimizer, type_, scaled=scaled)
        self.steps.append(
            TrainingStep(
                TrainingOperationIndex(weight, Phase.APPLY_GRADIENT),
                UPDATE,
                reads=(value, gradient, *states, *joint),
                writes=(value, *states, *((gradient,) if rules.accumulate > 1 else ())),
                scratch=self._scratch(weight, Phase.APPLY_GRADIENT, requests),
            )
        )

    # ------------------------------------------------------------------------ operands

    def _declare(
        self, index: TrainingOperandIndex, type_: TensorType, kind: OperandKind, life: Lifetime, origin: str
    ) -> TrainingOperandIndex:
        self.operands.setdefault(index, TrainingOperand(index, type_, kind, life, origin))
        return index

    def _values(self, slot: str, names: tuple[str, ...], positions: Iterable[int]) -> tuple[Binding, ...]:
        return tuple(Binding(f"{slot}{i}", self._value(names[i])) for i in positions if names[i])

    def _value(self, name: str) -> TrainingOperandIndex:
        operand = self.graph.operands[name]
        kind = OperandKind.LOSS if name == self.graph.loss else _KIND_OF_ROLE[operand.role]
        life = Lifetime.ITERATION
        if kind is OperandKind.LOSS or name in self.graph.outputs:
            life = Lifetime.EPOCH
        if operand.role in (Role.PARAMETER, Role.STATE, Role.CONSTANT):
            life = Lifetime.MAX
        return self._declare(TrainingOperandIndex(name), operand.type, kind, life, name)

    def _derivative(
        self, name: str, partial: str = "", lifetime: Lifetime = Lifetime.ITERATION
    ) -> TrainingOperandIndex:
        kind = OperandKind.GRADIENT if name in self.graph.trained else OperandKind.DERIVATIVE
        index = TrainingOperandIndex(name, is_forward=False)
        if partial:
            kind, index = OperandKind.PARTIAL, TrainingOperandIndex(f"{name}@{partial}", is_forward=False)
        return self._declare(index, self.graph.operands[name].type, kind, lifetime, name)

    def _optimizer_variable(self, weight: str, name: str, type_: TensorType) -> TrainingOperandIndex:
        index = TrainingOperandIndex(f"{weight}@{name}")
        return self._declare(index, type_, OperandKind.OPTIMIZER_VARIABLE, Lifetime.MAX, weight)

    def _saved(self, operation: Operation, request: ScratchRequest) -> Binding:
        index = _saved_index(operation.id, request.name)
        self._declare(index, request.type, OperandKind.SAVED, Lifetime.ITERATION, operation.id)
        return Binding(request.name, index)

    def _scratch(
        self, origin: str, phase: Phase, requests: tuple[ScratchRequest, ...]
    ) -> tuple[Binding, ...]:
        life = Lifetime.FORWARD_FUNCTION if phase is Phase.FORWARD else Lifetime.BACKWARD_FUNCTION
        bindings = []
        for request in requests:
            index = TrainingOperandIndex(f"{origin}@{phase.value}.{request.name}")
            self._declare(index, request.type, OperandKind.SCRATCH, life, origin)
            bindings.append(Binding(request.name, index))
        return tuple(bindings)


def _saved_index(operation: str, name: str) -> TrainingOperandIndex:
    return TrainingOperandIndex(f"{operation}@saved.{name}")


def _read_positions(operation: Operation, kind: OperationType) -> list[int]:
    """Constant inputs by rule (shapes, axes, pads) are known when planning: no kernel reads them."""
    return [i for i in range(len(operation.inputs)) if i not in kind.constant_inputs]


def _varying(graph: Graph, nodes: Mapping[str, Node]) -> set[str]:
    """Operands whose value depends, differentiably, on a trainable parameter."""
    varying = set(graph.trainable)
    for operation in graph.operations:
        positions = lookup(operation.type).differentiable(nodes[operation.id])
        if any(operation.inputs[i] in varying for i in positions):
            varying.update(operation.outputs)
    return varying
