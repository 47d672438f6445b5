"""Workers are lent, killed, replaced and never lent twice; with real processes and fake tasks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from service.jobs.frames import Frame
from service.jobs.pool import SMALL_BYTES, Limits, WorkerPool, run_task
from service.problems import Problem
from tests.support.server import is_running

ROOT = Path(__file__).resolve().parents[4]
TASKS = "tests.support.fake_tasks"
#: Ends a test that hangs; nothing here takes this long.
PATIENCE = 60.0
FOREVER = Limits(PATIENCE)
MEMORY = 256 << 20


@asynccontextmanager
async def running(
    size: int = 1, *, queue_limit: int = 8, queue_seconds: float = PATIENCE, tasks: str = TASKS, **more: Any
) -> AsyncIterator[WorkerPool]:
    """A pool for one test; a test that waits too long fails, and says how the pool stands."""
    pool = WorkerPool(tasks, size, queue_limit=queue_limit, queue_seconds=queue_seconds, **more)
    pool.start()
    try:
        async with asyncio.timeout(PATIENCE):
            yield pool
    except TimeoutError:
        state = f"{pool.alive} of {size} workers live, {pool.idle} are idle, {pool.waiting} callers wait"
        pytest.fail(f"nothing happened for {PATIENCE:g} s: {state}")
    finally:
        async with asyncio.timeout(PATIENCE):
            await pool.close()


async def ask(pool: WorkerPool, body: str, limits: Limits = FOREVER, **head: Any) -> Frame:
    return await run_task(pool, "plan", head, body.encode(), limits)


async def test_answers() -> None:
    """Requests share the workers, and a worker is used again; large bodies pass."""
    async with running() as pool:
        text = "x" * 5_000_000
        assert (await ask(pool, f"echo\n{text}")).body == text.encode()
        assert len({(await ask(pool, "echo\n")).head["pid"] for _ in range(5)}) == 1
    async with running(2) as pool:
        answers = await asyncio.gather(*(ask(pool, f"echo\n{n}") for n in range(8)))
        assert [answer.body for answer in answers] == [str(n).encode() for n in range(8)]


#: What a request does, the limits in the head of its task, the type of its problem and words of it, and
#: whether it costs the worker its process. Everything costs one request alone.
FAILURES: tuple[tuple[str, dict[str, int], str, str, bool], ...] = (
    ("problem\nshapes", {}, "shape-mismatch", "shapes", False),
    ("unknown command", {}, "internal-error", "a bug", False),
    ("die", {}, "worker-lost", "died", True),
    ("garble", {}, "worker-lost", "died", True),
    # How foreign code ends that gets no memory.
    ("abort", {}, "memory-limit", "needs more memory", True),
    # Told as what it is, which is nothing to try again.
    (f"allocate\n{2 * MEMORY}", {"worker_memory_bytes": MEMORY}, "memory-limit", "needs more memory", True),
    ("spin", {"worker_cpu_seconds": 1}, "time-limit", "processor time", True),
    ("hang", {}, "time-limit", "no answer within 0.1 s", True),
)


@pytest.mark.parametrize(("body", "head", "code", "words", "is_lost"), FAILURES)
async def test_a_failure_costs_one_request(
    body: str, head: dict[str, int], code: str, words: str, is_lost: bool
) -> None:
    if head and sys.platform != "linux":
        pytest.skip("the limits are those of Linux")
    async with running() as pool:
        before = (await ask(pool, "echo\n")).head["pid"]
        with pytest.raises(Problem, match=words) as caught:
            await ask(pool, body, Limits(0.1) if body == "hang" else FOREVER, **head)
        problem = caught.value
        assert problem.kind.code == code
        assert ("Retry-After" in problem.headers) == (code == "worker-lost")
        assert "unknown command" not in str(problem.document())
        expected = {"shape-mismatch": {"extra": 1}, "memory-limit": {"reason": "memory"}}
        assert (problem.extensions, problem.pointer) == (
            expected.get(code, {}),
            "/graph" if code == "shape-mismatch" else None,
        )
        assert (await ask(pool, "echo\nnext")).body == b"next"
        assert (before in pool.pids, exists(before)) == (not is_lost, not is_lost)


async def test_what_leaves_the_worker_alive() -> None:
    """Tasks that there are not, text on standard output, and signals of the terminal."""
    async with running() as pool:
        before = (await ask(pool, "echo\n")).head["pid"]
        with pytest.raises(Problem, match="a bug"):
            await run_task(pool, "no such task", {}, b"", FOREVER)
        assert (await ask(pool, "print")).head["digest"] == "printed"
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(before, number)
        assert (await ask(pool, "echo\n")).head["pid"] == before


async def test_an_idle_worker_that_dies_is_replaced() -> None:
    async with running() as pool:
        idle = (await ask(pool, "echo\n")).head["pid"]
        os.kill(idle, signal.SIGKILL)
        await until(lambda: idle not in pool.pids)
        assert (await ask(pool, "echo\n")).head["pid"] != idle


async def test_late_with_a_fallback() -> None:
    async with running() as pool:
        frame = await ask(pool, "late\nthe greedy plan", Limits(PATIENCE, after_fallback=0.0))
        assert frame.kind == "fallback"
        assert frame.body == b"the greedy plan"
        assert (await ask(pool, "echo\nnext")).body == b"next"


async def test_the_deadline_in_the_text_bounds_the_first_answer() -> None:
    """Also of a request that is not even read by then."""
    async with running() as pool:
        limits = Limits(PATIENCE, after_fallback=0.01, floor=0.01)
        with pytest.raises(Problem, match=r"within 0\.03 s") as caught:
            await ask(pool, 'hang\n{"deadline_seconds": 0.02}', limits)
        assert caught.value.kind.code == "time-limit"
        answer = await ask(pool, 'echo\n"deadline_seconds": 1e300', Limits(PATIENCE, 0.0, floor=0.0))
        assert answer.kind == "result"


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

    async def at_hand(key: str) -> bool:
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


LARGE = "x" * SMALL_BYTES


async def test_small_requests_pass_large_ones() -> None:
    """Four small ones to a large one: neither waits for all of the others."""
    order: list[str] = []

    async def note(name: str, text: str = "") -> None:
        await ask(pool, f"echo\n{text}")
        order.append(name)

    async with running(queue_limit=40) as pool:
        await ask(pool, "echo\n")
        async with pool.lease():
            waiting = [asyncio.create_task(note(f"large {k}", LARGE)) for k in range(3)]
            await until(lambda: pool.waiting == 3)
            waiting += [asyncio.create_task(note(f"small {k}")) for k in range(6)]
            await until(lambda: pool.waiting == 9)
        await asyncio.gather(*waiting)
    assert [name.split()[0] for name in order[:6]].count("large") == 1
    assert order[-1] == "large 2"


async def test_large_requests_leave_room_in_the_queue() -> None:
    async with running(queue_limit=4) as pool:
        await ask(pool, "echo\n")
        async with pool.lease():
            waiting = [asyncio.create_task(ask(pool, f"echo\n{LARGE}")) for _ in range(3)]
            await until(lambda: pool.waiting == 3)
            assert pool.overloaded()
            pool.check_room(SMALL_BYTES)
            with pytest.raises(Problem, match="3 requests wait"):
                pool.check_room(SMALL_BYTES + 1)
            with pytest.raises(Problem, match="3 requests wait"):
                await ask(pool, f"echo\n{LARGE}")
            waiting.append(asyncio.create_task(ask(pool, "echo\n")))
            await until(lambda: pool.waiting == 4)
            with pytest.raises(Problem, match="4 requests wait"):
                await ask(pool, "echo\n")
        await asyncio.gather(*waiting)
        assert not pool.overloaded()


async def test_one_of_several_workers_is_kept_for_small_requests() -> None:
    """As long as there were some lately: a large one would keep all of them busy for a minute."""
    async with running(2) as pool:
        await until(lambda: pool.alive == 2)
        async with pool.lease(large=True), pool.lease(large=True):
            pass  # nobody has sent a small one
        await ask(pool, "echo\n")
        async with pool.lease(large=True):
            second = asyncio.create_task(ask(pool, f"echo\n{LARGE}"))
            await until(lambda: pool.waiting == 1)
            for _ in range(3):
                assert (await ask(pool, "echo\nsmall")).body == b"small"
            assert not second.done()
        assert (await second).body == LARGE.encode()


async def test_tenants_take_turns() -> None:
    """However much one tenant has sent, another is next as soon as a worker is free."""
    order: list[str] = []

    async def note(tenant: str) -> None:
        await run_task(pool, "plan", {}, b"echo\n", FOREVER, tenant=tenant)
        order.append(tenant)

    async with running(queue_limit=40) as pool:
        await ask(pool, "echo\n")
        async with pool.lease("flood"):
            waiting = [asyncio.create_task(note("flood")) for _ in range(12)]
            await until(lambda: pool.waiting == 12)
            waiting.append(asyncio.create_task(note("other")))
            await until(lambda: pool.waiting == 13)
        await asyncio.gather(*waiting)
    assert order.index("other") == 0


async def test_a_full_queue_is_shared_by_tenants() -> None:
    """The last of the tenant with the most that wait leaves for another's; the service is ready for those."""
    async with running(queue_limit=4) as pool:
        await ask(pool, "echo\n")
        async with pool.lease("flood"):
            flood = [
                asyncio.create_task(run_task(pool, "plan", {}, b"echo\n", FOREVER, tenant="flood"))
                for _ in range(4)
            ]
            await until(lambda: pool.waiting == 4)
            assert pool.overloaded("flood")
            assert not pool.overloaded("other")
            other = [
                asyncio.create_task(run_task(pool, "plan", {}, b"echo\n", FOREVER, tenant="other"))
                for _ in range(2)
            ]
            for turned_away in (flood[-1], flood[-2]):
                with pytest.raises(Problem, match="4 requests wait"):
                    await turned_away
            assert pool.waiting == 4
            with pytest.raises(Problem, match="4 requests wait"):
                await run_task(pool, "plan", {}, b"echo\n", FOREVER, tenant="other")
        assert [frame.kind for frame in await asyncio.gather(*flood[:2], *other)] == ["result"] * 4


