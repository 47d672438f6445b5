"""Metadata of a model file: bytes of another tool's own under a name."""

from __future__ import annotations

import numpy as np

from solver.importers.circle.read import circle_schema, damaged, read_model

__all__ = ["with_metadata"]


def with_metadata(data: bytes, name: str, content: bytes) -> bytes:
    """The file with `content` under `name`, in place of what it has there.

    Tables are written anew, so offsets inside the file change. Raises DocumentError for a file that cannot
    be read.
    """
    read_model(data)
    schema = circle_schema()
    import flatbuffers

    with damaged("The model"):
        model = schema.Model.ModelT.InitFromObj(schema.Model.Model.GetRootAs(data, 0))
        buffer = schema.Buffer.BufferT()
        buffer.data = np.frombuffer(content, np.uint8)
        entries = list(model.metadata or [])
        entry = next((e for e in entries if e.name == name.encode()), None)
        if entry is None:
            entry = schema.Metadata.MetadataT()
            entry.name, entry.buffer = name, len(model.buffers)
            model.buffers.append(buffer)
            model.metadata = [*entries, entry]
        else:
            model.buffers[entry.buffer] = buffer
        builder = flatbuffers.Builder(len(data) + len(content) + 1024)
        builder.Finish(model.Pack(builder), data[4:8])
    return bytes(builder.Output())
