"""Random numbers and dropout: range, share, the same ones in each replay, others in each iteration."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.kernels.random import fill_counters, fill_words
from solver.graph import DType, TrainableGraph
from solver.graph.ops.dropout import BLOCK
from solver.graph.ops.helpers.streams import key_of, stream_of
from solver.graph.types import Array
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.one_operation import OneOperation

DRAWN = 5 * BLOCK + 13


def drawn(*, iteration: int = 1, **attributes: Any) -> Array:
    operation = OneOperation("RandomUniform", [np.array([DRAWN])], **attributes)
    operation.iteration = iteration
    return operation.forward()


@pytest.mark.parametrize("dtype", [1, 11])
def test_range_mean_and_spread(dtype: int) -> None:
    x = drawn(dtype=dtype, low=-1.0, high=3.0)
    assert -1 <= x.min() < -0.999
    assert 2.999 < x.max() <= 3
    assert abs(float(x.mean()) - 1) < 0.02
    assert abs(float(x.std()) - 4 / np.sqrt(12)) < 0.02
    assert len(np.unique(x)) > 0.99 * DRAWN


def test_one_is_never_reached() -> None:
    """24 bits have an exact place in a float32."""
    assert drawn().max() < 1


@pytest.mark.parametrize("dtype", [1, 11])
def test_a_replay_draws_the_same_and_an_iteration_others(dtype: int) -> None:
    first = drawn(dtype=dtype)
    assert first.tobytes() == drawn(dtype=dtype).tobytes()
    for other in (drawn(dtype=dtype, iteration=2), drawn(dtype=dtype, seed=1)):
        assert np.mean(first == other) < 0.01
        assert abs(float(np.corrcoef(first, other)[0, 1])) < 0.02


def test_neighbours_are_independent() -> None:
    x = drawn()
    assert abs(float(np.corrcoef(x[:-1], x[1:])[0, 1])) < 0.02


# ---------------------------------------------------------------------------------------------------- dropout


SIZE = 5 * BLOCK + 13


def kept(size: int = SIZE, *, iteration: int = 1, dtype: str = "float32", **attributes: Any) -> Array:
    """Which elements of a vector of ones are not dropped."""
    operation = OneOperation("Dropout", [np.ones(size, dtype)], **attributes)
    operation.iteration = iteration
    found: Array = operation.forward() != 0
    return found


# --------------------------------------------------------------------------------------------- bits


def splitmix64(state: int) -> int:
    """As its authors write it down."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def words(stream: int, first: int, count: int) -> list[int]:
    counters, bits, work = (np.zeros(count, np.uint64) for _ in range(3))
    fill_counters(counters)
    fill_words(bits, work, counters, stream, first)
    return [int(word) for word in bits]


