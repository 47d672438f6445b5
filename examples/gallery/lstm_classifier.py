"""An LSTM that tells gestures from an accelerometer: one cell for each moment, one set of weights for all.

The cells share their weights, so each cell adds a partial gradient, and the update waits for the first cell.
"""

from __future__ import annotations

from functools import partial

from examples.builder import Model, Tape, adam, layers, ops
from examples.gallery.data import GESTURES, gesture_batches
from examples.gallery.example import Example

__all__ = ["EXAMPLE", "build"]

LENGTH, UNITS = 24, 32


def build(batch: int) -> Model:
    tape = Tape("lstm_classifier", batch=batch)
    motion, label = tape.input("motion", LENGTH, 3), tape.label("label", len(GESTURES))
    moments = [ops.flatten(moment) for moment in ops.split(motion, 1, name="moments")]
    hidden = layers.lstm(moments, UNITS)
    loss = ops.cross_entropy(layers.dense(hidden, len(GESTURES)), label)
    return tape.minimise(loss, adam(0.01))


EXAMPLE = Example(
    "lstm_classifier", "An LSTM that tells gestures", build, partial(gesture_batches, length=LENGTH),
    batch=32, steps=80, goal=0.4,
)  # fmt: skip
