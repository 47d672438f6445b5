"""Plans by hand and plans damaged on purpose, for what must be named by a proof.

`settled` makes sizes and certificates those of the buffers as they lie, so that what a proof names is the
damage and not a sum that no longer fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from solver.graph import TrainableGraph
from solver.layout import Certificate, Lifespan, Status
from solver.pipeline import plan, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import Program, Step, loads, regions
from solver.training import BlockProgram
from solver.verify import Violation, prove
from tests.support.derived import at, with_step
from tests.support.graphs import Sketch

__all__ = [
    "Subject",
    "by_hand",
    "in_one_place",
    "moved",
    "on_level",
    "planned",
    "settled",
    "with_alias",
    "with_options",
    "with_order",
    "with_step_changed",
    "with_value",
]


@dataclass(frozen=True)
class Subject:
    """A right plan and the reference that it has to agree with."""

    reference: Program
    plan: Plan

    def violations(self, damaged: Plan) -> tuple[Violation, ...]:
        return prove(self.reference, damaged)

    def rules(self, damaged: Plan) -> set[str]:
        return {violation.rule for violation in prove(self.reference, damaged)}

    def said(self, damaged: Plan, rule: str) -> str:
        """All that is said, which must be under one rule alone."""
        found = prove(self.reference, damaged)
        assert {violation.rule for violation in found} == {rule}, found
        return " | ".join(violation.detail for violation in found)

    def named(self, damaged: Plan, rule: str) -> set[tuple[str, ...]]:
        """The buffers that are named, all under one rule."""
        found = prove(self.reference, damaged)
        assert {violation.rule for violation in found} == {rule}, found
        return {violation.buffers for violation in found}


def planned(graph: TrainableGraph, options: PlanOptions | None = None) -> Subject:
    """A plan without records: figures of passes would no longer be those of a program that is changed."""
    made = plan(graph, options)
    return Subject(reference_of(graph, made.options), replace(made, records=()))


def by_hand(
    subject: Program | BlockProgram,
    offsets: Mapping[str, int],
    *,
    alignment: int = 1,
    parallelism: int = 1,
    holds: Mapping[int, Lifespan] | None = None,
) -> Subject:
    """The program in its own order with its values at these offsets, by label."""
    options = PlanOptions(target="program", alignment=alignment, parallelism=parallelism)
    reference = subject if isinstance(subject, Program) else reference_of(subject, options)
    made = Plan(
        graph=reference.name,
        graph_digest="",
        reference_digest="",
        options=options,
        program=reference,
        offsets=tuple(offsets[value.label] for value in reference.values),
        sizes=(0,) * len(reference.spaces),
        certificates=(),
        deterministic=True,
        holds=holds or {},
    )
    return Subject(reference, settled(made))


def in_one_place() -> Subject:
    """z, then y0 over it, a view y1 of that; a branch reads z before it is overwritten."""
    s = Sketch("in one place")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    branch = s.op("Gemm", [z, s.parameter("u", 4, 4)], "branch")
    y = s.op("Relu", [z], "y0")
    y = s.op("Reshape", [y, s.integers("shape", -1, 4)], "y1")
    h = s.op("Gemm", [y, s.parameter("v", 4, 4)], "h", transB=1)
    s.op("MeanSquaredError", [s.op("Add", [h, branch], "sum"), s.label("t", 3, 4)], "loss")
    return planned(s.graph(trainable=("v",)), PlanOptions(in_place=True))


def settled(made: Plan) -> Plan:
    """The plan with the sizes that its buffers take, and certificates that claim no more than the load."""
    placed = regions(made.program, made.holds)
    curves = loads(made.program, placed=placed)
    tops = [
        max((made.offsets[r.members[0]] + r.size for r in placed if r.space == space), default=0)
        for space in range(len(made.program.spaces))
    ]
    certificates = tuple(
        Certificate(Status.FEASIBLE, None, max(curve, default=0), None, "hand") for curve in curves
    )
    return replace(made, sizes=tuple(tops), certificates=certificates)


def moved(made: Plan, label: str, offset: int) -> Plan:
    """The plan with one value elsewhere, and figures that fit."""
    number = made.program.by_label[label]
    offsets = tuple(offset if k == number else old for k, old in enumerate(made.offsets))
    return settled(replace(made, offsets=offsets))


def with_step_changed(made: Plan, label: str, change: Callable[[Step], Step]) -> Plan:
    return settled(replace(made, program=with_step(made.program, label, change)))


def with_order(made: Plan, label: str, position: int) -> Plan:
    """The plan with one step at another position, all steps one after the other."""
    order = list(range(len(made.program.steps)))
    order.insert(position, order.pop(at(made.program, label)))
    return settled(replace(made, program=made.program.reordered(order)))


def with_alias(made: Plan, label: str, **changes: object) -> Plan:
    """The plan with the alias of one value changed."""
    number = made.program.by_label[label]
    aliases = tuple(
        replace(alias, **changes) if alias.value == number else alias  # type: ignore[arg-type]  # any field
        for alias in made.program.aliases
    )
    return replace(made, program=replace(made.program, aliases=aliases))


def with_value(made: Plan, name: str, **changes: object) -> Plan:
    """The plan with one value declared otherwise."""
    number = made.program.by_label[name]
    values = tuple(
        replace(value, **changes) if k == number else value  # type: ignore[arg-type]  # any field
        for k, value in enumerate(made.program.values)
    )
    return settled(replace(made, program=replace(made.program, values=values)))


def on_level(made: Plan, label: str, level: int) -> Plan:
    """The plan with one step on another level, behind those that are there; empty levels are closed."""
    program = made.program
    moving = at(program, label)
    order = [t for t in range(len(program.steps)) if t != moving]
    place = sum(program.steps[t].level <= level for t in order)
    order.insert(place, moving)
    levels = [level if t == moving else program.steps[t].level for t in order]
    dense = {old: new for new, old in enumerate(sorted(set(levels)))}
    return settled(replace(made, program=program.reordered(order, [dense[old] for old in levels])))


def with_options(made: Plan, **changes: object) -> Plan:
    return replace(made, options=replace(made.options, **changes))  # type: ignore[arg-type]  # any field
