"""The tables of layout figures: what a row says, and that the page shows the last run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from solver.layout import Buffer, LayoutProblem, Lifespan
from tests.benchmarks import layout, peers
from tests.benchmarks.layout import CASES, Case, measure
from tests.benchmarks.shapes import measured
from tests.support.buffers import problem
from tests.support.shapes import SHAPES

ODD = LayoutProblem((Buffer("a", 20, Lifespan(0, 2), 16), Buffer("b", 3, Lifespan(1, 3), 16)))


def rows(text: str) -> list[dict[str, str]]:
    table = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [dict(zip(table[0], row, strict=False)) for row in table[2:]]


def test_a_row_says_what_was_asked_and_reached() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    reached = Case("two", lambda _: p, many=True, runs=2, gap=0.0)
    missed = replace(reached, name="too slow", must=(0.0, 0.0))
    first, second = rows(measure(Console(quiet=True), (reached, missed)))
    assert [first[name] for name in ("buffers", "worst peak", "proof", "reached")] == [
        "2",
        "8",
        "max-load",
        "yes",
    ]
    assert (second["must reach"], second["reached"]) == ("0 s, the bound", "no")


def test_every_figure_has_a_row() -> None:
    names = [(case.name, case.capacity, case.seconds) for case in CASES]
    assert len(set(names)) == len(names)
    for seconds in (1, 30):
        assert ("MiniMalloc J", None, seconds) in names


def test_a_row_of_each_shape() -> None:
    for name, shape in SHAPES.items():
        made = shape(40, 1)
        assert made == shape(40, 1) != shape(40, 2), name
        assert len(made.buffers) == 40, name
        row = measured(made, 0.1)
        assert row.peak >= row.bound > 0, name
        assert row.solver.startswith("portfolio/"), name


def test_sizes_are_padded_for_those_that_know_no_alignment() -> None:
    assert [(b.id, b.size, b.alignment) for b in peers.padded(ODD).buffers] == [("0", 32, 1), ("1", 16, 1)]


@pytest.mark.skipif(
    not peers.installed(), reason="OmniMalloc, a rival to measure, is not locked: pip install '.[bench]'"
)
def test_the_rival_itself() -> None:
    rival = peers.best_rival(ODD, 0.2)
    assert rival is not None
    assert rival.peak >= 35


def test_the_page_shows_the_figures_of_the_last_run() -> None:
    text = layout.PAGE.read_text(encoding="utf-8")
    _, begins, rest = text.partition(layout.BEGIN)
    shown, ends, _ = rest.partition(layout.END)
    assert begins
    assert ends
    assert not layout.RESULTS.exists() or shown == layout.figures()
