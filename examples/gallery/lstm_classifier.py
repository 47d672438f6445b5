"""An LSTM that tells gestures from an accelerometer: one cell for each moment, one set of weights for all.

The sequence is one operation of the document and a chain of cells in the graph. They share their weights,
so each adds a partial gradient; clipping by the norm of all gradients holds every update until the last one.
"""

from __future__ import annotations

from functools import partial

from arenaplan.builder import Model, Tape, adam, layers, ops
from examples.gallery.data import GESTURES, gesture_batches
from examples.gallery.example import Example

__all__ = ["EXAMPLE", "build"]

LENGTH, UNITS = 24, 32


def build(batch: int) -> Model:
    tape = Tape("lstm_classifier", batch=batch)
    motion, label = tape.input("motion", LENGTH, 3), tape.label("label", len(GESTURES))
    loss = ops.cross_entropy(layers.dense(layers.lstm(motion, UNITS), len(GESTURES)), label)
    return tape.minimise(loss, adam(0.01), training={"clip_global_norm": 1.0})


EXAMPLE = Example(
    "lstm_classifier", "An LSTM that tells gestures", build, partial(gesture_batches, length=LENGTH),
    batch=32, steps=80, goal=0.3,
)  # fmt: skip
