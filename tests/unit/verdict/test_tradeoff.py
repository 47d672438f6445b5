"""Curves of memory against time: each point is a schedule, and none is below the floor."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.documents import dump_tradeoff, load_graph, load_options, load_tradeoff
from solver.errors import CapacityError, DocumentError, OptionsError
from solver.graph import MAX_OPERATIONS, TrainableGraph, with_training
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET
from solver.layout import Alignment, Pin
from solver.pipeline import modelled_costs, plan, plan_requested, reference_of
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Costs, ReservedRange
from solver.reports.verdict import TradeOffPoint
from solver.verdict import choose_trainable, largest, layers_of, tradeoff
from solver.verify import prove
from tests.support.every import ALL
from tests.support.graphs import chain, convolutional, tower
from tests.support.sequence_graphs import classifier
from tests.support.sizes import SEQUENCES, with_symbolic_batch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


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


# --------------------------------------------- The largest size within a capacity, beside plans of every size


GRAPH = with_symbolic_batch(chain((6, 9, 4)), 8)


def within(capacity: int) -> RequestedOptions:
    return RequestedOptions(PlanOptions(capacity=capacity))


def fits(graph: TrainableGraph, capacity: int) -> bool:
    try:
        plan_requested(graph, within(capacity), advise=False)
    except CapacityError:
        return False
    return True


@pytest.mark.parametrize("capacity", [1_500, 2_048, 3_000, 5_000, 9_999])
def test_it_is_the_largest_of_all_that_fit(capacity: int) -> None:
    """Every size up to some beyond is planned; those said to be impossible do not fit."""
    result = largest(GRAPH, within(capacity), "batch", training=False)
    fitting = [size for size in range(1, result.impossible_from + 5) if fits(GRAPH.at(batch=size), capacity)]
    assert result.size == max(fitting, default=0)
    assert all(size < result.impossible_from for size in fitting)
    assert (result.plan is None) == (not fitting)
    if result.plan is not None:
        assert result.plan.arena_bytes <= capacity
        assert result.plan.options.batch == result.size
        there = GRAPH.at(batch=result.size)
        assert prove(reference_of(there, result.plan.options), result.plan) == ()
    assert result.exact == (not result.open)
    assert result.size + 1 in result.open or result.size + 1 >= result.impossible_from or result.exact


def test_scratch_that_falls_behind_a_size_does_not_hide_a_larger_one() -> None:
    """Sizes 5 and 6 of this network take more than 7 and 8."""
    graph = load_graph(GALLERY["lenet5"].model().document)
    result = largest(graph, within(2_450_000), "batch", training=False)
    assert result.size == 8
    assert not fits(graph.at(batch=6), 2_450_000)
    assert result.exact
    assert result.next_floor > 2_450_000


def test_another_dimension() -> None:
    graph = load_graph(SEQUENCES)
    result = largest(graph, within(20_000), "seq", training=False)
    assert result.exact
    assert fits(graph.at(seq=result.size), 20_000)
    assert not fits(graph.at(seq=result.size + 1), 20_000)
    assert result.plan is not None
    assert result.plan.planned_sizes is not None
    assert result.plan.planned_sizes.largest == {"seq": result.size}


def test_what_makes_the_next_size_fit_is_planned() -> None:
    result = largest(GRAPH, within(3_000), "batch")
    assert result.more is not None
    for remedy in result.more.remedies:
        assert remedy.arena_bytes <= 3_000
        assert "batch" not in remedy.names


@pytest.mark.parametrize(
    ("graph", "requested", "name", "message"),
    [
        (GRAPH, RequestedOptions(), "batch", "which capacity"),
        (GRAPH, within(5_000), "seq", "no symbolic dimension 'seq'"),
        (chain(), within(5_000), "batch", "no symbolic dimension 'batch'"),
        (GRAPH, within(2**60), "batch", "room for every batch"),
    ],
)
def test_what_cannot_be_asked(
    graph: TrainableGraph, requested: RequestedOptions, name: str, message: str
) -> None:
    with pytest.raises(OptionsError, match=message):
        largest(graph, requested, name)


# -------------------------- The layers to train within a capacity: the best set of all, by planning every one


GRAPHS = [chain((16, 24, 8, 12), 8), chain((5, 40, 5, 40, 3), 2), convolutional()]


def asked(capacity: int) -> RequestedOptions:
    return load_options({"capacity": capacity})


def training(graph: TrainableGraph, names: tuple[str, ...]) -> TrainableGraph:
    return with_training(
        graph.graph,
        loss=graph.loss,
        optimizer=graph.optimizer if names else None,
        trainable=[name for name in graph.trainable if name in names],
        rules=graph.training if names else None,
        max_operations=MAX_OPERATIONS,
    )


def plan_of(
    graph: TrainableGraph, names: tuple[str, ...], capacity: int, scratch: int = DEFAULT_SCRATCH_BUDGET
) -> Plan | None:
    try:
        return plan_requested(training(graph, names), asked(capacity).having(scratch_budget=scratch))
    except CapacityError:
        return None


def best_of_all(
    graph: TrainableGraph, capacity: int, scores: Mapping[str, float], scratch: int = DEFAULT_SCRATCH_BUDGET
) -> float | None:
    """The largest sum of scores of all sets of layers of which a plan with this scratch budget is found."""
    layers = layers_of(graph, scores)
    best: float | None = None
    for count in range(len(layers) + 1):
        for chosen in itertools.combinations(layers, count):
            score = sum(layer.score for layer in chosen)
            names = tuple(name for layer in chosen for name in layer.parameters)
            if (best is None or score > best) and plan_of(graph, names, capacity, scratch) is not None:
                best = score
    return best


@settings(max_examples=25 if ALL else 10, deadline=None)
@given(st.sampled_from(GRAPHS), st.floats(0.2, 1.0), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_no_set_of_layers_is_better(graph: TrainableGraph, share: float, numbers: list[int]) -> None:
    layers = layers_of(graph)
    scores = {layer.name: float(number) for layer, number in zip(layers, numbers, strict=False)}
    capacity = int(plan_requested(graph, load_options({})).arena_bytes * share)
    result = choose_trainable(graph, asked(capacity), scores)
    expected = best_of_all(graph, capacity, scores) or best_of_all(graph, capacity, scores, 1)
    assert (None if result.plan is None else result.score) == expected
    assert result.complete
    if result.plan is not None:
        assert result.plan.arena_bytes <= capacity
        budget = result.plan.options.scratch_budget
        assert plan_of(graph, result.trainable, capacity, budget) == result.plan
        assert result.score == sum(scores[layer.name] for layer in result.layers)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_bound_grows_with_what_is_trained(graph: TrainableGraph) -> None:
    """Each set's peak as written is at least that of each set in it."""
    layers = layers_of(graph)
    peaks: dict[frozenset[str], int] = {}
    for count in range(len(layers) + 1):
        for chosen in itertools.combinations(layers, count):
            names = tuple(name for layer in chosen for name in layer.parameters)
            peak = plan_requested(training(graph, names), load_options({})).lower_bound
            own = frozenset(layer.name for layer in chosen)
            assert all(peak >= peaks[own - {name}] for name in own)
            peaks[own] = peak


