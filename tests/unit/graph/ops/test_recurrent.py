"""Recurrent cells: shapes, refusals, what backward reads, what is saved."""

from __future__ import annotations

import pytest

from solver.graph.ops import lookup
from solver.graph.ops.recurrent import Cell, cell
from tests.support.one_node import Input, node_of

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
