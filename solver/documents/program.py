"""Program documents: operations in their order, with the blocks of memory that each reads and writes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from solver.documents.fields import FIXED_LIST, DocumentModel, DTypeName, Name, Natural, Text
from solver.documents.limits import MAX_RANK
from solver.documents.parse import PROGRAM_FORMAT, canonical_json, to_bytes
from solver.documents.read import read
from solver.errors import DimensionError, DocumentError
from solver.graph.build import MAX_OPERATIONS
from solver.graph.types import DType, TensorType
from solver.training.explicit import Block, BlockOperation, BlockProgram, BlockView, build_program

__all__ = ["ProgramDocument", "dump_program", "load_program", "program_digest"]

_Names = Annotated[tuple[Name, ...], *FIXED_LIST]
_Strides = Annotated[tuple[Natural, ...], Field(max_length=MAX_RANK)]
_Dimensions = Annotated[tuple[Natural, ...], Field(max_length=MAX_RANK)]


class ViewDocument(DocumentModel):
    """A block in the bytes of another one, which is not a view itself."""

    of: Name
    offset: Natural = Field(0, description="Bytes from the beginning of that block.")
    strides: Annotated[_Strides | None, *FIXED_LIST[1:]] = Field(
        None, description="Elements from one index to the next, for each axis; as of an array if left out."
    )


class BlockDocument(DocumentModel):
    """A block of memory: a number of bytes, or a shape with a dtype. Version 2 has views."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["bytes"]}, {"required": ["shape", "dtype"]}]}
    )

    name: Name
    bytes: Natural | None = None
    shape: Annotated[_Dimensions | None, *FIXED_LIST[1:]] = None  # failing fast is for lists alone
    dtype: DTypeName | None = None
    fed: bool = Field(False, description="The caller writes it anew before every iteration.")
    kept: bool = Field(False, description="The caller reads it after the last operation.")
    view: ViewDocument | None = Field(None, description="Of version 2: it lies in another block.")


class OperationOfProgram(DocumentModel):
    """What is in `writes` alone is written whole; what is in both lists is updated in place.

    Version 2 has `overwrites` (a block that is written may take the place of one that is read) and a
    `workspace`, in bytes.
    """

    name: Name
    type: Text = Field("", description="A word for readers of the plan.")
    reads: _Names = ()
    writes: _Names = ()
    overwrites: dict[Name, Name] = Field({}, description="Of version 2: written block, read block.")
    workspace: Natural = Field(0, description="Of version 2: bytes, undefined before and after.")


class ProgramDocument(DocumentModel):
    """One training iteration, repeated: blocks, and operations in the order in which they run.

    A block that is read before it is written, and not fed, carries over from the iteration before.
    """

    format: Literal["arenaplan.program"]
    version: Literal[1, 2]
    name: Name
    any_order: bool = Field(
        False, description="Of version 2: any order in which operations find the same is permitted."
    )
    blocks: Annotated[tuple[BlockDocument, ...], *FIXED_LIST]
    operations: Annotated[tuple[OperationOfProgram, ...], *FIXED_LIST]


def load_program(data: bytes | Mapping[str, Any], *, max_operations: int = MAX_OPERATIONS) -> BlockProgram:
    """The verified program of a document. Raises DocumentError, or the GraphError that names the culprit."""
    document = read(ProgramDocument, data, format_=PROGRAM_FORMAT, version=(1, 2), range_error=DimensionError)
    if document.version == 1:
        _check_first_version(document)
    blocks = [
        Block(
            block.name,
            _type(i, block),
            block.fed,
            block.kept,
            None if block.view is None else BlockView(block.view.of, block.view.offset, block.view.strides),
        )
        for i, block in enumerate(document.blocks)
    ]
    operations = [
        BlockOperation(o.name, o.reads, o.writes, o.type, tuple(o.overwrites.items()), o.workspace)
        for o in document.operations
    ]
    return build_program(
        document.name, blocks, operations, any_order=document.any_order, max_operations=max_operations
    )


def _check_first_version(document: ProgramDocument) -> None:
    """Version 1 has none of the fields of version 2, and its readers would not see them."""
    found: list[tuple[str | int, ...]] = [("any_order",)] if document.any_order else []
    found += [("blocks", i, "view") for i, block in enumerate(document.blocks) if block.view is not None]
    for i, operation in enumerate(document.operations):
        found += [("operations", i, "overwrites")] if operation.overwrites else []
        found += [("operations", i, "workspace")] if operation.workspace else []
    if found:
        raise DocumentError(
            f"The field {found[0][-1]!r} is of version 2 of programs, and the document says version 1.",
            remedy='Write "version": 2.',
            path=found[0],
        )


def _type(i: int, block: BlockDocument) -> TensorType:
    """A number of bytes is a vector of them."""
    if block.bytes is not None and block.shape is None and block.dtype is None:
        return TensorType((block.bytes,), DType.UINT8)
    if block.bytes is None and block.shape is not None and block.dtype is not None:
        return TensorType(block.shape, DType(block.dtype))
    raise DocumentError(
        f"Block {block.name!r} needs a size: bytes, or shape and dtype, not both.",
        remedy='Give "bytes" alone, or "shape" and "dtype".',
        path=("blocks", i),
    )


def dump_program(program: BlockProgram, *, indent: int | None = None) -> bytes:
    """The document of a program; what has its default is left out."""
    return to_bytes(_to_dict(program), indent=indent)


def program_digest(program: BlockProgram) -> str:
    """SHA-256, in hexadecimal, over the canonical document without the program's title."""
    content = {**_to_dict(program), "name": ""}
    return hashlib.sha256(canonical_json(content)).hexdigest()


def _to_dict(program: BlockProgram) -> dict[str, Any]:
    """Version 1 where that says all of it."""
    blocks = [_block_to_dict(block) for block in program.blocks.values()]
    operations = [_operation_to_dict(operation) for operation in program.operations]
    newer = program.any_order or any("view" in block for block in blocks)
    newer = newer or any({"overwrites", "workspace"} & operation.keys() for operation in operations)
    return {
        "format": PROGRAM_FORMAT,
        "version": 2 if newer else 1,
        "name": program.name,
        **({"any_order": True} if program.any_order else {}),
        "blocks": blocks,
        "operations": operations,
    }


def _block_to_dict(block: Block) -> dict[str, Any]:
    found: dict[str, Any] = {"name": block.name}
    if block.type.dtype is DType.UINT8 and len(block.type.shape) == 1:
        found["bytes"] = block.type.nbytes
    else:
        found |= {"shape": list(block.type.shape), "dtype": block.type.dtype.value}
    if block.view is not None:
        view: dict[str, Any] = {"of": block.view.of}
        if block.view.offset:
            view["offset"] = block.view.offset
        if block.view.strides is not None:
            view["strides"] = list(block.view.strides)
        found["view"] = view
    return found | {flag: True for flag in ("fed", "kept") if getattr(block, flag)}


def _operation_to_dict(operation: BlockOperation) -> dict[str, Any]:
    found: dict[str, Any] = {"name": operation.name}
    if operation.kernel:
        found["type"] = operation.kernel
    lists = {"reads": list(operation.reads), "writes": list(operation.writes)}
    found |= {key: names for key, names in lists.items() if names}
    if operation.overwrites:
        found["overwrites"] = dict(operation.overwrites)
    return found | ({"workspace": operation.workspace} if operation.workspace else {})
