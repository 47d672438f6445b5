"""Limits on the memory and time of a worker, which the kernel enforces (Linux, in part elsewhere)."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["address_space", "allow_memory", "be_killed_first", "cpu_seconds", "limited", "oom_kills"]

#: Where several processes could go to free memory, the kernel takes a worker rather than the service.
_OOM_SCORE: Final = 500


def address_space() -> int:
    """Bytes of address space of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()


def allow_memory(size: int) -> None:
    """Let this process have `size` bytes of address space more than it has now, and nothing beyond."""
    if now := address_space():
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = now + size
        resource.setrlimit(
            resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
        )


@contextlib.contextmanager
def limited(limits: Mapping[str, Any]) -> Iterator[None]:
    """Memory and processor time of one task: ``worker_memory_bytes`` and ``worker_cpu_seconds``, if given.

    Beyond the first, allocations fail: MemoryError in Python, mostly SIGABRT in C++. Beyond the second
    the kernel sends SIGXCPU, which ends the process.
    """
    memory, seconds = limits.get("worker_memory_bytes"), limits.get("worker_cpu_seconds")
    kinds = [resource.RLIMIT_AS, resource.RLIMIT_CPU]
    before = [resource.getrlimit(kind) for kind in kinds]
    if memory is not None:
        allow_memory(memory)
    if seconds is not None:
        _, hard = before[1]
        soft = math.ceil(time.process_time() + seconds)
        resource.setrlimit(
            resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
        )
    try:
        yield
    finally:  # the next request must reach this process, however large it is
        for kind, limit in zip(kinds, before, strict=True):
            resource.setrlimit(kind, limit)


def be_killed_first() -> None:
    """Ask the kernel to free memory by ending this process; and to write no image of it when it fails."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_bytes(b"%d" % _OOM_SCORE)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process over all of its threads; 0 where the system does not say."""
    try:
        # Behind the name, which may hold anything: utime and stime are fields 14 and 15.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since the machine was started."""
    try:
        lines = Path("/proc/vmstat").read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))
