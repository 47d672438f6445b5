"""Graph documents: what a trainable graph looks like in JSON, and the way to and from `TrainableGraph`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from solver.canonical import float_of, to_bytes
from solver.collector import collector_paused
from solver.documents.fields import (
    MAX_INTEGER,
    MAX_NAME,
    MAX_RANK,
    NUMBER,
    DocumentModel,
    DTypeName,
    Int64,
    JsonList,
    Name,
    Natural,
    ScaleName,
    StorageName,
    expected,
)
from solver.documents.initializers import (
    LARGEST_RULES,
    RULES,
    InitializerDocument,
    initializer_content,
    to_initializer,
)
from solver.documents.read import read
from solver.errors import (
    BatchError,
    DimensionError,
    DocumentError,
    GraphError,
    ShapeMismatchError,
    StorageError,
    TrainableError,
)
from solver.graph.build import MAX_OPERATIONS, DeclaredOperand, Trainable, build_graph
from solver.graph.content import declared_operands, graph_content, graph_digest
from solver.graph.declared import with_sizes
from solver.graph.packing import check_storage
from solver.graph.storage import Storage, default_group
from solver.graph.types import (
    DType,
    Initializer,
    Operation,
    OptimizerSpec,
    Role,
    TensorType,
    TrainableGraph,
    TrainingRules,
)
from solver.training.optimizers import optimizer_rules

__all__ = ["GraphDocument", "dump_graph", "graph_digest", "load_graph"]

_Path = tuple[str | int, ...]

_ROLES = {role.value: role for role in Role}
_DTYPES = {dtype.value: dtype for dtype in DType}


def _is_name(value: Any) -> bool:
    """Whether the value is a string of reasonable length."""
    return isinstance(value, str) and len(value) <= MAX_NAME


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(_is_name(name) for name in value)


def _shape(value: Any) -> tuple[int | str, ...]:
    if not isinstance(value, list | tuple):
        raise expected("a list of dimensions, [] for a scalar")
    if len(value) > MAX_RANK:
        raise expected("a list of at most 32 dimensions")
    for dimension in value:
        if isinstance(dimension, bool) or not (isinstance(dimension, int) or _is_name(dimension)):
            raise expected('a list of integers, "batch" or names of the graph\'s "dims"')
    return tuple(value)


Shape = Annotated[
    tuple[int | str, ...],
    PlainValidator(_shape),
    WithJsonSchema(
        {
            "type": "array",
            "maxItems": MAX_RANK,
            "items": {
                "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "maxLength": MAX_NAME}]
            },
        }
    ),
]

_ATTRIBUTE_WORDS = "an integer, a number, a string or a list of numbers"


def _attribute(value: Any) -> int | float | str | tuple[int, ...] | tuple[float, ...]:
    if isinstance(value, bool):
        raise expected("a number or a string (write 1 or 0 for true or false)")
    if isinstance(value, list | tuple):
        return _numbers(value)
    value = float_of(value)
    return _text(value) if isinstance(value, str) else _number(value)


def _numbers(values: list[Any] | tuple[Any, ...]) -> tuple[int, ...] | tuple[float, ...]:
    if len(values) > MAX_NAME:
        raise expected("a list of at most 1024 numbers")
    return tuple(_number(float_of(value)) for value in values)


def _text(value: str) -> str:
    if len(value) > MAX_NAME:
        raise expected("a string of at most 1024 characters")
    return value


def _hyper_parameter(value: Any) -> float | bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float):
        raise expected("a number, true or false")
    return _number(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected(_ATTRIBUTE_WORDS)
    if isinstance(value, int) and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        raise expected("numbers that fit 64 bits")
    return value


Attributes = dict[
    str,
    Annotated[
        int | float | str | tuple[int, ...] | tuple[float, ...],
        PlainValidator(_attribute),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "number"},
                    {"type": "string"},
                    {"type": "array", "items": NUMBER},
                ]
            }
        ),
    ],
]

#: What optimizers take beside their type.
HyperParameter = Annotated[
    float | bool, PlainValidator(_hyper_parameter), WithJsonSchema({"type": ["number", "boolean"]})
]


class StorageDocument(DocumentModel):
    """How a weight that is not trained is kept: as floats of 16 bits, or as integers with scales."""

    kind: StorageName
    group: Natural | None = Field(
        None, description="Of integers: elements along a row that share a scale; 32 if left out. Of q4_k 256."
    )
    zero_points: bool = Field(False, description="Of integers: each group has a zero point beside its scale.")
    scales: ScaleName = Field("float16", description="Of integers: the type of the scales.")
    axis: Natural = Field(
        0, description="The axis of the rows; products sum over the other axes, along which groups lie."
    )


class OperandDocument(DocumentModel):
    """A tensor. Shape and dtype of intermediate operands may be left out: they are inferred."""

    name: Name
    role: Literal["input", "label", "parameter", "state", "constant", "intermediate"]
    shape: Shape | None = None
    dtype: DTypeName | None = None
    trainable: bool | None = Field(None, description="Of parameters; true unless said otherwise.")
    initializer: InitializerDocument | None = None
    storage: StorageDocument | None = Field(
        None, description="Of parameters that are not trained, and of constants: how their bytes are kept."
    )


class OperationDocument(DocumentModel):
    """One use of an ONNX operator. An optional input that is left out is the empty string."""

    name: Name
    type: Name
    inputs: JsonList[Name]
    outputs: JsonList[Name]
    attributes: Attributes = Field(default_factory=dict)


class OptimizerDocument(DocumentModel):
    """An optimizer by name; what it takes beside, the optimizers say."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, HyperParameter]

    type: Name


