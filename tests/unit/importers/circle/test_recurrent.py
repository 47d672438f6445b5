"""UNIDIRECTIONAL_SEQUENCE_LSTM against NumPy: every optional input and option alone, and all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from solver.errors import UnknownOperatorError
from solver.executor import Trainer
from solver.graph import OptimizerSpec
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, load_circle
from solver.pipeline import plan
from tests.support.circle_models import CircleFile
from tests.support.every import grid

STILL = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 1e-30}), "mean-squared-error")
BATCH, STEPS, INPUTS, CELLS, OUTPUTS = 2, 3, 4, 5, 3

#: Groups of optional inputs, by position.
PEEPHOLES, PROJECTION, NORMALISATION = (9, 10, 11), (16, 17), (20, 21, 22, 23)
#: What CIFG leaves out: all that belongs to the gate i.
COUPLED = (1, 5, 9, 12, 20)


def weights(*groups: tuple[int, ...], coupled: bool = False) -> dict[int, Array]:
    random = np.random.default_rng(6)
    outputs = OUTPUTS if PROJECTION in groups else CELLS
    shapes: dict[int, tuple[int, ...]] = {
        **dict.fromkeys(range(1, 5), (CELLS, INPUTS)),
        **dict.fromkeys(range(5, 9), (CELLS, outputs)),
        **dict.fromkeys(range(12, 16), (CELLS,)),
    }
    for group in groups:
        shapes |= dict.fromkeys(group, (CELLS,))
    if PROJECTION in groups:
        shapes |= {16: (OUTPUTS, CELLS), 17: (OUTPUTS,)}
    values = {k: random.standard_normal(shape).astype("f4") for k, shape in shapes.items()}
    return {k: value for k, value in values.items() if not (coupled and k in COUPLED)}


def written(
    given: Mapping[int, Array],
    *,
    activation: str = "TANH",
    time_major: bool = False,
    options: Mapping[str, Any] | None = None,
) -> bytes:
    """The layer behind x [batch, steps, inputs], or [steps, batch, inputs]."""
    file = CircleFile()
    outputs = given[16].shape[0] if 16 in given else CELLS
    lead = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    x = file.input("x", (*lead, INPUTS))
    states = {
        18: file.tensor("output state", (BATCH, outputs)),
        19: file.tensor("cell state", (BATCH, CELLS)),
    }
    for number in states.values():
        file.tensors[number].isVariable = True
    places = {0: x, **{k: file.constant(f"p{k}", value) for k, value in given.items()}, **states}
    y = file.tensor("y", (*lead, outputs))
    file.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", [places.get(k, -1) for k in range(24)], [y],
        "UnidirectionalSequenceLSTMOptions",
        {"fusedActivationFunction": activation, "timeMajor": time_major, **(options or {})},
    )  # fmt: skip
    return file.write(y)


def expected(
    given: Mapping[int, Array],
    x: Array,
    act: Callable[[Array], Array] = np.tanh,
    *,
    clips: Mapping[str, float] | None = None,
) -> Array:
    """TensorFlow Lite's float kernel, for x [batch, steps, inputs]."""
    cell_clip, output_clip = ((clips or {}).get(key, 0.0) for key in ("cellClip", "projClip"))
    wide = {k: v.astype(np.float64) for k, v in given.items()}
    outputs = wide[16].shape[0] if 16 in wide else CELLS
    h, c, found = np.zeros((len(x), outputs)), np.zeros((len(x), CELLS)), []

    def gate(k: int, step: Array, cell: Array | None) -> Array:
        total = step @ wide[1 + k].T + h @ wide[5 + k].T
        peephole = {0: 9, 1: 10, 3: 11}.get(k)
        if cell is not None and peephole in wide:
            total = total + cell * wide[peephole]
        if 20 + k in wide:
            centred = total - total.mean(-1, keepdims=True)
            total = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-8) * wide[20 + k]
        return np.asarray(total + wide[12 + k])

    def sigmoid(value: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-value)))

    for step in x.astype(np.float64).swapaxes(0, 1):
        forget = sigmoid(gate(1, step, c))
        enter = sigmoid(gate(0, step, c)) if 1 in wide else 1 - forget
        c = forget * c + enter * act(gate(2, step, None))
        c = np.clip(c, -cell_clip, cell_clip) if cell_clip else c
        h = sigmoid(gate(3, step, c)) * act(c)
        if 16 in wide:
            h = h @ wide[16].T + wide[17]
            h = np.clip(h, -output_clip, output_clip) if output_clip else h
        found.append(h)
    return np.stack(found, 1)


def answer(data: bytes, x: Array) -> Array:
    graph = load_circle(data, training=STILL).graph
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step({"x": x, "label": np.zeros(graph.operands["y"].shape, np.float32)})
        return np.array(trainer.read("y"))


@grid("groups", [(), (PEEPHOLES,), (PROJECTION,), (NORMALISATION,), (PEEPHOLES, PROJECTION, NORMALISATION)])
@grid("coupled", [False, True])
@grid("clips", [{}, {"cellClip": 0.4, "projClip": 0.3}])
def test_like_numpy(groups: tuple[tuple[int, ...], ...], coupled: bool, clips: dict[str, float]) -> None:
    given = weights(*groups, coupled=coupled)
    x = np.random.default_rng(1).standard_normal((BATCH, STEPS, INPUTS)).astype("f4")
    found = answer(written(given, options=clips), x)
    np.testing.assert_allclose(found, expected(given, x, clips=clips), rtol=2e-5, atol=2e-6)


def test_time_in_front() -> None:
    for groups in ((), (PROJECTION,)):
        given = weights(*groups)
        x = np.random.default_rng(1).standard_normal((BATCH, STEPS, INPUTS)).astype("f4")
        found = answer(written(given, time_major=True), x.swapaxes(0, 1).copy())
        np.testing.assert_allclose(found.swapaxes(0, 1), expected(given, x), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("activation", "function"),
    [("NONE", lambda v: v), ("RELU", lambda v: np.maximum(v, 0)), ("RELU6", lambda v: np.clip(v, 0, 6))],
)
def test_activations_of_the_cell(activation: str, function: Callable[[Array], Array]) -> None:
    given = weights()
    x = np.random.default_rng(1).standard_normal((BATCH, STEPS, INPUTS)).astype("f4")
    found = answer(written(given, activation=activation), x)
    np.testing.assert_allclose(found, expected(given, x, function), rtol=2e-5, atol=2e-6)


def test_all_its_weights_are_trained() -> None:
    given = weights(PEEPHOLES, PROJECTION, NORMALISATION)
    graph = load_circle(written(given), training=STILL).graph
    assert {name for name in graph.trainable if name.startswith("p")} == {f"p{k}" for k in given}
    plain = load_circle(written(weights()), training=STILL).graph
    assert set(plain.trainable) == {f"p{k}" for k in weights()}
    assert "LSTMCell" in {o.type for o in plain.operations}


def test_refused_by_name() -> None:
    with pytest.raises(UnknownOperatorError, match="has the activation SIGN_BIT"):
        load_circle(written(weights(), activation="SIGN_BIT"), training=STILL)
    with pytest.raises(UnknownOperatorError, match="has diagonal recurrent weights"):
        load_circle(written(weights(), options={"diagonalRecurrentTensors": True}), training=STILL)
