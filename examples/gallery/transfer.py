"""Transfer learning: a trunk that learnt the digits 0 to 6 is frozen; a new head learns 7, 8 and 9 on it.

Frozen layers have no gradients, no optimizer state and no backward steps, and what only their backward steps
would have read is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from arenaplan.builder import Batch, Model, Tape, Tensor, adam, layers, ops
from examples.gallery.data import digit_batches
from examples.gallery.example import Example

__all__ = ["EXAMPLE", "batches", "build", "prepare", "source"]

#: Digits that the trunk learns from; the others are new to it.
KNOWN = 7

_SOURCE_STEPS = 100


def _trunk(image: Tensor) -> Tensor:
    with image.tape.scope("trunk"):
        x = layers.conv(image, 8, 5, stride=2, activation="Relu")
        x = layers.conv(x, 16, 5, stride=2, activation="Relu")
        return layers.dense(ops.flatten(x), 64, activation="Relu")


def _model(name: str, batch: int, classes: int, *, frozen: bool) -> Model:
    tape = Tape(name, batch=batch)
    x, label = _trunk(tape.input("image", 28, 28, 1)), tape.label("label", classes)
    loss = ops.cross_entropy(layers.dense(x, classes, name="head"), label)
    return tape.minimise(loss, adam(0.01 if frozen else 0.003), trainable={"last": 1} if frozen else "all")


def source(batch: int) -> Model:
    """The model that the trunk comes from; everything in it is trained."""
    return _model("source", batch, KNOWN, frozen=False)


def build(batch: int) -> Model:
    return _model("transfer", batch, 10 - KNOWN, frozen=True)


def prepare(model: Model) -> Model:
    """`model` with the trunk of a `source` that has been trained."""
    batch = 32
    trainer = source(batch).trainer()
    for known in islice(digit_batches(1, batch, range(KNOWN)), _SOURCE_STEPS):
        trainer.step(known)
    names = [name for name in trainer.graph.trainable if name.startswith("trunk.")]
    return model.starting_from({name: trainer.read(name) for name in names})


def batches(seed: int, size: int) -> Iterator[Batch]:
    """Digits that the trunk has never seen."""
    return digit_batches(seed, size, range(KNOWN, 10))


EXAMPLE = Example(
    "transfer", "A new head on a frozen trunk", build, batches, batch=16, steps=60, goal=0.4, prepare=prepare
)
