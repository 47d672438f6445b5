"""The table of the layout figures: what a row says, and that a rival's layout is judged like our own."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from solver.importers import load_minimalloc
from solver.layout import Buffer, LayoutProblem, Lifespan
from tests.benchmarks import generators, layout, peers
from tests.benchmarks.layout import CASES, Case, measure
from tests.benchmarks.peers import Rival, best_rival, padded
from tests.support.buffers import problem

ODD = LayoutProblem((Buffer("a", 20, Lifespan(0, 2), 16), Buffer("b", 3, Lifespan(1, 3), 16)))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither instances nor a rival."""
    monkeypatch.setattr(layout, "DATA", tmp_path / "nowhere")
    monkeypatch.setattr(peers, "installed", lambda: False)


def rows(text: str) -> list[dict[str, str]]:
    table = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [dict(zip(table[0], row, strict=False)) for row in table[2:]]


@pytest.mark.usefixtures("bare")
def test_a_row_says_what_was_asked_and_reached() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    reached = Case("two", lambda _: p, many=True, runs=2, gap=0.0)
    missed = replace(reached, name="too slow", must=(0.0, 0.0))
    text = measure(Console(quiet=True), (reached, missed))
    assert "Measured on " in text
    assert "; commit " in text
    first, second = rows(text)
    assert (first["buffers"], first["worst peak"], first["proof"], first["reached"]) == (
        "2",
        "8",
        "max-load",
        "yes",
    )
    assert (second["must reach"], second["reached"]) == ("0 s, the bound", "no")
    assert "growth" in text


@pytest.mark.usefixtures("bare")
def test_without_the_instances_their_rows_are_left_out() -> None:
    assert rows(measure(Console(quiet=True), tuple(case for case in CASES if not case.many))) == []


def test_every_figure_has_a_row() -> None:
    names = [(case.name, case.capacity, case.seconds) for case in CASES]
    assert len(set(names)) == len(names)
    for seconds in (1, 30):
        assert ("MiniMalloc J", None, seconds) in names


def test_sizes_are_padded_for_those_that_know_no_alignment() -> None:
    assert [(b.id, b.size, b.alignment) for b in padded(ODD).buffers] == [("0", 32, 1), ("1", 16, 1)]


def test_without_the_rival_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed", lambda: False)
    assert best_rival(ODD, 1.0) is None


def answering(monkeypatch: pytest.MonkeyPatch, offsets: dict[str, dict[str, int]]) -> None:
    """Stands for its processes: offsets by allocator; who is not named fails."""

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        path, name = command[3:5]
        assert [b.id for b in load_minimalloc(Path(path).read_bytes()).problem.buffers] == ["0", "1"]
        if name not in offsets:
            raise subprocess.CalledProcessError(1, command)
        return SimpleNamespace(stdout=json.dumps([0.5, offsets[name]]))

    monkeypatch.setattr(peers, "installed", lambda: True)
    monkeypatch.setattr(subprocess, "run", run)


def test_its_best_allocator_counts_and_only_right_layouts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(
        monkeypatch,
        {
            "omni": {"0": 0, "1": 48},
            "Supermalloc": {"0": 16, "1": 0},
            "TabuSearch": {"0": 0, "1": 16},
            "Telamalloc": {"0": 3, "1": 32},
        },
    )
    assert best_rival(ODD, 1.0) == Rival("Supermalloc", 36, 0.5)


def test_a_rival_that_only_fails_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"omni": {"0": 0, "1": 0}})
    assert best_rival(ODD, 1.0) is None


@pytest.mark.parametrize("rows", [[(5, 0, 2), (7, 1, 3)], None])
def test_what_its_generators_make_is_a_problem_where_intervals_can_say_it(
    monkeypatch: pytest.MonkeyPatch, rows: list[tuple[int, int, int]] | None
) -> None:
    def run(command: list[str], **_: Any) -> SimpleNamespace:
        assert command[3:] == ["Tiling", "2", "7"]
        return SimpleNamespace(stdout=json.dumps(rows))

    monkeypatch.setattr(subprocess, "run", run)
    assert peers.generated("Tiling", 2, 7) == (problem(*rows) if rows else None)


def test_the_same_seconds_of_the_processor_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generators, "installed", lambda: True)
    monkeypatch.setattr(generators, "generated", lambda *_: ODD)
    monkeypatch.setattr(generators, "rivals", lambda *_: [Rival("Supermalloc", 70, 0.5)])
    console = Console(width=200, record=True)
    generators.run(console)
    assert "of 0.50" in console.export_text(clear=False)
    assert f"worse than one of its allocators: 0 of {len(generators.SOURCES) * 6}" in console.export_text()


@pytest.mark.skipif(
    not peers.installed(), reason="OmniMalloc, a rival to measure, is not locked: pip install '.[bench]'"
)
def test_the_rival_itself() -> None:
    rival = best_rival(ODD, 0.2)
    assert rival is not None
    assert rival.peak >= 35


def test_the_page_shows_the_figures_of_the_last_run() -> None:
    text = layout.PAGE.read_text(encoding="utf-8")
    _, begins, rest = text.partition(layout.BEGIN)
    shown, ends, _ = rest.partition(layout.END)
    assert begins
    assert ends
    assert not layout.RESULTS.exists() or shown == layout.figures()


def test_figures_are_put_between_the_marks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page, results = tmp_path / "figures.md", tmp_path / "layout.md"
    monkeypatch.setattr(layout, "PAGE", page)
    monkeypatch.setattr(layout, "RESULTS", results)
    results.write_text("new\n", encoding="utf-8")
    page.write_text(f"before\n{layout.BEGIN}\nold\n{layout.END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        layout.publish()
        assert page.read_text(encoding="utf-8") == f"before\n{layout.BEGIN}\nnew\n{layout.END}\nafter\n"
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match="no place for the figures"):
        layout.publish()
