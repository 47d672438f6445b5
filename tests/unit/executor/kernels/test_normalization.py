"""Normalisation: running and saved statistics, large means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal

TYPE = "BatchNormalization"

#: Shape with channels in second place, attributes.
CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((4, 3), {}),
    ((2, 3, 4), {"epsilon": 0.01}),
    ((2, 3, 4, 2), {"momentum": 0.5}),
    ((2, 1, 2, 2, 3), {}),
    ((1, 2, 5), {"momentum": 0.0}),
    ((3, 1), {}),
    ((1, 4), {"epsilon": 0.1}),
    ((16, 2, 1), {}),
]


def values(shape: tuple[int, ...], layout: str = "NCHW", dtype: str = "float64") -> list[Array]:
    """X, scale, shift, running mean and running variance."""
    channels = shape[1 if layout == "NCHW" else -1]
    rest = [normal(k, channels, dtype=dtype)[0] for k in range(1, 5)]
    rest[3] = rest[3] ** 2 + 0.5
    return [normal(*shape, dtype=dtype) * 2 + 1, *rest]


def axes_of(shape: tuple[int, ...], layout: str = "NCHW") -> tuple[int, ...]:
    return (0, *range(2, len(shape))) if layout == "NCHW" else tuple(range(len(shape) - 1))


@grid("unbiased", [0, 1])
@grid(("shape", "attributes"), CASES)
def test_running_statistics(shape: tuple[int, ...], attributes: dict[str, Any], unbiased: int) -> None:
    """ONNX's formula, or PyTorch's with the unbiased variance; several steps go on from each other."""
    given = values(shape)
    operation = OneOperation(TYPE, given, training_mode=1, unbiased=unbiased, **attributes)
    _, step = operation.prepare_forward()
    momentum = attributes.get("momentum", 0.9)
    mean, variance = given[3], given[4]
    count = given[0].size // shape[1]
    ddof = unbiased if count > 1 else 0
    for _ in range(3):
        step()
        mean = momentum * mean + (1 - momentum) * given[0].mean(axis=axes_of(shape))
        variance = momentum * variance + (1 - momentum) * given[0].var(axis=axes_of(shape), ddof=ddof)
    np.testing.assert_allclose(operation.states[3], mean, rtol=1e-12)
    np.testing.assert_allclose(operation.states[4], variance, rtol=1e-12)


@pytest.mark.parametrize(("shape", "layout"), [((4, 3), "NCHW"), ((2, 3, 4), "NCHW"), ((2, 5, 3), "NHWC")])
def test_running_statistics_may_be_left_out_in_training(shape: tuple[int, ...], layout: str) -> None:
    given = values(shape, layout)
    whole = OneOperation(TYPE, given, training_mode=1, data_layout=layout)
    without = OneOperation(TYPE, given[:3], training_mode=1, data_layout=layout)
    assert without.forward().tobytes() == whole.forward().tobytes()
    without.assert_derivatives()


def test_saved_statistics_of_batches() -> None:
    given = values((3, 4, 10))
    operation = OneOperation(TYPE, given, training_mode=1, epsilon=0.5)
    operation.forward()
    np.testing.assert_allclose(operation.saved["mean"], given[0].mean(axis=(0, 2)))
    expected = 1 / np.sqrt(given[0].var(axis=(0, 2)) + 0.5)
    np.testing.assert_allclose(operation.saved["inverse_deviation"], expected)


@pytest.mark.parametrize("mode", [0, 1])
def test_a_large_mean_does_not_swallow_the_deviation_in_a_batch(mode: int) -> None:
    """Deviations are taken before anything is scaled: 10,000 is 3 million deviations here."""
    x = (10_000 + np.arange(8) / 256).astype(np.float32)[:, None]
    statistics = [x.mean(axis=0, dtype=np.float64).astype("float32"), x.var(axis=0, dtype=np.float64)]
    given = [x, np.ones(1, np.float32), np.zeros(1, np.float32), *(s.astype("float32") for s in statistics)]
    found = OneOperation(TYPE, given, epsilon=0.0, training_mode=mode).forward()
    expected = (np.arange(8) - 3.5) / np.arange(8).std()
    np.testing.assert_allclose(found[:, 0], expected, rtol=0.05)


# ------------------------------------------------------------------------------------------------------- rows


def test_saved_statistics() -> None:
    x = normal(3, 4, 10) * 2 + 1
    operation = OneOperation("InstanceNormalization", [x, normal(4), normal(4)], epsilon=0.5)
    operation.forward()
    np.testing.assert_allclose(operation.saved["mean"], x.mean(axis=2))
    np.testing.assert_allclose(operation.saved["inverse_deviation"], 1 / np.sqrt(x.var(axis=2) + 0.5))


def test_a_large_mean_does_not_swallow_the_deviation() -> None:
    """Squares of deviations, not a difference of squares: 10,000 is 3 million deviations here."""
    x = (10_000 + np.arange(8) / 256).astype(np.float32)[None]
    found = OneOperation("LayerNormalization", [x, np.ones(8, np.float32)], epsilon=0.0).forward()
    expected = (np.arange(8) - 3.5) / np.arange(8).std()
    np.testing.assert_allclose(found[0], expected, rtol=0.05)
