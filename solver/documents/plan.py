"""Plan documents: a program with its places, in integer-indexed tables; refused when anything was changed.

A plan document carries all that running and proving a plan needs. Lifespans, sums and peaks are not in it:
they are computed from the program. `solver.plan.content` has the way from a plan to its tables. A row is
described once, here: which values are valid, the JSON Schema, and which table a number refers to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema

from solver.canonical import NotFinite, float_of, to_bytes, without_words
from solver.collector import collector_paused
from solver.documents.fields import (
    MAX_INTEGER,
    NUMBER,
    CertificateOfPlan,
    DocumentModel,
    Int64,
    JsonList,
    Natural,
    Positive,
    ScaleName,
    StorageName,
    StoredDTypeName,
    Text,
    expected,
    to_certificate,
)
from solver.documents.initializers import (
    LARGEST_RULES,
    InitializerDocument,
    initializer_content,
    to_initializer,
)
from solver.documents.options import PlannedOptionFields, to_options
from solver.documents.parse import parse_json
from solver.documents.read import header, read
from solver.documents.rows import REMEDY, In, Table, check_positions
from solver.errors import PlanError
from solver.graph.ops.base import Node
from solver.graph.storage import Storage
from solver.graph.types import DType, Initializer, Operation, RowRange, TensorType
from solver.layout import Lifespan
from solver.plan import Plan, PlannedSizes, RefusedSize, SizeRange, with_digest
from solver.plan.content import plan_content
from solver.program import (
    Access,
    Alias,
    Binding,
    CostBound,
    DualRow,
    Entry,
    EntryKind,
    Exit,
    HomeBound,
    HomeRow,
    Initial,
    Kind,
    Phase,
    Program,
    Record,
    Replacement,
    RowKind,
    Space,
    Step,
    Value,
)

__all__ = ["PlanDocument", "dump_plan", "load_plan", "to_plan", "with_digest"]

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


def _attribute(value: Any) -> bool | int | float | str | tuple[int | float, ...] | None:
    """An attribute of a kernel; optimizers have some that graphs do not."""
    value = without_words(value) if isinstance(value, list) else float_of(value)
    numbers = value if isinstance(value, list) else [value] if isinstance(value, int | float) else []
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        if not isinstance(value, bool):
            raise expected("a list of numbers")
    elif any(isinstance(number, int) and abs(number) > MAX_INTEGER + 1 for number in numbers):
        raise expected("numbers that fit 64 bits")
    if isinstance(value, list):
        return tuple(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise expected("a number, a string, true, false, null or a list of numbers")


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

    shape: JsonList[Natural]
    dtype: StoredDTypeName


class StorageOfPlan(NamedTuple):
    """How the elements of a type are kept: rows along `axis`, in groups that share a scale."""

    type: _TypeNumber
    kind: StorageName
    group: Natural
    zero_points: bool
    scales: ScaleName
    axis: Natural


class FloatsOfPlan(NamedTuple):
    """The elements of a floating input that is constant by rule."""

    input: Natural
    elements: JsonList[float | NotFinite]


class KernelOfPlan(NamedTuple):
    """The computation of operations, beside their types. `constants` are the elements of integer inputs."""

    name: Text
    attributes: dict[Text, _Attribute]
    constants: JsonList[JsonList[Int64] | None]
    floats: Table[FloatsOfPlan]
    scratch_budget: Natural


class OperationOfPlan(NamedTuple):
    """A kernel with the types of its inputs, null where one is left out, and of its outputs."""

    id: Text
    kernel: _KernelNumber
    inputs: JsonList[_TypeNumber | None]
    outputs: JsonList[_TypeNumber]


class SlotOfPlan(NamedTuple):
    """The name of a value in a kernel, and how the kernel accesses its bytes."""

    name: Text
    access: Annotated[Access, Field(strict=False)]


class FormOfPlan(NamedTuple):
    """Properties that several steps share. A step that is `due` runs in an update's last micro-batch only."""

    phase: Annotated[Phase, Field(strict=False)]
    part: Text
    due: bool
    slots: Table[SlotOfPlan]


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
    """`value` lies in the bytes of `source`, `offset` bytes behind its beginning, from `step` on.

    A view of several values has a row for each; where it begins in front of one, the offset is negative.
    """

    value: _ValueNumber
    source: _ValueNumber
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
    values: JsonList[_ValueNumber]


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
    value: float | NotFinite
    scale: float
    seed: Int64
    source: Text
    sha256: Text


