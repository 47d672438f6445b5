"""Plan documents, written; the models that read them are loaded where one is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, fields, replace
from typing import Any

from solver.collector import collector_paused
from solver.documents.parse import canonical_json, to_bytes
from solver.documents.program_tables import program_tables
from solver.plan import Certificate, Plan, PlanOptions
from solver.program import PIECE, CostBound

__all__ = ["FORMAT", "VERSION", "certificate_to_dict", "dump_plan", "options_to_dict", "with_digest"]

FORMAT = "arenaplan.plan"
VERSION = 2

_DEFAULT = PlanOptions()
_NAMES = tuple(field.name for field in fields(PlanOptions))

#: The options that version 1 began with. Later ones are written only where they differ from their default,
#: so that documents from before mean what they did, digest included.
_FIRST = (
    "target", "solver", "batch", "alignment", "capacity", "deadline_seconds", "scratch_budget", "update",
)  # fmt: skip

#: The text of a row, as `to_bytes` writes it; one encoder for all of them.
_ROW = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def with_digest(plan: Plan) -> Plan:
    """The plan with its digest: SHA-256 over its canonical JSON without the digest."""
    content = _to_dict(plan)
    del content["digest"]
    digest, before = hashlib.sha256(), "{"
    for name in sorted(content):
        digest.update(f"{before}{json.dumps(name)}:".encode())
        for piece in _pieces(content[name]):
            digest.update(piece)
        before = ","
    digest.update(b"}")
    return replace(plan, digest=digest.hexdigest())


def _pieces(value: Any) -> Iterator[bytes]:
    """The canonical JSON of a value, tables some rows at a time: the text of one may have megabytes."""
    if not isinstance(value, list):
        yield canonical_json(value)
        return
    yield b"["
    for first in range(0, len(value), PIECE):
        rows = canonical_json(value[first : first + PIECE])[1:-1]
        yield b"," + rows if first else rows
    yield b"]"


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


def _to_dict(plan: Plan) -> dict[str, Any]:
    tables = program_tables(plan.program, plan.offsets)
    spaces = zip(tables["spaces"], plan.sizes, map(certificate_to_dict, plan.certificates), strict=True)
    tables["spaces"] = [(*space, size, certificate) for space, size, certificate in spaces]
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


def certificate_to_dict(certificate: Certificate) -> dict[str, Any]:
    return {
        "status": certificate.status.value,
        "proof": certificate.proof.value if certificate.proof else None,
        "lower_bound": certificate.lower_bound,
        "witness_step": certificate.witness_step,
        "solver": certificate.solver,
    }


def options_to_dict(options: PlanOptions) -> dict[str, Any]:
    """As in `dump_options`; seconds are floating, so that 5 and 5.0 are written alike."""
    found: dict[str, Any] = {
        name: getattr(options, name)
        for name in _NAMES
        if name in _FIRST or getattr(options, name) != getattr(_DEFAULT, name)
    }
    if options.tiers:
        found["tiers"] = [asdict(tier) for tier in options.tiers]
    if options.costs is not None:
        found["costs"] = {"about": options.costs.about, "nanoseconds": dict(options.costs.nanoseconds)}
    if options.deadline_seconds is not None:
        found["deadline_seconds"] = float(options.deadline_seconds)
    return found
