"""Memories of a device, from the one where kernels run to those that only hold what is paged out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solver.errors import OptionsError

__all__ = ["Tier", "check_tiers", "transfer_nanoseconds"]


@dataclass(frozen=True, slots=True)
class Tier:
    """One memory of `bytes` bytes. `read` and `write` are bytes a second, 0 where another memory decides.

    `latency` are the nanoseconds that each transfer from or to it takes besides.
    """

    name: str
    bytes: int
    read: int = 0
    write: int = 0
    latency: int = 0


def transfer_nanoseconds(source: Tier, target: Tier, nbytes: int) -> int:
    """How long a transfer takes: at the slower of both ends, behind the latencies of both."""
    rate = min(rate for rate in (source.read, target.write) if rate)
    return source.latency + target.latency - (-nbytes * 1_000_000_000 // rate)


def check_tiers(tiers: Sequence[Tier]) -> None:
    """Raises OptionsError for memories that nothing can be paged between."""
    if not tiers:
        return
    if len(tiers) == 1:
        raise OptionsError(
            f"There is nothing to page out to: the only tier is {tiers[0].name!r}.",
            remedy="Give a second tier, or the size of the first one as the capacity.",
            path=("tiers",),
        )
    names = [tier.name for tier in tiers]
    for i, tier in enumerate(tiers):
        if not tier.name or names.index(tier.name) < i:
            what = f"is called {tier.name!r}, as another one is" if tier.name else "has no name"
            raise OptionsError(
                f"Tier {i} {what}.",
                remedy="Give each tier a name of its own.",
                path=("tiers", i, "name"),
            )
        if tier.bytes < 1 or min(tier.read, tier.write, tier.latency) < 0:
            raise OptionsError(
                f"A figure of tier {tier.name!r} is out of range.",
                remedy="Give sizes of one byte or more; bandwidths and latencies are not negative.",
                path=("tiers", i),
            )
    fast = tiers[0]
    for i, tier in enumerate(tiers[1:], 1):
        for what, rates in (("written", (fast.read, tier.write)), ("read", (tier.read, fast.write))):
            if not any(rates):
                raise OptionsError(
                    f"Nothing says how fast tier {tier.name!r} is {what}.",
                    remedy=f"Give it a bandwidth above zero, as {tier.name}=1GiB,bandwidth=50MB/s, or"
                    f" give one to {fast.name!r}.",
                    path=("tiers", i),
                )
