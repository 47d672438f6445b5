"""The usual graph document, read without models.

Models (`solver.documents.graph_models`) say what a document may look like and what is wrong with it. Loading
them takes longer than planning a small network, and most documents are right. So this reads what it is sure
of and leaves all else, right or wrong, to the models; tests hold the two against each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, Literal, NamedTuple

from solver.documents.floats import float_of
from solver.documents.limits import MAX_INTEGER, MAX_NAME, MAX_RANK
from solver.graph.types import DType, Operation, Role, TrainingRules

__all__ = ["GraphFields", "InitializerFields", "OperandFields", "OptimizerFields", "usual_graph"]

_GRAPH: Final = frozenset({
    "format", "version", "name", "batch", "operands", "operations", "loss", "optimizer", "training",
    "trainable", "outputs",
})  # fmt: skip
_OPERAND: Final = frozenset({"name", "role", "shape", "dtype", "trainable", "initializer"})
_OPERATION: Final = frozenset({"name", "type", "inputs", "outputs", "attributes"})
_INITIALIZER: Final = frozenset(
    {"kind", "value", "scale", "seed", "values", "base64", "file", "offset", "sha256"}
)
_KINDS: Final = frozenset({
    "zeros", "ones", "constant", "normal", "uniform", "he_normal", "glorot_uniform", "values", "file",
})  # fmt: skip
_ROLES: Final = frozenset(role.value for role in Role)
_DTYPES: Final = frozenset(dtype.value for dtype in DType)

_LONGEST_PATH: Final = 4096
_DIGEST: Final = re.compile("[0-9a-f]{64}")

#: Integers up to here are the same number as a float.
_EXACT: Final = 2**53


class InitializerFields(NamedTuple):
    """What the document says of first values; None for what it does not say."""

    kind: str
    value: float | None = None
    scale: float | None = None
    seed: int | None = None
    values: list[Any] | None = None
    base64: str | None = None
    file: str | None = None
    offset: int | None = None
    sha256: str | None = None
    step: float | None = None
    other: float | None = None
    lower: int | None = None
    upper: int | None = None
    axes: tuple[int, ...] | None = None


class OperandFields(NamedTuple):
    """What the document says of an operand; None for what it does not say."""

    name: str
    role: str
    shape: tuple[int | str, ...] | None = None
    dtype: str | None = None
    trainable: bool | None = None
    initializer: InitializerFields | None = None


class OptimizerFields(NamedTuple):
    """The optimizer and its hyper-parameters."""

    type: str
    parameters: Mapping[str, float | bool]


@dataclass(frozen=True, slots=True)
class GraphFields:
    """A graph document of the right form, its rules unchecked; `trainable` is a number for the last ones."""

    name: str
    batch: int | None
    operands: Sequence[OperandFields]
    operations: Sequence[Operation]
    loss: str | None
    optimizer: OptimizerFields
    training: TrainingRules
    trainable: Literal["all"] | int | Sequence[str]
    outputs: tuple[str, ...]


class _Unusual(Exception):
    """Left to the models."""


def usual_graph(value: Mapping[str, Any]) -> GraphFields | None:
    """The fields of a document whose format and version are known; None where models have to look. Linear."""
    try:
        return _graph(value)
    except (_Unusual, KeyError):  # a field that is missing is for the models, too
        return None


def _graph(value: Mapping[str, Any]) -> GraphFields:
    _check(type(value) is dict and value.keys() <= _GRAPH)
    batch, loss, trainable = value.get("batch"), value.get("loss"), value.get("trainable", "all")
    _check(batch is None or (type(batch) is int and -MAX_INTEGER <= batch <= MAX_INTEGER))
    _check(loss is None or (type(loss) is str and len(loss) <= MAX_NAME))
    if trainable != "all":
        _check(type(trainable) is list and all(type(n) is str and len(n) <= MAX_NAME for n in trainable))
    _check("training" not in value)
    return GraphFields(
        _name(value["name"]),
        batch,
        [_operand(given) for given in _list(value["operands"])],
        [_operation(given) for given in _list(value["operations"])],
        loss,
        _optimizer(value["optimizer"]),
        TrainingRules(),
        trainable,
        _names(value.get("outputs", [])),
    )


def _check(usual: bool) -> None:
    if not usual:
        raise _Unusual


def _list(value: Any) -> list[Any]:
    _check(type(value) is list)
    found: list[Any] = value
    return found


def _name(value: Any) -> str:
    """Printable text holds no control character and no half of a surrogate pair."""
    if type(value) is not str or len(value) > MAX_NAME or not value.isprintable():
        raise _Unusual
    return value


def _names(values: Any) -> tuple[str, ...]:
    if type(values) is not list:
        raise _Unusual
    return tuple([_name(value) for value in values])


def _operand(given: Any) -> OperandFields:
    if type(given) is not dict or not given.keys() <= _OPERAND:
        raise _Unusual
    role, dtype, trainable = given["role"], given.get("dtype"), given.get("trainable")
    shape, initializer = given.get("shape"), given.get("initializer")
    if type(role) is not str or role not in _ROLES or (trainable is not None and type(trainable) is not bool):
        raise _Unusual
    if dtype is not None and (type(dtype) is not str or dtype not in _DTYPES):
        raise _Unusual
    if shape is not None:
        if type(shape) is not list or len(shape) > MAX_RANK:
            raise _Unusual
        for dimension in shape:
            if type(dimension) is not int and (type(dimension) is not str or len(dimension) > MAX_NAME):
                raise _Unusual
        shape = tuple(shape)
    first = None if initializer is None else _initializer(initializer)
    return OperandFields(_name(given["name"]), role, shape, dtype, trainable, first)


def _initializer(given: Any) -> InitializerFields:
    if type(given) is not dict or not given.keys() <= _INITIALIZER:
        raise _Unusual
    kind, seed, values, text = given["kind"], given.get("seed"), given.get("values"), given.get("base64")
    _check(type(kind) is str and kind in _KINDS)
    _check(seed is None or (type(seed) is int and 0 <= seed <= MAX_INTEGER))
    _check(values is None or type(values) is list)
    _check(text is None or type(text) is str)
    value, scale = _float(given.get("value")), _float(given.get("scale"))
    _check(scale is None or scale > 0)
    file, offset, digest = given.get("file"), given.get("offset"), given.get("sha256")
    _check(file is None or (type(file) is str and len(file) <= _LONGEST_PATH and file.isprintable()))
    _check(offset is None or (type(offset) is int and 0 <= offset <= MAX_INTEGER))
    _check(digest is None or (type(digest) is str and _DIGEST.fullmatch(digest) is not None))
    return InitializerFields(kind, value, scale, seed, values, text, file, offset, digest)


def _float(value: Any) -> float | None:
    if value is None:
        return None
    _check((type(value) is float and isfinite(value)) or (type(value) is int and -_EXACT <= value <= _EXACT))
    return float(value)


def _operation(given: Any) -> Operation:
    if type(given) is not dict or not given.keys() <= _OPERATION:
        raise _Unusual
    attributes = given.get("attributes", {})
    if attributes:
        attributes = {key: _attribute(value) for key, value in _pairs(attributes)}
    elif type(attributes) is not dict:
        raise _Unusual
    name, kind = _name(given["name"]), _name(given["type"])
    return Operation(name, kind, _names(given["inputs"]), _names(given["outputs"]), attributes)


def _pairs(given: Any) -> Sequence[tuple[str, Any]]:
    if type(given) is not dict or not all(type(key) is str and key.isprintable() for key in given):
        raise _Unusual
    return list(given.items())


def _attribute(value: Any) -> Any:
    if type(value) is list:
        _check(len(value) <= MAX_NAME)
        return tuple([_number(element) for element in value])
    if type(value) is str:
        _check(len(value) <= MAX_NAME)
        return float_of(value)
    return _number(value)


def _number(value: Any) -> int | float:
    if type(value) is float or (type(value) is int and -MAX_INTEGER - 1 <= value <= MAX_INTEGER):
        return value
    raise _Unusual


def _optimizer(given: Any) -> OptimizerFields:
    fields = dict(_pairs(given))
    kind = _name(fields.pop("type"))
    parameters = {key: value if type(value) is bool else _number(value) for key, value in fields.items()}
    return OptimizerFields(kind, parameters)
