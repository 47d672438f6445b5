"""Circle and TensorFlow Lite models: flatbuffers of one schema, whose operators and weights become a graph.

    read.py       bytes -> Model: tensors, operators with their options, the training metadata
    constants.py  what the shapes of a model decide: SHAPE, STRIDED_SLICE, PACK, ... of integers
    operators.py  one function for each operator: what it becomes here
    recurrent.py  the LSTM over a sequence
    transforms.py Fourier transforms, and complex tensors as pairs
    sparse.py     sparse constants as dense ones
    roles.py      which tensors are weights, and which operators an output depends on
    network.py    the graph so far, and what the translation of an operator asks and tells
    graph.py      the whole: a forward graph, and the loss and optimizer beside it
    load.py       the same by the choices that every importer takes
    training.py   the metadata CIRCLE_TRAINING, read and written

Needs circle-schema and flatbuffers, which are imported when a file is read.
"""

from solver.importers.circle.graph import CircleGraph, load_circle, weights_of
from solver.importers.circle.load import load_circle_model
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
