"""`plan --pin --align --reserve --like` and `solve` with them: what is printed, and which usage is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.cli.console import Exit
from solver.documents import dump_graph, load_plan
from solver.plan import Plan
from tests.support.graphs import chain

MEMORIES = ["--memory", "tcm=16KiB", "--memory", "psram=1MiB,read=80MB/s,write=60MB/s"]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    path.write_bytes(dump_graph(chain((16, 16, 8), batch=4)))
    return path


def run(*words: str | Path, exit_code: int = Exit.OK) -> str:
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "300"})
    assert result.exit_code == exit_code, result.output
    return result.output


def offset(plan: Plan, label: str) -> int:
    return plan.offsets[plan.program.by_label[label]]


def test_constraints_are_repeatable(graph: Path, tmp_path: Path) -> None:
    made = tmp_path / "plan.json"
    words = ["--pin", "w1=8KiB", "--pin", "w1@grad=4096", "--align", "b*=256", "--reserve", "0..1KiB"]
    run("plan", graph, *words, "--reserve", "16KiB..1MiB", "-o", made)
    plan = load_plan(made.read_bytes())
    assert (offset(plan, "w1"), offset(plan, "w1@grad"), offset(plan, "b1") % 256) == (8192, 4096, 0)
    assert min(plan.offsets) >= 1024
    header = tmp_path / "plan.h"
    run("export", made, "-o", header)
    assert "ALIGNMENT_ARENA 256u" in header.read_text(encoding="utf-8")
    assert "Bytes [0, 1024) of it are reserved" in header.read_text(encoding="utf-8")


def test_like_says_what_stays_and_what_it_costs(graph: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    run("plan", graph, "-o", old)
    printed = run("plan", graph, "--optimizer", "adam", "--like", old, "-o", new)
    assert "persistent values" in printed
    assert "bytes more than the plan without the old one" in printed
    assert "w1@first_moment: new" in printed
    assert ", 0 elsewhere" in run("diff", old, new)
    facts = json.loads(run("diff", old, new, "--format", "json"))
    assert (facts["moved"], facts["stayed"] > 0) == ([], True)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--pin", "w1"], "--pin: 'w1' is no name with bytes. Write both, as conv1.weight=8KiB."),
        (
            ["--pin", "w1=-64"],
            "--pin: 'w1=-64' has no bytes behind the name. Give bytes, or a number with kB",
        ),
        (["--pin", "w1=0", "--pin", "w1=64"], "'w1' has two numbers of bytes, 0 and 64."),
        (["--reserve", "8"], "LOW..HIGH in bytes, as 0..8KiB"),
        (["--reserve", "-8..8"], "'-8..8'. It must be LOW..HIGH in bytes"),
        (["--pin", "w1=0", *MEMORIES], "--pin: Pins are given, and memories: the planner chooses the memory"),
        (["--align", "w1=64", *MEMORIES], "--align: Alignments are given, and memories"),
        (["--reserve", "0..64", *MEMORIES], "--reserve: Reserved bytes are given, and memories"),
        (["--memory", "tcm=8MiB,read=0"], "--memory: read=0 is no bandwidth. Give bytes a second above zero"),
        (["--pin", "w1=0", "--reserve", "0..64"], "lies in the reserved range 0..64"),
        (["--pin", "w1=0", "--pin", "b1=0"], "collide: both hold them at step"),
        (["--like", "old.json", "--entry", "infer"], "--like: Entry points cannot be planned like another"),
        (["--like", "old.json", "--server", "http://127.0.0.1:1"], "--server:"),
    ],
)
def test_what_is_wrong_is_named(graph: Path, words: list[str], printed: str) -> None:
    output = run("plan", graph, *words, "-o", graph.with_name("x.json"), exit_code=Exit.USAGE)
    assert printed in output
    assert not graph.with_name("x.json").exists()


def test_solve_takes_them(tmp_path: Path) -> None:
    table = tmp_path / "problem.csv"
    table.write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\n", encoding="utf-8")
    solved = run("solve", table, "--pin", "b=8", "--reserve", "0..3", "--align", "a=4", "-o", "-")
    rows = {row.split(",")[0]: row.split(",")[-1] for row in solved.splitlines()}
    assert (rows["a"], rows["b"]) == ("4", "8")
    assert "No buffer is called 'c'" in run("solve", table, "--pin", "c=8", exit_code=Exit.USAGE)
