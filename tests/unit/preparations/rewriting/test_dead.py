"""Dead operations go with all that only they read; what the caller asks for and what keeps state stays."""

from __future__ import annotations

from typing import Any

import pytest

from solver.executor import Trainer, synthetic_batch
from solver.graph import DType, Initializer, Role, TrainableGraph
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.rewriting import everywhere, footprint, only, same_after, types

RULE = "drop-dead-code"


def branched(**hyper: Any) -> TrainableGraph:
    """A layer, and a branch of three operations with operands of its own that nothing reads."""
    s = Sketch("branched", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    frozen = s.parameter("frozen", 6, 9, trainable=False)
    dead = s.op("MatMul", [h, frozen], "dead1")
    dead = s.op("Add", [dead, s.input("unread", 4, 9)], "dead2")
    s.op("Tanh", [dead], "dead3")
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss")
    return s.graph(**hyper)


def test_a_branch_that_leads_nowhere_goes_with_its_operands() -> None:
    before = branched()
    after = same_after(before, RULE, bitwise=True)
    assert types(after) == ["MatMul", "MeanSquaredError"]
    assert set(after.operands) == {"x", "w", "h", "t", "loss"}
    assert footprint(after) < footprint(before)


def test_one_replacement_names_them_all() -> None:
    (found,) = everywhere(branched(), RULE).applied
    assert found.operations == ("dead1.op", "dead2.op", "dead3.op")
    assert found.into == ()


@pytest.mark.parametrize("output", ["dead3", "dead1"])
def test_what_an_output_needs_is_alive(output: str) -> None:
    after = only(branched(outputs=(output,)), RULE)
    assert output in after.operands
    assert len(types(after)) == {"dead3": 5, "dead1": 3}[output]


def test_an_output_that_no_operation_defines_keeps_a_reader() -> None:
    after = only(branched(outputs=("unread",)), RULE)
    assert "unread" in after.operands
    assert types(after) == ["MatMul", "MatMul", "Add", "MeanSquaredError"]


def test_a_caller_may_still_feed_and_read_by_the_names_of_the_graph() -> None:
    graph = branched()
    trainer = Trainer(graph, plan(graph, PlanOptions(rewrite=True)))
    trainer.step(synthetic_batch(graph, 0, 1))
    assert trainer.read("frozen").shape == (6, 9)
    assert trainer.read("frozen").tobytes() == Trainer(graph, plan(graph)).read("frozen").tobytes()


def test_what_updates_a_state_is_alive() -> None:
    s = Sketch("state", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    one = Initializer("ones")
    parts = [s.parameter(name, 6, trainable=False, initializer=one) for name in ("scale", "shift")]
    states = [s.add(name, Role.STATE, (6,), initializer=one) for name in ("mean", "variance")]
    dead = s.op("BatchNormalization", [h, *parts, *states], "normal", training_mode=1)
    s.op("Tanh", [dead], "dead")
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss")
    after = only(s.graph(), RULE)
    assert types(after) == ["MatMul", "BatchNormalization", "MeanSquaredError"]


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional(), batch_normalised()])
def test_nothing_dead_nothing_done(graph: TrainableGraph) -> None:
    assert everywhere(graph, RULE).graph is graph