class TrainingDocument(DocumentModel):
    """Rules for gradients between the backward pass and the optimizer."""

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
    if value != "all" and not _is_names(value):
        raise expected('"all", a list of names or {"last": count}')
    return value


def _loss(value: Any) -> Any:
    if value is not None and not _is_name(value) and not _is_names(value):
        raise expected("the name of the scalar operand that training minimises")
    return value


class GraphDocument(DocumentModel):
    """A graph: operands, operations in any order, loss, optimizer, trainable set.

    Without a loss it is an inference program: nothing is trained, and the outputs are what it computes.
    """

    format: Literal["arenaplan.graph"]
    version: Literal[1]
    name: Name
    batch: Int64 | None = Field(None, description='Value of the symbolic dimension "batch".')
    dims: dict[Name, Int64] = Field(
        default_factory=dict, description="Values of other symbolic dimensions, by the name that shapes have."
    )
    operands: JsonList[OperandDocument]
    operations: JsonList[OperationDocument]
    loss: Annotated[Any, PlainValidator(_loss), WithJsonSchema({"type": "string"})] = None
    optimizer: OptimizerDocument | None = Field(None, description="Needed where something is trained.")
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
    outputs: JsonList[Name] = ()


@collector_paused()
def load_graph(
    data: bytes | Mapping[str, Any],
    *,
    batch: int | None = None,
    dims: Mapping[str, int] = MappingProxyType({}),
    max_operations: int = MAX_OPERATIONS,
    folder: Path | None = None,
) -> TrainableGraph:
    """The verified graph of a document, given as JSON text or as its parsed value.

    `batch` and `dims` take the place of the document's own. Files with first values are found from `folder`;
    without one, where they are is not kept, so that nothing reads a file because a document says so. Raises
    DocumentError or a GraphError with the path of the culprit.
    """
    document = read(GraphDocument, data)
    return _graph(document, _sizes(document, batch, dims), max_operations, folder)


@dataclass(frozen=True, slots=True)
class _Document:
    """A document with symbolic dimensions, which a graph was read from."""

    document: GraphDocument
    sizes: Mapping[str, int]
    max_operations: int
    folder: Path | None

    @property
    def axes(self) -> Mapping[str, tuple[str | None, ...]]:
        return {
            operand.name: tuple([size if isinstance(size, str) else None for size in operand.shape or ()])
            for operand in self.document.operands
            if operand.role in (Role.INPUT.value, Role.LABEL.value)
        }

    def at(self, sizes: Mapping[str, int]) -> TrainableGraph:
        return _graph(self.document, sizes, self.max_operations, self.folder)


def _graph(
    document: GraphDocument, sizes: Mapping[str, int], max_operations: int, folder: Path | None
) -> TrainableGraph:
    """The graph of a document, whose symbolic dimensions have these sizes."""
    declared = _all_declared(document, sizes, folder)
    try:
        graph = build_graph(
            document.name,
            declared,
            [Operation(o.name, o.type, o.inputs, o.outputs, o.attributes) for o in document.operations],
            loss=document.loss,
            optimizer=None if document.optimizer is None else _optimizer_spec(document.optimizer),
            trainable=_trainable_set(document),
            outputs=document.outputs,
            training=TrainingRules(**dict(document.training)),
            max_operations=max_operations,
        )
    except ShapeMismatchError as error:
        culprit = _fixed_size(document, declared, sizes)
        if culprit is not None:
            name, dimension, size = culprit
            error.remedy = (
                f"Constant {name!r:.80}, the sizes of a Reshape, spells out the {dimension} {size:,}: write"
                f" -1 in its place, so that it follows a {dimension} of {sizes[dimension]:,}."
            )
        raise
    symbolic = {
        size for operand in document.operands for size in operand.shape or () if isinstance(size, str)
    }
    if not symbolic:
        return graph
    known = {name: size for name, size in sizes.items() if name in symbolic}
    return replace(graph, resizable=_Document(document, known, max_operations, folder))


