"""What a caller chooses when a model is imported: how it is trained, how large it is, which weights it starts with.

Files of other tools hold a network and rarely its training, so every importer takes the same choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from solver.graph import OptimizerSpec, TrainableGraph, TrainingRules

__all__ = ["LOSSES", "ImportOptions", "Imported"]

#: Word of a caller -> operator, its attributes, and what its label is: classes, or of the prediction's type.
LOSSES: Final[Mapping[str, tuple[str, Mapping[str, int], Literal["classes", "same"]]]] = MappingProxyType(
    {
        "cross-entropy": ("CategoricalCrossEntropy", {"from_logits": 1, "sparse": 1}, "classes"),
        "soft-cross-entropy": ("CategoricalCrossEntropy", {"from_logits": 1}, "same"),
        "binary-cross-entropy": ("BinaryCrossEntropy", {"from_logits": 1}, "same"),
        "kl-divergence": ("KLDivergence", {"from_logits": 1}, "same"),
        "mse": ("MeanSquaredError", {}, "same"),
        "l1": ("MeanAbsoluteError", {}, "same"),
        "huber": ("Huber", {}, "same"),
    }
)


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Choices for one import.

    `loss` is a word of `LOSSES`, or None where an output of the model is the loss. It is taken of `output`, the
    first one if that is None, with the classes at `class_axis`; None means axis 1 of images (four axes and more)
    and the last axis otherwise. `trainable` is "all", a number of operations from the back, or names and patterns
    of names as ``head.*``. `dims` are sizes of dimensions that the model leaves open, by name, or by place, as
    ``x[0]``; `batch` is that of the first axis of the inputs. `batch_norm` is "train", "frozen", or None for what
    the model says. Without `weights` the first values are drawn.
    """

    loss: str | None = None
    output: str | None = None
    class_axis: int | None = None
    optimizer: OptimizerSpec = field(default_factory=lambda: OptimizerSpec("SGD"))
    rules: TrainingRules = TrainingRules()
    trainable: Literal["all"] | int | tuple[str, ...] = "all"
    dims: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None
    batch_norm: Literal["train", "frozen"] | None = None
    weights: bool = True


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported model, and what the caller should know about it, a sentence each."""

    graph: TrainableGraph
    notes: tuple[str, ...] = ()
