"""From a graph to its program: forward, and where it is trained calcGradient, calcDerivative, applyGradient.

Reverse-mode differentiation over the graph, with the three-way backward order of nntrainer:
for each operation, last to first, the gradients of its trainable parameters, then the derivatives
of its other inputs. Steps that lead to no trainable parameter are never emitted (onert calls
what is left the essential backward order). An operand with k consumers gets its derivative as one
def and k - 1 partials, each followed by an explicit accumulate step, so that a partial lives
over two neighbouring steps and no longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache, lru_cache
from types import MappingProxyType

from solver.graph.nodes import graph_nodes
from solver.graph.ops import lookup
from solver.graph.ops.base import BackwardNeeds, Node, ScratchRequest
from solver.graph.types import (
    DType,
    Operand,
    Operation,
    OptimizerSpec,
    Role,
    TensorType,
    TrainableGraph,
    TrainingRules,
)
from solver.program import (
    ACCUMULATE,
    CLIP,
    SEED,
    UPDATE,
    Access,
    Binding,
    Builder,
    EntryKind,
    Initial,
    Kind,
    Phase,
    Program,
    Space,
    anonymous,
    numbered,
)
from solver.training.optimizers import block as optimizer_block
from solver.training.optimizers import optimizer_rules, state_names
from solver.training.optimizers import scratch as optimizer_scratch

__all__ = ["derive"]

_KIND_OF_ROLE = {
    Role.INPUT: Kind.INPUT,
    Role.LABEL: Kind.LABEL,
    Role.PARAMETER: Kind.PARAMETER,
    Role.STATE: Kind.STATE,
    Role.CONSTANT: Kind.CONSTANT,
    Role.INTERMEDIATE: Kind.ACTIVATION,
}

#: The loss scale is a number of its own where it changes.
_SCALE = TensorType((), DType.FLOAT64)

_FED = frozenset({Role.INPUT, Role.LABEL})


#: Where the values of a reference program live, before a target says where.
_SPACE = Space("arena", 64)


def derive(graph: TrainableGraph, nodes: Mapping[str, Node] | None = None) -> Program:
    """The reference program of a verified graph: one step after the other, all updates at the end.

    `nodes` are the graph's (`graph_nodes`); their scratch budget decides the size of scratch.
    Cost: linear in the size of the program.
    """
    return _Derivation(graph, nodes or graph_nodes(graph)).run()


class _Numbers(dict[str, int]):
    """Numbers of values by name, each declared when it is first asked for."""

    def __init__(self, declare: Callable[[str], int]) -> None:
        self._declare = declare

    def __missing__(self, name: str) -> int:
        number = self[name] = self._declare(name)
        return number


class _Derivation:
    """Builds one program; lives for one call of `derive`."""

    def __init__(self, graph: TrainableGraph, nodes: Mapping[str, Node]) -> None:
        self.graph = graph
        self.operands = graph.operands
        self.loss = graph.loss
        self.nodes = nodes
        self.trainable = frozenset(graph.trainable)
        self.outputs = frozenset(graph.results)
        self.builder = Builder(graph.name, [_SPACE])
        self.operations = {name: self.builder.operation(anonymous(node)) for name, node in nodes.items()}
        self.answers = _answers(nodes)
        self.varying = _varying(graph, self.answers)
        #: Derivatives that already have a def.
        self.defined: set[str] = set()
        #: Numbers of operands and of their derivatives, by name.
        self.numbers = _Numbers(self._declare)
        self.derivatives = _Numbers(self._declare_derivative)

    def run(self) -> Program:
        for operation in self.graph.operations:
            self._forward(operation)
        loss, optimizer = self.graph.loss, self.graph.optimizer
        if self.graph.trainable and loss is not None and optimizer is not None:
            if self.graph.training.accumulate > 1:
                self._keep_gradients()
            self._seed(loss)
            for operation in reversed(self.graph.operations):
                self._backward(operation)
            self._updates(optimizer, self._clip(loss) if self.graph.training.joins_gradients else ())
        self._drop_unread()
        self._mark_constants()
        # They call this object, which would keep itself alive until the collector finds it.
        del self.numbers, self.derivatives
        return self.builder.finish(period=self.graph.training.accumulate)

    # ------------------------------------------------------------------------- forward

    def _forward(self, operation: Operation) -> None:
        answers = self.answers[operation.id]
        saved = [
            Binding(request.name, self._saved(operation, request), Access.WRITE)
            for request in answers.saved.values()
        ]
        numbers, names = self.numbers, operation.inputs
        read_slots = [
            Binding(slot, numbers[names[i]], access) for i, slot, access in answers.reads if names[i]
        ]
        results = [
            Binding(_slot("y", k), numbers[name], Access.WRITE)
            for k, name in enumerate(operation.outputs)
            if name
        ]
        scratch = self._scratch(operation.id, Phase.FORWARD, answers.forward_scratch)
        self.builder.step(
            self.operations[operation.id], Phase.FORWARD, (*read_slots, *results, *saved, *scratch)
        )

    def _drop_unread(self) -> None:
        """Drops saved values that no backward step reads, where the forward kernel works without them."""
        steps = self.builder.steps
        asked = [
            (t, step, optional)
            for t, step in enumerate(steps)
            if step.phase is Phase.FORWARD and (optional := lookup(self.builder.kernel(step)).optional_saved)
        ]
        read = {b.value for step in steps for b in step.bindings if b.access.reads} if asked else set()
        for t, step, optional in asked:
            kept = tuple(b for b in step.bindings if b.slot not in optional or b.value in read)
            steps[t] = replace(step, bindings=kept)

    def _mark_constants(self) -> None:
        """Entries that no step writes become constants; the others carry over to the next iteration."""
        written = {b.value for step in self.builder.steps for b in step.bindings if b.access.writes}
        for value, kind in self.builder.entries.items():
            if kind is EntryKind.CARRIED and value not in written:
                self.builder.entries[value] = EntryKind.CONSTANT
            elif kind is EntryKind.CARRIED:
                self.builder.exits[value] = None

    # ------------------------------------------------------------------------ backward

    def _keep_gradients(self) -> None:
        """Gradients carry over, from zeros: whatever defines one is a partial that is added to it."""
        for weight in self.graph.trainable:
            self.builder.entries[self.derivatives[weight]] = EntryKind.CARRIED
        self.defined.update(self.graph.trainable)

    def _seed(self, loss: str) -> None:
        """The derivative of the loss with respect to itself: where every chain begins."""
        type_ = self.operands[loss].type
        if self.graph.training.loss_scale_growth is None:
            seed = _own_node(loss, SEED, (), (type_,), {"value": self.graph.training.loss_scale})
            scale = []
        else:
            seed = _own_node(loss, SEED, (_SCALE,), (type_,), {})
            scale = [Binding("loss_scale", self._loss_scale(loss), Access.READ)]
        self.defined.add(loss)
        self.builder.step(
            self.builder.operation(seed),
            Phase.CALC_DERIVATIVE,
            (*scale, Binding("dx0", self.derivatives[loss], Access.WRITE)),
            part="seed",
        )

    def _loss_scale(self, loss: str) -> int:
        """The scale that changes: it carries over, from the one that the rules begin with."""
        number = self._optimizer_variable(loss, "loss_scale", _SCALE)
        self.builder.initial[number] = Initial("constant", value=self.graph.training.loss_scale)
        return number

    def _backward(self, operation: Operation) -> None:
        if not any(output in self.defined for output in operation.outputs):
            return
        derivatives = {
            i for i in self.answers[operation.id].differentiable if operation.inputs[i] in self.varying
        }
        trained = frozenset(i for i in derivatives if operation.inputs[i] in self.trainable)
        self._backward_step(operation, Phase.CALC_GRADIENT, trained)
        self._backward_step(operation, Phase.CALC_DERIVATIVE, frozenset(derivatives - trained))

    def _backward_step(self, operation: Operation, phase: Phase, derivatives: frozenset[int]) -> None:
        if not derivatives:
            return
        answers = self.answers[operation.id]
        needs, numbers = answers.backward(derivatives), self.numbers
        bindings = [
            Binding(_slot(slot, i), numbers[names[i]], Access.READ)
            for slot, names, positions in (
                ("x", operation.inputs, needs.inputs),
                ("y", operation.outputs, needs.outputs),
            )
            for i in sorted(positions)
            if names[i]
        ]
        bindings += [
            Binding(name, self._saved(operation, answers.saved[name]), Access.READ)
            for name in sorted(needs.saved)
        ]
        if needs.reads_output_derivatives:
            bindings += [
                Binding(_slot("dy", k), self.derivatives[output], Access.READ)
                for k, output in enumerate(operation.outputs)
                if output in self.defined
            ]
        partials: list[tuple[int, int]] = []
        bindings += [self._define(operation, i, partials) for i in sorted(derivatives)]
        bindings += self._scratch(operation.id, phase, needs.scratch)
        self.builder.step(self.operations[operation.id], phase, bindings)
        for position, partial in partials:
            self._accumulate(operation, phase, position, partial)

    def _define(self, operation: Operation, position: int, partials: list[tuple[int, int]]) -> Binding:
        """The value that an input's derivative is written to: the operand's own, or a partial sum."""
        name = operation.inputs[position]
        if name not in self.defined:
            self.defined.add(name)
            return Binding(_slot("dx", position), self.derivatives[name], Access.WRITE)
        label = f"{name}@{operation.id}.{position}@grad"
        partial = self.builder.value(label, self.operands[name].type, Kind.PARTIAL, name)
        partials.append((position, partial))
        return Binding(_slot("dx", position), partial, Access.WRITE)

    def _accumulate(self, operation: Operation, phase: Phase, position: int, partial: int) -> None:
        name = operation.inputs[position]
        type_ = self.operands[name].type
        self.builder.step(
            self.builder.operation(_own_node(operation.id, ACCUMULATE, (type_, type_), (), {})),
            phase,
            (
                Binding("x0", self.derivatives[name], Access.UPDATE),
                Binding("x1", partial, Access.READ),
            ),
            part=f"accumulate{position}",
        )

    # -------------------------------------------------------------------------- update

    def _clip(self, loss: str) -> tuple[tuple[str, int], ...]:
        """A step that reads all gradients and defines what every update reads, so none can come before it.

        That is the factor of all gradients and, where updates may be left out, how many there were. A loss
        scale that changes does so here, by how many updates in a row there were.
        """
        rules, weights = self.graph.training, self.graph.trainable
        factor = self.builder.value(f"{loss}@factor", TensorType((), DType.FLOAT64), Kind.SAVED, loss)
        joint = [("factor", factor)]
        bindings = [Binding(_slot("dx", i), self.derivatives[w], Access.READ) for i, w in enumerate(weights)]
        if rules.skips:
            counter = self._optimizer_variable(loss, "updates", TensorType((), DType.INT64))
            joint.append(("updates", counter))
            bindings.append(Binding("updates", counter, Access.UPDATE))
        if rules.loss_scale_growth is not None:
            bindings.append(Binding("loss_scale", self._loss_scale(loss), Access.UPDATE))
            row = self._optimizer_variable(loss, "in_a_row", TensorType((), DType.INT64))
            bindings.append(Binding("in_a_row", row, Access.UPDATE))
        types = tuple(self.operands[weight].type for weight in weights)
        largest = max(type_.elements for type_ in types)
        square = optimizer_block("square", TensorType((largest,), DType.FLOAT64))
        node = _own_node(
            loss,
            CLIP,
            types,
            (),
            _attributes(rules),
        )
        self.builder.step(
            self.builder.operation(node),
            Phase.APPLY_GRADIENT,
            (
                *bindings,
                Binding("factor", factor, Access.WRITE),
                *self._scratch(loss, Phase.APPLY_GRADIENT, (square,)),
            ),
            part="clip",
            due=rules.accumulate > 1,
        )
        return tuple(joint)

    def _updates(self, spec: OptimizerSpec, joint: tuple[tuple[str, int], ...]) -> None:
        """The optimizer's step of each weight; a gradient that carries over is cleared by it."""
        rules = self.graph.training
        names, clears = state_names(spec), rules.accumulate > 1
        scaled = bool(joint) or rules.divisor != 1
        # One mapping for all: what every update has in common is written and compared once.
        attributes = MappingProxyType({"optimizer": spec.type, **optimizer_rules(spec), **_attributes(rules)})
        both = [Binding(name, values, Access.READ) for name, values in joint]
        blocks: dict[TensorType, tuple[ScratchRequest, ...]] = {}
        for weight in self.graph.trainable:
            type_ = self.operands[weight].type
            states = [(name, self._optimizer_variable(weight, name, type_)) for name in names]
            value, gradient = self.numbers[weight], self.derivatives[weight]
            if type_ not in blocks:
                blocks[type_] = optimizer_scratch(spec, type_, scaled=scaled)
            self.builder.step(
                self.builder.operation(_own_node(weight, UPDATE, (type_,), (), attributes)),
                Phase.APPLY_GRADIENT,
                (
                    Binding("x0", value, Access.UPDATE),
                    Binding("dx0", gradient, Access.UPDATE if clears else Access.READ),
                    *[Binding(name, state, Access.UPDATE) for name, state in states],
                    *both,
                    *self._scratch(weight, Phase.APPLY_GRADIENT, blocks[type_]),
                ),
                due=clears,
            )

    # ------------------------------------------------------------------------ values

    def _declare(self, name: str) -> int:
        operand = self.operands[name]
        kind = Kind.LOSS if name == self.loss else _KIND_OF_ROLE[operand.role]
        number = self.builder.value(name, operand.type, kind, name)
        if operand.role in _FED:
            self.builder.entries[number] = EntryKind.FED
        elif operand.role is not Role.INTERMEDIATE:
            self.builder.entries[number] = EntryKind.CARRIED
            self.builder.initial.setdefault(number, _initial(operand))
        if name in self.outputs:
            self.builder.exits[number] = None
        return number

    def _declare_derivative(self, name: str) -> int:
        kind = Kind.GRADIENT if name in self.trainable else Kind.DERIVATIVE
        return self.builder.value(f"{name}@grad", self.operands[name].type, kind, name)

    def _optimizer_variable(self, weight: str, name: str, type_: TensorType) -> int:
        number = self.builder.value(f"{weight}@{name}", type_, Kind.OPTIMIZER_VARIABLE, weight)
        self.builder.entries[number] = EntryKind.CARRIED
        return number

    def _saved(self, operation: Operation, request: ScratchRequest) -> int:
        label = f"{operation.id}@saved.{request.name}"
        return self.builder.value(label, request.type, Kind.SAVED, operation.id)

    def _scratch(self, origin: str, phase: Phase, requests: tuple[ScratchRequest, ...]) -> list[Binding]:
        return [
            Binding(
                request.name,
                self.builder.value(
                    f"{origin}@{phase.word}.{request.name}", request.type, Kind.SCRATCH, origin
                ),
                Access.SCRATCH,
            )
            for request in requests
        ]


