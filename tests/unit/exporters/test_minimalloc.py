"""MiniMalloc's CSV out: the columns that are needed, and in again what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import pipeline
from solver.errors import OptionsError, ProblemError
from solver.exporters import dump_minimalloc
from solver.exporters.minimalloc import dump_plan_problem
from solver.graph import TrainableGraph
from solver.importers import load_minimalloc
from solver.layout import Buffer, Hole, Layout, LayoutProblem, Lifespan, find_violations, solve
from solver.plan import JoinedPlan
from tests.support.buffers import layout, problem
from tests.support.entry_points import trained_and_used
from tests.support.graphs import chain
from tests.support.random_graphs import PLANNED, random_graphs
from tests.unit.reports.test_arenas import A, arena, buffer, plan


def test_plain() -> None:
    assert dump_minimalloc(problem((4, 0, 3), (5, 3, 9))) == b"id,lower,upper,size\nb0,0,3,4\nb1,3,9,5\n"


def test_solution() -> None:
    found = problem((4, 0, 3), (5, 2, 9))
    expected = b"id,lower,upper,size,offset\nb0,0,3,4,5\nb1,2,9,5,0\n"
    assert dump_minimalloc(found, layout(found, 5, 0)) == expected


def test_solution_of_nothing() -> None:
    assert dump_minimalloc(LayoutProblem(()), Layout((), 0)) == b"id,lower,upper,size,offset\n"
    assert dump_minimalloc(LayoutProblem(())) == b"id,lower,upper,size\n"


def test_alignment_and_pins() -> None:
    found = LayoutProblem((Buffer("a", 4, Lifespan(0, 3), 8), Buffer("b", 4, Lifespan(0, 3), 1, 16)))
    assert dump_minimalloc(found) == b"id,lower,upper,size,alignment,offset\na,0,3,4,8,\nb,0,3,4,1,16\n"


def test_gaps() -> None:
    gaps = (Hole(Lifespan(2, 4)), Hole(Lifespan(4, 5), 0, 2))
    found = LayoutProblem((Buffer("a", 4, Lifespan(0, 9), 1, None, gaps), Buffer("b", 4, Lifespan(2, 4))))
    written = dump_minimalloc(found, Layout((0, 0), 4))
    assert written == b"id,lower,upper,size,gaps,offset\na,0,9,4,2-4 4-5@0:2,0\nb,2,4,4,,0\n"
    pinned = load_minimalloc(written).problem
    assert [b.holes for b in pinned.buffers] == [gaps, ()]


@pytest.mark.parametrize("name", ["", "a,b", "a\nb", "a\x00"])
def test_ids_that_the_format_cannot_hold(name: str) -> None:
    found = LayoutProblem((Buffer("a", 1, Lifespan(0, 1)), Buffer(name, 1, Lifespan(0, 1))))
    with pytest.raises(ProblemError, match="cannot be written to CSV") as caught:
        dump_minimalloc(found)
    assert caught.value.path == ("buffers", 1, "id")


names = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"), exclude_characters=","),
    min_size=1,
)
problems = st.lists(
    st.builds(
        lambda size, start, length, shift, pin: (size, Lifespan(start, start + length), 2**shift, pin),
        st.integers(1, 100),
        st.integers(0, 50),
        st.integers(1, 50),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=8,
)


@given(problems, st.lists(names, min_size=8, max_size=8, unique=True))
def test_in_again(rows: list[tuple[int, Lifespan, int, bool]], ids: list[str]) -> None:
    """Pinned buffers are stacked, so that none overlap."""
    made = tuple(
        Buffer(name, size, span, alignment, 128 * i if pin else None)
        for i, (name, (size, span, alignment, pin)) in enumerate(zip(ids, rows, strict=False))
    )
    first = LayoutProblem(made)
    assert load_minimalloc(dump_minimalloc(first)).problem == first


def test_a_solution_pins_everything() -> None:
    """A solution read again is a problem whose only layout is that solution."""
    found = problem((4, 0, 3), (5, 2, 9), (3, 1, 4))
    outcome = solve(found, solver="greedy")
    assert outcome.layout is not None
    again = load_minimalloc(dump_minimalloc(found, outcome.layout)).problem
    assert tuple(buffer.offset for buffer in again.buffers) == outcome.layout.offsets
    assert find_violations(again, outcome.layout) == ()
    assert solve(again, solver="greedy").layout == outcome.layout


# ------------------------------------------------------------------------------------------ plans


@PLANNED
@given(random_graphs(most_operations=4))
def test_another_planner_gets_the_problem_of_all_entry_points(graph: TrainableGraph) -> None:
    """What is solved anew takes no less than the bound of the plan, and the places of the plan solve it."""
    deployment = trained_and_used(graph, "train", "infer")
    written = load_minimalloc(dump_plan_problem(JoinedPlan(deployment))).problem
    found = solve(written).layout
    assert found is not None
    assert found.peak >= deployment.lower_bound
    places = {buffer.id: buffer.offset for _, buffer in JoinedPlan(deployment).buffers()}
    planned = Layout(tuple(places[buffer.id] for buffer in written.buffers), deployment.arena_bytes)
    assert find_violations(written, planned) == ()


def test_a_plan_of_one_program() -> None:
    made = pipeline.plan(chain((3, 2), 1))
    written = load_minimalloc(dump_plan_problem(made)).problem
    assert [(b.id, b.size, b.lifespan) for b in written.buffers] == [
        (b.id, b.size, b.lifespan) for _, b in made.buffers()
    ]
    found = solve(written).layout
    assert found is not None
    assert found.peak == made.arena_bytes


def test_a_plan_of_several_memories_is_refused() -> None:
    both = plan(
        4,
        arena(8, buffer("a", A, 0, 8, 0, 4), name="sram"),
        arena(4, buffer("f", A, 0, 4, 1, 2), name="flash"),
    )
    with pytest.raises(OptionsError, match=r"has sram, flash\. Write .* --to offsets-csv"):
        dump_plan_problem(both)
