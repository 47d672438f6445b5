"""Layers of nntrainer that read sequences: recurrent ones, and embeddings of indices.

What nntrainer calls 1:t:f is a sequence of t steps with f features, an image of one channel for other layers;
a matrix is a sequence of a single step. Gates lie in our operators' order, which decides nothing before
weights are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from solver.graph import AttributeValue, DType, Initializer, Role
from solver.importers.nntrainer.ini import Section
from solver.importers.nntrainer.network import (
    WEIGHT_KEYS,
    Network,
    Value,
    check_penalties,
    only_input,
    parameter,
)

__all__ = ["CELL_KEYS", "EMBEDDING_KEYS", "RECURRENT_KEYS", "cell", "embedding", "recurrent", "reshaped"]

CELL_KEYS: Final = WEIGHT_KEYS | {"unit", "hidden_state_activation", "integrate_bias", "dropout_rate"}
RECURRENT_KEYS: Final = CELL_KEYS | {"return_sequences", "max_timestep"}
EMBEDDING_KEYS: Final = frozenset(
    {
        *("in_dim", "out_dim", "in_length", "weight_initializer"),
        *("weight_regularizer", "weight_regularizer_constant", "weight_decay"),
    }
)

_NONLINEARITIES: Final = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}

_Builder = Callable[[Network, Section, Sequence[Value], str], Value]


def recurrent(type_: str, gates: int) -> _Builder:
    """The builder of an LSTM, a GRU or an RNN."""

    def build(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
        value = only_input(section, inputs)
        batch, steps, features = _sequence_shape(section, value)
        units, returns = section.integer("unit", least=1), section.flag("return_sequences", default=False)
        attributes = _attributes(section, type_, steps, returns=returns)
        directions = 2 if "direction" in attributes else 1
        sequence = reshaped(network, section, value.name, (batch, steps, features), "sequence")
        names = [sequence.name, *_weights(network, section, gates * units, (units, features), directions)]
        states = network.emit(section, type_, names, (), attributes, skipped=0 if returns else 1)
        width = units * directions
        shape = (batch, 1, steps, width) if returns and steps > 1 else (batch, width)
        return reshaped(network, section, states.name, shape, "states")

    return build


def _sequence_shape(section: Section, value: Value) -> tuple[int, int, int]:
    if len(value.shape) == 2:
        return value.shape[0], 1, value.shape[1]
    batch, channels, steps, features = value.shape
    if channels != 1:
        section.fail("type", f"reads {channels} channels", "A sequence is 1:steps:features.")
    if section.integer("max_timestep", steps) != steps:
        section.fail("max_timestep", f"is not the {steps} steps of the input", "Leave it out.")
    return batch, steps, features


def _attributes(section: Section, type_: str, steps: int, *, returns: bool) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"layout": 1, **_cell_attributes(section, type_)}
    if type_ == "LSTM" and section.flag("bidirectional", default=False):
        if steps > 1 and not returns:
            what = "takes the last step of both directions, of which the reverse one has seen a single step"
            section.fail("bidirectional", what, "Say return_sequences = true.")
        attributes["direction"] = "bidirectional"
    return attributes


def _cell_attributes(section: Section, type_: str) -> dict[str, AttributeValue]:
    """Raises DocumentError for activations that the operators do not have, and for dropout inside."""
    if "dropout_rate" in section and section.number("dropout_rate") != 0:
        section.fail("dropout_rate", "drops states between steps", "Put a dropout layer behind it.")
    if type_ == "RNN":
        word = section.choice("hidden_state_activation", _NONLINEARITIES, "tanh")
        return {"nonlinearity": _NONLINEARITIES[word]}
    section.choice("hidden_state_activation", ("tanh",), "tanh")
    section.choice("recurrent_activation", ("sigmoid",), "sigmoid")
    if type_ == "GRU":
        return {"linear_before_reset": int(section.flag("reset_after", default=True))}
    return {}


def cell(type_: str, gates: int) -> _Builder:
    """The builder of a single step: it reads its input and the states before, a layer each."""
    states = 2 if type_ == "LSTM" else 1

    def build(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
        if len(inputs) != 1 + states:
            what = f"names {len(inputs)} layers"
            section.fail("input_layers", what, f"This type reads its input and {states} state(s).")
        units = section.integer("unit", least=1)
        value, *before = inputs
        if len(value.shape) != 2 or any(state.shape != (value.shape[0], units) for state in before):
            what = "names layers that are not matrices, or states of another width"
            section.fail("input_layers", what, f"States are 1:1:{units}.")
        weights = _weights(network, section, gates * units, (units, value.shape[1]), 1)
        names = [*(each.name for each in inputs), *weights]
        attributes = _cell_attributes(section, type_)
        further = [f"{section.name}.cell"] if states == 2 else []
        shape = (value.shape[0], units)
        return network.emit(section, f"{type_}Cell", names, shape, attributes, further=further)

    return build


def _weights(
    network: Network, section: Section, rows: int, sizes: tuple[int, int], directions: int
) -> list[str]:
    """W, R and B, with an axis of directions where there are two."""
    check_penalties(section)
    units, features = sizes
    front = (2,) if directions == 2 else ()
    own = ("weight_initializer", "xavier_uniform")
    names = []
    for what, columns in (("weight", features), ("recurrent", units)):
        fans = (rows, columns)
        names.append(parameter(network, section, what, *own, shape=(*front, *fans), fans=fans))
    if not section.flag("disable_bias", default=False):
        count = rows if section.flag("integrate_bias", default=False) else 2 * rows
        own = ("bias_initializer", "zeros")
        names.append(parameter(network, section, "bias", *own, shape=(*front, count), fans=(rows, features)))
    return names


def reshaped(network: Network, section: Section, name: str, shape: tuple[int, ...], what: str) -> Value:
    """The same elements in another shape, by an operation called after the section and `what`."""
    data = Initializer("values", np.array(shape, np.int64).tobytes())
    constant = network.declare(
        section, f"{section.name}.{what}.shape", Role.CONSTANT, (len(shape),), data, dtype=DType.INT64
    )
    return network.emit(section, "Reshape", [name, constant], shape, name=f"{section.name}.{what}")


def embedding(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    """Rows of a table by index: 1:1:n indices become a sequence of n steps."""
    value = only_input(section, inputs)
    if not value.is_index:
        section.fail("input_layers", "names a layer that makes no indices", "Let it read an input layer.")
    check_penalties(section)
    count, width = section.integer("in_dim", least=1), section.integer("out_dim", least=1)
    batch, length = value.shape
    if section.integer("in_length", length) != length:
        section.fail("in_length", f"is not the {length} indices of the input", "Leave it out.")
    shape = (count, width)
    own = ("weight_initializer", "xavier_uniform")
    table = parameter(network, section, "weight", *own, shape=shape, fans=shape)
    rows = network.emit(section, "Gather", [table, value.name], (batch, length, width))
    return reshaped(network, section, rows.name, (batch, 1, length, width), "sequence")
