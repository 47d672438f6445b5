"""How much a tenant may take, and how much of it is left; told in ``RateLimit`` headers.

The form of the headers is that of draft-ietf-httpapi-ratelimit-headers-10: ``RateLimit-Policy`` says what is
allowed, ``RateLimit`` what is left (`r`) and after how many seconds there is more (`t`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from service.problems import Problem

__all__ = ["Meter", "Quotas", "hour_of"]

MINUTE: Final = 60.0
HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Quotas:
    """None: as much as there is."""

    requests_per_minute: int | None = None
    cpu_seconds_per_hour: int | None = None
    stored_bytes: int | None = None
    concurrent_requests: int | None = None


@dataclass(slots=True)
class _Account:
    """The usage of a tenant in this minute, which began with its first request, and in this hour.

    `known_cpu` is what the database had last of all processes for this hour, `fresh_cpu` and `fresh_requests`
    what it has not yet heard of; `late_cpu` of that is of the hour before.
    """

    minute_began: float = -MINUTE
    requests: int = 0
    hour: int = 0
    known_cpu: float = 0.0
    fresh_cpu: float = 0.0
    late_cpu: float = 0.0
    fresh_requests: int = 0
    at_work: int = 0
    storing: int = 0

    @property
    def cpu(self) -> float:
        return self.known_cpu + self.fresh_cpu - self.late_cpu


@dataclass(slots=True)
class Meter:
    """Counts for all tenants of this process. `quotas_of` says what applies to each."""

    quotas_of: Callable[[str], Quotas]
    clock: Callable[[], float] = time.time
    _accounts: dict[str, _Account] = field(default_factory=dict)

    @contextmanager
    def admitted(self, tenant: str, *, stored: int | None = None, more: int = 0) -> Iterator[None]:
        """Count a request; `stored` bytes are kept for the tenant already where the request stores `more`.

        Raises `Problem` ``quota``.
        """
        account, quotas = self._account(tenant), self.quotas_of(tenant)
        now = self.clock()
        if (limit := quotas.concurrent_requests) is not None and account.at_work >= limit:
            raise _exceeded("concurrency", f"{limit:,} requests at a time", 1.0)
        if (limit := quotas.requests_per_minute) is not None and account.requests >= limit:
            raise _exceeded("requests", f"{limit:,} requests a minute", account.minute_began + MINUTE - now)
        if (limit := quotas.cpu_seconds_per_hour) is not None and account.cpu >= limit:
            raise _exceeded("cpu", f"{limit:,} seconds of processor time an hour", _rest_of_hour(now))
        limit = quotas.stored_bytes
        if stored is not None and limit is not None and stored + account.storing + more > limit:
            raise _exceeded("storage", f"{limit:,} bytes stored, of which {stored:,} are taken", MINUTE)
        account.requests += 1
        account.fresh_requests += 1
        account.at_work += 1
        account.storing += more
        try:
            yield
        finally:
            account.at_work -= 1
            account.storing -= more

    def spend(self, tenant: str, cpu_seconds: float) -> None:
        """Charge processor time."""
        self._account(tenant).fresh_cpu += cpu_seconds

    def headers(self, tenant: str) -> list[tuple[str, str]]:
        """``RateLimit-Policy`` and ``RateLimit`` as they are now; none where nothing is limited."""
        account, quotas, now = self._account(tenant), self.quotas_of(tenant), self.clock()
        policies, left = [], []
        if (limit := quotas.requests_per_minute) is not None:
            policies.append(f'"requests";q={limit};w=60')
            rest = math.ceil(max(0.0, account.minute_began + MINUTE - now))
            left.append(f'"requests";r={max(0, limit - account.requests)};t={rest}')
        if (limit := quotas.cpu_seconds_per_hour) is not None:
            policies.append(f'"cpu";q={limit};w=3600;qu="cpu-seconds"')
            rest = math.ceil(_rest_of_hour(now))
            left.append(f'"cpu";r={max(0, math.floor(limit - account.cpu))};t={rest}')
        if (limit := quotas.concurrent_requests) is not None:
            policies.append(f'"concurrency";q={limit};qu="concurrent-requests"')
            left.append(f'"concurrency";r={max(0, limit - account.at_work)}')
        if (limit := quotas.stored_bytes) is not None:
            policies.append(f'"storage";q={limit};qu="content-bytes"')
        headers = [("RateLimit-Policy", ", ".join(policies))] if policies else []
        return [*headers, ("RateLimit", ", ".join(left))] if left else headers

    def take_fresh(self) -> dict[str, tuple[int, float]]:
        """Requests and processor time of tenants that the database has not heard of; they count as known."""
        taken = {}
        for tenant, account in self._accounts.items():
            if account.fresh_requests or account.fresh_cpu:
                taken[tenant] = (account.fresh_requests, account.fresh_cpu)
                account.known_cpu = account.cpu
                account.fresh_requests, account.fresh_cpu, account.late_cpu = 0, 0.0, 0.0
        return taken

    def give_back(self, taken: dict[str, tuple[int, float]]) -> None:
        """The database did not hear of it after all."""
        for tenant, (requests, cpu) in taken.items():
            account = self._account(tenant)
            account.known_cpu = max(0.0, account.known_cpu - cpu)
            account.fresh_requests += requests
            account.fresh_cpu += cpu

    def learn(self, hour: int, cpu_of: dict[str, float]) -> None:
        """Take over the usage of an hour by all processes, from the database."""
        for tenant, cpu in cpu_of.items():
            account = self._account(tenant)
            if account.hour == hour:
                account.known_cpu = cpu

    def _account(self, tenant: str) -> _Account:
        account = self._accounts.setdefault(tenant, _Account())
        now = self.clock()
        if not 0 <= now - account.minute_began < MINUTE:  # also where the clock was set back
            account.minute_began, account.requests = now, 0
        if account.hour != (hour := hour_of(now)):
            account.hour, account.known_cpu, account.late_cpu = hour, 0.0, account.fresh_cpu
        return account


def hour_of(now: float) -> int:
    """Hours since 1970."""
    return int(now // HOUR)


def _rest_of_hour(now: float) -> float:
    return HOUR - now % HOUR


def _exceeded(quota: str, limit: str, seconds: float) -> Problem:
    return Problem(
        "quota",
        f"The quota of this tenant is {limit}.",
        remedy="Send it again after the seconds in the Retry-After header, or ask for a larger quota.",
        extensions={"quota": quota},
        headers={"Retry-After": str(max(1, math.ceil(seconds)))},
    )
