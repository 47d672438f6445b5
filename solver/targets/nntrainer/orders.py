"""When nntrainer runs what: lifespans as sets of functions, and the ticks of each layer's functions.

The forward function of layer i has tick i; the backward ones are counted from the last layer to the first:

    layers          0 input   1 fc1   2 mse        counter starts at 3, the number of layers
    forward         0         1       2
    calcGradient    9         6       3            walked backwards: three ticks for a trainable layer,
    calcDerivative  10        7       4            one for a frozen layer, whose three are then equal
    applyGradient   11        8       5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag

__all__ = ["ExecutionOrder", "TensorLifespan", "execution_orders"]


class TensorLifespan(Flag):
    """During which functions of its layer a tensor must not be overwritten.

    The first four are functions of one iteration and combine freely. `EPOCH` and `MAX` outlast the
    iteration: until the caller has read the tensor, and for as long as the model trains.
    `FORWARD_INFER` is the forward function where nothing is trained.
    """

    UNMANAGED = 0
    FORWARD = 1
    CALC_DERIV = 2
    CALC_GRAD = 4
    CALC_AGRAD = 8
    ITERATION = FORWARD | CALC_DERIV | CALC_GRAD | CALC_AGRAD
    EPOCH = 16
    MAX = 32
    FORWARD_INFER = 64


@dataclass(frozen=True, slots=True)
class ExecutionOrder:
    """Ticks of the four functions of one layer."""

    forward: int
    calc_gradient: int
    calc_derivative: int
    apply_gradient: int

    def ticks(self, lifespan: TensorLifespan) -> frozenset[int]:
        """Ticks of the functions that a lifespan names; none for one that is not a set of functions."""
        functions = (
            (TensorLifespan.FORWARD | TensorLifespan.FORWARD_INFER, self.forward),
            (TensorLifespan.CALC_GRAD, self.calc_gradient),
            (TensorLifespan.CALC_DERIV, self.calc_derivative),
            (TensorLifespan.CALC_AGRAD, self.apply_gradient),
        )
        return frozenset(tick for function, tick in functions if function & lifespan)


def execution_orders(trainable: Sequence[bool]) -> tuple[ExecutionOrder, ...]:
    """Order of each layer, given which of them, in topological order, are trainable. Linear."""
    tick = len(trainable)
    orders: list[ExecutionOrder] = []
    for forward in range(len(trainable) - 1, -1, -1):
        ticks = (tick, tick + 1, tick + 2) if trainable[forward] else (tick,) * 3
        orders.append(ExecutionOrder(forward, *ticks))
        tick = ticks[-1] + 1
    return tuple(reversed(orders))
