"""Recurrent cells: shapes, refusals, what backward reads, what is saved."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.recurrent import Cell, cell
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

B, D, H = 3, 5, 2


def operands(type_: str, *, front: tuple[int, ...] = ()) -> list[Input]:
    """X, states, W, R and both biases."""
    gates = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}[type_]
    states: list[Input] = [(*front, B, H)] * (2 if type_ == "LSTMCell" else 1)
    weights: list[Input] = [(*front, gates * H, D), (*front, gates * H, H), (*front, 2 * gates * H)]
    return [(*front, B, D), *states, *weights]


CELLS = ("LSTMCell", "GRUCell", "RNNCell")


@pytest.mark.parametrize("type_", CELLS)
def test_states_come_out_as_they_go_in(type_: str) -> None:
    outputs = 2 if type_ == "LSTMCell" else 1
    node = node_of(type_, operands(type_), outputs=outputs)
    assert [output.shape for output in node.outputs] == [(B, H)] * outputs
    gates = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}[type_]
    assert cell(node) == Cell(B, D, H, gates, outputs)


@pytest.mark.parametrize("type_", CELLS)
def test_an_axis_of_size_one_may_stand_in_front(type_: str) -> None:
    outputs = 2 if type_ == "LSTMCell" else 1
    node = node_of(type_, operands(type_, front=(1,)), outputs=outputs)
    assert [output.shape for output in node.outputs] == [(1, B, H)] * outputs
    mixed = [(B, D), *operands(type_, front=(1,))[1:]]
    assert node_of(type_, mixed, outputs=outputs).outputs[0].shape == (B, H)


def test_states_and_biases_may_be_left_out() -> None:
    assert output_of("RNNCell", [(B, D), None, (H, D), (H, H)]) == (B, H)
    assert output_of("GRUCell", [(B, D), None, (3 * H, D), (3 * H, H), (3 * H,)]) == (B, H)
    inputs: list[Input] = [(B, D), None, None, (4 * H, D), (4 * H, H), None, (3 * H,)]
    assert node_of("LSTMCell", inputs, outputs=2).outputs[1].shape == (B, H)


REFUSALS: list[tuple[str, list[Input], str]] = [
    ("RNNCell", [(B, D), None, (H, D + 1), (H, H)], r"expected W \[1 H, 5\] and R \[1 H, H\]"),
    ("GRUCell", [(B, D), None, (H, D), (H, H)], r"expected W \[3 H, 5\]"),
    ("RNNCell", [(B, D), (B, H + 1), (H, D), (H, H)], r"a state of shape \[3, 2\]"),
    ("RNNCell", [(B, D), (B + 1, H), (H, D), (H, H)], r"a state of shape \[3, 2\]"),
    ("GRUCell", [(B, D), None, (3 * H, D), (3 * H, H), (4 * H,)], "expected 6 or 12 biases"),
    ("RNNCell", [(2, B, D), None, (H, D), (H, H)], "expected input 0 to have 2 axes"),
    ("RNNCell", [(B, D), None, (H, D), (2, H, H)], "expected input 3 to have 2 axes"),
    ("RNNCell", [(B, D), TensorType((B, H), DType.FLOAT64), (H, D), (H, H)], "one floating element type"),
]


@grid(("type_", "inputs", "reason"), REFUSALS)
def test_refusals(type_: str, inputs: list[Input], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \({type_}\).*{reason}"):
        node_of(type_, inputs)


def test_refusals_of_an_lstm() -> None:
    inputs = operands("LSTMCell")
    with pytest.raises(ShapeMismatchError, match="expected 6 weights of peepholes"):
        node_of("LSTMCell", [*inputs, (4 * H,)], outputs=2)
    inputs[2] = (B, H + 1)
    with pytest.raises(ShapeMismatchError, match=r"a state of shape \[3, 2\]"):
        node_of("LSTMCell", inputs, outputs=2)


@pytest.mark.parametrize(
    ("type_", "key", "value"), [("GRUCell", "linear_before_reset", 2), ("RNNCell", "nonlinearity", "Softmax")]
)
def test_attributes(type_: str, key: str, value: Any) -> None:
    with pytest.raises(AttributeRuleError, match=f"Attribute '{key}'"):
        node_of(type_, operands(type_), **{key: value})


READS: list[tuple[str, dict[str, Any], tuple[int, ...], set[int], set[int]]] = [
    ("RNNCell", {}, (0,), {2}, {0}),
    ("RNNCell", {}, (2, 3, 4), {0, 1}, {0}),
    ("RNNCell", {}, (1,), {3}, {0}),
    ("GRUCell", {}, (0,), {1, 2, 3}, set()),
    ("GRUCell", {"linear_before_reset": 1}, (0,), {1, 2}, set()),
    ("GRUCell", {"linear_before_reset": 1}, (2, 3, 4), {0, 1}, set()),
    ("LSTMCell", {}, (0, 1, 2), {2, 3, 4}, {1}),
    ("LSTMCell", {}, (3, 4, 5), {0, 1, 2}, {1}),
]


@grid(("type_", "attributes", "wanted", "inputs", "outputs"), READS)
def test_what_backward_reads(
    type_: str, attributes: dict[str, Any], wanted: tuple[int, ...], inputs: set[int], outputs: set[int]
) -> None:
    given = operands(type_)
    if type_ == "LSTMCell":
        node = node_of(type_, given, outputs=2)
        needs = lookup(type_).backward(node, frozenset(wanted))
        assert (set(needs.inputs), set(needs.outputs)) == (inputs, outputs)
    else:
        assert needs_of(type_, given, wanted, **attributes)[:2] == (inputs, outputs)


@pytest.mark.parametrize("type_", ["LSTMCell", "GRUCell", "RNNCell"])
def test_what_is_left_out_is_not_read(type_: str) -> None:
    inputs = operands(type_)
    states = 2 if type_ == "LSTMCell" else 1
    inputs[1 : 1 + states] = [None] * states
    node = node_of(type_, inputs, outputs=states)
    needs = lookup(type_).backward(node, frozenset({0, states + 1, states + 2}))
    assert set(needs.inputs) == {0, states + 1}
    assert lookup(type_).forward_scratch(node) == ()


def test_what_is_saved() -> None:
    """The gates, activated; and what a reset gate was applied to. An RNN has its output for that."""
    saved = {
        (type_, linear): [
            (request.name, request.type.shape)
            for request in lookup(type_).saved(
                node_of(
                    type_,
                    operands(type_),
                    outputs=2 if type_ == "LSTMCell" else 1,
                    **({"linear_before_reset": 1} if linear else {}),
                )
            )
        ]
        for type_, linear in [(each, False) for each in CELLS] + [("GRUCell", True)]
    }
    assert saved == {
        ("LSTMCell", False): [("gates", (B, 4 * H))],
        ("GRUCell", False): [("gates", (B, 3 * H))],
        ("GRUCell", True): [("gates", (B, 3 * H)), ("product", (B, H))],
        ("RNNCell", False): [],
    }
