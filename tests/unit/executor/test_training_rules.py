"""Training under rules: clipping, loss scaling, accumulation and skipped updates do what they say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.kernels.optimizer import prepare_clip
from solver.executor.run import Runner
from solver.graph import Array, DType, TrainableGraph, TrainingRules
from solver.pipeline import plan
from solver.training import derive
from tests.support.every import grid
from tests.support.graphs import Sketch, chain, residual
from tests.support.one_operation import allocated

Batch = Mapping[str, Array]


def trained(graph: TrainableGraph, batches: Sequence[Batch]) -> dict[str, Array]:
    """Every parameter after one step for each batch."""
    trainer = Trainer(graph, plan(graph))
    for batch in batches:
        trainer.step(batch)
    return {name: trainer.read(name) for name in graph.trainable}


def batches_of(graph: TrainableGraph, count: int) -> list[Batch]:
    return [synthetic_batch(graph, 3, step) for step in range(1, count + 1)]


def assert_same_bits(one: Mapping[str, Array], other: Mapping[str, Array]) -> None:
    for name, array in one.items():
        np.testing.assert_array_equal(array.view(np.uint8), other[name].view(np.uint8), err_msg=name)


# ------------------------------------------------------------------------------------------- clipping


def regression(
    rules: TrainingRules | None = None, *, batch: int = 6, dtype: DType = DType.FLOAT64, **hyper: Any
) -> TrainableGraph:
    """Two layers in float64; plain SGD with rate 1, so that a step is the gradient."""
    s = Sketch("regression", dtype)
    h = s.op(
        "Gemm",
        [s.input("x", batch, 5), s.parameter("w1", 5, 4), s.parameter("b1", 4)],
        "h",
        activation="Tanh",
    )
    h = s.op("Gemm", [h, s.parameter("w2", 4, 3), s.parameter("b2", 3)], "y")
    s.op("MeanSquaredError", [h, s.label("t", batch, 3)], "loss")
    hyper.setdefault("learning_rate", 1.0)
    return s.graph(training=rules, **hyper)


def step_of(graph: TrainableGraph, batch: Batch) -> dict[str, Array]:
    """By how much one step lowers each parameter."""
    trainer = Trainer(graph, plan(graph))
    before = {name: trainer.read(name) for name in graph.trainable}
    trainer.step(batch)
    return {name: before[name] - trainer.read(name) for name in graph.trainable}


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_clipped_gradients_have_the_norm_that_is_asked_for(share: float) -> None:
    graph = regression()
    batch = synthetic_batch(graph, 0, 1)
    plain = step_of(graph, batch)
    norm = math.sqrt(sum(float(np.sum(g * g)) for g in plain.values()))
    clipped = step_of(regression(TrainingRules(clip_global_norm=share * norm)), batch)
    factor = share * norm / (norm + 1e-6)
    for name, gradient in plain.items():
        np.testing.assert_allclose(clipped[name], factor * gradient, rtol=1e-9, atol=1e-15)


def test_a_norm_that_is_not_reached_changes_no_bit() -> None:
    graph = residual()
    clipped = graph.with_spec(rules=TrainingRules(clip_global_norm=1e6))
    assert_same_bits(trained(graph, batches_of(graph, 4)), trained(clipped, batches_of(graph, 4)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_norm_is_added_up_in_blocks(dtype: str) -> None:
    rng = np.random.default_rng(1)
    sizes = (70_000, 3, 32_768)
    gradients: list[Array] = [rng.standard_normal(size).astype(dtype) for size in sizes]
    arrays = {f"dx{i}": g for i, g in enumerate(gradients)}
    arrays |= {"square": np.empty(4096), "factor": np.empty(())}
    step = prepare_clip(TrainingRules(clip_global_norm=2.0, loss_scale=4.0), arrays)
    step()
    norm = math.sqrt(sum(float(np.sum(g.astype(np.float64) ** 2)) for g in gradients)) / 4
    assert arrays["factor"].item() == pytest.approx(2.0 / (norm + 1e-6) / 4, rel=1e-12)
    assert allocated(step) < 64 * 1024


def test_squares_beyond_float32_do_not_overflow() -> None:
    gradient: Array = np.full(4, 1e30, np.float32)
    arrays = {"dx0": gradient, "square": np.empty(4), "factor": np.empty(())}
    prepare_clip(TrainingRules(clip_global_norm=1.0), arrays)()
    assert arrays["factor"].item() == pytest.approx(5e-31, rel=1e-6)


# ---------------------------------------------------------------------------------------- loss scaling


@pytest.mark.parametrize("power", [-12, 3, 16])
@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_power_of_two_changes_no_bit(power: int, clip: float | None) -> None:
    graph = residual(training=TrainingRules(clip_global_norm=clip))
    scaled = graph.with_spec(rules=replace(graph.training, loss_scale=2.0**power))
    batches = batches_of(graph, 5)
    assert_same_bits(trained(graph, batches), trained(scaled, batches))


def test_the_loss_itself_is_not_scaled() -> None:
    graph = chain()
    scaled = graph.with_spec(rules=TrainingRules(loss_scale=64.0))
    batch = synthetic_batch(graph, 0, 1)
    assert Trainer(graph, plan(graph)).step(batch) == Trainer(scaled, plan(scaled)).step(batch)


def test_scaling_saves_derivatives_from_underflow() -> None:
    """A derivative on the way, below the least float32, is what scaling is for."""
    s = Sketch()
    h = s.op("Mul", [s.input("x", 4), s.parameter("w", 4)], "h")
    for k in range(2):
        h = s.op("Mul", [h, s.input(f"f{k}", 4)], f"h{k}")
    s.op("ReduceSum", [h], "loss", axes=(0,), keepdims=0)
    graph = s.graph(learning_rate=1.0)
    factors = {"x": 1e30, "f0": 1e-25, "f1": 1e-25}
    batch = {name: np.full(4, value, np.float32) for name, value in factors.items()}
    assert not step_of(graph, batch)["w"].any()
    scaled = graph.with_spec(rules=TrainingRules(loss_scale=2.0**60))
    np.testing.assert_allclose(step_of(scaled, batch)["w"], 1e-20, rtol=1e-5)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_scale_that_grows_changes_no_bit(accumulate: int) -> None:
    """All of its values are powers of two."""
    graph = residual(training=TrainingRules(accumulate=accumulate, skip_non_finite=True))
    rules = replace(graph.training, loss_scale=64.0, loss_scale_growth=1, skip_non_finite=False)
    batches = batches_of(graph, 9)
    assert_same_bits(trained(graph, batches), trained(graph.with_spec(rules=rules), batches))


def clip_step(rules: TrainingRules, gradient: Array) -> tuple[Callable[[], None], dict[str, Array]]:
    """The joint step of one gradient, and what it changes."""
    arrays: dict[str, Array] = {"dx0": gradient, "square": np.empty(4), "factor": np.empty(())}
    arrays |= {"updates": np.zeros((), np.int64), "in_a_row": np.zeros((), np.int64)}
    arrays["loss_scale"] = np.array(rules.loss_scale)
    return prepare_clip(rules, arrays), arrays


def test_the_scale_halves_and_doubles_as_the_rules_say() -> None:
    gradient: Array = np.ones(4, np.float32)
    step, found = clip_step(TrainingRules(loss_scale=8.0, loss_scale_growth=3), gradient)
    seen = []
    for value in (1, 1, 1, 1, np.inf, 1, 1, np.nan, 1, 1, 1, 1, 1, 1):
        gradient.fill(value)
        step()
        seen.append((found["loss_scale"].item(), found["in_a_row"].item(), found["factor"].item()))
    assert [scale for scale, _, _ in seen] == [8, 8, 16, 16, 8, 8, 8, 4, 4, 4, 8, 8, 8, 16]
    assert [row for _, row, _ in seen] == [1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert [factor for *_, factor in seen[:6]] == [1 / 8, 1 / 8, 1 / 8, 1 / 16, 0, 1 / 8]
    assert found["updates"].item() == 12


def test_the_scale_stays_between_one_and_its_largest() -> None:
    gradient: Array = np.full(4, np.inf, np.float32)
    step, found = clip_step(TrainingRules(loss_scale=3.0, loss_scale_growth=1), gradient)
    scales = []
    for _ in range(3):
        step()
        scales.append(found["loss_scale"].item())
    assert scales == [1.5, 1.0, 1.0]
    gradient.fill(1)
    for _ in range(70):
        step()
    assert found["loss_scale"].item() == 2.0**64


def test_an_overflow_of_a_scaled_gradient_is_skipped_and_trained_after() -> None:
    """A scale so large that the first derivative is infinite comes down until updates happen."""
    rules = TrainingRules(loss_scale=2.0**64, loss_scale_growth=1000)
    graph = chain((6, 5, 4), 3, optimizer="SGD", training=rules)
    trainer = Trainer(graph, plan(graph))
    batch = dict(synthetic_batch(graph, 0, 1))
    batch["x"] = (batch["x"] * np.float32(1e21)).astype(np.float32)
    before = trainer.read("w1")
    trainer.step(batch)
    np.testing.assert_array_equal(trainer.read("w1"), before)
    assert float(trainer.runner.value("loss@loss_scale")) == 2.0**63


def test_micro_batches_see_one_scale() -> None:
    rules = TrainingRules(loss_scale=16.0, loss_scale_growth=1, accumulate=3)
    graph = chain((6, 5, 4), 3, training=rules)
    trainer = Trainer(graph, plan(graph))
    scales = []
    for batch in batches_of(graph, 7):
        trainer.step(batch)
        scales.append(float(trainer.runner.value("loss@loss_scale")))
    assert scales == [16, 16, 32, 32, 32, 64, 64]


def test_a_fixed_scale_says_what_it_said() -> None:
    """Plans of before stay right: nothing about a scale that changes stands in their steps."""
    program = derive(residual(training=TrainingRules(clip_global_norm=1.0, loss_scale=4.0)))
    assert all("loss_scale_growth" not in node.attributes for node in program.operations)
    assert "loss@loss_scale" not in program.by_label


# ---------------------------------------------------------------------------------------- accumulation


@grid("optimizer", ["SGD", "Adam", "AdamW", "RMSProp", "Adagrad"])
@grid("micro", [2, 3])
def test_micro_batches_are_one_batch(optimizer: str, micro: int) -> None:
    """Up to rounding, over several updates; the optimizer counts updates, not micro-batches."""
    large = regression(batch=6, optimizer=optimizer, learning_rate=0.05)
    small = regression(
        TrainingRules(accumulate=micro), batch=6 // micro, optimizer=optimizer, learning_rate=0.05
    )
    batches = batches_of(large, 4)
    parts = [
        {name: array[i * 6 // micro : (i + 1) * 6 // micro] for name, array in batch.items()}
        for batch in batches
        for i in range(micro)
    ]
    one, other = trained(large, batches), trained(small, parts)
    for name, array in one.items():
        np.testing.assert_allclose(other[name], array, rtol=1e-9, atol=1e-12)


def test_weights_change_in_the_last_micro_batch_only() -> None:
    graph = residual(training=TrainingRules(accumulate=3))
    trainer = Trainer(graph, plan(graph))
    seen = [trainer.read("w1")]
    for batch in batches_of(graph, 7):
        trainer.step(batch)
        seen.append(trainer.read("w1"))
    changed = [not np.array_equal(a, b) for a, b in pairwise(seen)]
    assert changed == [False, False, True, False, False, True, False]


@pytest.mark.parametrize(("steps", "updates"), [(1, 1), (2, 1), (5, 1), (6, 2), (11, 3)])
def test_a_validation_ends_with_an_update(monkeypatch: pytest.MonkeyPatch, steps: int, updates: int) -> None:
    """Otherwise a few steps would prove nothing about the memory of updates."""
    counted: list[int] = []

    class Counting(Runner):
        def run(self) -> None:
            super().run()
            counted.append(self.iteration)

    for name in ("runs", "validate"):
        monkeypatch.setattr(import_module(f"solver.executor.{name}"), "Runner", Counting)
    graph = chain(optimizer="Adam", training=TrainingRules(accumulate=5))
    assert validate(graph, plan(graph), steps=steps).identical
    assert counted[-1] % 5 == 0
    assert sum(iteration % 5 == 0 for iteration in counted) == 2 * updates, "in both runs"


def test_gradients_are_cleared_by_their_update() -> None:
    graph = chain(training=TrainingRules(accumulate=2))
    trainer = Trainer(graph, plan(graph))
    gradient = trainer.runner.value("w1@grad")
    for k, batch in enumerate(batches_of(graph, 4), 1):
        trainer.step(batch)
        assert gradient.any() == bool(k % 2)


def test_an_update_from_micro_batches_repeats() -> None:
    """Accumulated gradients begin anew: the same micro-batches twice give the same step with plain SGD."""
    graph = regression(TrainingRules(accumulate=2), learning_rate=1e-3)
    batch = synthetic_batch(graph, 0, 1)
    first = trained(graph, [batch] * 2)
    plain = trained(regression(learning_rate=1e-3), [batch])
    for name, array in plain.items():
        np.testing.assert_allclose(first[name], array, rtol=1e-12)


def test_dropout_counts_micro_batches() -> None:
    s = Sketch()
    h = s.op("Dropout", [s.op("Mul", [s.input("x", 64), s.parameter("w", 64, initializer=None)], "h")], "y")
    s.op("MeanSquaredError", [h, s.label("t", 64)], "loss")
    graph = s.graph(training=TrainingRules(accumulate=4), outputs=("y",))
    trainer, masks = Trainer(graph, plan(graph)), set()
    trainer.runner.value("w").fill(1)
    for _ in range(4):
        trainer.step({"x": np.ones(64, np.float32), "t": np.zeros(64, np.float32)})
        masks.add((trainer.read("y") != 0).tobytes())
    assert len(masks) == 4


# ---------------------------------------------------------------------------------------------- skipping


def states(trainer: Trainer) -> dict[str, bytes]:
    """Everything that carries over; the loss does not."""
    labels = [value.label for value in trainer.runner.program.values]
    kept = {labels[value]: raw.tobytes() for value, raw in trainer.runner.kept().items()}
    return {label: raw for label, raw in kept.items() if label != "loss"}


@pytest.mark.parametrize("poison", [math.inf, math.nan])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_bad_batch_leaves_no_trace(optimizer: str, poison: float) -> None:
    graph = chain(optimizer=optimizer, training=TrainingRules(skip_non_finite=True, loss_scale=16.0))
    first, second = batches_of(graph, 2)
    bad = dict(first, x=np.full_like(first["x"], poison))
    trainer, clean = (Trainer(graph, plan(graph)) for _ in range(2))
    trainer.step(first)
    before = states(trainer)
    assert not math.isfinite(trainer.step(bad))
    assert states(trainer) == before
    trainer.step(second)
    for batch in (first, second):
        clean.step(batch)
    assert states(trainer) == states(clean)


def test_one_bad_micro_batch_spoils_its_update_alone() -> None:
    graph = chain(optimizer="Adam", training=TrainingRules(skip_non_finite=True, accumulate=2))
    good = batches_of(graph, 4)
    bad = dict(good[0], x=np.full_like(good[0]["x"], np.inf))
    trainer, clean = (Trainer(graph, plan(graph)) for _ in range(2))
    for batch in (bad, good[1], *good[2:]):
        trainer.step(batch)
    for batch in good[2:]:
        clean.step(batch)
    assert states(trainer) == states(clean)


def test_without_the_rule_a_bad_batch_is_trained_on() -> None:
    graph = chain(training=TrainingRules(clip_global_norm=1.0))
    batch = synthetic_batch(graph, 0, 1)
    bad = dict(batch, x=np.full_like(batch["x"], np.inf))
    assert np.isnan(trained(graph, [bad])["w2"]).any()


# ---------------------------------------------------------------------------------------------- PyTorch


@pytest.mark.parity
@pytest.mark.parametrize("clip", [None, 0.02])
def test_pytorch_agrees(clip: float | None) -> None:
    """Accumulation with the mean, `clip_grad_norm_`, Adam, in float64."""
    import torch

    rules = TrainingRules(clip_global_norm=clip, accumulate=3, loss_scale=128.0)
    graph = regression(rules, optimizer="Adam", learning_rate=0.01)
    trainer = Trainer(graph, plan(graph))
    w1, b1, w2, b2 = (
        torch.tensor(trainer.read(name), requires_grad=True) for name in ("w1", "b1", "w2", "b2")
    )
    optimizer = torch.optim.Adam([w1, b1, w2, b2], lr=0.01)
    for k, batch in enumerate(batches_of(graph, 9), 1):
        loss = trainer.step(batch)
        x, t = (torch.tensor(batch[name]) for name in ("x", "t"))
        theirs = ((torch.tanh(x @ w1 + b1) @ w2 + b2 - t) ** 2).mean()
        assert loss == pytest.approx(theirs.item(), rel=1e-9)
        (theirs / 3).backward()
        if k % 3 == 0:
            if clip is not None:
                torch.nn.utils.clip_grad_norm_([w1, b1, w2, b2], clip)
            optimizer.step()
            optimizer.zero_grad()
    for name, tensor in zip(("w1", "b1", "w2", "b2"), (w1, b1, w2, b2), strict=True):
        np.testing.assert_allclose(trainer.read(name), tensor.detach().numpy(), rtol=1e-8)


# --------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "rules",
    [
        TrainingRules(clip_global_norm=0.1, loss_scale=256.0, accumulate=2, skip_non_finite=True),
        TrainingRules(loss_scale=1024.0, loss_scale_growth=2),
    ],
)
def test_a_step_allocates_nothing_of_tensor_size(rules: TrainingRules) -> None:
    graph = chain((300, 400, 200), batch=16, optimizer="AdamW", training=rules)
    trainer = Trainer(graph, plan(graph))
    batch = synthetic_batch(graph, 0, 1)
    trainer.step(batch)
    for _ in range(2):  # with and without an update
        assert allocated(trainer.runner.run) < 64 * 1024
