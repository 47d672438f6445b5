"""Memories of a device: their sizes and speeds, and how long transfers and accesses take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Tier", "access_nanoseconds", "transfer_nanoseconds"]


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


def access_nanoseconds(memory: Tier, nbytes: int, reads: int, writes: int) -> int:
    """How long `reads` reads and `writes` writes of `nbytes` bytes take, each rounded up."""
    read, write = (-(-nbytes * 1_000_000_000 // rate) if rate else 0 for rate in (memory.read, memory.write))
    return reads * (read + memory.latency) + writes * (write + memory.latency)