async def test_processor_time_is_charged_to_tenants() -> None:
    charged: list[tuple[str, float]] = []
    async with running(meter=lambda tenant, seconds: charged.append((tenant, seconds))) as pool:
        await run_task(pool, "plan", {}, b"echo\n", FOREVER, tenant="a")
        with pytest.raises(Problem):
            await run_task(pool, "plan", {"worker_cpu_seconds": 1}, b"spin", FOREVER, tenant="b")
    assert [tenant for tenant, _ in charged] == ["a", "b"]
    assert charged[1][1] > charged[0][1] >= 0


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


# ------------------------------------------------------------------------ memory and processor time


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of Linux")
async def test_limits_are_those_of_one_request() -> None:
    """A large body after a request with little memory is read all the same, by the same process."""
    async with running() as pool:
        assert (await ask(pool, f"allocate\n{MEMORY // 2}", worker_memory_bytes=MEMORY)).kind == "result"
        before = (await ask(pool, "echo\n", worker_memory_bytes=1 << 20)).head["pid"]
        text = "x" * (40 << 20)
        after = await ask(pool, f"echo\n{text}", worker_memory_bytes=MEMORY)
        assert (len(after.body), after.head["pid"]) == (len(text), before)


async def test_a_worker_that_the_kernel_took_for_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter(range(100))
    monkeypatch.setattr("service.jobs.pool.oom_kills", lambda: next(kills))
    async with running() as pool:
        with pytest.raises(Problem, match="no memory left") as caught:
            await ask(pool, "die")
        assert (caught.value.kind.code, caught.value.extensions) == ("worker-lost", {"reason": "memory"})


