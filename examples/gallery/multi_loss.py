"""One trunk, three objectives: which digit, whether it is odd, and what it looks like.

The losses are ordinary operations; their weighted sum is what training minimises.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arenaplan.builder import Batch, Model, Tape, adam, layers, ops
from examples.gallery.data import digit_batches
from examples.gallery.example import Example

__all__ = ["EXAMPLE", "batches", "build"]


def build(batch: int) -> Model:
    tape = Tape("multi_loss", batch=batch)
    image, label = tape.input("image", 28, 28, 1), tape.label("label", 10)
    odd, small = tape.label("odd", 1), tape.label("small", 14, 14, 1)
    trunk = layers.conv(image, 8, 5, stride=2, activation="Relu", name="trunk")
    features = layers.dense(ops.flatten(ops.pool(trunk, 2)), 64, activation="Relu", name="features")
    which = ops.cross_entropy(layers.dense(features, 10, name="which"), label, name="which_loss")
    parity = ops.binary_cross_entropy(layers.dense(features, 1, name="odd_logit"), odd, name="odd_loss")
    drawn = layers.dense(features, 14 * 14, name="drawing").reshape(-1, 14, 14, 1)
    looks = ops.mean_squared_error(drawn, small, name="looks_loss")
    loss = which + 0.5 * parity + 4 * looks
    return tape.minimise(loss, adam(0.003), outputs=[which, parity, looks])


def batches(seed: int, size: int) -> Iterator[Batch]:
    for batch in digit_batches(seed, size):
        digit = batch["label"].argmax(axis=1)
        small = batch["image"].reshape(size, 14, 2, 14, 2, 1).mean(axis=(2, 4))
        yield {**batch, "odd": (digit % 2)[:, None].astype(np.float32), "small": small}


EXAMPLE = Example(
    "multi_loss", "Three weighted losses on one trunk", build, batches, batch=32, steps=120, goal=1.6
)
