"""Verdicts: what is proved, what is found, and remedies that can be planned and trained in as they say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from solver.documents import dump_graph, dump_options, dump_verdict, load_graph, load_options, load_verdict
from solver.errors import BatchError, CapacityError, DocumentError, OptionsError
from solver.executor import validate
from solver.graph import TrainableGraph, TrainingRules
from solver.importers.options import training_fields
from solver.pipeline import free_measures, modelled_costs, plan, plan_requested
from solver.plan import PlanOptions, RequestedOptions
from solver.program import Costs
from solver.reports.records import paging, recomputation
from solver.reports.verdict import Changes, Verdict, VerdictStatus
from solver.verdict import (
    MEASURES,
    Batches,
    Measure,
    Request,
    Setting,
    batches_of,
    batches_of_model,
    brief,
    choose_trainable,
    explain,
    largest,
)
from tests.support.every import some
from tests.support.graphs import Sketch, batch_normalised, tower
from tests.support.operator_graphs import convolved
from tests.support.sequence_graphs import classifier
from tests.support.sizes import with_symbolic_batch

DOCUMENT = (Path(__file__).resolve().parents[3] / "examples" / "mnist.json").read_bytes()

PEAK, FLOOR, SMALLEST = 21_613_184, 17_035_072, 17_135_488


def called(name: str) -> tuple[Measure, ...]:
    """The measure of this name."""
    return tuple(measure for measure in MEASURES if measure.name == name)


MICRO_BATCHES = called("micro-batches")


def asked(capacity: int | None, **options: Any) -> RequestedOptions:
    return RequestedOptions(PlanOptions(capacity=capacity, **options))


@cache
def verdict(
    capacity: int, *, training: bool = False, measures: tuple[Measure, ...] = MEASURES, **options: Any
) -> Verdict:
    """On mnist. Several tests look at the same verdict, which takes seconds with all measures."""
    requested = asked(capacity, **options)
    graph = load_graph(DOCUMENT, batch=options.get("batch"))
    batches = batches_of(DOCUMENT, requested.options)
    return explain(graph, requested, training=training, batches=batches, measures=measures)


# ------------------------------------------------------------------------------------------- status


def test_what_fits_as_it_is_needs_no_remedy() -> None:
    found = verdict(PEAK)
    assert (found.status, found.extra, found.bound, found.remedies) == (VerdictStatus.PLAN, 0, None, ())
    assert (found.peak, found.floor, found.smallest) == (PEAK, FLOOR, SMALLEST)


def test_what_fits_with_recomputation() -> None:
    found = verdict(PEAK - 1)
    assert found.status is VerdictStatus.PLAN
    assert found.extra is not None
    assert found.bound is not None
    assert 0 < found.bound <= found.extra
    exact = RequestedOptions(PlanOptions(capacity=PEAK - 1, recompute=True), automatic=False)
    alone = explain(load_graph(DOCUMENT), exact, training=False)
    assert alone.extra is not None
    assert 0 < found.extra <= alone.extra == alone.bound
    assert ("recompute",) in [remedy.names for remedy in found.remedies]


def test_what_is_live_may_fit_where_its_layout_does_not() -> None:
    """Repetitions that cost nothing are repetitions: nothing fits as it is."""
    graph = load_graph(DOCUMENT)
    modelled = modelled_costs(graph, PlanOptions()).nanoseconds
    free = Costs(tuple((name, 0 if name.endswith(":forward") else cost) for name, cost in modelled))
    options = PlanOptions(solver="best-fit", costs=free, recompute=True)
    requested = RequestedOptions(options, automatic=False)
    arena = plan(graph, replace(options, recompute=False)).arena_bytes
    assert arena > PEAK
    found = explain(graph, requested.having(capacity=arena - 1))
    assert (found.peak, found.status, found.extra) == (PEAK, VerdictStatus.PLAN, 0)
    assert not found.fits_as_it_is
    assert found.repeated_steps > 0
    assert found.arena_bytes is not None
    assert found.smallest <= found.arena_bytes < arena
    assert ("recompute",) in [remedy.names for remedy in found.remedies]
    assert load_verdict(dump_verdict(found)) == found
    same = explain(graph, requested.having(capacity=arena))
    assert (same.fits_as_it_is, same.arena_bytes, same.repeated_steps) == (True, arena, 0)
    assert same.remedies == ()


@pytest.mark.parametrize(
    ("make", "options"),
    some(
        [(tower, {}), (classifier, {}), (convolved, {"parallelism": 2})],
        beside=[(tower, {"parallelism": 2}), (classifier, {"parallelism": 2}), (convolved, {})],
    ),
)
def test_the_smallest_capacity_is_that_of_a_plan(
    make: Callable[[], TrainableGraph], options: dict[str, Any]
) -> None:
    graph = make()
    low = brief(graph, free_measures(graph, asked(None, **options))).floor
    found = explain(graph, asked(low, **options), measures=())
    made = plan_requested(graph, asked(found.smallest, **options))
    assert made.arena_bytes <= found.smallest


def test_between_the_floor_and_the_smallest_it_is_open() -> None:
    found = verdict(17_100_000)
    assert found.status is VerdictStatus.OPEN
    assert found.extra is None
    assert 17_100_000 <= found.impossible < found.smallest == SMALLEST


def test_below_the_floor_it_is_impossible() -> None:
    found = verdict(FLOOR - 1, measures=())
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


@pytest.mark.parametrize(
    "capacity", some([20_500_000], beside=[8_000_000, 9_800_000, 14_700_000, 17_000_000])
)
def test_remedies_are_plans_within_the_capacity(capacity: int) -> None:
    found = verdict(capacity, training=True)
    assert found.remedies
    for remedy in found.remedies:
        document = json.loads(DOCUMENT) | dict(remedy.graph_fields)
        requested = load_options(remedy.options)
        options = requested.options
        assert requested.automatic
        assert (options.tiers[0].bytes if options.tiers else options.capacity) == capacity
        made = plan_requested(load_graph(document, batch=options.batch), requested)
        first = made.sizes[0] if options.tiers else made.arena_bytes  # where kernels run
        assert first == remedy.arena_bytes <= capacity
        assert training_fields(json.loads(DOCUMENT), remedy.choices).keys() == remedy.graph_fields.keys()


def test_what_changes_the_training_is_off_and_comes_last() -> None:
    assert all(remedy.changes is not Changes.TRAINING for remedy in verdict(16_600_000).remedies)
    changes = [remedy.changes is Changes.TRAINING for remedy in verdict(20_500_000, training=True).remedies]
    assert changes == sorted(changes)
    assert any(changes)


def test_16_bit_storage_changes_what_is_learned() -> None:
    found = {remedy.names: remedy for remedy in verdict(20_500_000, training=True).remedies}
    remedy = found["activations in bfloat16",]
    assert remedy.changes is Changes.TRAINING
    assert dict(remedy.options) == {"capacity": 20_500_000, "storage": "bfloat16"}
    assert "rounded" in remedy.note
    again = verdict(19_500_000, training=True, measures=called("storage"), storage="float16")
    assert not any("activations in bfloat16" in r.names for r in again.remedies)


def test_paging_is_offered_with_its_time() -> None:
    found = {remedy.names: remedy for remedy in verdict(12_000_000).remedies}
    remedy = found["paging",]
    assert remedy.changes is Changes.NOTHING
    assert remedy.extra > 0
    requested = load_options(remedy.options)
    assert requested.options.capacity is None
    assert requested.options.tiers[0].bytes == 12_000_000
    made = plan_requested(load_graph(DOCUMENT), requested)
    moved, again = paging(made), recomputation(made)
    assert moved is not None
    assert again is not None
    assert remedy.extra == moved.time - moved.compute + again.extra
    assert "MB/s" in remedy.note
    assert load_verdict(dump_verdict(verdict(12_000_000))) == verdict(12_000_000)


def test_measures_whose_steps_the_costs_do_not_name_are_left_out() -> None:
    graph = load_graph(DOCUMENT)
    costs = modelled_costs(graph, PlanOptions())
    found = verdict(20_500_000, training=True, costs=costs)
    assert found.remedies
    for remedy in found.remedies:
        assert not {"rewrite", "activations in bfloat16"} & set(remedy.names)
        assert "micro-batches" not in " ".join(remedy.names)


def test_remedies_are_whole_requests() -> None:
    """Each has all requested options but the deadline; options that a remedy drops are taken back."""
    graph = tower()
    costs = modelled_costs(graph, PlanOptions())
    peak = plan_requested(graph, asked(None, parallelism=3, alignment=128)).arena_bytes
    request = asked(peak - 8192, parallelism=3, alignment=128, costs=costs, deadline_seconds=600.0)
    found = explain(graph, request)
    assert found.remedies
    assert load_verdict(dump_verdict(found)) == found
    for remedy in found.remedies:
        requested = load_options(remedy.options)
        over = load_options({**json.loads(dump_options(request)), **remedy.options})
        assert over.having(deadline_seconds=None) == requested
        options = requested.options
        assert (options.alignment, options.costs, options.deadline_seconds) == (128, costs, None)
        assert options.parallelism == (1 if "one step at a time" in remedy.names else 3)
        trained = load_graph(json.loads(dump_graph(graph)) | dict(remedy.graph_fields))
        made = plan_requested(trained, requested)
        assert (made.sizes[0] if options.tiers else made.arena_bytes) == remedy.arena_bytes


def test_measures_chosen_by_hand_are_given_up() -> None:
    """What costs nothing is the first remedy of a program that is to be planned as it is written."""
    graph = tower()
    written = plan(graph).arena_bytes
    capacity = plan_requested(graph).arena_bytes
    assert capacity < written
    found = explain(graph, RequestedOptions(PlanOptions(capacity=capacity), automatic=False))
    remedy = found.remedies[0]
    assert (remedy.names, remedy.changes, remedy.extra) == (
        ("measures that cost nothing",), Changes.NOTHING, 0,
    )  # fmt: skip
    assert dict(remedy.options) == {"capacity": capacity}
    assert found.peak > capacity


def test_other_rules_of_training_stay_in_a_remedy() -> None:
    document = json.loads(DOCUMENT) | {"training": {"clip_global_norm": 1.0}}
    requested = asked(16_500_000)
    batches = batches_of(document, requested.options)
    found = explain(load_graph(document), requested, batches=batches, measures=MICRO_BATCHES)
    (split,) = [remedy for remedy in found.remedies if "micro_batches" in remedy.choices]
    assert split.graph_fields["training"] == {"accumulate": 2, "clip_global_norm": 1.0}


def test_no_remedy_has_a_part_that_is_enough() -> None:
    names = [set(remedy.names) for remedy in verdict(20_500_000, training=True).remedies]
    quick = [each for each in names if "recompute" not in each]
    assert len(quick) > 2
    assert not any(a < b for a in quick for b in quick)


def test_a_remedy_trains_to_the_same_bits() -> None:
    graph = tower()
    peak = plan_requested(graph).arena_bytes
    low = brief(graph, free_measures(graph, asked(None))).floor
    found = explain(graph, asked((peak + low) // 2))
    kept = [remedy for remedy in found.remedies if remedy.changes is Changes.NOTHING]
    assert kept
    for remedy in kept:
        made = plan_requested(graph, load_options(remedy.options))
        assert validate(graph, made, steps=2).identical


def test_fewest_layers_are_given_up() -> None:
    (trained,) = verdict(14_700_000, training=True, measures=called("trained layers")).remedies
    assert trained.names == ("train the last 4 of 6 layers",)
    assert trained.choices == {"trainable": "last:4"}


def test_the_smallest_number_of_micro_batches() -> None:
    (split,) = verdict(16_500_000, training=True, measures=MICRO_BATCHES).remedies
    assert split.names == ("2 micro-batches of 16",)
    assert split.options == {"capacity": 16_500_000, "batch": 16}
    assert split.choices == {"micro_batches": 2}
    assert split.graph_fields == {"training": {"accumulate": 2}}
    assert split.extra > 0


def test_micro_batches_say_that_normalisation_sees_less_only_where_there_is_some() -> None:
    (measure,) = MICRO_BATCHES
    for mode, words in ((1, "normalisation over a batch sees the smaller one"), (0, "")):
        batches = Batches(4, partial(batch_normalised, mode=mode))
        request = Request(batches.at(4), asked(9), batches)
        assert {setting.apply(request).note for setting in measure.settings(request)} == {words}


def test_an_inference_is_offered_nothing_of_training() -> None:
    """A smaller batch makes it fit; nothing is updated, or waits for derivatives."""
    document = json.loads(DOCUMENT)
    del document["loss"], document["optimizer"]
    requested = asked(9_000_000)
    batches = batches_of(document, requested.options)
    found = explain(load_graph(document), requested, training=True, batches=batches)
    assert {name for remedy in found.remedies for name in remedy.choices} == set()
    assert any("batch" in remedy.options for remedy in found.remedies)
    tried = {name for attempt in found.attempts for name in attempt.names}
    assert tried.isdisjoint({"activations in bfloat16", "SGD without momentum"})
    assert not any("micro" in name or "train" in name for name in tried)


def test_micro_batches_of_micro_batches_multiply() -> None:
    document = json.loads(DOCUMENT) | {"training": {"accumulate": 2}}
    requested = asked(16_500_000)
    batches = batches_of(document, requested.options)
    found = explain(load_graph(document), requested, batches=batches, measures=MICRO_BATCHES)
    (split,) = [remedy for remedy in found.remedies if "micro_batches" in remedy.choices]
    assert split.graph_fields["training"] == {"accumulate": 4}
    assert split.choices == {"micro_batches": 4}


def test_the_largest_batch_that_fits() -> None:
    found = verdict(8_000_000, training=True)
    of_batch = [one for one in found.remedies if not one.choices and "batch" in one.options]
    (alone,) = [one for one in of_batch if len(one.names) == 1]
    (beside,) = [one for one in of_batch if len(one.names) > 1]
    assert (alone.names, alone.changes) == (("a batch of 1",), Changes.TRAINING)
    # Other measures let the batch stay larger.
    larger_batch = load_options(beside.options).options.batch
    assert beside.names[0] == f"a batch of {larger_batch}"
    assert larger_batch is not None
    assert larger_batch > 1
    (smaller,) = verdict(19_000_000, training=True, measures=called("batch")).remedies
    batch = smaller.options["batch"]
    assert isinstance(batch, int)
    for size, fits in ((batch, True), (batch + 1, False)):
        graph = load_graph(DOCUMENT, batch=size)
        assert (plan_requested(graph, asked(None, batch=size)).arena_bytes <= 19_000_000) is fits
    assert smaller.extra > 0  # of as many examples as before


def test_a_smaller_batch_is_riskier_than_micro_batches() -> None:
    names = [" + ".join(remedy.names) for remedy in verdict(20_500_000, training=True).remedies]
    ranks = [
        next(k for k, name in enumerate(names) if words in name) for words in ("micro", "a batch", "SGD")
    ]
    assert ranks == sorted(ranks)


def test_measures_are_tried_together_where_one_is_not_enough() -> None:
    found = verdict(5_000_000, training=True)
    assert found.remedies
    for remedy in found.remedies:
        assert len(remedy.names) > 1
        document = json.loads(DOCUMENT) | dict(remedy.graph_fields)
        requested = load_options(remedy.options)
        made = plan_requested(load_graph(document, batch=requested.options.batch), requested)
        assert made.arena_bytes == remedy.arena_bytes <= 5_000_000


def test_without_a_remedy_each_attempt_says_how_near_it_came() -> None:
    found = verdict(2_000_000, training=True)
    assert found.remedies == ()
    sizes = [attempt.arena_bytes for attempt in found.attempts]
    assert sizes == sorted(sizes)
    assert min(sizes) > 2_000_000
    by_names = {attempt.names: attempt for attempt in found.attempts}
    smallest = by_names["a batch of 1",]
    graph = load_graph(DOCUMENT, batch=1)
    assert smallest.arena_bytes == plan_requested(graph, asked(None, batch=1)).arena_bytes
    assert smallest.proved
    assert by_names["recompute",].arena_bytes == FLOOR
    assert load_verdict(dump_verdict(found)) == found
    assert found.attempts == load_verdict(dump_verdict(found)).attempts
    assert verdict(16_600_000).attempts == verdict(PEAK).attempts == ()


def test_a_model_at_other_batches() -> None:
    """The option or the dimension that the user has given is the one that changes."""

    def read(batch: int | None, choices: Mapping[str, Any]) -> TrainableGraph:
        sizes = dict(text.split("=") for text in choices.get("dim", ()))
        s = Sketch("model")
        x = s.input("x", batch or int(sizes["n"]), int(sizes.get("wide", 16)))
        h = s.op("Gemm", [x, s.parameter("w", int(sizes.get("wide", 16)), 4)], "h", "fc")
        s.op("ReduceMean", [h], "loss", "mean", keepdims=0)
        return s.graph()

    for choices, words in (
        ({}, {"batch": 3}),
        ({"dim": ["wide=8", "n=9"]}, {"dim": ("wide=8", "n=3")}),
    ):
        batch = None if choices else 9
        batches = batches_of_model(read(batch, choices), choices, read)
        assert batches is not None
        assert batches.size == 9
        assert batches.words(3) == words
        assert batches.at(3).operands["x"].shape == (3, 8 if choices else 16)


def test_a_model_whose_batch_is_fixed() -> None:
    batches = batches_of_model(tower(), {}, lambda _batch, _choices: tower())
    assert batches is not None
    with pytest.raises(BatchError, match="'tower' has one batch only"):
        batches.at(4)
    found = explain(tower(), asked(40_000), batches=batches)
    assert not any("batch" in " ".join(remedy.names) for remedy in found.remedies)
    assert batches_of_model(single(), {}, lambda _batch, _choices: single()) is None


def single() -> TrainableGraph:
    """A graph of one example."""
    s = Sketch("single")
    y = s.op("Gemm", [s.input("x", 1, 4), s.parameter("w", 4, 4)], "y", "fc")
    s.op("ReduceMean", [y], "loss", "mean", keepdims=0)
    return s.graph()


def test_a_graph_with_one_batch_has_no_micro_batches() -> None:
    assert batches_of({"operands": [{"name": "x", "shape": [4, 2]}], "batch": 4}, PlanOptions()) is None
    assert batches_of({"operands": [{"name": "x", "shape": ["batch", 2]}]}, PlanOptions()) is None


def test_steps_one_at_a_time_where_several_were_asked_for() -> None:
    """As written, steps side by side need more; with the measures that cost no time they fit, too."""
    options = PlanOptions(capacity=PEAK, parallelism=2)
    found = explain(load_graph(DOCUMENT), RequestedOptions(options, automatic=False), training=False)
    assert ("one step at a time",) in [remedy.names for remedy in found.remedies]
    assert verdict(PEAK, parallelism=2).fits_as_it_is


def test_a_measure_of_another_kind_is_a_row() -> None:
    def settings(_request: Request) -> tuple[Setting, ...]:
        return (Setting("updates at once", lambda request: request.choosing(update="immediate")),)

    graph = load_graph(DOCUMENT)
    capacity = plan_requested(graph).arena_bytes
    found = explain(
        graph,
        asked(capacity, update="end"),
        measures=(*MEASURES, Measure("updates", Changes.NOTHING, settings)),
    )
    assert any("updates at once" in remedy.names for remedy in found.remedies)


def test_costs_are_those_of_an_update() -> None:
    usual = explain(tower(2), asked(1))
    twice = explain(tower(2, training=TrainingRules(accumulate=2)), asked(1))
    assert usual.update_nanoseconds < twice.update_nanoseconds < 2.5 * usual.update_nanoseconds


def test_the_same_arguments_give_the_same_verdict() -> None:
    assert verdict.__wrapped__(20_500_000, training=True) == verdict(20_500_000, training=True)


def test_what_is_tried_is_told() -> None:
    seen: list[tuple[str, ...]] = []
    explain(tower(2), asked(1), observe=seen.append)
    assert {("rewrite",), ("recompute",), ("train the last 1 of 2 layers",)} <= set(seen)


def test_time_that_has_run_out() -> None:
    found = verdict(16_600_000, training=True, deadline_seconds=0.0)
    assert found.status is VerdictStatus.IMPOSSIBLE
    assert not found.complete


# --------------------------------------------------------------------------------------- what is refused


def test_without_a_capacity_there_is_nothing_to_explain() -> None:
    with pytest.raises(OptionsError, match="which capacity") as caught:
        explain(tower(), asked(None))
    assert caught.value.path == ("capacity",)


def test_a_target_that_cannot_recompute() -> None:
    with pytest.raises(OptionsError, match="runs each step once"):
        explain(tower(), asked(1, target="onert"))


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


@pytest.mark.parametrize(
    ("capacity", "training"), [(PEAK, False), (PEAK - 1, False), (17_100_000, False), (8_000_000, True)]
)
def test_nothing_is_lost_in_a_document(capacity: int, training: bool) -> None:
    found = verdict(capacity, training=training)
    assert load_verdict(dump_verdict(found)) == found


def test_a_document_with_an_unknown_status_is_refused() -> None:
    text = dump_verdict(verdict(PEAK)).decode().replace('"status":"plan"', '"status":"perhaps"')
    with pytest.raises(DocumentError) as caught:
        load_verdict(text.encode())
    assert caught.value.pointer == "/status"


def test_frozen_weights_in_fewer_bits_are_proposed() -> None:
    """Nothing else makes room for a frozen matrix; each combination stands once."""
    s = Sketch("adapter")
    h = s.op("MatMul", [s.input("x", 8, 64), s.parameter("base", 64, 4096)], "h", "wide")
    y = s.op("MatMul", [h, s.parameter("narrow", 4096, 8)], "y", "last")
    s.op("MeanSquaredError", [y, s.label("t", 8, 8)], "loss", "mse")
    graph = s.graph(trainable=("narrow",))
    usual = plan_requested(graph, asked(None)).arena_bytes
    found = explain(graph, asked(usual - 64 * 4096))
    assert found.status is not VerdictStatus.PLAN
    names = [frozenset(remedy.names) for remedy in found.remedies]
    assert any("frozen weights in int8" in each for each in names)
    assert len(names) == len(set(names))


# ------------------------ No verdict says of a capacity that nothing fits where a plan with less scratch does


def convolution(side: int, channels: int) -> TrainableGraph:
    """One convolution, whose derivative has more scratch than anything else has bytes."""
    s = Sketch("convolution")
    x, w = s.input("x", 1, side, side, channels), s.parameter("w", channels, 3, 3, channels)
    y = s.op("Conv", [x, w], "y", "conv", auto_pad="SAME_UPPER", data_layout="NHWC")
    s.op("MeanSquaredError", [y, s.label("t", 1, side, side, channels)], "loss")
    return with_symbolic_batch(s.graph(), 1)


@pytest.mark.parametrize(("side", "channels"), [(4, 4), (6, 2), (3, 7)])
def test_what_fits_with_little_scratch_is_not_said_not_to_fit(side: int, channels: int) -> None:
    graph = convolution(side, channels)
    small = RequestedOptions(PlanOptions(scratch_budget=256))
    capacity = plan_requested(graph, small).arena_bytes
    requested = RequestedOptions(PlanOptions(capacity=capacity))
    with pytest.raises(CapacityError):
        plan_requested(graph, requested)

    choice = choose_trainable(graph, requested)
    assert choice.trainable == ("w",)
    most = largest(graph, requested, "batch", training=False)
    assert most.size >= 1
    for found in (choice.plan, most.plan):
        assert found is not None
        at, budget = graph.at(batch=most.size if found is most.plan else 1), found.options.scratch_budget
        again = plan_requested(at, requested.having(scratch_budget=budget))
        assert again.arena_bytes == found.arena_bytes <= capacity
        with pytest.raises(CapacityError):
            plan_requested(at, requested.having(scratch_budget=2 * budget))

    verdict = explain(graph, requested, training=False)
    assert verdict.status is VerdictStatus.IMPOSSIBLE
    assert verdict.floor > capacity
    assert any("scratch_budget" in remedy.options for remedy in verdict.remedies)
    assert all(remedy.arena_bytes <= capacity for remedy in verdict.remedies)
