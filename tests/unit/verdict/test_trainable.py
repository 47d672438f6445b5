"""The layers to train within a capacity: the best set of all, by planning every one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.documents import load_options
from solver.errors import CapacityError, OptionsError
from solver.graph import MAX_OPERATIONS, TrainableGraph, with_training
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET
from solver.pipeline import plan_requested
from solver.plan import Plan, RequestedOptions
from solver.verdict import choose_trainable, layers_of
from tests.support.graphs import chain, convolutional

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


@settings(max_examples=25, deadline=None)
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
