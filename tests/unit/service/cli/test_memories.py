"""The command line with memories that kernels reach: what `plan`, `show`, `solve`, exports say of homes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from solver.documents import dump_graph, load_plan
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier
from solver.reports.records import homes
from tests.support.graphs import chain

GRAPH = chain((16,) * 7, batch=64)
TCM, PSRAM = "tcm=16kB,read=4GB/s,write=4GB/s", "psram=1MiB,read=80MB/s,write=60MB/s,latency=1us"
WORDS = ["--memory", TCM, "--memory", PSRAM]
MEMORIES = (Tier("tcm", 16_000, 4 * 10**9, 4 * 10**9), Tier("psram", 2**20, 80 * 10**6, 60 * 10**6, 1000))


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_bytes(dump_graph(GRAPH))
    return path


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_homes_are_printed_shown_reported_and_exported(graph: Path, tmp_path: Path) -> None:
    written = tmp_path / "plan.json"
    code, printed = run("plan", graph, *WORDS, "--as-written", "--place", "*@grad=psram", "-o", written)
    assert code == 0
    made = load_plan(written.read_bytes())
    assert made == plan(GRAPH, PlanOptions(memories=MEMORIES, place=("*@grad=psram",)))
    placed = homes(made)
    assert placed is not None
    assert [use.used for use in placed.memories] == list(made.sizes)
    words = f"{placed.memories[0].used:,} of 16,000 bytes in tcm"
    assert words in " ".join(printed.split())
    assert placed.proof in " ".join(printed.split())
    assert words in " ".join(run("show", written)[1].split())
    shown = json.loads(run("show", written, "--json")[1])
    assert shown["homes"]["accesses"] == placed.accesses
    assert run("report", written, "-o", tmp_path / "plan.html")[0] == 0
    assert "homes: " + words in (tmp_path / "plan.html").read_text()
    assert run("export", written, "-o", tmp_path / "plan.h")[0] == 0
    header = (tmp_path / "plan.h").read_text()
    for name, size in zip(("TCM", "PSRAM"), made.sizes, strict=True):
        assert f"_ARENA_BYTES_{name} {size}u" in header
        assert f"_PLACEMENT_{name}" in header
    assert run("validate", graph, written, "--steps", "1")[0] == 0
