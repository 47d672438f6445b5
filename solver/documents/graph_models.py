"""What a graph document may look like, as models: they know every mistake, and the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from solver.documents.fields import (
    FIXED_LIST,
    Attributes,
    DocumentModel,
    DTypeName,
    HyperParameter,
    Int64,
    Name,
    Natural,
    Shape,
    Text,
    is_name,
    is_names,
)
from solver.documents.floats import NotFinite, float_of
from solver.documents.graph_fields import GraphFields, InitializerFields, OperandFields, OptimizerFields
from solver.documents.read import read
from solver.graph.types import Operation, TrainingRules

__all__ = ["GraphDocument", "read_graph"]


class InitializerDocument(DocumentModel):
    """`values` is flat and in C order; `base64` holds the same elements as raw little-endian bytes."""

    kind: Literal[
        "zeros", "ones", "constant", "normal", "uniform", "he_normal", "glorot_uniform", "values", "file",
        "band", "iota",
    ]  # fmt: skip
    value: float | NotFinite | None = Field(
        None,
        description="Of kind constant: the value of every element; of band those inside, of iota the first.",
    )
    scale: float | None = Field(
        None, gt=0, description="Of kind normal the standard deviation, of kind uniform the half width."
    )
    seed: Natural | None = Field(
        None, description="Of random kinds; made from the operand's name without one."
    )
    values: list[Any] | None = Field(
        None,
        description="Of kind values: all elements, flat, in C order.",
        json_schema_extra={
            "items": {"anyOf": [{"type": ["number", "boolean"]}, {"enum": [*get_args(NotFinite)]}]}
        },
    )
    base64: str | None = Field(
        None, description="Of kind values, instead: raw little-endian elements in C order."
    )
    file: Text | None = Field(
        None,
        max_length=4096,
        description="Of kind file: its path from the document's folder; raw little-endian elements in it.",
    )
    offset: Natural | None = Field(
        None, description="Of kind file: where the elements start in it; 0 if left out."
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="Of kind file: SHA-256 of the elements, in hexadecimal."
    )
    step: float | None = Field(None, description="Of kind iota: what each element adds to the one before.")
    other: float | NotFinite | None = Field(
        None, description="Of kind band: the value of the elements outside."
    )
    lower: Int64 | None = Field(
        None, description="Of kind band: least column - row of the elements inside; no bound if left out."
    )
    upper: Int64 | None = Field(
        None, description="Of kind band: greatest column - row of the elements inside; no bound if left out."
    )
    axes: Annotated[tuple[Natural, ...] | None, *FIXED_LIST[1:]] = Field(
        None,
        description="Of kind band the axes of rows and columns, of kind iota the axis; the last if left out.",
    )


class OperandDocument(DocumentModel):
    """A tensor. Shape and dtype of intermediate operands may be left out: they are inferred."""

    name: Name
    role: Literal["input", "label", "parameter", "state", "constant", "intermediate"]
    shape: Shape | None = None
    dtype: DTypeName | None = None
    trainable: bool | None = Field(None, description="Of parameters; true unless said otherwise.")
    initializer: InitializerDocument | None = None


class OperationDocument(DocumentModel):
    """One use of an ONNX operator. An optional input that is left out is the empty string."""

    name: Name
    type: Name
    inputs: Annotated[tuple[Name, ...], *FIXED_LIST]
    outputs: Annotated[tuple[Name, ...], *FIXED_LIST]
    attributes: Attributes = Field(default_factory=dict)


class OptimizerDocument(DocumentModel):
    """An optimizer by name; what it takes beside, the optimizers say."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, HyperParameter]

    type: Name


class TrainingDocument(DocumentModel):
    """What happens to gradients between the backward pass and the optimizer."""

    clip_global_norm: float | None = Field(
        None, description="Gradients are multiplied by min(1, this / (norm of all of them + 1e-6))."
    )
    loss_scale: float = Field(1.0, description="The backward pass starts from it, and updates divide by it.")
    accumulate: Int64 = Field(1, description="Iterations (micro-batches) of one update, by their mean.")
    skip_non_finite: bool = Field(False, description="Leave an update out if a gradient is not finite.")
    loss_scale_growth: Int64 | None = Field(
        None,
        description="The scale changes: an update that is left out halves it, this many in a row double it.",
    )


class LastOperations(DocumentModel):
    """The last operations that own parameters."""

    last: Natural


def _trainable(value: Any) -> Any:
    """``"all"``, names, or a model of ``{"last": n}``."""
    if isinstance(value, Mapping) and set(value) == {"last"}:
        return LastOperations.model_validate(dict(value))
    if value != "all" and not is_names(value):
        raise PydanticCustomError("wanted", '"all", a list of names or {"last": count}')
    return value


def _loss(value: Any) -> Any:
    if value is not None and not is_name(value) and not is_names(value):
        raise PydanticCustomError("wanted", "the name of the scalar operand that training minimises")
    return value


class GraphDocument(DocumentModel):
    """A trainable graph: operands, operations in any order, loss, optimizer, trainable set."""

    format: Literal["arenaplan.graph"]
    version: Literal[1]
    name: Name
    batch: Int64 | None = Field(None, description='Value of the symbolic dimension "batch".')
    operands: Annotated[tuple[OperandDocument, ...], *FIXED_LIST]
    operations: Annotated[tuple[OperationDocument, ...], *FIXED_LIST]
    loss: Annotated[Any, PlainValidator(_loss), WithJsonSchema({"type": "string"})] = None
    optimizer: OptimizerDocument
    training: TrainingDocument = TrainingDocument()
    trainable: Annotated[
        Any,
        PlainValidator(_trainable),
        WithJsonSchema(
            {
                "anyOf": [
                    {"const": "all"},
                    {"type": "array", "items": {"type": "string"}},
                    {
                        "type": "object",
                        "properties": {"last": {"type": "integer", "minimum": 0}},
                        "required": ["last"],
                        "additionalProperties": False,
                    },
                ]
            }
        ),
    ] = "all"
    outputs: Annotated[tuple[Name, ...], *FIXED_LIST] = ()


def read_graph(value: Mapping[str, Any]) -> GraphFields:
    """The fields of a document. Raises DocumentError with the place of what is wrong."""
    document = read(GraphDocument, value, format_="arenaplan.graph")
    trainable = document.trainable
    return GraphFields(
        document.name,
        document.batch,
        [OperandFields(**{**dict(o), "initializer": _initial(o.initializer)}) for o in document.operands],
        [Operation(o.name, o.type, o.inputs, o.outputs, o.attributes) for o in document.operations],
        document.loss,
        OptimizerFields(document.optimizer.type, document.optimizer.__pydantic_extra__),
        TrainingRules(**dict(document.training)),
        trainable.last if isinstance(trainable, LastOperations) else trainable,
        document.outputs,
    )


def _initial(document: InitializerDocument | None) -> InitializerFields | None:
    if document is None:
        return None
    values = {"value": float_of(document.value), "other": float_of(document.other)}
    return InitializerFields(**{**dict(document), **values})
