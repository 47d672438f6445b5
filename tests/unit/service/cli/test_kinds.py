"""A command that gets a file of another kind says what it is, and names the command that takes it."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from service.cli.console import Exit
from solver.documents import parse_json
from tests.support.commands import run

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a file of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    shutil.copy(ROOT / "examples/mnist.json", folder / "graph.json")
    shutil.copy(ROOT / "examples/programs/momentum.json", folder / "program.json")
    example = json.loads((ROOT / "service/http/web/examples/buffers.json").read_text(encoding="utf-8"))
    (folder / "bare.json").write_text(json.dumps(example["problem"]), encoding="utf-8")
    (folder / "bare.csv").write_text("id,lower,upper,size\na,0,3,4\nb,1,4,4\n", encoding="utf-8")
    (folder / "net.onnx").write_bytes(b"\x08\x07\x12\x00\xff\x00")
    assert run("plan", folder / "graph.json", "-o", folder / "my plan.json").exit_code == Exit.OK
    return folder


@pytest.mark.parametrize(
    ("command", "name", "kind"),
    [
        (("plan",), "my plan.json", "a plan"),
        (("explain", "--capacity", "1MB"), "my plan.json", "a plan"),
        (("tradeoff",), "my plan.json", "a plan"),
        (("solve",), "my plan.json", "a plan"),
        (("show",), "graph.json", "a graph"),
        (("report",), "graph.json", "a graph"),
        (("export", "--to", "perfetto"), "graph.json", "a graph"),
        (("offsets",), "program.json", "a program"),
        (("solve",), "graph.json", "a graph"),
        (("show",), "bare.json", "a problem of buffers"),
        (("plan",), "bare.json", "a problem of buffers"),
        (("plan",), "bare.csv", "a problem of buffers"),
        (("show",), "bare.csv", "a problem of buffers"),
    ],
)
def test_the_right_command_is_named_and_works(
    files: Path, command: tuple[str, ...], name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    result = run(*command, name)
    assert result.exit_code == Exit.USAGE
    (line,) = result.stderr.splitlines()
    begin, _, right = line.partition(": arenaplan ")
    assert begin == f"arenaplan: {name}: this is {kind}"
    again = run(*shlex.split(right))
    assert again.exit_code == Exit.OK, again.output


@pytest.mark.parametrize("command", ["show", "solve", "report"])
def test_a_model_is_a_model_whatever_reads_it(files: Path, command: str) -> None:
    result = run(command, files / "net.onnx")
    assert result.exit_code == Exit.USAGE
    assert f"net.onnx: this is a model: arenaplan plan {files / 'net.onnx'} --loss" in result.stderr


def test_scripts_read_the_command_as_the_remedy(files: Path) -> None:
    facts = parse_json(run("show", files / "graph.json", "--json").stderr.encode())
    assert facts["remedy"] == f"this is a graph: arenaplan plan {files / 'graph.json'} -o plan.json"
    assert facts["detail"] == "The format is 'arenaplan.graph', not 'arenaplan.plan'."


@pytest.mark.parametrize("text", ['{"format": "arenaplan.poem", "version": 1}', "# A page", "", "[]"])
@pytest.mark.parametrize("command", [("plan",), ("show",), ("solve",), ("explain", "--capacity", "1MB")])
def test_nothing_on_the_command_line_is_sent(tmp_path: Path, command: tuple[str, ...], text: str) -> None:
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    result = run(*command, tmp_path / "file.json")
    assert result.exit_code == Exit.USAGE
    assert "file.json" in result.stderr
    assert "send" not in result.stderr.lower()


def test_a_document_is_not_imported(files: Path) -> None:
    result = run("import", files / "graph.json")
    assert result.stderr.endswith(f"Plan it: arenaplan plan {files / 'graph.json'} -o plan.json\n")
    assert json.loads((files / "graph.json").read_text(encoding="utf-8"))["name"] == "mnist"
