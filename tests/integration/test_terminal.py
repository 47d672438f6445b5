"""What a person sees at a terminal: summaries and commands to go on with, never a document."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from service.cli.commands import app
from solver.documents import dump_graph, load_deployment, load_plan
from tests.support.graphs import chain

ROOT: Final = Path(__file__).resolve().parents[2]

#: Seconds after which a silent command is taken for one that hangs.
PATIENCE: Final = 120

_CODES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a terminal shows at the end, in lines, and the exit code of the command."""

    lines: tuple[str, ...]
    exit_code: int

    @property
    def text(self) -> str:
        """All words with one space between, wherever lines were broken."""
        return " ".join(" ".join(self.lines).split())


def on_terminal(
    *arguments: str | Path,
    folder: Path,
    columns: int = 80,
    until: Callable[[str], bool] | None = None,
    shows_errors: bool = True,
    **environment: str,
) -> Seen:
    """Run ``arenaplan`` with these arguments in a terminal of so many columns, its input included.

    A command that does not end by itself gets SIGTERM when `until` is true of the text so far. Without
    `shows_errors` standard error, and with it progress, goes nowhere.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    usual = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", *map(str, arguments)],
        cwd=folder,
        env={**usual, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if shows_errors else subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    try:
        while select.select([ours], [], [], PATIENCE)[0]:
            written += os.read(ours, 1 << 16)
            if until is not None and until(_plain(written)):
                process.terminate()
                until = None
    except OSError:  # how Linux says that the other side has closed
        pass
    finally:
        os.close(ours)
    return Seen(tuple(_plain(written).split("\n")), process.wait(PATIENCE))


def _plain(written: bytes) -> str:
    """The text that stays: a carriage return begins its line again."""
    text = _CODES.sub("", written.decode("utf-8", "replace")).replace("\r\n", "\n")
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))


GRAPHS = {
    "mnist.json": ROOT / "examples/mnist.json",
    "my program.json": ROOT / "examples/programs/momentum.json",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, path in GRAPHS.items():
        shutil.copy(path, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands_of(seen: Seen) -> list[list[str]]:
    """The commands that stand on lines of their own, as words."""
    return [shlex.split(line)[1:] for line in seen.lines if line.startswith("  arenaplan ")]


def run(*words: str) -> Result:
    """The command with pipes for everything, in this process."""
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("name", "title"), [("mnist.json", "mnist: "), ("my program.json", "linear with momentum: ")]
)
def test_a_plan_is_summed_up_and_every_command_works(folder: Path, name: str, title: str) -> None:
    seen = on_terminal("plan", name, "--alignment", "128", folder=folder)
    assert seen.exit_code == 0
    assert title in seen.text
    assert len("\n".join(seen.lines)) < 2500
    assert '"format"' not in seen.text
    commands = commands_of(seen)
    assert commands[0] == ["plan", name, "--alignment", "128", "-o", "plan.json"]
    assert [words[0] for words in commands[1:4]] == ["show", "report", "export"]
    for words in commands:
        done = run(*words)
        assert done.exit_code == 0, done.stderr
    assert load_plan((folder / "plan.json").read_bytes()).options.alignment == 128
    assert (folder / "plan.html").read_bytes().startswith(b"<!doctype html>")
    assert "arenaplan" in (folder / "plan.h").read_text(encoding="utf-8")


def test_entry_points_are_summed_up_and_every_command_works(folder: Path) -> None:
    shutil.copy(folder / "mnist.json", folder / "other.json")
    entries = ("--entry", "mnist.train:batch=2", "--entry", "other.infer:batch=1,name=my camera")
    tie = ("--tie", "mnist.*=other.*")
    seen = on_terminal("plan", "mnist.json", "other.json", "--share", *entries, *tie, folder=folder)
    assert seen.exit_code == 0
    assert '"format"' not in seen.text
    commands = commands_of(seen)
    assert [words[0] for words in commands] == ["plan", "show", "report", "export", "show", "validate"]
    for words in commands:
        done = run(*words)
        assert done.exit_code == 0, done.stderr
    deployment = load_deployment((folder / "plan.json").read_bytes())
    assert [entry_point.name for entry_point in deployment.entry_points] == ["mnist.train", "my camera"]
    assert b"MNIST_OTHER" in (folder / "plan.h").read_bytes()
    seen = on_terminal("plan", "mnist.json", "--entry", "train", "-o", "one.json", folder=folder)
    assert ["show", "one.json", "--entry-point", "train"] in commands_of(seen)
    assert ["validate", "mnist.json", "one.json"] in commands_of(seen)


def test_a_plan_in_a_file_says_what_comes_next(folder: Path) -> None:
    seen = on_terminal("plan", "mnist.json", "-o", "out.json", folder=folder)
    assert ["show", "out.json"] in commands_of(seen)
    assert ["validate", "mnist.json", "out.json"] in commands_of(seen)
    assert all(words[0] != "plan" for words in commands_of(seen))


@pytest.mark.parametrize("output", [(), ("-o", "-"), ("--json",)])
def test_a_pipe_gets_the_document(folder: Path, output: tuple[str, ...]) -> None:
    done = run("plan", "mnist.json", *output)
    assert load_plan(done.stdout.encode()).graph == "mnist"
    assert done.stderr == ""


def test_a_terminal_gets_the_document_that_it_asks_for(folder: Path) -> None:
    seen = on_terminal("plan", "mnist.json", "-o", "-", folder=folder)
    assert '"format": "arenaplan.plan"' in seen.text


def test_a_page_is_not_written_to_a_terminal(folder: Path) -> None:
    for name in ("old.json", "new.json"):
        assert run("plan", "mnist.json", "-o", name).exit_code == 0
    for files in (("old.json",), ("old.json", "new.json")):
        seen = on_terminal("report", *files, folder=folder)
        assert seen.exit_code == 0
        assert "<" not in seen.text
        assert "21,613,184" in seen.text
        for words in commands_of(seen):
            assert run(*words).exit_code == 0
        assert run("report", *files).stdout.startswith("<!doctype html>")
    assert {"old.html", "change.html"} <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("options", "explained"),
    [
        (("--capacity", "512KiB"), ["--capacity", "512KiB"]),
        (("--capacity", "512001", "--batch", "8"), ["--batch", "8", "--capacity", "512001"]),
        (("--tier", "a=512KiB", "--tier", "b=1GiB,bandwidth=1MB/s"), ["--capacity", "512KiB"]),
    ],
)
def test_a_capacity_that_is_too_small_ends_with_the_command(
    folder: Path, options: tuple[str, ...], explained: list[str]
) -> None:
    seen = on_terminal("plan", "mnist.json", *options, folder=folder)
    assert seen.exit_code == 3
    command = seen.text.rpartition("what would make it fit: arenaplan ")[2]
    assert shlex.split(command) == ["explain", "mnist.json", *explained]


def test_a_program_that_does_not_fit_ends_with_a_command_that_works(folder: Path) -> None:
    seen = on_terminal("plan", "my program.json", "--capacity", "4KiB", folder=folder)
    assert seen.exit_code == 3
    command = shlex.split(seen.text.rpartition("what would make it fit: arenaplan ")[2])
    assert command == ["explain", "my program.json", "--capacity", "4KiB"]
    assert "impossible" in run(*command).stdout


def test_what_cannot_be_explained_is_not_offered(folder: Path) -> None:
    seen = on_terminal("plan", "mnist.json", "--capacity", "4KiB", "--target", "onert", folder=folder)
    assert seen.exit_code == 3
    assert "Raise the capacity to " in seen.text
    assert "explain" not in seen.text


@pytest.mark.parametrize("command", ["show", "tradeoff", "explain", "plan", "validate", "compare"])
def test_no_figure_is_cut_in_a_narrow_terminal(folder: Path, command: str) -> None:
    """All figures of a wide terminal stand in a narrow one, whole."""
    assert run("plan", "mnist.json", "-o", "plan.json").exit_code == 0
    (folder / "wide.json").write_bytes(dump_graph(chain((2048, 1024, 1024, 8), 2048)))
    (folder / "buffers.csv").write_text("id,lower,upper,size\na,0,3,4096\nb,1,4,1048576\n", encoding="utf-8")
    words = {
        "show": ("plan.json",),
        "tradeoff": ("mnist.json", "--points", "3"),
        "explain": ("wide.json", "--capacity", "52MB"),
        "plan": ("mnist.json",),
        "validate": ("mnist.json", "plan.json", "--steps", "1"),
        "compare": ("buffers.csv", "--solver", "greedy", "--solver", "best-fit"),
    }[command]
    wide, narrow = (
        on_terminal(command, *words, folder=folder, columns=columns, shows_errors=False)
        for columns in (160, 40)
    )
    assert narrow.exit_code == wide.exit_code
    figures = [set(re.findall(r"\d[\d,.]*,\d{3}", " ".join(seen.lines))) for seen in (wide, narrow)]
    assert figures[0] == figures[1]
    assert figures[0]
    assert "…" not in narrow.text


def test_the_service_logs_for_people_on_a_terminal(folder: Path) -> None:
    seen = on_terminal(
        "serve", "--port", "0", "--workers", "1", folder=folder, until=lambda text: "listening" in text
    )
    assert seen.exit_code == 0
    listening = next(line for line in seen.lines if "listening" in line)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d listening on (http://127\.0\.0\.1:\d+); try \1/docs\. Ctrl-C stops it\.", listening
    )
    assert not any("{" in line for line in seen.lines)
