"""Blocks, staging and steps that the kernels are made of."""

from __future__ import annotations

import numpy as np
import pytest

from solver.errors import InternalError
from solver.executor.kernels.helpers.blocks import (
    block_views,
    bound,
    flat_blocks,
    is_new,
    present,
    run_all,
    staging,
    sum_into,
    with_small_buffers,
)
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS


def test_steps_run_in_order() -> None:
    seen: list[int] = []
    run_all([bound(seen.append, i) for i in range(3)])()
    assert seen == [0, 1, 2]


def test_a_single_step_is_not_wrapped_and_none_do_nothing() -> None:
    step = bound(list)
    assert run_all([step]) is step
    run_all([])()


def test_present_refuses_a_missing_array() -> None:
    assert len(present(np.zeros(1), np.zeros(2))) == 2
    with pytest.raises(InternalError, match="without an array that it needs"):
        present(np.zeros(1), None)


def test_present_refuses_an_array_with_gaps() -> None:
    with pytest.raises(InternalError, match="not C-contiguous"):
        present(np.zeros((2, 3)).T)


def test_staging_is_the_front_of_scratch() -> None:
    scratch = np.arange(10)
    view = staging(scratch, (2, 3))
    assert view.base is scratch
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_flat_blocks_are_views_of_all_elements() -> None:
    array = np.zeros((3, 5))
    for (part,) in flat_blocks(array, size=4):
        assert part.size <= 4
        part += 1
    assert (array == 1).all()


def test_axes_that_broadcast_alike_are_joined() -> None:
    """[4, 5, 6, 7] with [7]: three axes become one, and each block is a matrix."""
    shape = (4, 5, 6, 7)
    ((whole, row),) = block_views(shape, (np.zeros(shape), np.zeros(7)))
    assert whole.shape == (120, 7)
    assert row.shape == (1, 7)


def test_a_scalar_is_a_block_of_one() -> None:
    ((part,),) = block_views((), (np.zeros(()),))
    assert part.shape == (1,)


def test_blocks_hold_the_bound_and_are_few() -> None:
    shape = (30, 70, 1000)
    blocks = [part for (part,) in block_views(shape, (np.zeros(shape, np.uint8),))]
    assert all(part.size <= BLOCK_ELEMENTS for part in blocks)
    assert len(blocks) <= 2 * 30 * 70 * 1000 // BLOCK_ELEMENTS + 1


def test_sums_take_scratch_only_from_the_second_block() -> None:
    source, target = np.ones((3, 2)), np.full((1, 2), np.nan)
    sum_into(source, target, None, first=True)()
    assert target.tolist() == [[3, 3]]
    with pytest.raises(InternalError, match="takes scratch"):
        sum_into(source, target, None, first=False)
    sum_into(source, target, np.empty(5), first=False)()
    assert target.tolist() == [[6, 6]]


def test_without_axes_to_sum_the_source_is_copied_or_added() -> None:
    source, target = np.ones((2, 2)), np.full((2, 2), np.nan)
    sum_into(source, target, None, first=True)()
    sum_into(source, target, None, first=False)()
    assert (target == 2).all()


def test_a_place_is_new_once() -> None:
    seen: set[int] = set()
    array = np.zeros(4)
    assert [is_new(seen, view) for view in (array[:2], array[2:], array[:1], array[2:3])] == [
        True,
        True,
        False,
        False,
    ]


def test_small_buffers_end_with_the_step() -> None:
    before, inside = np.getbufsize(), list[int]()
    with_small_buffers(lambda: inside.append(np.getbufsize()))()
    assert inside[0] < before == np.getbufsize()
