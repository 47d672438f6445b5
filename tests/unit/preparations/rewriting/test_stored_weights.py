"""Rules beside stored weights: none reads or folds one; graphs rewritten around them are proved and train."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.documents import dump_graph, dump_plan, load_graph, load_plan
from solver.executor import rewritten, validate
from solver.graph import Initializer, Role, TrainableGraph
from solver.graph.storage import Storage
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from tests.support.graphs import Sketch


def constant(s: Sketch, name: str, *shape: int, storage: Storage | None = None, least: float = -1.0) -> str:
    values = np.random.default_rng(len(name)).uniform(least, 2, shape).astype(np.float32)
    data = Initializer("values", values.tobytes())
    return s.add(name, Role.CONSTANT, shape, initializer=data, storage=storage)


def normalised(storage: Storage | None) -> TrainableGraph:
    """A frozen convolution with its normalisation, both of constants, behind a trained one."""
    s = Sketch("normalised")
    h = s.op("Conv", [s.input("x", 2, 4, 5, 5), s.parameter("k", 4, 4, 2, 2)], "h")
    h = s.op("Conv", [h, constant(s, "filters", 6, 4, 2, 2, storage=storage)], "a")
    norm = [constant(s, name, 6, least=0.5) for name in ("scale", "shift", "mean", "variance")]
    h = s.op("BatchNormalization", [h, *norm], "b")
    s.op("MeanSquaredError", [h, s.label("t", 2, 6, 3, 3)], "loss")
    return s.graph()


def biased(storage: Storage | None) -> TrainableGraph:
    """Products with stored constants whose biases are operations of their own, and a product of constants."""
    s = Sketch("biased")
    h = s.op("MatMul", [s.input("x", 3, 16), constant(s, "w", 16, 8, storage=storage)], "h")
    h = s.op("Add", [h, s.parameter("b", 8)], "biased")
    turned = None if storage is None else replace(storage, axis=0)
    folded = s.op(
        "Gemm", [constant(s, "left", 3, 8), constant(s, "right", 8, 8, storage=turned)], "f", transB=1
    )
    h = s.op("Add", [s.op("Relu", [h], "r"), folded], "sum")
    h = s.op("Transpose", [h], "turned", perm=(1, 0))
    h = s.op("MatMul", [s.op("Transpose", [h], "again", perm=(1, 0)), constant(s, "last", 8, 4)], "z")
    s.op("MeanSquaredError", [h, s.label("t", 3, 4)], "loss")
    return s.graph()


def rewriting(graph: TrainableGraph) -> tuple[Plan, set[str]]:
    graph = load_graph(dump_graph(graph))
    found = load_plan(dump_plan(plan(graph, PlanOptions(rewrite=True, in_place=True))))
    before = {o.id: o.type for o in graph.operands.values() if o.type.storage is not None}
    after = {o.id: o.type for o in rewritten(graph, found).operands.values() if o.type.storage is not None}
    assert before == after
    assert validate(graph, found, steps=2).identical
    return found, {replacement.rule for replacement in found.replacements}


@pytest.mark.parametrize("storage", [Storage("bfloat16"), Storage("int4", 8)], ids=str)
def test_a_normalisation_is_folded_into_floats_alone(storage: Storage) -> None:
    assert "fold-normalization" in rewriting(normalised(None))[1]
    assert "fold-normalization" not in rewriting(normalised(storage))[1]


@pytest.mark.parametrize("storage", [Storage("float16", axis=1), Storage("int8", 8, axis=1)], ids=str)
def test_products_of_stored_constants_stay_products(storage: Storage) -> None:
    """Their biases and transposes are rewritten as those of floats are."""
    floats, rules = rewriting(biased(None))[1], rewriting(biased(storage))[1]
    assert "fold-constants" in floats
    assert "fold-constants" not in rules
    assert rules >= floats - {"fold-constants"}
