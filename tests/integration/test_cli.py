"""The command line as a process: what stands on which stream, and how it exits."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.cli.main import main
from solver import documents
from tests.support.graphs import convolutional
from tests.support.proofs import moved
from tests.support.rewritable import mobile_block
from tests.support.server import PATIENCE, ROOT, running_server

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`arenaplan ARGUMENT...` in a directory of its own."""

    def start(
        *arguments: str | Path, stdin: str = "", encoding: str = "utf-8"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "service.cli", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
            input=stdin,
            capture_output=True,
            text=True,
            encoding=encoding,
            timeout=PATIENCE,
            check=False,
        )

    return start


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("plan", "--capacity", "17.14MB", "--recompute"),
            "mnist .*: recompute, [0-9,]+ bytes, .*of time",
        ),
        (("plan", "--tier", "a=14MB", "--tier", "b=1GB,bandwidth=1MB/s"), "paging, [0-9,]+ bytes moved"),
        (("explain", "--capacity", "17.1MB"), "as it is \\(recompute, [0-9,]+ bytes, .* at least [1-9]"),
        (("tradeoff", "--points", "4"), "looking for schedules of mnist: recompute, [0-9,]+ bytes, "),
    ],
)
def test_a_terminal_sees_what_is_searched_for(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """Which of the figures depends on how often the terminal is written to."""
    command, *options = words
    output = ("-o", str(tmp_path / "out.json")) if command == "plan" else ()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", command, ROOT / "examples/mnist.json", *options, *output],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 1 << 16):
            seen += part
    except OSError:  # Linux says so at the end
        pass
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    assert re.search(said, seen.decode())


@pytest.fixture
def graph(tmp_path: Path, tiny: dict[str, Any]) -> Path:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(tiny), encoding="utf-8")
    return path


