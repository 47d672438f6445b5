"""What set-up compiles is all that is ever compiled: no caller waits for it later, whatever is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
