"""Circle and TensorFlow Lite models: flatbuffers of one schema, whose operators and weights become a graph.

    read.py       bytes -> Model: tensors, operators with their options, the training metadata
    operators.py  one function for each operator: what it becomes here
    roles.py      which tensors are weights, and which operators an output depends on
    network.py    the graph so far, constants folded, and what the translation of an operator asks and tells
    load.py       the whole: a forward graph, and the loss and optimizer beside it
    training.py   the metadata CIRCLE_TRAINING, read and written

Needs circle-schema and flatbuffers, which are imported when a file is read.
"""

from solver.importers.circle.load import CircleGraph, load_circle, load_circle_model, weights_of
from solver.importers.circle.training import CircleTraining, dump_training, load_training

__all__ = [
    "CircleGraph",
    "CircleTraining",
    "dump_training",
    "load_circle",
    "load_circle_model",
    "load_training",
    "weights_of",
]
