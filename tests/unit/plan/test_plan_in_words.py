"""A plan as an interpreter and a notebook show it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from solver.graph import TrainableGraph
from solver.layout import Proof
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from tests.support.graphs import chain

PLAN = plan(chain())
SVG = "{http://www.w3.org/2000/svg}"


def test_three_lines() -> None:
    assert repr(PLAN) == (
        f"<Plan of {PLAN.graph!r}: {PLAN.arena_bytes:,} bytes in one arena,\n"
        f" lower bound {PLAN.lower_bound:,} bytes,\n"
        " proved to be the smallest for these steps; anyone can add the bound up>"
    )


@pytest.mark.parametrize(
    ("proof", "bound", "sentence"),
    [
        (Proof.SOLVER, PLAN.arena_bytes, "by a complete search"),
        (Proof.MAX_LOAD, PLAN.arena_bytes - 64, "not proved to be the smallest: 64 bytes above the bound"),
    ],
)
def test_how_it_is_proved(proof: Proof, bound: int, sentence: str) -> None:
    certificate = replace(PLAN.certificates[0], proof=proof, lower_bound=bound)
    shown = repr(replace(PLAN, certificates=(certificate,)))
    assert sentence in shown
    assert len(shown.splitlines()) == 3


def pictures(shown: Plan) -> list[ET.Element]:
    """The parsed pictures of what a notebook shows; labels are text, whatever stands in them."""
    root = ET.fromstring(f"<div>{shown._repr_html_()}</div>")
    return root.findall(f"{SVG}svg")


def test_a_notebook_shows_the_memory_map() -> None:
    (picture,) = pictures(PLAN)
    boxes = "".join(path.get("d", "") for path in picture.findall(f"{SVG}path") if path.get("fill") != "none")
    assert boxes.count("M") == len(PLAN.arenas[0].buffers)
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert any(f"{PLAN.arena_bytes:,} bytes" in text for text in texts)


def test_a_picture_for_each_arena() -> None:
    graph: TrainableGraph = chain()
    own = plan(graph, PlanOptions(target="nntrainer"))
    assert [p.find(f"{SVG}title") is not None for p in pictures(own)] == [True] * sum(
        bool(arena.buffers) for arena in own.arenas
    )


def test_names_are_no_markup() -> None:
    assert "<script" not in replace(PLAN, graph="<script>alert(1)</script>")._repr_html_()
