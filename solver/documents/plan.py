"""Plan documents: a program with its places, in integer-indexed tables; refused when anything was changed.

Version 2 carries all that running and proving a plan needs. Lifespans, sums and peaks are not in it: they are
computed from the program. Version 1, tables of buffers without a program, is read for people and allocators.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from solver.documents.certificate import CertificateOfPlan, certificate_to_dict, to_certificate
from solver.documents.fields import (
    FIXED_LIST,
    MAX_INTEGER,
    DocumentModel,
    DTypeName,
    Int64,
    Natural,
    Positive,
    Text,
)
from solver.documents.options import OptionFields, options_to_dict, to_options
from solver.documents.parse import canonical_json, to_bytes
from solver.documents.plan_version1 import load_version1
from solver.documents.program_tables import program_tables
from solver.documents.read import read, read_header
from solver.documents.rows import ROW, In, check_positions
from solver.errors import PlanError
from solver.graph.ops.base import Node
from solver.graph.types import DType, Operation, TensorType
from solver.layout import Lifespan
from solver.plan import Plan, PlanTables
from solver.program import (
    Access,
    Alias,
    Binding,
    Entry,
    EntryKind,
    Exit,
    Initial,
    Kind,
    Phase,
    Program,
    Record,
    Replacement,
    Space,
    Step,
    Value,
)

__all__ = ["FORMAT", "PlanDocument", "dump_plan", "load_plan", "load_plan_tables", "with_digest"]

FORMAT = "arenaplan.plan"
VERSION = 2

_REMEDY = "Take the plan as the planner wrote it, or make a new one."

_Names = Annotated[tuple[Text, ...], *FIXED_LIST]

# What numbers in rows are. `solver.documents.rows` checks them.
_SpaceNumber = Annotated[Natural, In("spaces")]
_TypeNumber = Annotated[Natural, In("types")]
_KindNumber = Annotated[Natural, In("kinds")]
_OriginNumber = Annotated[Natural, In("origins")]
_KernelNumber = Annotated[Natural, In("kernels")]
_OperationNumber = Annotated[Natural, In("operations")]
_FormNumber = Annotated[Natural, In("forms")]
_ValueNumber = Annotated[Natural, In("values")]
_StepNumber = Annotated[Natural, In("steps")]

_Kind = Annotated[Kind, Field(strict=False)]
_Integers = Annotated[tuple[Int64, ...] | None, *FIXED_LIST[1:]]  # failing fast is for lists alone


def _attribute(value: Any) -> bool | int | float | str | tuple[int | float, ...] | None:
    """What attributes of kernels are: a plan holds those of optimizers too."""
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
                {"type": "array", "items": {"type": "number"}},
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
    shape: Annotated[tuple[Positive, ...], *FIXED_LIST]
    dtype: DTypeName


class FloatsOfPlan(NamedTuple):
    """The elements of a floating input that is constant by rule."""

    input: Natural
    elements: Annotated[tuple[float | Literal["NaN", "Infinity", "-Infinity"], ...], *FIXED_LIST]


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

    value: _ValueNumber
    label: Text


class AliasOfPlan(NamedTuple):
    """`value` lies in the bytes of `source`, `offset` bytes behind its beginning, from `step` on."""

    value: _ValueNumber
    source: _ValueNumber
    step: _StepNumber
    view: bool
    offset: Natural


class StepOfPlan(NamedTuple):
    """One kernel call, on the levels from `level` to `until`, with a value for each slot of its form.

    `reference` is the step of the reference program that it is or repeats, null for copies.
    """

    operation: _OperationNumber
    form: _FormNumber
    reference: Natural | None
    level: Natural
    until: Natural
    values: Annotated[tuple[_ValueNumber, ...], *FIXED_LIST]


class EntryOfPlan(NamedTuple):
    """`value` holds, at the start, what the value `reference` of the reference program holds there."""

    value: _ValueNumber
    kind: Annotated[EntryKind, Field(strict=False)]
    reference: Natural


class ExitOfPlan(NamedTuple):
    """`value` holds, at the end, what the value `reference` of the reference program holds there."""

    value: _ValueNumber
    reference: Natural


class InitialOfPlan(NamedTuple):
    """First contents: a scheme with its numbers, or ``values`` of the graph's operand `source`."""

    of: _ValueNumber
    scheme: Text
    value: float
    scale: float
    seed: Int64
    source: Text
    sha256: Text


class HoldOfPlan(NamedTuple):
    """The target keeps `value` during levels ``[start, end)``, whatever the program needs."""

    value: _ValueNumber
    start: Natural
    end: Positive


class ReplacementOfPlan(NamedTuple):
    """Operations of the graph, and `into` which they were turned before planning.

    Those of one `group` were taken together; the bytes are the lower bounds before and after.
    """

    rule: Text
    operations: _Names
    into: _Names
    group: Int64
    bytes_before: Int64
    bytes_after: Int64


