"""Steps at the same time: the bits of one step after the other, in the memory planned for levels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from solver.errors import PlanError
from solver.executor import BlockRunner, BlockViews, Trainer, synthetic_batch, validate
from solver.executor.kernels import Call, kernels_for
from solver.executor.memory import in_spaces
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import DType
from solver.pipeline import plan, plan_program
from solver.plan import PlanOptions
from tests.support.graphs import chain, convolutional, residual
from tests.support.one_operation import allocated
from tests.support.operator_graphs import attention
from tests.support.programs import program
from tests.support.proofs import moved, offset_of, violations


def threads() -> int:
    return sum(thread.name.startswith("arenaplan-level") for thread in threading.enumerate())


def test_the_reference_run_takes_one_step_after_the_other() -> None:
    """The losses are those of a plan without levels, not only those of the same levels elsewhere."""
    graph = attention(DType.FLOAT32, optimizer="RMSProp", centered=True, momentum=0.5)
    losses = {
        tuple(s.loss for s in validate(graph, plan(graph, PlanOptions(parallelism=k)), steps=3).steps)
        for k in (1, 2, 3)
    }
    assert len(losses) == 1


def test_updates_at_the_end_run_side_by_side() -> None:
    graph = residual()
    made = plan(graph, PlanOptions(parallelism=4, update="end"))
    assert validate(graph, made, steps=3).identical
    widths = [made.times.count(t) for t in range(made.duration)]
    assert max(widths) == 4


def test_an_iteration_on_two_threads_allocates_nothing_of_tensor_size() -> None:
    graph = convolutional(batch=128)
    found = plan(graph, PlanOptions(scratch_budget=1 << 14, parallelism=2))
    batches = [synthetic_batch(graph, 0, i) for i in range(3)]
    assert max(b.nbytes for _, b in found.buffers()) > 64 * 1024
    with Trainer(graph, found) as trainer:
        assert allocated(lambda: [trainer.step(batch) for batch in batches]) < 64 * 1024


def test_a_trainer_ends_its_threads_and_can_still_be_read() -> None:
    graph = residual()
    with Trainer(graph, plan(graph, PlanOptions(parallelism=2))) as trainer:
        trainer.step(synthetic_batch(graph, 0, 1))
        assert threads() == 1
    assert threads() == 0
    assert np.isfinite(trainer.read("w1")).all()


def test_an_error_on_a_level_comes_out_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that fails on a worker thread; `validate` ends the threads all the same."""
    graph = residual()
    made = plan(graph, PlanOptions(parallelism=2))
    assert any(a.level == b.level and "Gemm" in (a.kernel, b.kernel) for a, b in pairwise(made.steps))
    kernels = kernels_for("Gemm")

    def broken(call: Call) -> Callable[[], None]:
        run = kernels.backward(call)

        def fail() -> None:
            if threading.current_thread() is not threading.main_thread():
                raise FloatingPointError("a kernel failed")
            run()

        return fail

    monkeypatch.setattr(
        "solver.executor.run.kernels_for",
        lambda name: replace(kernels, backward=broken) if name == "Gemm" else kernels_for(name),
    )
    with pytest.raises(FloatingPointError, match="a kernel failed"):
        validate(graph, made, steps=1)
    assert threads() == 0


def test_poison_comes_at_the_end_of_the_level() -> None:
    graph = chain((6, 6, 6))
    made = plan(graph, PlanOptions(parallelism=2))
    memory = in_spaces(made)
    runner = Runner(made.program, memory, {}, poison=True)
    feed(graph, runner, synthetic_batch(graph, 0, 1))
    runner.run()
    runner.close()
    spans = {b.id: b for _, b in made.buffers()}
    assert spans["h1"].lifespan.end < made.duration
    last = max(b.lifespan.end for b in spans.values() if not b.lifetime.outlives_iteration)
    assert last <= made.duration
    dead = memory.raw(made.program.by_label["h1"])
    later = [b for b in spans.values() if b.lifespan.start >= spans["h1"].lifespan.end]
    meets = any(b.offset < spans["h1"].end and spans["h1"].offset < b.end for b in later)
    assert meets or (dead == 0xFF).all()


