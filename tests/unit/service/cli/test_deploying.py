"""`arenaplan plan` with entry points, and with several models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from service.cli.console import Exit
from service.http.examples import example
from solver.documents import dump_deployment, load_deployment, load_planned
from tests.support.commands import run
from tests.support.every import every

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
MNIST = EXAMPLES / "mnist.json"


def test_entry_points_of_one_model(tmp_path: Path) -> None:
    output = tmp_path / "plan.json"
    entries = ("--entry", "train", "--entry", "infer:batch=1", "--entry", "evaluate:batch=64")
    result = run("plan", MNIST, "--batch", "32", *entries, "--json", "-o", output)
    assert result.exit_code == Exit.OK, result.output
    summary = json.loads(result.stdout)
    assert [entry["name"] for entry in summary["entry_points"]] == ["train", "infer", "evaluate"]
    assert [entry["batch"] for entry in summary["entry_points"]] == [32, 1, 64]
    assert summary["arena_bytes"] == summary["lower_bound"] == 21_613_184
    deployment = load_planned(output.read_bytes())
    assert dump_deployment(load_deployment(output.read_bytes()), indent=2) + b"\n" == output.read_bytes()
    assert deployment.digest == summary["digest"]


def test_the_table_of_entry_points(tmp_path: Path) -> None:
    result = run("plan", MNIST, "--entry", "train", "--entry", "infer", "-o", tmp_path / "plan.json")
    assert "nothing smaller exists" in result.stdout
    assert "evaluate" not in result.stdout


def test_several_models_share_an_arena(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    shutil.copy(MNIST, other)
    refused = run("plan", MNIST, other)
    assert refused.exit_code == Exit.USAGE
    assert "--share" in refused.output
    result = run("plan", MNIST, other, "--share", "--tie", "mnist.*=other.*", "-o", "-")
    deployment = load_deployment(result.stdout.encode())
    assert [entry_point.name for entry_point in deployment.entry_points] == ["mnist", "other"]
    parameters = [row.name for row in deployment.persistent if "@" not in row.name]
    assert {name.partition(".")[0] for name in parameters} == {"mnist"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((MNIST, "--entry", "infer:batch=1", "--entry", "infer:batch=2"), "infer:batch=2,name=infer2"),
        ((MNIST, "--entry", "train", "--dim", "seq=5"), "Write the sizes into the document's `dims`"),
        ((MNIST, MNIST, "--share"), "Two models are called 'mnist'"),
        ((MNIST, "--entry", "train", "--rewrite"), "take no rewrite"),
        (
            (MNIST, "--entry", "train", "--tier", "a=1MiB", "--tier", "b=1GiB,bandwidth=9MB/s"),
            "take no tiers",
        ),
    ],
)
def test_what_is_refused(arguments: tuple[str | Path, ...], words: str, tmp_path: Path) -> None:
    result = run("plan", *arguments, "-o", tmp_path / "plan.json")
    assert result.exit_code == Exit.USAGE
    assert words in " ".join(result.output.split())
    assert not (tmp_path / "plan.json").exists()


TINY = example("tiny")["graph"]
#: Files that commands below name, in their folder.
FILES = {
    "a.json": json.dumps(TINY),
    "b.json": json.dumps(TINY),
    "fixed.json": json.dumps({**TINY, "batch": None}).replace('"batch", ', "8, "),
    "open.json": json.dumps({**TINY, "batch": None}),
    "double.json": json.dumps(TINY).replace("float32", "float64"),
    "misspelt.json": json.dumps(TINY).replace("Gemm", "Gem", 1),
    "half.json": json.dumps(TINY)[:-2],
    "steps.json": json.dumps(example("momentum")["program"]),
}

#: Arguments of plan, the exit code, and words of the one line that says what is wrong and what to do.
HOSTILE: tuple[tuple[str, Exit, str], ...] = (
    ("a.json --entry INFER", Exit.USAGE, "--entry: 'INFER' is no entry point. Write one of train"),
    ("a.json --entry infer:batch=1e3", Exit.USAGE, "--entry: 'infer:batch=1e3' is no entry point"),
    (f"a.json --entry infer:batch={'9' * 5000}", Exit.USAGE, "is no entry point"),
    ("a.json --entry infer:batch=9223372036854775808", Exit.USAGE, "--entry: The batch is"),
    ("a.json --entry infer:batch=4611686018427387904", Exit.USAGE, "a.json#/operands/0/shape: Operand 'x'"),
    ("a.json --entry infer:batch=2,batch=3", Exit.USAGE, "is no entry point"),
    ("a.json --entry infer:name=", Exit.USAGE, "is no entry point"),
    ("a.json --entry infer:name=\udcff", Exit.USAGE, "is no name of an entry point"),
    ("a.json --entry infer:name=train --entry train", Exit.USAGE, "train:name=train2"),
    ("open.json --entry train:batch=4 --entry infer", Exit.USAGE, "open.json#/operands/0/shape/0"),
    ("a.json b.json", Exit.USAGE, "--share: There are 2 models"),
    ("a.json a.json --share", Exit.USAGE, "arenaplan: Two models are called 'a'"),
    ("a.json b.json --share --entry train", Exit.USAGE, "Write one of a.train, b.train"),
    ("a.json open.json --share", Exit.USAGE, "open.json#/operands/0/shape/0"),
    ("a.json fixed.json --share --batch 4", Exit.USAGE, "fixed.json#/batch: A batch of 4"),
    ("a.json misspelt.json --share", Exit.USAGE, "misspelt.json#/operations/0/type: There is no operator"),
    ("a.json half.json --share", Exit.USAGE, "half.json: The document is not JSON"),
    ("a.json missing.json --share", Exit.USAGE, "missing.json: No such file"),
    ("a.json double.json --share --tie a.w1=double.w1", Exit.USAGE, "float64[16, 32] in 'double'"),
    ("a.json b.json --share --tie a.w1=", Exit.USAGE, "--tie: 'a.w1=' ties nothing"),
    ("a.json --entry train --costs nowhere.json", Exit.USAGE, "--costs: Entry points take no costs"),
    ("a.json --entry train --loss mse", Exit.USAGE, "--loss: 'a.json' says itself"),
    (
        "a.json --entry infer --entry train:batch=4 --capacity 8000", Exit.TOO_LARGE,
        "Entry point 'train' does not fit. No order",
    ),
    (
        "a.json --entry train:batch=4 --entry infer --capacity 8000", Exit.TOO_LARGE,
        "see what would make it fit: arenaplan explain a.json --batch 4 --capacity 8000",
    ),
    (
        "a.json --entry infer:batch=1 --entry train --capacity 3KiB", Exit.TOO_LARGE,
        "2,704 bytes are values that other entry points keep",
    ),
    (
        "a.json --entry infer:batch=1 --entry train --capacity 3KiB", Exit.TOO_LARGE,
        "Raise the capacity to at least 5,696 bytes",
    ),
)  # fmt: skip


def test_each_mistake_is_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    with every() as case:
        for arguments, code, words in HOSTILE:
            with case(arguments[:100]):
                result = run("plan", *arguments.split(), "-o", "out.json")
                (line,) = result.stderr.strip().splitlines()
                assert (result.exit_code, result.stdout) == (code, ""), line
                assert words in line
                assert not Path("out.json").exists()


def test_the_command_of_a_refusal_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text(FILES["a.json"], encoding="utf-8")
    refused = run("plan", "a.json", "--entry", "train:batch=4", "--entry", "infer", "--capacity", "8000")
    command = refused.stderr.strip().rpartition("arenaplan ")[2]
    assert run(*command.split()).exit_code in (Exit.CHANGE, Exit.TOO_LARGE)


def test_models_share_a_batch_with_programs_that_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "steps.json"):
        Path(name).write_text(FILES[name], encoding="utf-8")
    result = run("plan", "a.json", "steps.json", "--share", "--batch", "4", "-o", "-")
    deployment = load_deployment(result.stdout.encode())
    assert [e.plan.options.batch for e in deployment.entry_points] == [4, None]