def _fixed_size(
    document: GraphDocument, declared: Sequence[DeclaredOperand], sizes: Mapping[str, int]
) -> tuple[str, str, int] | None:
    """The sizes of a Reshape that spell out a symbolic dimension of the document which has another size now.

    The constant, the dimension, and the size that it has in the document.
    """
    own = document.dims if document.batch is None else {"batch": document.batch, **document.dims}
    changed = [(name, size) for name, size in own.items() if sizes.get(name, size) != size]
    shapes = {o.inputs[1] for o in document.operations if o.type == "Reshape" and len(o.inputs) > 1}
    for operand in declared:
        data = operand.initializer.data if operand.initializer is not None else None
        if operand.id not in shapes or operand.dtype is not DType.INT64 or data is None or len(data) % 8:
            continue
        elements = memoryview(data).cast("q")
        for name, size in changed:
            if size in elements:
                return operand.id, name, size
    return None


def _all_declared(
    document: GraphDocument, sizes: Mapping[str, int], folder: Path | None
) -> list[DeclaredOperand]:
    """The operands. Raises DocumentError where all constants by rule together are too large."""
    declared, by_rule = [], 0
    for i, operand in enumerate(document.operands):
        declared.append(_declared(operand, sizes, ("operands", i), folder))
        initializer = declared[-1].initializer
        if operand.initializer is not None and operand.initializer.kind in RULES and initializer is not None:
            by_rule += len(initializer.data or b"")
        if by_rule > LARGEST_RULES:
            raise DocumentError(
                f"With operand {operand.name!r} the constants by rule exceed {LARGEST_RULES:,} bytes.",
                remedy="Let operations share them, or keep their elements in files.",
                path=("operands", i, "initializer"),
            )
    return declared


def _sizes(document: GraphDocument, batch: int | None, dims: Mapping[str, int]) -> dict[str, int]:
    """The sizes of symbolic dimensions, those of the caller in the place of the document's."""
    for name in dims:
        if name not in document.dims:
            known = ", ".join(document.dims)
            raise BatchError(
                f"A size of {name!r:.60} is asked for, which is no dimension of the graph.",
                remedy=f"Its dimensions are {known}." if known else 'Name it in "dims" and in shapes.',
                path=("dims", name),
            )
    if "batch" in document.dims:
        raise BatchError(
            'The batch is among the "dims".', remedy='Write it as "batch".', path=("dims", "batch")
        )
    sizes = {**document.dims, **dims}
    for name, size in sizes.items():
        if not 1 <= size <= MAX_INTEGER:
            raise BatchError(
                f"Dimension {name!r:.60} is {size}.", remedy="Give a positive number.", path=("dims", name)
            )
    value = _batch(document, batch)
    return sizes if value is None else {"batch": value, **sizes}


def _batch(document: GraphDocument, override: int | None) -> int | None:
    value = document.batch if override is None else override
    if value is not None and not 1 <= value <= MAX_INTEGER:
        raise BatchError(
            f"The batch is {value}.", remedy="Give a positive number of examples.", path=("batch",)
        )
    symbolic = any("batch" in (operand.shape or ()) for operand in document.operands)
    if override is not None and not symbolic and override not in _fixed_batches(document):
        raise BatchError(
            f"A batch of {override} is asked for, but no shape of the graph is symbolic.",
            remedy='Write "batch" for the dimension that counts examples, or ask for no batch.',
            path=("batch",),
        )
    return value


def _fixed_batches(document: GraphDocument) -> set[int | str]:
    """The first dimensions of the inputs. A mask or a table may be an input without a batch of its own."""
    return {
        operand.shape[0]
        for operand in document.operands
        if operand.role == Role.INPUT.value and operand.shape
    }


