"""Plan documents of version 1: tables of buffers and steps, without the program. Read, never written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from solver.documents.certificate import CertificateOfPlan, to_certificate
from solver.documents.fields import FIXED_LIST, DocumentModel, DTypeName, Int64, Natural, Text
from solver.documents.options import OptionFields, to_options
from solver.documents.parse import canonical_json
from solver.documents.read import read
from solver.errors import PlanError
from solver.graph import DType, TensorType
from solver.layout import Lifespan
from solver.plan import AliasedValue, Arena, Lifetime, PlannedBuffer, PlannedStep, PlanTables
from solver.program import Kind, Replacement

__all__ = ["load_version1"]

_Path = tuple[str | int, ...]
_Names = Annotated[tuple[Text, ...], *FIXED_LIST]


_Kind = Literal[
    "input", "label", "parameter", "state", "constant", "activation", "loss", "derivative", "partial",
    "gradient", "optimizer_variable", "saved", "scratch", "result",
]  # fmt: skip
_Lifetime = Literal["forward_function", "backward_function", "iteration", "epoch", "max"]


class _Tenant(DocumentModel):
    """An operand in a buffer that holds several; today a value of an alias set."""

    id: Text
    kind: _Kind
    lifetime: _Lifetime
    shape: Annotated[tuple[Int64, ...], *FIXED_LIST]
    dtype: DTypeName
    start: Int64
    end: Int64
    source: Text | None
    view: bool


class _Buffer(DocumentModel):
    id: Text
    kind: _Kind
    lifetime: _Lifetime
    shape: Annotated[tuple[Int64, ...], *FIXED_LIST]
    dtype: DTypeName
    nbytes: Int64
    size: Int64
    alignment: Int64
    start: Int64
    end: Int64
    offset: Int64
    tenants: Annotated[tuple[_Tenant, ...], *FIXED_LIST] = ()


class _Arena(DocumentModel):
    name: Text
    size: Natural
    certificate: CertificateOfPlan
    buffers: Annotated[tuple[_Buffer, ...], *FIXED_LIST]


class _Step(DocumentModel):
    """A `wave` is today's level; plans for one step at a time have none."""

    id: Text
    kernel: Text
    uses: _Names
    defs: _Names
    scratch: _Names
    wave: Natural | None = None


class _Replacement(DocumentModel):
    rule: Text
    operations: _Names
    into: _Names
    group: Int64
    bytes_before: Int64
    bytes_after: Int64


class _PlanDocument(DocumentModel):
    format: Literal["arenaplan.plan"]
    version: Literal[1]
    digest: str
    graph: Text
    graph_digest: Text
    options: OptionFields
    deterministic: bool
    replacements: Annotated[tuple[_Replacement, ...], *FIXED_LIST] = ()
    arena_bytes: Natural
    lower_bound: Natural
    gap_bytes: Natural
    arenas: Annotated[tuple[_Arena, ...], *FIXED_LIST]
    steps: Annotated[tuple[_Step, ...], *FIXED_LIST]


def load_version1(value: Mapping[str, Any]) -> PlanTables:
    """The tables of a parsed document. Raises DocumentError, or PlanError where sums or digest are wrong."""
    document = read(_PlanDocument, value, format_="arenaplan.plan", version=1, range_error=PlanError)
    tables = PlanTables(
        graph=document.graph,
        graph_digest=document.graph_digest,
        options=to_options(document.options),
        steps=tuple(
            PlannedStep(s.id, s.kernel, s.uses, s.defs, s.scratch, t if s.wave is None else s.wave)
            for t, s in enumerate(document.steps)
        ),
        arenas=tuple(_arena(arena, ("arenas", i)) for i, arena in enumerate(document.arenas)),
        deterministic=document.deterministic,
        digest=document.digest,
        replacements=tuple(
            Replacement(r.rule, r.operations, r.into, r.group, r.bytes_before, r.bytes_after)
            for r in document.replacements
        ),
    )
    for name in ("arena_bytes", "lower_bound", "gap_bytes"):
        given, actual = getattr(document, name), getattr(tables, name)
        if given != actual:
            raise PlanError(
                f"The plan says {name} {given}; its arenas add up to {actual}.",
                remedy="Take the plan as the planner wrote it, or make a new one.",
                path=(name,),
            )
    content = {key: content for key, content in value.items() if key != "digest"}
    if hashlib.sha256(canonical_json(content)).hexdigest() != document.digest:
        raise PlanError(
            "The plan's content does not match its digest: it was changed after it was made.",
            remedy="Take the plan as the planner wrote it, or make a new one.",
            path=("digest",),
        )
    return tables


def _arena(arena: _Arena, path: _Path) -> Arena:
    buffers = tuple(_buffer(b, (*path, "buffers", k)) for k, b in enumerate(arena.buffers))
    return Arena(arena.name, arena.size, to_certificate(arena.certificate), buffers)


def _buffer(buffer: _Buffer, path: _Path) -> PlannedBuffer:
    return PlannedBuffer(
        id=buffer.id,
        kind=Kind(buffer.kind),
        lifetime=Lifetime(buffer.lifetime),
        shape=buffer.shape,
        dtype=buffer.dtype,
        nbytes=buffer.nbytes,
        size=buffer.size,
        alignment=buffer.alignment,
        lifespan=_lifespan(buffer, path),
        offset=buffer.offset,
        aliases=tuple(
            AliasedValue(
                id=tenant.id,
                kind=Kind(tenant.kind),
                lifetime=Lifetime(tenant.lifetime),
                shape=tenant.shape,
                dtype=tenant.dtype,
                lifespan=_lifespan(tenant, (*path, "tenants", k)),
                source=tenant.source,
                view=tenant.view,
                offset=buffer.offset,
                nbytes=TensorType(tenant.shape, DType(tenant.dtype)).nbytes,
            )
            for k, tenant in enumerate(buffer.tenants)
        ),
    )


def _lifespan(given: _Buffer | _Tenant, path: _Path) -> Lifespan:
    if not 0 <= given.start < given.end:
        raise PlanError(
            f"Buffer {given.id!r} lives [{given.start}, {given.end}), which is not a lifespan.",
            remedy="Lifespans are half-open, start at 0 or later, and are not empty.",
            path=(*path, "end"),
        )
    return Lifespan(given.start, given.end)
