"""Recurrent cells: forward from the formulas, derivatives, states left out, PyTorch's cells."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal

B, D, H = 3, 4, 2
GATES = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}


def operands(
    type_: str, *, biases: int = 2, states: str = "hc", peepholes: bool = False, front: tuple[int, ...] = ()
) -> list[Array | None]:
    """X, states, W, R, `biases` times as many biases as rows, peepholes."""
    rows = GATES[type_] * H
    given = [0.5 * normal(*front, B, H) if name in states else None for name in ("hc" if rows == 8 else "h")]
    bias = normal(*front, biases * rows) if biases else None
    optional = [bias, normal(*front, 3 * H)] if peepholes else [bias]
    return [normal(*front, B, D), *given, normal(*front, rows, D), normal(*front, rows, H), *optional]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def state(values: list[Array | None], position: int) -> Array:
    given = values[position]
    return np.zeros((B, H)) if given is None else given


def sums(x: Array, h: Array, rest: list[Array | None]) -> tuple[Array, Array]:
    """The sums that the gates take of X and of H, each with its bias."""
    w, r, bias = rest[:3]
    assert w is not None
    assert r is not None
    both = np.zeros(2 * len(w)) if bias is None else np.concatenate([bias, np.zeros(2 * len(w) - len(bias))])
    return np.asarray(x @ w.T + both[: len(w)]), np.asarray(h @ r.T + both[len(w) :])


def lstm(values: list[Array | None]) -> tuple[Array, Array]:
    x, h, c = state(values, 0), state(values, 1), state(values, 2)
    seen, recalled = sums(x, h, values[3:])
    i, o, f, g = np.split(seen + recalled, 4, axis=1)
    peep = values[6] if len(values) > 6 else None
    p_i, p_o, p_f = np.zeros((3, H)) if peep is None else np.split(peep, 3)
    after = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * np.tanh(g)
    return sigmoid(o + p_o * after) * np.tanh(after), after


def gru(values: list[Array | None], linear: int) -> Array:
    x, h = state(values, 0), state(values, 1)
    seen, recalled = sums(x, h, values[2:])
    z, r = sigmoid(seen + recalled)[:, : 2 * H].reshape(B, 2, H).swapaxes(0, 1)
    weights, bias = values[3], recalled[:, 2 * H :] - h @ np.asarray(values[3])[2 * H :].T
    assert weights is not None
    hidden = r * recalled[:, 2 * H :] if linear else (r * h) @ weights[2 * H :].T + bias
    return np.asarray((1 - z) * np.tanh(seen[:, 2 * H :] + hidden) + z * h)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Tanh": lambda x: np.asarray(np.tanh(x)),
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": sigmoid,
}
LSTMS = list(product((0, 1, 2), ("hc", "h", "c", ""), (False, True)))


@grid(("biases", "states", "peepholes"), LSTMS)
def test_lstm(biases: int, states: str, peepholes: bool) -> None:
    values = operands("LSTMCell", biases=biases, states=states, peepholes=peepholes)
    operation = OneOperation("LSTMCell", values)
    for found, expected in zip(operation.forward_all(), lstm(values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    operation.assert_derivatives()


@grid(("biases", "states", "linear"), list(product((0, 1, 2), ("h", ""), (0, 1))))
def test_gru(biases: int, states: str, linear: int) -> None:
    values = operands("GRUCell", biases=biases, states=states)
    operation = OneOperation("GRUCell", values, linear_before_reset=linear)
    np.testing.assert_allclose(operation.forward(), gru(values, linear), rtol=1e-12, atol=1e-14)
    operation.assert_derivatives()


@grid(("biases", "states", "nonlinearity"), list(product((0, 1, 2), ("h", ""), ("Tanh", "Relu", "Sigmoid"))))
def test_rnn(biases: int, states: str, nonlinearity: str) -> None:
    values = operands("RNNCell", biases=biases, states=states)
    seen, recalled = sums(state(values, 0), state(values, 1), values[2:])
    operation = OneOperation("RNNCell", values, nonlinearity=nonlinearity)
    expected = FUNCTIONS[nonlinearity](seen + recalled)
    np.testing.assert_allclose(operation.forward(), expected, rtol=1e-12, atol=1e-14)
    operation.assert_derivatives()


@pytest.mark.parametrize("type_", GATES)
def test_an_axis_in_front_changes_nothing_else(type_: str) -> None:
    values = operands(type_)
    plain = OneOperation(type_, values)
    framed = OneOperation(type_, [None if value is None else value[None] for value in values])
    for inner, outer in zip(plain.forward_all(), framed.forward_all(), strict=True):
        np.testing.assert_array_equal(outer, inner[None])
    dy = [normal(*output.shape) for output in plain.types]
    wanted = range(len(values))
    inside, outside = plain.backward(dy, *wanted), framed.backward([each[None] for each in dy], *wanted)
    for position in wanted:
        np.testing.assert_array_equal(outside[position], inside[position][None])


def reordered(array: Array, order: tuple[int, ...]) -> Array:
    """Rows of the gates in PyTorch's order."""
    parts = np.split(array, len(order))
    return np.concatenate([parts[i] for i in order])


@pytest.mark.parity
@pytest.mark.parametrize(
    ("type_", "attributes", "order"),
    [
        ("LSTMCell", {}, (0, 2, 3, 1)),
        ("GRUCell", {"linear_before_reset": 1}, (1, 0, 2)),
        ("RNNCell", {}, (0,)),
        ("RNNCell", {"nonlinearity": "Relu"}, (0,)),
    ],
)
def test_pytorch_agrees(type_: str, attributes: dict[str, Any], order: tuple[int, ...]) -> None:
    import torch

    values = [np.asarray(value) for value in operands(type_)]
    operation = OneOperation(type_, values, **attributes)
    states, rows = operation.kind.outputs or 1, GATES[type_] * H
    w, r, bias = values[1 + states :]
    options = {"nonlinearity": "relu"} if attributes.get("nonlinearity") == "Relu" else {}
    eager = getattr(torch.nn, type_)(D, H, dtype=torch.float64, **options)
    parameters = zip(eager.parameters(), (w, r, bias[:rows], bias[rows:]), strict=True)
    for parameter, value in parameters:
        parameter.data = torch.tensor(reordered(value, order))
    given = [torch.tensor(value, requires_grad=True) for value in values[: 1 + states]]
    outputs = eager(given[0], tuple(given[1:])) if states == 2 else (eager(given[0], given[1]),)
    dy = [normal(B, H) * (k + 1) for k in range(states)]
    torch.autograd.backward(list(outputs), [torch.tensor(each) for each in dy])
    for found, expected in zip(operation.forward_all(), outputs, strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
    found_derivatives = operation.backward(dy, *range(len(values)))
    for position, tensor in enumerate(given):
        np.testing.assert_allclose(found_derivatives[position], tensor.grad.numpy(), rtol=1e-9, atol=1e-11)
    d_bias = found_derivatives[3 + states]
    ours = (*(found_derivatives[i] for i in (1 + states, 2 + states)), d_bias[:rows], d_bias[rows:])
    for mine, parameter in zip(ours, eager.parameters(), strict=True):
        theirs = parameter.grad.numpy()
        np.testing.assert_allclose(reordered(mine, order), theirs, rtol=1e-9, atol=1e-11)
