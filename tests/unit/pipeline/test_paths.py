"""The whole path: what `plan` promises for any graph and any options."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.documents import dump_plan, load_graph
from solver.errors import CapacityError, OptionsError
from solver.executor import validate
from solver.layout import Outcome, Progress, Status
from solver.pipeline import TARGETS, plan
from solver.plan import PlanOptions
from solver.program import Tier
from solver.reports.records import paging, recomputation
from solver.schedules import SearchProgress
from tests.support.graphs import chain, convolutional, residual
from tests.support.proofs import violations
from tests.support.rewritable import mobile_block

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("name", "most"), [("mnist", 26_000_000), ("mobilenet_v2", 410_000_000)], ids=["mnist", "mobilenet_v2"]
)
def test_the_example_models_are_proved_minimal_and_below_their_promise(name: str, most: int) -> None:
    graph = load_graph((ROOT / f"examples/{name}.json").read_bytes())
    made = plan(graph)
    (arena,) = made.arenas
    assert arena.certificate.status is Status.OPTIMAL
    assert arena.size == arena.certificate.lower_bound <= most
    assert made.deterministic
    assert violations(graph, made) == ()


def test_the_same_input_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "import sys; from solver.documents import *; from solver.pipeline import plan;"
        "sys.stdout.buffer.write(dump_plan(plan(load_graph(open(sys.argv[1],'rb').read()))))"
    )
    path = ROOT / "examples/mnist.json"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout == dump_plan(plan(load_graph(path.read_bytes())))


def test_every_stage_is_observed_in_order() -> None:
    seen: list[str] = []
    plan(chain(), observe=lambda stage, seconds: seen.append(stage) if seconds >= 0 else None)
    assert seen == ["prepare", "derive", "passes", "layout", "prove", "digest"]


def test_a_plan_is_followed() -> None:
    """Stages as they begin, and within the layout what is better than before."""
    stages: list[str] = []
    peaks: list[int] = []
    bounds: list[int] = []

    def follow(stage: str, found: Progress | SearchProgress | None) -> None:
        if found is None:
            stages.append(stage)
        else:
            assert stage == stages[-1] == "layout"
            assert isinstance(found, Progress)
            peaks.append(found.incumbent)
            bounds.append(found.bound)

    made = plan(chain(), follow=follow)
    assert stages == ["prepare", "derive", "passes", "layout", "prove", "digest"]
    assert made == plan(chain())
    assert peaks == sorted(peaks, reverse=True)
    assert (peaks[-1], bounds[-1]) == (made.arena_bytes, made.lower_bound)


SEVEN = chain((16,) * 7, batch=64)
TIERS = (Tier("fast", 30_000), Tier("slow", 2**20, 10**9, 10**9))


@pytest.mark.parametrize(
    ("options", "searches"),
    [
        (PlanOptions(recompute=True, capacity=33_000), ["recompute"]),
        (PlanOptions(recompute=True, capacity=33_000, order=True), ["search_order", "recompute"]),
        (PlanOptions(recompute=True, capacity=10**6), []),
        (PlanOptions(tiers=TIERS), ["paging"]),
    ],
)
def test_searches_for_schedules_are_told(options: PlanOptions, searches: list[str]) -> None:
    stages: list[str] = []
    told: list[tuple[str, SearchProgress]] = []

    def follow(stage: str, found: Progress | SearchProgress | None) -> None:
        if found is None:
            stages.append(stage)
        elif isinstance(found, SearchProgress):
            assert stage == stages[-1]
            told.append((stage, found))

    made = plan(SEVEN, options, follow=follow)
    assert stages == ["prepare", "derive", "passes", *searches, "layout", "prove", "digest"]
    assert list(dict.fromkeys(stage for stage, _ in told)) == searches
    assert made == plan(SEVEN, options)
    again, moved = recomputation(made), paging(made)
    if again is not None:
        last = told[-1][1]
        figures = (last.peak_bytes, last.extra_nanoseconds, last.step_nanoseconds)
        assert figures == (made.arena_bytes, again.extra, again.step)
        assert last.bound_nanoseconds is not None
        assert 0 < last.bound_nanoseconds <= again.bound
    if moved is not None:
        assert told[-1][1].moved_bytes == moved.moved


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (PlanOptions(target="tpu"), ("target",)),
        (PlanOptions(solver="magic"), ("solver",)),
        (PlanOptions(update="later"), ("update",)),
        (PlanOptions(alignment=48), ("alignment",)),
        (PlanOptions(alignment=0), ("alignment",)),
        (PlanOptions(alignment=2**21), ("alignment",)),
        (PlanOptions(capacity=-1), ("capacity",)),
        (PlanOptions(deadline_seconds=-0.5), ("deadline_seconds",)),
        (PlanOptions(scratch_budget=0), ("scratch_budget",)),
        (PlanOptions(parallelism=0), ("parallelism",)),
        (PlanOptions(parallelism=65), ("parallelism",)),
        *((PlanOptions(target=t, parallelism=2), ("parallelism",)) for t in ("onert", "nntrainer", "singa")),
        *((PlanOptions(target=t, rewrite=True), ("rewrite",)) for t in ("onert", "nntrainer", "singa")),
        *((PlanOptions(target=t, in_place=True), ("in_place",)) for t in ("onert", "nntrainer")),
        *((PlanOptions(target=t, update="end"), ("update",)) for t in ("onert", "nntrainer", "singa")),
        *((PlanOptions(target=t, sub_ranges=True), ("sub_ranges",)) for t in ("onert", "nntrainer")),
        (PlanOptions(target="singa", in_place=True, sub_ranges=True), ("sub_ranges",)),
        *(
            (PlanOptions(target=t, recompute=True, capacity=2**20), ("recompute",))
            for t in ("onert", "nntrainer", "singa", "singa-relu")
        ),
    ],
)
def test_options_out_of_range_are_named(options: PlanOptions, path: tuple[str, ...]) -> None:
    with pytest.raises(OptionsError) as caught:
        plan(chain(), options)
    assert caught.value.path == path
    assert caught.value.remedy


class TestCapacity:
    """A plan fits the capacity, or the error says by how much it does not and why."""

    def test_fewer_steps_at_the_same_time_may_fit(self) -> None:
        least = plan(residual()).arena_bytes
        with pytest.raises(CapacityError, match="run fewer steps at the same time"):
            plan(residual(), PlanOptions(capacity=least, parallelism=2))
        with pytest.raises(CapacityError) as caught:
            plan(residual(), PlanOptions(capacity=least - 1))
        assert "at the same time" not in caught.value.remedy

    def test_exactly_enough_is_enough(self) -> None:
        size = plan(residual()).arena_bytes
        assert plan(residual(), PlanOptions(capacity=size)).arena_bytes == size

    def test_below_the_bound_is_refused_with_the_operands_live_at_the_peak(self) -> None:
        made = plan(residual())
        with pytest.raises(CapacityError) as caught:
            plan(residual(), PlanOptions(capacity=made.lower_bound - 1))
        error = caught.value
        assert (error.required, error.available, error.excess) == (made.lower_bound, made.lower_bound - 1, 1)
        assert sum(size for _, size in error.live_at_peak) == made.lower_bound
        assert list(error.live_at_peak) == sorted(error.live_at_peak, key=lambda item: (-item[1], item[0]))

    def test_a_weak_solver_that_does_not_fit_claims_no_impossibility(self) -> None:
        made = plan(residual())
        with pytest.raises(CapacityError) as caught:
            plan(residual(), PlanOptions(capacity=made.arena_bytes, solver="bump"))
        assert caught.value.required > made.arena_bytes
        assert "as far as the solver could find" in caught.value.message

    def test_the_capacity_bounds_the_sum_of_all_pools(self) -> None:
        graph = load_graph((ROOT / "examples/mnist.json").read_bytes())
        made = plan(graph, PlanOptions(target="onert"))
        assert len(made.arenas) == 7
        assert (
            plan(graph, PlanOptions(target="onert", capacity=made.arena_bytes)).arena_bytes
            == made.arena_bytes
        )
        with pytest.raises(CapacityError):
            plan(graph, PlanOptions(target="onert", capacity=made.arena_bytes - 1))

    def test_a_capacity_below_what_the_other_pools_need(self) -> None:
        graph = load_graph((ROOT / "examples/mnist.json").read_bytes())
        with pytest.raises(CapacityError) as caught:
            plan(graph, PlanOptions(target="onert", capacity=1))
        assert caught.value.required == plan(graph, PlanOptions(target="onert")).lower_bound


@pytest.mark.parametrize(
    ("in_time", "message", "path"),
    [(True, "found no layout", "solver"), (False, "Time ran out", "deadline_seconds")],
)
@pytest.mark.parametrize("capacity", [None, 10**9])
def test_a_solver_without_an_answer_is_no_question_of_capacity(
    monkeypatch: pytest.MonkeyPatch, capacity: int | None, in_time: bool, message: str, path: str
) -> None:
    nothing = Outcome(Status.UNKNOWN, None, 10, 2, None, "skyline", 0.0, in_time)
    monkeypatch.setattr("solver.pipeline.layout.solve", lambda *_args, **_more: nothing)
    with pytest.raises(OptionsError, match=message) as caught:
        plan(chain(), PlanOptions(solver="skyline", capacity=capacity))
    assert caught.value.path == (path,)
    assert caught.value.remedy


def test_a_deadline_that_has_passed_still_gives_a_valid_plan() -> None:
    made = plan(convolutional(), PlanOptions(deadline_seconds=0.0))
    assert violations(convolutional(), made) == ()
    assert made.arenas[0].certificate.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert validate(convolutional(), made, steps=1).identical


@pytest.mark.parametrize("alignment", [1, 16, 256, 4096])
def test_any_alignment_trains_the_same(alignment: int) -> None:
    made = plan(convolutional(), PlanOptions(alignment=alignment))
    assert all(b.offset % alignment == 0 for _, b in made.buffers())
    if alignment >= 16:
        assert validate(convolutional(), made, steps=2).identical


@pytest.mark.parametrize("target", TARGETS)
def test_plans_round_trip(target: str) -> None:
    graph = load_graph((ROOT / "examples/mnist.json").read_bytes())
    text = dump_plan(plan(graph, PlanOptions(target=target)))
    assert json.loads(text)["digest"]


@settings(max_examples=15, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    batch=st.integers(1, 5),
    last=st.integers(0, 4),
    update=st.sampled_from(["immediate", "end"]),
    budget=st.sampled_from([1, 512, 1 << 20]),
)
def test_random_chains_train_bit_identically(
    widths: list[int], batch: int, last: int, update: str, budget: int
) -> None:
    graph = chain(widths, batch, trainable=last, optimizer="Adam")
    made = plan(graph, PlanOptions(update=update, scratch_budget=budget))
    assert made.arena_bytes >= made.lower_bound
    assert validate(graph, made, steps=2).identical


def test_training_less_needs_no_more() -> None:
    sizes = [plan(chain((9, 9, 9, 9), trainable=n, optimizer="Adam")).arena_bytes for n in (0, 1, 2, 3)]
    assert sizes == sorted(sizes)


def test_rewriting_is_a_preparation_and_judged_under_the_same_options() -> None:
    seen: list[str] = []
    graph = mobile_block(stride=2, trained=True)
    options = PlanOptions(update="end", scratch_budget=4096, alignment=256, rewrite=True)
    made = plan(graph, options, observe=lambda stage, _: seen.append(stage))
    assert seen == ["prepare", "derive", "passes", "layout", "prove", "digest"]
    first, last = made.replacements[0], made.replacements[-1]
    assert first.bytes_before == plan(graph, replace(options, rewrite=False)).lower_bound
    assert last.bytes_after == made.lower_bound <= first.bytes_before
    assert dump_plan(made) == dump_plan(plan(graph, options))
    assert made.graph_digest == plan(graph).graph_digest


def test_a_deadline_that_has_passed_leaves_the_graph_as_it_is() -> None:
    graph = mobile_block(stride=2, trained=True)
    made = plan(graph, PlanOptions(deadline_seconds=0.0, rewrite=True))
    assert made.replacements == ()
    assert not made.deterministic
    assert validate(graph, made, steps=1).identical


def test_nothing_to_rewrite_gives_the_same_arena() -> None:
    graph = chain((6, 4))
    made, plain = plan(graph, PlanOptions(rewrite=True)), plan(graph)
    assert made.replacements == ()
    assert (made.steps, made.arenas) == (plain.steps, plain.arenas)


def test_options_are_kept_in_the_plan() -> None:
    options = PlanOptions(alignment=128, update="end", scratch_budget=4096)
    assert plan(chain(), options).options == replace(
        PlanOptions(), alignment=128, update="end", scratch_budget=4096
    )
