"""The nntrainer target: a pool of weights, a pool of tensors, and when each tensor is valid.

Every layer requests its tensors for some of its four functions; what is shared (in place, weights of two
layers) is requested several times. A tensor is valid from the first to the last tick of them all:

    tick         0      1     2     3      4       5      6       7       8
                 input  fc1   mse   mse    mse     mse    fc1     fc1     fc1
                                    grad   deriv   apply  grad    deriv   apply
    fc1.out             |------------------|
    fc1.out@grad                           |----------------------|
    fc1.w@grad                                            |---------------|
    fc1.w        |--------------------------------------------------------|    pool of weights

The backward pass ends with the earliest layer that has a weight to train; ticks behind it never
come. Inputs and labels lie in the caller's memory. What the kernels allocate for themselves while
they run (the columns of a convolution) is in neither pool. Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from solver.graph.types import TensorType, TrainableGraph
from solver.layout import Lifespan
from solver.program import CLIP, Kind, Lifetime, Phase
from solver.targets.nntrainer.layers import Layer, LayerKind, layers_of
from solver.targets.nntrainer.orders import ExecutionOrder, TensorLifespan, execution_orders
from solver.targets.nntrainer.rules import Helper
from solver.targets.requests import Pool, TargetBuffer, TargetPlan, TargetStep
from solver.training.optimizers import state_names

__all__ = ["ALIGNMENT", "POOLS", "nntrainer_orders", "nntrainer_target"]

#: Bytes of a float: tensors stand side by side.
ALIGNMENT = 4

POOLS = ("weights", "tensors")

_FORWARD, _GRADIENT = TensorLifespan.FORWARD, TensorLifespan.CALC_GRAD
_DERIVATIVE, _APPLY = TensorLifespan.CALC_DERIV, TensorLifespan.CALC_AGRAD

#: When a layer of each kind reads its input.
_READS = {
    LayerKind.INPUT: _FORWARD,
    LayerKind.ORDINARY: _FORWARD | _GRADIENT,
    LayerKind.ACTIVATION: _FORWARD,
    LayerKind.ACTIVATION_BY_INPUT: _FORWARD | _DERIVATIVE,
    LayerKind.NORMALISATION: _FORWARD,
    LayerKind.MULTI_OUT: _FORWARD,
    LayerKind.LOSS: _FORWARD | _DERIVATIVE,
}


def nntrainer_target(graph: TrainableGraph, alignment: int | None = None) -> TargetPlan:
    """Steps and the two pools; buffers stand in the order of requests.

    Clipping by the global norm keeps every weight gradient until the backward pass is over. The
    values that `graph.outputs` names are not kept for the caller. Raises OptionsError for a graph
    that nntrainer cannot train. Cost: linear in the graph.
    """
    return _Iteration(graph, alignment or ALIGNMENT).plan()


def nntrainer_orders(graph: TrainableGraph) -> dict[str, tuple[int, ...]]:
    """Ticks at which each tensor is requested, by buffer, the caller's memory included.

    Ticks behind the end of the backward pass are left out for weights only, which nntrainer lays
    out before it knows the batch, and other tensors after it.
    """
    iteration = _Iteration(graph, ALIGNMENT)
    weights = [name for name, request in iteration.requests.items() if request.pool == "weights"]
    ticks_of = {name: sorted(request.ticks) for name, request in iteration.requests.items()}
    ticks_of |= {name: [t for t in ticks_of[name] if t < iteration.end] for name in weights}
    return {name: tuple(ticks) for name, ticks in ticks_of.items()}


@dataclass(slots=True)
class _Request:
    """One tensor, and the ticks at which it is defined and used."""

    pool: str
    kind: Kind
    lifetime: Lifetime
    type: TensorType
    defs: set[int] = field(default_factory=set)
    uses: set[int] = field(default_factory=set)

    @property
    def ticks(self) -> set[int]:
        return self.defs | self.uses


class _Iteration:
    """Collects the requests of one training iteration; lives for one call."""

    def __init__(self, graph: TrainableGraph, alignment: int) -> None:
        self.graph = graph
        self.alignment = alignment
        self.clips = graph.training.clip_global_norm is not None and bool(graph.trainable)
        self.layers = layers_of(graph)
        self.orders = execution_orders([layer.trainable for layer in self.layers])
        #: Ticks of the iteration; the norm of all gradients takes one more.
        self.end = self._last_tick() + 1
        self.requests: dict[str, _Request] = {}
        for layer, order in zip(self.layers, self.orders, strict=True):
            self._request_layer(layer, order)

    def _last_tick(self) -> int:
        for layer, order in zip(self.layers, self.orders, strict=True):
            if layer.weights and layer.trainable:
                return order.apply_gradient
        return len(self.layers) - 1

    # ---------------------------------------------------------------------------------- requests

    def _request_layer(self, layer: Layer, order: ExecutionOrder) -> None:
        self._request_values(layer, order)
        self._request_derivatives(layer, order)
        self._request_weights(layer, order)
        for helper in layer.helpers:
            self._request_helper(f"{layer.id}@{helper.name}", helper, order)

    def _request_helper(self, name: str, helper: Helper, order: ExecutionOrder) -> None:
        """Written by the first of its functions, read by the others."""
        kind, lifetime = Kind.SAVED, Lifetime.ITERATION
        if not helper.lifespan & _FORWARD:
            kind, lifetime = Kind.SCRATCH, Lifetime.BACKWARD_FUNCTION
        request = self._request(name, "tensors", kind, lifetime, helper.type)
        ticks = order.ticks(helper.lifespan)
        request.defs.add(min(ticks))
        request.uses |= ticks - {min(ticks)}

    def _request_values(self, layer: Layer, order: ExecutionOrder) -> None:
        for source in layer.inputs:
            reads = _READS[layer.kind] if layer.trainable else _FORWARD
            self._request_value(source.value, source.type, source.is_caller).uses |= order.ticks(reads)
        for output in layer.outputs:
            request = self._request_value(output.value, output.type, output.is_caller)
            request.defs |= order.ticks(_FORWARD)
            if layer.kind in (LayerKind.ACTIVATION, LayerKind.ACTIVATION_BY_INPUT):
                request.uses |= order.ticks(_DERIVATIVE)

    def _request_value(self, name: str, type_: TensorType, is_caller: bool) -> _Request:
        if is_caller:
            return self._request(name, "", Kind.INPUT, Lifetime.ITERATION, type_)
        return self._request(name, "tensors", Kind.ACTIVATION, Lifetime.ITERATION, type_)

    def _request_derivatives(self, layer: Layer, order: ExecutionOrder) -> None:
        for output in layer.outputs:
            if output.derivative is not None:
                request = self._request_derivative(output.derivative, output.type)
                request.uses |= order.ticks(_GRADIENT | _DERIVATIVE)
        for source in layer.inputs:
            if source.derivative is not None:
                request = self._request_derivative(source.derivative, source.type)
                request.defs |= order.ticks(_DERIVATIVE)

    def _request_derivative(self, name: str, type_: TensorType) -> _Request:
        return self._request(name, "tensors", Kind.DERIVATIVE, Lifetime.ITERATION, type_)

    def _request_weights(self, layer: Layer, order: ExecutionOrder) -> None:
        for name in layer.states:
            type_ = self.graph.operands[name].type
            state = self._request(name, "weights", Kind.STATE, Lifetime.MAX, type_)
            state.uses |= order.ticks(_FORWARD)
            state.defs |= order.ticks(_FORWARD)
        for name in layer.weights:
            type_ = self.graph.operands[name].type
            weight = self._request(name, "weights", Kind.PARAMETER, Lifetime.MAX, type_)
            weight.uses |= order.ticks(_FORWARD | _DERIVATIVE)
            if layer.trainable:
                weight.uses |= order.ticks(_GRADIENT)
                self._request_update(name, weight, order)

    def _request_update(self, name: str, weight: _Request, order: ExecutionOrder) -> None:
        apply = {self.end} if self.clips else order.ticks(_APPLY)
        weight.defs |= apply
        weight.uses |= apply
        gradient = self._request(f"{name}@grad", "tensors", Kind.GRADIENT, Lifetime.ITERATION, weight.type)
        gradient.defs |= order.ticks(_GRADIENT)
        gradient.uses |= apply
        for state in state_names(self.graph.optimizer):
            request = self._request(
                f"{name}@{state}", "weights", Kind.OPTIMIZER_VARIABLE, Lifetime.MAX, weight.type
            )
            request.defs |= apply
            request.uses |= apply

    def _request(self, name: str, pool: str, kind: Kind, lifetime: Lifetime, type_: TensorType) -> _Request:
        return self.requests.setdefault(name, _Request(pool, kind, lifetime, type_))

    # ------------------------------------------------------------------------------------- result

    def plan(self) -> TargetPlan:
        return TargetPlan(tuple(self._steps()), tuple(self._pools()))

    def _steps(self) -> Iterator[TargetStep]:
        names = self._step_names()
        uses: list[list[str]] = [[] for _ in names]
        defs: list[list[str]] = [[] for _ in names]
        for buffer, request in self.requests.items():
            if request.pool:
                for tick in request.uses & names.keys():
                    uses[tick].append(buffer)
                for tick in request.defs & names.keys():
                    defs[tick].append(buffer)
        for tick, (name, kernel) in sorted(names.items()):
            yield TargetStep(name, kernel, tuple(uses[tick]), tuple(defs[tick]), ())

    def _step_names(self) -> dict[int, tuple[str, str]]:
        """Name and kernel of every tick that comes; a frozen layer has one backward tick."""
        names: dict[int, tuple[str, str]] = {}
        for layer, order in zip(self.layers, self.orders, strict=True):
            for tick, phase in (
                (order.forward, Phase.FORWARD),
                (order.apply_gradient, Phase.APPLY_GRADIENT),
                (order.calc_gradient, Phase.CALC_GRADIENT),
                (order.calc_derivative, Phase.CALC_DERIVATIVE),
            ):
                if tick < self.end:
                    names[tick] = (f"{layer.id}:{phase.value}", layer.kernel)
        if self.clips:
            names[self.end] = (f"{CLIP}:{Phase.APPLY_GRADIENT.value}", CLIP)
        return names

    def _pools(self) -> Iterator[Pool]:
        steps = self.end + self.clips
        for name in POOLS:
            requests = [(b, r) for b, r in self.requests.items() if r.pool == name]
            spans = [self._lifespan(request, steps) for _, request in requests]
            buffers = [
                TargetBuffer(buffer, request.kind, request.lifetime, request.type, span, self.alignment)
                for (buffer, request), span in zip(requests, spans, strict=True)
                if span is not None
            ]
            buffers.sort(key=lambda buffer: buffer.lifespan.start)
            yield Pool(name, tuple(buffers))

    def _lifespan(self, request: _Request, steps: int) -> Lifespan | None:
        """From the first to the last tick that comes; None for a tensor that none of them needs."""
        if request.lifetime is Lifetime.MAX:
            return Lifespan(0, steps)
        ticks = [tick for tick in request.ticks if tick < steps]
        return Lifespan(min(ticks), max(ticks) + 1) if ticks else None
