"""Placing in an order, in NumPy and compiled, and local search over orders."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solver.layout import Buffer, Deadline, Layout, LayoutProblem, Lifespan, find_violations, max_load
from solver.layout.greedy import index as module
from solver.layout.greedy.local_search import improve
from solver.layout.greedy.placement import (
    FIRST_ATTEMPTS,
    FIRST_ATTEMPTS_OF_MANY,
    MANY,
    SIZE_LEADS,
    SLACK_LEADS,
    greedy_portfolio,
    orders,
    place,
    place_first,
    place_in_numpy,
)
from solver.layout.greedy.skyline import RULES, lowest_plateau
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.problem import MAX_BYTES
from tests.support.buffers import countdown, problem, random_problem, solved, tight_problem
from tests.support.deep_shapes import EVERY
from tests.support.shapes import SHAPES, pinned
from tests.support.training_shaped import training_shaped

#: a at 0, b above it, c above both; when b has gone, a gap of 4 is left between a and c.
HOLES = problem((2, 0, 9), (4, 0, 3), (2, 0, 9), (3, 0, 3), (2, 0, 9), (3, 5, 9))


def test_first_fit_takes_the_lowest_gap_and_best_fit_the_tightest() -> None:
    instance, order = Instance.of(HOLES), np.arange(6)
    assert place(instance, order)[0].tolist() == [0, 2, 6, 8, 11, 2]
    assert place(instance, order, best_fit=True)[0].tolist() == [0, 2, 6, 8, 11, 8]


def test_placing_stops_at_the_limit_and_says_how_far_it_got() -> None:
    instance = Instance.of(problem((4, 0, 1), (4, 0, 1), (4, 0, 1)))
    offsets, placed = place(instance, np.array([2, 0, 1]), 11)
    assert placed == 2
    assert offsets.tolist() == [4, FREE, 0]
    assert place(instance, np.arange(3), 12)[1] == 3


def test_pins_are_respected_wherever_they_stand_in_the_order() -> None:
    p = LayoutProblem((Buffer("a", 6, Lifespan(0, 2)), Buffer("b", 4, Lifespan(1, 3), 1, 4)))
    assert place(Instance.of(p), np.arange(2))[0].tolist() == [8, 4]


def test_alignment_is_respected_when_it_differs() -> None:
    p = LayoutProblem(tuple(Buffer(str(a), 5, Lifespan(0, 1), a) for a in (1, 8, 64, 2)))
    assert place(Instance.of(p), np.arange(4))[0].tolist() == [0, 8, 64, 14]


@pytest.mark.parametrize("shape", ["plain", "pinned", "holes"])
def test_placing_ends_once_it_is_late(shape: str) -> None:
    """In NumPy and compiled: nothing has been placed then but what is pinned."""
    p = SHAPES["gaps" if shape == "holes" else "any"](2_000, 1)
    p = pinned(p, 0.5, 1) if shape == "pinned" else p
    instance, order = Instance.of(p), np.arange(2_000)
    for placing in (place, place_in_numpy):
        offsets, placed = placing(instance, order, late=lambda: True)
        assert placed <= 64
        assert (offsets[instance.offset == FREE] == FREE).all()


def test_a_deadline_puts_what_is_left_above_what_was_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.layout.greedy.placement.FIRST_SECONDS", 0.0)
    p = training_shaped(2, buffers=3000)
    instance = Instance.of(p)
    whole, cut = place_first(instance, Deadline()), place_first(instance, Deadline.after(0))
    assert find_violations(p, layout_of(instance, cut)) == ()
    assert layout_of(instance, whole).peak < layout_of(instance, cut).peak


def test_orders_are_permutations() -> None:
    instance = Instance.of(training_shaped(1, buffers=60))
    found = {name: order() for name, order in orders(instance).items()}
    first = {name.partition(",")[0] for name in (*FIRST_ATTEMPTS, *FIRST_ATTEMPTS_OF_MANY)}
    assert first <= set(found)
    for order in found.values():
        assert sorted(order.tolist()) == list(range(len(instance)))
    assert instance.size[found["size"]].tolist() == sorted(instance.size.tolist(), reverse=True)
    contention = [int(instance.load()[s:e].max()) for s, e in zip(instance.start, instance.end, strict=True)]
    assert [contention[i] for i in found["contention-size"]] == sorted(contention, reverse=True)


#: What an order sorts by, then what breaks ties, from (size, start, end, largest load, conflicts).
KEYS: dict[str, Callable[[int, int, int, int, int], tuple[float, float]]] = {
    "size": lambda z, s, e, load, met: (-z, s - e),
    "area": lambda z, s, e, load, met: (-z * (e - s), -z),
    "lifetime": lambda z, s, e, load, met: (s - e, -z),
    "size-root-lifetime": lambda z, s, e, load, met: (-z * math.sqrt(e - s), -z),
    "contention-size": lambda z, s, e, load, met: (-load, -z),
    "contention-area": lambda z, s, e, load, met: (-load, -z * (e - s)),
    "start-size": lambda z, s, e, load, met: (s, -z),
    "degree-size": lambda z, s, e, load, met: (-met * z, s - e),
    "birth": lambda z, s, e, load, met: (s, e),
    "death": lambda z, s, e, load, met: (-e, -s),
    "end": lambda z, s, e, load, met: (e, s),
    "listed": lambda z, s, e, load, met: (0, 0),
}


def test_the_order_by_magnitude_takes_powers_of_four_together_and_long_lives_first() -> None:
    instance = Instance.of(random_problem(random.Random(5), 60, 4, 3000))
    columns = zip(instance.size.tolist(), instance.start.tolist(), instance.end.tolist(), strict=True)
    rows = [(-(size.bit_length() // 2), start - end) for size, start, end in columns]
    assert len({magnitude for magnitude, _ in rows}) > 3
    assert len(set(rows)) < len(rows)
    found = orders(instance)["magnitude-lifetime"]().tolist()
    assert found == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize(
    ("name", "weight"),
    [("size-slack", SIZE_LEADS), ("slack-size", SLACK_LEADS)],
)
def test_an_order_by_slack_weighs_it_in_sizes_of_the_largest_buffer(name: str, weight: float) -> None:
    """Slack is what is free below the largest load throughout a life."""
    instance = Instance.of(random_problem(random.Random(5), 60, 12, 7))
    load, sizes = instance.load(), instance.size.tolist()
    lives = zip(instance.start.tolist(), instance.end.tolist(), strict=True)
    slack = [int(load.max() - load[start:end].max()) for start, end in lives]
    unit = weight * max(sizes) / max(slack)
    rows = [(slack[i] * unit - size, -size) for i, size in enumerate(sizes)]
    assert len(set(slack)) > 3
    assert orders(instance)[name]().tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize("name", KEYS)
def test_an_order_sorts_by_two_keys_and_then_as_the_problem_does(name: str) -> None:
    """Few different sizes and steps, so that there are ties."""
    instance = Instance.of(random_problem(random.Random(5), 60, 5, 4))
    columns = (instance.size.tolist(), instance.start.tolist(), instance.end.tolist())
    load, met = instance.load(), instance.degree().tolist()
    rows = [
        KEYS[name](z, s, e, int(load[s:e].max()), met[i])
        for i, (z, s, e) in enumerate(zip(*columns, strict=True))
    ]
    assert len(set(rows)) < len(rows)
    assert orders(instance)[name]().tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@pytest.mark.parametrize(
    ("rule", "rows", "lowest"),
    [
        ("lifetime", [(1, 0, 2), (3, 0, 2)], 1),  # equally long: the larger one
        ("lifetime", [(4, 0, 1), (2, 0, 2), (1, 1, 2)], 1),
        ("area", [(4, 0, 1), (2, 0, 2), (1, 1, 2)], 1),  # of equal area: the longer one
        ("area", [(2, 0, 2), (5, 0, 1), (1, 1, 2)], 1),
        ("size", [(2, 0, 1), (2, 0, 2), (1, 1, 2)], 1),  # equally large: the longer one
        ("size", [(2, 0, 2), (4, 0, 1), (1, 1, 2)], 1),
    ],
)
def test_the_skyline_takes_the_best_by_two_keys_first(
    rule: str, rows: list[tuple[int, int, int]], lowest: int
) -> None:
    """The first two compete for the ground."""
    offsets = lowest_plateau(Instance.of(problem(*rows)), rule, MAX_BYTES)
    assert offsets is not None
    assert offsets[lowest] == 0
    assert offsets[1 - lowest] > 0


@pytest.mark.parametrize("rule", RULES)
def test_the_skyline_without_a_deadline_is_never_cut(rule: str) -> None:
    instance = Instance.of(training_shaped(5, buffers=80))
    offsets = lowest_plateau(instance, rule, MAX_BYTES)
    assert offsets is not None
    assert offsets.tolist() == np.array(lowest_plateau(instance, rule, MAX_BYTES, Deadline())).tolist()
    assert lowest_plateau(instance, rule, MAX_BYTES, Deadline.after(0)) is None


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(10))
def test_the_skyline_makes_valid_layouts(rule: str, seed: int) -> None:
    p = random_problem(random.Random(seed), 30, 20, 40, (8,))
    instance = Instance.of(p)
    offsets = lowest_plateau(instance, rule, MAX_BYTES)
    assert offsets is not None
    made = layout_of(instance, offsets)
    assert find_violations(p, made) == ()
    assert lowest_plateau(instance, rule, made.peak - 1) is None


def test_the_skyline_fills_the_niche_first() -> None:
    """The niche [1, 2) between two towers takes what fits inside before anything wide goes on top."""
    p = problem((6, 0, 2), (6, 4, 6), (3, 1, 5), (3, 2, 4))
    offsets = lowest_plateau(Instance.of(p), "lifetime", MAX_BYTES)
    assert offsets is not None
    assert offsets[3] in (0, 3)
    assert layout_of(Instance.of(p), offsets).peak == 9


def test_the_portfolio_stops_at_the_bound_or_after_so_many_attempts() -> None:
    p = problem((4, 0, 3), (3, 0, 3))
    result = greedy_portfolio(Instance.of(p), 7, Deadline())
    assert (result.layout.peak, result.better, result.cut) == (7, True, False)
    again = greedy_portfolio(Instance.of(p), 0, Deadline(), result.layout, 1)
    assert (again.layout, again.better, again.cut) == (result.layout, False, False)


@pytest.mark.parametrize("shape", ["any, deep", "two sizes, deep", "mixed alignments, few bytes"])
def test_the_portfolio_is_as_good_as_each_of_its_orders(shape: str) -> None:
    instance = Instance.of(EVERY[shape](MANY - 1, 2))
    found = greedy_portfolio(instance, 0, Deadline()).layout.peak
    for order in orders(instance).values():
        for best_fit in (False, True):
            offsets, _ = place(instance, order(), best_fit=best_fit)
            assert found <= int((offsets + instance.exact).max())


@pytest.mark.parametrize("cuts", [8, 10])
def test_what_is_cut_from_full_memory_and_listed_from_below_is_put_together_again(cuts: int) -> None:
    """Straight cuts, all pieces each time, across the longer side; the order by size leaves gaps."""
    draw, pieces = random.Random(1), [(0, 1 << 20, 0, 1 << 20)]
    for _ in range(cuts):
        halves = []
        for start, end, low, high in pieces:
            part = draw.uniform(0.4, 0.6)
            step, byte = start + int(part * (end - start)), low + int(part * (high - low))
            if end - start > high - low:
                halves += [(start, step, low, high), (step, end, low, high)]
            else:
                halves += [(start, end, low, byte), (start, end, byte, high)]
        pieces = halves
    instance = Instance.of(problem(*((high - low, start, end) for start, end, low, high in pieces)))
    assert greedy_portfolio(instance, 1 << 20, Deadline()).layout.peak == 1 << 20
    assert place(instance, orders(instance)["size"](), 1 << 20)[1] < len(instance)


def test_an_expired_deadline_still_gives_one_layout() -> None:
    p = training_shaped(29, buffers=150)
    result = greedy_portfolio(Instance.of(p), 0, Deadline.after(0))
    assert result.cut
    assert find_violations(p, result.layout) == ()


def test_huge_sizes() -> None:
    p = problem((2**62, 0, 2), (2**61, 1, 3), (2**60, 2, 4))
    assert greedy_portfolio(Instance.of(p), max_load(p).bytes, Deadline()).layout == Layout(
        (0, 2**62, 0), 2**62 + 2**61
    )


# ----------------------------------------- Compiled placing against plain NumPy: the same offsets, gap by gap


def compiled(
    p: LayoutProblem, order: Integers, limit: int = MAX_BYTES, *, best_fit: bool = False
) -> tuple[Integers, int]:
    """Of any number of buffers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMPILED_FROM", 0)
        patch.setattr(module, "LOADED_FROM", 0)
        placed = module.place_compiled(Instance.of(p), order, limit, best_fit=best_fit, late=lambda: False)
    assert placed is not None
    return placed


