"""LeNet-5: two convolutions, each followed by a subsampling, three dense layers; 61,706 parameters.

LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", 1998; with
average pooling, all maps of one layer connected to all of the next, and softmax at the end.
"""

from __future__ import annotations

from arenaplan.builder import Model, Tape, adam, layers, ops
from examples.gallery.data import digit_batches
from examples.gallery.example import Example

__all__ = ["EXAMPLE", "build"]


def build(batch: int) -> Model:
    tape = Tape("lenet5", batch=batch)
    x, label = tape.input("image", 28, 28, 1), tape.label("label", 10)
    x = layers.conv(x, 6, 5, activation="Tanh")
    x = ops.pool(x, 2, kind="Average")
    x = layers.conv(x, 16, 5, padding="VALID", activation="Tanh")
    x = ops.flatten(ops.pool(x, 2, kind="Average"))
    x = layers.dense(x, 120, activation="Tanh")
    x = layers.dense(x, 84, activation="Tanh")
    return tape.minimise(ops.cross_entropy(layers.dense(x, 10), label), adam(0.002))


EXAMPLE = Example("lenet5", "LeNet-5 reads drawn digits", build, digit_batches, batch=32, steps=100, goal=0.6)
