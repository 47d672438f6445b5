"""The least memory a pool can do with, as requests arrive: the facts that nntrainer tests its pools by."""

from __future__ import annotations

import pytest

from solver.errors import ProblemError
from solver.layout import check_problem, max_load, solve
from tests.support.buffers import problem

#: Requests as (size, start, end), and the requirement after each of them.
ARRIVALS = [
    pytest.param(
        [(1, 4, 5), (2, 4, 5), (3, 2, 5), (4, 4, 8), (5, 1, 10)], [1, 3, 6, 10, 15], id="all overlap"
    ),
    pytest.param([(1, 5, 10), (2, 1, 8), (3, 7, 12)], [1, 3, 6], id="two by two"),
    pytest.param([(1, 5, 10), (2, 1, 8), (3, 8, 12)], [1, 3, 4], id="the third follows the second"),
    pytest.param([(1, 5, 10), (2, 1, 5), (3, 10, 12), (1, 12, 13)], [1, 2, 3, 3], id="one after the other"),
]


@pytest.mark.parametrize(("requests", "requirement"), ARRIVALS)
def test_requirement_grows_with_the_requests(
    requests: list[tuple[int, int, int]], requirement: list[int]
) -> None:
    found = [max_load(problem(*requests[: n + 1])).bytes for n in range(len(requests))]
    assert found == requirement


@pytest.mark.parametrize(("requests", "requirement"), ARRIVALS)
def test_the_requirement_is_met(requests: list[tuple[int, int, int]], requirement: list[int]) -> None:
    layout = solve(problem(*requests)).layout
    assert layout is not None
    assert layout.peak == requirement[-1]


def test_requests_that_all_overlap_need_their_sum() -> None:
    sizes = range(1, 60)
    assert max_load(problem(*((size, size, 100) for size in sizes))).bytes == sum(sizes)


def test_requests_that_never_overlap_need_the_largest() -> None:
    assert max_load(problem(*((60 - k, k, k + 1) for k in range(59)))).bytes == 60


@pytest.mark.parametrize("request_", [(-1, 1, 2), (1, 3, 3), (1, 3, 2)])
def test_requests_without_a_size_or_a_time_are_rejected(request_: tuple[int, int, int]) -> None:
    with pytest.raises(ProblemError, match="b0"):
        check_problem(problem(request_))
