"""Tests the concurrency levels of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.documents import load_graph
from solver.graph import TrainableGraph
from solver.layout import Proof
from solver.pipeline import plan, plan_program
from solver.plan import PlanOptions
from solver.reports.arenas import LevelReport, level_report, recycling, report
from tests.support.branching import heads, inception
from tests.support.graphs import chain, convolutional, residual
from tests.support.operator_graphs import attention
from tests.support.programs import program

#: Two towers of two operations, and one that joins them.
TOWERS = (("x", "a"), ("a", "b"), ("x", "c"), ("c", "d"), ("b d", "y"))


def test_by_hand() -> None:
    """One after the other: a b | b c | b c d; two at a time: x a c | a b c d | ..."""
    made = plan_program(program(TOWERS, fed=("x",), kept=("y",)), PlanOptions(parallelism=2, alignment=4))
    assert [(s.id, s.level) for s in made.steps] == [
        ("op0", 0), ("op2", 0), ("op1", 1), ("op3", 1), ("op4", 2),
    ]  # fmt: skip
    assert made.arena_bytes == 16
    # Side by side a, b, c and d live at once; one after the other: x a, x a c, a c b, c b d, b d y.
    assert level_report(made) == LevelReport(2, steps=5, count=3, widest=2, sequential_bytes=12, unbounded=3)


def test_names_of_what_runs_at_a_time() -> None:
    made = plan_program(program(TOWERS), PlanOptions(parallelism=2))
    assert made.level_ids() == ("op0 + op2", "op1 + op3", "op4")
    assert (made.times, made.duration) == ((0, 0, 1, 1, 2), 3)
    assert report(made).arenas[0].peak_step_id == "op1 + op3"


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional(), attention()], ids=lambda g: g.name)
def test_one_after_the_other_is_a_level_a_step(graph: TrainableGraph) -> None:
    made = plan(graph)
    found = level_report(made)
    assert (found.parallelism, found.count, found.widest) == (1, len(made.steps), 1)
    assert found.sequential_bytes == made.lower_bound


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional(), attention()], ids=lambda g: g.name)
def test_side_by_side_takes_fewer_levels_and_no_fewer_bytes(graph: TrainableGraph) -> None:
    one, *more = (plan(graph, PlanOptions(parallelism=k)) for k in (1, 2, 4))
    for made in more:
        found = level_report(made)
        assert found.count < len(one.steps) == found.steps
        assert 1 < found.widest <= found.parallelism
        assert found.sequential_bytes <= made.lower_bound


def test_the_example_of_the_readme() -> None:
    graph = load_graph((Path(__file__).resolve().parents[3] / "examples/mnist.json").read_bytes())
    one, two = plan(graph), plan(graph, PlanOptions(parallelism=2))
    assert level_report(two) == LevelReport(2, 40, 27, 2, sequential_bytes=21_613_440, unbounded=27)
    assert (two.arena_bytes, two.arenas[0].certificate.proof) == (23_463_040, Proof.MAX_LOAD)
    assert f"{two.arena_bytes / one.arena_bytes - 1:.1%}" == "8.6%"


@pytest.mark.parametrize(
    ("graph", "steps", "count", "arenas"),
    [
        (inception(), 63, 35, (23_048_000, 23_357_248)),
        (heads(), 77, 41, (13_631_616, 13_762_752)),
        (chain((512,) * 7, batch=256), 32, 19, (12_070_976, 12_599_360)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_figures(graph: TrainableGraph, steps: int, count: int, arenas: tuple[int, int]) -> None:
    """Those of the benchmark in the README."""
    one, two = plan(graph), plan(graph, PlanOptions(parallelism=2))
    found = level_report(two)
    assert (found.steps, found.count, found.widest) == (steps, count, 2)
    assert (one.arena_bytes, two.arena_bytes) == arenas


def test_recycling_counts_levels() -> None:
    found = recycling(plan_program(program(TOWERS, fed=("x",), kept=("y",)), PlanOptions(parallelism=2)))
    assert [(s.id, s.allocated, s.freed) for s in found.steps] == [
        ("op0 + op2", ("a", "c"), ("x",)), ("op1 + op3", ("b", "d"), ("a", "c")), ("op4", ("y",), ("b", "d")),
    ]  # fmt: skip
    assert (found.before, found.kept) == (("x",), ("y",))
