"""Plan documents: a program with its places, in integer-indexed tables; refused when anything was changed.

Version 2 carries all that running and proving a plan needs. Lifespans, sums and peaks are not in it: they are
computed from the program. Version 1, tables of buffers without a program, is read for people and allocators.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from solver.collector import collector_paused
from solver.documents.certificate import certificate_to_dict, to_certificate
from solver.documents.fields import FIXED_LIST, DocumentModel, Int64, Natural, Positive, Text
from solver.documents.options import OptionFields, options_to_dict, to_options
from solver.documents.parse import canonical_json, to_bytes
from solver.documents.plan_version1 import load_version1
from solver.documents.program_rows import ProgramTables, ValueNumber
from solver.documents.program_tables import program_tables, to_program
from solver.documents.read import read, read_header
from solver.documents.rows import REMEDY, ROW
from solver.errors import PlanError
from solver.layout import Lifespan
from solver.plan import Plan, PlanTables
from solver.program import CostBound, DualRow, Record, Replacement, RowKind

__all__ = ["FORMAT", "PlanDocument", "dump_plan", "load_plan", "load_plan_tables", "with_digest"]

FORMAT = "arenaplan.plan"
VERSION = 2

#: The text of a row, as `to_bytes` writes it; one encoder for all of them.
_ROW = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode

_Names = Annotated[tuple[Text, ...], *FIXED_LIST]


class HoldOfPlan(NamedTuple):
    """The target keeps `value` during levels ``[start, end)``, whatever the program needs."""

    value: ValueNumber
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
    without: Annotated[tuple[Natural, ...], *FIXED_LIST]


class CostBoundOfPlan(DocumentModel):
    """Repetitions take at least `nanoseconds` in every schedule within `budget` bytes whose first runs have
    this `order` of steps of the reference program: the sum of `rows`, in parts of the denominator.
    """

    budget: Natural
    nanoseconds: Natural
    order: Annotated[tuple[Natural, ...], *FIXED_LIST]
    moments: Annotated[tuple[Natural, ...], *FIXED_LIST]
    denominator: Positive
    rows: Annotated[tuple[Annotated[DualRowOfPlan, ROW], ...], *FIXED_LIST]


class PlanDocument(ProgramTables):
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
    holds: Annotated[tuple[Annotated[HoldOfPlan, ROW], ...], *FIXED_LIST]
    replacements: Annotated[tuple[Annotated[ReplacementOfPlan, ROW], ...], *FIXED_LIST]
    records: Annotated[tuple[Annotated[RecordOfPlan, ROW], ...], *FIXED_LIST]
    cost_bound: CostBoundOfPlan | None = Field(
        None, description="What recomputation costs at least, with what proves it; left out without any."
    )


def with_digest(plan: Plan) -> Plan:
    """The plan with its digest: SHA-256 over its canonical JSON without the digest."""
    content = _to_dict(plan)
    del content["digest"]
    digest, before = hashlib.sha256(), "{"
    for name in sorted(content):  # one table at a time: the whole text would be tens of megabytes
        digest.update(f"{before}{json.dumps(name)}:".encode())
        digest.update(canonical_json(content[name]))
        before = ","
    digest.update(b"}")
    return replace(plan, digest=digest.hexdigest())


@collector_paused()
def dump_plan(plan: Plan, *, indent: int | None = None) -> bytes:
    """The document of a plan, in a fixed order: equal plans give equal bytes.

    With `indent` it has one row a line.
    """
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
    between = f",\n{margin * 2}"
    return f"[\n{margin * 2}{between.join(map(_ROW, rows))}\n{margin}]"


@collector_paused()
def load_plan(data: bytes | Mapping[str, Any]) -> Plan:
    """The plan of a document of version 2.

    Raises DocumentError, or PlanError where numbers name nothing, content and digest disagree, or the
    document is of version 1, which has no program. Whether the plan is right is for the proof to say. Linear;
    10,000 operations, 14 MB, take about 1.5 s.
    """
    value, version = read_header(data, format_=FORMAT, versions=(1, VERSION))
    if version == 1:
        raise PlanError(
            "The plan is a document of version 1, which does not hold the program that it was made for.",
            remedy="Plan again with this version. (Version 1 is read for tables, maps and comparisons only.)",
            path=("version",),
        )
    document = read(PlanDocument, value, format_=FORMAT, version=VERSION, range_error=PlanError)
    plan = _to_plan(document)
    if with_digest(plan).digest != plan.digest:
        raise PlanError(
            "The plan's content does not match its digest: it was changed after it was made.",
            remedy=REMEDY,
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
        **({} if plan.cost_bound is None else {"cost_bound": _cost_bound(plan.cost_bound)}),
    }


def _cost_bound(bound: CostBound) -> dict[str, Any]:
    rows = [(r.kind.value, r.moment, r.multiplier, r.value, r.step, r.divisor, r.without) for r in bound.rows]
    return {
        "budget": bound.budget,
        "nanoseconds": bound.nanoseconds,
        "order": bound.order,
        "moments": bound.moments,
        "denominator": bound.denominator,
        "rows": rows,
    }


def _to_plan(document: PlanDocument) -> Plan:
    program = to_program(document)
    for i, hold in enumerate(document.holds):
        if hold.start >= hold.end:
            raise PlanError(
                f"holds[{i}] is [{hold.start}, {hold.end}), which is not a lifespan.",
                remedy="Lifespans are half-open, and are not empty.",
                path=("holds", i, 2),
            )
    given = document.cost_bound
    rows = tuple(DualRow(*row) for row in given.rows) if given else ()
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
        cost_bound=None if given is None else CostBound(**{**dict(given), "rows": rows}),
    )