class InitialRowsOfPlan(NamedTuple):
    """First contents that are rows of a larger value: from `start` on, of the `whole` along `axis`."""

    of: _ValueNumber
    axis: Natural
    start: Natural
    whole: Positive


class ConstantOfPlan(NamedTuple):
    """The elements of a constant of the graph, whose SHA-256 `initial` has."""

    source: Text
    values: InitializerDocument


class ProgramTables(DocumentModel):
    """The tables of a program, with the places of its values."""

    name: Text = Field(description="The name of the program.")
    period: Positive = Field(description="Iterations (micro-batches) that make one update.")
    spaces: Table[SpaceOfPlan]
    types: Table[TypeOfPlan]
    storages: Table[StorageOfPlan] = Field(
        (), description="The types of stored weights; left out where there are none."
    )
    kinds: JsonList[_Kind]
    origins: JsonList[Text] = Field(description="Operands and operations of the graph that values serve.")
    kernels: Table[KernelOfPlan]
    operations: Table[OperationOfPlan]
    forms: Table[FormOfPlan]
    values: Table[ValueOfPlan]
    labels: Table[LabelOfPlan]
    aliases: Table[AliasOfPlan]
    steps: Table[StepOfPlan]
    entry: Table[EntryOfPlan]
    exit: Table[ExitOfPlan]
    initial: Table[InitialOfPlan]
    initial_rows: Table[InitialRowsOfPlan] = Field(
        (), description="First contents of tiles of weights; left out where there are none."
    )


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
    operations: JsonList[Text]
    into: JsonList[Text]
    group: Int64
    bytes_before: Int64
    bytes_after: Int64


class RecordOfPlan(NamedTuple):
    """Facts about a preparation or a pass; nothing relies on them."""

    name: Text
    facts: dict[Text, bool | Int64 | Text]


class DualRowOfPlan(NamedTuple):
    """A row with its multiplier: what it says is worked out from the reference program.

    `value` and `step` are numbers of the reference program, -1 where the kind has none.
    """

    kind: Annotated[RowKind, Field(strict=False)]
    moment: Natural
    multiplier: Natural
    value: Int64
    step: Int64
    divisor: Natural
    without: JsonList[Natural]


class CostBoundOfPlan(DocumentModel):
    """Repetitions take at least `nanoseconds` in every schedule within `budget` bytes whose first runs have
    this `order` of steps of the reference program: the sum of `rows`, in parts of the denominator.
    """

    budget: Natural
    nanoseconds: Natural
    order: JsonList[Natural]
    moments: JsonList[Natural]
    denominator: Positive
    rows: Table[DualRowOfPlan]


class HomeRowOfPlan(NamedTuple):
    """The capacity of a memory on a level, with its multiplier in parts of the denominator."""

    memory: Natural
    level: Natural
    multiplier: Natural


class HomeBoundOfPlan(DocumentModel):
    """Accesses take at least `nanoseconds` in every choice of homes within the capacities: the
    bound that `rows` prove, in parts of the denominator.
    """

    nanoseconds: Natural
    denominator: Positive
    rows: Table[HomeRowOfPlan]


class RangeOfPlan(NamedTuple):
    """The sizes of a symbolic dimension that the plan serves: `least` to `most`, both included."""

    name: Text
    least: Positive
    most: Positive


class RefusedOfPlan(NamedTuple):
    """Sizes, one for each range, that the plan does not serve, and why."""

    sizes: JsonList[Positive]
    reason: Text


class PlannedSizesOfPlan(DocumentModel):
    """The sizes that the plan serves; it was made at the largest. `proved` has those, one for each range, at
    which it was proved when it was made; others are proved when they are first used.
    """

    ranges: Table[RangeOfPlan]
    proved: JsonList[JsonList[Positive]]
    refused: Table[RefusedOfPlan]


