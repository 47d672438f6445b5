"""Facts that proofs trust about the program's own steps: accumulation, clipping, updates.

They write all of what they write, take nothing from what their memory and scratch held, and change nothing
that they only read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from solver.executor.kernels.optimizer import prepare_accumulate, prepare_clip, prepare_update
from solver.graph.ops.base import ScratchRequest
from solver.graph.types import Array, DType, TensorType, TrainableGraph, TrainingRules
from solver.training.optimizers import UPDATE_BLOCK_ELEMENTS, block, scratch, state_names
from tests.support.every import grid
from tests.support.graphs import chain
from tests.support.one_operation import placed, poisoned

Arrays = Mapping[str, Array]

FILLS = (0xFF, 0x00, 0x5A)
#: More than two blocks of an update, and not a multiple of one; a matrix; a scalar.
SHAPES = [(2 * UPDATE_BLOCK_ELEMENTS + 5,), (7, 5), ()]

OPTIMIZERS: list[dict[str, Any]] = [
    {"optimizer": "SGD"},
    {"optimizer": "SGD", "weight_decay": 0.1},
    {"optimizer": "SGD", "momentum": 0.9},
    {"optimizer": "SGD", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"optimizer": "Adam"},
    {"optimizer": "Adam", "weight_decay": 0.1},
    {"optimizer": "AdamW", "weight_decay": 0.1},
    {"optimizer": "Adam", "epsilon_hat": True},
    {"optimizer": "RMSProp"},
    {"optimizer": "RMSProp", "momentum": 0.9, "weight_decay": 0.1},
    {"optimizer": "RMSProp", "centered": True, "momentum": 0.5},
    {"optimizer": "Adagrad"},
    {"optimizer": "Adagrad", "learning_rate_decay": 0.1, "weight_decay": 0.1, "initial_accumulator": 0.5},
]

RULES = [
    TrainingRules(),
    TrainingRules(loss_scale=8.0),
    TrainingRules(accumulate=3),
    TrainingRules(clip_global_norm=0.5),
    TrainingRules(skip_non_finite=True),
    TrainingRules(clip_global_norm=0.5, accumulate=2, skip_non_finite=True, loss_scale=4.0),
]


def uniform(shape: tuple[int, ...], seed: int, dtype: str = "float32", least: float = -1.0) -> Array:
    return np.asarray(np.random.default_rng(seed).uniform(least, 1.0, shape), dtype)


def ran(
    prepare: Callable[[Arrays], Callable[[], None]],
    reads: Arrays,
    writes: Mapping[str, TensorType],
    requests: tuple[ScratchRequest, ...],
    fill: int,
) -> dict[str, bytes]:
    """The bytes that the step leaves where it writes; slots that it reads and writes are updated in place."""
    arrays = {slot: placed(value) for slot, value in reads.items()}
    fresh = {slot: type_ for slot, type_ in writes.items() if slot not in reads}
    for slot, type_ in (*fresh.items(), *((r.name, r.type) for r in requests)):
        arrays[slot] = poisoned(type_)
        arrays[slot].reshape(-1).view(np.uint8).fill(fill)
    for slot in reads.keys() - writes.keys():
        arrays[slot].flags.writeable = False
    with np.errstate(all="ignore"):
        prepare(arrays)()
    for slot in reads.keys() - writes.keys():
        assert arrays[slot].tobytes() == reads[slot].tobytes(), f"the step changed {slot}"
    return {slot: arrays[slot].tobytes() for slot in writes}


def type_of(array: Array) -> TensorType:
    return TensorType(array.shape, DType(array.dtype.name))


def assert_one_result(
    prepare: Callable[[Arrays], Callable[[], None]],
    reads: Arrays,
    writes: Mapping[str, TensorType],
    requests: tuple[ScratchRequest, ...] = (),
) -> dict[str, bytes]:
    first, *others = (ran(prepare, reads, writes, requests, fill) for fill in FILLS)
    assert all(other == first for other in others)
    return first


def update_reads(
    graph: TrainableGraph, shape: tuple[int, ...], dtype: str, factor: float
) -> dict[str, Array]:
    reads = {"x0": uniform(shape, 1, dtype), "dx0": uniform(shape, 2, dtype)}
    names = state_names(graph.optimizer)
    reads |= {name: uniform(shape, 3 + i, dtype, least=0.1) for i, name in enumerate(names)}
    if graph.training.joins_gradients:
        reads["factor"] = np.asarray(factor)
    if graph.training.skip_non_finite:
        reads["updates"] = np.asarray(4)
    return reads


@grid("shape", SHAPES)
@grid("rules", RULES)
@grid("hyper", OPTIMIZERS)
def test_an_update(hyper: dict[str, Any], rules: TrainingRules, shape: tuple[int, ...]) -> None:
    graph = chain(training=rules, **hyper)
    optimizer = graph.optimizer
    assert optimizer is not None
    for dtype, factor in (("float32", 0.25), ("float64", 0.25), ("float32", 0.0)):
        reads = update_reads(graph, shape, dtype, factor)
        scaled = rules.joins_gradients or rules.divisor != 1
        requests = scratch(optimizer, type_of(reads["x0"]), scaled=scaled)
        updated = ["x0", *state_names(optimizer), *(["dx0"] if rules.accumulate > 1 else [])]
        found = assert_one_result(
            lambda arrays: prepare_update(optimizer, graph.training, arrays, lambda: 5),
            reads,
            {slot: type_of(reads[slot]) for slot in updated},
            requests,
        )
        if factor or rules.skip_non_finite:
            assert (found["x0"] == reads["x0"].tobytes()) == (rules.skip_non_finite and factor == 0)
        if rules.accumulate > 1:
            assert not np.frombuffer(found["dx0"], dtype).any()


@grid("hyper", OPTIMIZERS)
def test_an_update_depends_on_all_that_it_reads(hyper: dict[str, Any]) -> None:
    """The count too, where the optimizer's rule has one: nothing may be left out of a proof."""
    graph = chain(training=RULES[-1], **hyper)
    optimizer = graph.optimizer
    assert optimizer is not None
    reads = update_reads(graph, (7, 5), "float64", 0.25)
    requests = scratch(optimizer, type_of(reads["x0"]), scaled=True)

    def weight(changed: Arrays, count: int = 5) -> bytes:
        given = {**reads, **changed}
        writes = {slot: type_of(given[slot]) for slot in ("x0", "dx0", *state_names(optimizer))}
        return ran(
            lambda a: prepare_update(optimizer, graph.training, a, lambda: count),
            given,
            writes,
            requests,
            0xFF,
        )["x0"]

    expected = weight({})
    counts = optimizer.type in ("Adam", "AdamW") or "learning_rate_decay" in optimizer.attributes
    for slot, value in reads.items():
        if slot != "updates" or counts:
            assert weight({slot: value * 2}) != expected, slot
    assert weight({}, count=9) == expected, "the count among the operands takes the place of the caller's"