@cache
def _slot(kind: str, position: int) -> str:
    """``x0``, ``dy1``: one object for each, so that steps are compared and numbered fast."""
    return f"{kind}{position}"


def _own_node(
    operation: str,
    kernel: str,
    inputs: tuple[TensorType, ...],
    outputs: tuple[TensorType, ...],
    attributes: Mapping[str, object],
) -> Node:
    """The node of a kernel that no operator of a graph has; its attributes say all that it computes."""
    slots = numbered("x", len(inputs)), numbered("y", len(outputs))
    return Node(Operation(operation, kernel, *slots), inputs, outputs, (), attributes)


def _attributes(rules: TrainingRules) -> dict[str, object]:
    """The rules as attributes. One that came later is there where it is used: earlier plans stay right."""
    attributes = asdict(rules)
    if rules.loss_scale_growth is None:
        del attributes["loss_scale_growth"]
    return attributes


def _initial(operand: Operand) -> Initial:
    initializer = operand.first
    rows = initializer.rows
    if initializer.file is not None:
        return Initial("values", source=operand.id, sha256=initializer.file.sha256, rows=rows)
    if initializer.data is not None:
        data = initializer.data if operand.role is Role.CONSTANT else None
        return Initial("values", source=operand.id, sha256=_sha256(initializer.data), rows=rows, data=data)
    return Initial(initializer.kind, initializer.value, initializer.scale, initializer.seed, rows=rows)


