"""The rows of a program's tables, described once: what is valid, the JSON Schema, what numbers refer to."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from solver.documents.certificate import CertificateOfPlan
from solver.documents.fields import (
    FIXED_LIST,
    NUMBER,
    DocumentModel,
    Int64,
    Natural,
    Positive,
    StoredDTypeName,
    Text,
)
from solver.documents.floats import NotFinite, float_of, without_words
from solver.documents.limits import MAX_INTEGER
from solver.documents.rows import ROW, In
from solver.program import Access, EntryKind, Kind, Phase

__all__ = ["ProgramTables", "ValueNumber"]

_Names = Annotated[tuple[Text, ...], *FIXED_LIST]

# What numbers in rows are. `solver.documents.rows` checks them.
_SpaceNumber = Annotated[Natural, In("spaces")]
_TypeNumber = Annotated[Natural, In("types")]
_KindNumber = Annotated[Natural, In("kinds")]
_OriginNumber = Annotated[Natural, In("origins")]
_KernelNumber = Annotated[Natural, In("kernels")]
_OperationNumber = Annotated[Natural, In("operations")]
_FormNumber = Annotated[Natural, In("forms")]
ValueNumber = Annotated[Natural, In("values")]
_StepNumber = Annotated[Natural, In("steps")]

_Kind = Annotated[Kind, Field(strict=False)]
_Integers = Annotated[tuple[Int64, ...] | None, *FIXED_LIST[1:]]  # failing fast is for lists alone


def _attribute(value: Any) -> bool | int | float | str | tuple[int | float, ...] | None:
    """What attributes of kernels are: a plan holds those of optimizers too."""
    value = without_words(value) if isinstance(value, list) else float_of(value)
    numbers = value if isinstance(value, list) else [value] if isinstance(value, int | float) else []
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        if not isinstance(value, bool):
            raise PydanticCustomError("wanted", "a list of numbers")
    elif any(isinstance(number, int) and abs(number) > MAX_INTEGER + 1 for number in numbers):
        raise PydanticCustomError("wanted", "numbers that fit 64 bits")
    if isinstance(value, list):
        return tuple(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise PydanticCustomError("wanted", "a number, a string, true, false, null or a list of numbers")


_Attribute = Annotated[
    bool | int | float | str | tuple[int | float, ...] | None,
    PlainValidator(_attribute),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["number", "string", "boolean", "null"]},
                {"type": "array", "items": NUMBER},
            ]
        }
    ),
]


class SpaceOfPlan(NamedTuple):
    """Memory with addresses of its own: `size` bytes, and how good that is."""

    name: Text
    alignment: Positive
    addressable: bool
    size: Natural
    certificate: CertificateOfPlan


class TypeOfPlan(NamedTuple):
    """Shape and element type; [] is the shape of a scalar."""

    shape: Annotated[tuple[Natural, ...], *FIXED_LIST]
    dtype: StoredDTypeName


class FloatsOfPlan(NamedTuple):
    """The elements of a floating input that is constant by rule."""

    input: Natural
    elements: Annotated[tuple[float | NotFinite, ...], *FIXED_LIST]


class KernelOfPlan(NamedTuple):
    """What operations compute, beside their types. `constants` are the elements of integer inputs."""

    name: Text
    attributes: dict[Text, _Attribute]
    constants: Annotated[tuple[_Integers, ...], *FIXED_LIST]
    floats: Annotated[tuple[Annotated[FloatsOfPlan, ROW], ...], *FIXED_LIST]
    scratch_budget: Natural


class OperationOfPlan(NamedTuple):
    """A kernel with the types of its inputs, null where one is left out, and of its outputs."""

    id: Text
    kernel: _KernelNumber
    inputs: Annotated[tuple[_TypeNumber | None, ...], *FIXED_LIST]
    outputs: Annotated[tuple[_TypeNumber, ...], *FIXED_LIST]


class SlotOfPlan(NamedTuple):
    """What a kernel calls a value, and what it does to its bytes."""

    name: Text
    access: Annotated[Access, Field(strict=False)]


class FormOfPlan(NamedTuple):
    """What several steps have in common. One that is `due` runs in the last micro-batch of an update only."""

    phase: Annotated[Phase, Field(strict=False)]
    part: Text
    due: bool
    slots: Annotated[tuple[Annotated[SlotOfPlan, ROW], ...], *FIXED_LIST]


class ValueOfPlan(NamedTuple):
    """A place for one tensor, `offset` bytes behind the beginning of its space.

    Its label is the origin with the suffix behind it, unless `labels` has another one.
    """

    suffix: Text
    type: _TypeNumber
    kind: _KindNumber
    origin: _OriginNumber
    space: _SpaceNumber
    offset: Natural


class LabelOfPlan(NamedTuple):
    """The label of a value that does not begin with the value's origin."""

    value: ValueNumber
    label: Text


