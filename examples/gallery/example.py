"""What every example of the gallery offers, and what it means that it learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean

from arenaplan.builder import Batch, Model

__all__ = ["WINDOW", "Example", "as_built"]

#: Steps that the loss is averaged over, at the end and at the start.
WINDOW = 10


def as_built(model: Model) -> Model:
    return model


@dataclass(frozen=True, slots=True)
class Example:
    """A model, the data that it makes for itself, and the loss that it must get below.

    `build` records the model for a batch size. `batches` yields batches of a size without end, the same for
    the same seed. `prepare` is what happens before training, such as getting a trunk to start from. Learning
    means that the loss, averaged over the last `WINDOW` of `steps` steps, is below `goal`.
    """

    name: str
    title: str
    build: Callable[[int], Model]
    batches: Callable[[int, int], Iterator[Batch]]
    batch: int
    steps: int
    goal: float
    prepare: Callable[[Model], Model] = as_built

    def model(self) -> Model:
        """The model at the example's own batch size, not yet prepared."""
        return self.build(self.batch)

    def train(self, model: Model, *, seed: int = 0) -> Iterator[float]:
        """Losses of `steps` steps in the planned arena."""
        return model.train(islice(self.batches(seed, self.batch), self.steps))

    def learned(self, losses: Sequence[float]) -> bool:
        return fmean(losses[-WINDOW:]) < self.goal
