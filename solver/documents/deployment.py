"""Documents of deployments: entry points and ties as a request names them, and version 3 of plans.

Entry points of a request are objects, or text as ``infer:batch=1,name=camera``; ties are text as ``a.w=b.w``.
Format and version may be left out, as they stand in a request beside its models. Plans of one program are
documents of version 2, and stay so: each entry point of a deployment has one. Models of pydantic take
milliseconds to make, so plans of one program have a module of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from solver.collector import collector_paused
from solver.documents.fields import DocumentModel, JsonList, Name, Natural, Positive, Text, read_with
from solver.documents.parse import parse_json
from solver.documents.plan import PlanDocument, dump_plan, load_plan, to_plan
from solver.documents.read import header, read
from solver.documents.rows import Table
from solver.errors import OptionsError, PlanError
from solver.options import DEPLOYMENT_OPTIONS
from solver.plan import (
    MAX_ENTRIES,
    MAX_TIES,
    Deployment,
    EntryPoint,
    EntrySpec,
    Persistent,
    Plan,
    Tie,
    read_entry,
    read_tie,
    with_deployment_digest,
    with_digest,
)
from solver.plan.content import deployment_content

__all__ = [
    "DeploymentDocument",
    "EntryFields",
    "TieText",
    "dump_deployment",
    "dump_planned",
    "load_deployment",
    "load_entries",
    "load_planned",
]


class EntryFields(DocumentModel):
    """A program of one of the models, which runs in the memory that all entry points share."""

    purpose: Literal["train", "infer", "evaluate", "run"] = Field(
        description="What it is for; run is that of programs of explicit operations."
    )
    model: Name = Field("", description="The name of its model; may be left out where there is one.")
    batch: Positive | None = Field(None, description="Its batch, in place of that of the options.")
    name: Name = Field("", description="What it is called; left out, as its purpose, behind its model.")
    graph: Any = Field(
        None, description="Its graph at its batch, where the document of its model leaves no batch open."
    )


def _entry(text: str) -> dict[str, Any]:
    try:
        return asdict(read_entry(text))
    except OptionsError as error:
        raise ValueError(error.remedy.removeprefix("Write ").removesuffix(".")) from None


def _tie(text: str) -> str:
    try:
        return read_tie(text).text
    except OptionsError as error:
        raise ValueError(error.remedy.removeprefix("Write ").removesuffix(".")) from None


#: A tie as text.
TieText = Annotated[str, BeforeValidator(read_with(_tie), json_schema_input_type=str)]


class EntriesDocument(DocumentModel):
    """Entry points, and what their models have in common."""

    format: Literal["arenaplan.entries"]
    version: Literal[1]
    entries: Annotated[
        JsonList[Annotated[EntryFields, BeforeValidator(read_with(_entry))]], Field(max_length=MAX_ENTRIES)
    ] = Field((), description=DEPLOYMENT_OPTIONS["entries"].help)
    ties: Annotated[JsonList[TieText], Field(max_length=MAX_TIES)] = Field(
        (), description=DEPLOYMENT_OPTIONS["ties"].help
    )


def load_entries(value: Mapping[str, Any]) -> tuple[list[EntrySpec], list[Tie]]:
    """The entry points and ties among the members of a request, `entries` and `ties`.

    Raises DocumentError, whose path begins with the member.
    """
    document = read(EntriesDocument, value, has_header=False)
    specs = [EntrySpec(one.purpose, one.model, one.batch, one.name) for one in document.entries]
    return specs, [read_tie(text) for text in document.ties]


_REMEDY = "Plan again: arenaplan plan graph.json --entry train --entry infer:batch=1 -o plan.json."


class EntryPointOfDeployment(DocumentModel):
    """One program that runs in the memory of the deployment, by the name under which it is called."""

    name: Text = Field(min_length=1)
    model: Text = Field(description="The network that it runs; its programs share values by name.")
    purpose: Literal["train", "infer", "evaluate", "run"]
    plan: PlanDocument


class PersistentOfDeployment(NamedTuple):
    """A value that stays from one run to the next, and its number in the plan of each entry point."""

    name: Text
    values: JsonList[Natural]


class DeploymentDocument(DocumentModel):
    """Memory plans of several programs that run in the same memory, one at a time."""

    format: Literal["arenaplan.plan"]
    version: Literal[3]
    digest: str = Field(
        description="SHA-256 over the canonical JSON of everything else, in hexadecimal, in which the digest"
        " of each plan stands in the place of the plan."
    )
    producer: Text = Field(description="The version of arenaplan that made it.")
    name: Text
    entry_points: Annotated[JsonList[EntryPointOfDeployment], Field(min_length=1)]
    persistent: Table[PersistentOfDeployment]


@collector_paused()
def load_deployment(data: bytes | Mapping[str, Any]) -> Deployment:
    """The deployment of a document.

    Raises DocumentError, or PlanError where numbers name nothing, or content and digest disagree. Whether the
    plans are right is for the proofs to say. Linear.
    """
    document = read(DeploymentDocument, data, range_error=PlanError)
    entry_points = []
    for k, row in enumerate(document.entry_points):
        try:
            plan = to_plan(row.plan)
        except PlanError as error:
            error.path = ("entry_points", k, "plan", *error.path)
            raise
        _check_digest(plan.digest, with_digest(plan).digest, ("entry_points", k, "plan", "digest"))
        entry_points.append(EntryPoint(row.name, row.model, row.purpose, plan))
    rows = tuple(Persistent(row.name, tuple(row.values)) for row in document.persistent)
    _check_tables(entry_points, rows)
    deployment = Deployment(document.name, tuple(entry_points), rows, document.producer, document.digest)
    _check_digest(deployment.digest, with_deployment_digest(deployment).digest, ("digest",))
    return deployment


def _check_tables(entry_points: Sequence[EntryPoint], rows: Sequence[Persistent]) -> None:
    """Raises PlanError for a name that stands twice, and for a number that names nothing."""
    for member, names in (
        ("entry_points", [entry_point.name for entry_point in entry_points]),
        ("persistent", [row.name for row in rows]),
    ):
        first: dict[str, int] = {}
        for k, name in enumerate(names):
            if first.setdefault(name, k) != k:
                raise PlanError(f"{name!r:.200} stands twice.", remedy=_REMEDY, path=(member, k))
    spaces = [len(entry_point.plan.sizes) for entry_point in entry_points]
    for k, count in enumerate(spaces):
        if count != spaces[0]:
            detail = (
                f"Entry point {entry_points[k].name!r:.200} has {count} memories, the first one {spaces[0]}."
            )
            raise PlanError(detail, remedy=_REMEDY, path=("entry_points", k))
    counts = [len(entry_point.plan.program.values) for entry_point in entry_points]
    for k, row in enumerate(rows):
        is_complete = len(row.values) == len(counts)
        if not is_complete or any(value >= n for value, n in zip(row.values, counts, strict=True)):
            detail = f"{row.name!r:.200} is no value of some entry point."
            raise PlanError(detail, remedy=_REMEDY, path=("persistent", k))


def _check_digest(stated: str, computed: str, path: tuple[str | int, ...]) -> None:
    if stated != computed:
        raise PlanError(
            "The plan's content does not match its digest: it was changed after it was made.",
            remedy=_REMEDY,
            path=path,
        )


def load_planned(data: bytes | Mapping[str, Any]) -> Plan | Deployment:
    """The plan of a document, or the deployment where it has entry points. Raises as their loaders do."""
    value = parse_json(data) if isinstance(data, bytes) else data
    if isinstance(value, Mapping) and header(DeploymentDocument).items() <= value.items():
        return load_deployment(value)
    return load_plan(value)


def dump_deployment(deployment: Deployment, *, indent: int | None = None) -> bytes:
    """The document of a deployment, in a fixed order: equal deployments give equal bytes.

    With `indent` the plans have one row a line.
    """
    content = deployment_content(deployment)
    fields = []
    for name, value in content.items():
        text = _text(value)
        if name == "entry_points":
            plans = (entry_point.plan for entry_point in deployment.entry_points)
            rows = [_entry_point(row, plan, indent) for row, plan in zip(value, plans, strict=True)]
            text = f"[{', '.join(rows)}]"
        fields.append(f"{_text(name)}: {text}")
    return ("{" + ",\n".join(fields) + "}").encode()


def dump_planned(planned: Plan | Deployment, *, indent: int | None = None) -> bytes:
    """The document of a plan or of a deployment: the inverse of `load_planned`."""
    if isinstance(planned, Deployment):
        return dump_deployment(planned, indent=indent)
    return dump_plan(planned, indent=indent)


def _entry_point(row: Mapping[str, Any], plan: Plan, indent: int | None) -> str:
    names = [f"{_text(name)}: {_text(value)}" for name, value in row.items() if name != "plan"]
    return f'{{{", ".join(names)}, "plan": {dump_plan(plan, indent=indent).decode()}}}'


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
