"""Fair queueing: tenants share the time of the workers, whatever each of them sends.

Each tenant has an account of the seconds for which workers have worked for it. Of all tenants with tickets,
the one with the lowest account is next; among its own tasks the small ones go first, four of them to one
large one. A tenant that comes back after a pause starts at the level of the others: it saves nothing up, and
keeps its debts (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996; costs are charged when they are
known).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

__all__ = ["FairQueue", "Ticket"]

T = TypeVar("T")

#: Small tasks of a tenant that may pass a large one of its own.
SMALL_IN_A_ROW: Final = 4
#: Accounts of tenants who want nothing; beyond it they are closed, debts and all.
MOST_ACCOUNTS: Final = 10_000


@dataclass(eq=False, frozen=True, slots=True)
class Ticket(Generic[T]):
    """A place in the queue; the owner of the queue signals its turn by `turn`.

    `patient` tickets do not count against the limit, and never have to leave.
    """

    tenant: str
    large: bool
    turn: T
    patient: bool = False


@dataclass(slots=True)
class _Account(Generic[T]):
    """Tickets by whether they are large; `seconds` of what is finished, and when the rest began."""

    seconds: float
    waiting: dict[bool, deque[Ticket[T]]] = field(default_factory=lambda: {False: deque(), True: deque()})
    began: list[float] = field(default_factory=list)
    small_in_a_row: int = 0

    def __len__(self) -> int:
        return len(self.waiting[False]) + len(self.waiting[True])

    @property
    def idle(self) -> bool:
        return not (len(self) or self.began)

    def used(self, now: float) -> float:
        return self.seconds + sum(now - began for began in self.began)


class FairQueue(Generic[T]):
    """At most `limit` may wait, three quarters of them with large tasks.

    `add`, `begin` and `end` take constant time, the others time that grows with the tenants that wait.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._accounts: dict[str, _Account[T]] = {}
        self._level = 0.0
        self._waiting = {False: 0, True: 0}

    def __len__(self) -> int:
        return self._waiting[False] + self._waiting[True]

    def add(self, ticket: Ticket[T]) -> None:
        account = self._account(ticket.tenant)
        if account.idle:
            account.seconds = max(account.seconds, self._level)
        account.waiting[ticket.large].append(ticket)
        self._waiting[ticket.large] += not ticket.patient

    def remove(self, ticket: Ticket[T]) -> None:
        """Nothing happens where it does not wait any more."""
        account = self._accounts.get(ticket.tenant)
        if account is not None and ticket in account.waiting[ticket.large]:
            account.waiting[ticket.large].remove(ticket)
            self._waiting[ticket.large] -= not ticket.patient

    def next(self, *, large: bool = True) -> Ticket[T] | None:
        """Remove and return the next ticket; without `large`, of a small task. None if no ticket waits."""
        now = self._clock()
        waiting = [
            one for one in self._accounts.values() if one.waiting[False] or (large and one.waiting[True])
        ]
        if not waiting:
            return None
        account = min(waiting, key=lambda one: one.used(now))
        self._level = max(self._level, account.used(now))
        small, others = account.waiting[False], account.waiting[True]
        take_small = bool(small) and (not large or not others or account.small_in_a_row < SMALL_IN_A_ROW)
        ticket = (small if take_small else others).popleft()
        account.small_in_a_row = account.small_in_a_row + 1 if take_small else 0
        self._waiting[ticket.large] -= not ticket.patient
        return ticket

    def begin(self, tenant: str) -> float:
        """A worker begins to work for a tenant; what is returned is given to `end`."""
        now = self._clock()
        self._account(tenant).began.append(now)
        return now

    def end(self, tenant: str, began: float) -> float:
        """The worker is done; the seconds that it has worked are charged, and returned."""
        account, seconds = self._account(tenant), self._clock() - began
        account.began.remove(began)
        account.seconds += seconds
        return seconds

    def full(self, *, large: bool) -> bool:
        """Whether a ticket can be added only if another one leaves."""
        share = self._limit - self._limit // 4
        return len(self) >= self._limit or (large and len(self) > 0 and self._waiting[True] >= share)

    def leaver(self, tenant: str, *, large: bool) -> Ticket[T] | None:
        """The ticket that leaves a full queue for a newcomer: the last of the tenant with the most tickets.

        None where that tenant would not have more than the newcomer's even then.
        """
        kinds = (True, False) if len(self) >= self._limit else (True,)

        def counted(account: _Account[T] | None) -> list[Ticket[T]]:
            """The last one first, large ones before small ones."""
            waiting = account.waiting if account else {True: (), False: ()}
            return [one for kind in kinds for one in reversed(waiting[kind]) if not one.patient]

        longest = max(map(counted, self._accounts.values()), key=len, default=[])
        return longest[0] if len(longest) >= len(counted(self._accounts.get(tenant))) + 2 else None

    def _account(self, tenant: str) -> _Account[T]:
        account = self._accounts.get(tenant)
        if account is None:
            if len(self._accounts) >= MOST_ACCOUNTS:
                self._accounts = {name: one for name, one in self._accounts.items() if not one.idle}
            account = self._accounts[tenant] = _Account(self._level)
        return account
