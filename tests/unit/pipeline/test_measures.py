"""The measures that a plan takes: those that are needed, cheapest first, and none that changes bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples.gallery import GALLERY
from solver.accounting import level_costs
from solver.documents import dump_plan, load_graph, load_program
from solver.errors import CapacityError, OptionsError
from solver.graph import TrainableGraph
from solver.pipeline import free_measures, plan, plan_program, plan_requested
from solver.plan import PlanOptions, RequestedOptions
from solver.program import Tier
from solver.reports.arenas import level_report
from solver.reports.records import paging, recomputation
from tests.support.operator_graphs import attention

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MNIST = load_graph((EXAMPLES / "mnist.json").read_bytes())


def requested(**options: object) -> RequestedOptions:
    return RequestedOptions(replace(PlanOptions(), **options))  # type: ignore[arg-type]  # options by name


def gallery(name: str) -> TrainableGraph:
    return GALLERY[name].model().graph


@pytest.mark.parametrize("graph", [MNIST, gallery("lenet5"), gallery("transfer")], ids=lambda g: g.name)
def test_a_plan_that_no_measure_makes_smaller_is_the_one_as_written(graph: TrainableGraph) -> None:
    assert dump_plan(plan_requested(graph)) == dump_plan(plan(graph))


@pytest.mark.parametrize(
    ("name", "written", "chosen"),
    [
        ("transformer", 4_190_400, 3_928_256),
        ("autoencoder", 3_346_432, 3_192_960),
        ("resnet18", 172_488_704, 164_342_784),
    ],
)
def test_what_lowers_the_peak_without_time_is_taken(name: str, written: int, chosen: int) -> None:
    """In place, and in ResNet-18 another order, which list scheduling finds."""
    graph = gallery(name)
    made = plan_requested(graph)
    assert (plan(graph).arena_bytes, made.arena_bytes) == (written, chosen)
    assert made.options.in_place
    assert made.options.order is (name == "resnet18")
    assert not made.options.recompute
    assert not made.options.fit_scratch


def test_a_capacity_that_free_measures_keep_costs_no_time() -> None:
    graph = gallery("transformer")
    made = plan_requested(graph, requested(capacity=4_000_000))
    assert made.arena_bytes == 3_928_256
    assert recomputation(made) is None


def test_steps_run_again_only_where_the_capacity_asks_for_it() -> None:
    assert recomputation(plan_requested(MNIST, requested(capacity=21_613_184))) is None
    made = plan_requested(MNIST, requested(capacity=20 * 2**20))
    again = recomputation(made)
    assert again is not None
    assert 0 < again.extra < again.step // 200
    assert made.arena_bytes <= 20 * 2**20
    assert made.options.recompute


def test_a_capacity_below_the_floor_is_proved_impossible() -> None:
    with pytest.raises(CapacityError, match="no recomputation takes less than 17,035,072") as caught:
        plan_requested(MNIST, requested(capacity=16 * 2**20))
    assert caught.value.proved


def test_the_capacity_that_a_refusal_names_is_enough() -> None:
    with pytest.raises(CapacityError) as caught:
        plan_requested(MNIST, requested(capacity=17_100_000))
    assert not caught.value.proved
    made = plan_requested(MNIST, requested(capacity=caught.value.required))
    assert 17_100_000 < made.arena_bytes <= caught.value.required


@pytest.mark.parametrize("capacity", [3_212_416, 3_221_952])
def test_what_is_proved_of_one_choice_is_not_said_of_all(capacity: int) -> None:
    """As written, LeNet-5 needs 3,824,192 bytes when rewritten: steps that run again make it smaller."""
    graph = gallery("lenet5")
    with pytest.raises(CapacityError, match="No schedule was found") as caught:
        plan_requested(graph, requested(capacity=capacity, rewrite=True))
    assert not caught.value.proved
    assert caught.value.required == 3_222_080
    assert plan_requested(graph, requested(capacity=3_222_080, rewrite=True)).arena_bytes == 3_222_080


def test_a_refusal_is_proved_where_that_of_every_choice_is() -> None:
    graph = gallery("lenet5")
    with pytest.raises(CapacityError, match="takes less than 3,212,416") as caught:
        plan_requested(graph, requested(capacity=3_212_415, rewrite=True))
    assert caught.value.proved
    with pytest.raises(CapacityError) as caught:
        plan_requested(graph, requested(capacity=2_000_000, target="singa"))
    assert caught.value.proved
    smallest = plan(graph, PlanOptions(target="singa", in_place=True)).arena_bytes
    assert caught.value.required == smallest


def test_what_fits_the_first_memory_is_not_moved() -> None:
    tiers = (Tier("ram", 2**25), Tier("flash", 2**30, 45_000_000, 45_000_000))
    moved = paging(plan_requested(MNIST, requested(tiers=tiers)))
    assert moved is not None
    assert not moved.moved


def test_paging_and_repetitions_are_weighed() -> None:
    tiers = (Tier("ram", 12 * 2**20), Tier("flash", 2**30, 45_000_000, 45_000_000))
    made = plan_requested(MNIST, requested(tiers=tiers))
    moved, alone = paging(made), paging(plan(MNIST, PlanOptions(tiers=tiers)))
    assert moved is not None
    assert alone is not None
    assert moved.time < alone.time * 3 // 4
    assert recomputation(made) is not None


@pytest.mark.parametrize("target", ["onert", "singa", "singa-relu"])
def test_a_runtime_of_others_does_what_it_does(target: str) -> None:
    exact = PlanOptions(target=target)
    assert dump_plan(plan_requested(MNIST, RequestedOptions(exact))) == dump_plan(plan(MNIST, exact))


def test_a_capacity_may_ask_of_singa_what_it_is_able_to() -> None:
    graph = gallery("lenet5")
    written, whole = (
        plan(graph, PlanOptions(target="singa", in_place=in_place)).arena_bytes for in_place in (False, True)
    )
    assert whole < written
    made = plan_requested(graph, requested(target="singa", capacity=(whole + written) // 2))
    assert (made.arena_bytes, made.options.in_place) == (whole, True)


def test_options_that_are_not_automatic_are_exact() -> None:
    for options in (PlanOptions(), PlanOptions(in_place=True), PlanOptions(order=True)):
        asked = RequestedOptions(options, automatic=False)
        graph = gallery("autoencoder")
        assert dump_plan(plan_requested(graph, asked)) == dump_plan(plan(graph, options))
        assert free_measures(graph, asked) == options


def test_levels_that_a_capacity_takes_are_time() -> None:
    """Of two orders with plans of 10,752 bytes, the one of fewer levels is taken: the other has 49."""
    graph = attention()
    free = plan(graph, PlanOptions(parallelism=2))
    made = plan_requested(graph, requested(parallelism=2, capacity=free.arena_bytes * 9 // 10))
    assert made.arena_bytes == 10_752
    figures = [(each.duration, sum(level_costs(each.program))) for each in (free, made)]
    assert figures[0] < figures[1] == (47, 114_182)
    report = level_report(made)
    assert report.count == 47 > report.unbounded


def test_rewriting_is_never_taken_by_itself_and_stays_beside_the_measures() -> None:
    assert not plan_requested(MNIST, requested(capacity=17_200_000)).replacements
    made = plan_requested(MNIST, requested(rewrite=True))
    assert made.replacements
    assert made.arena_bytes <= plan(MNIST, PlanOptions(rewrite=True)).arena_bytes


def test_a_program_takes_what_it_permits() -> None:
    program = load_program((EXAMPLES / "programs/momentum.json").read_bytes())
    made = plan_requested(program)
    assert made.arena_bytes <= plan_program(program).arena_bytes
    with pytest.raises(OptionsError, match="rewrite is for graphs"):
        plan_requested(program, requested(rewrite=True))
    with pytest.raises(CapacityError):
        plan_requested(program, requested(capacity=1))


def test_a_deadline_that_has_passed_still_gives_a_plan() -> None:
    made = plan_requested(gallery("transformer"), requested(deadline_seconds=0.0))
    assert made.options.deadline_seconds == 0.0
    assert made.arena_bytes <= 4_190_400
