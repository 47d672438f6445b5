"""Program documents: operations in their order, with the blocks of memory that each reads and writes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from solver.documents.fields import FIXED_LIST, DocumentModel, DTypeName, Name, Positive, Text
from solver.documents.limits import MAX_RANK
from solver.documents.parse import PROGRAM_FORMAT, canonical_json, to_bytes
from solver.documents.read import read
from solver.errors import DimensionError, DocumentError
from solver.graph.build import MAX_OPERATIONS
from solver.graph.types import DType, TensorType
from solver.training.explicit import Block, BlockOperation, BlockProgram, build_program

__all__ = ["ProgramDocument", "dump_program", "load_program", "program_digest"]

_Names = Annotated[tuple[Name, ...], *FIXED_LIST]
_Dimensions = Annotated[tuple[Positive, ...], Field(max_length=MAX_RANK)]


class BlockDocument(DocumentModel):
    """A block of memory: a number of bytes, or a shape with a dtype."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["bytes"]}, {"required": ["shape", "dtype"]}]}
    )

    name: Name
    bytes: Positive | None = None
    shape: Annotated[_Dimensions | None, *FIXED_LIST[1:]] = None  # failing fast is for lists alone
    dtype: DTypeName | None = None
    fed: bool = Field(False, description="The caller writes it anew before every iteration.")
    kept: bool = Field(False, description="The caller reads it after the last operation.")


class OperationOfProgram(DocumentModel):
    """What is in `writes` alone is written whole; what is in both lists is updated in place."""

    name: Name
    type: Text = Field("", description="A word for readers of the plan.")
    reads: _Names = ()
    writes: _Names = ()


class ProgramDocument(DocumentModel):
    """One training iteration, repeated: blocks, and operations in the order in which they run.

    A block that is read before it is written, and not fed, carries over from the iteration before.
    """

    format: Literal["arenaplan.program"]
    version: Literal[1]
    name: Name
    blocks: Annotated[tuple[BlockDocument, ...], *FIXED_LIST]
    operations: Annotated[tuple[OperationOfProgram, ...], *FIXED_LIST]


def load_program(data: bytes | Mapping[str, Any], *, max_operations: int = MAX_OPERATIONS) -> BlockProgram:
    """The verified program of a document. Raises DocumentError, or the GraphError that names the culprit."""
    document = read(ProgramDocument, data, format_=PROGRAM_FORMAT, range_error=DimensionError)
    blocks = [
        Block(block.name, _type(i, block), block.fed, block.kept) for i, block in enumerate(document.blocks)
    ]
    operations = [BlockOperation(o.name, o.reads, o.writes, o.type) for o in document.operations]
    return build_program(document.name, blocks, operations, max_operations=max_operations)


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
    return {
        "format": PROGRAM_FORMAT,
        "version": 1,
        "name": program.name,
        "blocks": [_block_to_dict(block) for block in program.blocks.values()],
        "operations": [_operation_to_dict(operation) for operation in program.operations],
    }


def _block_to_dict(block: Block) -> dict[str, Any]:
    found: dict[str, Any] = {"name": block.name}
    if block.type.dtype is DType.UINT8 and len(block.type.shape) == 1:
        found["bytes"] = block.type.nbytes
    else:
        found |= {"shape": list(block.type.shape), "dtype": block.type.dtype.value}
    return found | {flag: True for flag in ("fed", "kept") if getattr(block, flag)}


def _operation_to_dict(operation: BlockOperation) -> dict[str, Any]:
    found: dict[str, Any] = {"name": operation.name}
    if operation.kernel:
        found["type"] = operation.kernel
    lists = {"reads": list(operation.reads), "writes": list(operation.writes)}
    return found | {key: names for key, names in lists.items() if names}