class AliasOfPlan(NamedTuple):
    """`value` lies in the bytes of `source`, `offset` bytes behind its beginning, from `step` on.

    A view of several values has a row for each; where it begins in front of one, the offset is negative.
    """

    value: ValueNumber
    source: ValueNumber
    step: _StepNumber
    view: bool
    offset: Int64


class StepOfPlan(NamedTuple):
    """One kernel call, on the levels from `level` to `until`, with a value for each slot of its form.

    `reference` is the step of the reference program that it is or repeats, null for copies.
    """

    operation: _OperationNumber
    form: _FormNumber
    reference: Natural | None
    level: Natural
    until: Natural
    values: Annotated[tuple[ValueNumber, ...], *FIXED_LIST]


class EntryOfPlan(NamedTuple):
    """`value` holds, at the start, what the value `reference` of the reference program holds there."""

    value: ValueNumber
    kind: Annotated[EntryKind, Field(strict=False)]
    reference: Natural


class ExitOfPlan(NamedTuple):
    """`value` holds, at the end, what the value `reference` of the reference program holds there."""

    value: ValueNumber
    reference: Natural


class InitialOfPlan(NamedTuple):
    """First contents: a scheme with its numbers, or ``values`` of the graph's operand `source`."""

    of: ValueNumber
    scheme: Text
    value: float | NotFinite
    scale: float
    seed: Int64
    source: Text
    sha256: Text


class ProgramTables(DocumentModel):
    """The tables of a program, with the places of its values."""

    name: Text = Field(description="The name of the program.")
    period: Positive = Field(description="Iterations (micro-batches) that make one update.")
    spaces: Annotated[tuple[Annotated[SpaceOfPlan, ROW], ...], *FIXED_LIST]
    types: Annotated[tuple[Annotated[TypeOfPlan, ROW], ...], *FIXED_LIST]
    kinds: Annotated[tuple[_Kind, ...], *FIXED_LIST]
    origins: _Names = Field(description="Operands and operations of the graph that values serve.")
    kernels: Annotated[tuple[Annotated[KernelOfPlan, ROW], ...], *FIXED_LIST]
    operations: Annotated[tuple[Annotated[OperationOfPlan, ROW], ...], *FIXED_LIST]
    forms: Annotated[tuple[Annotated[FormOfPlan, ROW], ...], *FIXED_LIST]
    values: Annotated[tuple[Annotated[ValueOfPlan, ROW], ...], *FIXED_LIST]
    labels: Annotated[tuple[Annotated[LabelOfPlan, ROW], ...], *FIXED_LIST]
    aliases: Annotated[tuple[Annotated[AliasOfPlan, ROW], ...], *FIXED_LIST]
    steps: Annotated[tuple[Annotated[StepOfPlan, ROW], ...], *FIXED_LIST]
    entry: Annotated[tuple[Annotated[EntryOfPlan, ROW], ...], *FIXED_LIST]
    exit: Annotated[tuple[Annotated[ExitOfPlan, ROW], ...], *FIXED_LIST]
    initial: Annotated[tuple[Annotated[InitialOfPlan, ROW], ...], *FIXED_LIST]
