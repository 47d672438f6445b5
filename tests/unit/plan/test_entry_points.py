"""Deployments as reports see them: the facts of each entry point, and all of them as one plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given

from examples.gallery import GALLERY
from solver import pipeline
from solver.errors import OptionsError
from solver.graph import TrainableGraph
from solver.layout import Proof, Status
from solver.plan import (
    Deployment,
    JoinedPlan,
    PlanOptions,
    deployment_notes,
    entry_point_reports,
    one_plan,
    persistent_rows,
    plan_of,
    plans_to_compare,
)
from solver.plan.deployment import Purpose
from solver.program import Tier
from solver.reports.arenas import live_curve, report
from solver.reports.comparison import deployment_difference, difference
from tests.support.entry_points import requested, small_deployment, trained_and_used
from tests.support.graphs import chain
from tests.support.random_graphs import PLANNED, random_graphs

PURPOSES: tuple[Purpose, ...] = ("train", "infer", "evaluate")


@pytest.fixture(scope="module")
def small() -> Deployment:
    return small_deployment()


# ------------------------------------------------------------------------------------ facts


@pytest.mark.parametrize("name", ["lenet5", "autoencoder", "transfer"])
def test_an_entry_point_adds_what_planning_without_it_saves(name: str) -> None:
    """The oracle plans the others alone: all of these arenas are at their bound."""
    graph = GALLERY[name].model().graph
    whole = trained_and_used(graph, *PURPOSES)
    assert whole.gap_bytes == 0
    reports = {row.name: row for row in entry_point_reports(whole)}
    for left_out in PURPOSES:
        others = trained_and_used(graph, *(p for p in PURPOSES if p != left_out))
        assert others.gap_bytes == 0
        assert reports[left_out].added_bytes == whole.arena_bytes - others.arena_bytes


def test_bytes_add_up(small: Deployment) -> None:
    train, infer, evaluate = entry_point_reports(small)
    for row in (train, infer, evaluate):
        assert row.persistent_bytes + row.held_bytes == small.persistent_bytes
        assert small.persistent_bytes + row.transient_bytes == row.arena_bytes
        assert row.arena_bytes == small[row.name].plan.arena_bytes
    assert train.held_bytes == 0
    variables = sum(row.nbytes for row in persistent_rows(small) if "moment" in row.name)
    assert infer.held_bytes == evaluate.held_bytes >= variables > 0
    assert [row.name for row in (train, infer, evaluate) if row.decides] == ["train"]
    assert (train.batch, infer.batch, evaluate.batch) == (6, 1, 2)
    assert (infer.added_bytes, evaluate.added_bytes) == (0, 0)


def test_what_decides_is_said() -> None:
    alike = pipeline.plan_deployment(
        "net", [requested("a", chain((4, 3), 2)), requested("b", chain((4, 3), 2))]
    )
    persistent, decides = deployment_notes(alike)
    assert persistent.startswith("Persistent: 2 values take")
    assert decides.startswith("a and b decide the size of the arena: nothing smaller exists.")
    assert [row.added_bytes for row in entry_point_reports(alike)] == [0, 0]
    alone = trained_and_used(chain((4, 3), 2), "infer")
    assert len([*deployment_notes(alone)]) == 1
    assert entry_point_reports(alone)[0].added_bytes == alone.arena_bytes


def test_what_decides_each_memory_is_said() -> None:
    """A fast memory may be filled by one entry point, and the slow one by another."""
    memories = (Tier("fast", 448, 10**9, 10**9), Tier("slow", 1 << 16, 10**8, 10**8))
    graphs = {"train": chain((8, 6, 4), 6), "infer": chain((8, 6, 4), 2)}
    entries = [
        requested("train", graphs["train"], options=PlanOptions(memories=memories)),
        requested("infer", graphs["infer"], "infer", options=PlanOptions(memories=memories)),
    ]
    deployment = pipeline.plan_deployment("net", entries)
    _, decides = deployment_notes(deployment)
    for k, name in enumerate(("fast", "slow")):
        largest = [e.name for e in deployment.entry_points if e.plan.sizes[k] == deployment.sizes[k]]
        verb = "decides" if len(largest) == 1 else "decide"
        assert f"{' and '.join(largest)} {verb} the size of {name}" in decides


def test_a_gap_is_said(small: Deployment) -> None:
    train = small.entry_points[0]
    certificate = replace(
        train.plan.certificates[0],
        lower_bound=train.plan.arena_bytes - 64,
        status=Status.FEASIBLE,
        proof=None,
    )
    loose = replace(train, plan=replace(train.plan, certificates=(certificate,)))
    deployment = replace(small, entry_points=(loose, *small.entry_points[1:]))
    assert entry_point_reports(deployment)[0].proof is None
    assert entry_point_reports(deployment)[0].gap_bytes == 64
    assert "64 bytes above the lower bound" in [*deployment_notes(deployment)][1]
    (arena,) = JoinedPlan(deployment).arenas
    assert (arena.certificate.status, arena.certificate.proof) == (Status.FEASIBLE, None)


# ------------------------------------------------------------------------------ one plan of all


@PLANNED
@given(random_graphs(most_operations=4))
def test_the_joined_plan_is_a_layout_of_all_runs(graph: TrainableGraph) -> None:
    """No two of its buffers meet, each run has the load of its plan, and persistent values stand once."""
    deployment = trained_and_used(graph, *PURPOSES)
    joined = JoinedPlan(deployment)
    (arena,) = joined.arenas
    for a, b in combinations(arena.buffers, 2):
        apart = a.end <= b.offset or b.end <= a.offset
        assert apart or not any(s.overlaps(t) for s in a.spans for t in b.spans), (a.id, b.id)
    assert max((buffer.end for buffer in arena.buffers), default=0) <= arena.size == deployment.arena_bytes
    loads = live_curve(arena.buffers, joined.duration)
    expected = [
        load
        for entry_point in deployment.entry_points
        for load in live_curve(entry_point.plan.arenas[0].buffers, entry_point.plan.duration)
    ]
    assert list(loads) == expected
    counts = Counter(buffer.id for buffer in arena.buffers)
    assert max(counts.values()) == 1
    assert {row.name for row in deployment.persistent} <= set(counts)
    if arena.certificate.proof is Proof.MAX_LOAD:
        assert arena.certificate.witness_step is not None
        assert loads[arena.certificate.witness_step] == arena.certificate.lower_bound == arena.size


def test_names_lead_to_entry_points(small: Deployment) -> None:
    joined = JoinedPlan(small)
    assert [step.level for step in joined.steps] == sorted(joined.times)
    assert joined.duration == sum(entry_point.plan.duration for entry_point in small.entry_points)
    assert len(joined.level_ids()) == joined.duration
    values = {value.id for _, buffer in joined.buffers() for value in buffer.values}
    for step in joined.steps:
        assert step.id.partition("/")[0] in PURPOSES
        assert {*step.uses, *step.defs, *step.scratch} <= values
    assert joined.options.batch is None
    assert joined.options.target == "reference"
    assert joined.digest == small.digest


def test_a_name_of_a_value_that_is_taken_gets_a_mark() -> None:
    """An entry point that is called as a model is: the joined names stay apart."""
    first, second = chain((4, 3), 2), chain((4, 3), 2)
    entries = [requested("a", first, "train", "a"), requested("b", second, "train", "b")]
    deployment = pipeline.plan_deployment("two", entries)
    row = deployment.persistent[0]
    odd = replace(deployment, persistent=(replace(row, name="b/h1"), *deployment.persistent[1:]))
    joined = JoinedPlan(odd)
    names = [value.id for _, buffer in joined.buffers() for value in buffer.values]
    assert len(names) == len(set(names))


def test_levels_are_levels_if_one_entry_point_has_any() -> None:
    graph = chain((4, 3), 2)
    entries = [requested("a", graph, options=PlanOptions(parallelism=2)), requested("b", graph)]
    deployment = pipeline.plan_deployment("net", entries)
    assert JoinedPlan(deployment).options.parallelism == 2
    assert report(JoinedPlan(deployment)).arenas[0].size == deployment.arena_bytes


# ------------------------------------------------------------------------------- one entry point


def test_one_entry_point_by_name(small: Deployment) -> None:
    assert plan_of(small) is small
    assert plan_of(small, "infer") is small["infer"].plan
    assert one_plan(small, "infer") is small["infer"].plan
    plan = small["train"].plan
    assert plan_of(plan) is one_plan(plan) is plan


def test_refusals_name_the_entry_points(small: Deployment) -> None:
    with pytest.raises(
        OptionsError, match=r"no entry point 'predict'\. Choose from train, infer, evaluate\."
    ):
        plan_of(small, "predict")
    with pytest.raises(
        OptionsError, match=r"3 entry points, and this is for one program\. Add --entry-point train, "
    ):
        one_plan(small)
    with pytest.raises(OptionsError, match=r"it is for one program\. Leave out --entry-point\."):
        plan_of(small["train"].plan, "train")


def test_what_can_be_compared(small: Deployment) -> None:
    train, infer = small["train"].plan, small["infer"].plan
    assert plans_to_compare(train, infer) == (train, infer)
    assert plans_to_compare(small, small) == (small, small)
    assert plans_to_compare(train, small, "infer") == (train, infer)
    assert plans_to_compare(small, small, "train") == (train, train)
    with pytest.raises(
        OptionsError, match=r"entry points train, infer, evaluate\. Add --entry-point train to"
    ):
        plans_to_compare(train, small)
    with pytest.raises(OptionsError, match="The plans have no entry points"):
        plans_to_compare(train, infer, "train")


# ----------------------------------------------------------------------------------- differences


def test_nothing_changed(small: Deployment) -> None:
    change = deployment_difference(small, small)
    assert change.whole.growth == 0
    assert change.moves == ()
    assert all(one.difference and not one.difference.growth for one in change.entry_points)


def test_entry_points_come_and_go(small: Deployment) -> None:
    graph = chain((8, 6, 4), 9, optimizer="Adam")
    entries = [requested("train", graph), requested("predict", graph, "infer")]
    new = pipeline.plan_deployment("net", entries)
    change = deployment_difference(small, new)
    assert change.whole.growth == new.arena_bytes - small.arena_bytes > 0
    rows = {one.name: (one.before, one.after) for one in change.entry_points}
    assert rows == {
        "train": (small["train"].plan.arena_bytes, new["train"].plan.arena_bytes),
        "infer": (small["infer"].plan.arena_bytes, None),
        "evaluate": (small["evaluate"].plan.arena_bytes, None),
        "predict": (None, new["predict"].plan.arena_bytes),
    }
    (trained,) = (one.difference for one in change.entry_points if one.difference is not None)
    assert trained == difference(small["train"].plan, new["train"].plan)
    facts = change.facts()
    assert facts["growth"] == change.whole.growth
    assert [one["name"] for one in facts["entry_points"]] == [*rows]


def test_persistent_values_that_move_come_and_go(small: Deployment) -> None:
    """Another optimizer has no second moments, and a smaller layer moves all that lies above it."""
    graph = chain((8, 3, 4), 6, optimizer="SGD", momentum=0.9)
    new = trained_and_used(graph, "train", "infer")
    change = deployment_difference(small, new)
    places = [{row.name: (row.space, row.offset) for row in persistent_rows(one)} for one in (small, new)]
    assert {move.name: (move.before, move.after) for move in change.moves} == {
        name: (places[0].get(name), places[1].get(name))
        for name in {**places[0], **places[1]}
        if places[0].get(name) != places[1].get(name)
    }
    assert any(move.after is None for move in change.moves)
    assert any(move.before is not None and move.after is not None for move in change.moves)


def test_in_words(small: Deployment) -> None:
    text = repr(small)
    assert text.startswith(f"<Deployment of 'net': {small.arena_bytes:,} bytes, ")
    assert f"\n infer: {small['infer'].plan.arena_bytes:,} bytes, lower bound" in text
    assert text.endswith("proved to be the smallest for these steps>")
    page = small._repr_html_()
    assert page.startswith("<pre>&lt;Deployment of")
    assert page.count("<svg") == 1
