"""A plan as plain JSON values: what plan documents carry, and what digests are taken over.

    plan ──plan_content──► tables ──► JSON ──► PlanDocument ──► plan
            (this module)  rows of tuples      rows of named tuples  (`solver.documents.plan`)

Rows are JSON arrays. Numbers in them are positions in other tables, which are numbered by first use, so that
equal plans have equal tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, fields, replace
from operator import attrgetter
from typing import Any, Final

from solver.canonical import canonical_json, digest_of, word_for
from solver.graph.ops.base import Node
from solver.graph.types import TensorType
from solver.layout import Certificate, LayoutOptions
from solver.plan.deployment import Deployment
from solver.plan.options import PlanOptions
from solver.plan.plan import Plan, PlannedSizes
from solver.program import PIECE, Access, Binding, CostBound, HomeBound, Kind, Phase, Program, Tier

__all__ = [
    "certificate_content",
    "constraints_content",
    "deployment_content",
    "memories_content",
    "options_content",
    "plan_content",
    "with_deployment_digest",
    "with_digest",
]

#: The options that are always written. Later ones are written only where they differ from their default, so
#: that older documents keep their digest.
_ALWAYS_WRITTEN: Final = (
    "target", "solver", "batch", "alignment", "capacity", "deadline_seconds", "scratch_budget", "update",
)  # fmt: skip

_Table = list[tuple[Any, ...]]

#: What the steps of one form have in common.
_Form = tuple[Phase, str, bool, tuple[tuple[str, Access], ...]]

_SLOT: Callable[[Binding], tuple[str, Access]] = attrgetter("slot", "access")
_VALUE: Callable[[Binding], int] = attrgetter("value")


def with_digest(plan: Plan) -> Plan:
    """The plan with its digest: SHA-256 over its canonical JSON without the digest."""
    content = plan_content(plan)
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


def with_deployment_digest(deployment: Deployment) -> Deployment:
    """The deployment with its digest: SHA-256 over its canonical JSON without the digest, in which the digest
    of each plan stands in its place.
    """
    content = _deployment_content(deployment, lambda plan: plan.digest)
    del content["digest"]
    return replace(deployment, digest=digest_of(content))


def deployment_content(deployment: Deployment) -> dict[str, Any]:
    """The fields of the document of a deployment in a fixed order. Linear."""
    return _deployment_content(deployment, plan_content)


def _deployment_content(deployment: Deployment, content: Callable[[Plan], Any]) -> dict[str, Any]:
    return {
        "format": "arenaplan.plan",
        "version": 3,
        "digest": deployment.digest,
        "producer": deployment.producer,
        "name": deployment.name,
        "entry_points": [
            {"name": e.name, "model": e.model, "purpose": e.purpose, "plan": content(e.plan)}
            for e in deployment.entry_points
        ],
        "persistent": [(row.name, row.values) for row in deployment.persistent],
    }


def plan_content(plan: Plan) -> dict[str, Any]:
    """The fields of a plan document in a fixed order. Linear."""
    tables = _program_tables(plan.program, plan.offsets)
    spaces = zip(tables["spaces"], plan.sizes, map(certificate_content, plan.certificates), strict=True)
    tables["spaces"] = [(*space, size, certificate) for space, size, certificate in spaces]
    return {
        "format": "arenaplan.plan",
        "version": 2,
        "digest": plan.digest,
        "producer": plan.producer,
        "graph": plan.graph,
        "graph_digest": plan.graph_digest,
        "reference_digest": plan.reference_digest,
        "options": options_content(plan.options),
        "deterministic": plan.deterministic,
        **tables,
        "holds": [(value, hold.start, hold.end) for value, hold in sorted(plan.holds.items())],
        "replacements": [astuple(replacement) for replacement in plan.replacements],
        "records": [(record.name, dict(sorted(record.facts.items()))) for record in plan.records],
        **({} if plan.cost_bound is None else {"cost_bound": _cost_bound(plan.cost_bound)}),
        **({} if plan.home_bound is None else {"home_bound": _home_bound(plan.home_bound)}),
        **({} if plan.planned_sizes is None else {"planned_sizes": _planned_sizes(plan.planned_sizes)}),
    }


def _planned_sizes(sizes: PlannedSizes) -> dict[str, Any]:
    return {
        "ranges": [astuple(each) for each in sizes.ranges],
        "proved": sizes.proved,
        "refused": [astuple(each) for each in sizes.refused],
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


def memories_content(memories: Sequence[Tier]) -> list[dict[str, Any]]:
    """Memories that kernels reach; a speed that is not known is left out."""
    return [{name: value for name, value in asdict(memory).items() if value} for memory in memories]


def _home_bound(bound: HomeBound) -> dict[str, Any]:
    return {
        "nanoseconds": bound.nanoseconds,
        "denominator": bound.denominator,
        "rows": [astuple(row) for row in bound.rows],
    }


def certificate_content(certificate: Certificate) -> dict[str, Any]:
    return {
        "status": certificate.status.value,
        "proof": certificate.proof.value if certificate.proof else None,
        "lower_bound": certificate.lower_bound,
        "witness_step": certificate.witness_step,
        "solver": certificate.solver,
    }


def options_content(options: PlanOptions) -> dict[str, Any]:
    """As `dump_options` writes them; seconds are floating, so that 5 and 5.0 are written alike."""
    content: dict[str, Any] = {
        field.name: getattr(options, field.name)
        for field in fields(PlanOptions)
        if field.name in _ALWAYS_WRITTEN or getattr(options, field.name) != field.default
    }
    content |= constraints_content(options)
    if options.tiers:
        content["tiers"] = [asdict(tier) for tier in options.tiers]
    if options.memories:
        content["memories"] = memories_content(options.memories)
    if options.costs is not None:
        content["costs"] = {"about": options.costs.about, "nanoseconds": dict(options.costs.nanoseconds)}
    if options.deadline_seconds is not None:
        content["deadline_seconds"] = float(options.deadline_seconds)
    return content


def constraints_content(options: PlanOptions | LayoutOptions) -> dict[str, Any]:
    """The pins, alignments and reserved ranges that there are."""
    content: dict[str, Any] = {}
    if options.pins:
        content["pins"] = {pin.name: pin.offset for pin in options.pins}
    if options.alignments:
        content["alignments"] = {each.name: each.bytes for each in options.alignments}
    if options.reserved:
        ranges = map(asdict, options.reserved)
        content["reserved"] = [{name: part for name, part in each.items() if part != ""} for each in ranges]
    return content


class _Numbers:
    """Numbers types by first use. Hashing them is slow, and most are the same object again."""

    def __init__(self) -> None:
        self.found: dict[TensorType, int] = {}
        self._by_id: dict[int, int] = {}

    def of(self, type_: TensorType) -> int:
        """The number of a type, which has to live as long as this."""
        number = self._by_id.get(id(type_))
        if number is None:
            number = self._by_id[id(type_)] = self.found.setdefault(type_, len(self.found))
        return number


def _program_tables(program: Program, offsets: Sequence[int]) -> dict[str, Any]:
    """The tables in a fixed order, without the sizes of spaces; `offsets` are those of the values. Linear."""
    types = _Numbers()
    kinds: dict[Kind, int] = {}
    kernels: dict[str, int] = {}
    kernel_rows: _Table = []
    operations: _Table = []
    alike: dict[tuple[object, ...], int] = {}
    for node in program.operations:
        # Updates of all weights share their attributes, which are then not written to be compared.
        same = (node.operation.type, id(node.attributes), node.constants, node.scratch_budget)
        kernel = None if node.floats else alike.get(same)
        if kernel is None:
            row = _kernel(node)
            kernel = kernels.setdefault(json.dumps(row), len(kernels))
            if kernel == len(kernel_rows):
                kernel_rows.append(row)
            if not node.floats:
                alike[same] = kernel
        inputs = [None if type_ is None else types.of(type_) for type_ in node.inputs]
        outputs = [types.of(type_) for type_ in node.outputs]
        operations.append((node.operation.id, kernel, inputs, outputs))
    forms: dict[_Form, int] = {}
    steps: _Table = []
    for step in program.steps:
        slots = tuple(map(_SLOT, step.bindings))
        form = forms.setdefault((step.phase, step.part, step.due, slots), len(forms))
        values = tuple(map(_VALUE, step.bindings))
        steps.append((step.operation, form, step.reference, step.level, step.until, values))
    origins: dict[str, int] = {}
    value_rows: _Table = []
    labels: _Table = []
    for i, (value, offset) in enumerate(zip(program.values, offsets, strict=True)):
        label, origin = value.label, value.origin
        suffix = label[len(origin) :]
        if not label.startswith(origin):
            suffix = ""
            labels.append((i, label))
        type_, kind = types.of(value.type), kinds.setdefault(value.kind, len(kinds))
        source = origins.setdefault(origin, len(origins))
        value_rows.append((suffix, type_, kind, source, value.space, offset))
    rows = [(value, *astuple(i.rows)) for value, i in sorted(program.initial.items()) if i.rows is not None]
    storages = [
        (k, *astuple(type_.storage)) for k, type_ in enumerate(types.found) if type_.storage is not None
    ]
    return {
        "name": program.name,
        "period": program.period,
        "spaces": [(space.name, space.alignment, space.addressable) for space in program.spaces],
        "types": [(type_.shape, type_.dtype.value) for type_ in types.found],
        **({} if not storages else {"storages": storages}),
        "kinds": [kind.value for kind in kinds],
        "origins": list(origins),
        "kernels": kernel_rows,
        "operations": operations,
        "forms": [
            (phase.value, part, due, [(slot, access.value) for slot, access in slots])
            for phase, part, due, slots in forms
        ],
        "values": value_rows,
        "labels": labels,
        "aliases": [(a.value, a.source, a.step, a.view, a.offset) for a in program.aliases],
        "steps": steps,
        "entry": [(entry.value, entry.kind.word, entry.reference) for entry in program.entry],
        "exit": [(exit_.value, exit_.reference) for exit_ in program.exit],
        "initial": [
            (value, i.scheme, word_for(float(i.value)), float(i.scale), i.seed, i.source, i.sha256)
            for value, i in sorted(program.initial.items())
        ],
        **({} if not rows else {"initial_rows": rows}),
    }


def _kernel(node: Node) -> tuple[Any, ...]:
    """The computation of a kernel, beside its types."""
    return (
        node.operation.type,
        {name: word_for(value) for name, value in sorted(node.attributes.items())},
        node.constants,
        [(k, [word_for(number) for number in numbers]) for k, numbers in sorted(node.floats.items())],
        node.scratch_budget,
    )
