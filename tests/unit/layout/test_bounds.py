from __future__ import annotations

import random

import pytest

from solver.layout import Buffer, LayoutProblem, Lifespan, live_at, max_load
from solver.layout.bounds import ARRAYS_FROM, pinned_top
from solver.layout.model.instance import Instance
from tests.support.buffers import best_peak, problem, random_problem, solved


@pytest.mark.parametrize(
    ("requests", "running"),
    [
        ([(1, 4, 5), (2, 4, 5), (3, 2, 5), (4, 4, 8), (5, 1, 10)], [1, 3, 6, 10, 15]),
        ([(1, 5, 10), (2, 1, 8), (3, 7, 12)], [1, 3, 6]),
        ([(1, 5, 10), (2, 1, 8), (3, 8, 12)], [1, 3, 4]),
        ([(1, 5, 10), (2, 1, 5), (3, 10, 12), (1, 12, 13)], [1, 2, 3, 3]),
    ],
)
def test_running_minimum_of_a_pool_as_requests_arrive(
    requests: list[tuple[int, int, int]], running: list[int]
) -> None:
    """The facts that nntrainer tests its pools by; the last minimum is met."""
    bounds = [max_load(problem(*requests[: i + 1])).bytes for i in range(len(requests))]
    assert bounds == running
    assert solved(problem(*requests)).layout.peak == running[-1]


def test_nothing_needs_nothing() -> None:
    assert max_load(LayoutProblem(())) == max_load(problem())
    assert (max_load(LayoutProblem(())).bytes, max_load(LayoutProblem(())).witness_step) == (0, None)


def test_huge_sizes_are_exact() -> None:
    assert max_load(problem((2**62, 0, 2), (2**62 - 1, 1, 3))).bytes == 2**63 - 1


def test_rounding_counts_except_for_the_topmost() -> None:
    """At offsets 0, 16, 32 the last may be any of the three; best is the one with most padding."""
    assert max_load(problem((10, 0, 1), (12, 0, 1), (3, 0, 1), alignment=16)).bytes == 35
    assert max_load(problem((16, 0, 1), (32, 0, 1), alignment=16)).bytes == 48
    assert max_load(problem((5, 0, 1), alignment=64)).bytes == 5


@pytest.mark.parametrize("count", [ARRAYS_FROM - 1, ARRAYS_FROM])
def test_rounding_counts_where_there_are_many_buffers(count: int) -> None:
    """Sizes below the alignment, on both sides of where columns are worth making."""
    rows = [(3, 0, 2) for _ in range(count)]
    assert max_load(problem(*rows, alignment=16)).bytes == 16 * (count - 1) + 3
    assert max_load(problem(*rows, alignment=1)).bytes == 3 * count


@pytest.mark.parametrize("seed", range(20))
def test_rounding_never_asks_for_more_than_the_optimum(seed: int) -> None:
    p = random_problem(random.Random(seed), 5, 4, 12, (16,))
    assert max_load(p).bytes <= best_peak(p)
    together = problem(*((b.size, 0, 1) for b in p.buffers), alignment=16)
    assert max_load(together).bytes == best_peak(together)


def test_padding_of_the_dead_does_not_help() -> None:
    assert max_load(problem((1, 0, 1), (15, 1, 2), (15, 1, 2), alignment=16)).bytes == 31


def test_only_the_smallest_alignment_binds_everyone() -> None:
    mixed = LayoutProblem((Buffer("a", 5, Lifespan(0, 1), 4), Buffer("b", 5, Lifespan(0, 1), 64)))
    assert max_load(mixed).bytes == 13


def test_live_at_is_half_open() -> None:
    p = problem((1, 0, 2), (2, 2, 4))
    assert [b.id for b in live_at(p, 1)] == ["b0"]
    assert [b.id for b in live_at(p, 2)] == ["b1"]
    assert live_at(p, 4) == ()


def test_the_highest_pin_is_a_bound_too() -> None:
    assert pinned_top(problem((4, 0, 1))) == 0
    assert (
        pinned_top(LayoutProblem((Buffer("a", 4, Lifespan(0, 1), 1, 96), Buffer("b", 9, Lifespan(0, 1)))))
        == 100
    )


@pytest.mark.parametrize("seed", range(30))
def test_bound_and_witness_agree_with_adding_up_every_step(seed: int) -> None:
    p = random_problem(random.Random(seed), 20, 15, 50)
    loads = [sum(b.size for b in live_at(p, step)) for step in range(15)]
    bound = max_load(p)
    assert (bound.bytes, bound.witness_step) == (max(loads), loads.index(max(loads)))
    assert int(Instance.of(p).load().max()) == bound.bytes
