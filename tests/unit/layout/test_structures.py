"""Each structure against its theorem; anything else is left alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver.layout import (
    Buffer,
    LayoutProblem,
    Lifespan,
    Rules,
    SolveOptions,
    find_violations,
    max_load,
    solve,
)
from solver.layout.model.instance import Instance, layout_of
from solver.layout.structures import STRUCTURES, coloured, depth, in_classes, structured
from tests.support.buffers import best_peak, problem, random_problem
from tests.support.shapes import SHAPES, nested

#: A structure, a shape that has it.
PROMISED = [("uniform", "equal sizes"), ("chain", "chain"), ("laminar", "nested")]


def found(p: LayoutProblem) -> dict[str, int]:
    """Structures of a problem with the peak of each, which is that of a right layout."""
    instance, peaks = Instance.of(p), {}
    for name, offsets in structured(instance):
        placed = layout_of(instance, offsets)
        assert find_violations(p, placed) == ()
        peaks[name] = placed.peak
    return peaks


@pytest.mark.parametrize(("name", "shape"), PROMISED)
@pytest.mark.parametrize("buffers", [1, 2, 3, 10, 200, 5000])
def test_a_structure_meets_the_bound(name: str, shape: str, buffers: int) -> None:
    p = SHAPES[shape](buffers, buffers)
    assert found(p)[name] == max_load(p).bytes


@pytest.mark.parametrize(("name", "shape"), PROMISED)
@pytest.mark.parametrize("alignment", [1, 8])
def test_what_lives_all_the_time_takes_no_structure_away(name: str, shape: str, alignment: int) -> None:
    """Weights below, say: they lie at the bottom, and the others decide."""
    others, rng = SHAPES[shape](300, 1).buffers, random.Random(1)
    last = max(b.lifespan.end for b in others)
    weights = (Buffer(f"weight{i}", rng.randint(1, 99), Lifespan(0, last)) for i in range(30))
    buffers = [replace(b, size=b.size * alignment, alignment=alignment) for b in (*others, *weights)]
    rng.shuffle(buffers)
    p = LayoutProblem(tuple(buffers))
    assert found(p)[name] == max_load(p).bytes


@pytest.mark.parametrize(("name", "shape"), PROMISED)
def test_the_default_solver_says_which_structure_it_was(name: str, shape: str) -> None:
    p = SHAPES[shape](5000, 1)
    outcome = solve(p)
    assert (outcome.solver, outcome.lower_bound) == (f"portfolio/{name}", max_load(p).bytes)
    without = solve(p, options=SolveOptions(work=1000, rules=Rules(structure=False)))
    assert not without.solver.endswith(name)


@pytest.mark.parametrize("shape", ["each meets two", "one length", "any", "mixed alignments", "pins"])
def test_other_problems_have_none(shape: str) -> None:
    assert found(SHAPES[shape](300, 1)) == {}


def test_nothing_to_place_has_no_structure() -> None:
    assert found(LayoutProblem(())) == {}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_claimed_is_the_optimum_of_small_problems(seed: int) -> None:
    """Few steps, so that chains and nests come up; sizes that need padding at the top."""
    rng = random.Random(seed)
    p = random_problem(rng, rng.randint(1, 5), 4, rng.choice((1, 9)), rng.choice(((1,), (4,), (1, 4))))
    for peak in found(p).values():
        assert best_peak(p) <= peak
        if not Instance.of(p).misaligning and all(b.size % b.alignment == 0 for b in p.buffers):
            assert peak == max_load(p).bytes


def test_a_chain_is_turned_over_where_padding_counts() -> None:
    """The top of the first stretch should be 5, of the second 4: the bound is 8 + 4 and 4 + 8."""
    p = problem((5, 0, 2), (8, 1, 3), (8, 5, 7), (5, 6, 8), alignment=4)
    assert max_load(p).bytes == 13
    assert found(p)["chain"] == 13


def test_a_larger_alignment_widens_each_place() -> None:
    p = LayoutProblem((Buffer("a", 6, Lifespan(0, 2), 8), Buffer("b", 6, Lifespan(1, 3), 2)))
    assert found(p)["uniform"] == 14


def test_a_stack_keeps_alignments() -> None:
    p = LayoutProblem((Buffer("a", 6, Lifespan(0, 9), 1), Buffer("b", 5, Lifespan(1, 3), 4)))
    assert found(p)["laminar"] == 13


@pytest.mark.parametrize("at", [0, 1, 50, 99])
def test_a_pin_or_one_crossing_life_takes_a_nest_away(at: int) -> None:
    p = nested(100, 3)
    pin = tuple(replace(b, offset=0) if i == at else b for i, b in enumerate(p.buffers))
    assert found(LayoutProblem(pin)) == {}
    last = max(b.lifespan.end for b in p.buffers)
    crossing = Buffer("crossing", 1, Lifespan(last - 1, last + 1))
    later = Buffer("later", 1, Lifespan(last, last + 1))
    assert "laminar" not in found(LayoutProblem((*p.buffers, crossing, later)))


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_colours_differ_where_buffers_meet(shape: str) -> None:
    instance = Instance.of(SHAPES[shape](60, 1))
    colour = coloured(instance, depth(instance)).tolist()
    start, end = instance.start.tolist(), instance.end.tolist()
    assert max(colour) < depth(instance)
    for i in range(len(instance)):
        for j in range(i):
            assert colour[i] != colour[j] or start[i] >= end[j] or start[j] >= end[i]


@pytest.mark.parametrize("shape", [shape for shape in sorted(SHAPES) if not shape.startswith("gaps")])
def test_classes_place_anything(shape: str) -> None:
    p = SHAPES[shape](500, 1)
    instance = Instance.of(p)
    assert find_violations(p, layout_of(instance, in_classes(instance))) == ()


def test_names_are_different() -> None:
    assert len({structure.name for structure in STRUCTURES}) == len(STRUCTURES)


def test_a_chain_of_any_alignments_has_padding_above_the_floor_alone() -> None:
    """Each above the largest that it meets, rounded up to its alignment; a stretch may be turned over."""
    p = problem((100, 0, 2), (60, 1, 3), (100, 2, 4))
    aligned = LayoutProblem(tuple(map(_aligned, p.buffers, (8, 64, 8))))
    assert found(aligned)["chain"] == 164
    for seed in range(200):
        rng = random.Random(seed)
        chain = SHAPES["chain"](rng.randint(1, 6), seed)
        mixed = LayoutProblem(tuple(_aligned(b, 2 ** rng.randrange(8)) for b in chain.buffers))
        assert found(mixed)["chain"] >= best_peak(mixed)


def _aligned(buffer: Buffer, alignment: int) -> Buffer:
    return replace(buffer, alignment=alignment)
