"""Webhooks: what a job has come to, sent to an address that its caller has named.

Signed as Standard Webhooks says (https://www.standardwebhooks.com): ``webhook-id``, ``webhook-timestamp`` and
``webhook-signature``, an HMAC-SHA256 over all three and the body.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import structlog
from sqlalchemy import Connection, select, update

from service.jobs.model import Job
from service.jobs.table import JobTable
from service.problems import Problem
from service.store import Store
from service.store.schema import deliveries

__all__ = ["Webhooks", "check_url", "signature"]

_log = structlog.get_logger("service.jobs")

#: How long one attempt may take, from the question for the address to the status of the answer.
ATTEMPT_SECONDS: Final = 15.0
#: Pauses between attempts, in seconds, each made up to a fifth longer; then the webhook is given up.
PAUSES: Final = (5, 30, 120, 600, 3600, 4 * 3600, 12 * 3600)
#: How often to look for webhooks that are due.
LOOK_SECONDS: Final = 0.5
#: Webhooks that are sent at the same time.
MOST_AT_ONCE: Final = 8
#: Seconds for which a sender owns a webhook; after that it is taken for dead, and another one sends it.
CLAIM_SECONDS: Final = 2 * ATTEMPT_SECONDS

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def check_url(url: str, *, configured: bool, allow_private: bool = False) -> None:
    """Raises `Problem` ``webhook-refused`` for an address that no webhook is ever sent to.

    Names are not resolved here, except those of this machine: they may lead elsewhere when the job has ended,
    and are looked up then.
    """
    if not configured:
        raise _refused("This service has no secret to sign webhooks with.", "Follow the events of the job.")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or len(url) > 2000 or not url.isascii() or any(c <= " " for c in url):
        raise _refused(f"{url!r:.80} is not an address to send to.", "Give an http or https URL.")
    if parts.username is not None or parts.password is not None:
        raise _refused("The address of the webhook has a user name in it.", "Check the signature instead.")
    host = parts.hostname or ""
    if not allow_private and not _may_be_public(host):
        raise _refused(
            f"{host!r:.80} is not an address of the public Internet.",
            "Name a public address, or start the service with ARENAPLAN_WEBHOOK_ALLOW_PRIVATE=true.",
        )


def _may_be_public(host: str) -> bool:
    """Whether a host is a public address, or a name that may lead to one."""
    if host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return _is_public(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:  # 127.1, 0x7f000001 and 2130706433 are addresses, too
        return _is_public(ipaddress.IPv4Address(socket.inet_aton(host)))
    except OSError:
        return True


def _refused(detail: str, remedy: str) -> Problem:
    return Problem("webhook-refused", detail, remedy=remedy, pointer="/webhook/url")


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    """The value of ``webhook-signature``: version and base64 of the HMAC-SHA256."""
    key = secret.encode()
    if secret.startswith("whsec_"):
        with contextlib.suppress(binascii.Error):
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    digest = hmac.digest(key, b"%b.%d.%b" % (message.encode(), timestamp, body), hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


@dataclass(frozen=True, slots=True)
class _Delivery:
    id: str
    job: str
    tenant: str
    url: str
    attempts: int


class Webhooks:
    """Sends what is due, from as many processes as there are; each webhook until it has arrived once.

    `document` makes the body of a job. Where `allow_private` is not set, only addresses of the public
    Internet are sent to: the one that was checked is the one that is connected to.
    """

    def __init__(
        self,
        store: Store,
        table: JobTable,
        secret: str,
        document: Callable[[Job], bytes],
        *,
        allow_private: bool = False,
    ) -> None:
        self._store = store
        self._table = table
        self._secret = secret
        self._document = document
        self._allow_private = allow_private
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._serve())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _serve(self) -> None:
        async with httpx.AsyncClient(follow_redirects=False, trust_env=False) as http:
            while True:
                sent = 0
                try:
                    due = await self._claim()
                    sent = len(due)
                    await asyncio.gather(*(self._deliver(http, one) for one in due))
                except Problem as problem:
                    _log.warning("webhooks wait", detail=problem.detail)
                except Exception:  # noqa: BLE001 - what comes later must be sent
                    _log.exception("webhooks wait")
                if not sent:
                    await asyncio.sleep(LOOK_SECONDS)

    async def _claim(self) -> list[_Delivery]:
        """Webhooks that are due, reserved for this process for a while."""

        def claim(connection: Connection) -> list[_Delivery]:
            due = (
                select(deliveries.c.id)
                .where(deliveries.c.due <= time.time())
                .order_by(deliveries.c.due)
                .limit(MOST_AT_ONCE)
                .with_for_update(skip_locked=True)
            )
            ids = connection.execute(due).scalars().all()
            mine = (
                update(deliveries)
                .where(deliveries.c.id.in_(ids))
                .values(attempts=deliveries.c.attempts + 1, due=time.time() + CLAIM_SECONDS)
                .returning(*(deliveries.c[name] for name in ("id", "job", "tenant", "url", "attempts")))
            )
            return [_Delivery(*row) for row in connection.execute(mine)]

        return await self._store.write(claim)

    async def _deliver(self, http: httpx.AsyncClient, one: _Delivery) -> None:
        failure: str | None
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                failure = await self._send(http, one)
        except TimeoutError:
            failure = f"no answer within {ATTEMPT_SECONDS:g} s"
        due = None
        if failure is not None and one.attempts <= len(PAUSES):
            due = time.time() + PAUSES[one.attempts - 1] * random.uniform(1, 1.2)
        changes: dict[str, Any] = {"due": due, "failure": failure}
        here = update(deliveries).where(deliveries.c.id == one.id, deliveries.c.attempts == one.attempts)
        await self._store.write(lambda connection: connection.execute(here.values(changes)))
        _log.info("webhook", job=one.job, attempt=one.attempts, failure=failure, again=due is not None)

    async def _send(self, http: httpx.AsyncClient, one: _Delivery) -> str | None:
        """Send once; None where it has arrived, else why not."""
        try:
            job = await self._table.get(one.tenant, one.job)
        except Problem as problem:
            if problem.kind.code == "job-not-found":
                return None  # nobody is interested any more
            raise
        url = httpx.URL(one.url)
        try:
            address = await self._resolved(url.host, url.port or (443 if url.scheme == "https" else 80))
        except OSError as error:
            return f"{url.host} is not known: {error}"
        if address is None:
            return f"{url.host} is not an address of the public Internet"
        body, now = self._document(job), int(time.time())
        headers = {
            "Host": url.netloc.decode(),
            "Content-Type": "application/json",
            "webhook-id": one.id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(self._secret, one.id, now, body),
            **({"traceparent": job.trace} if job.trace else {}),
        }
        request = http.build_request(
            "POST", url.copy_with(host=str(address)), content=body, headers=headers,
            timeout=ATTEMPT_SECONDS, extensions={"sni_hostname": url.host},
        )  # fmt: skip
        try:
            response = await http.send(request, stream=True)
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"[:200]
        await response.aclose()  # what it says is of no interest
        return None if response.is_success else f"status {response.status_code}"

    async def _resolved(self, host: str, port: int) -> Address | None:
        """The address to connect to; None where any address of the host may not be connected to."""
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(entry[4][0]) for entry in entries]
        if not self._allow_private and not all(map(_is_public, addresses)):
            return None
        return addresses[0]


def _is_public(address: Address) -> bool:
    """Whether an address is one of the public Internet, also where it wraps one of IPv4."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
    return address.is_global and not address.is_multicast