class PlanDocument(ProgramTables):
    """A memory plan: a training iteration, and a place for each of its values.

    Rows are arrays; numbers in them are positions in other tables, which are numbered by first use.
    """

    format: Literal["arenaplan.plan"]
    version: Literal[2]
    digest: str = Field(
        description="SHA-256 over the canonical JSON of everything but `constants`, in hexadecimal."
    )
    producer: Text = Field(description="The version of arenaplan that made the plan.")
    graph: Text
    graph_digest: Text
    reference_digest: Text = Field(description="SHA-256 of the reference program.")
    options: PlannedOptionFields
    deterministic: bool = Field(description="Whether wall time had no say in the result.")
    holds: Table[HoldOfPlan]
    replacements: Table[ReplacementOfPlan]
    records: Table[RecordOfPlan]
    cost_bound: CostBoundOfPlan | None = Field(
        None, description="What recomputation costs at least, with what proves it; left out without any."
    )
    home_bound: HomeBoundOfPlan | None = Field(
        None, description="How long accesses take at least, with what proves it; left out with one memory."
    )
    planned_sizes: PlannedSizesOfPlan | None = Field(
        None, description="The sizes that the plan serves beside its own; left out where it serves one."
    )
    constants: Table[ConstantOfPlan] = Field(
        (), description="Constants whose elements the graph lists; left out where there are none."
    )


@collector_paused()
def load_plan(data: bytes | Mapping[str, Any]) -> Plan:
    """The plan of a document.

    Raises DocumentError, or PlanError where numbers name nothing, content and digest disagree, or the
    document is of version 1, which has no program. Whether the plan is right is for the proof to say. Linear;
    10,000 operations, 14 MB, take about 1.5 s.
    """
    value = parse_json(data) if isinstance(data, bytes) else data
    if isinstance(value, Mapping) and {**header(PlanDocument), "version": 1}.items() <= value.items():
        raise PlanError(
            "The plan is a document of version 1, which does not hold the program that it was made for.",
            remedy="Plan the graph again with this version: arenaplan plan graph.json -o plan.json.",
            path=("version",),
        )
    if isinstance(value, Mapping) and {**header(PlanDocument), "version": 3}.items() <= value.items():
        raise PlanError(
            "The plan has entry points, and what is asked for is about the plan of one of them.",
            remedy="Name one of the entry points.",
            path=("entry_points",),
        )
    plan = to_plan(read(PlanDocument, value, range_error=PlanError))
    if with_digest(plan).digest != plan.digest:
        raise PlanError(
            "The plan's content does not match its digest: it was changed after it was made.",
            remedy=REMEDY,
            path=("digest",),
        )
    return plan


def to_plan(document: PlanDocument) -> Plan:
    """The plan of a document whose digest nobody has looked at. Raises PlanError as `load_plan` does."""
    program = to_program(document)
    if document.constants:
        program = replace(program, initial=_with_constants(document.constants, program))
    for i, hold in enumerate(document.holds):
        if hold.start >= hold.end:
            raise PlanError(
                f"holds[{i}] is [{hold.start}, {hold.end}), which is not a lifespan.",
                remedy="Lifespans are half-open, and are not empty.",
                path=("holds", i, 2),
            )
    bound, homes = document.cost_bound, document.home_bound
    rows = tuple(DualRow(*row) for row in bound.rows) if bound else ()
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
        holds={hold.value: Lifespan(hold.start, hold.end) for hold in document.holds},
        replacements=tuple(Replacement(*row) for row in document.replacements),
        records=tuple(Record(*row) for row in document.records),
        producer=document.producer,
        digest=document.digest,
        cost_bound=None if bound is None else CostBound(**{**dict(bound), "rows": rows}),
        home_bound=None
        if homes is None
        else HomeBound(homes.nanoseconds, homes.denominator, tuple(HomeRow(*row) for row in homes.rows)),
        planned_sizes=None if document.planned_sizes is None else _planned_sizes(document.planned_sizes),
    )


def _planned_sizes(sizes: PlannedSizesOfPlan) -> PlannedSizes:
    """Whether they are right is for the proof to say."""
    return PlannedSizes(
        tuple(SizeRange(*row) for row in sizes.ranges),
        tuple(sizes.proved),
        tuple(RefusedSize(*row) for row in sizes.refused),
    )


def _types(document: ProgramTables) -> list[TensorType]:
    """Raises PlanError for a storage that does not fit its type."""
    types = [TensorType(type_.shape, DType(type_.dtype)) for type_ in document.types]
    for i, row in enumerate(document.storages):
        number, stored = row.type, Storage(row.kind, row.group, row.zero_points, row.scales, row.axis)
        fault = stored.fault(types[number].shape)
        if fault is not None or types[number].dtype is not DType.FLOAT32:
            raise PlanError(
                f"storages[{i}] does not fit {types[number]}: it {fault or 'is of float32 elements'}.",
                remedy=REMEDY,
                path=("storages", i),
            )
        types[number] = replace(types[number], storage=stored)
    return types


