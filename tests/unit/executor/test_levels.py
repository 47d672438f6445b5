"""Steps at the same time: the bits of one step after the other, in the memory of levels; the threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from solver.errors import PlanError
from solver.executor import BlockRunner, BlockViews, Trainer, synthetic_batch, validate
from solver.executor.kernels import Call, kernels_for
from solver.executor.memory import in_spaces
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.executor.threads import LevelThreads, turns
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


# ---------------------------------------------------------------------------------------------------- threads


def running() -> int:
    return sum(thread.name.startswith("arenaplan-level") for thread in threading.enumerate())


@pytest.fixture
def three() -> Iterator[LevelThreads]:
    threads = LevelThreads(3)
    yield threads
    threads.close()
    assert running() == 0


def fail(error: BaseException) -> None:
    raise error


def test_tasks_run_at_the_same_time(three: LevelThreads) -> None:
    """Each waits for all others: one after the other they would never end."""
    meeting = threading.Barrier(3, timeout=30)
    three.run([meeting.wait] * 3)  # type: ignore[list-item]  # what it returns is not looked at
    assert not meeting.broken


def test_it_returns_when_all_have_ended(three: LevelThreads) -> None:
    done: list[int] = []
    release = threading.Event()

    def late() -> None:
        release.wait(30)
        done.append(1)

    three.run([release.set, late, late])
    assert done == [1, 1]


def test_the_threads_are_kept(three: LevelThreads) -> None:
    seen: set[int] = set()
    for _ in range(20):
        three.run([lambda: seen.add(threading.get_ident())] * 3)
    assert len(seen) <= 3
    assert threading.get_ident() in seen


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_comes_out_as_it_is_after_all_have_ended(three: LevelThreads, place: int) -> None:
    done: list[int] = []
    tasks: list[Callable[[], None]] = [partial(done.append, k) for k in range(3)]
    error = ZeroDivisionError("in a kernel")
    tasks[place] = partial(fail, error)
    with pytest.raises(ZeroDivisionError, match="in a kernel") as caught:
        three.run(tasks)
    assert caught.value is error
    assert sorted(done) == [k for k in range(3) if k != place]


def test_of_several_errors_the_first_in_order(three: LevelThreads) -> None:
    for _ in range(20):
        with pytest.raises(KeyError):
            three.run([lambda: None, partial(fail, KeyError("b")), partial(fail, ValueError("c"))])
        with pytest.raises(IndexError):
            three.run([partial(fail, IndexError("a")), partial(fail, KeyError("b"))])


def test_work_goes_on_after_an_error(three: LevelThreads) -> None:
    with pytest.raises(ValueError, match="once"):
        three.run([lambda: None, partial(fail, ValueError("once"))])
    done: list[int] = []
    three.run([partial(done.append, k) for k in range(3)])
    assert sorted(done) == [0, 1, 2]


def test_numpy_behaves_as_it_does_for_the_caller(three: LevelThreads) -> None:
    seen: list[tuple[str, int]] = []

    def look() -> None:
        seen.append((np.geterr()["over"], np.getbufsize()))

    with np.errstate(over="raise"):
        np.setbufsize(2048)
        three.run([look] * 3)
    assert seen == [("raise", 2048)] * 3


def test_one_worker_needs_no_thread() -> None:
    threads, done = LevelThreads(1), list[int]()
    threads.run([partial(done.append, 1), partial(done.append, 2)])
    threads.close()
    assert (done, running()) == ([1, 2], 0)


def test_closing_ends_the_threads_and_twice_is_fine() -> None:
    threads = LevelThreads(4)
    threads.run([lambda: None] * 4)
    assert 1 <= running() <= 3
    threads.close()
    threads.close()
    assert running() == 0
    with pytest.raises(RuntimeError):
        threads.run([lambda: None] * 2)


def test_threads_end_when_no_longer_referenced() -> None:
    threads = LevelThreads(3)
    threads.run([lambda: None] * 3)
    mine = [t for t in threading.enumerate() if t.name.startswith("arenaplan-level")]
    del threads
    gc.collect()
    for thread in mine:
        thread.join(30)
    assert running() == 0


def test_turns_are_waves() -> None:
    done: list[str] = []
    found, threads = turns([partial(done.append, name) for name in "abcd"], (0, 1, 1, 2))
    assert len(found) == 3
    found[0]()
    assert done == ["a"]
    found[1]()
    assert sorted(done) == ["a", "b", "c"]
    found[2]()
    threads.close()
    assert done[-1] == "d"


def test_no_turns_and_no_threads() -> None:
    assert turns([], ())[0] == []
    turns([lambda: None] * 3, range(3))[1].close()
    assert running() == 0