def test_first_words_of_splitmix64() -> None:
    """The generator's published first outputs from the state 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert words(1234567, 0, 3) == published


@grid("count", [1, 2, 3, 64, 100])
@grid("first", [0, 1, 4096, 2**40])
def test_words_are_a_function_of_their_index(first: int, count: int) -> None:
    stream, gamma = 2**64 - 3, 0x9E3779B97F4A7C15
    expected = [splitmix64((stream + (first + i) * gamma) % 2**64) for i in range(count)]
    assert words(stream, first, count) == expected


def test_streams_differ_by_seed_name_and_iteration() -> None:
    keys = {key_of(seed, name) for seed in range(20) for name in ("a", "b", "drop1", "drop2", "")}
    assert len(keys) == 100
    assert len({stream_of(key, t) for key in keys for t in range(50)}) == 5000


# ---------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9, 0.001])
def test_the_share_that_is_dropped(ratio: float) -> None:
    """Within four standard deviations of a binomial distribution; the seed is fixed."""
    dropped = SIZE - int(kept(ratio=ratio).sum())
    assert abs(dropped - ratio * SIZE) < 4 * math.sqrt(SIZE * ratio * (1 - ratio))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_kept_grows_so_that_the_mean_stays(dtype: str) -> None:
    x = np.random.default_rng(3).standard_normal((40, 41)).astype(dtype)
    y = OneOperation("Dropout", [x], ratio=0.25).forward()
    mask = y != 0
    np.testing.assert_array_equal(y[mask], (x * (1 / 0.75))[mask])
    assert 0.7 < mask.mean() < 0.8


def test_both_element_types_drop_the_same() -> None:
    np.testing.assert_array_equal(kept(dtype="float32"), kept(dtype="float64"))


def test_masks_are_independent() -> None:
    """Of neighbours, of halves of a word, of blocks, iterations, seeds: each pair agrees half the time."""
    base, size = kept(), SIZE
    others = {
        "neighbour": np.roll(base, 1),
        "word": np.roll(base, 2),
        "block": np.roll(base, BLOCK),
        "iteration": kept(iteration=2),
        "later": kept(iteration=3),
        "seed": kept(seed=1),
    }
    for (one, a), (other, b) in combinations({"base": base, **others}.items(), 2):
        assert abs(int((a == b).sum()) - size / 2) < 4.5 * math.sqrt(size) / 2, (one, other)


def test_an_element_is_dropped_in_its_share_of_iterations() -> None:
    counts = np.sum([kept(64, iteration=t) for t in range(1, 401)], axis=0)
    assert abs(counts - 200).max() < 4.5 * math.sqrt(100)


def test_a_longer_tensor_begins_with_the_same_mask() -> None:
    np.testing.assert_array_equal(kept(SIZE)[:BLOCK], kept(BLOCK))


def test_what_is_dropped_is_zero_whatever_it_was() -> None:
    y = OneOperation("Dropout", [np.full(1000, np.inf, np.float32)]).forward()
    assert set(y.tolist()) == {0.0, math.inf}
    y = OneOperation("Dropout", [np.full(1000, np.nan, np.float32)]).forward()
    assert 400 < int(np.isnan(y).sum()) < 600


def test_ratio_zero_is_the_identity() -> None:
    x = np.random.default_rng(4).standard_normal((3, 5))
    operation = OneOperation("Dropout", [x], ratio=0.0)
    np.testing.assert_array_equal(operation.forward(), x)
    np.testing.assert_array_equal(operation.backward(x, 0)[0], x)


def test_a_ratio_just_below_one() -> None:
    y = OneOperation("Dropout", [np.ones(10_000)], ratio=1 - 2**-53).forward()
    assert not y.any()


# ------------------------------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4)])
def test_derivatives(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).standard_normal(shape)
    OneOperation("Dropout", [x], ratio=0.4, seed=8).assert_derivatives()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_backward_drops_what_forward_dropped(dtype: str) -> None:
    ones = np.ones(SIZE, dtype)
    operation = OneOperation("Dropout", [ones], ratio=0.3)
    operation.iteration = 17
    np.testing.assert_array_equal(operation.backward(ones, 0)[0], operation.forward())


# -------------------------------------------------------------------------------------------- training


def dropped(ratio: float = 0.5, seed: int = 0, dtype: DType = DType.FLOAT32) -> TrainableGraph:
    s = Sketch("dropped", dtype)
    x = s.op("Dropout", [s.input("x", 8, 12)], "thinned", "drop1", ratio=ratio / 2, seed=seed)
    h = s.op("Gemm", [x, s.parameter("w1", 12, 16)], "h", activation="Relu")
    h = s.op("Dropout", [h], "half", "drop2", ratio=ratio, seed=seed)
    s.op("Gemm", [h, s.parameter("w2", 16, 4)], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 8, 4)], "loss")
    return s.graph(outputs=("half", "thinned"), optimizer="Adam")


@pytest.mark.parametrize("update", ["immediate", "end"])
def test_training_in_the_arena_is_bit_identical(update: str) -> None:
    graph = dropped()
    report = validate(graph, plan(graph, PlanOptions(update=update)), steps=5)
    assert report.identical
    assert not report.violations


def test_runs_repeat_and_every_iteration_has_its_own_masks() -> None:
    graph = dropped()
    batch = synthetic_batch(graph, 0, 1)

    def masks() -> list[bytes]:
        trainer = Trainer(graph, plan(graph))
        found = []
        for _ in range(4):
            trainer.step(batch)
            found += [(trainer.read(name) != 0).tobytes() for name in ("half", "thinned")]
        return found

    first = masks()
    assert masks() == first
    assert len(set(first)) == len(first)


def test_operations_of_one_seed_drop_independently() -> None:
    s = Sketch()
    ones = s.input("x", 10_000)
    for name in ("a", "b"):
        s.op("Dropout", [ones], name, f"drop_{name}")
    s.op("Mul", [s.op("Add", ["a", "b"], "sum"), s.parameter("w", 1)], "scaled")
    s.op("MeanSquaredError", ["scaled", s.label("t", 10_000)], "loss")
    graph = s.graph(outputs=("a", "b"))
    trainer = Trainer(graph, plan(graph))
    trainer.step(synthetic_batch(graph, 0, 1))
    same = float(np.mean((trainer.read("a") != 0) == (trainer.read("b") != 0)))
    assert abs(same - 0.5) < 0.02