def _initial(document: ProgramTables, values: Sequence[Value]) -> dict[int, Initial]:
    """Raises PlanError for rows of what has no first contents, or that do not lie in the whole."""
    initial = {row.of: Initial(row.scheme, float_of(row.value), *row[3:]) for row in document.initial}
    for i, (of, *rows) in enumerate(document.initial_rows):
        own = RowRange(*rows)
        shape = values[of].type.shape
        inside = own.axis < len(shape) and own.start + shape[own.axis] <= own.whole
        if of not in initial or initial[of].rows is not None or not inside:
            raise PlanError(
                f"initial_rows[{i}] names rows that {values[of].label!r} cannot begin with.",
                remedy=REMEDY,
                path=("initial_rows", i),
            )
        initial[of] = replace(initial[of], rows=own)
    return initial


def _with_constants(rows: Sequence[ConstantOfPlan], program: Program) -> dict[int, Initial]:
    """The first contents of a program, constants with their elements.

    Raises PlanError for elements of no constant, of another digest, or of more bytes than documents may have.
    """
    initial, of, left = dict(program.initial), dict[str, list[int]](), LARGEST_RULES
    for value, first in initial.items():
        of.setdefault(first.source, []).append(value)
    for i, (source, elements) in enumerate(rows):
        values, data = of.get(source, ()), None
        if values and (left := left - (whole := _whole_type(program, values[0])).nbytes) >= 0:
            data = to_initializer(elements, source, whole, ("constants", i, 1)).data
        if data is None or {initial[value].sha256 for value in values} != {hashlib.sha256(data).hexdigest()}:
            raise PlanError(
                f"constants[{i}] does not have the elements of {source!r:.200} that the plan was made with.",
                remedy=REMEDY,
                path=("constants", i),
            )
        initial |= {value: replace(initial[value], data=data) for value in values}
    return initial


def _constants(program: Program) -> dict[str, dict[str, Any]]:
    """The elements of constants, by operand."""
    return {
        first.source: initializer_content(Initializer("values", data=first.data), _whole_type(program, value))
        for value, first in sorted(program.initial.items())
        if first.data is not None
    }


def _whole_type(program: Program, value: int) -> TensorType:
    """The type of what the first contents of a value are rows of, or all of."""
    type_, rows = program.values[value].type, program.initial[value].rows
    if rows is None:
        return type_
    return replace(type_, shape=(*type_.shape[: rows.axis], rows.whole, *type_.shape[rows.axis + 1 :]))


def to_program(document: ProgramTables) -> Program:
    """The program of a document's tables. Raises PlanError where a number names nothing. Linear."""
    check_positions(document)
    types = _types(document)
    kinds, kernels, forms = document.kinds, document.kernels, document.forms
    operations = []
    for row in document.operations:
        kernel = kernels[row.kernel]
        inputs = tuple([None if k is None else types[k] for k in row.inputs])
        names = tuple([f"x{i}" if k is not None else "" for i, k in enumerate(row.inputs)])
        operation = Operation(row.id, kernel.name, names, tuple([f"y{k}" for k in range(len(row.outputs))]))
        floats = {constant.input: tuple(map(float, constant.elements)) for constant in kernel.floats}
        outputs = tuple([types[k] for k in row.outputs])
        operations.append(
            Node(
                operation, inputs, outputs, kernel.constants, kernel.attributes, kernel.scratch_budget, floats
            )
        )
    steps = []
    for t, step in enumerate(document.steps):
        phase, part, due, slots = forms[step.form]
        if len(slots) != len(step.values):
            raise PlanError(
                f"steps[{t}] has {len(step.values)} values; its form has {len(slots)} slots.",
                remedy=REMEDY,
                path=("steps", t, 5),
            )
        bindings = tuple(
            [Binding(name, value, access) for (name, access), value in zip(slots, step.values, strict=True)]
        )
        steps.append(Step(step.operation, phase, bindings, step.reference, step.level, step.until, part, due))
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
    program = Program(
        name=document.name,
        spaces=tuple(Space(*row[:3]) for row in document.spaces),
        values=tuple(values),
        operations=tuple(operations),
        steps=tuple(steps),
        entry=tuple(Entry(*row) for row in document.entry),
        exit=tuple(Exit(*row) for row in document.exit),
        aliases=tuple(Alias(*row) for row in document.aliases),
        period=document.period,
        initial=_initial(document, values),
    )
    _check_program(program)
    return program


