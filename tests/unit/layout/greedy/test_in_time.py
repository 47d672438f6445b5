"""First fit in the order of birth, compared with the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from solver.layout import Deadline
from solver.layout.greedy.in_time import in_order_of_time
from solver.layout.greedy.placement import first_fit, place_in_numpy
from solver.layout.model.instance import Instance
from solver.layout.model.problem import MAX_BYTES
from solver.layout.structures.colouring import depth
from tests.support.shapes import SHAPES


@pytest.mark.parametrize("shape", ["any", "mixed alignments", "chain", "one length", "equal sizes", "nested"])
@pytest.mark.parametrize("buffers", [1, 2, 1500])
def test_it_is_first_fit_by_start_then_size(shape: str, buffers: int) -> None:
    instance = Instance.of(SHAPES[shape](buffers, 1))
    order = np.lexsort((-instance.size, instance.start))
    plain, _ = place_in_numpy(instance, order, first_fit, MAX_BYTES)
    found = in_order_of_time(instance, depth(instance), Deadline())
    assert found is not None
    assert found.tolist() == plain.tolist()


def test_pins_and_deadlines_give_nothing() -> None:
    instance = Instance.of(SHAPES["pins"](100, 1))
    assert in_order_of_time(instance, 100, Deadline()) is None
    instance = Instance.of(SHAPES["any"](100, 1))
    assert in_order_of_time(instance, 100, Deadline.after(0)) is None
