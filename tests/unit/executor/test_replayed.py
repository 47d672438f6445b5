"""Training in a plan whose graph was rewritten: the caller keeps the graph and its names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.errors import OptionsError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.arithmetic import rewritten
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.graphs import chain, convolutional, residual
from tests.support.rewritable import mobile_block

GRAPH = mobile_block(trained=True)
MADE = plan(GRAPH, PlanOptions(rewrite=True))


def test_losses_follow_those_of_the_graph_as_it_was() -> None:
    trainers = [Trainer(GRAPH, made) for made in (plan(GRAPH), MADE)]
    for step in range(1, 5):
        batch = synthetic_batch(GRAPH, 0, step)
        plain, other = (trainer.step(batch) for trainer in trainers)
        assert other == pytest.approx(plain, rel=1e-4)


def test_parameters_and_outputs_are_read_by_their_names() -> None:
    trainer = Trainer(GRAPH, MADE)
    trainer.step(synthetic_batch(GRAPH, 0, 1))
    for name in (*GRAPH.trainable, *GRAPH.results):
        assert trainer.read(name).shape == GRAPH.operands[name].shape


def test_what_was_replaced_cannot_be_read() -> None:
    with pytest.raises(PlanError, match="does not outlive"):
        Trainer(GRAPH, MADE).read("expand.y")


def test_it_is_validated_like_any_other() -> None:
    report = validate(GRAPH, MADE, steps=3)
    assert report.identical
    assert all(step.loss is not None and np.isfinite(step.loss) for step in report.steps)


def test_a_plan_without_replacements_trains_the_graph_itself() -> None:
    assert rewritten(GRAPH, plan(GRAPH)) is GRAPH
    graph = chain((6, 4))
    assert rewritten(graph, plan(graph, PlanOptions(rewrite=True))) is graph


@pytest.mark.parametrize("other", [chain(), residual(), convolutional()], ids=lambda g: g.name)
def test_another_graph_is_refused(other: TrainableGraph) -> None:
    with pytest.raises(PlanError, match="does not hold in this graph"):
        Trainer(other, MADE)


def test_replacements_that_the_options_did_not_ask_for_are_refused() -> None:
    with pytest.raises(PlanError, match="options do not ask"):
        Trainer(GRAPH, replace(MADE, options=PlanOptions()))


def test_a_plan_that_forgot_its_replacements_is_refused() -> None:
    with pytest.raises(PlanError, match="do not belong together"):
        Trainer(GRAPH, replace(MADE, replacements=()))


@pytest.mark.parametrize("target", ["onert", "nntrainer"])
def test_other_runtimes_run_what_they_are_given(target: str) -> None:
    with pytest.raises(OptionsError, match="runs the operations that it is given") as caught:
        plan(chain(), PlanOptions(target=target, rewrite=True))
    assert caught.value.path == ("rewrite",)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pooling_first_trains_alike_in_less(layout: str) -> None:
    graph = convolutional(16, layout)
    plain, made = plan(graph), plan(graph, PlanOptions(rewrite=True))
    assert "pool-first" in {one.rule for one in made.replacements}
    assert made.arena_bytes < 0.9 * plain.arena_bytes
    trainers = [Trainer(graph, one) for one in (plain, made)]
    for step in range(1, 5):
        batch = synthetic_batch(graph, 0, step)
        losses = [trainer.step(batch) for trainer in trainers]
        assert losses[1] == pytest.approx(losses[0], rel=1e-3)
