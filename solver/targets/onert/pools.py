"""The onert target: seven memory pools, and when each buffer in them is allocated and released.

onert is the training runtime of Samsung ONE. Steps are its own execution order: the forward
operations, then the backward operations depth first from the loss, where the optimizer is
applied inside the backward operation of each weight.

    step       0      1      2      3      4      5
             conv1   fc   softmax  loss  loss'  softmax' ...
    non-const  |--- conv1.out: def to last use --------...
    back-prop                              |-- softmax.out@grad --|
    gradient                                              |fc.weight@grad|   one step
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from solver.graph.nodes import graph_nodes
from solver.graph.types import Operand, Operation, Role, TensorType, TrainableGraph
from solver.layout import Lifespan
from solver.program import Kind, Lifetime
from solver.targets.onert.order import constant_buffers, essential_backward_order
from solver.targets.onert.rules import (
    ExtraTensor,
    backward_reads,
    check_supported,
    extra_tensors,
    is_loss,
    runtime_type,
)
from solver.targets.requests import Pool, TargetBuffer, TargetPlan, TargetStep
from solver.training.optimizers import state_names

__all__ = ["ALIGNMENT", "POOLS", "Management", "essential_backward_order", "onert_pools", "onert_target"]

#: Bytes; the runtime rounds every tensor up to this.
ALIGNMENT = 16

POOLS = ("non-const", "trainable", "back-prop", "gradient", "optimizer variables", "disposable", "extra")


class Management(Enum):
    """Three stages of the runtime's memory management; the value names the planner it uses.

    `BUMP` never reuses a byte and lets each layer keep its extra tensors. `RELEASED` (0.1.0)
    releases what is dead, extra tensors still excepted. `WIC` is the draft after it: extra tensors
    are planned, those of depthwise convolutions excepted, and identical constants share bytes.
    """

    BUMP = "bump"
    RELEASED = "released"
    WIC = "wic"


_KIND_OF_ROLE = {
    Role.INPUT: Kind.INPUT,
    Role.LABEL: Kind.LABEL,
    Role.PARAMETER: Kind.PARAMETER,
    Role.STATE: Kind.STATE,
    Role.CONSTANT: Kind.CONSTANT,
    Role.INTERMEDIATE: Kind.ACTIVATION,
}


def onert_target(
    graph: TrainableGraph, alignment: int | None = None, management: Management = Management.WIC
) -> TargetPlan:
    """Steps and the seven pools, in the order of `POOLS`; buffers stand in the order of requests.

    Raises OptionsError for a graph that onert cannot train. Cost: linear in the graph.
    """
    return _Iteration(graph, alignment or ALIGNMENT, management).plan()


def onert_pools(graph: TrainableGraph, management: Management = Management.WIC) -> tuple[Pool, ...]:
    """The seven pools alone."""
    return onert_target(graph, management=management).pools


@dataclass(frozen=True, slots=True)
class _Request:
    kind: Kind
    lifetime: Lifetime
    type: TensorType


class _Iteration:
    """Collects the steps and buffers of one training iteration; lives for one `onert_target` call."""

    def __init__(self, graph: TrainableGraph, alignment: int, management: Management) -> None:
        self.graph = graph
        self.alignment = alignment
        self.management = management
        self.nodes = graph_nodes(graph)
        check_supported(graph, self.nodes)
        self.backward = essential_backward_order(graph)
        self.has_backward = frozenset(operation.id for operation in self.backward)
        self.trainable = frozenset(graph.trainable)
        #: Backward operations that define the derivative of an operand.
        self.backward_defs = Counter(name for op in self.backward for name in set(op.inputs))
        self.constants = constant_buffers(graph, shared=management is Management.WIC)
        self.steps: list[TargetStep] = []
        #: By pool, in the order of requests.
        self.requests: dict[str, dict[str, _Request]] = {pool: {} for pool in POOLS}

    def plan(self) -> TargetPlan:
        self._request_values()
        self._request_constants()
        for operation in self.graph.operations:
            self._forward(operation)
        for operation in self.backward:
            self._backward(operation)
        self._request_unreleased()
        return TargetPlan(tuple(self.steps), tuple(self._pools()))

    # ------------------------------------------------------------------------------------ values

    def _is_constant(self, name: str) -> bool:
        return self.graph.operands[name].role in (Role.PARAMETER, Role.CONSTANT)

    def _type(self, name: str) -> TensorType:
        """Type of an operand as the runtime sees it: the loss has one element for each example."""
        if name != self.graph.loss:
            return runtime_type(self.graph.operands[name].type)
        operation = next(op for op in self.graph.operations if name in op.outputs)
        prediction = self.graph.operands[operation.inputs[0]]
        return TensorType(prediction.shape[:1], prediction.dtype)

    def _variable(self) -> Iterator[Operand]:
        """Operands that are not constant, those that the caller writes first."""
        caller = (Role.INPUT, Role.LABEL)
        operands = [x for x in self.graph.operands.values() if not self._is_constant(x.id)]
        yield from (x for x in operands if x.role in caller)
        yield from (x for x in operands if x.role not in caller)

    def _request_values(self) -> None:
        for operand in self._variable():
            is_loss = operand.id == self.graph.loss
            kind = Kind.LOSS if is_loss else _KIND_OF_ROLE[operand.role]
            lifetime = Lifetime.EPOCH if is_loss else Lifetime.ITERATION
            self._request("non-const", operand.id, kind, lifetime, self._type(operand.id))

    # --------------------------------------------------------------------------------- constants

    def _request_constants(self) -> None:
        """Weights, and optimizer variables for each of them: frozen ones and index lists too."""
        names = {buffer: name for (_, name), buffer in reversed(self.constants.items())}
        for buffer in dict.fromkeys(self.constants.values()):
            operand = self.graph.operands[names[buffer]]
            kind = _KIND_OF_ROLE[operand.role]
            self._request("trainable", buffer, kind, Lifetime.MAX, self._type(operand.id))
            for state in state_names(self.graph.optimizer):
                self._request(
                    "optimizer variables",
                    f"{buffer}@{state}",
                    Kind.OPTIMIZER_VARIABLE,
                    Lifetime.MAX,
                    self._type(operand.id),
                )

    def _buffer(self, operation: Operation, name: str) -> str:
        return self.constants.get((operation.id, name), name)

    # ------------------------------------------------------------------------------------- steps

    def _forward(self, operation: Operation) -> None:
        uses = tuple(self._buffer(operation, name) for name in dict.fromkeys(operation.inputs) if name)
        kept = [self._extra_id(operation, extra) for extra in self._extras(operation) if extra.from_forward]
        self._step(f"{operation.id}:forward", operation, uses, (*operation.outputs, *kept), ())

    def _backward(self, operation: Operation) -> None:
        node = self.nodes[operation.id]
        read = [self._buffer(operation, name) for name in backward_reads(node)]
        if not is_loss(node):
            read.insert(0, _derivative(operation.outputs[0]))
        defined = [self._back_prop(name) for name in dict.fromkeys(operation.inputs) if self._varies(name)]
        partials = [self._partial(operation, name) for name in dict.fromkeys(operation.inputs)]
        updated, gradients, state = self._update(operation)
        extras = self._extras(operation)
        for extra in extras:
            self._request_extra(operation, extra)
        kept = [self._extra_id(operation, extra) for extra in extras if extra.from_forward]
        scratch = [self._extra_id(operation, extra) for extra in extras if not extra.from_forward]
        self._step(
            f"{operation.id}:backward",
            operation,
            (*read, *kept, *updated, *state),
            (*defined, *gradients, *updated, *state),
            (*filter(None, partials), *scratch),
        )

    def _step(
        self,
        name: str,
        operation: Operation,
        uses: Iterable[str],
        defs: Iterable[str],
        scratch: Iterable[str],
    ) -> None:
        used, defined, own = (tuple(dict.fromkeys(ids)) for ids in (uses, defs, scratch))
        self.steps.append(TargetStep(name, operation.type, used, defined, own))

    def _varies(self, name: str) -> bool:
        return bool(name) and not self._is_constant(name)

    def _back_prop(self, name: str) -> str:
        buffer = _derivative(name)
        self._request("back-prop", buffer, Kind.DERIVATIVE, Lifetime.ITERATION, self._type(name))
        return buffer

    def _partial(self, operation: Operation, name: str) -> str:
        """Buffer that one of several derivatives goes to before it is accumulated."""
        if not self._varies(name) or self.backward_defs[name] < 2:
            return ""
        if self.management is Management.BUMP:
            return _DISPOSABLE
        buffer = f"{name}@grad.{operation.id}"
        self._request("disposable", buffer, Kind.PARTIAL, Lifetime.BACKWARD_FUNCTION, self._type(name))
        return buffer

    def _update(self, operation: Operation) -> tuple[list[str], list[str], list[str]]:
        """Weights that an operation updates, their gradients and optimizer variables."""
        names = [name for name in dict.fromkeys(operation.inputs) if name in self.trainable]
        updated = [self._buffer(operation, name) for name in names]
        for name, buffer in zip(names, updated, strict=True):
            self._request_gradient(buffer, self._type(name))
        state = [f"{buffer}@{name}" for buffer in updated for name in state_names(self.graph.optimizer)]
        return updated, [_derivative(buffer) for buffer in updated], state

    def _request_gradient(self, buffer: str, type_: TensorType) -> None:
        self._request("gradient", _derivative(buffer), Kind.GRADIENT, Lifetime.BACKWARD_FUNCTION, type_)

    # ------------------------------------------------------------------------------------ extras

    def _extras(self, operation: Operation) -> list[ExtraTensor]:
        """Extra tensors of an operation with a backward pass."""
        if operation.id not in self.has_backward:
            return []
        extras = extra_tensors(self.nodes[operation.id])
        return [extra for extra in extras if extra.planned or self.management is not Management.WIC]

    def _extra_id(self, operation: Operation, extra: ExtraTensor) -> str:
        return f"{operation.id}@backward.{extra.name}"

    def _request_extra(self, operation: Operation, extra: ExtraTensor) -> None:
        kind = Kind.SAVED if extra.from_forward else Kind.SCRATCH
        lifetime = Lifetime.ITERATION if extra.from_forward else Lifetime.BACKWARD_FUNCTION
        if self.management is not Management.WIC:
            lifetime = Lifetime.MAX
        self._request("extra", self._extra_id(operation, extra), kind, lifetime, extra.type)

    # -------------------------------------------------------------------------------------- pools

    def _request(self, pool: str, buffer: str, kind: Kind, lifetime: Lifetime, type_: TensorType) -> None:
        self.requests[pool].setdefault(buffer, _Request(kind, lifetime, type_))

    def _request_unreleased(self) -> None:
        """The buffers that `BUMP` allocates although no step needs them."""
        if self.management is not Management.BUMP:
            return
        variable = [operand.id for operand in self._variable() if operand.id != self.graph.loss]
        for name in variable:
            self._back_prop(name)
        for buffer, request in self.requests["trainable"].items():
            self._request_gradient(buffer, request.type)
        largest = max((self._type(name) for name in variable), key=lambda type_: type_.nbytes)
        self._request("disposable", _DISPOSABLE, Kind.PARTIAL, Lifetime.BACKWARD_FUNCTION, largest)

    def _pools(self) -> Iterator[Pool]:
        lifespans = self._lifespans()
        for name in POOLS:
            buffers = [
                TargetBuffer(buffer, r.kind, r.lifetime, r.type, lifespans[buffer], self.alignment)
                for buffer, r in self.requests[name].items()
            ]
            buffers.sort(key=lambda buffer: buffer.lifespan.start)
            solver = "bump" if self.management is Management.BUMP else "wic"
            yield Pool(name, tuple(buffers), solver)

    def _lifespans(self) -> dict[str, Lifespan]:
        """By buffer: from its first touch, or step 0 where the caller writes it, to its last use."""
        touched: dict[str, list[int]] = {}
        used: set[str] = set()
        for t, step in enumerate(self.steps):
            used.update(step.uses)
            for buffer in (*step.uses, *step.defs, *step.scratch):
                touched.setdefault(buffer, []).append(t)
        requests = ((b, r) for pool in self.requests.values() for b, r in pool.items())
        return {b: self._lifespan(r, touched.get(b, [0]), used=b in used) for b, r in requests}

    def _lifespan(self, request: _Request, touched: list[int], *, used: bool) -> Lifespan:
        end = len(self.steps)
        if self.management is Management.BUMP or request.lifetime is Lifetime.MAX:
            return Lifespan(0, end)
        if request.lifetime is Lifetime.BACKWARD_FUNCTION:
            return Lifespan(touched[0], touched[0] + 1)
        start = 0 if request.kind in (Kind.INPUT, Kind.LABEL) else touched[0]
        return Lifespan(start, touched[-1] + 1 if used else end)


def _derivative(name: str) -> str:
    return f"{name}@grad"


#: The one buffer for partial derivatives under `BUMP`.
_DISPOSABLE = "@disposable"