# ------------------------------------------------------------------------------------- starting


class Pauses:
    """Stands in for sleeping between two starts."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(0)


def named(events: list[EventDict], name: str) -> list[EventDict]:
    return [event for event in events if event["event"] == name]


async def test_a_module_that_cannot_be_imported() -> None:
    """Tried again and again, with pauses that double up to five seconds; callers are told to come back."""
    pauses = Pauses()
    with capture_logs() as events:
        async with running(tasks="tests.support.no_such_module", queue_seconds=0.2, pause=pauses) as pool:
            await until(lambda: len(pauses.taken) >= 8)
            with pytest.raises(Problem, match="No worker got free"):
                await ask(pool, "echo\n")
            assert pool.alive == 0
    assert pauses.taken[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert len(named(events, "worker did not start")) >= 8
    why = named(events, "tests.support.no_such_module cannot be imported")[0]
    assert why["log_level"] == "error"
    assert "ModuleNotFoundError" in why["exception"]


async def test_a_worker_that_never_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_HANG", "1")
    pauses = Pauses()
    with capture_logs() as events:
        async with running(start_seconds=0.2, pause=pauses, confined=False) as pool:
            await until(lambda: len(pauses.taken) >= 2)
            assert pool.alive == 0
    pids = [event["pid"] for event in named(events, "worker did not start")]
    assert len(set(pids)) == len(pids) >= 2
    assert not any(map(exists, pids))


async def test_pauses_start_over_once_a_worker_has_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failures, pauses = tmp_path / "failures", Pauses()
    failures.write_text("2", encoding="utf-8")
    monkeypatch.setenv("FAKE_FAILURES", str(failures))
    async with running(pause=pauses, confined=False) as pool:
        pid = (await ask(pool, "echo\n")).head["pid"]
        assert pauses.taken == [0.1, 0.2]
        os.kill(pid, signal.SIGKILL)
        await until(lambda: pid not in pool.pids)
        assert (await ask(pool, "echo\nat once")).body == b"at once"
        assert pauses.taken == [0.1, 0.2]
        failures.write_text("1", encoding="utf-8")
        os.kill(pool.pids[0], signal.SIGKILL)
        await until(lambda: len(pauses.taken) == 3)
        assert (await ask(pool, "echo\nagain")).body == b"again"
    assert pauses.taken == [0.1, 0.2, 0.1]


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process can open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_start_without_descriptors_is_tried_again() -> None:
    """The process cannot even be made; once there are descriptors again there is a worker again."""
    pauses = Pauses()
    with capture_logs() as events:
        async with running(pause=pauses) as pool:
            pid = (await ask(pool, "echo\n")).head["pid"]
            with no_descriptor_left():
                os.kill(pid, signal.SIGKILL)
                await until(lambda: len(pauses.taken) >= 3)
                assert (pool.alive, pool.supervised) == (0, True)
            assert (await ask(pool, "echo\nback")).body == b"back"
    assert pauses.taken[:3] == [0.1, 0.2, 0.4]
    failures = named(events, "worker could not be supervised")
    assert len(failures) >= 3
    assert all(failure["log_level"] == "error" for failure in failures)


class BrokenLog:
    """Standard error whose reader has gone."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise BrokenPipeError(32, "Broken pipe")

        return fail