class RecordOfPlan(NamedTuple):
    """What a preparation or a pass did; nothing relies on it."""

    name: Text
    facts: dict[Text, bool | Int64 | Text]


class PlanDocument(DocumentModel):
    """A memory plan: a training iteration, and a place for each of its values.

    Rows are arrays; numbers in them are positions in other tables, which are numbered by first use.
    """

    format: Literal["arenaplan.plan"]
    version: Literal[2]
    digest: str = Field(description="SHA-256 over the canonical JSON of everything else, in hexadecimal.")
    producer: Text = Field(description="The version of arenaplan that made the plan.")
    graph: Text
    graph_digest: Text
    reference_digest: Text = Field(description="SHA-256 of the reference program.")
    options: OptionFields
    deterministic: bool = Field(description="Whether wall time had no say in the result.")
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
    holds: Annotated[tuple[Annotated[HoldOfPlan, ROW], ...], *FIXED_LIST]
    replacements: Annotated[tuple[Annotated[ReplacementOfPlan, ROW], ...], *FIXED_LIST]
    records: Annotated[tuple[Annotated[RecordOfPlan, ROW], ...], *FIXED_LIST]


def with_digest(plan: Plan) -> Plan:
    """The plan with its digest: SHA-256 over its canonical JSON without the digest."""
    content = _to_dict(plan)
    del content["digest"]
    return replace(plan, digest=hashlib.sha256(canonical_json(content)).hexdigest())


def dump_plan(plan: Plan, *, indent: int | None = None) -> bytes:
    """The document of a plan, in a fixed order: equal plans give equal bytes. With `indent` one row a line."""
    content = _to_dict(plan)
    if indent is None:
        return to_bytes(content)
    margin = " " * indent
    fields = []
    for name, value in content.items():
        text = to_bytes(value).decode() if not isinstance(value, list) else _lines(value, margin)
        fields.append(f"{margin}{json.dumps(name)}: {text}")
    return ("{\n" + ",\n".join(fields) + "\n}").encode()


def _lines(rows: Sequence[Any], margin: str) -> str:
    if not rows:
        return "[]"
    lines = ",\n".join(f"{margin * 2}{to_bytes(row).decode()}" for row in rows)
    return f"[\n{lines}\n{margin}]"


def load_plan(data: bytes | Mapping[str, Any]) -> Plan:
    """The plan of a document of version 2.

    Raises DocumentError, or PlanError where numbers name nothing, content and digest disagree, or the document
    is of version 1, which has no program. Whether the plan is right is for the proof to say.
    """
    with _collector_paused():
        return _load(data)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Large documents are millions of objects without a cycle, which the collector goes through again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _load(data: bytes | Mapping[str, Any]) -> Plan:
    value, version = read_header(data, format_=FORMAT, versions=(1, VERSION))
    if version == 1:
        raise PlanError(
            "The plan is a document of version 1, which does not hold the program that it was made for.",
            remedy="Plan again with this version. (Version 1 is read for tables, maps and comparisons only.)",
            path=("version",),
        )
    document = read(PlanDocument, value, format_=FORMAT, version=VERSION, range_error=PlanError)
    check_positions(document)
    plan = _to_plan(document)
    if with_digest(plan).digest != plan.digest:
        raise PlanError(
            "The plan's content does not match its digest: it was changed after it was made.",
            remedy=_REMEDY,
            path=("digest",),
        )
    return plan


def load_plan_tables(data: bytes | Mapping[str, Any]) -> PlanTables:
    """The tables of a plan for people and allocators, from a document of either version.

    Raises what `load_plan` raises, except for the version.
    """
    value, version = read_header(data, format_=FORMAT, versions=(1, VERSION))
    return load_version1(value) if version == 1 else load_plan(value).tables


def _to_dict(plan: Plan) -> dict[str, Any]:
    tables = program_tables(plan.program)
    spaces = zip(tables["spaces"], plan.sizes, map(certificate_to_dict, plan.certificates), strict=True)
    tables["spaces"] = [(*space, size, certificate) for space, size, certificate in spaces]
    places = zip(tables["values"], plan.offsets, strict=True)
    tables["values"] = [(*value, offset) for value, offset in places]
    return {
        "format": FORMAT,
        "version": VERSION,
        "digest": plan.digest,
        "producer": plan.producer,
        "graph": plan.graph,
        "graph_digest": plan.graph_digest,
        "reference_digest": plan.reference_digest,
        "options": options_to_dict(plan.options),
        "deterministic": plan.deterministic,
        **tables,
        "holds": [(value, hold.start, hold.end) for value, hold in sorted(plan.holds.items())],
        "replacements": [astuple(replacement) for replacement in plan.replacements],
        "records": [(record.name, dict(sorted(record.facts.items()))) for record in plan.records],
    }


