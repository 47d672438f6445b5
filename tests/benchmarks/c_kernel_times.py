"""Each kernel in C with vectors and as plain loops: every step of a network's program, timed.

The program is the exported one, with a clock read behind each step. A kernel's time is the sum of its steps.
"""

from __future__ import annotations

import ctypes
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from rich.table import Table

from tests.benchmarks.trainings import compiled

__all__ = ["table", "timed"]

ROUNDS: Final = 5
#: Kernels that take less of a step's time, as a ratio, are left out: a clock is read in about a microsecond.
LEAST_SHARE: Final = 1e-3

_CLOCK: Final = """#define _POSIX_C_SOURCE 200809L
#include <time.h>
#include "batches.h"
double step_seconds[{steps}];
static double last;
static void stamp(int step)
{{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (step >= 0) step_seconds[step] = seconds - last;
    last = seconds;
}}
int begin(const unsigned char *first) {{ return net_load(first, NET_SAVED_BYTES); }}
void train(const unsigned char *batch) {{ feed(batch); net_step(); }}
"""


def table(name: str, folder: Path, flags: Sequence[str]) -> Table:
    """The kernels of the program in the folder, the slowest as plain loops first."""
    kernels = timed(folder)
    vector, plain = (
        _seconds(folder, f"times{k}.so", (*flags, *more), len(kernels))
        for k, more in enumerate(((), ("-DAP_PLAIN",)))
    )
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for kernel, v, p in zip(kernels, vector, plain, strict=True):
        sums[kernel][0] += 1
        sums[kernel][1] += v
        sums[kernel][2] += p
    rows = Table(
        "kernel",
        "steps",
        "vectors, ms",
        "plain, ms",
        "ratio",
        title=f"kernels of {name}, gcc {' '.join(flags)}",
    )
    for kernel, (steps, v, p) in sorted(sums.items(), key=lambda item: -item[1][2] / item[1][1]):
        if v >= LEAST_SHARE * sum(vector):
            rows.add_row(kernel, f"{steps:.0f}", f"{1e3 * v:,.3f}", f"{1e3 * p:,.3f}", f"{p / v:.2f}")
    return rows


def timed(folder: Path) -> list[str]:
    """Write `timed.c`, the program with clocks, and return the kernel of each step."""
    head, body = (folder / "net.c").read_text(encoding="ascii").split("net_step(void)\n", 1)
    steps, rest = body.split("\n}\n", 1)
    start, steps = steps.split(" += 1u;\n", 1)  # counts the iteration
    lines, kernels = [f"{start} += 1u;", "    stamp(-1);"], list[str]()
    for line in steps.split("\n"):
        lines.append(line)
        if not line.lstrip().startswith(("NET_ENDS", "return")):
            lines.append(f"    stamp({len(kernels)});")
            call = re.search(r"\b(ap_\w+)\(", line)
            kernels.append(call[1] if call else "(none)")
    clock = _CLOCK.format(steps=len(kernels))
    timed = f"{clock}{head}net_step(void)\n" + "\n".join(lines) + "\n}\n" + rest
    (folder / "timed.c").write_text(timed, encoding="ascii")
    return kernels


def _seconds(folder: Path, output: str, flags: Sequence[str], steps: int) -> list[float]:
    """The median CPU seconds of each step."""
    program = compiled(folder, output, [folder / "timed.c"], ("-shared", "-fPIC", *flags))
    library = ctypes.CDLL(str(program))
    assert library.begin((folder / "first.bin").read_bytes()) == 0
    batch = (folder / "batches.bin").read_bytes()
    seconds = (ctypes.c_double * steps).in_dll(library, "step_seconds")
    rounds = []
    for _ in range(ROUNDS + 1):
        library.train(batch)
        rounds.append(list(seconds))
    return [median(row) for row in zip(*rounds[1:], strict=True)]