def test_a_plan_whose_levels_were_changed_is_named() -> None:
    graph = residual()
    made = plan(graph, PlanOptions(parallelism=2))
    narrow = replace(made, options=replace(made.options, parallelism=1))
    assert {violation.rule for violation in violations(graph, narrow)} == {"level"}
    merged = made.program.reordered(range(len(made.steps)), [0] * len(made.steps))
    wide = replace(made, program=merged, options=replace(made.options, parallelism=64))
    assert {violation.rule for violation in violations(graph, wide)} == {"level"}


def test_a_corrupted_plan_with_levels_is_named_and_differs() -> None:
    graph = residual()
    made = plan(graph, PlanOptions(parallelism=2))
    wrong = moved(made, "h1", offset_of(made, "w1"))
    assert {"h1", "w1"} in [set(v.buffers) for v in validate(graph, wrong).violations]
    assert not validate(graph, wrong, steps=1, run_wrong_plans=True).identical


# --------------------------------------------------------------------------------- explicit programs


def _fill(name: str, value: int) -> Callable[[BlockViews], None]:
    def run(views: BlockViews) -> None:
        views[name][:] = value

    return run


def _use(workspace: str, block: str, meeting: threading.Barrier | None) -> Callable[[BlockViews], None]:
    def run(views: BlockViews) -> None:
        if meeting is not None:
            meeting.wait()
        views[block][:] = views[workspace] + views[block]

    return run


def four_pairs(workspaces: int) -> tuple[list[tuple[str, str]], dict[str, Callable[[BlockViews], None]]]:
    """Pairs that clean a workspace and use it; with one each, all four uses have to meet to go on."""
    meeting = threading.Barrier(4, timeout=30) if workspaces == 4 else None
    touches: list[tuple[str, str]] = []
    functions: dict[str, Callable[[BlockViews], None]] = {}
    for k in range(4):
        workspace = f"ws{k % workspaces}"
        functions[f"op{2 * k}"] = _fill(workspace, k)
        functions[f"op{2 * k + 1}"] = _use(workspace, f"b{k}", meeting)
        touches += [("", workspace), (f"{workspace} b{k}", f"b{k}")]
    return touches, functions


@pytest.mark.parametrize("workspaces", [1, 4])
def test_independent_pairs_on_four_threads(workspaces: int) -> None:
    touches, functions = four_pairs(workspaces)
    made = program(touches, dtype=DType.FLOAT32)
    planned = plan_program(made, PlanOptions(parallelism=4))
    assert planned.duration == (8 if workspaces == 1 else 2)
    runner = BlockRunner(made, planned, functions)
    for k in range(4):
        runner.block(f"b{k}")[:] = 10
    for _ in range(3):
        runner.run()
    runner.close()
    assert [float(runner.block(f"b{k}")[0]) for k in range(4)] == [10 + 3 * k for k in range(4)]
    assert threads() == 0


def test_an_undeclared_read_on_a_worker_thread_is_refused() -> None:
    made = program((("a", "b"), ("c", "d")), dtype=DType.FLOAT32)
    runner = BlockRunner(
        made,
        plan_program(made, PlanOptions(parallelism=2)),
        {"op0": _fill("b", 1), "op1": lambda views: views["a"].sum()},
    )
    with pytest.raises(Exception, match="'op1' touches 'a' without declaring it"):
        runner.run()
    runner.close()


def test_a_plan_with_more_steps_on_a_level_than_it_says_is_refused() -> None:
    made = program((("a", "b"), ("c", "d"), ("b d", "e")), dtype=DType.FLOAT32)
    planned = plan_program(made, PlanOptions(parallelism=2))
    functions = {f"op{t}": _fill("e", 0) for t in range(3)}
    with pytest.raises(PlanError, match="may run at the same time"):
        BlockRunner(made, replace(planned, options=replace(planned.options, parallelism=1)), functions)