def with_pins(rng: random.Random, p: LayoutProblem) -> LayoutProblem:
    """Some pinned buffers, one above the other, anywhere among the others."""
    buffers, offset = list(p.buffers), 0
    for k in range(rng.randint(1, 4)):
        size, alignment, start = rng.randint(1, 20), rng.choice((1, 4)), rng.randrange(10)
        offset = -(-offset // alignment) * alignment + alignment * rng.randint(0, 4)
        span = Lifespan(start, start + rng.randint(1, 9))
        pinned = Buffer(f"pin{k}", size, span, alignment, offset)
        buffers.insert(rng.randrange(len(buffers) + 1), pinned)
        offset += size + 20
    return LayoutProblem(tuple(buffers))


def instance_of(seed: int) -> LayoutProblem:
    rng = random.Random(seed)
    match seed % 4:
        case 0:
            p = random_problem(rng, rng.randint(1, 60), rng.randint(2, 50), 40, (1, 4, 16))
        case 1:
            p = random_problem(rng, rng.randint(1, 80), rng.randint(2, 200), 6)
        case 2:
            p = tight_problem(rng)
        case _:
            p = random_problem(rng, rng.randint(1, 40), 12, 40, (8,))
    return with_pins(rng, p) if seed % 3 == 0 else p


@pytest.mark.parametrize("best_fit", [False, True])
@pytest.mark.parametrize("block", range(4))
def test_same_offsets_as_numpy(block: int, best_fit: bool) -> None:
    """Pins, mixed alignments, limits and both fits, on 200 random instances a block."""
    for seed in range(200 * block, 200 * (block + 1)):
        rng, p = random.Random(seed), instance_of(seed)
        order = np.array(rng.sample(range(len(p.buffers)), len(p.buffers)))
        limit = rng.choice((MAX_BYTES, rng.randint(20, 200)))
        slow, slow_placed = place_in_numpy(Instance.of(p), order, limit, best_fit=best_fit)
        fast, placed = compiled(p, order, limit, best_fit=best_fit)
        assert (placed, fast.tolist()) == (slow_placed, slow.tolist())


@pytest.mark.parametrize("best_fit", [False, True])
@pytest.mark.parametrize("shape", ["gaps", "gaps, aligned"])
@pytest.mark.parametrize("seed", range(3))
def test_same_offsets_as_numpy_with_holes(shape: str, seed: int, best_fit: bool) -> None:
    p = SHAPES[shape](400, seed)
    p = replace(p, buffers=(replace(p.buffers[0], offset=8192), *p.buffers[1:]))
    instance, order = Instance.of(p), np.random.default_rng(seed).permutation(400)
    whole = place_in_numpy(instance, order, best_fit=best_fit)[0]
    for limit in (MAX_BYTES, layout_of(instance, whole).peak - 1, 1):
        slow, slow_placed = place_in_numpy(instance, order, limit, best_fit=best_fit)
        fast, placed = compiled(p, order, limit, best_fit=best_fit)
        assert (placed, fast.tolist()) == (slow_placed, slow.tolist())


@pytest.mark.parametrize("seed", range(4))
def test_same_offsets_on_training_steps_through_the_public_way(seed: int) -> None:
    p = training_shaped(seed, buffers=800)
    assert len(p.buffers) > module.COMPILED_FROM
    instance = Instance.of(p)
    order = np.argsort(-instance.size, kind="stable")
    fast, slow = place(instance, order), place_in_numpy(instance, order)
    assert fast[0].tolist() == slow[0].tolist()
    assert fast[1] == slow[1] == len(order)


def test_huge_sizes_and_offsets() -> None:
    p = problem((2**62, 0, 2), (2**61, 1, 3), (2**60, 2, 4), (1, 0, 4))
    offsets, placed = compiled(p, np.arange(4))
    assert (offsets.tolist(), placed) == ([0, 2**62, 0, 2**62 + 2**61], 4)


def test_one_buffer_and_no_order() -> None:
    p = problem((5, 3, 9))
    assert compiled(p, np.arange(0))[0].tolist() == [FREE]
    assert compiled(p, np.arange(1))[0].tolist() == [0]


def test_many_at_one_step_and_many_gaps_grow_the_memory() -> None:
    """All alive at once, then a comb of gaps beneath a roof: more strips than the index starts with."""
    teeth = tuple((4, 0, 2) if k % 2 else (4, 0, 4) for k in range(3000))
    p = problem(*teeth, *((4, 2, 4) for _ in range(1500)))
    offsets, placed = compiled(p, np.arange(len(p.buffers)))
    assert placed == len(p.buffers)
    made = layout_of(Instance.of(p), offsets)
    assert made.peak == 12_000
    assert find_violations(p, made) == ()


def test_a_gap_of_very_many_strips() -> None:
    """A tower of small ones, and a large one beside it all: its gap has a strip for each of them."""
    many = 20_000
    p = problem(*((4, 0, 2) for _ in range(many)), (4 * many, 2, 4))
    offsets, placed = compiled(p, np.arange(many + 1))
    assert (placed, int(offsets[-1])) == (many + 1, 0)


# ----------------------------------------------------------------------------------------------- local search


def test_it_never_makes_things_worse_and_repeats_itself() -> None:
    p = tight_problem(random.Random(4))
    instance, bound = Instance.of(p), max_load(p).bytes
    start = greedy_portfolio(instance, 2**63, Deadline()).layout
    once = improve(instance, start, bound, 3000, Deadline())
    assert once == improve(instance, start, bound, 3000, Deadline())
    assert bound <= once.layout.peak <= start.peak
    assert find_violations(p, once.layout) == ()


def test_it_reaches_the_bound_from_a_poor_start() -> None:
    p = training_shaped(29, buffers=150)
    instance, bound = Instance.of(p), max_load(p).bytes
    start = layout_of(instance, place(instance, np.arange(len(instance)))[0])
    result = improve(instance, start, bound, 40_000, Deadline())
    assert start.peak > result.layout.peak
    assert not result.cut


def test_at_the_bound_no_work_is_done() -> None:
    p = training_shaped(1, buffers=60)
    outcome = solved(p)
    result = improve(Instance.of(p), outcome.layout, outcome.lower_bound, 10**9, Deadline())
    assert result.layout is outcome.layout


def test_an_expired_deadline_returns_the_start() -> None:
    p = tight_problem(random.Random(4))
    start = greedy_portfolio(Instance.of(p), 2**63, Deadline()).layout
    result = improve(Instance.of(p), start, 0, 10**9, Deadline.after(0))
    assert (result.layout, result.cut) == (start, True)


def test_a_deadline_that_cuts_in_keeps_what_was_found() -> None:
    p = tight_problem(random.Random(4))
    start = greedy_portfolio(Instance.of(p), 2**63, Deadline()).layout
    result = improve(Instance.of(p), start, 0, 10**9, countdown(50))
    assert result.cut
    assert result.layout.peak <= start.peak
    assert find_violations(p, result.layout) == ()


def test_too_little_work_for_one_pass_changes_nothing() -> None:
    p = training_shaped(1, buffers=200)
    start = greedy_portfolio(Instance.of(p), 2**63, Deadline()).layout
    result = improve(Instance.of(p), start, 0, len(p.buffers) - 1, Deadline())
    assert (result.layout, result.cut) == (start, False)
