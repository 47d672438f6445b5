"""What importing the proof brings along: types and operator facts, no search and nothing compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Of the layout the proof knows the model: buffers, lifespans, certificates, and how they are checked.
_OF_LAYOUT = {"bounds", "check", "model"}

#: What makes plans, and what runs them.
_MAKERS = {"schedules", "passes", "preparations", "pipeline", "targets", "training", "executor"}


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules of a fresh process behind ``import solver.verify``."""
    script = "import sys, solver.verify; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    return set(run.stdout.split())


def test_neither_compiler_nor_constraint_solver_is_loaded(loaded: set[str]) -> None:
    assert {name.split(".")[0] for name in loaded} & {"numba", "llvmlite", "ortools"} == set()


def test_no_layout_search_is_loaded(loaded: set[str]) -> None:
    layout = {name.split(".")[2] for name in loaded if name.startswith("solver.layout.")}
    assert layout <= _OF_LAYOUT


def test_nothing_that_makes_or_runs_a_plan_is_loaded(loaded: set[str]) -> None:
    assert {name.split(".")[1] for name in loaded if name.startswith("solver.")} & _MAKERS == set()
