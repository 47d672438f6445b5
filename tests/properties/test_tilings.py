"""Problems that fill their capacity to the last byte: what public instances show, made for everybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.importers import load_minimalloc
from solver.layout import LayoutProblem, Lifespan, Status, max_load, solve
from tests.support.buffers import solved
from tests.support.every import grid
from tests.support.tilings import as_csv, tiling

#: From one that is seen through at once to one of the size of MiniMalloc's, some with a little room.
HARD = [
    pytest.param(
        tiling(seed, buffers=buffers, steps=steps, units=units, free=free), id=f"{buffers}-{free}-{seed}"
    )
    for buffers, steps, units in ((20, 16, 16), (60, 60, 64), (150, 120, 128), (250, 200, 256))
    for free in (0.0, 0.05)
    for seed in (0, 1)
]


@pytest.mark.parametrize("seed", range(5))
def test_a_tiling_is_full_at_every_step(seed: int) -> None:
    p = tiling(seed, buffers=40, steps=30, units=32, unit=16)
    assert 40 <= len(p.buffers) <= 44
    assert p.capacity == 32 * 16
    for step in range(30):
        assert sum(b.size for b in p.buffers if b.lifespan.overlaps(Lifespan(step, step + 1))) == p.capacity


def test_the_same_seed_makes_the_same_problem() -> None:
    assert tiling(3) == tiling(3) != tiling(4)


def test_there_is_room_for_every_piece() -> None:
    with pytest.raises(ValueError, match="4 steps by 4 units"):
        tiling(1, buffers=5, steps=4, units=4)


@grid("p", HARD)
def test_the_capacity_is_reached(p: LayoutProblem) -> None:
    solved(p)


@grid("p", HARD)
def test_the_least_is_found_without_a_capacity(p: LayoutProblem) -> None:
    p = replace(p, capacity=None)
    outcome = solved(p)
    assert outcome.layout.peak == outcome.lower_bound == max_load(p).bytes


@grid("method", ["greedy", "wic", "first-fit", "bump"])
@grid("p", HARD[-4:])
def test_methods_are_valid_above_the_bound(p: LayoutProblem, method: str) -> None:
    p = replace(p, capacity=None)
    outcome = solved(p, solver=method)
    assert outcome.layout.peak >= outcome.lower_bound == max_load(p).bytes


@pytest.mark.parametrize("p", HARD[:4])
def test_one_byte_less_is_refused(p: LayoutProblem) -> None:
    outcome = solve(replace(p, capacity=max_load(p).bytes - 1))
    assert (outcome.layout, outcome.status) == (None, Status.INFEASIBLE)


@grid("p", HARD)
def test_they_are_read_from_the_interchange_format(p: LayoutProblem) -> None:
    assert load_minimalloc(as_csv(p).encode(), capacity=p.capacity).problem == p
