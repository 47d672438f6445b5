"""Curves of memory against time: each point is a schedule, and none is below the floor."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from solver.documents import dump_tradeoff, load_graph, load_tradeoff
from solver.errors import DocumentError, OptionsError
from solver.graph import TrainableGraph
from solver.layout import Alignment, Pin
from solver.pipeline import modelled_costs, plan
from solver.plan import PlanOptions
from solver.program import Costs, ReservedRange
from solver.reports.verdict import TradeOffPoint
from solver.verdict import tradeoff
from tests.support.graphs import Sketch
from tests.support.sequence_graphs import classifier

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def tower(depth: int = 5, **hyper: object) -> TrainableGraph:
    """Layers of which each keeps its wide activation for the backward pass."""
    s = Sketch("tower")
    h = s.input("x", 32, 16)
    for k in range(depth):
        h = s.op("Gemm", [h, s.parameter(f"w{k}", 16, 16)], f"h{k}", f"fc{k}")
        h = s.op("Gelu", [h], f"a{k}", f"gelu{k}")
    s.op("MeanSquaredError", [h, s.label("t", 32, 16)], "loss", "mse")
    return s.graph(**hyper)  # type: ignore[arg-type]  # hyper-parameters and rules


def mnist() -> TrainableGraph:
    return load_graph((EXAMPLES / "mnist.json").read_bytes())


def test_figures_of_mnist() -> None:
    curve = tradeoff(mnist(), points=6)
    assert (curve.present.peak, curve.floor, curve.floor_step) == (
        21_613_184,
        17_035_072,
        "conv2:calc_gradient",
    )
    assert curve.points[-1].peak == 17_135_488
    assert all(point.optimal for point in curve.points)
    assert curve.complete


def test_the_first_point_is_the_program_as_it_is_where_repetitions_cost_nothing() -> None:
    modelled = modelled_costs(mnist(), PlanOptions()).nanoseconds
    free = Costs(tuple((name, 0 if name.endswith(":forward") else cost) for name, cost in modelled))
    curve = tradeoff(mnist(), PlanOptions(costs=free), points=4)
    assert (curve.present.peak, curve.present.repeated_steps) == (21_613_184, 0)
    assert curve.points[-1].repeated_steps > 0
    assert [point.extra for point in curve.points] == [0] * len(curve.points)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (tower(), {}),
        (tower(optimizer="Adam"), {"in_place": True, "sub_ranges": True}),
        (tower(), {"update": "end"}),
        (tower(), {"parallelism": 2}),
        (classifier(), {"in_place": True}),
    ],
    ids=["plain", "sub-ranges", "updates at the end", "two at a time", "sequence in place"],
)
def test_points_rise_and_keep_their_bounds(graph: TrainableGraph, options: dict[str, object]) -> None:
    given = PlanOptions(**options)  # type: ignore[arg-type]  # options by name
    curve = tradeoff(graph, given, points=4)
    assert curve.present == TradeOffPoint(curve.present.peak, 0, 0, 0, 0)
    assert curve.present.peak <= plan(graph, given).arena_bytes
    assert all(a.peak > b.peak and a.extra < b.extra for a, b in pairwise(curve.points))
    assert all(a.bound <= b.bound for a, b in pairwise(curve.points))
    assert all(curve.floor <= point.peak and 0 <= point.bound <= point.extra for point in curve.points)
    assert curve.impossible < curve.points[-1].peak


@pytest.mark.parametrize("options", [{}, {"in_place": True}], ids=str)
def test_a_point_can_be_planned(options: dict[str, object]) -> None:
    curve = tradeoff(tower(), PlanOptions(**options), points=4)  # type: ignore[arg-type]  # ditto
    for point in curve.points:
        made = plan(tower(), PlanOptions(capacity=point.peak, recompute=True, **options))  # type: ignore[arg-type]  # ditto
        assert made.arena_bytes <= point.peak


def test_the_same_arguments_give_the_same_curve() -> None:
    assert tradeoff(tower(3), points=4) == tradeoff(tower(3), points=4)


def test_what_is_searched_for_is_told() -> None:
    seen: list[TradeOffPoint] = []
    curve = tradeoff(tower(), points=4, observe=seen.append)
    assert {point.peak for point in curve.points[1:]} <= {point.peak for point in seen}


def test_time_that_has_run_out_leaves_the_program_as_it_is() -> None:
    curve = tradeoff(tower(), PlanOptions(deadline_seconds=0))
    assert len(curve.points) == 1
    assert not curve.complete


def test_one_operation_has_nothing_to_trade() -> None:
    curve = tradeoff(tower(1))
    assert curve.points[0].extra == 0
    assert curve.floor <= curve.points[-1].peak


@pytest.mark.parametrize("points", [-1, 0, 1, 101])
def test_a_number_of_points_out_of_range(points: int) -> None:
    with pytest.raises(OptionsError, match="points is asked for") as caught:
        tradeoff(tower(), points=points)
    assert caught.value.path == ("points",)


@pytest.mark.parametrize("target", ["onert", "nntrainer", "singa"])
def test_a_target_that_cannot_recompute(target: str) -> None:
    with pytest.raises(OptionsError, match="runs each step once") as caught:
        tradeoff(tower(), PlanOptions(target=target))
    assert caught.value.path == ("target",)
    assert "(reference, c)" in caught.value.remedy


def test_an_unknown_target() -> None:
    with pytest.raises(OptionsError, match="Unknown target 'gpu'"):
        tradeoff(tower(), PlanOptions(target="gpu"))


# ----------------------------------------------------------------------------------------- documents


def test_nothing_is_lost_in_a_document() -> None:
    curve = tradeoff(tower(), points=4)
    assert load_tradeoff(dump_tradeoff(curve)) == curve


def test_a_document_without_points_is_refused() -> None:
    text = dump_tradeoff(tradeoff(tower(1), points=2)).decode()
    start = text.index('"points":')
    end = text.index("]", start)
    with pytest.raises(DocumentError) as caught:
        load_tradeoff((text[:start] + '"points":[' + text[end:]).encode())
    assert caught.value.pointer == "/points"


@pytest.mark.parametrize(
    "options",
    [
        PlanOptions(pins=(Pin("w0", 0),)),
        PlanOptions(alignments=(Alignment("w0", 4096),)),
        PlanOptions(reserved=(ReservedRange(0, 4096),)),
    ],
    ids=["pins", "alignments", "reserved"],
)
def test_constraints_on_places_are_refused(options: PlanOptions) -> None:
    with pytest.raises(OptionsError, match="bytes that are live, wherever they lie") as caught:
        tradeoff(tower(), options)
    assert getattr(options, str(caught.value.path[0]))
