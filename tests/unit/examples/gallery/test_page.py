"""The figures on the page of the gallery are those of today's plans; its example of the builder runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from arenaplan.builder import Model
from examples.gallery import GALLERY
from solver.plan import PlanOptions
from tests.support.every import grid

PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/gallery.md"
TEXT = PAGE.read_text(encoding="utf-8")


def row(name: str) -> str:
    """The line that the page should have."""
    model = GALLERY[name].model()
    made = model.plan(PlanOptions())
    arena = made.arenas[0]
    apart = sum(buffer.size for buffer in arena.buffers)
    figures = (model.parameters, len(made.steps), len(arena.buffers), apart, arena.size)
    return f"| {name} | {' | '.join(f'{figure:,}' for figure in figures)} |"


@grid("name", GALLERY)
def test_figures(name: str) -> None:
    assert row(name) in TEXT.splitlines()


def test_names() -> None:
    assert re.findall(r"^\| (\w+) \| [\d,]+ \| [\d,]+ \|", TEXT, re.MULTILINE) == list(GALLERY)


def test_builder() -> None:
    code = TEXT.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    model = names["model"]
    assert isinstance(model, Model)
    assert model.graph.operands["conv2.out"].shape == (32, 10, 10, 16)
    assert model.validate(steps=1).identical
