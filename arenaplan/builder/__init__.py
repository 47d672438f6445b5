"""A small builder of trainable graphs, by delayed execution.

    tape = Tape("regression", batch=8)
    x, wanted = tape.input("x", 4), tape.label("wanted", 1)
    y = layers.dense(x, 16, activation="Tanh", name="hidden")
    y = layers.dense(y, 1)
    model = tape.minimise(ops.mean_squared_error(y, wanted), adam(0.01))

    model.plan().arena_bytes            # nothing has been computed so far
    for loss in model.train(batches):   # planned, then run in the arena
        ...

Python code runs once and records operations on a tape; tensors are handles that know their shape and
nothing else. The tape is then planned as a whole, and the plan is executed as often as one likes.
"""

from arenaplan.builder import layers, ops
from arenaplan.builder.model import Batch, Model
from arenaplan.builder.tape import Document, Tape, Tensor
from arenaplan.optimizers import adam, sgd

__all__ = ["Batch", "Document", "Model", "Tape", "Tensor", "adam", "layers", "ops", "sgd"]
