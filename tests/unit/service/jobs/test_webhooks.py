"""Webhooks: signed, sent until they have arrived, and never to an address that is not public."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from sqlalchemy import select, update

from service.jobs.model import Delivery, Job, job_document
from service.jobs.table import JobTable
from service.jobs.webhooks import PAUSES, Webhooks, check_url, signature
from service.problems import Problem
from service.store import Store
from service.store.schema import deliveries
from tests.support.engines import new_job, table_of

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


@dataclass
class Receiver:
    """Takes webhooks on loopback; `status` is what it answers next, the last one from then on."""

    statuses: list[int] = field(default_factory=lambda: [204])
    received: asyncio.Queue[tuple[dict[str, str], bytes]] = field(default_factory=asyncio.Queue)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        location = "Location: http://127.0.0.1/\r\n" if status == 307 else ""
        writer.write(
            f"HTTP/1.1 {status} X\r\n{location}Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()
        self.received.put_nowait((headers, body))


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(statuses) or [204])
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver


@asynccontextmanager
async def sending(store: Store, *, allow_private: bool = True) -> AsyncIterator[JobTable]:
    table = table_of(store)

    def document(job: Job) -> bytes:
        return json.dumps(job_document(job)).encode()

    webhooks = Webhooks(store, table, SECRET, document, allow_private=allow_private)
    webhooks.start()
    yield table
    await webhooks.close()


async def done(table: JobTable, url: str) -> Job:
    """A job that has ended, and has a webhook."""
    job, _ = await table.submit(new_job("echo\n", webhook=url))
    claim = await table.claim("owner")
    assert claim is not None
    assert await table.succeed(claim, b"{}", {})
    return job


async def delivery_of(table: JobTable, job: Job, state: str) -> Delivery:
    """How far the webhook is, once it is in this state."""
    async with asyncio.timeout(60):
        while (delivery := (await table.get(job.tenant, job.id)).delivery) is None or delivery.state != state:
            await asyncio.to_thread(time.sleep, 0.02)
    return delivery


async def failure_of(store: Store, job: Job) -> str:
    """Why the first attempt has failed, once it has."""
    wanted = select(deliveries.c.failure).where(deliveries.c.job == job.id)
    async with asyncio.timeout(60):
        while True:
            found = await store.read(lambda connection: connection.execute(wanted).scalar_one())
            if found is not None:
                return str(found)
            await asyncio.to_thread(time.sleep, 0.02)


async def test_signed_as_the_standard_says(store: Store) -> None:
    async with receiving() as receiver, sending(store) as table:
        job = await done(table, f"http://localhost:{receiver.port}/hook?x=1")
        headers, body = await receiver.received.get()
    assert json.loads(body)["id"] == job.id
    assert json.loads(body)["state"] == "succeeded"
    assert headers["host"] == f"localhost:{receiver.port}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 300
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = hmac.digest(b"0123456789abcdef01234567", signed, hashlib.sha256)
    version, _, value = headers["webhook-signature"].partition(",")
    assert (version, base64.b64decode(value)) == ("v1", expected)


def test_the_example_of_the_standard() -> None:
    """From the specification of Standard Webhooks."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("status", [500, 404, 307])
async def test_sent_again(store: Store, status: int) -> None:
    """A delivery that is not accepted comes again with the same id; a redirect is not followed."""
    async with receiving(status, 204) as receiver, sending(store) as table:
        job = await done(table, f"http://127.0.0.1:{receiver.port}/")
        first, _ = await receiver.received.get()
        assert await failure_of(store, job) == f"status {status}"
        assert (await table.get("default", job.id)).delivery == Delivery("pending", 1, f"status {status}")
        await store.write(lambda connection: connection.execute(update(deliveries).values(due=0.0)))
        second, _ = await receiver.received.get()
        assert await delivery_of(table, job, "delivered") == Delivery("delivered", 2)
    assert first["webhook-id"] == second["webhook-id"]
    assert receiver.received.empty()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "10.1.2.3", "169.254.169.254", "0.0.0.0"],
)
async def test_no_address_that_is_not_public(store: Store, host: str) -> None:
    async with receiving() as receiver, sending(store, allow_private=False) as table:
        job = await done(table, f"http://{host}:{receiver.port}/")
        assert "public Internet" in await failure_of(store, job)
        assert receiver.received.empty()


async def test_a_webhook_that_is_given_up(store: Store) -> None:
    """The job says so, with the last status and the number of attempts."""
    async with receiving(503) as receiver, sending(store) as table:
        job = await done(table, f"http://127.0.0.1:{receiver.port}/")
        again = update(deliveries).values(due=0.0, failure=None)
        for _ in range(len(PAUSES)):
            await receiver.received.get()
            await failure_of(store, job)
            await store.write(lambda connection: connection.execute(again))
        attempts = len(PAUSES) + 1
        assert await delivery_of(table, job, "failed") == Delivery("failed", attempts, "status 503")
        (listed,) = await table.page("default", state=None, limit=10, after=None)
        assert job_document(listed)["webhook"] == {
            "state": "failed", "attempts": attempts, "failure": "status 503",
        }  # fmt: skip


async def test_a_webhook_waits_for_the_end_of_its_job(store: Store) -> None:
    table = table_of(store)
    job, _ = await table.submit(new_job("echo\n", webhook="https://example.com/"))
    assert (await table.get("default", job.id)).delivery == Delivery("pending")
    without, _ = await table.submit(new_job("echo\n"))
    assert job_document(await table.get("default", without.id))["webhook"] is None


async def test_nobody_listens(store: Store) -> None:
    async with receiving() as receiver:
        port = receiver.port
    async with sending(store) as table:
        job = await done(table, f"http://127.0.0.1:{port}/")
        assert "ConnectError" in await failure_of(store, job)


@pytest.mark.parametrize(
    "url",
    ["ftp://x/", "http://", "https://user:secret@x/", "http://x y/", "//x", "http://[", "http://x:99999/"],
)
def test_what_is_refused_at_once(url: str) -> None:
    with pytest.raises(Problem) as caught:
        check_url(url, configured=True)
    assert (caught.value.kind.code, caught.value.pointer) == ("webhook-refused", "/webhook/url")
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f.1", "10.1.2.3", "172.16.0.1", "192.168.0.1:8080", "0.0.0.0",
        "169.254.169.254", "100.64.0.1", "[::1]", "[fe80::1]", "[fd00::1]", "[::ffff:127.0.0.1]",
        "[64:ff9b::a00:1]", "[2002:7f00:1::]", "localhost", "LOCALHOST:1", "x.localhost", "224.0.0.1",
    ],
)  # fmt: skip
def test_private_literals_are_refused_at_once(host: str) -> None:
    with pytest.raises(Problem, match="public Internet") as caught:
        check_url(f"http://{host}/hook", configured=True)
    assert (caught.value.kind.code, caught.value.pointer) == ("webhook-refused", "/webhook/url")
    check_url(f"http://{host}/hook", configured=True, allow_private=True)


@pytest.mark.parametrize(
    "host", ["example.com", "1.1.1.1", "[2606:4700::1111]", "10.example", "127.0.0.1.example"]
)
def test_public_addresses_and_names_are_taken(host: str) -> None:
    check_url(f"https://{host}/hook", configured=True)


def test_nothing_to_sign_with() -> None:
    check_url("https://example.com/hook", configured=True)
    with pytest.raises(Problem, match="no secret"):
        check_url("https://example.com/hook", configured=False)
