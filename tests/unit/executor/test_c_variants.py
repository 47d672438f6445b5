"""Each kind of training and of plan in C: bits as with values apart, weights nearly as in NumPy."""

from __future__ import annotations

import contextlib
import shutil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.errors import CapacityError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import TrainableGraph, TrainingRules
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Tier
from tests.support.graphs import chain, tower
from tests.support.random_graphs import random_graphs

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

#: Each optimizer with all that changes its formula.
OPTIMIZERS: list[dict[str, Any]] = [
    {"optimizer": "SGD", "weight_decay": 0.1},
    {"optimizer": "SGD", "momentum": 0.9, "weight_decay": 0.1},
    {"optimizer": "SGD", "momentum": 0.9, "nesterov": True},
    {"optimizer": "Adam", "weight_decay": 0.1},
    {"optimizer": "Adam", "epsilon": 0.01, "epsilon_hat": True, "beta1": 0.5, "beta2": 0.9},
    {"optimizer": "AdamW", "weight_decay": 0.1},
    {"optimizer": "RMSProp"},
    {"optimizer": "RMSProp", "centered": True, "momentum": 0.5, "weight_decay": 0.1},
    {"optimizer": "Adagrad", "learning_rate_decay": 0.1, "weight_decay": 0.1},
]

RULES = [
    TrainingRules(clip_global_norm=0.05),
    TrainingRules(loss_scale=64.0),
    TrainingRules(accumulate=2, clip_global_norm=0.05, loss_scale=8.0),
    TrainingRules(accumulate=2, skip_non_finite=True),
]


def planned(graph: TrainableGraph, **options: Any) -> Plan:
    """The plan with these measures and no other."""
    return plan_requested(graph, RequestedOptions(PlanOptions(target="c", **options), automatic=False))


def assert_weights_of_numpy(graph: TrainableGraph) -> None:
    """After four steps weights and losses are those of NumPy's kernels, but for last bits."""
    with Trainer(graph, planned(graph), kernels="c") as ours, Trainer(graph, plan_requested(graph)) as theirs:
        before = {weight: ours.read(weight) for weight in graph.trainable}
        for step in range(4):
            batch = synthetic_batch(graph, 0, step)
            assert ours.step(batch) == pytest.approx(theirs.step(batch), rel=1e-5)
        for weight in graph.trainable:
            np.testing.assert_allclose(ours.read(weight), theirs.read(weight), rtol=1e-4, atol=1e-6)
            assert not np.array_equal(ours.read(weight), before[weight])


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_each_optimizer_trains_as_in_numpy(optimizer: dict[str, Any]) -> None:
    assert_weights_of_numpy(chain(**optimizer))


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_rules_of_training_are_those_of_numpy(rules: TrainingRules) -> None:
    assert_weights_of_numpy(chain(optimizer="Adam", training=rules))


def test_a_gradient_that_is_no_number_is_left_out() -> None:
    graph = chain(training=TrainingRules(skip_non_finite=True))
    batch = {name: np.array(values) for name, values in synthetic_batch(graph, 0, 0).items()}
    batch["x"][0, 0] = np.nan
    with Trainer(graph, planned(graph), kernels="c") as trainer:
        before = trainer.read("w1")
        assert np.isnan(trainer.step(batch))
        assert np.array_equal(trainer.read("w1"), before)
        trainer.step(synthetic_batch(graph, 0, 1))
        assert not np.array_equal(trainer.read("w1"), before)


PLANS: list[dict[str, Any]] = [
    {"update": "end"},
    {"in_place": True, "sub_ranges": True},
    {"order": True},
    {"recompute": True, "ratio": 0.8},
    {"tiers": True, "ratio": 0.75},
    {"tiers": True, "ratio": 0.75, "recompute": True, "order": True, "update": "end"},
]


@pytest.mark.parametrize("options", PLANS, ids=str)
def test_each_kind_of_plan_leaves_the_bits_of_values_apart(options: dict[str, Any]) -> None:
    rules = TrainingRules(accumulate=1 if "update" in options else 2)  # of two, the second one updates
    graph = tower(dropout=True, tied="update" not in options, optimizer="Adam", training=rules)
    options, usual = dict(options), planned(graph)
    size = int(usual.arena_bytes * options.pop("ratio", 1))
    if options.pop("tiers", False):
        options["tiers"] = (Tier("sram", size), Tier("flash", 1 << 24, 10**7, 10**7))
    elif options.get("recompute"):
        options["capacity"] = size
    made = planned(graph, **options)
    assert (made.program, made.offsets) != (usual.program, usual.offsets)
    report = validate(graph, made, steps=4, kernels="c")
    assert report.identical, report.steps


@settings(max_examples=6)
@given(random_graphs(), st.booleans(), st.booleans(), st.sampled_from(["at once", "end"]), st.booleans())
def test_random_graphs_leave_the_bits_of_values_apart(
    graph: TrainableGraph, in_place: bool, order: bool, update: str, paged: bool
) -> None:
    options: dict[str, Any] = {"in_place": in_place, "order": order}
    if update == "end":
        options["update"] = update
    made = planned(graph, **options)
    if paged:
        tiers = (Tier("sram", made.arena_bytes - 64), Tier("flash", 1 << 24, 10**7, 10**7))
        with contextlib.suppress(CapacityError):  # one step may need all of them
            made = planned(graph, **options, tiers=tiers)
    assert validate(graph, made, steps=3, kernels="c").identical
