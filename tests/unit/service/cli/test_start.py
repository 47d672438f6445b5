"""Starting a command: which modules it loads, how many threads it starts, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.cli import layouts, planning, plans
from service.cli.main import main

ROOT = Path(__file__).resolve().parents[4]
PATIENCE = 120


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        ("plan model.json -o plan.json", "1"),
        ("plan - --batch 4", "1"),
        ("plan model.onnx -o plan.json", None),  # its constants are computed as by the other commands
        ("solve a.csv -o b.csv", "1"),
        ("show plan.json", "1"),
    ],
)
def test_what_multiplies_no_matrices_starts_no_threads_for_it(
    arguments: str, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set and then deleted, so that what main() sets is taken back.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    found: list[str | None] = []

    def end(*_: object, **__: object) -> None:
        found.append(os.environ.get("OPENBLAS_NUM_THREADS"))
        raise SystemExit(0)

    for module, name in ((planning, "asked"), (layouts, "read_source"), (plans, "read_planned")):
        monkeypatch.setattr(module, name, end)
    monkeypatch.setattr(sys, "argv", ["arenaplan", *arguments.split()])
    with pytest.raises(SystemExit) as caught:
        main()
    assert (caught.value.code, found) == (0, [threads])


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = "import sys\nfrom service.cli.main import main\ntry: main()\nfinally: print(*sys.modules)"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE,
    )


def test_solving_loads_what_it_needs(tmp_path: Path) -> None:
    """Where greedy placement meets the bound, nothing compiled; no graph, document or terminal library."""
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\n", encoding="utf-8")
    ran = run(tmp_path, "solve", "p.csv", "-o", "q.csv")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "q.csv").read_text(encoding="utf-8").startswith("id,lower,upper,size,offset\n")
    said, _, loaded = ran.stdout.partition("\n")
    assert said == "p.csv: 2 buffers in 8 bytes, optimal (max-load), solver portfolio/greedy"
    unwanted = {
        "rich",
        "numba",
        "ortools",
        "solver.graph",
        "solver.training",
    }
    assert unwanted & set(loaded.split()) == set()


def test_planning_and_showing_load_what_they_need(tmp_path: Path) -> None:
    """One target, no rules of rewriting, no kernel, nothing compiled.

    Explicit programs, curves and verdicts are for other commands.
    """
    unwanted = {
        "clients",
        "httpx",
        "solver.training.explicit",
        "solver.reports.verdict",
        "numba",
        "ortools",
        "solver.executor",
        "solver.importers",
        "solver.preparations.rewriting",
        "solver.targets.onert",
        "solver.targets.nntrainer",
        "solver.documents.buffers",
    }
    model, written = str(ROOT / "examples/mnist.json"), str(tmp_path / "plan.json")
    for arguments in (["plan", model, "-o", written], ["show", written]):
        ran = run(tmp_path, *arguments)
        assert ran.returncode == 0, ran.stderr
        assert "21,613,184 bytes" in ran.stdout
        loaded = set(ran.stdout.splitlines()[-1].split())
        assert unwanted & loaded == set()
