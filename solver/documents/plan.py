"""Plan documents: a program with its places, in integer-indexed tables; refused when anything was changed.

Version 2 carries all that running and proving a plan needs. Lifespans, sums and peaks are not in it: they are
computed from the program. Version 1, tables of buffers without a program, is read for people and allocators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from solver.collector import collector_paused
from solver.documents.certificate import to_certificate
from solver.documents.fields import FIXED_LIST, DocumentModel, Int64, Natural, Positive, Text
from solver.documents.header import read_header
from solver.documents.options import OptionFields, to_options
from solver.documents.plan_written import FORMAT, VERSION, with_digest
from solver.documents.program_read import to_program
from solver.documents.program_rows import ProgramTables, ValueNumber
from solver.documents.read import read
from solver.documents.rows import REMEDY, ROW
from solver.errors import PlanError
from solver.layout import Lifespan
from solver.plan import Plan, PlanTables
from solver.program import CostBound, DualRow, Record, Replacement, RowKind

__all__ = ["PlanDocument", "load_plan", "load_plan_tables", "to_plan"]

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
    plan = to_plan(document)
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
    if version == VERSION:
        return load_plan(value).tables
    from solver.documents.plan_version1 import load_version1

    return load_version1(value)


def to_plan(document: PlanDocument) -> Plan:
    """The plan of a document whose digest nobody has looked at. Raises PlanError as `load_plan` does."""
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
