from __future__ import annotations

import numpy as np
import pytest

from solver.layout import Layout, LayoutProblem, find_violations
from solver.layout.check import is_sound
from solver.layout.check.sweep import disjoint
from tests.support.buffers import problem
from tests.support.training_shaped import training_columns


def fast(p: LayoutProblem, offsets: list[int]) -> bool:
    start = np.array([b.lifespan.start for b in p.buffers])
    end = np.array([b.lifespan.end for b in p.buffers])
    bottom = np.array(offsets)
    return disjoint(start, end, bottom, bottom + np.array([b.size for b in p.buffers]))


def test_huge() -> None:
    assert fast(problem((2**62, 0, 2), (2**61, 0, 2)), [0, 2**62])
    assert not fast(problem((2**62, 0, 2), (2**61, 0, 2)), [0, 2**62 - 1])


@pytest.mark.parametrize("buffers", [30, 300, 4800])
@pytest.mark.parametrize("damage", ["none", "overlap", "alignment", "peak", "offset", "capacity"])
def test_the_answer_through_columns_is_that_of_the_slow_check(damage: str, buffers: int) -> None:
    """The slow check names what the columns only notice."""
    columns = training_columns(3, buffers=buffers)
    p = columns.problem()
    tops = np.cumsum(columns.size).tolist()
    offsets = [top - size for top, size in zip(tops, columns.size.tolist(), strict=True)]
    peak = tops[-1]
    match damage:
        case "overlap":
            at = next(i for i in range(1, len(offsets)) if columns.start[i] == columns.start[i - 1])
            offsets[at] -= 64
        case "alignment":
            offsets[-1] += 1
            peak += 1
        case "peak":
            peak += 64
        case "offset":
            offsets[0] = -64
        case "capacity":
            p = LayoutProblem(p.buffers, peak - 1)
    layout = Layout(tuple(offsets), peak)
    assert is_sound(p, layout) is (damage == "none")
    found = find_violations(p, layout, limit=1)
    assert [v.rule for v in found] == ([] if damage == "none" else [damage])


def test_very_many_pairs_are_swept() -> None:
    """3,000 buffers that share a step are 4.5 million pairs: from 4 million on the compiled sweep decides."""
    p = problem(*[(1, 0, 2)] * 3000)
    assert find_violations(p, Layout(tuple(range(3000)), 3000)) == ()
    wrong = Layout((*range(2999), 2998), 2999)
    assert [v.rule for v in find_violations(p, wrong)] == ["overlap"]
