"""The README's figures of the gallery are those of today's plans; its example of the builder runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples import builder
from examples.builder import Model
from examples.gallery import GALLERY

README = (Path(__file__).resolve().parents[4] / "README.md").read_text(encoding="utf-8")
GALLERY_SECTION = README.partition("\n## Gallery\n")[2].partition("\n## ")[0]


def row(name: str) -> str:
    """The line that the README should have."""
    model = GALLERY[name].model()
    made = model.plan()
    arena = made.arenas[0]
    apart = sum(buffer.size for buffer in arena.buffers)
    figures = (model.parameters, len(made.steps), len(arena.buffers), apart, arena.size)
    return f"| {name} | {' | '.join(f'{figure:,}' for figure in figures)} |"


@pytest.mark.parametrize("name", GALLERY)
def test_figures(name: str) -> None:
    assert row(name) in GALLERY_SECTION.splitlines()


def test_names() -> None:
    assert re.findall(r"^\| (\w+) \| [\d,]+ \| [\d,]+ \|", GALLERY_SECTION, re.MULTILINE) == list(GALLERY)


def test_builder() -> None:
    code = GALLERY_SECTION.partition("```python\n")[2].partition("```")[0]
    names = {name: getattr(builder, name) for name in builder.__all__}
    exec(compile(code, "README.md", "exec"), names)
    model = names["model"]
    assert isinstance(model, Model)
    assert model.graph.operands["conv2.out"].shape == (32, 10, 10, 16)
    assert model.validate(steps=1).identical