def _declared(
    operand: OperandDocument, sizes: Mapping[str, int], path: _Path, folder: Path | None
) -> DeclaredOperand:
    role = _ROLES[operand.role]
    if operand.trainable is not None and role is not Role.PARAMETER:
        raise DocumentError(
            f"Operand {operand.name!r} ({role.value}) says whether it is trainable; only parameters are.",
            remedy="Leave trainable out.",
            path=(*path, "trainable"),
        )
    shape = None if operand.shape is None else with_sizes(operand.shape, sizes, (*path, "shape"))
    dtype = None if operand.dtype is None else _DTYPES[operand.dtype]
    _check_dimensions(operand.name, shape or (), (*path, "shape"))
    storage = None if operand.storage is None else _storage(operand.storage)
    if storage is not None and operand.trainable:
        raise StorageError(
            f"Operand {operand.name!r} is trainable and has a storage, in which nothing is trained.",
            remedy="Leave its storage out, or say that it is not trainable.",
            path=(*path, "trainable"),
        )
    if storage is not None and shape is not None and dtype is not None:
        check_storage(operand.name, role, TensorType(shape, dtype), storage, path)
    initializer = _initializer(operand, role, shape, dtype, storage, sizes, (*path, "initializer"))
    if initializer is not None and initializer.file is not None:
        place = "" if folder is None else str(folder / initializer.file.path)
        initializer = replace(initializer, file=replace(initializer.file, path=place))
    trainable = operand.trainable is not False
    return DeclaredOperand(operand.name, role, shape, dtype, initializer, trainable, path, storage)


def _storage(document: StorageDocument) -> Storage:
    group = document.group
    if group is None:
        group = default_group(document.kind)
    return Storage(document.kind, group, document.zero_points, document.scales, document.axis)


def _check_dimensions(name: str, shape: Sequence[int], path: _Path) -> None:
    """Before anything is multiplied: what does not fit a 64-bit integer is refused."""
    for axis, dimension in enumerate(shape):
        if not 0 <= dimension <= MAX_INTEGER:
            shown = dimension if abs(dimension) <= MAX_INTEGER else "beyond 2**63 - 1"
            raise DimensionError(
                f"Operand {name!r} has dimension {shown} at axis {axis}.",
                remedy="Dimensions are integers from 0 to 2**63 - 1.",
                path=(*path, axis),
            )


def _initializer(
    operand: OperandDocument,
    role: Role,
    shape: tuple[int, ...] | None,
    dtype: DType | None,
    storage: Storage | None,
    sizes: Mapping[str, int],
    path: _Path,
) -> Initializer | None:
    if operand.initializer is None:
        return None
    if role not in (Role.PARAMETER, Role.STATE, Role.CONSTANT):
        raise DocumentError(
            f"Operand {operand.name!r} ({role.value}) has an initializer.",
            remedy="Only parameters, states and constants have first values.",
            path=path,
        )
    if shape is None or dtype is None:
        return None  # build_graph refuses the operand
    document = operand.initializer
    if dtype is DType.INT64 and document.values is not None:
        values = [sizes.get(x, x) if isinstance(x, str) else x for x in document.values]
        document = document.model_copy(update={"values": values})
    return to_initializer(document, operand.name, TensorType(shape, dtype, storage), path)


def _optimizer_spec(document: OptimizerDocument) -> OptimizerSpec:
    """Checked here, where paths into the document are known; the rules are the optimizers' own."""
    spec = OptimizerSpec(document.type, document.__pydantic_extra__)
    try:
        optimizer_rules(spec)
    except GraphError as error:
        error.path = tuple(part for part in error.path if part != "attributes")
        raise
    return spec


def _trainable_set(document: GraphDocument) -> Trainable:
    if isinstance(document.trainable, LastOperations):
        return document.trainable.last
    if document.trainable == "all":
        return "all"
    frozen = {operand.name for operand in document.operands if operand.trainable is False}
    for k, name in enumerate(document.trainable):
        if name in frozen:
            raise TrainableError(
                f"{name!r} is in the trainable set, and its operand says that it is not trainable.",
                remedy="Correct one of the two.",
                path=("trainable", k),
            )
    return tuple(document.trainable)


def dump_graph(graph: TrainableGraph, *, indent: int | None = None) -> bytes:
    """The document of a graph, shapes concrete. `load_graph` gives the same graph back."""
    return to_bytes(graph_content(graph, _initializers_content(graph)), indent=indent)


def _initializers_content(graph: TrainableGraph) -> dict[str, dict[str, Any]]:
    """By operand. Constants are written as rules, as far as a reader takes them."""
    contents, by_rule = {}, 0
    for operand in declared_operands(graph):
        if operand.initializer is None:
            continue
        may_be_rule = operand.role is Role.CONSTANT and by_rule + operand.type.nbytes <= LARGEST_RULES
        content = initializer_content(operand.initializer, operand.type if may_be_rule else None)
        by_rule += operand.type.nbytes if content["kind"] in RULES else 0
        contents[operand.id] = content
    return contents
