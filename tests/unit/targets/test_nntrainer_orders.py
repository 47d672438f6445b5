"""Lifespans as sets of functions, and the ticks of the functions."""

from __future__ import annotations

import pytest

from solver.targets.nntrainer.orders import ExecutionOrder, TensorLifespan, execution_orders


def test_functions_are_single_bits_and_an_iteration_is_all_of_them() -> None:
    functions = [TensorLifespan.FORWARD, TensorLifespan.CALC_DERIV]
    functions += [TensorLifespan.CALC_GRAD, TensorLifespan.CALC_AGRAD]
    assert [function.value for function in functions] == [1, 2, 4, 8]
    assert TensorLifespan.ITERATION.value == 15


@pytest.mark.parametrize(
    ("lifespan", "ticks"),
    [
        (TensorLifespan.UNMANAGED, set()),
        (TensorLifespan.FORWARD, {1}),
        (TensorLifespan.FORWARD_INFER, {1}),
        (TensorLifespan.CALC_GRAD, {6}),
        (TensorLifespan.CALC_DERIV, {7}),
        (TensorLifespan.CALC_AGRAD, {8}),
        (TensorLifespan.FORWARD | TensorLifespan.CALC_GRAD, {1, 6}),
        (TensorLifespan.ITERATION, {1, 6, 7, 8}),
        (TensorLifespan.EPOCH, set()),
        (TensorLifespan.MAX, set()),
    ],
)
def test_ticks_of_a_lifespan(lifespan: TensorLifespan, ticks: set[int]) -> None:
    assert ExecutionOrder(1, 6, 7, 8).ticks(lifespan) == ticks


def test_trainable_layers_take_three_ticks() -> None:
    assert execution_orders([True, True]) == (ExecutionOrder(0, 5, 6, 7), ExecutionOrder(1, 2, 3, 4))


def test_frozen_layers_take_one() -> None:
    assert execution_orders([True, False, True]) == (
        ExecutionOrder(0, 7, 8, 9),
        ExecutionOrder(1, 6, 6, 6),
        ExecutionOrder(2, 3, 4, 5),
    )


def test_no_layers_have_no_orders() -> None:
    assert execution_orders([]) == ()


@pytest.mark.parametrize("pattern", range(32))
def test_every_tick_belongs_to_one_layer_and_none_is_skipped(pattern: int) -> None:
    trainable = [bool(pattern >> k & 1) for k in range(5)]
    ticks = [order.ticks(TensorLifespan.ITERATION) for order in execution_orders(trainable)]
    assert sorted(tick for each in ticks for tick in each) == list(range(5 + 5 + 2 * sum(trainable)))
