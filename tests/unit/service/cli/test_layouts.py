"""`arenaplan solve` and `compare`, inside this process: what is read, written, printed, and refused."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from service.cli.commands import app
from service.cli.layouts import (
    Source,
    comparison_facts,
    comparison_table,
    interruptible,
    painter,
    progress_line,
    read_source,
    reporter,
    rules_without,
)
from solver import documents
from solver.errors import DocumentError, OptionsError
from solver.importers import load_minimalloc
from solver.layout import (
    SOLVERS,
    LayoutOptions,
    LayoutProblem,
    Outcome,
    Progress,
    Rules,
    Status,
)
from tests.support.buffers import layout, problem
from tests.support.server import PATIENCE, ROOT

CSV = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"
PEAK = 12


def buffers_json(**more: Any) -> str:
    parsed = load_minimalloc(CSV.encode()).problem
    return json.dumps({**json.loads(documents.dump_buffers(parsed)), **more})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command in a directory with both kinds of problem."""
    (tmp_path / "problem.csv").write_text(CSV, encoding="utf-8")
    (tmp_path / "problem.json").write_text(buffers_json(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def start(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, arguments, input=stdin)

    return start


# ------------------------------------------------------------------------------------------- solve


def test_options_reach_the_layout(run: Any) -> None:
    options = ["--alignment", "16", "--capacity", "1KiB", "--deadline", "30", "--solver", "greedy"]
    search = ["--work", "1000", "--seed", "7", "--threads", "1", "--race", "--target-gap", "0.5%"]
    rules = ["--without", "peel", "--without", "fill"]
    assert run("solve", "problem.csv", "-o", "layout.json", *options, *search, *rules).exit_code == 0
    made = documents.load_layout(Path("layout.json").read_bytes())
    assert made.options == LayoutOptions(
        "greedy", 1024, 16, 30.0, 1000, 7, 1, race=True, target_gap=0.005, rules=Rules(peel=False, fill=False)
    )
    assert (made.problem.capacity, made.problem.buffers[0].alignment) == (1024, 16)
    assert run("solve", "problem.csv", "-o", "layout.json", "--target-gap", "0.25").exit_code == 0
    assert documents.load_layout(Path("layout.json").read_bytes()).options.target_gap == 0.25
    for gap in ("much", "-1%", "nan", "inf", "%"):
        result = run("solve", "problem.csv", "--target-gap", gap)
        assert result.exit_code == 2, gap
        assert "share of the lower bound" in " ".join(result.stderr.split()), gap


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_plot(run: Any, suffix: str) -> None:
    if suffix == "png":
        pytest.importorskip("PIL", reason='the extra "plot" is not installed')
    assert run("solve", "problem.csv", "-o", "solution.csv", "--plot", f"map.{suffix}").exit_code == 0
    start = Path(f"map.{suffix}").read_bytes()[:4]
    assert start == (b"<svg" if suffix == "svg" else b"\x89PNG")


# ----------------------------------------------------------------------------------------- refusals


def failed(result: Result, code: int) -> str:
    """The one line of a failed command."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("arenaplan: ")
    return str(line)


def test_rules_without() -> None:
    assert rules_without(()) == Rules()
    assert rules_without(["span"]) == Rules(span=False)


# ---------------------------------------------------------------------------------------- progress


def test_progress_line() -> None:
    line = progress_line(Progress(1_018_880, 989_184, 0.034, "greedy"))
    assert line == "   0.03 s  peak 1,018,880  bound 989,184  gap 3.00%  greedy"


def source() -> Source:
    return Source("problem.csv", problem((4, 0, 3)), None, ".csv")


def test_no_terminal_no_progress() -> None:
    with reporter(source()) as progress:
        assert progress is None


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes within a tenth of a second of the line before it is not printed."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with reporter(source()) as progress:
        assert progress is not None
        for peak, seconds in ((30, 0.0), (29, 0.05), (28, 0.2)):
            progress(Progress(peak, 20, seconds, "greedy"))
    lines = [line for line in terminal.getvalue().splitlines() if " s  peak " in line]
    assert any("0.00 s  peak 30  bound 20  gap 50.00%  greedy" in line for line in lines)
    assert any("0.20 s  peak 28" in line for line in lines)


def test_control_c_ends_the_search() -> None:
    def interrupted() -> None:
        with interruptible() as cancel:
            os.kill(os.getpid(), signal.SIGINT)
            assert cancel.wait(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_interrupted_command(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, and no half-hearted answer."""

    def interrupted(*_args: Any, cancel: Event, **_more: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert cancel.wait(PATIENCE)

    monkeypatch.setattr("solver.placement.place", interrupted)
    result = run("solve", "problem.csv", "-o", "solution.csv")
    assert (result.exit_code, result.output) == (130, "")
    assert not Path("solution.csv").exists()


def test_no_png_without_the_extra(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before the search, not after it."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    line = failed(run("solve", "problem.csv", "-o", "solution.csv", "--plot", "map.png"), 2)
    assert "--plot: " in line
    assert "pillow" in line
    assert not Path("solution.csv").exists()


def test_empty_files_by_name(tmp_path: Path) -> None:
    for name, words in (("a.json", "The document is empty"), ("a.csv", "The file is empty")):
        (tmp_path / name).write_text(" \n", encoding="utf-8")
        with pytest.raises(DocumentError, match=words):
            read_source(tmp_path / name)


def test_csv_needs_neither_documents_nor_pictures(tmp_path: Path) -> None:
    """Scripts call `solve` once a model; what it does not need would be most of its time."""
    (tmp_path / "problem.csv").write_text(CSV, encoding="utf-8")
    script = (
        "import sys\nfrom service.cli.commands import app\n"
        "app(['solve', 'problem.csv', '-o', 'out.csv', '--solver', 'greedy'], standalone_mode=False)\n"
        "print(*sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=PATIENCE,
    )
    loaded = set(ran.stdout.split())
    assert [name for name in loaded if name.startswith("solver.documents.")] == []
    assert {"solver.pictures", "rich", "ortools", "PIL"} & loaded == set()


def test_painter() -> None:
    assert painter(None) is None
    with pytest.raises(OptionsError):
        painter(Path("map.pdf"))


# ----------------------------------------------------------------------------------------- compare


def test_compare(run: Any) -> None:
    result = run("compare", "problem.csv", "--deadline", "5")
    assert result.exit_code == 0, result.output
    assert "lower bound 12" in result.stdout
    assert {name for name in SOLVERS if name not in result.stdout} == set()


def test_compare_for_scripts(run: Any) -> None:
    result = run("compare", "problem.json", "--json", "--solver", "bump", "--solver", "greedy")
    found = json.loads(result.stdout)
    assert (found["buffers"], found["lower_bound"]) == (5, PEAK)
    assert [(row["solver"], row["peak"]) for row in found["solvers"]] == [("greedy", 12), ("bump", 20)]
    assert found["solvers"][1]["ratio"] == pytest.approx(20 / 12)
    assert found["solvers"][0]["proof"] == "max-load"
    assert found["solvers"][0]["seconds"] >= 0


def test_compare_aligned_and_without_the_capacity(run: Any) -> None:
    result = run("compare", "-", "--json", "--solver", "greedy", stdin=buffers_json(capacity=1))
    assert json.loads(result.stdout)["solvers"][0]["peak"] == PEAK
    result = run("compare", "problem.csv", "--json", "--solver", "greedy", "--alignment", "16")
    assert json.loads(result.stdout)["solvers"][0]["peak"] == 36


def test_compare_draws_the_winner(run: Any) -> None:
    arguments = ("--solver", "bump", "--solver", "greedy", "--plot", "map.svg")
    assert run("compare", "problem.csv", *arguments).exit_code == 0
    drawn = Path("map.svg").read_text(encoding="utf-8")
    assert "peak 12 bytes = lower bound" in drawn
    assert "solver greedy" in drawn


def test_a_solver_without_a_layout() -> None:
    """It is listed last, without figures."""
    one = problem((4, 0, 3))
    nothing = Outcome(Status.UNKNOWN, None, 4, 0, None, "some", 1.5, deterministic=False)
    facts = comparison_facts(one, {"some": nothing, "greedy": replace(nothing, layout=layout(one, 0))})
    assert [(row["solver"], row["peak"], row["ratio"]) for row in facts["solvers"]] == [
        ("greedy", 4, 1.0),
        ("some", None, None),
    ]
    assert len(comparison_table("x", facts).rows) == 2


def test_nothing_to_compare() -> None:
    assert comparison_facts(LayoutProblem(()), {}) == {"buffers": 0, "lower_bound": 0, "solvers": []}


def test_commands_are_listed() -> None:
    assert {"solve", "compare"} <= set(vars(get_command(app))["commands"])
