"""CIRCLE_TRAINING: how a model is trained, as Samsung's onert keeps it in the metadata of a file.

A flatbuffer of its own, with the identifier CTR0 and one table ModelTraining (Samsung ONE,
circle_traininfo.fbs, version 0.1). No package has generated code for it, so its few fields are read and
written here by number.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from solver.errors import DocumentError, OptionsError
from solver.graph import OptimizerSpec
from solver.importers.circle.read import circle_schema, damaged, read_subgraphs

__all__ = ["CircleTraining", "dump_training", "load_training", "with_metadata"]

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


#: Largest alignment in bytes of tables and weights; the file that is kept begins on a multiple of it.
_ALIGNMENT_BYTES: Final = 64

#: Numbers of the fields of a model that are written anew. All others but the version lead to tables.
_MODEL_VERSION, _BUFFERS, _METADATA = 0, 4, 6
#: Number of the last field that is copied; newer schemas have ten fields.
_LAST_FIELD: Final = 31


def with_metadata(data: bytes, name: str, content: bytes) -> bytes:
    """The file with `content` under `name`, in place of what it has there.

    The tables and weights of the file stay as they are, byte for byte, fields that only newer schemas have
    included. Content of another length is put in front of them, with a new list of buffers, so that offsets
    inside the file change. Raises DocumentError for a file that cannot be read, and for one that keeps
    weights behind its tables.
    """
    read_subgraphs(data)
    schema = circle_schema()
    with damaged("The model"):
        model = schema.Model.Model.GetRootAs(data, 0)
        buffers = [model.Buffers(k) for k in range(model.BuffersLength())]
        if any(buffer.Offset() > 1 for buffer in buffers):
            raise DocumentError(
                "The model keeps weights behind its tables, as files of 2 GiB and more do.",
                remedy="Export the model with its weights in the tables.",
            )
        entries = [model.Metadata(k) for k in range(model.MetadataLength())]
        replaced = [entry for entry in entries if entry.Name() == name.encode()]
        if len(replaced) == 1:
            number = replaced[0].Buffer()
            if _buffer_uses(model)[number] == 1 and buffers[number].DataLength() == len(content) > 0:
                start = buffers[number]._tab.Vector(buffers[number]._tab.Offset(4))
                return data[:start] + content + data[start + len(content) :]
        kept = [entry for entry in entries if entry.Name() != name.encode()]
        return _with_new_root(data, model, buffers, kept, name, content)


def _buffer_uses(model: Any) -> Counter[int]:
    """Number of the tensors and metadata entries that use each buffer."""
    graphs = [model.Subgraphs(k) for k in range(model.SubgraphsLength())]
    tensors = (graph.Tensors(k) for graph in graphs for k in range(graph.TensorsLength()))
    entries = (model.Metadata(k) for k in range(model.MetadataLength()))
    return Counter(table.Buffer() for tables in (tensors, entries) for table in tables)


def _with_new_root(
    data: bytes, model: Any, buffers: list[Any], kept: list[Any], name: str, content: bytes
) -> bytes:
    """A new root with the tables of the old one, which follow with all their bytes.

    Files are built from behind. Offsets of a builder are distances from the end, those of tables lead onward:
    so all that is new stands before the old file, and can refer to the old tables.
    """
    import flatbuffers

    schema = circle_schema()
    builder = flatbuffers.Builder(len(data) + len(content) + 4 * len(buffers) + 1024)
    builder.Prep(_ALIGNMENT_BYTES, len(data))
    builder.head -= len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    start = builder.Offset()

    def vector(offsets: list[int]) -> int:
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    # TFLM reads the content as integers where it lies; the schema aligns contents of buffers to 16 bytes.
    builder.StartVector(1, len(content), 16)
    builder.head -= len(content)
    builder.Bytes[builder.head : builder.head + len(content)] = content
    bytes_of_content = builder.EndVector()
    schema.Buffer.BufferStart(builder)
    schema.Buffer.BufferAddData(builder, bytes_of_content)
    buffer = schema.Buffer.BufferEnd(builder)
    text = builder.CreateString(name)
    schema.Metadata.MetadataStart(builder)
    schema.Metadata.MetadataAddName(builder, text)
    schema.Metadata.MetadataAddBuffer(builder, len(buffers))
    entry = schema.Metadata.MetadataEnd(builder)
    old = model._tab
    fields = {
        _BUFFERS: vector([*(start - table._tab.Pos for table in buffers), buffer]),
        _METADATA: vector([*(start - table._tab.Pos for table in kept), entry]),
    }
    for field in range(_LAST_FIELD + 1):
        if field not in (_MODEL_VERSION, _BUFFERS, _METADATA) and old.Offset(4 + 2 * field):
            fields[field] = start - old.Indirect(old.Pos + old.Offset(4 + 2 * field))
            if not 0 < fields[field] <= start:
                raise IndexError
    builder.StartObject(max(fields) + 1)
    builder.PrependUint32Slot(_MODEL_VERSION, model.Version(), 0)
    for field, offset in fields.items():
        builder.PrependUOffsetTRelativeSlot(field, offset, 0)
    builder.Finish(builder.EndObject(), data[4:8])
    return bytes(builder.Output())
