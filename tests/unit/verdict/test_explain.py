"""Verdicts: what is proved, what is found, and remedies that can be planned and trained in as they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from solver.documents import dump_options, dump_verdict, load_graph, load_options, load_verdict
from solver.errors import CapacityError, DocumentError, OptionsError
from solver.executor import validate
from solver.graph import TrainableGraph, TrainingRules
from solver.pipeline import modelled_costs, plan
from solver.plan import Changes, PlanOptions, Verdict, VerdictStatus, paging
from solver.program import Costs
from solver.verdict import MEASURES, Measure, Request, Setting, batches_of, brief, explain
from tests.support.graphs import Sketch
from tests.support.operator_graphs import convolved
from tests.support.sequence_graphs import classifier

DOCUMENT = (Path(__file__).resolve().parents[3] / "examples" / "mnist.json").read_bytes()

PEAK, FLOOR, SMALLEST = 21_613_184, 17_035_072, 17_135_488


def verdict(capacity: int, *, training: bool = False, **options: Any) -> Verdict:
    """On mnist."""
    given = PlanOptions(capacity=capacity, **options)
    graph = load_graph(DOCUMENT, batch=options.get("batch"))
    return explain(graph, given, training=training, batches=batches_of(DOCUMENT, given))


def tower(depth: int = 5, **hyper: object) -> TrainableGraph:
    s = Sketch("tower")
    h = s.input("x", 32, 16)
    for k in range(depth):
        h = s.op("Gemm", [h, s.parameter(f"w{k}", 16, 16)], f"h{k}", f"fc{k}")
        h = s.op("Gelu", [h], f"a{k}", f"gelu{k}")
    s.op("MeanSquaredError", [h, s.label("t", 32, 16)], "loss", "mse")
    return s.graph(**hyper)  # type: ignore[arg-type]  # hyper-parameters and rules


# ------------------------------------------------------------------------------------------- status


def test_what_fits_as_it_is_needs_no_remedy() -> None:
    found = verdict(PEAK)
    assert (found.status, found.extra, found.bound, found.remedies) == (VerdictStatus.PLAN, 0, None, ())
    assert (found.peak, found.floor, found.smallest) == (PEAK, FLOOR, SMALLEST)


def test_what_fits_with_recomputation() -> None:
    found = verdict(PEAK - 1)
    assert found.status is VerdictStatus.PLAN
    assert found.extra is not None
    assert 0 < found.extra == found.bound
    assert ("recompute",) in [remedy.names for remedy in found.remedies]


def test_what_is_live_may_fit_where_its_layout_does_not() -> None:
    """Repetitions that cost nothing are repetitions: nothing fits as it is."""
    graph = load_graph(DOCUMENT)
    modelled = modelled_costs(graph, PlanOptions()).nanoseconds
    free = Costs(tuple((name, 0 if name.endswith(":forward") else cost) for name, cost in modelled))
    options = PlanOptions(solver="best-fit", costs=free)
    arena = plan(graph, options).arena_bytes
    assert arena > PEAK
    found = explain(graph, replace(options, capacity=arena - 1))
    assert (found.peak, found.status, found.extra) == (PEAK, VerdictStatus.PLAN, 0)
    assert not found.fits_as_it_is
    assert found.repeated_steps > 0
    assert found.arena_bytes is not None
    assert found.smallest <= found.arena_bytes < arena
    assert ("recompute",) in [remedy.names for remedy in found.remedies]
    assert load_verdict(dump_verdict(found)) == found
    same = explain(graph, replace(options, capacity=arena))
    assert (same.fits_as_it_is, same.arena_bytes, same.repeated_steps) == (True, arena, 0)
    assert same.remedies == ()


@pytest.mark.parametrize("options", [{}, {"in_place": True}, {"parallelism": 2}], ids=str)
@pytest.mark.parametrize("make", [tower, classifier, convolved], ids=["tower", "lstm", "convolved"])
def test_the_smallest_capacity_is_that_of_a_plan(
    make: Callable[[], TrainableGraph], options: dict[str, Any]
) -> None:
    graph = make()
    low = brief(graph, PlanOptions(**options)).floor
    found = explain(graph, PlanOptions(capacity=low, **options))
    given = PlanOptions(capacity=found.smallest, recompute=True, **options)
    assert plan(graph, given).arena_bytes <= found.smallest


def test_between_the_floor_and_the_smallest_it_is_open() -> None:
    found = verdict(17_100_000)
    assert found.status is VerdictStatus.OPEN
    assert found.extra is None
    assert 17_100_000 <= found.impossible < found.smallest == SMALLEST


def test_below_the_floor_it_is_impossible() -> None:
    found = verdict(FLOOR - 1)
    assert found.status is VerdictStatus.IMPOSSIBLE
    assert found.floor_step == "conv2:calc_gradient"
    assert {name for name, _ in found.touched} >= {"conv1.out", "conv2.out@grad"}
    there = sum(size for _, size in (*found.touched, *found.waiting))
    assert found.fixed + found.scratch + there == found.floor


def test_rewriting_and_less_scratch_come_before_recomputation() -> None:
    """Nothing has to run again for mnist in 16.6 MB."""
    best = verdict(16_600_000).remedies[0]
    assert best.names == ("rewrite", "1 MiB of scratch")
    assert (best.changes, best.arena_bytes) == (Changes.ROUNDING, 16_429_184)
    assert best.extra <= 0


# ------------------------------------------------------------------------------------------ remedies


@pytest.mark.parametrize("capacity", [9_800_000, 14_700_000, 17_000_000, 20_000_000])
def test_remedies_are_plans_within_the_capacity(capacity: int) -> None:
    found = verdict(capacity, training=True)
    assert found.remedies
    for remedy in found.remedies:
        document = json.loads(DOCUMENT) | dict(remedy.graph_fields)
        batch = remedy.options.get("batch")
        assert batch is None or isinstance(batch, int)
        graph = load_graph(document, batch=batch)
        options = load_options(remedy.options).options
        assert (options.tiers[0].bytes if options.tiers else options.capacity) == capacity
        made = plan(graph, options)
        first = made.sizes[0] if options.tiers else made.arena_bytes  # where kernels run
        assert first == remedy.arena_bytes <= capacity


def test_what_changes_the_training_is_off_and_comes_last() -> None:
    assert all(remedy.changes is not Changes.TRAINING for remedy in verdict(17_000_000).remedies)
    changes = [remedy.changes is Changes.TRAINING for remedy in verdict(17_000_000, training=True).remedies]
    assert changes == sorted(changes)
    assert any(changes)


def test_16_bit_storage_changes_what_is_learned() -> None:
    found = {remedy.names: remedy for remedy in verdict(20_500_000, training=True).remedies}
    remedy = found["activations in bfloat16",]
    assert remedy.changes is Changes.TRAINING
    assert dict(remedy.options) == {"only": (), "capacity": 20_500_000, "storage": "bfloat16"}
    assert "rounded" in remedy.note
    again = verdict(19_500_000, training=True, storage="float16")
    assert not any("activations in bfloat16" in r.names for r in again.remedies)


def test_paging_is_offered_with_its_time() -> None:
    found = {remedy.names: remedy for remedy in verdict(16_000_000).remedies}
    remedy = found["paging",]
    assert remedy.changes is Changes.NOTHING
    assert remedy.extra > 0
    options = load_options(remedy.options).options
    assert options.capacity is None
    assert options.tiers[0].bytes == 16_000_000
    moved = paging(plan(load_graph(DOCUMENT), options))
    assert moved is not None
    assert remedy.extra == moved.time - moved.compute
    assert "MB/s" in remedy.note
    assert load_verdict(dump_verdict(verdict(16_000_000))) == verdict(16_000_000)


def test_measures_whose_steps_the_costs_do_not_name_are_left_out() -> None:
    graph = load_graph(DOCUMENT)
    costs = modelled_costs(graph, PlanOptions())
    found = verdict(16_600_000, training=True, costs=costs)
    assert found.remedies
    for remedy in found.remedies:
        assert not {"rewrite", "activations in bfloat16"} & set(remedy.names)
        assert "micro-batches" not in " ".join(remedy.names)


def test_remedies_are_whole_requests() -> None:
    """Each has all requested options but the deadline; options that a remedy drops are taken back."""
    graph = tower()
    costs = modelled_costs(graph, PlanOptions())
    peak = plan(graph).arena_bytes
    asked = PlanOptions(
        capacity=peak - 8192,
        recompute=True,
        parallelism=3,
        alignment=128,
        costs=costs,
        deadline_seconds=600.0,
    )
    found = explain(graph, asked)
    assert found.remedies
    assert load_verdict(dump_verdict(found)) == found
    for remedy in found.remedies:
        options = load_options(remedy.options).options
        over = load_options({**json.loads(dump_options(asked)), **remedy.options}).options
        assert replace(over, deadline_seconds=None) == options
        assert (options.alignment, options.costs, options.deadline_seconds) == (128, costs, None)
        assert options.recompute is ("recompute" in remedy.names)
        assert options.parallelism == (1 if "one step at a time" in remedy.names else 3)
        made = plan(graph, options)
        assert (made.sizes[0] if options.tiers else made.arena_bytes) == remedy.arena_bytes


def test_other_rules_of_training_stay_in_a_remedy() -> None:
    document = json.loads(DOCUMENT) | {"training": {"clip_global_norm": 1.0}}
    options = PlanOptions(capacity=16_500_000)
    found = explain(load_graph(document), options, training=True, batches=batches_of(document, options))
    (split,) = [remedy for remedy in found.remedies if "batch" in remedy.options]
    assert split.graph_fields["training"] == {"accumulate": 2, "clip_global_norm": 1.0}


def test_no_remedy_has_a_part_that_is_enough() -> None:
    names = [set(remedy.names) for remedy in verdict(18_000_000).remedies]
    quick = [each for each in names if "recompute" not in each]
    assert not any(a < b for a in quick for b in quick)


def test_a_remedy_trains_to_the_same_bits() -> None:
    graph = tower()
    peak = plan(graph).arena_bytes
    low = brief(graph, PlanOptions()).floor
    found = explain(graph, PlanOptions(capacity=(peak + low) // 2))
    kept = [remedy for remedy in found.remedies if remedy.changes is Changes.NOTHING]
    assert kept
    for remedy in kept:
        made = plan(graph, load_options(remedy.options).options)
        assert validate(graph, made, steps=2).identical


def test_fewest_layers_are_given_up() -> None:
    found = verdict(14_700_000, training=True)
    (trained,) = [remedy for remedy in found.remedies if "trainable" in remedy.graph_fields]
    assert trained.names == ("train the last 4 of 6 layers",)


def test_the_smallest_number_of_micro_batches() -> None:
    found = verdict(16_500_000, training=True)
    (split,) = [remedy for remedy in found.remedies if "batch" in remedy.options]
    assert split.names == ("2 micro-batches of 16",)
    assert split.options == {"only": (), "capacity": 16_500_000, "batch": 16}
    assert split.graph_fields == {"training": {"accumulate": 2}}
    assert split.extra > 0


def test_micro_batches_of_micro_batches_multiply() -> None:
    document = json.loads(DOCUMENT) | {"training": {"accumulate": 2}}
    options = PlanOptions(capacity=16_500_000)
    found = explain(load_graph(document), options, training=True, batches=batches_of(document, options))
    (split,) = [remedy for remedy in found.remedies if "batch" in remedy.options]
    assert split.graph_fields["training"] == {"accumulate": 4}


def test_a_graph_with_one_batch_has_no_micro_batches() -> None:
    assert batches_of({"operands": [{"name": "x", "shape": [4, 2]}], "batch": 4}, PlanOptions()) is None
    assert batches_of({"operands": [{"name": "x", "shape": ["batch", 2]}]}, PlanOptions()) is None


def test_steps_one_at_a_time_where_several_were_asked_for() -> None:
    assert ("one step at a time",) in [remedy.names for remedy in verdict(PEAK, parallelism=2).remedies]


def test_a_measure_of_another_kind_is_a_row() -> None:
    def settings(_request: Request) -> tuple[Setting, ...]:
        return (Setting("updates at once", lambda request: request.choosing(update="immediate")),)

    graph = load_graph(DOCUMENT)
    capacity = plan(graph).arena_bytes
    found = explain(
        graph,
        PlanOptions(capacity=capacity, update="end"),
        measures=(*MEASURES, Measure("updates", Changes.NOTHING, settings)),
    )
    assert any("updates at once" in remedy.names for remedy in found.remedies)


def test_costs_are_those_of_an_update() -> None:
    usual = explain(tower(2), PlanOptions(capacity=1))
    twice = explain(tower(2, training=TrainingRules(accumulate=2)), PlanOptions(capacity=1))
    assert usual.update_nanoseconds < twice.update_nanoseconds < 2.5 * usual.update_nanoseconds


def test_the_same_arguments_give_the_same_verdict() -> None:
    assert verdict(16_000_000, training=True) == verdict(16_000_000, training=True)


def test_what_is_tried_is_told() -> None:
    seen: list[tuple[str, ...]] = []
    explain(tower(2), PlanOptions(capacity=1), observe=seen.append)
    assert ("in place",) in seen or ("sub-ranges in place",) in seen
    assert ("recompute",) in seen


def test_time_that_has_run_out() -> None:
    found = verdict(16_600_000, training=True, deadline_seconds=0.0)
    assert found.status is VerdictStatus.IMPOSSIBLE
    assert not found.complete


# --------------------------------------------------------------------------------------- what is refused


def test_without_a_capacity_there_is_nothing_to_explain() -> None:
    with pytest.raises(OptionsError, match="which capacity") as caught:
        explain(tower(), PlanOptions())
    assert caught.value.path == ("capacity",)


def test_a_target_that_cannot_recompute() -> None:
    with pytest.raises(OptionsError, match="runs each step once"):
        explain(tower(), PlanOptions(target="onert", capacity=1))


def test_bounds_alone() -> None:
    found = brief(load_graph(DOCUMENT), PlanOptions(capacity=1))
    assert (found.floor, found.floor_step, found.peak) == (FLOOR, "conv2:calc_gradient", PEAK)


def test_the_floor_is_that_of_the_pass() -> None:
    with pytest.raises(CapacityError) as caught:
        plan(load_graph(DOCUMENT), PlanOptions(capacity=FLOOR - 1, recompute=True))
    assert caught.value.required == FLOOR


def test_what_lies_in_parts_of_others_does_not_raise_the_floor() -> None:
    """A floor is proved: no plan may be below it, with sub-ranges in place either."""
    s = Sketch("joined")
    x = s.input("x", 256, 2)
    halves = [s.op("Gemm", [x, s.parameter(f"w{k}", 2, 256)], f"h{k}", f"fc{k}") for k in range(2)]
    s.op("ReduceMean", [s.op("Concat", halves, "both", "join", axis=0)], "loss", "mean", keepdims=0)
    options = PlanOptions(in_place=True, sub_ranges=True)
    assert brief(s.graph(), options).floor <= plan(s.graph(), options).arena_bytes


# ----------------------------------------------------------------------------------------- documents


@pytest.mark.parametrize("capacity", [PEAK, PEAK - 1, 17_100_000, 9_800_000])
def test_nothing_is_lost_in_a_document(capacity: int) -> None:
    found = verdict(capacity, training=True)
    assert load_verdict(dump_verdict(found)) == found


def test_a_document_with_an_unknown_status_is_refused() -> None:
    text = dump_verdict(verdict(PEAK)).decode().replace('"status":"plan"', '"status":"perhaps"')
    with pytest.raises(DocumentError) as caught:
        load_verdict(text.encode())
    assert caught.value.pointer == "/status"
