"""Pooling before an activation instead of behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from solver.graph.ops.helpers.spatial import Axis
from solver.graph.ops.pooling import pool_window
from solver.graph.types import Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.rules.splitting import activation_apart
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["PoolFirst"]

_EXACT = frozenset({"Clip", "Relu"})

_EXACT_FUSED = frozenset({"Relu", "Relu6"})


class PoolFirst(Rule):
    """MaxPool(act(X)) = act(MaxPool(X)) for Relu and Clip, which never fall and compute nothing anew.

    Where the largest element of a window is strictly inside the bounds, it is the largest on both sides,
    the first one as well, and dY goes to it alone; elsewhere both derivatives are 0. What is gained is the
    large output of the activation: the backward step of pooling needs only which tap won, and that of the
    activation then the small output.

        X 4 n -> act 4 n, kept -> pool n, kept        becomes        X 4 n -> pool n -> act n, kept

    Sigmoid and Tanh round different X to one Y, so another tap could win. Not where a window lies wholly
    in the padding, which is -infinity and no element, nor where something else reads the activation.
    """

    name: ClassVar[str] = "pool-first"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != "MaxPool" or len(operation.outputs) != 1:
            return None
        inner = around.feeding(operation.inputs[0])
        window = pool_window(around.nodes[operation.id])
        if inner is None or not all(map(_always_looks_at_something, window.axes)):
            return None
        if inner.type in _EXACT:
            return _edit(around, (), inner, operation)
        if inner.attributes.get("activation") not in _EXACT_FUSED:
            return None
        linear, activation = activation_apart(around, inner)
        return _edit(around, (linear,), activation, operation)


def _edit(
    around: Surroundings, before: tuple[Operation, ...], activation: Operation, pool: Operation
) -> Edit:
    """`before`, the pool of what the activation reads, and the activation of that."""
    pooled = around.new_operand(f"{pool.id}.linear")
    first = Operation(pool.id, pool.type, activation.inputs[:1], (pooled,), pool.attributes)
    last = replace(activation, inputs=(pooled, *activation.inputs[1:]), outputs=pool.outputs)
    gone = before[0].id if before else activation.id
    return Edit((gone, pool.id), (*before, first, last))


def _always_looks_at_something(axis: Axis) -> bool:
    reads = (
        range(o * axis.stride - axis.before, axis.size, axis.dilation)[: axis.kernel] for o in range(axis.out)
    )
    return all(any(position >= 0 for position in taps) for taps in reads)