def _check_program(program: Program) -> None:
    """Raises PlanError unless labels are unique, and levels and aliases in order: views of a plan need it."""
    if len(program.by_label) < len(program.values):
        i = next(i for i, v in enumerate(program.values) if program.by_label[v.label] != i)
        raise PlanError(
            f"values[{i}] is a second value {program.values[i].label!r}.",
            remedy=REMEDY,
            path=("values", i, 0),
        )
    before, end = 0, min(program.duration, len(program.steps))
    for t, step in enumerate(program.steps):
        if not before <= step.level <= step.until < end:
            raise PlanError(
                f"steps[{t}] runs on the levels {step.level} to {step.until}. Levels never fall, and"
                " an iteration has at most as many as steps.",
                remedy=REMEDY,
                path=("steps", t, 3),
            )
        before = step.level
    _check_names(program)
    sources: set[int] = set()
    placed: dict[int, list[Alias]] = {}
    for i, alias in enumerate(program.aliases):
        sources.add(alias.source)
        bound = {binding.value for binding in program.steps[alias.step].bindings}
        spaces = {program.values[alias.value].space, program.values[alias.source].space}
        others = placed.setdefault(alias.value, [])
        unordered = alias.value in sources or any(
            other.step != alias.step or other.source == alias.source or not (other.view and alias.view)
            for other in others
        )
        if unordered or not {alias.value, alias.source} <= bound or len(spaces) > 1:
            raise PlanError(
                f"aliases[{i}] lays {program.values[alias.value].label!r} into"
                f" {program.values[alias.source].label!r}; one step must bind both, in one space, and aliases"
                " stand in order of definition, several of one value for views only.",
                remedy=REMEDY,
                path=("aliases", i),
            )
        others.append(alias)


def _check_names(program: Program) -> None:
    """Callers and exporters know what is fed and what is a result by the names that the graph gives them.

    Whether these are the names of this graph is for the proof to say.
    """
    places: list[tuple[EntryKind | None, int, int]]
    places = [(EntryKind.FED, e.value, e.reference) for e in program.entry if e.kind is EntryKind.FED]
    places += [(None, exit_.value, exit_.reference) for exit_ in program.exit]
    staying = {entry.reference for entry in program.entry if entry.kind is not EntryKind.FED}
    known = {(kind, reference, value) for kind, value, reference in places}
    fed = {reference for kind, reference, _ in known if kind is not None}
    for kind, value, reference in places:
        name = program.values[value].origin
        number = program.by_label.get(name)
        # A result that no value is named after cannot be taken for another one.
        if reference in staying or (number is None and reference not in fed):
            continue
        if (kind, reference, number) not in known:
            what = "the result" if kind is None else "what the caller feeds"
            raise PlanError(
                f"values[{value}] is {what} as {name!r}, but the value of this name is another one.",
                remedy=REMEDY,
                path=("values", value, 0),
            )


@collector_paused()
def dump_plan(plan: Plan, *, indent: int | None = None) -> bytes:
    """The document of a plan, in a fixed order: equal plans give equal bytes.

    With `indent` it has one row a line.
    """
    content = plan_content(plan)
    if constants := _constants(plan.program):
        content["constants"] = list(constants.items())
    if indent is None:
        return to_bytes(content)
    margin = " " * indent
    fields = []
    for name, value in content.items():
        text = to_bytes(value).decode() if not isinstance(value, list) else _lines(value, margin)
        fields.append(f"{margin}{json.dumps(name)}: {text}")
    return ("{\n" + ",\n".join(fields) + "\n}").encode()


#: The text of a row, as `to_bytes` writes it; one encoder for all of them.
_ROW = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _lines(rows: Sequence[Any], margin: str) -> str:
    if not rows:
        return "[]"
    between = f",\n{margin * 2}"
    return f"[\n{margin * 2}{between.join(map(_ROW, rows))}\n{margin}]"
