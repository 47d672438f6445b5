"""The queue of the workers: tenants get equal time, small tasks go first, nobody is shut out."""

from __future__ import annotations

import random

import pytest

from service.jobs.fair import SMALL_IN_A_ROW, FairQueue, Ticket


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Workshop:
    """One worker, and tenants who always have more to do."""

    def __init__(self, limit: int = 1000) -> None:
        self.clock = Clock()
        self.queue = FairQueue[int](limit, self.clock)

    def add(self, tenant: str, turn: int = 0, *, large: bool = False) -> Ticket[int]:
        ticket = Ticket(tenant, large, turn)
        self.queue.add(ticket)
        return ticket

    def work(self, seconds: float, *, large: bool = True) -> Ticket[int] | None:
        """Do the next task, which takes so long."""
        ticket = self.queue.next(large=large)
        if ticket is not None:
            began = self.queue.begin(ticket.tenant)
            self.clock.now += seconds
            self.queue.end(ticket.tenant, began)
        return ticket


@pytest.fixture
def shop() -> Workshop:
    return Workshop()


def test_one_tenant_is_served_in_order(shop: Workshop) -> None:
    tickets = [shop.add("a", turn) for turn in range(5)]
    assert [shop.work(1) for _ in range(5)] == tickets
    assert shop.work(1) is None


def test_four_small_tasks_to_a_large_one(shop: Workshop) -> None:
    for turn in range(12):
        shop.add("a", turn, large=turn < 2)
    done = [one.large for one in (shop.work(1) for _ in range(12)) if one]
    assert done[: 2 * (SMALL_IN_A_ROW + 1)] == ([False] * SMALL_IN_A_ROW + [True]) * 2


def test_only_small_tasks(shop: Workshop) -> None:
    shop.add("a", large=True)
    assert shop.work(1, large=False) is None
    small = shop.add("b")
    assert shop.work(1, large=False) is small
    assert len(shop.queue) == 1


@pytest.mark.parametrize("seed", range(5))
def test_tenants_get_the_same_time_whatever_they_send(seed: int) -> None:
    """One sends tasks that take a hundred times as long as those of another, and a third both kinds."""
    shop, numbers = Workshop(), random.Random(seed)
    took = {"long": (1.0, True), "short": (0.01, False), "both": (0.1, bool(seed % 2))}
    time = dict.fromkeys(took, 0.0)
    for tenant, (_, large) in took.items():
        for turn in range(20):
            shop.add(tenant, turn, large=large)
    while shop.clock.now < 300:
        before = shop.clock.now
        ticket = shop.queue.next()
        assert ticket is not None
        began = shop.queue.begin(ticket.tenant)
        shop.clock.now += took[ticket.tenant][0] * numbers.uniform(0.5, 1.5)
        shop.queue.end(ticket.tenant, began)
        time[ticket.tenant] += shop.clock.now - before
        shop.add(ticket.tenant, large=ticket.large)
    assert max(time.values()) - min(time.values()) < 2.0


def test_time_at_work_counts_before_it_ends(shop: Workshop) -> None:
    """Else a tenant could take every worker with its first tasks."""
    shop.add("a")
    shop.add("a")
    shop.add("b")
    first = shop.queue.next()
    assert first is not None
    assert first.tenant == "a"
    shop.queue.begin("a")
    shop.clock.now += 5
    second = shop.queue.next()
    assert second is not None
    assert second.tenant == "b"


def test_a_pause_saves_nothing_up(shop: Workshop) -> None:
    """Who comes back late shares from then on; it is not owed the time in which it wanted nothing."""
    shop.add("late")
    shop.work(1)
    for turn in range(200):
        shop.add("busy", turn)
    for _ in range(100):
        shop.work(1)
    for turn in range(20):
        shop.add("late", turn)
    served = [one.tenant for one in (shop.work(1) for _ in range(20)) if one]
    assert served.count("busy") >= 9


def test_debts_stay(shop: Workshop) -> None:
    shop.add("spender", large=True)
    shop.work(100)
    shop.add("other")
    shop.work(1)
    shop.add("spender")
    other = shop.add("other")
    assert shop.work(1) is other


def test_who_leaves_a_full_queue() -> None:
    shop = Workshop(limit=8)
    for turn in range(6):
        shop.add("flood", turn, large=True)
    assert shop.queue.full(large=True)
    assert not shop.queue.full(large=False)
    last = shop.add("flood", 6)
    shop.add("other")
    assert shop.queue.full(large=False)
    leaver = shop.queue.leaver("new", large=False)
    assert leaver is not None
    assert (leaver.tenant, leaver.large, leaver.turn) == ("flood", True, 5)
    assert shop.queue.leaver("flood", large=False) is None
    shop.queue.remove(last)
    shop.queue.remove(last)
    assert len(shop.queue) == 7


def test_equal_shares_are_left_alone() -> None:
    shop = Workshop(limit=4)
    for tenant in "aabb":
        shop.add(tenant)
    assert shop.queue.leaver("a", large=False) is None
    assert shop.queue.leaver("c", large=False) is not None


def test_accounts_of_those_who_want_nothing_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.jobs.fair.MOST_ACCOUNTS", 3)
    shop = Workshop()
    for turn in range(50):
        shop.add(f"tenant {turn}")
        shop.work(1)
    waiting = shop.add("tenant 50")
    assert shop.work(1) is waiting
