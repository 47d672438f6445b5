"""Ctrl-C while a schedule is searched for: what the process still takes, from the signal to its end.

Each row is one process of the command line that is interrupted after so many seconds of its processor time.
Processor time counts what it does after the signal, in all its threads, until the kernel has taken it down;
wall time counts what the machine's other work does to it, too. Needs Linux's /proc.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measure import ROOT

_NETWORK = ("plan", "examples/mobilenet_v2.json", "--batch", "10")

#: What is searched for, and after how many seconds of processor time it is interrupted.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
    "recompute": ((*_NETWORK, "--capacity", "178198784", "--recompute"), (0.3, 1.5, 2.5, 4.0, 6.0)),
    "paging": ((*_NETWORK, "--tier", "a=200MB", "--tier", "b=1GiB,bandwidth=4GB/s"), (1.5, 2.5, 4.0)),
}

#: Seconds between two looks at the process.
_TICK = 0.003


def run(console: Console) -> None:
    """Print the table. Takes half a minute."""
    table = Table("search", "interrupted at, s", "processor, ms", "wall, ms", "exit code", title="Ctrl-C")
    for name, (arguments, instants) in COMMANDS.items():
        for instant in instants:
            table.add_row(name, f"{instant:.1f}", *_interrupted(arguments, instant))
    console.print(table)


def _interrupted(arguments: tuple[str, ...], instant: float) -> tuple[str, ...]:
    process = subprocess.Popen(
        [sys.executable, "-m", "arenaplan", *arguments, "--json"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and _processor_seconds(process.pid) < instant:
        time.sleep(_TICK)
    if process.returncode is not None:
        return ("", "", f"{process.returncode}, before that")
    before, began = _processor_seconds(process.pid), time.perf_counter()
    process.send_signal(signal.SIGINT)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    spent = usage.ru_utime + usage.ru_stime - before
    return (f"{1e3 * max(spent, 0.0):.0f}", f"{1e3 * wall:.0f}", str(process.returncode))


def _processor_seconds(pid: int) -> float:
    """Of all threads, those included that have ended; to a hundredth."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
