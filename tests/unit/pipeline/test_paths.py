"""The whole path: what `plan` promises for any graph and any options."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from arenaplan.builder import Tape, adam, layers, ops
from solver.documents import dump_plan, load_graph, load_plan, program_digest
from solver.errors import CapacityError, DimensionError, InternalError, OptionsError, ProblemError
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.layout import Layout, LayoutProblem, Outcome, Progress, Proof, Status
from solver.passes.recompute import read_only_bytes
from solver.pipeline import plan, plan_program, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import Tier
from solver.reports.records import paging, recomputation
from solver.schedules import SearchProgress
from solver.training import BlockOperation, BlockView, build_program
from tests.support.graphs import chain, convolutional, residual
from tests.support.programs import AUTO_RECYCLE, block, program
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
    ("options", "searches", "behind"),
    [
        (PlanOptions(recompute=True, capacity=33_000), ["recompute"], []),
        # The order as written comes before orders that are searched for.
        (PlanOptions(recompute=True, capacity=33_000, order=True), ["recompute"], ["search_order"]),
        (PlanOptions(recompute=True, capacity=10**6), [], []),
        (PlanOptions(tiers=TIERS), ["paging"], []),
    ],
)
def test_searches_for_schedules_are_told(
    options: PlanOptions, searches: list[str], behind: list[str]
) -> None:
    stages: list[str] = []
    told: list[tuple[str, SearchProgress]] = []

    def follow(stage: str, found: Progress | SearchProgress | None) -> None:
        if found is None:
            stages.append(stage)
        elif isinstance(found, SearchProgress):
            assert stage == stages[-1]
            told.append((stage, found))

    made = plan(SEVEN, options, follow=follow)
    assert stages == ["prepare", "derive", "passes", *searches, "layout", *behind, "prove", "digest"]
    assert list(dict.fromkeys(stage for stage, _ in told)) == searches + behind
    assert made == plan(SEVEN, options)
    again, moved = recomputation(made), paging(made)
    if again is not None:
        last = next(progress for stage, progress in reversed(told) if stage == "recompute")
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


# ------------------------------------ Tests the promises of `plan_program` that it does not share with `plan`


SMALL = program(AUTO_RECYCLE)


def test_the_plan_names_the_program_and_its_target() -> None:
    made = plan_program(SMALL)
    assert (made.graph, made.graph_digest) == ("test", program_digest(SMALL))
    assert made.options == PlanOptions(target="program")
    assert made == plan_program(SMALL, PlanOptions(target="program"))
    assert [step.uses for step in made.steps] == [o.reads for o in SMALL.operations]
    assert [step.defs for step in made.steps] == [o.writes for o in SMALL.operations]


def test_the_plan_document_holds_it_all() -> None:
    made = plan_program(SMALL)
    assert load_plan(dump_plan(made)) == made
    assert dump_plan(plan_program(SMALL)) == dump_plan(made)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (PlanOptions(target="onert"), ("target",)),
        (PlanOptions(solver="magic"), ("solver",)),
        (PlanOptions(alignment=48), ("alignment",)),
        (PlanOptions(capacity=-1), ("capacity",)),
        (PlanOptions(batch=4), ("batch",)),
        (PlanOptions(parallelism=0), ("parallelism",)),
        (PlanOptions(order=True), ("order",)),
        (PlanOptions(recompute=True, capacity=2**20), ("recompute",)),
        (PlanOptions(rewrite=True), ("rewrite",)),
        (PlanOptions(chunked_head=True), ("chunked_head",)),
        (PlanOptions(update="end"), ("update",)),
        (PlanOptions(scratch_budget=1), ("scratch_budget",)),
    ],
)
def test_options_of_programs_out_of_range_are_named(options: PlanOptions, path: tuple[str, ...]) -> None:
    with pytest.raises(OptionsError) as caught:
        plan_program(SMALL, options)
    assert caught.value.path == path
    assert caught.value.remedy


def test_graphs_have_no_program_target() -> None:
    with pytest.raises(OptionsError):
        plan(chain(), PlanOptions(target="program"))


class TestLargeBlocks:
    """Sizes are exact where others cast them to 32 bits."""

    def test_beyond_two_gib(self) -> None:
        sizes = {"x": 3 * 2**30, "y": 5_000_000_001, "z": 2**40}
        made = plan_program(program((("x", "y"), ("y", "z"), ("z", "")), sizes=sizes, fed=("x",)))
        (arena,) = made.arenas
        assert arena.size == 2**40 + 5_000_000_001 + 63
        assert arena.certificate.proof is Proof.MAX_LOAD
        assert {b.id: b.nbytes for b in arena.buffers} == sizes
        assert load_plan(dump_plan(made)) == made

    def test_the_largest_size_of_all(self) -> None:
        huge = program((("", "x"), ("x", "")), sizes={"x": 2**60})
        made = plan_program(huge, PlanOptions(alignment=1))
        assert made.arena_bytes == 2**60
        assert violations(huge, made) == ()
        with pytest.raises(ProblemError, match=r"more than 2\*\*60; the largest is 'x'"):
            plan_program(huge)
        with pytest.raises(DimensionError):
            plan_program(program((("", "x"), ("x", "")), sizes={"x": 2**63 - 1}))


def test_capacity() -> None:
    size = plan_program(SMALL).arena_bytes
    assert plan_program(SMALL, PlanOptions(capacity=size)).arena_bytes == size
    with pytest.raises(CapacityError) as caught:
        plan_program(SMALL, PlanOptions(capacity=size - 1))
    assert caught.value.excess == 1
    assert caught.value.remedy == f"Raise the capacity to {size:,}."  # it has no batch


def test_carried_and_kept_blocks_share_nothing() -> None:
    given = program((("w", "a"), ("a", "b"), ("b", "w r")), kept=("r",))
    made = plan_program(given, PlanOptions(alignment=4))
    buffers = {b.id: b for _, b in made.buffers()}
    assert made.arena_bytes == 12
    assert buffers["w"].offset != buffers["r"].offset
    assert violations(given, made) == ()


class TestWhatIsWrongStaysInside:
    """A plan leaves the pipeline with a proof only, whatever pass or solver went wrong."""

    def test_an_order_that_changes_what_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        backwards = iter([[1], [0]])
        monkeypatch.setattr("solver.passes.levels.list_schedule", lambda before, parallelism: backwards)
        with pytest.raises(InternalError, match="The plan breaks rule"):
            plan_program(program((("a", "b"), ("b", "c")), kept=("c",)), PlanOptions(parallelism=2))

    def test_dependent_steps_on_one_level(self, monkeypatch: pytest.MonkeyPatch) -> None:
        together = iter([[0, 1]])
        monkeypatch.setattr("solver.passes.levels.list_schedule", lambda before, parallelism: together)
        with pytest.raises(InternalError, match="rule level: Step 'op1' touches 'b' while Step 'op0' runs"):
            plan_program(program((("a", "b"), ("b", "c"))), PlanOptions(parallelism=2))

    def test_a_layout_in_which_buffers_overlap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def all_at_the_start(problem: LayoutProblem, **more: object) -> Outcome:
            size = max(buffer.size for buffer in problem.buffers)
            layout = Layout((0,) * len(problem.buffers), size)
            return Outcome(Status.FEASIBLE, layout, size, None, None, "wrong", 0.0, True)

        monkeypatch.setattr("solver.pipeline.layout.solve", all_at_the_start)
        with pytest.raises(InternalError, match="The plan breaks rule"):
            plan_program(SMALL)
        with pytest.raises(InternalError, match="The plan breaks rule"):
            plan(chain())


@pytest.mark.parametrize("parts", [True, False])
def test_the_least_bytes_are_said_of_steps_that_may_run_again(parts: bool) -> None:
    """What two operations write is not made again; two blocks in its place are, in fewer bytes."""
    halves = ("h.lo", "h.hi")
    whole = ("h",) if parts else halves
    views = [BlockView("h", offset) if parts else None for offset in (0, 4096)]
    blocks = [
        *(block(name, 640, fed=name == "x", kept=name == "y") for name in "xuvy"),
        *(block(name, 8192) for name in ("p", "q", "h")[: 3 if parts else 2]),
        *(replace(block(name, 4096), view=view) for name, view in zip(halves, views, strict=True)),
    ]
    operations = [
        *(BlockOperation(name, ("x",), (name,), pure=True) for name in halves),
        BlockOperation("use", whole, ("u",), pure=True),
        BlockOperation("f", ("u",), ("p",)),
        BlockOperation("g", ("p",), ("q",)),
        BlockOperation("r", ("q",), ("v",)),
        BlockOperation("late", (*whole, "v"), ("y",)),
    ]
    options = PlanOptions(capacity=18_000, recompute=True)
    made = build_program("parts", blocks, operations)
    if not parts:
        assert plan_program(made, options).arena_bytes <= 18_000
        return
    with pytest.raises(CapacityError, match="where only steps run again that may") as caught:
        plan_program(made, options)
    assert caught.value.required == 24_576
    assert "as h, which several steps write" in caught.value.message


# -------------- Recomputation beside weights that no step writes: paging brings these, wherever they are read


#: Bytes of a frozen layer of 128 features.
WEIGHT = 128 * 128 * 4


def frozen_tower(depth: int = 8, batch: int = 48) -> TrainableGraph:
    """Frozen layers, of which the bias is trained: all activations wait for the backward pass."""
    tape = Tape("tower", batch=batch)
    x, target = tape.input("x", 128), tape.label("target", 128)
    for k in range(depth):
        x = tape.apply("Tanh", layers.dense(x, 128, name=f"layer{k}"))
    biases = [f"layer{k}.bias" for k in range(depth)]
    return tape.minimise(ops.mean_squared_error(x, target), adam(0.01), trainable=biases).graph


def in_tiers(graph: TrainableGraph, most: int, write: int = 1_000_000, *, in_place: bool = False) -> Plan:
    tiers = (Tier("ram", most), Tier("flash", 10**9, read=10**9, write=write))
    return plan(graph, PlanOptions(tiers=tiers, recompute=True, in_place=in_place))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_tier_smaller_than_the_weights(in_place: bool) -> None:
    graph = frozen_tower()
    assert read_only_bytes(reference_of(graph, PlanOptions())) == 8 * WEIGHT
    smaller = in_tiers(graph, 4 * WEIGHT, in_place=in_place)
    moved = paging(smaller)
    assert smaller.sizes[0] <= 4 * WEIGHT
    assert any(smaller.program.runs)
    assert moved is not None
    assert moved.moved_in >= 8 * WEIGHT
    assert moved.moved_out < WEIGHT  # activations are made again, not written
    assert 0 < moved.bound <= moved.moved
    assert 0 < moved.least_time <= moved.time
    assert validate(graph, smaller, steps=2).identical


def test_fast_writes_make_no_plan_slower() -> None:
    slow, fast = (paging(in_tiers(frozen_tower(), 4 * WEIGHT, write)) for write in (1_000_000, 10**12))
    assert slow is not None
    assert fast is not None
    assert fast.time <= slow.time


@pytest.mark.parametrize("write", [1_000_000, 10**12])
def test_large_programs_compare_the_ends_only(monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    graph = frozen_tower()
    every = in_tiers(graph, 4 * WEIGHT, write)
    monkeypatch.setattr("solver.pipeline.scheduling.MANY_STEPS", 10)
    few = in_tiers(graph, 4 * WEIGHT, write)
    assert few.sizes[0] <= 4 * WEIGHT
    assert paging(every).time <= paging(few).time  # type: ignore[union-attr]
