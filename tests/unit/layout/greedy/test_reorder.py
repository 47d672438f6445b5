from __future__ import annotations

import random
from types import ModuleType

import pytest

from solver.layout import Buffer, Deadline, Layout, LayoutProblem, Lifespan, find_violations, max_load
from solver.layout.greedy.index import kernel
from solver.layout.greedy.local_search import Improvement
from solver.layout.greedy.placement import best_fit, first_fit, orders, place
from solver.layout.greedy.reorder import IDLE_PASSES, reorder
from solver.layout.model.instance import Instance, Integers, layout_of
from tests.support.buffers import countdown, tight_problem
from tests.support.deep_shapes import EVERY

#: A thousand buffers, for which by size is far from the bound.
BUFFERS = 1000


@pytest.fixture(scope="module")
def module() -> ModuleType:
    found = kernel()
    assert found is not None
    return found


def by_size(instance: Instance, *, tightest: bool = False) -> tuple[Integers, Layout]:
    order = orders(instance)["size"]()
    offsets = place(instance, order, best_fit if tightest else first_fit)
    assert offsets is not None
    return order, layout_of(instance, offsets)


def reordered(
    p: LayoutProblem,
    module: ModuleType,
    passes: int = 100,
    deadline: Deadline | None = None,
    seed: int = 0,
    bound: int | None = None,
    *,
    tightest: bool = False,
) -> tuple[Layout, Improvement]:
    """What by size gives, and what changing that order makes of it."""
    instance = Instance.of(p)
    order, layout = by_size(instance, tightest=tightest)
    bound = max_load(p).bytes if bound is None else bound
    before, work = order.copy(), passes * len(instance)
    improved = reorder(
        instance, module, order, layout, bound, work, deadline or Deadline(), seed, best_fit=tightest
    )
    assert (order == before).all(), "the order that was given has changed"
    assert find_violations(p, improved.layout) == ()
    assert bound <= improved.layout.peak <= layout.peak
    return layout, improved


@pytest.mark.parametrize(
    "shape", ["powers of two, aligned", "mixed alignments, few bytes", "tiling", "two lengths", "pins, deep"]
)
def test_the_order_that_was_best_becomes_better(shape: str, module: ModuleType) -> None:
    p = EVERY[shape](BUFFERS, 3)
    layout, improved = reordered(p, module)
    assert improved.layout.peak < layout.peak
    assert not improved.cut


def test_best_fit_stays_best_fit(module: ModuleType) -> None:
    p = EVERY["any, deep"](BUFFERS, 3)
    layout, improved = reordered(p, module, tightest=True)
    assert improved.layout.peak < layout.peak
    assert improved.layout != reordered(p, module)[1].layout


def test_the_same_input_gives_the_same_layout_and_another_seed_another(module: ModuleType) -> None:
    p = EVERY["one length"](BUFFERS, 3)
    layouts = [reordered(p, module, seed=seed)[1].layout for seed in (0, 0, 1)]
    assert layouts[0] == layouts[1] != layouts[2]


@pytest.mark.parametrize("seed", range(20))
def test_pins_and_alignments_are_kept(seed: int, module: ModuleType) -> None:
    rng = random.Random(seed)
    starts = [rng.randrange(40) for _ in range(60)]
    lives = [Lifespan(start, start + rng.randrange(1, 9)) for start in starts]
    rows = [
        Buffer(f"b{i}", rng.randrange(90) + 1, life, 2 ** rng.randrange(6)) for i, life in enumerate(lives)
    ]
    pin = Buffer("pin", 40, Lifespan(10, 20), 8, 8 * rng.randrange(30))
    reordered(LayoutProblem((*rows, pin)), module)


def test_it_ends_where_it_gets_nowhere(module: ModuleType) -> None:
    """Three buffers that live at once: no order is better, and the bound says nothing of it."""
    p = LayoutProblem(tuple(Buffer(f"b{i}", 10, Lifespan(0, 2)) for i in range(3)))
    asked = 0

    class Counted(Deadline):
        @property
        def expired(self) -> bool:
            nonlocal asked
            asked += 1
            return False

    layout, improved = reordered(p, module, passes=10**6, deadline=Counted(), bound=1)
    assert improved.layout == layout
    assert asked < 20 * IDLE_PASSES


def test_at_the_bound_nothing_is_placed(module: ModuleType) -> None:
    p = tight_problem(random.Random(4))
    instance = Instance.of(p)
    order, layout = by_size(instance)
    improved = reorder(instance, module, order, layout, layout.peak, 10**9, Deadline(), 0, best_fit=False)
    assert improved == Improvement(layout, cut=False)


@pytest.mark.parametrize("asked", [0, 1, 2, 5, 50])
def test_time_that_ends_leaves_the_best_so_far(asked: int, module: ModuleType) -> None:
    _, improved = reordered(EVERY["tiling"](BUFFERS, 3), module, passes=10**6, deadline=countdown(asked))
    assert improved.cut


def test_work_ends_it(module: ModuleType) -> None:
    """Two passes more or less, whatever is still to win."""
    p = EVERY["tiling"](BUFFERS, 3)

    def peak(limit: int) -> int:
        return reordered(p, module, passes=limit)[1].layout.peak

    peaks = [peak(limit) for limit in (0, 2, 20, 200)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] == by_size(Instance.of(p))[1].peak > peaks[-1]
