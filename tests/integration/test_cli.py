"""The command line as a process: what stands on which stream, and how it exits."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from service.cli.main import main
from solver import documents
from solver.plan import Plan
from tests.integration.test_bad_input import example
from tests.support.every import every, some
from tests.support.proofs import moved
from tests.support.rewritable import mobile_block
from tests.support.server import PATIENCE, ROOT, Server, running_server

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
            ("plan", "--capacity", "17.14MB", "--only", "recompute"),
            "mnist .*: recompute, [0-9,]+ bytes, .*of time",
        ),
        (("plan", "--tier", "a=14MB", "--tier", "b=1GB,bandwidth=1MB/s"), "paging, [0-9,]+ bytes moved"),
        (
            ("explain", "--capacity", "17.1MB", "--keep-training"),
            "as it is \\(recompute, [0-9,]+ bytes, .* at least [1-9]",
        ),
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
    assert process.wait(PATIENCE) == (5 if command == "explain" else 0)  # it fits after a change
    assert re.search(said, seen.decode())


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a graph and the plan of it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "graph.json").write_text(json.dumps(example("tiny")["graph"]), encoding="utf-8")
    assert inside("plan", folder / "graph.json", "-o", folder / "plan.json").exit_code == 0
    return folder


@pytest.fixture
def graph(tmp_path: Path, made: Path) -> Path:
    return Path(shutil.copy(made / "graph.json", tmp_path))


@pytest.fixture
def plan(tmp_path: Path, made: Path) -> Path:
    return Path(shutil.copy(made / "plan.json", tmp_path))


def inside(*arguments: str | Path, stdin: str = "") -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin, env={"COLUMNS": "100"})


def failed(result: subprocess.CompletedProcess[str] | Result, code: int) -> str:
    """The one line that a failed command prints, and nothing else."""
    ended = result.exit_code if isinstance(result, Result) else result.returncode
    assert ended == code, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("arenaplan: ")
    return str(line)


def plan_in(folder: Path, name: str = "plan.json") -> Plan:
    return documents.load_plan((folder / name).read_bytes())


# ---------------------------------------------------------------------------------------- plan


def test_plan(run: Run, graph: Path, plan: Path, tmp_path: Path) -> None:
    """To a file, to standard output, from standard input, and figures for scripts."""
    result = run("plan", graph, "-o", "other.json")
    assert (result.returncode, result.stderr) == (0, "")
    assert "max-load" in result.stdout
    assert f"{plan_in(tmp_path, 'other.json').arena_bytes:,}" in result.stdout
    text = plan.read_text(encoding="utf-8")
    assert (tmp_path / "other.json").read_text(encoding="utf-8") == text
    result = run("plan", "-", stdin=graph.read_text(encoding="utf-8"))
    assert (result.returncode, result.stdout, result.stderr) == (0, text, "")
    printed = inside("plan", graph)
    assert (printed.exit_code, printed.stdout, printed.stderr) == (0, text, "")
    facts = json.loads(inside("plan", graph, "-o", plan, "--json").stdout)
    assert facts["arena_bytes"] == facts["lower_bound"] > 0
    assert (facts["gap"], facts["arenas"][0]["proof"]) == (0, "max-load")


def test_options(graph: Path, tmp_path: Path) -> None:
    options = ["--batch", "4", "--alignment", "16", "--capacity", "1MiB", "--deadline", "30"]
    more = ["--scratch-budget", "64KiB", "--update", "end", "--solver", "greedy", "--target", "reference"]
    assert inside("plan", graph, "-o", tmp_path / "plan.json", *options, *more).exit_code == 0
    found = plan_in(tmp_path).options
    assert (found.batch, found.alignment, found.capacity, found.deadline_seconds) == (4, 16, 2**20, 30.0)
    assert (found.scratch_budget, found.update, found.solver) == (2**16, "end", "greedy")
    for text, size in (("24MiB", 24 * 2**20), ("1.5GB", 1_500_000_000), ("65,536", 65536)):
        sizes = ("--capacity", text, "--scratch-budget", text)
        assert inside("plan", graph, "-o", tmp_path / "plan.json", *sizes).exit_code == 0
        found = plan_in(tmp_path).options
        assert (found.capacity, found.scratch_budget) == (size, size)


def test_rewriting(tmp_path: Path) -> None:
    """The rewritten graph has the plan without rewriting: what a device needs beside the plan."""
    block, plan, smaller, other = (
        tmp_path / f"{name}.json" for name in ("block", "plan", "smaller", "other")
    )
    block.write_bytes(documents.dump_graph(mobile_block()))
    assert inside("plan", block, "-o", plan, "--rewrite").exit_code == 0
    shown = inside("show", plan)
    assert "Rewritten: bound" in shown.stdout
    assert "fold-normalization" in shown.stdout
    facts = json.loads(inside("show", plan, "--json").stdout)
    assert facts["replacements"][-1]["bytes_after"] == facts["lower_bound"]
    assert inside("validate", block, plan, "--steps", "2").exit_code == 0
    assert inside("rewritten", block, plan, "-o", smaller).exit_code == 0
    assert inside("plan", smaller, "-o", other).exit_code == 0
    first, second = plan_in(tmp_path), plan_in(tmp_path, "other.json")
    assert (first.steps, first.arenas) == (second.steps, second.arenas)
    assert inside("rewritten", smaller, plan).exit_code == 2


def test_does_not_fit(run: Run, graph: Path, tmp_path: Path) -> None:
    old = tmp_path / "plan.json"
    old.write_text("precious", encoding="utf-8")
    line = failed(run("plan", graph, "-o", old, "--capacity", "1kB"), 3)
    assert "1000" in line.replace(",", "")
    assert old.read_text(encoding="utf-8") == "precious"
    result = inside("plan", graph, "--capacity", "1000", "--json")
    facts = json.loads(result.stderr)
    assert result.exit_code == facts["exit"] == 3
    assert facts["type"] == "/problems/capacity-exceeded"
    assert facts["excess"] == facts["required"] - 1000


def test_what_is_refused_in_one_line(run: Run, graph: Path) -> None:
    with every() as case:
        for document in ("", "no json", "NaN", "[" * 10_000, '{"a": 1, "a": 2}'):
            with case(document[:20]):
                assert failed(inside("plan", "-", stdin=document), 2).startswith("arenaplan: -")
        with case("no such file"):
            assert failed(run("plan", "no.json"), 2) == "arenaplan: no.json: No such file or directory."
        with case("no such directory"):
            assert "nowhere" in failed(run("plan", graph, "-o", "nowhere/plan.json"), 2)
        with case("no plan"):
            assert "graph.json" in failed(inside("show", graph), 2)


# ------------------------------------------------------------------------------------ validate


def test_validate(run: Run, graph: Path, plan: Path, tmp_path: Path) -> None:
    result = run("validate", graph, plan, "--steps", "3")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("identical") == 3
    assert "bit for bit after each of 3 steps" in result.stdout
    report = documents.load_report(inside("validate", graph, plan, "--steps", "2", "--json").stdout.encode())
    assert report.identical
    assert [step.step for step in report.steps] in ([0, 1], [1, 2])
    # With the batch of the plan, unlike a changed plan or another graph.
    assert inside("plan", graph, "-o", tmp_path / "three.json", "--batch", "3").exit_code == 0
    assert inside("validate", graph, tmp_path / "three.json", "--steps", "1").exit_code == 0
    changed = json.loads(plan.read_bytes())
    changed["values"][0][-1] += 64
    (tmp_path / "changed.json").write_text(json.dumps(changed), encoding="utf-8")
    assert "digest" in failed(inside("validate", graph, tmp_path / "changed.json"), 2)
    graph.write_text(graph.read_text(encoding="utf-8").replace("32", "48"), encoding="utf-8")
    failed(inside("validate", graph, plan), 2)


def wrong(plan: Path) -> None:
    """Makes two buffers overlap."""
    right = documents.load_plan(plan.read_bytes())
    first, second, *_ = right.arenas[0].buffers
    plan.write_bytes(documents.dump_plan(documents.with_digest(moved(right, second.id, first.offset))))


def test_validate_a_wrong_plan(run: Run, graph: Path, plan: Path) -> None:
    wrong(plan)
    result = run("validate", graph, plan)
    assert result.returncode == 1
    assert "broken rule overlap" in result.stdout
    assert inside("validate", graph, plan, "--json").exit_code == 1
    for more in ("", "--json"):
        line = f"a validate graph.json plan.json {more} | true; exit ${{PIPESTATUS[0]}}"
        assert shell(plan.parent, line) == (1, "")


def shell(folder: Path, line: str) -> tuple[int, str]:
    """Exit code and standard error of `arenaplan`, as a shell runs the line; streams are buffered."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["bash", "-c", f'a() {{ "{sys.executable}" -m service.cli "$@"; }}; {line}'],
        cwd=folder, env={**buffered, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_reader_that_has_seen_enough(graph: Path, plan: Path) -> None:
    """`true` reads nothing, and is gone before anything is written."""
    with every() as case:
        for words in (
            "plan graph.json",
            "explain graph.json --capacity 12kB",
            "tradeoff graph.json --points 2",
            "costs graph.json --roofline",
            "validate graph.json plan.json --steps 1",
            "validate graph.json plan.json --steps 1 --json",
            "explain --help",
        ):
            with case(words):
                assert shell(plan.parent, f"a {words} | true; exit ${{PIPESTATUS[0]}}") == (0, "")


def test_streams_that_are_closed_or_full(graph: Path, plan: Path) -> None:
    with every() as case:
        for line, code, words in (
            ("a plan graph.json >&-", 2, "standard output: it is closed."),
            ("a costs graph.json --roofline >&-", 2, "standard output: it is closed."),
            ("a plan graph.json -o other.json >&-", 0, ""),
            ("a validate graph.json plan.json --steps 1 >&-", 0, ""),
            ("a plan - <&-", 2, "The document is empty"),
            ("a costs nosuch.json 2>&-", 2, ""),
            ("a costs nosuch.json 2>/dev/full", 2, ""),
            ("a explain --help >/dev/full", 2, "No space left on device"),
            ("a tradeoff graph.json --points 2 >/dev/full", 2, "No space left on device"),
        ):
            with case(line):
                ended, said = shell(plan.parent, line)
                assert ended == code
                assert words in said
                assert "bug" not in said


# ------------------------------------------------------------------------------ show, and the rest


def test_show(run: Run, plan: Path) -> None:
    result = run("show", plan, "--width", "72")
    assert (result.returncode, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 72
    for word in ("max-load", "parameter", "live at the peak", "step 0", "offset"):
        assert word in result.stdout
    facts = json.loads(inside("show", plan, "--json").stdout)
    assert facts["arenas"][0]["live_bytes"] == facts["arena_bytes"]
    assert sum(kind["bytes"] for kind in facts["kinds"]) == facts["bytes_without_reuse"]


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout.startswith("arenaplan ")
    for command in ([], ["plan"], ["validate"], ["show"], ["serve"]):
        result = inside(*command, "--help")
        assert result.exit_code == 0
        assert "Exit codes" in result.stdout
    text = " ".join(inside("plan", "--help").stdout.split())
    for kind in ("Graph document", "program document", "ONNX (.onnx)", ".tflite", "nntrainer's (.ini)"):
        assert kind in text


def test_help_is_quick() -> None:
    """Slow imports happen only in the commands that need them."""
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
    }
    modules = set(loaded.stdout.split())
    assert heavy & modules == set()
    # Of documents the face alone, which loads the others when they are asked for.
    assert [name for name in modules if name.startswith("solver.documents.")] == []


@pytest.mark.parametrize("encoding", some(["latin-1"], beside=["ascii"]))
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
        "documents.load_planned = lambda _data: 1 / 0\nmain()"
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


def processor_seconds(process: int) -> float:
    """The time that a process has run on a processor."""
    times = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files of a process are looked at")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_no_paging_file_is_left_behind(
    graph: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    tiers = ("--tier", "fast=12kB", "--tier", "slow=1MB,bandwidth=1MB/s")
    assert inside("plan", graph, *tiers, "-o", tmp_path / "paged.json").exit_code == 0
    before = sorted(path.name for path in tmp_path.iterdir())
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "validate", "graph.json", "paged.json", "--steps", "1000000",
         "--paging-file", "slow.bin"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    late = time.monotonic() + PATIENCE
    # The paging file has no name, or its own; the documents are open before it, while modules are loaded.
    while not any(
        name.startswith(f"{tmp_path}/") and not name.endswith(".json") for name in open_files(process.pid)
    ):
        assert process.poll() is None
        assert time.monotonic() < late
        time.sleep(0.01)
    # Kernels are loaded behind that, in less time. Python tells of a signal that meets a module as it loads.
    opened = processor_seconds(process.pid)
    while processor_seconds(process.pid) < opened + 0.5:
        assert process.poll() is None
        assert time.monotonic() < late
        time.sleep(0.01)
    process.send_signal(number)
    with process:
        assert process.wait(PATIENCE) == code
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_plans_is_ended(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """While steps are looked for that run again, in compiled code for the most part: no plan is written."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "plan", ROOT / "examples/mobilenet_v2.json",
         "--only", "recompute",
         "--capacity", "171MB", "-o", "plan.json"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while b"recompute" not in seen:  # the search has begun, which takes ten seconds and more
        seen += os.read(ours, 1 << 16)
    process.send_signal(number)
    assert process.wait(PATIENCE) == code
    os.close(ours)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serve_stops_cleanly(number: signal.Signals, code: int) -> None:
    with running_server("--workers", "1") as server:
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE) == code
        server.kill()
        assert "no event" not in [event["event"] for event in server.log]
        assert server.log[-1]["event"].startswith("Finished")


def test_a_port_that_is_taken(run: Run, server: Server) -> None:
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
