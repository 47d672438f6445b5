"""Figures that passes and preparations recorded are counted again: a changed figure is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import pytest

from solver.errors import PlanError
from solver.executor import Trainer, rewritten
from solver.graph import TrainableGraph
from solver.pipeline import plan, plan_program, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import COPY, Program, Record, Replacement, Tier
from solver.verify import is_unchecked, prove
from tests.support.graphs import convolutional, residual, tower
from tests.support.programs import AUTO_RECYCLE
from tests.support.programs import program as explicit
from tests.support.rewritable import mobile_block

_TIERS = (Tier("sram", 2560), Tier("flash", 2**20, 400_000_000, 200_000_000, 100))


def _tower() -> TrainableGraph:
    return tower(4, rows=4, width=8, outputs=("h1",))


MADE: Mapping[str, tuple[Callable[[], TrainableGraph], PlanOptions]] = {
    "order": (residual, PlanOptions()),
    "search_order": (residual, PlanOptions(order=True)),
    "levels": (residual, PlanOptions(parallelism=3)),
    "aliases": (residual, PlanOptions(in_place=True)),
    "rewrite": (lambda: mobile_block(size=4, channels=2), PlanOptions(rewrite=True)),
    "fit_scratch": (lambda: convolutional(2), PlanOptions(fit_scratch=True)),
    "storage": (_tower, PlanOptions(storage="bfloat16")),
    "paging": (_tower, PlanOptions(tiers=_TIERS)),
}


#: What is counted where one step runs at a time, and no later pass has moved steps.
SEQUENTIAL = ("records[order].steps_moved", "records[search_order].peak_after")


@cache
def made(name: str) -> tuple[TrainableGraph, Plan, Program]:
    make, options = MADE[name]
    graph = make()
    found = plan(graph, options)
    return graph, found, reference_of(rewritten(graph, found), found.options)


def with_record(found: Plan, name: str, facts: Mapping[str, int | str | bool]) -> Plan:
    records = tuple(Record(name, facts) if each.name == name else each for each in found.records)
    return replace(found, records=records)


@pytest.mark.parametrize("name", MADE)
def test_every_figure_that_is_counted_again(name: str) -> None:
    _, found, reference = made(name)
    (record,) = (each for each in found.records if each.name == name)
    assert prove(reference, found) == ()
    changed = 0
    for fact, value in record.facts.items():
        place = f"records[{name}].{fact}"
        if is_unchecked(place) and place not in SEQUENTIAL:
            continue
        for other in ("other",) if isinstance(value, str) else (int(value) + 1, -1, True, "1"):
            wrong = with_record(found, name, {**record.facts, fact: other})
            assert {violation.rule for violation in prove(reference, wrong)} == {"record"}, (fact, other)
            changed += 1
    assert changed


@pytest.mark.parametrize("name", MADE)
def test_facts_and_records_that_no_plan_has(name: str) -> None:
    _, found, reference = made(name)
    (record,) = (each for each in found.records if each.name == name)
    for records in (
        (*found.records, record),
        (*found.records, Record("guess", {})),
        with_record(found, name, {**record.facts, "guess": 0}).records,
    ):
        wrong = replace(found, records=records)
        assert {violation.rule for violation in prove(reference, wrong)} == {"record"}


def test_both_digests_are_taken_again() -> None:
    graph, found, _ = made("order")
    Trainer(graph, found)
    for changed in (
        replace(found, graph_digest="0" * 64),
        replace(found, graph_digest=""),
        replace(found, reference_digest="0" * 64),
        replace(found, reference_digest=""),
    ):
        with pytest.raises(PlanError, match="digest"):
            Trainer(graph, changed)


def test_a_title_makes_no_difference_but_a_plan_has_one() -> None:
    _, found, reference = made("order")
    assert prove(replace(reference, name="other"), found) == ()
    for titled in (
        replace(found, graph="other"),
        replace(found, program=replace(found.program, name="other")),
    ):
        assert {violation.rule for violation in prove(reference, titled)} == {"digest"}


def test_tiers_that_cannot_be_are_a_fault_of_the_record() -> None:
    _, found, reference = made("paging")
    fast, slow = found.options.tiers
    tiers = (fast, replace(slow, read=0))
    wrong = replace(found, options=replace(found.options, tiers=tiers))
    assert [violation.rule for violation in prove(reference, wrong)] == ["record"]


@pytest.mark.parametrize("channel", [0, 2, True, 1.0, -1])
def test_the_channel_of_a_copy_is_that_of_its_memories(channel: float) -> None:
    """Copies on a channel of their own would take less time than the one that there is."""
    _, found, reference = made("paging")
    copies = [node for node in found.program.operations if node.operation.type == COPY]
    assert {node.attributes["channel"] for node in copies} == {1}
    operations = tuple(
        replace(node, attributes={"channel": channel}) if node is copies[0] else node
        for node in found.program.operations
    )
    wrong = replace(found, program=replace(found.program, operations=operations))
    (violation,) = prove(reference, wrong)[:1]
    assert violation.rule == "record"
    assert "not {'channel': 1}" in violation.detail


def test_explicit_programs_have_nothing_to_replace() -> None:
    program = explicit(AUTO_RECYCLE, fed=("in",), kept=("dx",))
    found = plan_program(program)
    reference = reference_of(program, found.options)
    assert prove(reference, found) == ()
    wrong = replace(found, replacements=(Replacement("fuse-bias", ("op0",), (), 0, 0, 0),))
    assert [violation.rule for violation in prove(reference, wrong)] == ["record"]
