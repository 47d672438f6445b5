from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from solver.layout import Deadline, LayoutProblem, find_violations, max_load, solve
from solver.layout.greedy import placement as greedy_module
from solver.layout.greedy.index import kernel
from solver.layout.greedy.large import GOOD_ENOUGH, LARGE, race, walk
from solver.layout.greedy.placement import LARGE_ORDERS, greedy_portfolio, orders, place
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.problem import MAX_BYTES, Buffer, Lifespan, Proof
from tests.support.buffers import countdown
from tests.support.training_shaped import training_columns, training_shaped


@pytest.fixture(scope="module")
def module() -> ModuleType:
    found = kernel()
    assert found is not None
    return found


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy_module, "LARGE", 1)


def test_the_race_is_won_by_the_lowest_peak_whatever_the_threads_do(module: ModuleType) -> None:
    p = training_shaped(5, buffers=600)
    instance = Instance.of(p)
    by_name = orders(instance)
    chosen = {name: (by_name[name], False) for name in LARGE_ORDERS}
    found = [race(instance, module, chosen, 0, Deadline()) for _ in range(3)]
    assert found[0] == found[1] == found[2]
    peaks = {}
    for name in LARGE_ORDERS:
        offsets = place(instance, by_name[name](), greedy_module.first_fit)
        assert offsets is not None
        peaks[name] = int((offsets + instance.exact).max())
    layout, order, cut = found[0]
    assert not cut
    assert layout.peak == min(peaks.values()) == peaks[order]
    assert find_violations(p, layout) == ()


def test_a_small_gap_ends_the_race(module: ModuleType) -> None:
    p = training_shaped(0, buffers=600)
    instance, bound = Instance.of(p), max_load(p).bytes
    asked: list[str] = []

    def order_of(name: str) -> np.ndarray:
        asked.append(name)
        return orders(instance)[name]()

    chosen = {name: (lambda name=name: order_of(name), False) for name in LARGE_ORDERS}
    layout, _, cut = race(instance, module, chosen, bound, Deadline())
    assert not cut
    assert layout.peak - bound <= bound // GOOD_ENOUGH
    assert len(asked) < len(LARGE_ORDERS)


def test_an_expired_deadline_still_gives_the_first_order(small_is_large: None) -> None:
    p = training_shaped(1, buffers=600)
    result = greedy_portfolio(Instance.of(p), 0, Deadline.after(0))
    assert result.cut
    assert find_violations(p, result.layout) == ()


def test_a_deadline_between_two_pairs_keeps_the_better(small_is_large: None) -> None:
    p = training_shaped(1, buffers=600)
    result = greedy_portfolio(Instance.of(p), 0, countdown(0))
    assert result.cut
    assert find_violations(p, result.layout) == ()


def test_a_training_step_of_ten_thousand() -> None:
    """Through the entry point, checks included; half a percent holds on every seed, a tenth on most."""
    p = training_shaped(1, buffers=10_000)
    assert len(p.buffers) > LARGE
    outcome = solve(p, solver="greedy")
    assert outcome.layout is not None
    assert outcome.layout.peak <= outcome.lower_bound * 1.005
    assert outcome.deterministic


def test_a_hundred_thousand_at_one_step() -> None:
    """All of them overlap: the sum is the bound, and nothing is quadratic."""
    p = LayoutProblem(tuple(Buffer(str(i), 1 + i % 97, Lifespan(7, 8)) for i in range(100_000)))
    outcome = solve(p, solver="greedy")
    assert outcome.proof is Proof.MAX_LOAD


def test_a_million_drawn_in_numpy_are_the_same_every_time() -> None:
    columns = training_columns(9, buffers=1_000_000)
    again = training_columns(9, buffers=1_000_000)
    assert 900_000 < len(columns.size) < 1_100_000
    assert (columns.size == again.size).all()
    assert (columns.start < columns.end).all()
    assert not (columns.size % columns.alignment).any()


def test_one_walk_is_the_placement_in_that_order(module: ModuleType) -> None:
    p = training_shaped(5, buffers=600)
    instance = Instance.of(p)
    order = orders(instance)["area"]()
    offsets = place(instance, order, greedy_module.first_fit)
    assert offsets is not None
    layout, cut = walk(instance, module, order, MAX_BYTES, Deadline())
    assert (layout, cut) == (layout_of(instance, offsets), False)


def test_a_walk_beyond_its_limit_gives_nothing(module: ModuleType) -> None:
    instance = Instance.of(training_shaped(5, buffers=600))
    order, bound = orders(instance)["size"](), int(instance.load().max())
    assert walk(instance, module, order, bound - 1, Deadline()) == (None, False)


def test_a_walk_is_cut_by_the_deadline(module: ModuleType) -> None:
    instance = Instance.of(training_shaped(5, buffers=100_000))
    order = np.arange(len(instance))
    assert walk(instance, module, order, MAX_BYTES, Deadline.after(0)) == (None, True)
