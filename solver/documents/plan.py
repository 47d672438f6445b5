"""Plan documents: written once, sealed by a digest, refused when a byte of content was changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from solver.documents.fields import FIXED_LIST, DocumentModel, DTypeName, Int64, Natural, Text
from solver.documents.options import OptionFields, options_to_dict, to_options
from solver.documents.parse import canonical_json, to_bytes
from solver.documents.read import read
from solver.errors import PlanError
from solver.layout.model.problem import Lifespan, Proof, Status
from solver.plan.plan import Arena, Certificate, Plan, PlannedBuffer, PlannedStep, Tenant
from solver.preparations.rewriting import Replacement
from solver.training.program import Lifetime, OperandKind

__all__ = [
    "FORMAT",
    "CertificateOfPlan",
    "PlanDocument",
    "certificate_to_dict",
    "dump_plan",
    "load_plan",
    "plan_to_dict",
    "seal",
    "to_certificate",
]

FORMAT = "arenaplan.plan"

_Path = tuple[str | int, ...]
_Names = Annotated[tuple[Text, ...], *FIXED_LIST]


_Kind = Literal[
    "input", "label", "parameter", "state", "constant", "activation", "loss", "derivative", "partial",
    "gradient", "optimizer_variable", "saved", "scratch", "result",
]  # fmt: skip
_Lifetime = Literal["forward_function", "backward_function", "iteration", "epoch", "max"]


class TenantOfPlan(DocumentModel):
    """An operand in a buffer that holds several, live during steps ``[start, end)``.

    It is defined in the memory of `source`: a `view` leaves the bytes as they are, others overwrite them.
    """

    id: Text
    kind: _Kind
    lifetime: _Lifetime
    shape: Annotated[tuple[Int64, ...], *FIXED_LIST]
    dtype: DTypeName
    start: Int64
    end: Int64
    source: Text | None
    view: bool


class BufferOfPlan(DocumentModel):
    """A buffer at its `offset`, live during steps (or waves) ``[start, end)``; sizes are bytes.

    If it holds several operands, one after the other or as views, `tenants` lists all of them in order.
    """

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
    tenants: Annotated[tuple[TenantOfPlan, ...], *FIXED_LIST] = ()


class CertificateOfPlan(DocumentModel):
    """How good an arena is, and why that is known."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    proof: Literal["max-load", "solver"] | None
    lower_bound: Int64
    witness_step: Int64 | None
    solver: Text


class ArenaOfPlan(DocumentModel):
    """One contiguous block of `size` bytes."""

    name: Text
    size: Natural
    certificate: CertificateOfPlan
    buffers: Annotated[tuple[BufferOfPlan, ...], *FIXED_LIST]


class StepOfPlan(DocumentModel):
    """One step of the execution order; operands by buffer id.

    With several workers each step has the `wave` in which it runs, and lifespans count waves.
    """

    id: Text
    kernel: Text
    uses: _Names
    defs: _Names
    scratch: _Names
    wave: Natural | None = None


class ReplacementOfPlan(DocumentModel):
    """Operations of the graph, and `into` which it turned them before planning.

    Those of one `group` were taken together; the bytes are the lower bounds before and after.
    """

    rule: Text
    operations: _Names
    into: _Names
    group: Int64
    bytes_before: Int64
    bytes_after: Int64


class PlanDocument(DocumentModel):
    """A memory plan. `arena_bytes` and `lower_bound` are sums over the arenas; `gap_bytes` lies between."""

    format: Literal["arenaplan.plan"]
    version: Literal[1]
    digest: str = Field(description="SHA-256 over the canonical JSON of everything else, in hexadecimal.")
    graph: Text
    graph_digest: Text
    options: OptionFields
    deterministic: bool
    replacements: Annotated[tuple[ReplacementOfPlan, ...], *FIXED_LIST] = ()
    arena_bytes: Natural
    lower_bound: Natural
    gap_bytes: Natural
    arenas: Annotated[tuple[ArenaOfPlan, ...], *FIXED_LIST]
    steps: Annotated[tuple[StepOfPlan, ...], *FIXED_LIST]


def seal(plan: Plan) -> Plan:
    """The plan with its digest: SHA-256 over its canonical JSON without the digest."""
    content = plan_to_dict(plan)
    del content["digest"]
    return replace(plan, digest=hashlib.sha256(canonical_json(content)).hexdigest())


def dump_plan(plan: Plan, *, indent: int | None = None) -> bytes:
    """The document of a plan, field by field in a fixed order: equal plans give equal bytes."""
    return to_bytes(plan_to_dict(plan), indent=indent)


def load_plan(data: bytes | Mapping[str, Any]) -> Plan:
    """The plan of a document. Raises DocumentError, or PlanError when content and digest disagree.

    Whether the plan is right is for `solver.plan.verify` to say.
    """
    document = read(PlanDocument, data, format_=FORMAT, range_error=PlanError)
    plan = _to_plan(document)
    _check_sums(document, plan)
    if seal(plan).digest != plan.digest:
        raise PlanError(
            "The plan's content does not match its digest: it was changed after it was made.",
            remedy="Take the plan as the planner wrote it, or make a new one.",
            path=("digest",),
        )
    return plan


def _check_sums(document: PlanDocument, plan: Plan) -> None:
    for name in ("arena_bytes", "lower_bound", "gap_bytes"):
        given, actual = getattr(document, name), getattr(plan, name)
        if given != actual:
            raise PlanError(
                f"The plan says {name} {given}; its arenas add up to {actual}.",
                remedy="Take the plan as the planner wrote it, or make a new one.",
                path=(name,),
            )


