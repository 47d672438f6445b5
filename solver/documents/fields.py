"""What the models of all documents share: their base, and fields that need words of their own."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from solver.documents.floats import NotFinite, float_of
from solver.documents.limits import MAX_INTEGER, MAX_NAME, MAX_RANK

__all__ = [
    "FIXED_LIST",
    "NO_CONTROL",
    "NUMBER",
    "Attributes",
    "DTypeName",
    "DocumentModel",
    "HyperParameter",
    "Int64",
    "Name",
    "Natural",
    "Positive",
    "Shape",
    "StoredDTypeName",
    "Text",
    "is_name",
    "is_names",
]

NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"


class DocumentModel(BaseModel):
    """Immutable, no unknown fields, no conversions: ``"1"``, ``1.0`` and ``true`` are no integers."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
        protected_namespaces=(),
    )


#: Names may be any text without control characters; `build_graph` adds its own rules.
Name = Annotated[str, Field(max_length=MAX_NAME, pattern=NO_CONTROL)]
#: Text that reaches terminals and tables.
Text = Annotated[str, Field(pattern=NO_CONTROL)]
DTypeName = Literal["float32", "float64", "int32", "int64", "int8", "uint8", "bool"]
#: Element types of the values of a plan, of which some are kept in 16 bits.
StoredDTypeName = Literal[
    "float32", "float64", "int32", "int64", "int8", "uint8", "bool", "float16", "bfloat16"
]
Int64 = Annotated[int, Field(ge=-MAX_INTEGER - 1, le=MAX_INTEGER)]
Natural = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MAX_INTEGER)]


def _tuple_of(value: Any) -> Any:
    """JSON arrays become tuples; anything else goes on to strict validation, which refuses it."""
    return tuple(value) if isinstance(value, list) else value


#: Put into ``Annotated[tuple[X, ...], *FIXED_LIST]``: strict validation takes tuples only, and one bad
#: element is enough to refuse a long list.
FIXED_LIST = (FailFast(), BeforeValidator(_tuple_of))


def is_name(value: Any) -> bool:
    """Whether the value is a string of reasonable length."""
    return isinstance(value, str) and len(value) <= MAX_NAME


def is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(is_name(name) for name in value)


def _shape(value: Any) -> tuple[int | str, ...]:
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("wanted", "a list of dimensions, [] for a scalar")
    if len(value) > MAX_RANK:
        raise PydanticCustomError("wanted", "a list of at most 32 dimensions")
    for dimension in value:
        if isinstance(dimension, bool) or not (isinstance(dimension, int) or is_name(dimension)):
            raise PydanticCustomError("wanted", 'a list of integers or "batch"')
    return tuple(value)


Shape = Annotated[
    tuple[int | str, ...],
    PlainValidator(_shape),
    WithJsonSchema(
        {
            "type": "array",
            "maxItems": MAX_RANK,
            "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"const": "batch"}]},
        }
    ),
]

_ATTRIBUTE_WORDS = "an integer, a number, a string or a list of numbers"


def _attribute(value: Any) -> int | float | str | tuple[int, ...] | tuple[float, ...]:
    if isinstance(value, bool):
        raise PydanticCustomError("wanted", "a number or a string (write 1 or 0 for true or false)")
    if isinstance(value, list | tuple):
        return _numbers(value)
    value = float_of(value)
    return _text(value) if isinstance(value, str) else _number(value)


def _numbers(values: list[Any] | tuple[Any, ...]) -> tuple[int, ...] | tuple[float, ...]:
    if len(values) > MAX_NAME:
        raise PydanticCustomError("wanted", "a list of at most 1024 numbers")
    return tuple(_number(float_of(value)) for value in values)


def _text(value: str) -> str:
    if len(value) > MAX_NAME:
        raise PydanticCustomError("wanted", "a string of at most 1024 characters")
    return value


def _hyper_parameter(value: Any) -> float | bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int | float):
        raise PydanticCustomError("wanted", "a number, true or false")
    return _number(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("wanted", _ATTRIBUTE_WORDS)
    if isinstance(value, int) and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        raise PydanticCustomError("wanted", "numbers that fit 64 bits")
    return value


#: The JSON Schema of a number, or of the word for one that JSON does not have.
NUMBER = {"anyOf": [{"type": "number"}, {"enum": [*get_args(NotFinite)]}]}

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
