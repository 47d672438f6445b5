"""Each operator of the format, imported and run, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from solver.executor import Trainer
from solver.graph import OptimizerSpec
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, load_circle
from solver.importers.circle.operators import OPERATORS
from solver.pipeline import plan
from tests.support.circle_cases import CASES, CircleCase, written

#: No learning: what is read behind a step is what the step computed from the file's weights.
STILL = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 1e-30}), "mean-squared-error")

#: Operators that have a test of their own below, or that only integers and conditions use.
ELSEWHERE = {
    *("CAST", "EMBEDDING_LOOKUP", "EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"),
    *("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR", "NOT_EQUAL", "SELECT", "SELECT_V2"),
}


def answer(data: bytes, x: Array, batch: int | None = None) -> Array:
    graph = load_circle(data, batch=batch, training=STILL).graph
    label = np.zeros(graph.operands[graph.outputs[0]].shape, np.float32)
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step({"x": x, "label": label})
        return np.array(trainer.read(graph.outputs[0]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_like_numpy(case: CircleCase) -> None:
    x = np.random.default_rng(1).uniform(0.5, 2.0, case.shape).astype(np.float32)
    np.testing.assert_allclose(answer(written(case), x), case.expected(x), rtol=2e-5, atol=2e-6)


def test_every_operator_has_a_case() -> None:
    assert {case.code for case in CASES} | ELSEWHERE == set(OPERATORS)
