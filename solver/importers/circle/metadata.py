"""Metadata of a model file: bytes of another tool's own under a name."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from solver.errors import DocumentError
from solver.importers.circle.read import circle_schema, damaged, read_subgraphs

__all__ = ["with_metadata"]

#: Largest alignment in bytes of tables and weights; the file that is kept begins on a multiple of it.
_ALIGNMENT_BYTES: Final = 64

#: Numbers of the fields of a model that are written anew. All others but the version lead to tables.
_VERSION, _BUFFERS, _METADATA = 0, 4, 6
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
        if field not in (_VERSION, _BUFFERS, _METADATA) and old.Offset(4 + 2 * field):
            fields[field] = start - old.Indirect(old.Pos + old.Offset(4 + 2 * field))
            if not 0 < fields[field] <= start:
                raise IndexError
    builder.StartObject(max(fields) + 1)
    builder.PrependUint32Slot(_VERSION, model.Version(), 0)
    for field, offset in fields.items():
        builder.PrependUOffsetTRelativeSlot(field, offset, 0)
    builder.Finish(builder.EndObject(), data[4:8])
    return bytes(builder.Output())
