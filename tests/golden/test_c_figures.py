"""The arenas of plans for C that README states."""

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
    ("document", "megabytes"),
    [
        (mnist(32), "19.9"),
        (mobilenet_v2(), "400"),
    ],
    ids=["mnist", "mobilenet-v2"],
)
def test_arenas_in_the_readme(document: dict[str, Any], megabytes: str) -> None:
    asked = RequestedOptions(PlanOptions(target="c"), automatic=False)
    planned = plan_requested(load_graph(document), asked)
    assert f"{planned.arena_bytes / 1e6:.3g}" == megabytes
    assert f"| {megabytes} MB |" in (ROOT / "README.md").read_text(encoding="utf-8")
