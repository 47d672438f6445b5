"""Going back in an order of time: valid layouts, never higher, the same every time."""

from __future__ import annotations

import pytest

from solver.layout import Deadline, find_violations
from solver.layout.greedy.in_time import Sweep, in_time, time_kernel
from solver.layout.greedy.local_search import Improvement
from solver.layout.greedy.placement import orders
from solver.layout.greedy.rewind import rewind
from solver.layout.model.instance import Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES, Layout, LayoutProblem
from tests.support.deep_shapes import EVERY

WORK = 100_000


def placed(problem: LayoutProblem, name: str) -> tuple[Instance, Integers, Layout]:
    """The order of this name, and what best fit makes of it."""
    module, instance = time_kernel(), Instance.of(problem)
    assert module is not None
    order = orders(instance)[name]()
    sweep = Sweep(instance, module, backwards=in_time(instance, order) < 0)
    assert sweep.place(order, MAX_BYTES, best_fit=True) == len(order)
    return instance, order, layout_of(instance, sweep.offsets)


def rewound(
    instance: Instance, order: Integers, known: Layout, bound: int, work: int = WORK, seed: int = 0
) -> Improvement:
    module = time_kernel()
    assert module is not None
    return rewind(instance, module, order, known, bound, work, Deadline(), seed, best_fit=True)


@pytest.mark.parametrize(
    "shape", ["any, deep", "mixed alignments, deep", "staircase", "one length", "bursts", "pins, deep"]
)
@pytest.mark.parametrize("name", ["birth", "death"])
def test_it_is_a_layout_and_never_higher(shape: str, name: str) -> None:
    problem = EVERY[shape](1_000, 3)
    instance, order, first = placed(problem, name)
    found = rewound(instance, order, first, int(instance.load().max()))
    assert not found.cut
    assert found.layout.peak <= first.peak
    assert not find_violations(problem, found.layout)


def test_it_lowers_what_one_pass_gives() -> None:
    instance, order, first = placed(EVERY["close sizes, deep"](2_000, 3), "birth")
    assert rewound(instance, order, first, int(instance.load().max())).layout.peak < first.peak


def test_the_same_seed_gives_the_same_layout() -> None:
    instance, order, first = placed(EVERY["any, deep"](1_000, 3), "birth")
    once, again, other = (rewound(instance, order, first, 0, seed=seed) for seed in (1, 1, 2))
    assert once.layout == again.layout
    assert once.layout != other.layout


def test_it_leaves_the_order_and_what_is_good_enough_alone() -> None:
    instance, order, first = placed(EVERY["any, deep"](1_000, 3), "birth")
    before = order.copy()
    assert rewound(instance, order, first, first.peak).layout is first
    rewound(instance, order, first, 0)
    assert (order == before).all()


def test_work_and_deadlines_end_it() -> None:
    module = time_kernel()
    assert module is not None
    instance, order, first = placed(EVERY["any, deep"](1_000, 3), "birth")
    assert rewound(instance, order, first, 0, work=0).layout is first
    late = rewind(instance, module, order, first, 0, WORK, Deadline.after(-1.0), 0, best_fit=True)
    assert late.cut
    assert late.layout is first
