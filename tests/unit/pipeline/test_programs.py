"""Tests the promises of `plan_program` that it does not share with `plan`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.documents import dump_plan, load_plan, program_digest
from solver.errors import CapacityError, DimensionError, InternalError, OptionsError, ProblemError
from solver.layout import Layout, LayoutProblem, Outcome, Proof, Status
from solver.pipeline import plan, plan_program
from solver.plan import PlanOptions
from solver.training import BlockOperation, BlockView, build_program
from tests.support.graphs import chain
from tests.support.programs import AUTO_RECYCLE, block, program
from tests.support.proofs import violations

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


def test_stages() -> None:
    seen: list[str] = []
    plan_program(SMALL, observe=lambda stage, _: seen.append(stage))
    assert seen == ["derive", "passes", "layout", "prove", "digest"]


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
def test_options_out_of_range_are_named(options: PlanOptions, path: tuple[str, ...]) -> None:
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
