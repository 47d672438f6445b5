"""What set-up compiles is all that is ever compiled: no caller waits for it later, whatever is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

#: In a process of its own: other tests call compiled functions with arguments of their own making.
_ASK = """
import random, sys
from dataclasses import fields, replace
from solver.compile import load
from solver.layout import Buffer, Lifespan, LayoutProblem, Rules, SolveOptions, solve
from solver.native import Kernel, runs_compiled
from tests.support.buffers import tight_problem
from tests.support.training_shaped import training_columns

assert load()


def forms():
    return {
        f"{name}.{key}": runs_compiled(value)
        for name, module in list(sys.modules.items()) if name.startswith("solver.layout.")
        for key, value in vars(module).items() if isinstance(value, Kernel)
    }


before = forms()
tight = tight_problem(random.Random(4))
options = [SolveOptions(work=10**6, threads=threads, seed=2**61) for threads in (1, 2)]
options += [replace(options[1], rules=Rules(**{field.name: False})) for field in fields(Rules)]
for chosen in options:
    solve(tight, options=chosen)
    solve(replace(tight, capacity=2**40), options=replace(chosen, fit=True, race=True))
pinned = [Buffer(f"p{k}", 2**40 + k, Lifespan(k, k + 2), offset=0 if k == 0 else None) for k in range(4000)]
mixed = [Buffer(f"m{k}", k + 1, Lifespan(k % 7, k % 7 + 3), 2 ** (k % 5)) for k in range(300)]
columns = training_columns(1, buffers=4000).problem()
for problem in (LayoutProblem(tuple(pinned)), LayoutProblem(tuple(mixed)), columns):
    for solver in ("portfolio", "greedy", "first-fit", "best-fit"):
        solve(problem, solver=solver, options=options[1])
assert sum(before.values()) > 5
assert "numba" not in sys.modules  # machine code, and nothing to compile
print({name: (before.get(name), count) for name, count in forms().items() if before.get(name) != count})
"""


def test_nothing_is_compiled_after_set_up() -> None:
    """Compiled for a second layout of memory, a search is deaf to deadlines for ten seconds."""
    done = subprocess.run([sys.executable, "-c", _ASK], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "{}\n"), done.stderr


#: Prints the figures of a layout, and whether numba was imported.
_ON_A_NEW_MACHINE = """
import random, sys
from solver.layout import *

draw = random.Random(1)
buffers = []
for i in range({count}):
    start, steps = draw.randrange({count}), draw.randrange(2, 40)
    holes = (Hole(Lifespan(start + 2, start + 4)),) if steps > 6 and {holes} else ()
    buffers.append(Buffer(str(i), draw.randrange(1, 1 << 20), Lifespan(start, start + steps), holes=holes))
problem, seconds = LayoutProblem(tuple(buffers)), {seconds}
options = SolveOptions(work=None if seconds else SolveOptions().work)
outcome = solve(problem, deadline=Deadline.after(seconds), options=options)
assert not find_violations(problem, outcome.layout)
layout = outcome.layout
print(layout.peak, outcome.lower_bound, hash(layout), outcome.deterministic, "numba" in sys.modules)
"""


def figures(home: Path | None, *, count: int, holes: bool, seconds: float | None) -> tuple[list[str], str]:
    """What the script prints, and its notes; without a home with the compiled code of this machine."""
    empty = {} if home is None else {"HOME": str(home), "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": ""}
    script = _ON_A_NEW_MACHINE.format(count=count, holes=holes, seconds=seconds)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **empty},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize(("count", "holes"), [(600, True), (2000, False)])
def test_a_short_deadline_on_a_new_machine_gets_a_layout(tmp_path: Path, count: int, holes: bool) -> None:
    """Compiling takes longer than the deadline, so nothing is compiled; the bound holds as ever."""
    (peak, bound, _, deterministic, numba), notes = figures(tmp_path, count=count, holes=holes, seconds=0.5)
    (best, same_bound, *_), _ = figures(None, count=count, holes=holes, seconds=None)
    assert (int(best) <= int(peak), bound, numba) == (True, same_bound, "False")
    assert holes or deterministic == "False", "a search as Python does less work"
    assert "run `python -m solver.compile` once" in notes


def test_without_a_deadline_a_new_machine_gives_the_same_layout(tmp_path: Path) -> None:
    """Whether its search is compiled in the middle, or not at all."""
    *here, _ = figures(None, count=150, holes=False, seconds=None)[0]
    *there, _ = figures(tmp_path, count=150, holes=False, seconds=None)[0]
    assert there == here
    assert there[-1] == "True"
