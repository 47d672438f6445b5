"""The examples of README and docs run, and print what the pages say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from service.cli.commands import app
from tests.support.circle_models import CircleFile, dense
from tests.support.examples_in_pages import (
    NOT_RUN,
    PROGRAMS,
    Block,
    blocks,
    commands,
    lacking_program,
    matches,
    why_not_run,
)
from tests.support.server import PATIENCE, ROOT, running_server


def write_files_of_readers(folder: Path) -> None:
    """`model.onnx`, `model.circle` with `trained.npz`, `model.tflite`, and `face_detection.tflite`."""
    (folder / "model.circle").write_bytes(dense())
    (folder / "model.tflite").write_bytes(dense(b"TFL3"))
    np.savez(folder / "trained.npz", w0=np.ones((8, 4), np.float32))
    (folder / "face_detection.tflite").write_bytes(_face_detection())
    onnx.save(_classifier(), folder / "model.onnx")


def _classifier() -> onnx.ModelProto:
    """Rows of a batch that is left open, to ten logits."""
    weight = numpy_helper.from_array(np.ones((8, 10), np.float32), "weight")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["logits"])], "g", [x], [y], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def _face_detection() -> bytes:
    """Two heads: where faces are, and how sure that is."""
    file, random = CircleFile(), np.random.default_rng(2)
    x, outputs = file.input("image", (1, 12)), []
    for name, units in (("regressors", 16), ("classificators", 1)):
        weight = file.constant(f"{name} weight", random.standard_normal((units, 12)).astype(np.float32))
        outputs.append(file.tensor(name, (1, units)))
        file.operator("FULLY_CONNECTED", [x, weight, -1], outputs[-1:], "FullyConnectedOptions")
    return file.write(*outputs, identifier=b"TFL3")


#: Pages that are run by ./run parity: their examples need PyTorch, and no service.
WITH_PYTORCH = [
    ROOT / "docs" / "how-to" / "half-the-memory.md",
    ROOT / "docs" / "how-to" / "pytorch.md",
    ROOT / "docs" / "tutorials" / "own-model.md",
    ROOT / "docs" / "tutorials" / "pytorch.md",
]

#: Where the pages say that the service listens.
SHOWN_URL = "http://127.0.0.1:8080"

EVERY_PAGE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

PAGES = [
    page
    for page in EVERY_PAGE
    if page not in WITH_PYTORCH
    and any(block.language in ("python", "console", "sh") for block in blocks(page))
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(workers=1) as server:
        yield server.url


def environment(folder: Path) -> dict[str, str]:
    """The project and its commands are at hand; the terminal is narrow and has no colours."""
    commands = folder / ".commands"
    commands.mkdir(exist_ok=True)
    # The environment of ./run parity has no scripts of the project.
    script = commands / "arenaplan"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m arenaplan "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    ours = {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "NO_COLOR": "1"}
    return os.environ | ours | {"XDG_STATE_HOME": str(folder / ".state")}


def run_shell(block: Block, folder: Path, url: str) -> None:
    """The whole block; answers of the service that are errors count as failures of curl."""
    lines = [line.partition("  #")[0] for line in block.text.splitlines()]
    if all(map(words_of_arenaplan, lines)):
        for line in lines:
            code, _, complaint = run_here(line, folder)
            assert code == 0, f"line {block.line}: {line}\n{complaint}"
        return
    (folder / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n", encoding="utf-8")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text.replace(SHOWN_URL, url)],
        cwd=folder,
        env=environment(folder) | {"CURL_HOME": str(folder)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"line {block.line}: {block.text}\n{done.stdout[-2000:]}\n{done.stderr}"


def run_console(block: Block, folder: Path, url: str) -> None:
    for command in commands(block.text.replace(SHOWN_URL, url)):
        run = run_here if words_of_arenaplan(command.text) else run_in_bash
        code, printed, complaint = run(command.text, folder)
        assert code == command.code, f"line {block.line}: {command.text}\n{complaint}"
        if command.output.strip():
            assert matches(command.output, printed), f"line {block.line}: {command.text}\n{printed}"


def run_in_bash(command: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a shell command."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def run_here(command: str, folder: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of an arenaplan command, which runs in this process.

    Starting Python and importing the packages takes most of such a command's time. Other tests start the
    script itself, and so do the pages wherever the shell has more to do than to pass words on.
    """
    done = CliRunner().invoke(app, words_of_arenaplan(command), env=environment(folder))
    return done.exit_code, done.stdout, done.stderr


def words_of_arenaplan(command: str) -> list[str]:
    """The arguments of a command that runs arenaplan and asks nothing else of the shell; else none."""
    unquoted = re.sub(r"'[^']*'", "", command)
    if not command.startswith("arenaplan ") or set(unquoted) & set("|&;<>()$`*?~#"):
        return []
    return shlex.split(command)[1:]


def test_blocks_that_are_not_run_exist() -> None:
    shown = {
        (page.relative_to(ROOT).as_posix(), begins)
        for page in EVERY_PAGE
        for block in blocks(page)
        if block.language == "sh"
        for (place, begins) in NOT_RUN
        if (ROOT / place) == page and block.text.startswith(begins)
    }
    assert shown == set(NOT_RUN)


def test_blocks_that_need_programs_exist() -> None:
    for place, begins in PROGRAMS:
        assert any(b.language == "console" and b.text.startswith(begins) for b in blocks(ROOT / place))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(
    page: Path,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if left_out := run_page(page, url, tmp_path, monkeypatch, capsys):
        pytest.skip(f"All other blocks of {page.name} ran: {', '.join(left_out)}.")


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules of PyTorch's that inductor imports
@pytest.mark.parametrize("page", WITH_PYTORCH, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_with_pytorch(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A block that needs an emulator of this machine is left out: the others have compared what they print.
    run_page(page, SHOWN_URL, tmp_path, monkeypatch, capsys)


def run_page(
    page: Path,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """Run the blocks of a page in order, in a folder that holds the examples and nothing else.

    Returns the blocks whose program is not on this machine, each as a sentence.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    write_files_of_readers(tmp_path)
    place = page.relative_to(ROOT).as_posix()
    names: dict[str, Any] = {"__name__": "example"}
    left_out = []
    for block in blocks(page):
        if program := lacking_program(place, block):
            left_out.append(f"the block at line {block.line} needs {program}")
        elif block.language == "console":
            run_console(block, tmp_path, url)
        elif block.language == "sh":
            if why_not_run(place, block) is None:
                run_shell(block, tmp_path, url)
        elif block.language == "python":
            capsys.readouterr()
            code = "\n" * (block.line - 1) + block.text.replace(SHOWN_URL, url)
            exec(compile(code, str(page), "exec"), names)
        elif block.title == "prints":
            printed = capsys.readouterr().out
            assert matches(block.text, printed), f"line {block.line}:\n{printed}"
        elif block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    return left_out