@grid("rules", [rules for rules in RULES if rules.joins_gradients])
@grid("last", [1.0, np.inf, np.nan])
def test_clipping(rules: TrainingRules, last: float) -> None:
    gradients = [
        uniform(shape, i, dtype) for i, shape in enumerate(SHAPES) for dtype in ("float32", "float64")
    ]
    gradients.append(np.asarray([1.0, last], np.float32))
    reads = {f"dx{i}": gradient for i, gradient in enumerate(gradients)}
    writes = {"factor": TensorType((), DType.FLOAT64)}
    if rules.skip_non_finite:
        reads["updates"] = np.asarray(4)
        writes["updates"] = TensorType((), DType.INT64)
    largest = max(gradient.size for gradient in gradients)
    square = block("square", TensorType((largest,), DType.FLOAT64))
    found = assert_one_result(lambda arrays: prepare_clip(rules, arrays), reads, writes, (square,))
    if rules.skip_non_finite:
        finite = bool(np.isfinite(last))
        assert np.frombuffer(found["updates"], np.int64).item() == 4 + finite
        assert (np.frombuffer(found["factor"]).item() != 0) == finite


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_accumulation(shape: tuple[int, ...], dtype: str) -> None:
    reads = {"x0": uniform(shape, 1, dtype), "x1": uniform(shape, 2, dtype)}
    found = assert_one_result(
        lambda arrays: prepare_accumulate(arrays["x0"], arrays["x1"]), reads, {"x0": type_of(reads["x0"])}
    )
    assert found["x0"] == np.asarray(reads["x0"] + reads["x1"]).tobytes()
