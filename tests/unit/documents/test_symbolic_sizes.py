"""Constants of a graph document whose elements are names of dimensions."""

from __future__ import annotations

from typing import Any

import pytest

from solver.documents import load_graph
from solver.errors import DocumentError


def expanded(*sizes: Any) -> dict[str, Any]:
    """A weight that is expanded to `sizes`, beside a label ["batch", "seq"]."""
    operands: list[dict[str, Any]] = [
        {"name": "w", "role": "parameter", "shape": [1, 1], "dtype": "float32"},
        {"name": "sizes", "role": "constant", "shape": [2], "dtype": "int64"},
        {"name": "label", "role": "label", "shape": ["batch", "seq"], "dtype": "float32"},
    ]
    operands[1]["initializer"] = {"kind": "values", "values": [*sizes]}
    operations = [
        {"name": "expand", "type": "Expand", "inputs": ["w", "sizes"], "outputs": ["y"]},
        {"name": "mse", "type": "MeanSquaredError", "inputs": ["y", "label"], "outputs": ["loss"]},
    ]
    document: dict[str, Any] = {"format": "arenaplan.graph", "version": 1, "name": "g", "batch": 2}
    document |= {"dims": {"seq": 3}, "operands": operands, "operations": operations, "loss": "loss"}
    return {**document, "optimizer": {"type": "SGD", "learning_rate": 0.1}}


@pytest.mark.parametrize("sizes", [("batch", "seq"), ("batch", 3)])
def test_sizes_follow_the_dimensions(sizes: tuple[Any, ...]) -> None:
    graph = load_graph(expanded(*sizes))
    assert graph.operands["y"].shape == (2, 3)
    assert graph.at(batch=5).operands["y"].shape == (5, 3)
    assert load_graph(expanded(*sizes), batch=7).operands["y"].shape == (7, 3)


@pytest.mark.parametrize("wrong", ["rows", "NaN", {}, True])
def test_other_words_are_no_sizes(wrong: Any) -> None:
    with pytest.raises(DocumentError, match="no int64 element of operand 'sizes'") as caught:
        load_graph(expanded(wrong, 3))
    assert caught.value.path[-2:] == ("values", 0)
