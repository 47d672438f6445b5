"""Personalization: a trained model meets one person's digits and adapts a little of itself.

`BIASES` trains biases alone: no gradient of a weight, so no input of a layer is kept for one. `LAST` trains
the last two layers: the backward pass ends there. The person writes in mid-grey on a bright ground.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from arenaplan.builder import Batch, Model, Tape, adam, layers, ops
from arenaplan.builder.tape import Trainable
from examples.gallery.data import digit_batches
from examples.gallery.example import Example

__all__ = ["BIASES", "LAST", "batches", "build_biases", "build_last", "everybody", "prepare"]

_EVERYBODY_STEPS = 80


def _model(name: str, batch: int, trainable: Trainable) -> Model:
    tape = Tape(name, batch=batch)
    x, label = tape.input("image", 28, 28, 1), tape.label("label", 10)
    x = layers.conv(x, 8, 5, stride=2, activation="Relu")
    x = layers.conv(x, 16, 5, stride=2, activation="Relu")
    x = layers.dense(ops.flatten(x), 64, activation="Relu")
    loss = ops.cross_entropy(layers.dense(x, 10), label)
    return tape.minimise(loss, adam(0.003), trainable=trainable)


def everybody(batch: int) -> Model:
    """The model that leaves the factory; everything in it is trained."""
    return _model("everybody", batch, "all")


def build_biases(batch: int) -> Model:
    return _model("bias_only", batch, [f"{name}.bias" for name in ("conv1", "conv2", "dense1", "dense2")])


def build_last(batch: int) -> Model:
    return _model("last_layers", batch, {"last": 2})


def prepare(model: Model) -> Model:
    """`model` with the weights of an `everybody` that has been trained."""
    batch = 32
    trainer = everybody(batch).trainer()
    for digits in islice(digit_batches(1, batch), _EVERYBODY_STEPS):
        trainer.step(digits)
    return model.starting_from({name: trainer.read(name) for name in trainer.graph.trainable})


def batches(seed: int, size: int) -> Iterator[Batch]:
    """One person's hand."""
    for batch in digit_batches(seed + 500, size):
        yield {"image": 0.35 + 0.5 * batch["image"], "label": batch["label"]}


BIASES = Example(
    "bias_only", "Only biases adapt to one person", build_biases, batches,
    batch=16, steps=80, goal=0.8, prepare=prepare,
)  # fmt: skip

LAST = Example(
    "last_layers", "The last two layers adapt to one person", build_last, batches,
    batch=16, steps=60, goal=0.5, prepare=prepare,
)  # fmt: skip
