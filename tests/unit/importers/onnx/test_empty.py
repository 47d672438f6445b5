"""Models with tensors of no elements: parts that are cut to nothing, joined again, and batches of none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from solver.documents import dump_graph, load_graph
from solver.errors import DimensionError, TrainableError
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from tests.support.onnx_models import model_of, node, nodes_of


def imported(model: onnx.ModelProto, **options: int) -> TrainableGraph:
    chosen = ImportOptions(loss="mse", dims=options)
    return load_onnx(model.SerializeToString(), options=chosen).graph


GEMM = node("Gemm", ["x", "w", "b"], ["h"])
PARTS = {
    "an empty constant": [GEMM, node("Concat", ["h", "none"], ["y"], axis=1)],
    "an empty slice": [
        GEMM,
        node("Slice", ["h", "two", "two"], ["e"]),
        node("Concat", ["h", "e"], ["y"], axis=0),
    ],
    "an empty part": [
        GEMM,
        node("Split", ["h", "sizes"], ["p", "q"], axis=1),
        node("Concat", ["q", "p"], ["y"], axis=1),
    ],
    "an empty shape": [
        GEMM,
        *nodes_of("Shape h whole, Slice whole two two rest"),
        node("Concat", ["whole", "rest"], ["shape"], axis=0),
        node("Reshape", ["h", "shape"], ["y"]),
    ],
}


@pytest.mark.parametrize("parts", PARTS)
def test_parts_of_no_elements(parts: str) -> None:
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.standard_normal((3, 4)).astype(np.float32),
        "b": np.ones(4, np.float32),
        "none": np.zeros((2, 0), np.float32),
        "two": np.array([2]),
        "sizes": np.array([4, 0]),
    }
    used = {name for made in PARTS[parts] for name in made.input}
    model = model_of(PARTS[parts], {"x": (2, 3)}, {k: v for k, v in constants.items() if k in used})
    graph = imported(model)
    assert set(graph.trainable) == {"w", "b"}
    again = load_graph(dump_graph(graph))
    assert validate(again, plan(again), steps=2).identical


def test_weights_without_elements_are_nothing_to_train() -> None:
    weights = {"w": np.ones((3, 0), np.float32), "b": np.ones(0, np.float32)}
    model = model_of([node("Gemm", ["x", "w", "b"], ["y"])], {"x": (2, 3)}, weights)
    with pytest.raises(TrainableError, match=r"its weights have no elements \(w, b\)"):
        imported(model)


def test_a_dimension_of_0_is_open_and_may_be_0() -> None:
    weights = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    model = model_of([node("Gemm", ["x", "w", "b"], ["y"])], {"x": (0, 3)}, weights)
    with pytest.raises(DimensionError, match=r"--dim x\[0\]=SIZE"):
        imported(model)
    graph = imported(model, **{"x[0]": 0})
    assert graph.operands["x"].shape == (0, 3)
    assert validate(graph, plan(graph), steps=1).identical
