"""Training with activations kept in 16 bits: the bits of its reference, and as good as float32."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from statistics import fmean

import numpy as np
import pytest

from examples.gallery import GALLERY
from solver.errors import OptionsError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Array, TrainableGraph, TrainingRules
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier
from tests.support.graphs import Sketch, chain

#: As loss scaling of mixed precision usually begins, and quick to grow.
SCALED = TrainingRules(loss_scale=65536.0, loss_scale_growth=5)


def test_schedules_keep_the_bits_of_rounded_activations() -> None:
    """A forward step that runs again is rounded again."""
    graph = chain((16,) * 7, batch=64)
    arena = plan(graph, PlanOptions(storage="bfloat16")).arena_bytes
    tiers = (Tier("sram", arena * 8 // 10), Tier("flash", 2**20, 10**9, 10**9))
    for options in (PlanOptions(capacity=arena * 93 // 100, recompute=True), PlanOptions(tiers=tiers)):
        made = plan(graph, replace(options, storage="bfloat16"))
        assert made.sizes[0] < arena
        assert validate(graph, made, steps=3).identical
        again = [step.id for step in made.steps if step.again]
        assert options.tiers or any(label.endswith("store.again1") for label in again)


def test_the_arena_shrinks() -> None:
    for name in ("lenet5", "transformer", "lstm_classifier"):
        graph = GALLERY[name].model().graph
        assert plan(graph, PlanOptions(storage="float16")).arena_bytes < 0.95 * plan(graph).arena_bytes


def test_what_is_computed_is_what_rounding_says() -> None:
    """One layer's gradient, with the input that was rounded; the loss sees no rounding."""
    s = Sketch("one")
    h = s.op("Gemm", [s.input("x", 32, 16), s.parameter("w", 16, 8)], "h")
    s.op("Gemm", [h, s.parameter("v", 8, 4)], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 32, 4)], "loss")
    graph = s.graph(learning_rate=1.0)
    batch = synthetic_batch(graph, 0, 1)
    rounded = batch | {"x": batch["x"].astype(np.float16).astype(np.float32)}
    losses, steps = [], []
    for storage, given in ((None, batch), ("float16", batch), (None, rounded)):
        trainer = Trainer(graph, plan(graph, PlanOptions(storage=storage)))
        before = trainer.read("w")
        losses.append(trainer.step(given))
        steps.append(before - trainer.read("w"))
    assert losses[0] == losses[1]
    plain, stored, of_rounded = steps
    assert not np.array_equal(plain, stored)
    # The derivative of the loss differs a little where the input itself was rounded, so only nearly equal.
    assert float(np.abs(stored - of_rounded).max()) < 0.1 * float(np.abs(of_rounded).max())
    np.testing.assert_allclose(stored, plain, rtol=0.05, atol=1e-3)


def losses_of(name: str, storage: str | None, rules: TrainingRules, steps: int) -> list[float]:
    example = GALLERY[name]
    graph = example.build(16).graph.with_spec(rules=rules)
    trainer = Trainer(graph, plan(graph, PlanOptions(storage=storage)))
    return [trainer.step(batch) for batch in islice(example.batches(0, 16), steps)]


@pytest.mark.parametrize(
    ("storage", "rules"), [("bfloat16", TrainingRules()), ("float16", SCALED), ("float16", TrainingRules())]
)
def test_training_converges_as_in_float32(storage: str, rules: TrainingRules) -> None:
    """The gallery's digits: the loss falls to a quarter, with every type the same to some percent."""
    plain = losses_of("lenet5", None, TrainingRules(), 50)
    found = losses_of("lenet5", storage, rules, 50)
    assert fmean(plain[-10:]) < 0.3 * fmean(plain[:5])
    assert fmean(found[-10:]) == pytest.approx(fmean(plain[-10:]), rel=0.05)
    assert found != plain


# ------------------------------------------------------------------------------------ dynamic loss scale


def scale_of(trainer: Trainer) -> float:
    return float(trainer.runner.value("loss@loss_scale"))


def huge(graph: TrainableGraph, step: int) -> dict[str, Array]:
    """A batch whose activations are beyond float16, which keeps them as infinities."""
    batch = dict(synthetic_batch(graph, 0, step))
    return batch | {"x": (batch["x"] * np.float32(1e6)).astype(np.float32)}


def test_an_overflow_leaves_the_update_out_and_halves_the_scale() -> None:
    graph = chain((64, 32, 16), 8, training=SCALED)
    trainer = Trainer(graph, plan(graph, PlanOptions(storage="float16")))
    trainer.step(synthetic_batch(graph, 0, 1))
    assert scale_of(trainer) == 65536.0
    before = {name: trainer.read(name) for name in graph.trainable}
    trainer.step(huge(graph, 2))
    assert scale_of(trainer) == 32768.0
    for name, array in before.items():
        np.testing.assert_array_equal(trainer.read(name), array)
    for step in range(3, 8):  # five in a row
        assert scale_of(trainer) == 32768.0
        trainer.step(synthetic_batch(graph, 0, step))
    assert scale_of(trainer) == 65536.0
    assert all(np.isfinite(trainer.read(name)).all() for name in graph.trainable)


def test_bfloat16_has_the_range_of_float32() -> None:
    graph = chain((64, 32, 16), 8, training=SCALED)
    trainer = Trainer(graph, plan(graph, PlanOptions(storage="bfloat16")))
    before = trainer.read(graph.trainable[0])
    trainer.step(huge(graph, 1))
    assert scale_of(trainer) == 65536.0
    assert not np.array_equal(trainer.read(graph.trainable[0]), before)


# ----------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("storage", ["float32", "float8", "", "FLOAT16"])
def test_unknown_types_are_named(storage: str) -> None:
    with pytest.raises(OptionsError, match="Unknown storage") as caught:
        plan(chain(), PlanOptions(storage=storage))
    assert caught.value.path == ("storage",)
    assert "float16" in caught.value.remedy


@pytest.mark.parametrize("target", ["onert", "nntrainer", "singa"])
def test_other_runtimes_keep_values_as_they_are(target: str) -> None:
    with pytest.raises(OptionsError, match="keeps values as they are") as caught:
        plan(chain(), PlanOptions(storage="float16", target=target))
    assert caught.value.path == ("storage",)


def test_a_plan_whose_options_say_otherwise_is_of_another_program() -> None:
    graph = chain((64, 32, 16), 8)
    made = plan(graph, PlanOptions(storage="float16"))
    for storage in (None, "bfloat16"):
        with pytest.raises(PlanError, match="do not belong together"):
            validate(graph, replace(made, options=replace(made.options, storage=storage)))
