"""Which modules the proof shares with the code that it checks, and what is not checked, as its pages say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import solver.verify
from solver.verify import UNCHECKED, is_unchecked
from solver.verify.proof import OBLIGATIONS

PAGE = Path(__file__).resolve().parents[3] / "docs/explanation/proof.md"


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules of a fresh process after ``import solver.verify``."""
    script = "import sys, solver.verify; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return set(run.stdout.split())


def room(module: str) -> str:
    """The package that a module belongs to; of the layout, its room."""
    depth = 3 if module.startswith("solver.layout.") else 2
    return ".".join(module.split(".")[:depth])


def test_the_paragraph_names_the_modules_that_are_loaded_and_no_others(loaded: set[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    heading = "### What the proof shares with the code that it checks"
    paragraph = page.split(heading)[1].split("## What is not checked")[0]
    docstring = (solver.verify.__doc__ or "").split("Beside itself")[1]
    rooms = {room(name) for name in loaded if name.startswith("solver.")} - {"solver.layout"}
    for text in (paragraph, docstring):
        assert set(re.findall(r"`(solver\.[\w.]+)`", text)) | {"solver.verify"} == rooms


def test_of_other_projects_only_numpy_is_loaded(loaded: set[str]) -> None:
    """No compiler and no constraint solver, though both are installed."""
    tops = {name.split(".")[0] for name in loaded if not name.startswith("_")}
    assert tops & {"numba", "llvmlite", "ortools", "pydantic", "fastapi", "httpx"} == set()
    assert "numpy" in tops


def test_the_page_lists_the_obligations_in_the_order_of_the_code_with_their_rules() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.split("### Obligations")[1].split("### Theorem")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    listed = [(cells[0].strip(), tuple(re.findall(r"`(\w+)`", cells[-1]))) for cells in rows]
    assert listed == [(o.name, o.rules) for row in OBLIGATIONS for o in row]


# ---------------------------------------------------------------------------------------- what is not checked


def test_the_page_has_every_place_and_reason() -> None:
    places_by_reason: dict[str, list[str]] = {}
    for place, reason in UNCHECKED.items():
        places_by_reason.setdefault(reason, []).append(f"`{place}`")
    table = PAGE.read_text(encoding="utf-8").partition("## What is not checked")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [f"| {' '.join(places)} | {reason} |" for reason, places in places_by_reason.items()]


def test_a_place_stands_for_what_is_inside_of_it_and_nothing_else() -> None:
    assert is_unchecked("options.costs.nanoseconds.fc1:forward")
    assert is_unchecked("options.tiers[*].bytes")
    assert not is_unchecked("options.tiers[*].bytes_more")
    assert not is_unchecked("options.tiers[*]")
    assert not is_unchecked("options")
    assert not is_unchecked("records[paging].moved_in")
