from __future__ import annotations

import random

import numpy as np
import pytest

from solver.layout import Buffer, Deadline, LayoutProblem, SolveOptions, find_violations, max_load
from solver.layout.exact import coarse as module
from solver.layout.exact.coarse import FINE, MIDDLE, ROUGH, Coarse, Grain, coarsen, search_coarsely
from solver.layout.exact.feasibility import Watch
from solver.layout.greedy.placement import orders, place
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import countdown, problem, random_problem
from tests.support.training_shaped import training_shaped

GRAINS = (ROUGH, MIDDLE, FINE, Grain(2, 1), Grain(10**9, 10**9))

#: Contended at steps 3 and 6.
PICTURE = problem(
    (1000, 0, 12),  # always there
    (9000, 2, 8),  # large, as are the next two
    (500, 3, 4),
    (500, 6, 7),
    (6, 2, 8),  # dust through both contended steps, as is the next
    (4, 1, 9),
    (5, 2, 5),  # dust through the first only
    (50, 0, 1),  # easy, as is the next
    (70, 10, 11),
)


def _watch(deadline: Deadline | None = None, options: SolveOptions | None = None) -> Watch:
    return Watch(deadline or Deadline(), options or SolveOptions())


def _drawn(seed: int) -> LayoutProblem:
    rng = random.Random(seed)
    if seed % 3 == 0:
        return training_shaped(seed, buffers=400)
    p = random_problem(rng, 60, 25, 3000, (1, 1, 4)) if seed % 3 == 1 else random_problem(rng, 60, 25, 30)
    largest = max(b.alignment for b in p.buffers)
    return LayoutProblem(tuple(Buffer(b.id, b.size, b.lifespan, largest) for b in p.buffers))


def _placed(coarse: Coarse) -> Integers:
    """Some layout of the boxes."""
    return place(coarse.instance, orders(coarse.instance)["area"]())[0]


def test_the_picture() -> None:
    instance = Instance.of(PICTURE)
    coarse = coarsen(instance, max_load(PICTURE).bytes, Grain(contended=200, easy=10))
    assert coarse.always.tolist() == [0]
    assert coarse.easy.tolist() == [8, 7]
    boxes = [sorted(coarse.packed[coarse.box == k].tolist()) for k in range(len(coarse.instance))]
    assert sorted(boxes) == [[1], [2], [3], [4, 5], [6]]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("grain", GRAINS)
def test_every_buffer_is_in_one_place(seed: int, grain: Grain) -> None:
    p = _drawn(seed)
    instance = Instance.of(p)
    coarse = coarsen(instance, max_load(p).bytes, grain)
    everything = np.concatenate((coarse.always, coarse.packed, coarse.easy))
    assert sorted(everything.tolist()) == list(range(len(instance)))
    held = np.zeros(len(coarse.instance), dtype=np.int64)
    np.add.at(held, coarse.box, instance.size[coarse.packed])
    assert held.tolist() == coarse.instance.size.tolist()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("grain", GRAINS)
def test_boxes_stay_within_the_capacity(seed: int, grain: Grain) -> None:
    """With the bound of padded sizes, as padding is told apart at the top alone."""
    instance = Instance.of(_drawn(seed))
    capacity = int(instance.load().max())
    coarse = coarsen(instance, capacity, grain)
    assert coarse.instance.load().max(initial=0) <= capacity - instance.size[coarse.always].sum()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("grain", GRAINS)
def test_first_fit_in_the_order_found_is_no_higher_than_the_boxes(seed: int, grain: Grain) -> None:
    p = _drawn(seed)
    instance = Instance.of(p)
    coarse = coarsen(instance, max_load(p).bytes, grain)
    boxes = _placed(coarse)
    offsets, _ = place(instance, coarse.order(instance.size, boxes))
    assert find_violations(p, layout_of(instance, offsets)) == ()
    ground = instance.size[coarse.always].sum()
    assert (offsets[coarse.packed] <= ground + boxes[coarse.box] + coarse.within(instance.size)).all()


def test_padding_counts_below_a_buffer_but_not_at_the_top_of_its_box() -> None:
    p = problem((40, 0, 2), (41, 0, 2), (100, 1, 3), alignment=64)
    instance = Instance.of(p)
    coarse = coarsen(instance, max_load(p).bytes, FINE)
    padding = coarse.instance.size - coarse.instance.exact
    assert set(padding.tolist()) <= {24, 23, 28}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_of_three_grains_nearly_closes_the_gap(seed: int) -> None:
    p = training_shaped(seed, buffers=5000)
    instance, bound = Instance.of(p), max_load(p).bytes
    found = [
        search_coarsely(instance, bound, MAX_BYTES, grain, 5_000_000, _watch())
        for grain in (ROUGH, MIDDLE, FINE)
    ]
    layouts = [layout for layout in found if layout is not None]
    assert min(layout.peak for layout in layouts) <= 1.001 * bound
    assert all(find_violations(p, layout) == () for layout in layouts)


def test_threads_change_nothing() -> None:
    p = training_shaped(3, buffers=3500)
    instance, bound = Instance.of(p), max_load(p).bytes
    found = [
        search_coarsely(
            instance, bound, MAX_BYTES, MIDDLE, 2_000_000, _watch(options=SolveOptions(threads=threads))
        )
        for threads in (1, 2, 2)
    ]
    assert found[0] is not None
    assert found[0] == found[1] == found[2]


def test_nothing_beyond_the_limit_is_handed_out() -> None:
    p = training_shaped(3, buffers=3500)
    instance, bound = Instance.of(p), max_load(p).bytes
    assert search_coarsely(instance, bound, bound - 1, MIDDLE, 2_000_000, _watch()) is None


def test_a_question_without_work_or_for_too_many_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    p = training_shaped(3, buffers=3500)
    instance, bound = Instance.of(p), max_load(p).bytes
    assert search_coarsely(instance, bound, MAX_BYTES, MIDDLE, 0, _watch()) is None
    monkeypatch.setattr(module, "SEARCHED", 10)
    assert search_coarsely(instance, bound, MAX_BYTES, MIDDLE, 2_000_000, _watch()) is None


def test_where_all_are_always_there_nothing_is_asked() -> None:
    p = problem((4, 0, 2), (3, 0, 2))
    assert search_coarsely(Instance.of(p), 7, MAX_BYTES, MIDDLE, 1000, _watch()) is None


def test_a_passed_deadline_ends_it_and_is_told() -> None:
    p = training_shaped(3, buffers=3500)
    watch = _watch(countdown(0))
    assert search_coarsely(Instance.of(p), max_load(p).bytes, MAX_BYTES, MIDDLE, 10**9, watch) is None
    assert watch.cut


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_deadline_that_passes_meanwhile_leaves_a_layout_or_is_told(asked: int) -> None:
    p = training_shaped(3, buffers=3500)
    watch = _watch(countdown(asked))
    found = search_coarsely(Instance.of(p), max_load(p).bytes, MAX_BYTES, MIDDLE, 10**9, watch)
    assert watch.cut if found is None else not find_violations(p, found)
