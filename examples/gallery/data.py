"""Data that the examples make for themselves; every generator is endless and repeats with its seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from examples.builder import Batch
from examples.digits import CLASSES, digits

__all__ = ["digit_batches"]


def digit_batches(seed: int, size: int, among: Sequence[int] = range(CLASSES)) -> Iterator[Batch]:
    """Drawn digits, each batch anew: ``image`` and one-hot ``label``."""
    for index in count():
        images, labels = digits(size, seed * 1_000_003 + index, among)
        yield {"image": images, "label": labels}
