"""Waiting for a job ends in time, by a clock of the test's own; what is given up is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from clients import AsyncClient, Client, JobNotFinished, Retry
from tests.support.scripted_service import event
from tests.unit.clients.test_jobs import DONE, RUNNING

NO_NEWS = b": still here\n\n"


class Network(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A service whose job never ends; every read takes as long as `takes` says, by this clock."""

    def __init__(self, takes: Callable[[str], float]) -> None:
        self.now = 100.0
        self.opened = self.closed = 0
        self._takes = takes

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def pause(self, seconds: float) -> None:
        self.sleep(seconds)

    def wait(self, read: str, longest: float) -> None:
        """Let the time of a read pass. Raises httpx.ReadTimeout for one that takes too long."""
        seconds = self._takes(read)
        self.now += min(seconds, longest)
        if seconds > longest:
            raise httpx.ReadTimeout("too long")

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        longest = request.extensions["timeout"]["read"]
        if not request.url.path.endswith("/events"):
            return httpx.Response(200, json=RUNNING)
        self.wait("answer", longest)
        self.opened += 1
        headers = {"Content-Type": "text/event-stream"}
        return httpx.Response(200, headers=headers, stream=Endless(self, longest))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)

    async def wait_for_job(self, kind: type[Client | AsyncClient], seconds: float) -> None:
        """Wait for a job of a client of either kind over this network."""
        retry, clock = Retry(base=0.25, chance=lambda: 0.0), self.clock
        if kind is Client:
            with Client("http://test", transport=self, sleep=self.sleep, clock=clock, retry=retry) as client:
                client.jobs.get("1f").wait(timeout=seconds)
        else:
            opened = AsyncClient("http://test", transport=self, sleep=self.pause, clock=clock, retry=retry)
            async with opened as awaited:
                await (await awaited.jobs.get("1f")).wait(timeout=seconds)


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Comments, one after the other."""

    def __init__(self, network: Network, longest: float) -> None:
        self._network = network
        self._longest = longest

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self._network.wait("piece", self._longest)
            yield NO_NEWS

    def close(self) -> None:
        self._network.closed += 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    async def aclose(self) -> None:
        self.close()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("each", [0.01, 0.3, 1.0, 7.0, 1e9])
@pytest.mark.parametrize("seconds", [0.0, 0.4, 1.0, 10.0, 60.0])
async def test_a_stream_ends_in_time(seconds: float, each: float, kind: type[Client | AsyncClient]) -> None:
    network = Network(lambda read: each if read == "piece" else 0.01)
    with pytest.raises(JobNotFinished, match=r"jobs\.get\('1f'\)") as caught:
        await network.wait_for_job(kind, seconds)
    assert (caught.value.id, caught.value.seconds) == ("1f", seconds)
    assert network.now <= 100.0 + seconds + 0.02
    assert network.opened == network.closed


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("seconds", [0.4, 10.0])
async def test_an_answer_that_does_not_come(seconds: float, kind: type[Client | AsyncClient]) -> None:
    network = Network(lambda _read: 1e9)
    with pytest.raises(JobNotFinished):
        await network.wait_for_job(kind, seconds)
    assert network.now == pytest.approx(100.0 + seconds)


def test_a_pause_that_would_be_too_long() -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            return httpx.Response(503, headers={"Retry-After": "30"})
        return httpx.Response(200, json=RUNNING)

    pauses: list[float] = []
    transport = httpx.MockTransport(reply)
    with Client("http://test", transport=transport, sleep=pauses.append, clock=lambda: 5.0) as client:
        job = client.jobs.get("1f")
        with pytest.raises(JobNotFinished):
            job.wait(timeout=10.0)
    assert pauses == []


def test_events_that_nobody_reads_on_are_closed() -> None:
    network = Network(lambda _read: 1.0)
    taken = []

    def take(status: object) -> None:
        taken.append(status)
        raise KeyError("a bug of the caller")

    class Once(Endless):
        def __iter__(self) -> Iterator[bytes]:
            yield event("progress", 1, RUNNING)
            yield event("end", 2, DONE)

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            stream = Once(network, 1.0)
            return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=stream)
        return httpx.Response(200, json=RUNNING)

    with Client("http://test", transport=httpx.MockTransport(handle)) as client:
        job = client.jobs.get("1f")
        news = job.events()
        assert next(news).kind == "progress"
        del news
        assert network.closed == 1
        with pytest.raises(KeyError):
            job.wait(take)
        assert (len(taken), network.closed) == (1, 2)


async def test_a_timeout_of_the_caller_is_not_that_of_the_job() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            headers = {"Content-Type": "text/event-stream"}
            return httpx.Response(200, headers=headers, content=event("progress", 1, RUNNING))
        return httpx.Response(200, json=RUNNING)

    def give_up(_status: object) -> None:
        raise TimeoutError("the caller's own")

    async with AsyncClient("http://test", transport=httpx.MockTransport(handle)) as client:
        job = await client.jobs.get("1f")
        with pytest.raises(TimeoutError, match="the caller's own") as caught:
            await job.wait(give_up, timeout=3600.0)
    assert not isinstance(caught.value, JobNotFinished)


async def test_a_call_that_is_cancelled() -> None:
    waiting = asyncio.Event()

    async def forever(_seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    busy = httpx.MockTransport(lambda _request: httpx.Response(503))
    async with AsyncClient("http://test", transport=busy, sleep=forever) as client:
        task = asyncio.create_task(client.plan({}))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