def _to_plan(document: PlanDocument) -> Plan:
    program = _to_program(document)
    _check_program(program)
    touched = {binding.value for step in program.steps for binding in step.bindings}
    holds = {}
    for i, hold in enumerate(document.holds):
        if hold.value not in touched or hold.start >= hold.end:
            raise PlanError(
                f"holds[{i}] keeps {program.values[hold.value].label!r} during [{hold.start}, {hold.end});"
                " a step must touch the value, and the interval must not be empty.",
                remedy=_REMEDY,
                path=("holds", i),
            )
        holds[hold.value] = Lifespan(hold.start, hold.end)
    return Plan(
        graph=document.graph,
        graph_digest=document.graph_digest,
        reference_digest=document.reference_digest,
        options=to_options(document.options),
        program=program,
        offsets=tuple(value.offset for value in document.values),
        sizes=tuple(space.size for space in document.spaces),
        certificates=tuple(to_certificate(space.certificate) for space in document.spaces),
        deterministic=document.deterministic,
        holds=holds,
        replacements=tuple(Replacement(*row) for row in document.replacements),
        records=tuple(Record(*row) for row in document.records),
        producer=document.producer,
        digest=document.digest,
    )


def _to_program(document: PlanDocument) -> Program:
    types = [TensorType(type_.shape, DType(type_.dtype)) for type_ in document.types]
    kinds, kernels, forms = document.kinds, document.kernels, document.forms
    operations = []
    for row in document.operations:
        kernel = kernels[row.kernel]
        inputs = tuple([None if k is None else types[k] for k in row.inputs])
        names = tuple([f"x{i}" if k is not None else "" for i, k in enumerate(row.inputs)])
        operation = Operation(row.id, kernel.name, names, tuple([f"y{k}" for k in range(len(row.outputs))]))
        floats = {given.input: tuple(map(float, given.elements)) for given in kernel.floats}
        outputs = tuple([types[k] for k in row.outputs])
        operations.append(
            Node(operation, inputs, outputs, kernel.constants, kernel.attributes, kernel.scratch_budget, floats)
        )
    steps = []
    for t, step in enumerate(document.steps):
        phase, part, due, slots = forms[step.form]
        if len(slots) != len(step.values):
            raise PlanError(
                f"steps[{t}] has {len(step.values)} values; its form has {len(slots)} slots.",
                remedy=_REMEDY,
                path=("steps", t, 5),
            )
        bindings = tuple(
            [Binding(name, value, access) for (name, access), value in zip(slots, step.values, strict=True)]
        )
        steps.append(
            Step(step.operation, phase, bindings, step.reference, step.level, step.until, part, due)
        )
    origins, labels = document.origins, {row.value: row.label for row in document.labels}
    values = [
        Value(
            labels[i] if i in labels else origins[v.origin] + v.suffix,
            types[v.type],
            kinds[v.kind],
            origins[v.origin],
            v.space,
        )
        for i, v in enumerate(document.values)
    ]
    return Program(
        name=document.name,
        spaces=tuple(Space(*row[:3]) for row in document.spaces),
        values=tuple(values),
        operations=tuple(operations),
        steps=tuple(steps),
        entry=tuple(Entry(*row) for row in document.entry),
        exit=tuple(Exit(*row) for row in document.exit),
        aliases=tuple(Alias(*row) for row in document.aliases),
        period=document.period,
        initial={row.of: Initial(*row[1:]) for row in document.initial},
    )


def _check_program(program: Program) -> None:
    """What views of a plan rely on: unique labels, levels in order, aliases that end in a value of their own."""
    if len(program.by_label) < len(program.values):
        labels: set[str] = set()
        i = next(i for i, v in enumerate(program.values) if v.label in labels or labels.add(v.label))
        raise PlanError(
            f"values[{i}] is a second value {program.values[i].label!r}.", remedy=_REMEDY, path=("values", i, 0)
        )
    before, end = 0, min(program.duration, len(program.steps))
    for t, step in enumerate(program.steps):
        if not before <= step.level <= step.until < end:
            raise PlanError(
                f"steps[{t}] runs on the levels {step.level} to {step.until}. Levels never fall, and an iteration"
                " has at most as many as steps.",
                remedy=_REMEDY,
                path=("steps", t, 3),
            )
        before = step.level
    sources: set[int] = set()
    placed: set[int] = set()
    for i, alias in enumerate(program.aliases):
        sources.add(alias.source)
        bound = {binding.value for binding in program.steps[alias.step].bindings}
        spaces = {program.values[alias.value].space, program.values[alias.source].space}
        if alias.value in sources | placed or not {alias.value, alias.source} <= bound or len(spaces) > 1:
            raise PlanError(
                f"aliases[{i}] lays {program.values[alias.value].label!r} into"
                f" {program.values[alias.source].label!r}; one step must bind both, in one space, and aliases"
                " stand in order of definition.",
                remedy=_REMEDY,
                path=("aliases", i),
            )
        placed.add(alias.value)
