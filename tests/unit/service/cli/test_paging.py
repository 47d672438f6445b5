"""The command line with several memories: options, what `plan` and `show` say, and the paging file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.cli.show import facts, render
from solver.documents import dump_graph, dump_plan, load_plan
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier
from solver.reports.records import paging
from tests.support.graphs import chain

TIERS = (Tier("sram", 20_000), Tier("flash", 2**20, 45_000_000, 20_000_000, 100_000))
WORDS = ["--tier", "sram=20kB", "--tier", "flash=1MiB,read=45MB/s,write=20MB/s,latency=100us"]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_bytes(dump_graph(chain((16,) * 7, batch=64)))
    return path


def run(*words: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(word) for word in words])
    return found.exit_code, found.output


def test_what_is_moved_is_printed(graph: Path, tmp_path: Path) -> None:
    code, printed = run("plan", graph, *WORDS, "-o", tmp_path / "plan.json")
    assert code == 0
    found = paging(load_plan((tmp_path / "plan.json").read_bytes()))
    assert found is not None
    words = " ".join(printed.split())
    assert f"paged: {found.moved_out:,} bytes out of sram and {found.moved_in:,} back" in words
    assert f"{found.moved_out:,} bytes to flash" in words
    assert "modelled time" in words


def test_show_lists_the_transfers(capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(chain((16,) * 7, batch=64), PlanOptions(tiers=TIERS))
    found = paging(made)
    assert found is not None
    render(made, 120)
    printed = capsys.readouterr().out
    assert f"Paged: without it {found.peak_before:,} bytes are live at once" in " ".join(printed.split())
    assert "page_out(" in printed
    moved = {(copy.from_tier, copy.to_tier) for copy in found.copies}
    assert moved == {("sram", "flash"), ("flash", "sram")}
    assert facts(made)["paging"]["moved_in"] == found.moved_in
    assert len(facts(made)["paging"]["copies"]) == len(found.copies)
    assert facts(plan(chain()))["paging"] is None


def test_show_of_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    render(plan(chain(), PlanOptions(tiers=(Tier("sram", 2**20), TIERS[1]))), 120)
    assert "paged: nothing, everything fits sram" in capsys.readouterr().out


def test_a_paging_file_is_counted(graph: Path, tmp_path: Path) -> None:
    made = plan(chain((16,) * 7, batch=64), PlanOptions(tiers=TIERS))
    found = paging(made)
    assert found is not None
    (tmp_path / "plan.json").write_bytes(dump_plan(made))
    words = ("validate", graph, tmp_path / "plan.json", "--steps", "2", "--paging-file", tmp_path / "paged")
    code, printed = run(*words)
    assert code == 0
    assert f"Paging file: {2 * found.moved_in:,} bytes read, {2 * found.moved_out:,} written." in printed
    code, printed = run(*words, "--json")
    assert json.loads(printed)["paged_in"] == 2 * found.moved_in
    assert not (tmp_path / "paged").exists()
