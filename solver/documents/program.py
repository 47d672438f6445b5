"""Program documents: operations in their order, with the blocks of memory that each reads and writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from solver.canonical import to_bytes
from solver.documents.fields import MAX_RANK, DocumentModel, DTypeName, JsonList, Name, Natural, Text
from solver.documents.read import read
from solver.errors import DimensionError, DocumentError
from solver.graph.build import MAX_OPERATIONS
from solver.graph.types import DType, TensorType
from solver.training.explicit import (
    Block,
    BlockOperation,
    BlockProgram,
    BlockView,
    OperationCost,
    build_program,
    program_content,
    program_digest,
)

__all__ = ["ProgramDocument", "dump_program", "load_program", "program_digest"]

_Dimensions = Annotated[JsonList[Natural], Field(max_length=MAX_RANK)]


class ViewDocument(DocumentModel):
    """A block in the bytes of another one, which is not a view itself."""

    of: Name
    offset: Natural = Field(0, description="Bytes from the beginning of that block.")
    strides: _Dimensions | None = Field(
        None, description="Elements from one index to the next, for each axis; as of an array if left out."
    )


class BlockDocument(DocumentModel):
    """A block of memory: a number of bytes, or a shape with a dtype. Version 2 has views."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["bytes"]}, {"required": ["shape", "dtype"]}]}
    )

    name: Name
    bytes: Natural | None = None
    shape: _Dimensions | None = None
    dtype: DTypeName | None = None
    fed: bool = Field(False, description="The caller writes it anew before every iteration.")
    kept: bool = Field(False, description="The caller reads it after the last operation.")
    view: ViewDocument | None = Field(None, description="Of version 2: it lies in another block.")


class CostOfOperation(DocumentModel):
    """How long an operation takes: nanoseconds, or what a roofline makes of its flops and bytes."""

    nanoseconds: Natural | None = Field(None, description="Alone, without flops and bytes.")
    flops: Natural = Field(0, description="Floating-point operations.")
    bytes: Natural | None = Field(None, description="Bytes moved; left out, all that it reads and writes.")


class OperationOfProgram(DocumentModel):
    """A block in `writes` alone is written whole; a block in both lists is updated in place.

    Version 2 has `overwrites` (a block that is written may take the place of one that is read) and a
    `workspace`, in bytes. Version 3 has `pure` and `cost`.
    """

    name: Name
    type: Text = Field("", description="A word for readers of the plan.")
    reads: JsonList[Name] = ()
    writes: JsonList[Name] = ()
    overwrites: dict[Name, Name] = Field({}, description="Of version 2: written block, read block.")
    workspace: Natural = Field(0, description="Of version 2: bytes, undefined before and after.")
    pure: bool = Field(
        False,
        description="Of version 3: what it reads decides what it writes, and it changes nothing else.",
    )
    cost: CostOfOperation | None = Field(None, description="Of version 3: how long it takes.")


class ProgramDocument(DocumentModel):
    """One training iteration, repeated: blocks, and operations in the order in which they run.

    A block that is read before it is written, and not fed, carries over from the iteration before.
    """

    format: Literal["arenaplan.program"]
    version: Literal[1, 2, 3]
    name: Name
    any_order: bool = Field(
        False, description="Of version 2: any order in which operations find the same is permitted."
    )
    blocks: JsonList[BlockDocument]
    operations: JsonList[OperationOfProgram]


def load_program(data: bytes | Mapping[str, Any], *, max_operations: int = MAX_OPERATIONS) -> BlockProgram:
    """The verified program of a document. Raises DocumentError, or the GraphError that names the culprit."""
    document = read(ProgramDocument, data, range_error=DimensionError)
    _check_version(document)
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
        BlockOperation(
            o.name,
            o.reads,
            o.writes,
            o.type,
            tuple(o.overwrites.items()),
            o.workspace,
            o.pure,
            OperationCost()
            if o.cost is None
            else OperationCost(o.cost.nanoseconds, o.cost.flops, o.cost.bytes),
        )
        for o in document.operations
    ]
    return build_program(
        document.name, blocks, operations, any_order=document.any_order, max_operations=max_operations
    )


def _check_version(document: ProgramDocument) -> None:
    """A version has none of the fields of later ones, and its readers would not see them."""
    second: list[tuple[str | int, ...]] = [("any_order",)] if document.any_order else []
    second += [("blocks", i, "view") for i, block in enumerate(document.blocks) if block.view is not None]
    third: list[tuple[str | int, ...]] = []
    for i, operation in enumerate(document.operations):
        second += [
            ("operations", i, name) for name in ("overwrites", "workspace") if getattr(operation, name)
        ]
        third += [("operations", i, "pure")] if operation.pure else []
        third += [("operations", i, "cost")] if operation.cost is not None else []
    for version, fields in ((2, second), (3, third)):
        if fields and document.version < version:
            raise DocumentError(
                f"The field {fields[0][-1]!r} is of version {version} of programs, and the document says"
                f" version {document.version}.",
                remedy=f'Write "version": {3 if third else 2}.',
                path=fields[0],
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
    return to_bytes(program_content(program), indent=indent)
