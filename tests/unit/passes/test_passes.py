"""The registry of passes: their order, what they require and keep, and the options that they take."""

from __future__ import annotations

from dataclasses import fields

import pytest

from solver.errors import OptionsError
from solver.graph import TrainableGraph
from solver.passes import PASSES, Aliases, Levels, Order, Paging, Pass, Recompute, SearchOrder, chosen
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Program, loads
from solver.training import derive
from tests.support.graphs import chain, convolutional, residual

GRAPHS = [chain(), residual(), convolutional()]


def has(program: Program, name: str) -> bool:
    """Whether a program has a property that passes speak of."""
    if name == "sequential":
        return [step.level for step in program.steps] == list(range(len(program.steps)))
    assert name == "own memory"
    return not program.aliases


def test_the_passes_in_the_order_in_which_they_run() -> None:
    assert (Order, SearchOrder, Recompute, Levels, Paging, Aliases) == PASSES
    assert [kind.name for kind in PASSES] == [
        "order",
        "search_order",
        "recompute",
        "levels",
        "paging",
        "aliases",
    ]


@pytest.mark.parametrize("kind", PASSES, ids=lambda kind: str(kind.name))
def test_every_option_of_a_pass_is_an_option_of_a_plan_with_the_same_default(kind: type[Pass]) -> None:
    options = PlanOptions()
    for field in fields(kind):  # type: ignore[arg-type]  # every pass is a dataclass
        assert field.default == getattr(options, field.name)


def test_a_pass_requires_only_what_all_before_it_keep() -> None:
    there = {"sequential", "own memory"}
    for kind in PASSES:
        assert kind.requires <= there
        there &= kind.keeps


@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(parallelism=3, in_place=True)])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_each_pass_finds_what_it_requires_and_leaves_what_it_keeps(
    graph: TrainableGraph, options: PlanOptions
) -> None:
    program = derive(graph)
    for each in chosen(options):
        assert all(has(program, name) for name in each.requires)
        found = each.run(program)
        assert all(has(found, name) for name in each.keeps if has(program, name))
        program = found


def test_passes_are_chosen_by_options_of_the_same_name() -> None:
    options = PlanOptions(update="end", parallelism=4, in_place=True)
    assert chosen(options) == (
        Order("end"),
        SearchOrder(in_place=True, update="end"),
        Recompute(in_place=True),
        Levels(4, "end", in_place=True),
        Paging(in_place=True),
        Aliases(in_place=True),
    )
    assert chosen(PlanOptions()) == (Order(), SearchOrder(), Recompute(), Levels(), Paging(), Aliases())
    again = PlanOptions(recompute=True, capacity=4096)
    assert chosen(again)[2:5] == (
        Recompute(recompute=True, capacity=4096),
        Levels(recompute=True, capacity=4096),
        Paging(recompute=True),
    )


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (PlanOptions(update="later"), ("update",)),
        (PlanOptions(parallelism=0), ("parallelism",)),
        (PlanOptions(parallelism=65), ("parallelism",)),
        (PlanOptions(recompute=True), ("capacity",)),
    ],
)
def test_a_value_that_a_pass_does_not_take_is_named(options: PlanOptions, path: tuple[str, ...]) -> None:
    with pytest.raises(OptionsError) as caught:
        chosen(options)
    assert caught.value.path == path
    assert caught.value.remedy


def test_a_pass_that_changes_nothing_gives_the_very_program_and_leaves_no_record() -> None:
    program = derive(chain())
    for each in chosen(PlanOptions(update="end")):
        assert each.run(program) is program
    assert plan(chain(), PlanOptions(update="end")).records == ()


def test_what_passes_did_stands_in_the_records_of_the_plan() -> None:
    made = plan(residual(), PlanOptions(parallelism=2, in_place=True))
    facts = {record.name: record.facts for record in made.records}
    assert list(facts) == ["order", "levels", "aliases"]
    assert facts["order"]["update"] == "immediate"
    assert facts["levels"] == {"parallelism": 2, "steps": len(made.steps), "levels": made.duration}
    views = sum(alias.view for alias in made.program.aliases)
    assert facts["aliases"]["views"] == views
    assert facts["aliases"]["overwritten"] == len(made.program.aliases) - views
    assert facts["aliases"]["peak_after"] == max(loads(made.program)[0])


def test_passes_say_nothing_of_what_they_did_unless_they_have_something_to_say() -> None:
    class Silent(Pass):
        name = "silent"

        def run(self, program: Program) -> Program:
            return program

    program = derive(chain())
    assert Silent().facts(program, program) == {}
    assert Silent.keeps == {"sequential", "own memory"}
    assert Silent.requires == frozenset()