@pytest.fixture
def plan(run: Run, graph: Path, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    assert run("plan", graph, "-o", path).returncode == 0
    return path


def failed(result: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line that a failed command prints, and nothing else."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("arenaplan: ")
    return line


# ---------------------------------------------------------------------------------------- plan


def test_plan_to_a_file(run: Run, graph: Path, tmp_path: Path) -> None:
    result = run("plan", graph, "-o", "plan.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert "max-load" in result.stdout
    made = documents.load_plan((tmp_path / "plan.json").read_bytes())
    assert f"{made.arena_bytes:,}" in result.stdout


def test_plan_to_standard_output(run: Run, graph: Path, plan: Path) -> None:
    result = run("plan", graph)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == plan.read_text(encoding="utf-8")


def test_plan_from_standard_input(run: Run, graph: Path, plan: Path) -> None:
    assert run("plan", "-", stdin=graph.read_text(encoding="utf-8")).stdout == plan.read_text(
        encoding="utf-8"
    )


def test_plan_for_scripts(run: Run, graph: Path) -> None:
    result = run("plan", graph, "-o", "plan.json", "--json")
    facts = json.loads(result.stdout)
    assert facts["arena_bytes"] == facts["lower_bound"] > 0
    assert facts["gap"] == 0
    assert facts["arenas"][0]["proof"] == "max-load"


def test_options(run: Run, graph: Path, tmp_path: Path) -> None:
    options = ["--batch", "4", "--alignment", "16", "--capacity", "1MiB", "--deadline", "30"]
    more = ["--scratch-budget", "64KiB", "--update", "end", "--solver", "greedy", "--target", "reference"]
    assert run("plan", graph, "-o", "plan.json", *options, *more).returncode == 0
    made = documents.load_plan((tmp_path / "plan.json").read_bytes()).options
    assert (made.batch, made.alignment, made.capacity, made.deadline_seconds) == (4, 16, 2**20, 30.0)
    assert (made.scratch_budget, made.update, made.solver) == (2**16, "end", "greedy")


@pytest.mark.parametrize(
    ("text", "size"), [("24MiB", 24 * 2**20), ("1.5GB", 1_500_000_000), ("65536", 65536)]
)
def test_sizes(run: Run, graph: Path, tmp_path: Path, text: str, size: int) -> None:
    assert run("plan", graph, "-o", "plan.json", "--capacity", text, "--scratch-budget", text).returncode == 0
    made = documents.load_plan((tmp_path / "plan.json").read_bytes()).options
    assert (made.capacity, made.scratch_budget) == (size, size)


@pytest.mark.parametrize("command", ["plan", "solve"])
@pytest.mark.parametrize("text", ["20,971,520", "0.5", "5 apples"])
def test_what_is_not_a_size(run: Run, graph: Path, command: str, text: str) -> None:
    result = run(command, graph, "--capacity", text)
    assert result.returncode == 2
    assert "give bytes, or a number with kB, MB, GB, KiB, MiB or GiB." in " ".join(result.stderr.split())


def test_rewriting(run: Run, tmp_path: Path) -> None:
    (tmp_path / "block.json").write_bytes(documents.dump_graph(mobile_block()))
    assert run("plan", "block.json", "-o", "plan.json", "--rewrite").returncode == 0
    shown = run("show", "plan.json")
    assert "Rewritten: bound" in shown.stdout
    assert "fold-normalization" in shown.stdout
    facts = json.loads(run("show", "plan.json", "--json").stdout)
    assert facts["replacements"][-1]["bytes_after"] == facts["lower_bound"]
    assert run("validate", "block.json", "plan.json", "--steps", "2").returncode == 0


def test_recomputation(run: Run) -> None:
    model = ROOT / "examples/mnist.json"
    capacity = ("--capacity", "17.2MB")
    made = run("plan", model, *capacity, "--recompute", "-o", "plan.json")
    assert made.returncode == 0
    assert "recomputed: 3 steps run again" in " ".join(made.stdout.split())
    shown = run("show", "plan.json", "--width", "120")
    assert "no order and no recomputation takes less than 17,035,072" in " ".join(shown.stdout.split())
    assert "conv1.out@again1" in shown.stdout
    facts = json.loads(run("show", "plan.json", "--json").stdout)["recomputation"]
    assert facts["extra"] == facts["bound"] > 0
    assert [one["step"] for one in facts["repetitions"]]
    assert run("validate", model, "plan.json", "--steps", "1").returncode == 0
    refused = run("plan", model, "--capacity", "16MB", "--recompute", "-o", "plan.json")
    assert refused.returncode == 3
    assert "takes less than 17,035,072 bytes" in " ".join(refused.stderr.split())


def test_a_rewritten_graph_has_the_plan_without_rewriting(run: Run, tmp_path: Path) -> None:
    """What a device needs beside the plan."""
    (tmp_path / "block.json").write_bytes(documents.dump_graph(mobile_block()))
    assert run("plan", "block.json", "-o", "plan.json", "--rewrite").returncode == 0
    assert run("rewritten", "block.json", "plan.json", "-o", "smaller.json").returncode == 0
    assert run("plan", "smaller.json", "-o", "other.json").returncode == 0
    made, other = (
        documents.load_plan((tmp_path / name).read_bytes()) for name in ("plan.json", "other.json")
    )
    assert (made.steps, made.arenas) == (other.steps, other.arenas)
    assert run("rewritten", "smaller.json", "plan.json").returncode == 2


def test_parallelism(run: Run, graph: Path, tmp_path: Path) -> None:
    """Planned on levels, told about, trained on threads, and the bits are those of one step at a time."""
    path = tmp_path / "levels.json"
    summary = json.loads(run("plan", graph, "--parallelism", "2", "-o", path, "--json").stdout)
    made = documents.load_plan(path.read_bytes())
    assert made.options.parallelism == 2
    assert summary["levels"]["count"] == made.duration < summary["levels"]["steps"] == len(made.steps)
    shown = run("show", path, "--width", "132").stdout
    assert f"parallelism 2: {len(made.steps)} steps on {made.duration} levels, at most 2 at the same" in shown
    assert "live at level" in shown
    assert "Identical" in run("validate", graph, path).stdout


def test_in_place(run: Run, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_bytes(documents.dump_graph(convolutional()))
    assert run("plan", "net.json", "-o", "plan.json", "--in-place").returncode == 0
    assert documents.load_plan((tmp_path / "plan.json").read_bytes()).options.in_place
    assert "In place: 2 values" in " ".join(run("show", "plan.json").stdout.split())
    assert "Identical" in run("validate", "net.json", "plan.json", "--steps", "2").stdout
    assert run("plan", "net.json", "-o", "singa.json", "--in-place", "--target", "singa").returncode == 0
    assert run("show", "singa.json").returncode == 0


def test_another_target(run: Run, graph: Path, tmp_path: Path) -> None:
    result = run("plan", graph, "-o", "plan.json", "--target", "onert")
    assert result.returncode == 0
    assert run("show", "plan.json").returncode == 0


def test_does_not_fit(run: Run, graph: Path, tmp_path: Path) -> None:
    old = tmp_path / "plan.json"
    old.write_text("precious", encoding="utf-8")
    line = failed(run("plan", graph, "-o", old, "--capacity", "1kB"), 3)
    assert "1000" in line.replace(",", "")
    assert old.read_text(encoding="utf-8") == "precious"


def test_does_not_fit_for_scripts(run: Run, graph: Path) -> None:
    result = run("plan", graph, "--capacity", "1000", "--json")
    facts = json.loads(result.stderr)
    assert result.returncode == facts["exit"] == 3
    assert facts["type"] == "/problems/capacity-exceeded"
    assert facts["excess"] == facts["required"] - 1000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('"version": 1', "version"),
        ('"type": "Gemm"', "Gemn"),
        ('"shape": [16, 32]', "w1"),
    ],
)
def test_bad_graphs(run: Run, graph: Path, change: str, words: str) -> None:
    replacement = {"version": '"version": 2', "Gemn": '"type": "Gemn"', "w1": '"shape": [17, 32]'}[words]
    text = graph.read_text(encoding="utf-8")
    assert change in text
    graph.write_text(text.replace(change, replacement, 1), encoding="utf-8")
    line = failed(run("plan", graph), 2)
    assert line.startswith(f"arenaplan: {graph}#/")
    assert words in line


@pytest.mark.parametrize("text", ["", "no json", "NaN", "[" * 10_000, '{"a": 1, "a": 2}'])
def test_no_json(run: Run, text: str) -> None:
    assert failed(run("plan", "-", stdin=text), 2).startswith("arenaplan: -")


def test_missing_file(run: Run) -> None:
    assert failed(run("plan", "missing.json"), 2) == "arenaplan: missing.json: No such file or directory."


def test_a_directory_that_cannot_be_written(run: Run, graph: Path) -> None:
    assert "nowhere" in failed(run("plan", graph, "-o", "nowhere/plan.json"), 2)


@pytest.mark.parametrize(
    "options",
    [
        ["--target", "moon"],
        ["--solver", "magic"],
        ["--update", "never"],
        ["--batch", "0"],
        ["--alignment", "48"],
        ["--deadline", "-1"],
        ["--parallelism", "0"],
        ["--parallelism", "65"],
        ["--parallelism", "2", "--target", "onert"],
        ["--in-place", "--target", "onert"],
    ],
)
def test_bad_options(run: Run, graph: Path, options: list[str]) -> None:
    failed(run("plan", graph, *options), 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan"],
        ["plan", "g", "--batch", "many"],
        ["plan", "g", "--capacity", "1.5"],
        ["fly"],
        ["show", "--width", "3", "p"],
    ],
)
def test_bad_usage(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "Usage" in result.stderr


# ------------------------------------------------------------------------------------ validate


def test_validate(run: Run, graph: Path, plan: Path) -> None:
    result = run("validate", graph, plan, "--steps", "3")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("identical") == 3
    assert "bit for bit after each of 3 steps" in result.stdout


def test_validate_for_scripts(run: Run, graph: Path, plan: Path) -> None:
    report = documents.load_report(run("validate", graph, plan, "--steps", "2", "--json").stdout.encode())
    assert report.identical
    assert [step.step for step in report.steps] in ([0, 1], [1, 2])


def test_validate_a_wrong_plan(run: Run, graph: Path, plan: Path) -> None:
    made = documents.load_plan(plan.read_bytes())
    first, second, *_ = made.arenas[0].buffers
    plan.write_bytes(documents.dump_plan(documents.with_digest(moved(made, second.id, first.offset))))
    result = run("validate", graph, plan)
    assert result.returncode == 1
    assert "broken rule overlap" in result.stdout
    assert run("validate", graph, plan, "--json").returncode == 1


def shell(folder: Path, line: str) -> tuple[int, str]:
    """Exit code and standard error of `arenaplan`, as a shell runs the line; streams are buffered."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", f'a() {{ "{sys.executable}" -m service.cli "$@"; }}; {line}'],
        cwd=folder, env={**buffered, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "plan graph.json",
        "explain graph.json --capacity 12kB",
        "tradeoff graph.json --points 2",
        "costs graph.json --roofline",
        "validate graph.json plan.json --steps 1",
        "validate graph.json plan.json --steps 1 --json",
        "explain --help",
    ],
)
def test_a_reader_that_has_seen_enough(plan: Path, words: str) -> None:
    """`true` reads nothing, and is gone before anything is written."""
    assert shell(plan.parent, f"a {words} | true; exit ${{PIPESTATUS[0]}}") == (0, "")


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_reader_that_has_seen_enough_of_a_wrong_plan(run: Run, graph: Path, plan: Path, more: str) -> None:
    test_validate_a_wrong_plan(run, graph, plan)
    line = f"a validate graph.json plan.json {more} | true; exit ${{PIPESTATUS[0]}}"
    assert shell(plan.parent, line) == (1, "")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("a plan graph.json >&-", 2, "standard output: it is closed."),
        ("a costs graph.json --roofline >&-", 2, "standard output: it is closed."),
        ("a plan graph.json -o other.json >&-", 0, ""),
        ("a validate graph.json plan.json --steps 1 >&-", 0, ""),
        ("a plan - <&-", 2, "The document is empty"),
        ("a costs nosuch.json 2>&-", 2, ""),
        ("a costs nosuch.json 2>/dev/full", 2, ""),
        ("a explain --help >/dev/full", 2, "No space left on device"),
        ("a tradeoff graph.json --points 2 >/dev/full", 2, "No space left on device"),
    ],
)
def test_streams_that_are_closed_or_full(plan: Path, line: str, code: int, said: str) -> None:
    found = shell(plan.parent, line)
    assert found[0] == code
    assert said in found[1]
    assert "bug" not in found[1]


def test_validate_a_changed_plan(run: Run, graph: Path, plan: Path) -> None:
    changed = json.loads(plan.read_bytes())
    changed["values"][0][-1] += 64
    plan.write_text(json.dumps(changed), encoding="utf-8")
    assert "digest" in failed(run("validate", graph, plan), 2)


def test_validate_with_another_graph(run: Run, graph: Path, plan: Path) -> None:
    graph.write_text(graph.read_text(encoding="utf-8").replace("32", "48"), encoding="utf-8")
    failed(run("validate", graph, plan), 2)


def test_validate_with_the_batch_of_the_plan(run: Run, graph: Path) -> None:
    assert run("plan", graph, "-o", "plan.json", "--batch", "3").returncode == 0
    assert run("validate", graph, "plan.json", "--steps", "1").returncode == 0


# ------------------------------------------------------------------------------ show, and the rest


def test_show(run: Run, plan: Path) -> None:
    result = run("show", plan, "--width", "72")
    assert (result.returncode, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 72
    for word in ("max-load", "parameter", "live at the peak", "step 0", "offset"):
        assert word in result.stdout


def test_show_for_scripts(run: Run, plan: Path) -> None:
    facts = json.loads(run("show", plan, "--json").stdout)
    assert facts["arenas"][0]["live_bytes"] == facts["arena_bytes"]
    assert sum(kind["bytes"] for kind in facts["kinds"]) == facts["bytes_without_reuse"]


def test_show_what_is_no_plan(run: Run, graph: Path) -> None:
    assert "graph.json" in failed(run("show", graph), 2)


def test_plan_says_what_it_reads(run: Run) -> None:
    text = " ".join(run("plan", "--help").stdout.split())
    for kind in ("Graph document", "program document", "ONNX (.onnx)", ".tflite", "nntrainer's (.ini)"):
        assert kind in text


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout.startswith("arenaplan ")
    for command in ([], ["plan"], ["validate"], ["show"], ["serve"]):
        result = run(*command, "--help")
        assert result.returncode == 0
        assert "Exit codes" in result.stdout


def test_help_is_quick() -> None:
    """What takes long to import is imported by what needs it."""
    script = "import sys, service.cli.commands; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8"
    )
    heavy = {
        "numpy",
        "ortools",
        "fastapi",
        "pydantic",
        "uvicorn",
        "structlog",
        "solver.graph",
        "solver.documents",
    }
    assert heavy & set(loaded.stdout.split()) == set()


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_streams_that_cannot_encode_everything(
    run: Run, graph: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and tables become ASCII, JSON escapes; the exit codes are the same as ever."""
    text = graph.read_text(encoding="utf-8").replace('"perceptron"', '"größe 重量"').replace('"w1"', '"重量"')
    graph.write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    made = run("plan", graph, "-o", "plan.json", encoding=encoding)
    assert (made.returncode, made.stderr) == (0, "")
    assert ("größe" if encoding == "latin-1" else "gr\\xf6\\xdfe") + " \\u91cd\\u91cf" in made.stdout
    for width in ("72", "40"):
        shown = run("show", "plan.json", "--width", width, encoding=encoding)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "digest " in shown.stdout
    facts = run("show", "plan.json", "--json", encoding=encoding)
    assert json.loads(facts.stdout)["graph"] == "größe 重量"
    refused = run("plan", graph, "--capacity", "1000", "--json", encoding=encoding)
    assert refused.returncode == 3
    assert any("重量" in live["operand"] for live in json.loads(refused.stderr)["live_at_peak"])
    assert "missing-\\u91cd.json" in failed(run("show", "missing-重.json", encoding=encoding), 2)
    trained = run("validate", graph, "plan.json", "--steps", "1", encoding=encoding)
    assert (trained.returncode, trained.stderr) == (0, "")


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_not_foreseen_is_a_bug_and_no_verdict(as_json: bool, tmp_path: Path) -> None:
    """Exit code 4, with the traceback; 1 would say that the plan is wrong."""
    script = (
        "from service.cli import show\nfrom service.cli.main import main\n"
        "from solver import documents\n"
        "documents.load_plan = lambda _data: 1 / 0\nmain()"
    )
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-c", script, "show", "plan.json", *(["--json"] if as_json else [])],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert (result.returncode, result.stdout) == (4, "")
    if as_json:
        said = json.loads(result.stderr)
        assert (said["exit"], "ZeroDivisionError" in said["traceback"]) == (4, True)
    else:
        *_, last = result.stderr.splitlines()
        assert last.startswith("arenaplan: This is a bug of arenaplan: ZeroDivisionError: division by zero")
        assert "Traceback" in result.stderr


def test_a_bug_outside_of_every_command_is_a_bug_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_more: str) -> None:
        raise KeyError("impossible")

    monkeypatch.setattr("service.cli.commands.app", broken)
    monkeypatch.setattr(sys, "argv", ["arenaplan", "--version"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 4
    assert "This is a bug of arenaplan: KeyError" in capsys.readouterr().err


def test_a_reader_that_leaves(run: Run, graph: Path) -> None:
    """As in `arenaplan plan graph.json | head -1`: no traceback."""
    command = f"{sys.executable} -m service.cli plan {graph} | true"
    result = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert result.stderr == ""


def test_progress_is_for_terminals(graph: Path, plan: Path) -> None:
    """On a terminal a bar is drawn on standard error; standard output has the report alone."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "service.cli", "validate", str(graph), str(plan), "--steps", "2"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        drawn = read_terminal(ours)
        assert process.stdout is not None
        assert b"bit for bit" in process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    assert b"training" in drawn


def read_terminal(terminal: int) -> bytes:
    """Everything written to a terminal until the last writer has closed it."""
    seen = b""
    while select.select([terminal], [], [], PATIENCE)[0]:
        try:
            seen += os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side has closed
            break
    return seen


def open_files(process: int) -> list[str]:
    found = []
    for file in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            found.append(str(file.readlink()))
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files of a process are looked at")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_paging_file_is_left_behind(
    run: Run, graph: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    tiers = ("--tier", "fast=12kB", "--tier", "slow=1MB,bandwidth=1MB/s")
    assert run("plan", graph, *tiers, "-o", tmp_path / "paged.json").returncode == 0
    before = sorted(path.name for path in tmp_path.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "validate", "graph.json", "paged.json", "--steps", "1000000",
         "--paging-file", "slow.bin"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    late = time.monotonic() + PATIENCE
    while not any(name.startswith(f"{tmp_path}/") for name in open_files(process.pid)):
        assert process.poll() is None
        assert time.monotonic() < late
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(PATIENCE) == code
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_plans_is_ended_at_once(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """While steps are looked for that run again, in compiled code for the most part."""
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "plan", ROOT / "examples/mobilenet_v2.json", "--recompute",
         "--capacity", "171MB", "-o", "plan.json"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    time.sleep(3.0)
    assert process.poll() is None
    process.send_signal(number)
    began = time.monotonic()
    assert process.wait(PATIENCE) == code
    assert time.monotonic() - began < 2.0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serve_stops_cleanly(number: signal.Signals, code: int) -> None:
    with running_server("--workers", "1") as server:
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE) == code
        server.kill()
        assert "no event" not in [event["event"] for event in server.log]
        assert server.log[-1]["event"].startswith("Finished")


def test_a_port_that_is_taken(run: Run) -> None:
    with running_server("--workers", "1") as server:
        port = server.url.rpartition(":")[2]
        result = run("serve", "--port", port)
    assert failed(result, 2) == f"arenaplan: 127.0.0.1:{port}: Address already in use."


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("arenaplan so", ["solve"]),
        ("arenaplan solve --cap", ["--capacity"]),
        ("arenaplan plan --sc", ["--scratch-budget"]),
    ],
)
def test_completion(run: Run, line: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the words before the cursor are those of the fast path."""
    monkeypatch.setenv("_ARENAPLAN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    for arguments in ((), ("solve", "problem.csv")):
        assert run(*arguments).stdout.split() == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_completion(run: Run, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shown = run("--show-completion", shell)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "_ARENAPLAN_COMPLETE" in shown.stdout


def test_a_bad_setting(run: Run) -> None:
    assert "ARENAPLAN_LOG_FORMAT" in failed(run("serve", "--log-format", "xml"), 2)
