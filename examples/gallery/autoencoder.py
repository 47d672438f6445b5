"""A convolutional autoencoder: an image through 16 numbers and back."""

from __future__ import annotations

from collections.abc import Iterator

from arenaplan.builder import Batch, Model, Tape, adam, layers, ops
from examples.gallery.data import digit_batches
from examples.gallery.example import Example

__all__ = ["EXAMPLE", "batches", "build"]

#: Numbers that an image is squeezed into.
CODE = 16


def build(batch: int) -> Model:
    tape = Tape("autoencoder", batch=batch)
    image, wanted = tape.input("image", 28, 28, 1), tape.label("wanted", 28, 28, 1)
    with tape.scope("encoder"):
        x = layers.conv(image, 16, 3, stride=2, activation="Relu")
        x = layers.conv(x, 32, 3, stride=2, activation="Relu")
        code = layers.dense(ops.flatten(x), CODE, name="code")
    with tape.scope("decoder"):
        x = layers.dense(code, 7 * 7 * 32, activation="Relu").reshape(-1, 7, 7, 32)
        x = ops.relu(layers.upsample(x, 16))
        x = layers.upsample(x, 1)
    return tape.minimise(ops.mean_squared_error(x, wanted), adam(0.003), outputs=[code])


def batches(seed: int, size: int) -> Iterator[Batch]:
    """The image is its own target."""
    for batch in digit_batches(seed, size):
        yield {"image": batch["image"], "wanted": batch["image"]}


EXAMPLE = Example(
    "autoencoder", f"Digits through {CODE} numbers and back", build, batches, batch=32, steps=100, goal=0.05
)