async def test_a_log_that_cannot_be_written_ends_no_supervisor() -> None:
    async with running() as pool:
        pid = (await ask(pool, "echo\n")).head["pid"]
        structlog.configure(logger_factory=lambda *_: BrokenLog())
        try:
            os.kill(pid, signal.SIGKILL)
            await until(lambda: pid not in pool.pids)
            assert (await ask(pool, "echo\nback")).body == b"back"
            assert pool.supervised
            assert (await ask(pool, "log\nhot")).head["digest"] == "logged"
        finally:
            structlog.reset_defaults()


async def test_a_supervisor_that_ends_is_known() -> None:
    async def interrupted(_seconds: float) -> None:
        raise asyncio.CancelledError

    async with running(tasks="tests.support.no_such_module", pause=interrupted) as pool:
        assert pool.supervised
        await until(lambda: not pool.supervised)


# ------------------------------------------------------------------------------ what workers report


@pytest.mark.parametrize("report", [{"compiled_search": True, "cp_sat": False}, {"compiled_search": True}])
async def test_what_loads(monkeypatch: pytest.MonkeyPatch, report: dict[str, bool]) -> None:
    monkeypatch.setenv("FAKE_WARM", json.dumps(report))
    async with running(2, confined=False) as pool:
        assert pool.loads("compiled_search") is None
        await until(lambda: pool.loads("compiled_search") is not None)
        assert pool.loads("compiled_search") is True
        assert pool.loads("cp_sat") is report.get("cp_sat")
        assert (await ask(pool, "echo\nafter")).body == b"after"


async def test_a_worker_that_cannot_warm_up_works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_WARM", "not JSON")
    with capture_logs() as events:
        async with running(confined=False) as pool:
            await until(lambda: bool(named(events, "worker warmed up")))
            before = pool.pids
            assert (await ask(pool, "echo\nstill here")).body == b"still here"
            assert pool.pids == before
            assert pool.loads("compiled_search") is None
    (why,) = named(events, "warming up failed")
    assert (why["log_level"], "JSONDecodeError" in why["exception"]) == ("error", True)


async def test_what_libraries_log_in_a_worker_is_logged_by_the_service() -> None:
    with capture_logs() as events:
        async with running() as pool:
            assert (await ask(pool, "log\nhot")).head["digest"] == "logged"
    (careful,) = named(events, "careful: hot")
    assert (careful["log_level"], careful["logger"]) == ("warning", "library")
    assert any("UserWarning: old" in str(event["event"]) for event in events)


# --------------------------------------------------------------------------------------- ending


PARENT = f"""
import asyncio
from service.jobs.pool import WorkerPool

async def main():
    WorkerPool({TASKS!r}, 2, confined=False).start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the pipe alone ends a worker")
async def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Even while they hold the lock of the interpreter, so that no thread of theirs can notice."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_HOLD": str(tmp_path)}
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, env=environment)
    try:
        async with asyncio.timeout(PATIENCE):
            await until(lambda: len(os.listdir(tmp_path)) == 2)  # noqa: PTH208 - a path would be blocking
            pids = [int(name) for name in os.listdir(tmp_path)]  # noqa: PTH208 - as above
            assert all(map(is_running, pids))
            parent.kill()
            await parent.wait()
            await until(lambda: not any(map(is_running, pids)))
    finally:
        with contextlib.suppress(ProcessLookupError):
            parent.kill()
        await parent.wait()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
        await asyncio.sleep(0.001)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