def test_scores_of_bytes_and_of_single_parameters() -> None:
    graph = chain((16, 24, 8), 8)
    by_bytes = {layer.name: layer.score for layer in layers_of(graph)}
    assert list(by_bytes.values()) == [4.0 * (16 * 24 + 24), 4.0 * (24 * 8 + 8)]
    first = graph.trainable[0]
    operation = next(o.id for o in graph.operations if first in o.inputs)
    single, rest = layers_of(graph, {first: 2, operation: 1})
    assert single.parameters == (first,)
    assert rest.parameters == tuple(name for name in graph.trainable[1:2])


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"fc9": 1}, "'fc9', which reads no parameter that the graph trains"),
        ({"fc1": -1}, "The score of 'fc1' is -1"),
        ({"fc1": float("inf")}, "The score of 'fc1' is inf"),
        ({"fc1": 10**400}, "The score of 'fc1' is 1000"),
        ({}, "nothing to choose from"),
    ],
)
def test_scores_that_are_none(scores: Mapping[str, float], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        choose_trainable(chain(), asked(10**6), scores)


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(OptionsError, match="which capacity to fill"):
        choose_trainable(chain(), load_options({}))
    with pytest.raises(OptionsError, match="depends on what is trained"):
        choose_trainable(chain(), load_options({"capacity": 10**6, "rewrite": True}))


def test_not_even_the_forward_pass() -> None:
    result = choose_trainable(chain(), asked(64))
    assert (result.plan, result.layers, result.exact) == (None, (), True)
