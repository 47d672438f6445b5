"""CIRCLE_TRAINING: how a model is trained, as Samsung's onert keeps it in the metadata of a file.

A flatbuffer of its own, with the identifier CTR0 and one table ModelTraining (Samsung ONE,
circle_traininfo.fbs, version 0.1). No package has generated code for it, so its few fields are read and
written here by number.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from solver.errors import DocumentError, OptionsError
from solver.graph import OptimizerSpec
from solver.importers.circle.read import damaged

__all__ = ["CircleTraining", "dump_training", "load_training"]

_IDENTIFIER: Final = b"CTR0"
_OPTIMIZERS: Final = ("SGD", "Adam")
_LOSSES: Final = ("sparse-categorical-crossentropy", "categorical-crossentropy", "mean-squared-error")
_REDUCTIONS: Final = ("mean", "sum")

#: Fields of ModelTraining, by number.
_VERSION, _OPTIMIZER, _OPTIMIZER_KIND, _OPTIMIZER_OPTIONS, _LOSS, _LOSS_KIND, _LOSS_OPTIONS = range(7)
_EPOCHS, _BATCH, _REDUCTION, _TRAINABLE = range(7, 11)

#: Hyper-parameters of Adam, by field.
_ADAM: Final = ("learning_rate", "beta1", "beta2", "epsilon")

Loss = Literal["sparse-categorical-crossentropy", "categorical-crossentropy", "mean-squared-error"]


@dataclass(frozen=True, slots=True)
class CircleTraining:
    """How a model is trained. `trainable` are numbers of its operators; None, all of them, is a file without
    the list, of which onert 0.1.0 trains nothing.

    `batch` 0 leaves it to the model; `reduction` over it is ``mean`` or ``sum``. The file keeps numbers as
    32-bit floats. `from_logits` is kept as the file has it: onert goes by the model's last operator, and so
    does the graph.
    """

    optimizer: OptimizerSpec
    loss: Loss
    from_logits: bool = False
    epochs: int = 1
    batch: int = 0
    reduction: Literal["mean", "sum"] = "mean"
    trainable: tuple[int, ...] | None = None
    version: int = 1


def load_training(data: bytes) -> CircleTraining:
    """Read the metadata. Raises DocumentError for bytes that are not it, and for damaged ones."""
    if data[4:8] != _IDENTIFIER:
        raise DocumentError(
            f"The metadata CIRCLE_TRAINING begins with {data[4:8]!r} instead of {_IDENTIFIER!r}.",
            remedy="Write it again, or leave it out and say on the command line how to train.",
        )
    with damaged("The metadata CIRCLE_TRAINING"):
        return _read(data)


def _read(data: bytes) -> CircleTraining:
    from flatbuffers.table import Table

    def table(at: int) -> Any:
        if not 4 <= at <= len(data) - 4:
            raise IndexError
        return Table(data, at)

    def number(of: Any, field: int, kind: str, default: float) -> Any:
        offset = of.Offset(4 + 2 * field)
        return struct.unpack_from(kind, data, of.Pos + offset)[0] if offset else default

    def options(field: int) -> Any:
        offset = root.Offset(4 + 2 * field)
        return table(root.Indirect(root.Pos + offset)) if offset else None

    root = table(int.from_bytes(data[:4], "little"))
    optimizer = _OPTIMIZERS[_index(number(root, _OPTIMIZER, "<b", 0))]
    optimizer_options, rules = options(_OPTIMIZER_OPTIONS), {}
    if optimizer_options is not None:
        names = _ADAM if optimizer == "Adam" else _ADAM[:1]
        rules = {name: _rounded(number(optimizer_options, k, "<f", 0.0)) for k, name in enumerate(names)}
    loss_options = options(_LOSS_OPTIONS)
    loss = _LOSSES[_index(number(root, _LOSS, "<b", 0))]
    has_logits = loss_options is not None and loss != "mean-squared-error"
    trainable, offset = None, root.Offset(4 + 2 * _TRAINABLE)
    if offset:
        start, count = root.Vector(offset), root.VectorLen(offset)
        trainable = tuple(np.frombuffer(data, "<i4", count, start).tolist())
    return CircleTraining(
        optimizer=OptimizerSpec(optimizer, rules),
        loss=loss,  # type: ignore[arg-type]
        from_logits=bool(number(loss_options, 0, "<B", 0)) if has_logits else False,
        epochs=number(root, _EPOCHS, "<i", 0),
        batch=number(root, _BATCH, "<i", 0),
        reduction=_REDUCTIONS[_index(number(root, _REDUCTION, "<b", 0))],
        trainable=trainable,
        version=number(root, _VERSION, "<I", 0),
    )


def _index(number: int) -> int:
    if number < 0:
        raise IndexError
    return number


def _rounded(value: float) -> float:
    """The shortest decimal that is this 32-bit float: 0.001 instead of 0.0010000000474974513."""
    return float(str(np.float32(value)))


def dump_training(training: CircleTraining) -> bytes:
    """The metadata's bytes. Raises OptionsError for an optimizer that the format does not have."""
    import flatbuffers

    rules = training.optimizer.attributes
    if training.optimizer.type not in _OPTIMIZERS:
        raise OptionsError(
            f"CIRCLE_TRAINING has no optimizer {training.optimizer.type!r}.",
            remedy=f"Choose one of {', '.join(_OPTIMIZERS)}.",
            path=("optimizer",),
        )
    builder = flatbuffers.Builder(256)
    names = _ADAM if training.optimizer.type == "Adam" else _ADAM[:1]
    builder.StartObject(len(names))
    for field, name in enumerate(names):
        builder.PrependFloat32Slot(field, float(rules.get(name, 0.0)), 0.0)
    optimizer = builder.EndObject()
    builder.StartObject(0 if training.loss == "mean-squared-error" else 1)
    if training.loss != "mean-squared-error":
        builder.PrependBoolSlot(0, training.from_logits, False)
    loss = builder.EndObject()
    trainable = None
    if training.trainable is not None:
        trainable = builder.CreateNumpyVector(np.array(training.trainable, np.int32))
    kind, which = _OPTIMIZERS.index(training.optimizer.type), _LOSSES.index(training.loss)
    builder.StartObject(11)
    builder.PrependUint32Slot(_VERSION, training.version, 0)
    builder.PrependInt8Slot(_OPTIMIZER, kind, 0)
    builder.PrependUint8Slot(_OPTIMIZER_KIND, kind + 1, 0)  # of a union: 0 is none
    builder.PrependUOffsetTRelativeSlot(_OPTIMIZER_OPTIONS, optimizer, 0)
    builder.PrependInt8Slot(_LOSS, which, 0)
    builder.PrependUint8Slot(_LOSS_KIND, which + 1, 0)
    builder.PrependUOffsetTRelativeSlot(_LOSS_OPTIONS, loss, 0)
    builder.PrependInt32Slot(_EPOCHS, training.epochs, 0)
    builder.PrependInt32Slot(_BATCH, training.batch, 0)
    builder.PrependInt8Slot(_REDUCTION, _REDUCTIONS.index(training.reduction), 0)
    if trainable is not None:
        builder.PrependUOffsetTRelativeSlot(_TRAINABLE, trainable, 0)
    builder.Finish(builder.EndObject(), _IDENTIFIER)
    return bytes(builder.Output())
