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
    find_violations,
)
from tests.support.buffers import layout, problem
from tests.support.every import every
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


def right(problem_csv: str, solution: bytes) -> bool:
    """Whether the solution places the buffers of the problem without a conflict, and nothing else."""
    given, solved = load_minimalloc(problem_csv.encode()).problem, load_minimalloc(solution).problem
    offsets = [buffer.offset for buffer in solved.buffers]
    assert None not in offsets
    found = layout(given, *(offset for offset in offsets if offset is not None))
    return [b.id for b in given.buffers] == [b.id for b in solved.buffers] and not find_violations(
        given, found
    )


# ------------------------------------------------------------------------------------------- solve


def test_tables(run: Any) -> None:
    """From a file or a stream to one; what is written is a problem with pins."""
    result = run("solve", "problem.csv", "-o", "solution.csv", "--capacity", "12")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("problem.csv: 5 buffers in 12 bytes, optimal (max-load), solver ")
    assert right(CSV, Path("solution.csv").read_bytes())
    streams = run("solve", "-", stdin=CSV)
    assert (streams.exit_code, streams.stderr) == (0, "")
    assert right(CSV, streams.stdout_bytes)
    assert run("solve", "solution.csv", "-o", "again.csv").exit_code == 0
    assert Path("again.csv").read_bytes() == Path("solution.csv").read_bytes()


def test_columns_of_tables(run: Any) -> None:
    gaps = run("solve", "-", stdin="id,lower,upper,size,gaps\na,0,9,8,3-6@0:2\nb,3,6,6,\n")
    assert gaps.exit_code == 0
    assert gaps.stdout == "id,lower,upper,size,gaps,offset\na,0,9,8,3-6@0:2,0\nb,3,6,6,,2\n"
    hinted = "id,lower,upper,size,hint\na,0,2,4,8\nb,1,3,4,0\n"
    assert run("solve", "-", "-o", "out.csv", stdin=hinted).exit_code == 0
    assert right("id,lower,upper,size\na,0,2,4\nb,1,3,4\n", Path("out.csv").read_bytes())


def test_documents(run: Any) -> None:
    """From a file or a stream, and from one kind to the other."""
    for source, target in (("problem.json", "layout.json"), ("problem.csv", "layout.JSON")):
        assert run("solve", source, "-o", target).exit_code == 0
        made = documents.load_layout(Path(target).read_bytes())
        assert made.layout.peak == PEAK
        assert find_violations(made.problem, made.layout) == ()
    assert run("solve", "problem.json", "-o", "solution.csv").exit_code == 0
    assert right(CSV, Path("solution.csv").read_bytes())
    streams = run("solve", "-", stdin="\n " + buffers_json())
    assert documents.load_layout(streams.stdout_bytes.strip()).layout.peak == PEAK
    failed(run("solve", "-", stdin=buffers_json(capacity=11)), 3)
    assert run("solve", "-", "--capacity", "12", stdin=buffers_json(capacity=11)).exit_code == 0


def test_figures_for_scripts(run: Any) -> None:
    result = run("solve", "problem.csv", "-o", "layout.json", "--json", "--solver", "greedy")
    found = json.loads(result.stdout)
    assert (found["peak"], found["lower_bound"], found["gap"], found["buffers"]) == (PEAK, PEAK, 0.0, 5)
    assert (found["status"], found["proof"], found["deterministic"]) == ("optimal", "max-load", True)
    assert found["digest"] == documents.load_layout(Path("layout.json").read_bytes()).digest


def test_distance_from_the_bound_is_said(run: Any) -> None:
    result = run("solve", "problem.csv", "-o", "solution.csv", "--solver", "bump")
    said = "problem.csv: 5 buffers in 20 bytes, 66.67% above the lower bound 12, feasible, solver bump"
    assert result.stdout.strip() == said


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


def test_does_not_fit(run: Any) -> None:
    Path("solution.csv").write_text("precious", encoding="utf-8")
    line = failed(run("solve", "problem.csv", "--capacity", "11", "-o", "solution.csv"), 3)
    assert "--capacity: " in line
    assert "12 bytes at least" in line
    assert Path("solution.csv").read_text(encoding="utf-8") == "precious"
    result = run("solve", "problem.csv", "--capacity", "11", "--json")
    found = json.loads(result.stderr)
    assert (result.exit_code, found["exit"]) == (3, 3)
    assert (found["required"], found["available"], found["excess"]) == (12, 11, 1)
    for text, said in (
        (
            "id,lower,upper,size\na,0,2,4\nb,3,4,900\n",
            "Buffer 'b' (row 2) alone has 900 bytes; the capacity is 3.",
        ),
        (buffers_json(), "Buffer 'b1' (row 1) alone has 4 bytes; the capacity is 3."),
    ):
        assert said in failed(run("solve", "-", "--capacity", "3", stdin=text), 3)


