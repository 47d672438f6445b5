"""Sparse constants: what TensorFlow Lite stores of them, as the dense tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from solver.errors import ArenaplanError
from solver.executor import Trainer
from solver.graph import OptimizerSpec, Role
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, load_circle, weights_of
from solver.importers.circle.read import SparseDimension, Sparsity
from solver.pipeline import plan
from tests.support.circle_models import CircleFile
from tests.support.every import grid

STILL = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 1e-30}), "mean-squared-error")


def compressed(
    dense: Array, order: tuple[int, ...], blocks: Mapping[int, int], level: int
) -> tuple[Sparsity, Array]:
    """A tensor whose level number `level` is compressed; `blocks` are sizes by axis."""
    divisors = [blocks.get(axis, 1) for axis in range(dense.ndim)]
    pairs = zip(dense.shape, divisors, strict=True)
    split = [n for size, divisor in pairs for n in (size // divisor, divisor)]
    axes = [2 * axis for axis in range(dense.ndim)]
    inner = [2 * axis + 1 for axis in blocks]
    rest = [2 * axis + 1 for axis in range(dense.ndim) if axis not in blocks]  # all of size 1
    expanded = dense.reshape(split).transpose([*axes, *inner, *rest])
    walked = expanded.reshape(expanded.shape[: dense.ndim + len(blocks)]).transpose(order)
    segments, indices, stored = [0], [], []
    for row in walked.reshape(-1, *walked.shape[level:]):
        kept = [k for k in range(len(row)) if row[k].any()]
        indices += kept
        segments.append(len(indices))
        stored += [row[k].ravel() for k in kept]
    levels = list(map(SparseDimension, walked.shape))
    levels[level] = SparseDimension(0, tuple(segments), tuple(indices))
    return Sparsity(order, tuple(blocks), tuple(levels)), np.concatenate(stored)


def pruned(*shape: int) -> Array:
    random = np.random.default_rng(4)
    return np.where(random.random(shape) < 0.4, random.standard_normal(shape), 0).astype(np.float32)


@grid("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@grid("level", [0, 1, 2])
def test_one_compressed_level(order: tuple[int, ...], level: int) -> None:
    dense = pruned(3, 4, 5)
    sparsity, stored = compressed(dense, order, {}, level)
    assert len(stored) <= dense.size
    np.testing.assert_array_equal(sparsity.dense(stored, dense.shape), dense)


@pytest.mark.parametrize("blocks", [{1: 4}, {0: 2, 1: 4}])
def test_blocks(blocks: dict[int, int]) -> None:
    dense = pruned(4, 8)
    order = tuple(range(2 + len(blocks)))
    sparsity, stored = compressed(dense, order, blocks, 1)
    np.testing.assert_array_equal(sparsity.dense(stored, dense.shape), dense)


def test_two_compressed_levels() -> None:
    """Rows 0 and 2 of three; of row 0 columns 1 and 3, of row 2 column 0."""
    levels = (SparseDimension(0, (0, 2), (0, 2)), SparseDimension(0, (0, 2, 3), (1, 3, 0)))
    found = Sparsity((0, 1), (), levels).dense(np.array([5.0, 6, 7]), (3, 4))
    np.testing.assert_array_equal(found, [[0, 5, 0, 6], [0, 0, 0, 0], [7, 0, 0, 0]])


DENSE = SparseDimension(2)


@grid(
    "sparsity",
    [
        Sparsity((0,), (), (DENSE,)),
        Sparsity((0, 0), (), (DENSE, DENSE)),
        Sparsity((0, 1), (), (DENSE,)),
        Sparsity((0, 1), (), (DENSE, SparseDimension(-1))),
        Sparsity((0, 1), (), (DENSE, SparseDimension(9))),
        Sparsity((0, 1), (), (DENSE, SparseDimension(0, (0, 1), (0,)))),
        Sparsity((0, 1), (), (DENSE, SparseDimension(0, (0, 1, 2), (0, 5)))),
        Sparsity((0, 1), (), (DENSE, SparseDimension(0, (0, 1, 2), (0, -1)))),
        Sparsity((0, 1), (), (DENSE, SparseDimension(0, (-1, 1, 2), (0, 1)))),
        Sparsity((0, 1), (), (DENSE, SparseDimension(0, (0, 2, 1), (0, 1)))),
        Sparsity((0, 1), (), (DENSE, SparseDimension(0, (0, 2, 4), (0, 1, 0, 1)))),
    ],
)
def test_a_sparsity_that_contradicts_itself(sparsity: Sparsity) -> None:
    with pytest.raises((ValueError, IndexError)):
        sparsity.dense(np.ones(2), (2, 2))


def test_a_shape_far_beyond_what_is_stored() -> None:
    levels = (SparseDimension(0, (0, 1), (0,)), SparseDimension(0, (0, 1), (0,)))
    with pytest.raises(ValueError, match="too few elements for its shape"):
        Sparsity((0, 1), (), levels).dense(np.ones(1), (1 << 20, 1 << 20))


def sparse_model(dtype: str) -> bytes:
    """x [1, 4] times [[0, 5, 0, 6], [7, 0, 0, 0]]; half precision goes through DENSIFY and DEQUANTIZE."""
    file = CircleFile()
    x, y = file.input("x", (1, 4)), file.tensor("y", (1, 2))
    levels: list[int | tuple[Sequence[int], Sequence[int]]] = [2, ((0, 2, 3), (1, 3, 0))]
    weight = file.sparse("stored", np.array([5, 6, 7], dtype), (0, 1), levels, shape=(2, 4))
    for code, kind in (("DENSIFY", dtype), ("DEQUANTIZE", "float32")):
        if dtype == "float16":
            source, weight = weight, file.tensor(code, (2, 4), kind)
            file.operator(code, [source], [weight])
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    return file.write(y)


@pytest.mark.parametrize(("dtype", "name"), [("float32", "stored"), ("float16", "DEQUANTIZE")])
def test_sparse_weights_are_dense_parameters(dtype: str, name: str) -> None:
    model = load_circle(sparse_model(dtype), training=STILL)
    assert model.graph.operands[name].role is Role.PARAMETER
    expected = np.array([[0, 5, 0, 6], [7, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(weights_of(sparse_model(dtype), model.weights)[name], expected)
    x = np.array([[1, 2, 3, 4]], np.float32)
    with Trainer(model.graph, plan(model.graph)) as trainer:
        np.testing.assert_array_equal(trainer.read(name), expected)
        trainer.step({"x": x, "label": np.zeros((1, 2), np.float32)})
        np.testing.assert_array_equal(trainer.read("y"), x @ expected.T)


def test_a_damaged_sparsity_in_a_file() -> None:
    file = CircleFile()
    x, y = file.input("x", (1, 4)), file.tensor("y", (1, 2))
    weight = file.sparse("w", np.ones(3, "f4"), (0, 1), [2, ((0, 2, 9), (1, 3, 0))], shape=(2, 4))
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    with pytest.raises(ArenaplanError, match="FULLY_CONNECTED"):
        load_circle(file.write(y), training=STILL)
