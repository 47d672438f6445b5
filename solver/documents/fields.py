"""Fields that several documents have: the base of all models, names, numbers, lists, sizes, certificates."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Final, Literal, LiteralString, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from solver.canonical import NotFinite
from solver.layout import Certificate, Proof, Status

__all__ = [
    "MAX_INTEGER",
    "MAX_LISTED",
    "MAX_NAME",
    "MAX_RANK",
    "NO_CONTROL",
    "NUMBER",
    "CertificateOfPlan",
    "DTypeName",
    "DocumentModel",
    "Int64",
    "JsonList",
    "Name",
    "Natural",
    "Positive",
    "ScaleName",
    "Size",
    "StorageName",
    "StoredDTypeName",
    "Text",
    "expected",
    "read_size",
    "read_with",
    "refused",
    "to_certificate",
]

#: What signed 64-bit integers of runtimes hold; also the range of sizes and offsets.
MAX_INTEGER: Final = 2**63 - 1

#: NumPy's arrays have at most 64 axes; half of that leaves room for what operators add.
MAX_RANK: Final = 32

#: Characters of a name, and numbers in an attribute: what is repeated in errors stays readable.
MAX_NAME: Final = 1024

NO_CONTROL: Final = r"^[^\x00-\x1f\x7f]*$"

#: Memories, reserved ranges and dimensions that one document may list.
MAX_LISTED: Final = 1024

T = TypeVar("T")


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
#: How stored weights are kept, and the types of their scales.
StorageName = Literal["float16", "bfloat16", "int8", "int4", "q4_k"]
ScaleName = Literal["float16", "bfloat16", "float32"]
Int64 = Annotated[int, Field(ge=-MAX_INTEGER - 1, le=MAX_INTEGER)]
Natural = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MAX_INTEGER)]

#: A JSON array, which becomes a tuple. One bad element is enough to refuse a long one.
JsonList = Annotated[tuple[T, ...], Field(strict=False, fail_fast=True)]

#: The JSON Schema of a number, or of the word for one that JSON does not have.
NUMBER: Final = {"anyOf": [{"type": "number"}, {"enum": [*get_args(NotFinite)]}]}


def expected(words: str) -> PydanticCustomError:
    """A refusal of a value: `words` complete the remedy "It must be ..."."""
    return PydanticCustomError("expected", "{words}", {"words": words})


def refused(message: str, remedy: str, *, kind: LiteralString = "refused") -> PydanticCustomError:
    """A refusal of a value in sentences of its own; `kind` is the type of the error among pydantic's."""
    return PydanticCustomError(kind, "{message}", {"message": message, "remedy": remedy})


def read_with(reader: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A validator that reads text with `reader`, whose ValueError says what to give, unless it is `refused`.

    The field's type judges all other values.
    """

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return reader(value)
        except PydanticCustomError:
            raise
        except ValueError as error:
            raise expected(str(error).removeprefix("give ")) from None

    return read


#: A number, which may have commas as messages print them, and a unit of `ByteSize`, with nothing around them.
#: Read by itself, that type ignores what follows a number (20,971,520 would be 20 bytes) and drops parts of a
#: byte.
_WRITTEN: Final = (
    r"^\s*((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?)"
    r"\s*((?:[kKmMgGtTpPeE][iI]?)?[bB]|[kKmMgGtTpPeE]?)\s*$"
)
_WORDS: Final = "bytes, or a number with kB, MB, GB, KiB, MiB or GiB"


@cache
def _unit() -> TypeAdapter[ByteSize]:
    """Made when the first size is read as text: it takes ten milliseconds."""
    return TypeAdapter(ByteSize)


def read_size(text: str) -> int:
    """The whole bytes, below 2**63, of ``65536``, ``65,536``, ``24MiB`` or ``1.5 GB``.

    Raises ValueError, which says what to give.
    """
    parts = re.match(_WRITTEN, text, re.ASCII)
    if parts is None:
        raise ValueError(f"give {_WORDS}")
    size = Fraction(parts[1].replace(",", "")) * int(_unit().validate_python(f"1{parts[2]}"))
    if size.denominator != 1:
        raise ValueError(f"give {_WORDS}")
    if size > MAX_INTEGER:
        raise ValueError(f"give at most {MAX_INTEGER:,} bytes")
    return int(size)


#: Bytes, as a whole number or as text with a unit.
Size = Annotated[
    Natural,
    BeforeValidator(read_with(read_size)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER},
                {"type": "string", "pattern": _WRITTEN},
            ]
        }
    ),
]


class CertificateOfPlan(DocumentModel):
    """How good an arena is, and why that is known."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    proof: Literal["max-load", "solver"] | None
    lower_bound: Int64
    witness_step: Int64 | None
    solver: Text


def to_certificate(document: CertificateOfPlan) -> Certificate:
    return Certificate(
        status=Status(document.status),
        proof=None if document.proof is None else Proof(document.proof),
        lower_bound=document.lower_bound,
        witness_step=document.witness_step,
        solver=document.solver,
    )
