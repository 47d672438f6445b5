"""Sums of gradients, their joint norm by blocks, and weight updates, in place.

An update reads its gradient, scaled into scratch where a factor is due, and clears it only where gradients
accumulate over several iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from solver.executor.kernels.helpers.blocks import Step, bound, flat_blocks, run_all, with_small_buffers
from solver.graph.rules import LEAST_DYNAMIC_SCALE, MAX_LOSS_SCALE
from solver.graph.types import Array, OptimizerSpec, TrainingRules
from solver.training.optimizers import UPDATE_BLOCK_ELEMENTS, optimizer_rules, state_names

__all__ = ["prepare", "prepare_accumulate", "prepare_clip", "prepare_update"]

#: Added to the norm before it divides, as PyTorch does.
_NORM_EPSILON = 1e-6


def prepare_accumulate(total: Array, partial: Array) -> Step:
    """The step that adds `partial` to `total`."""
    return bound(np.add, total, partial, out=total)


def prepare_clip(rules: TrainingRules, arrays: Mapping[str, Array]) -> Step:
    """The step that defines ``factor``, by which every gradient ``dx<i>`` will be multiplied.

    Squares are added in float64, weight after weight, so that the sum repeats bit for bit. A factor of 0
    says that the update is left out; otherwise ``updates``, where it is there, goes up by one. Where
    ``loss_scale`` is there, it changes as the rules say, and ``in_a_row`` counts updates since it did.
    """
    square, factor, updates = arrays["square"], arrays["factor"], arrays.get("updates")
    scale, in_a_row = arrays.get("loss_scale"), arrays.get("in_a_row")
    blocks = [
        (part, square[: part.size])
        for i in range(sum(slot.startswith("dx") for slot in arrays))
        for (part,) in flat_blocks(arrays[f"dx{i}"], size=square.size)
    ]

    def run() -> None:
        total = 0.0
        for part, work in blocks:
            np.multiply(part, part, out=work, dtype=work.dtype)
            total += float(np.add.reduce(work))
        left_out = rules.skips and not math.isfinite(total)
        if left_out:
            factor.fill(0)
        else:
            divisor = rules.divisor if scale is None else scale.item() * rules.accumulate
            factor.fill(_clipping(rules, math.sqrt(total) / divisor) / divisor)
            if updates is not None:
                updates[...] += 1
        if scale is not None and in_a_row is not None:
            _rescale(rules, scale, in_a_row, left_out=left_out)

    return with_small_buffers(run)


def _rescale(rules: TrainingRules, scale: Array, in_a_row: Array, *, left_out: bool) -> None:
    """Half the scale where an update was left out, twice after enough in a row (Micikevicius et al. 2018)."""
    if left_out:
        scale.fill(max(LEAST_DYNAMIC_SCALE, scale.item() / 2))
        in_a_row.fill(0)
        return
    in_a_row[...] += 1
    if in_a_row.item() >= (rules.loss_scale_growth or 0):
        scale.fill(min(MAX_LOSS_SCALE, scale.item() * 2))
        in_a_row.fill(0)


def _clipping(rules: TrainingRules, norm: float) -> float:
    if rules.clip_global_norm is None:
        return 1.0
    return min(1.0, rules.clip_global_norm / (norm + _NORM_EPSILON))


def prepare_update(
    spec: OptimizerSpec, rules: TrainingRules, arrays: Mapping[str, Array], updates: Callable[[], int]
) -> Step:
    """The update of the weight ``x0`` under training rules, arrays by slot.

    `updates` counts from 1; ``updates`` among the arrays takes its place.
    """
    state = {name: arrays[name] for name in state_names(spec)}
    factor, counter = arrays.get("factor"), arrays.get("updates")
    count = updates if counter is None else counter.item
    scale = (lambda: 1 / rules.divisor) if factor is None else factor.item
    scales = scale if "scaled_gradient" in arrays else None
    update = prepare(spec, arrays["x0"], arrays["dx0"], state, arrays, count, scales)
    step = _unless_zero(update, scale) if rules.skips else update
    return run_all([step, bound(arrays["dx0"].fill, 0)]) if rules.accumulate > 1 else step


def _unless_zero(step: Step, factor: Callable[[], float]) -> Step:
    def run() -> None:
        if factor():
            step()

    return run


def prepare(
    spec: OptimizerSpec,
    weight: Array,
    gradient: Array,
    state: Mapping[str, Array],
    scratch: Mapping[str, Array],
    iteration: Callable[[], int],
    factor: Callable[[], float] | None = None,
) -> Step:
    """The step that updates `weight` and `state` with the gradient of one iteration, times `factor`.

    Arrays are C-contiguous, those of `state` (`state_names`) of the weight's shape; `scratch` is what
    `solver.training.optimizers.scratch` asks for. `iteration` counts from 1. The formulas are PyTorch's,
    and those that `optimizer_rules` names beside them.
    """
    rules = {name: float(value) for name, value in optimizer_rules(spec).items()}
    make = _UPDATES[spec.type]
    variables = [state[name] for name in state_names(spec)]
    steps = []
    for parts in flat_blocks(weight, gradient, *variables, size=UPDATE_BLOCK_ELEMENTS):
        size = parts[0].size
        decayed = scratch["decayed_gradient"][:size] if "decayed_gradient" in scratch else None
        applied = parts[1]
        if factor is not None:
            applied = scratch["scaled_gradient"][:size]
            steps.append(_scaling(parts[1], factor, applied))
        block = _Block(parts[0], applied, parts[2:], scratch["update"][:size], decayed)
        steps.append(make(block, rules, iteration))
    return run_all(steps)


def _scaling(gradient: Array, factor: Callable[[], float], scaled: Array) -> Step:
    def run() -> None:
        np.multiply(gradient, factor(), out=scaled)

    return run


@dataclass(frozen=True, slots=True)
class _Block:
    """Flat views of one block."""

    weight: Array
    gradient: Array
    state: tuple[Array, ...]
    update: Array
    decayed: Array | None

    def decayed_gradient(self, weight_decay: float) -> Array:
        """gradient + weight_decay weight, or the gradient itself without decay."""
        if self.decayed is None:
            return self.gradient
        np.multiply(self.weight, weight_decay, out=self.decayed)
        return np.add(self.decayed, self.gradient, out=self.decayed)


_Rules = Mapping[str, float]
_Iteration = Callable[[], int]


def _sgd(block: _Block, rules: _Rules, iteration: _Iteration) -> Step:
    """w -= rate d, with d the gradient, momentum' = m momentum + gradient, or gradient + m momentum'."""
    rate, decay, update = rules["learning_rate"], rules["weight_decay"], block.update
    factor, nesterov = rules["momentum"], bool(rules["nesterov"])

    def run() -> None:
        direction = block.decayed_gradient(decay)
        if factor:
            (momentum,) = block.state
            np.multiply(momentum, factor, out=momentum)
            np.add(momentum, direction, out=momentum)
            if nesterov:
                np.multiply(momentum, factor, out=update)
                direction = np.add(update, direction, out=update)
            else:
                direction = momentum
        np.multiply(direction, rate, out=update)
        np.subtract(block.weight, update, out=block.weight)

    return run


def _adam(block: _Block, rules: _Rules, iteration: _Iteration) -> Step:
    decay = rules["weight_decay"]

    def run() -> None:
        _moments(block, block.decayed_gradient(decay), rules)
        _apply_moments(block, rules, iteration())

    return run


def _adamw(block: _Block, rules: _Rules, iteration: _Iteration) -> Step:
    kept = 1 - rules["learning_rate"] * rules["weight_decay"]

    def run() -> None:
        np.multiply(block.weight, kept, out=block.weight)
        _moments(block, block.gradient, rules)
        _apply_moments(block, rules, iteration())

    return run


def _moments(block: _Block, gradient: Array, rules: _Rules) -> None:
    """first' = b1 first + (1 - b1) g, second' = b2 second + (1 - b2) g^2."""
    first, second = block.state
    update, beta1, beta2 = block.update, rules["beta1"], rules["beta2"]
    np.multiply(gradient, 1 - beta1, out=update)
    np.multiply(first, beta1, out=first)
    np.add(first, update, out=first)
    np.multiply(gradient, gradient, out=update)
    np.multiply(update, 1 - beta2, out=update)
    np.multiply(second, beta2, out=second)
    np.add(second, update, out=second)


def _apply_moments(block: _Block, rules: _Rules, iteration: int) -> None:
    """w -= rate / (1 - b1^t) first / (sqrt(second / (1 - b2^t)) + epsilon).

    With `epsilon_hat`, the correction of the second moment is taken out of the root and behind epsilon.
    """
    first, second = block.state
    update, weight = block.update, block.weight
    rate = rules["learning_rate"] / (1 - rules["beta1"] ** iteration)
    correction = math.sqrt(1 - rules["beta2"] ** iteration)
    np.sqrt(second, out=update)
    if rules["epsilon_hat"]:
        rate *= correction
    else:
        np.divide(update, correction, out=update)
    np.add(update, rules["epsilon"], out=update)
    np.divide(first, update, out=update)
    np.multiply(update, rate, out=update)
    np.subtract(weight, update, out=weight)


def _rmsprop(block: _Block, rules: _Rules, iteration: _Iteration) -> Step:
    """w -= rate d / (sqrt(second) + epsilon), or momentum' = m momentum + d / (...), w -= rate momentum'.

    second' = a second + (1 - a) d^2; centered, the square of first' = a first + (1 - a) d is taken away.
    """
    second, *others = block.state
    first = others.pop(0) if rules["centered"] else None
    momentum = others.pop(0) if rules["momentum"] else None
    alpha, update = rules["alpha"], block.update

    def run() -> None:
        direction = block.decayed_gradient(rules["weight_decay"])
        _average(second, direction, direction, alpha, update)
        if first is None:
            np.sqrt(second, out=update)
        else:
            _average(first, direction, None, alpha, update)
            np.multiply(first, first, out=update)
            np.subtract(second, update, out=update)
            np.maximum(update, 0, out=update)  # the difference of nearly equal numbers
            np.sqrt(update, out=update)
        np.add(update, rules["epsilon"], out=update)
        np.divide(direction, update, out=update)
        if momentum is not None:
            np.multiply(momentum, rules["momentum"], out=momentum)
            np.add(momentum, update, out=momentum)
            np.copyto(update, momentum)
        np.multiply(update, rules["learning_rate"], out=update)
        np.subtract(block.weight, update, out=block.weight)

    return run


def _average(average: Array, value: Array, factor: Array | None, kept: float, work: Array) -> None:
    """average' = kept average + (1 - kept) value [factor]."""
    np.multiply(value, 1 - kept, out=work)
    if factor is not None:
        np.multiply(work, factor, out=work)
    np.multiply(average, kept, out=average)
    np.add(average, work, out=average)


def _adagrad(block: _Block, rules: _Rules, iteration: _Iteration) -> Step:
    """w -= rate / (1 + (t - 1) decay) d / (sqrt(accumulator + initial) + epsilon); accumulator' adds d^2.

    The initial value is added where it is read, so that this state starts at 0 like any other.
    """
    (accumulator,) = block.state
    update, initial = block.update, rules["initial_accumulator"]

    def run() -> None:
        direction = block.decayed_gradient(rules["weight_decay"])
        np.multiply(direction, direction, out=update)
        np.add(accumulator, update, out=accumulator)
        np.add(accumulator, initial, out=update)
        np.sqrt(update, out=update)
        np.add(update, rules["epsilon"], out=update)
        np.divide(direction, update, out=update)
        rate = rules["learning_rate"] / (1 + (iteration() - 1) * rules["learning_rate_decay"])
        np.multiply(update, rate, out=update)
        np.subtract(block.weight, update, out=block.weight)

    return run


_UPDATES: Mapping[str, Callable[[_Block, _Rules, _Iteration], Step]] = {
    "SGD": _sgd,
    "Adam": _adam,
    "AdamW": _adamw,
    "RMSProp": _rmsprop,
    "Adagrad": _adagrad,
}
