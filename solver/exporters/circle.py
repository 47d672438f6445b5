"""Circle and TensorFlow Lite files again: with trained weights, or with the metadata that says how to train.

What is not written stays as it is, to the byte: weights are put where the file has them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.errors import GraphError
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, dump_training
from solver.importers.circle.metadata import with_metadata
from solver.importers.circle.network import Weight
from solver.importers.circle.read import TRAINING, read_model

__all__ = ["with_training", "with_weights"]


def with_weights(data: bytes, weights: Mapping[str, Weight], values: Mapping[str, Array]) -> bytes:
    """The file with other values of some parameters; `weights` says where they lie, as `load_circle` does.

    A file of the same length: nothing else changes. Raises GraphError for a value that is not a parameter of
    the file or has another shape, DocumentError for a file that cannot be read.
    """
    written = bytearray(data)
    model = read_model(written)
    for name, value in values.items():
        if name not in weights:
            raise GraphError(
                f"{name!r} is not a parameter that the model file has.",
                remedy=f"Its parameters are {', '.join(weights) or 'none'}.",
                path=(name,),
            )
        weight = weights[name]
        place = model.tensors[weight.tensor].array()
        laid = weight.to_file(np.asarray(value))
        if laid.shape != place.shape:
            raise GraphError(
                f"The value of {name!r} has shape {list(np.shape(value))}, its place in the file"
                f" {list(place.shape)}.",
                remedy="Give the parameter as the graph has it.",
                path=(name,),
            )
        place[...] = laid
    return bytes(written)


def with_training(data: bytes, training: CircleTraining) -> bytes:
    """The file with the metadata CIRCLE_TRAINING, in place of its own.

    Tables are written anew, so offsets inside the file change. Raises DocumentError for a file that cannot
    be read, OptionsError for an optimizer that the format does not have.
    """
    return with_metadata(data, TRAINING, dump_training(training))