BAD = {
    # name: what is read, words of the line
    "nothing": ("", "- : The file is empty"),
    "a bad header": ("id,lower,upper\n", "-#/header: Line 1: the column size is missing"),
    "a fraction": (CSV + "b6,0,9,4.5\n", "-#/rows/5/size: Line 7: size is '4.5'"),
    "a negative number": (CSV + "b6,-1,9,4\n", "-#/rows/5/lower: Line 7: lower is -1"),
    "an empty lifespan": (CSV + "b6,9,9,4\n", "-#/rows/5/upper: Line 7: the lifespan [9, 9) is empty"),
    "an end before the start": (CSV + "b6,4,2,4\n", "-#/rows/5/upper: Line 7: the lifespan [4, 2) is empty"),
    "an id twice": (CSV + "b1,0,9,4\n", "-#/rows/5/id: Line 7: buffer 'b1' has the id of another"),
    "a gap": ("id,lower,upper,size,gaps\na,0,9,4,5-3\n", "-#/rows/0/gaps: Line 2: the gap '5-3' is empty"),
    "pins in conflict": (
        "id,lower,upper,size,offset\na,0,9,4,0\nb,0,9,4,2\n",
        "-#/rows/1/offset: Line 3: buffer 'b' is pinned where",
    ),
    "a misaligned pin": (
        "id,lower,upper,size,alignment,offset\na,0,9,4,8,4\n",
        "-#/rows/0/offset: Line 2: buffer 'a' is pinned at 4, not a multiple",
    ),
    "no JSON": ("{", "-: The document is not JSON"),
    "another document": ('{"format": "arenaplan.graph", "version": 1}', "-: this is a graph: arenaplan plan"),
    **{
        f"a document with {changes}": (
            buffers_json(buffers=[
                {"id": "a", "size": 8, "start": 0, "end": 4, "offset": 0},
                {"id": "b", "size": 8, "start": 0, "end": 4, **changes},
            ]),
            f"-#/buffers/1/{field}: ",
        )
        for field, changes in (
            ("size", {"size": -1}), ("size", {"size": 4.5}), ("end", {"start": 4, "end": 2}),
            ("id", {"id": "a"}), ("offset", {"offset": 4}), ("offset", {"offset": 24, "alignment": 16}),
            ("size", {"size": 2**60}),
        )
    },
}  # fmt: skip


def test_bad_input(run: Any) -> None:
    with every() as case:
        for command in ("solve", "compare"):
            for name, (text, words) in BAD.items():
                with case((command, name)):
                    assert words.replace("- :", "-:") in failed(run(command, "-", stdin=text), 2)


def test_bad_options(run: Any) -> None:
    both = (
        ("--solver magic", "--solver: "),
        ("--alignment 3", "--alignment: "),
        ("--deadline -1", "--deadline: "),
        ("--deadline nan", "--deadline: "),
        ("--plot map.gif", "--plot: 'map.gif' is not a file name of a picture"),
    )
    of_solve = (
        ("--solver magic", "--solver: Unknown solver 'magic'"),
        ("--plot map", "--plot: 'map' is not a file name"),
        ("--seed -1", "--seed: "),
        ("--threads 0", "--threads: "),
        ("--work -1", "--work: "),
        ("--target-gap 1e308", "--target-gap: "),
        ("--without luck", "--without: There is no rule 'luck'"),
        ("-o missing/solution.csv", "missing"),
    )
    with every() as case:
        for command, rows in (("solve", both + of_solve), ("compare", both)):
            for arguments, words in rows:
                with case((command, arguments)):
                    assert words in failed(run(command, "problem.csv", *arguments.split()), 2)


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


def test_no_file(run: Any) -> None:
    assert "absent.csv: No such file" in failed(run("solve", "absent.csv"), 2)


def test_ids_that_csv_cannot_hold(run: Any) -> None:
    named = buffers_json(buffers=[{"id": "a,b", "size": 1, "start": 0, "end": 1}])
    assert "'a,b' cannot be written to CSV" in failed(run("solve", "-", "-o", "x.csv", stdin=named), 2)


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
    assert {"solver.documents", "solver.pictures", "rich", "ortools", "PIL"} & loaded == set()


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