def _to_plan(document: PlanDocument) -> Plan:
    return Plan(
        graph=document.graph,
        graph_digest=document.graph_digest,
        options=to_options(document.options),
        steps=tuple(PlannedStep(s.id, s.kernel, s.uses, s.defs, s.scratch, s.wave) for s in document.steps),
        arenas=tuple(_to_arena(arena, ("arenas", i)) for i, arena in enumerate(document.arenas)),
        deterministic=document.deterministic,
        digest=document.digest,
        replacements=tuple(map(_to_replacement, document.replacements)),
    )


def _to_replacement(given: ReplacementOfPlan) -> Replacement:
    return Replacement(
        given.rule, given.operations, given.into, given.group, given.bytes_before, given.bytes_after
    )


def _to_arena(arena: ArenaOfPlan, path: _Path) -> Arena:
    buffers = tuple(_to_buffer(b, (*path, "buffers", k)) for k, b in enumerate(arena.buffers))
    return Arena(arena.name, arena.size, to_certificate(arena.certificate), buffers)


def to_certificate(given: CertificateOfPlan) -> Certificate:
    return Certificate(
        status=Status(given.status),
        proof=None if given.proof is None else Proof(given.proof),
        lower_bound=given.lower_bound,
        witness_step=given.witness_step,
        solver=given.solver,
    )


def _lifespan(given: BufferOfPlan | TenantOfPlan, path: _Path) -> Lifespan:
    if not 0 <= given.start < given.end:
        raise PlanError(
            f"Buffer {given.id!r} lives [{given.start}, {given.end}), which is no lifespan.",
            remedy="Lifespans are half-open, start at 0 or later, and are not empty.",
            path=(*path, "end"),
        )
    return Lifespan(given.start, given.end)


def _to_tenant(tenant: TenantOfPlan, path: _Path) -> Tenant:
    return Tenant(
        id=tenant.id,
        kind=OperandKind(tenant.kind),
        lifetime=Lifetime(tenant.lifetime),
        shape=tenant.shape,
        dtype=tenant.dtype,
        lifespan=_lifespan(tenant, path),
        source=tenant.source,
        view=tenant.view,
    )


def _to_buffer(buffer: BufferOfPlan, path: _Path) -> PlannedBuffer:
    tenants = (_to_tenant(t, (*path, "tenants", k)) for k, t in enumerate(buffer.tenants))
    return PlannedBuffer(
        id=buffer.id,
        kind=OperandKind(buffer.kind),
        lifetime=Lifetime(buffer.lifetime),
        shape=buffer.shape,
        dtype=buffer.dtype,
        nbytes=buffer.nbytes,
        size=buffer.size,
        alignment=buffer.alignment,
        lifespan=_lifespan(buffer, path),
        offset=buffer.offset,
        tenants=tuple(tenants),
    )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    found = {
        "format": FORMAT,
        "version": 1,
        "digest": plan.digest,
        "graph": plan.graph,
        "graph_digest": plan.graph_digest,
        "options": options_to_dict(plan.options),
        "deterministic": plan.deterministic,
        "arena_bytes": plan.arena_bytes,
        "lower_bound": plan.lower_bound,
        "gap_bytes": plan.gap_bytes,
        "arenas": [_arena_to_dict(arena) for arena in plan.arenas],
        "steps": [_step_to_dict(step) for step in plan.steps],
    }
    if plan.replacements:
        found["replacements"] = [asdict(replacement) for replacement in plan.replacements]
    return found


def _arena_to_dict(arena: Arena) -> dict[str, Any]:
    return {
        "name": arena.name,
        "size": arena.size,
        "certificate": certificate_to_dict(arena.certificate),
        "buffers": [_buffer_to_dict(buffer) for buffer in arena.buffers],
    }


def certificate_to_dict(certificate: Certificate) -> dict[str, Any]:
    return {
        "status": certificate.status.value,
        "proof": certificate.proof.value if certificate.proof else None,
        "lower_bound": certificate.lower_bound,
        "witness_step": certificate.witness_step,
        "solver": certificate.solver,
    }


def _buffer_to_dict(buffer: PlannedBuffer) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": buffer.id,
        "kind": buffer.kind.value,
        "lifetime": buffer.lifetime.value,
        "shape": list(buffer.shape),
        "dtype": buffer.dtype,
        "nbytes": buffer.nbytes,
        "size": buffer.size,
        "alignment": buffer.alignment,
        "start": buffer.lifespan.start,
        "end": buffer.lifespan.end,
        "offset": buffer.offset,
    }
    if buffer.tenants:
        found["tenants"] = [_tenant_to_dict(tenant) for tenant in buffer.tenants]
    return found


def _tenant_to_dict(tenant: Tenant) -> dict[str, Any]:
    return {
        "id": tenant.id,
        "kind": tenant.kind.value,
        "lifetime": tenant.lifetime.value,
        "shape": list(tenant.shape),
        "dtype": tenant.dtype,
        "start": tenant.lifespan.start,
        "end": tenant.lifespan.end,
        "source": tenant.source,
        "view": tenant.view,
    }


def _step_to_dict(step: PlannedStep) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": step.id,
        "kernel": step.kernel,
        "uses": list(step.uses),
        "defs": list(step.defs),
        "scratch": list(step.scratch),
    }
    return found if step.wave is None else {**found, "wave": step.wave}
