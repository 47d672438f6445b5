"""The arenas of plans for C that README and the pages state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples.models import mnist, mobilenet_v2
from solver.documents import load_graph
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("document", "arena_bytes"),
    [
        (mnist(32), 19_917_952),
        (mobilenet_v2(), 400_256_384),
    ],
    ids=["mnist", "mobilenet-v2"],
)
def test_arenas_in_the_readme(document: dict[str, Any], arena_bytes: int) -> None:
    asked = RequestedOptions(PlanOptions(target="c"), automatic=False)
    planned = plan_requested(load_graph(document), asked)
    assert planned.arena_bytes == arena_bytes
    assert f" {arena_bytes:,} B " in (ROOT / "README.md").read_text(encoding="utf-8")
