"""The bytes of one update under training rules: the figures of the documentation, each equal to its bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.documents import load_graph
from solver.graph import TrainingRules
from solver.pipeline import plan

ROOT = Path(__file__).resolve().parents[2]

#: Model, examples of an update, micro-batches of it, clipping norm; bytes of the arena.
FIGURES = [
    ("mnist", 32, 1, None, 21_613_184),
    ("mnist", 32, 1, 1.0, 23_224_768),
    ("mnist", 32, 4, None, 12_941_952),
    ("mnist", 32, 4, 1.0, 12_941_952),
    ("mobilenet_v2", 10, 1, 1.0, 404_975_936),
    ("mobilenet_v2", 10, 5, None, 131_466_944),
]


@pytest.mark.parametrize(("model", "batch", "micro", "clip", "arena"), FIGURES)
def test_figures(model: str, batch: int, micro: int, clip: float | None, arena: int) -> None:
    graph = load_graph((ROOT / f"examples/{model}.json").read_bytes(), batch=batch // micro)
    rules = TrainingRules(clip_global_norm=clip, accumulate=micro)
    made = plan(graph.with_spec(rules=rules))
    assert made.arena_bytes == made.lower_bound == arena
    assert f"{arena:,} B" in (ROOT / "docs/how-to/training-rules.md").read_text(encoding="utf-8")