@lru_cache(maxsize=1)
def _sha256(data: bytes) -> str:
    """Tiles of one weight have the same bytes, one behind the other."""
    return hashlib.sha256(data).hexdigest()


class _Answers:
    """An operator's answers for a node, computed once for all nodes that differ in names alone."""

    def __init__(self, node: Node) -> None:
        kind = lookup(node.operation.type)
        self.differentiable = kind.differentiable(node)
        self.saved = {request.name: request for request in kind.saved(node)}
        self.forward_scratch = kind.forward_scratch(node)
        #: Position, slot and access of each input of the forward kernel. Constant inputs by rule (shapes,
        #: axes, pads) are known when planning: no kernel reads them.
        updates = kind.updates(node)
        self.reads = [
            (i, _slot("x", i), Access.UPDATE if i in updates else Access.READ)
            for i in range(len(node.inputs))
            if i not in kind.constant_inputs
        ]
        self._kind, self._node = kind, node
        self._backward: dict[frozenset[int], BackwardNeeds] = {}

    def backward(self, derivatives: frozenset[int]) -> BackwardNeeds:
        needs = self._backward.get(derivatives)
        if needs is None:
            needs = self._backward[derivatives] = self._kind.backward(self._node, derivatives)
        return needs


def _answers(nodes: Mapping[str, Node]) -> dict[str, _Answers]:
    """The answers of operators, by operation. Deep networks repeat blocks, so most answers are shared."""
    by_operation: dict[str, _Answers] = {}
    forms: dict[tuple[object, ...], _Answers] = {}
    for name, node in nodes.items():
        form = (
            node.operation.type,
            node.inputs,
            node.outputs,
            tuple(map(bool, node.operation.outputs)),
            node.constants,
            tuple(node.attributes.items()),
            node.scratch_budget,
            tuple(node.floats.items()),
        )
        answers = forms.get(form)
        if answers is None:
            answers = forms[form] = _Answers(node)
        by_operation[name] = answers
    return by_operation


def _varying(graph: TrainableGraph, answers: Mapping[str, _Answers]) -> set[str]:
    """Operands whose value depends, differentiably, on a trainable parameter."""
    varying = set(graph.trainable)
    for operation in graph.operations:
        if any(operation.inputs[i] in varying for i in answers[operation.id].differentiable):
            varying.update(operation.outputs)
    return varying
