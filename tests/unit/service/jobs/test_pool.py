"""Workers are lent, killed, replaced and never lent twice; with real processes and fake tasks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from service.jobs.frames import Frame
from service.jobs.pool import WorkerPool
from service.jobs.protocol import Limits, run_task
from service.problems import Problem

TASKS = "tests.support.fake_tasks"
#: Ends a test that hangs; nothing here takes this long.
PATIENCE = 60.0
FOREVER = Limits(PATIENCE)


@asynccontextmanager
async def running(
    size: int = 1, *, queue_limit: int = 8, queue_seconds: float = PATIENCE
) -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(TASKS, size, queue_limit=queue_limit, queue_seconds=queue_seconds)
    pool.start()
    try:
        async with asyncio.timeout(PATIENCE):
            yield pool
    finally:
        await pool.close()


async def ask(pool: WorkerPool, body: str, limits: Limits = FOREVER) -> Frame:
    return await run_task(pool, "plan", {}, body.encode(), limits)


async def test_an_answer() -> None:
    async with running() as pool:
        assert (await ask(pool, "echo\nhello")).body == b"hello"


async def test_large_bodies_pass() -> None:
    async with running() as pool:
        text = "x" * 5_000_000
        assert (await ask(pool, f"echo\n{text}")).body == text.encode()


async def test_a_worker_is_used_again() -> None:
    async with running() as pool:
        pids = {(await ask(pool, "echo\n")).head["pid"] for _ in range(5)}
    assert len(pids) == 1


async def test_requests_share_the_workers() -> None:
    async with running(2) as pool:
        answers = await asyncio.gather(*(ask(pool, f"echo\n{n}") for n in range(8)))
        assert [answer.body for answer in answers] == [str(n).encode() for n in range(8)]


async def test_a_problem_leaves_the_worker_alive() -> None:
    async with running() as pool:
        before = (await ask(pool, "echo\n")).head["pid"]
        with pytest.raises(Problem, match="shapes") as caught:
            await ask(pool, "problem\nshapes")
        assert caught.value.kind.code == "shape-mismatch"
        assert caught.value.pointer == "/graph"
        assert caught.value.extensions == {"extra": 1}
        assert (await ask(pool, "echo\n")).head["pid"] == before


async def test_a_bug_leaves_the_worker_alive() -> None:
    async with running() as pool:
        with pytest.raises(Problem) as caught:
            await ask(pool, "unknown command")
        assert caught.value.kind.status == 500
        assert "unknown command" not in str(caught.value.document())
        assert (await ask(pool, "echo\nstill here")).body == b"still here"


async def test_an_unknown_task_is_a_bug_not_a_crash() -> None:
    async with running() as pool:
        with pytest.raises(Problem) as caught:
            await run_task(pool, "no such task", {}, b"", FOREVER)
        assert caught.value.kind.status == 500
        assert (await ask(pool, "echo\nok")).body == b"ok"


async def test_printing_does_not_disturb_the_conversation() -> None:
    async with running() as pool:
        assert (await ask(pool, "print")).head["digest"] == "printed"


async def test_a_crash_costs_one_request() -> None:
    async with running() as pool:
        before = (await ask(pool, "echo\n")).head["pid"]
        with pytest.raises(Problem) as caught:
            await ask(pool, "die")
        assert caught.value.kind.code == "worker-lost"
        assert caught.value.headers["Retry-After"]
        after = (await ask(pool, "echo\n")).head["pid"]
        assert after != before


async def test_an_idle_worker_that_dies_is_replaced() -> None:
    async with running() as pool:
        before = (await ask(pool, "echo\n")).head["pid"]
        os.kill(before, signal.SIGKILL)
        await until(lambda: before not in pool.pids)
        assert (await ask(pool, "echo\n")).head["pid"] != before


async def test_late_without_any_answer() -> None:
    async with running() as pool:
        before = (await ask(pool, "echo\n")).head["pid"]
        with pytest.raises(Problem) as caught:
            await ask(pool, "hang", Limits(0.01))
        assert caught.value.kind.code == "time-limit"
        assert (await ask(pool, "echo\n")).head["pid"] != before
        assert not exists(before)


async def test_late_with_a_fallback() -> None:
    async with running() as pool:
        frame = await ask(pool, "late\nthe greedy plan", Limits(PATIENCE, after_fallback=0.0))
        assert frame.kind == "fallback"
        assert frame.body == b"the greedy plan"
        assert (await ask(pool, "echo\nnext")).body == b"next"


async def test_a_caller_that_leaves_kills_the_work() -> None:
    async with running() as pool:
        pid = (await ask(pool, "echo\n")).head["pid"]
        task = asyncio.create_task(ask(pool, "hang"))
        await until(lambda: pool.idle == 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask(pool, "echo\nfree")).body == b"free"
        assert not exists(pid)


@pytest.mark.parametrize("known", [True, False])
async def test_offers(known: bool) -> None:
    asked: list[str] = []

    def at_hand(key: str) -> bool:
        asked.append(key)
        return known

    async with running() as pool:
        frame = await run_task(pool, "plan", {}, b"offer\nbody", FOREVER, at_hand)
        assert asked == ["key-offered"]
        assert frame.body == (b"" if known else b"body")
        assert (await ask(pool, "echo\nfree")).body == b"free"


async def test_the_queue_is_bounded() -> None:
    async with running(queue_limit=1) as pool:
        await ask(pool, "echo\n")
        async with pool.lease():
            waiting = asyncio.create_task(ask(pool, "echo\nwaited"))
            await until(lambda: pool.waiting > 0)
            with pytest.raises(Problem) as caught:
                await ask(pool, "echo\n")
            assert caught.value.kind.code == "overloaded"
            assert caught.value.headers["Retry-After"]
        assert (await waiting).body == b"waited"


async def test_waiting_ends() -> None:
    async with running(queue_seconds=0.01) as pool:
        await until(lambda: pool.alive > 0)
        async with pool.lease():
            with pytest.raises(Problem, match="No worker got free"):
                await ask(pool, "echo\n")


async def test_close_leaves_no_process() -> None:
    async with running(2) as pool:
        busy = asyncio.create_task(ask(pool, "hang"))
        await until(lambda: pool.alive == 2)
        pids = pool.pids
    with pytest.raises(Problem):
        await busy
    assert len(pids) == 2
    assert not any(exists(pid) for pid in pids)


async def test_a_module_that_cannot_be_imported(caplog: pytest.LogCaptureFixture) -> None:
    pool = WorkerPool("tests.support.no_such_module", 1, queue_seconds=0.2)
    pool.start()
    try:
        with pytest.raises(Problem, match="No worker got free"):
            await ask(pool, "echo\n")
        assert pool.alive == 0
    finally:
        await pool.close()


async def test_workers_ignore_the_signals_of_the_terminal() -> None:
    async with running() as pool:
        pid = (await ask(pool, "echo\n")).head["pid"]
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        assert (await ask(pool, "echo\n")).head["pid"] == pid


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
        await asyncio.sleep(0.001)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
