"""CP-SAT as oracle of the compiled search, every rule on and off; ten problems for each fuzz example."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from dataclasses import replace

import pytest

from solver.layout import Buffer, LayoutProblem, SolveOptions, Status, find_violations, max_load, solve
from solver.layout.model.instance import Instance
from tests.support.buffers import best_peak, problem, random_problem
from tests.support.oracle import GADGETS, RULE_SETS, judge, optimum, sample, stacked, tiling

pytestmark = pytest.mark.fuzz

FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)
PROBLEMS = 10 * FUZZ or 40
MIXED = FUZZ or 20
PINNED = FUZZ or 30


def test_every_rule_set_of_the_compiled_search_agrees_with_cp_sat(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    wrong, left_open = [], []
    for seed in range(PROBLEMS):
        verdict = judge(sample(seed))
        counts["problems"] += 1
        counts["with an optimum above max-load"] += verdict.best > verdict.bound
        counts["answers"] += len(RULE_SETS) + 1
        counts["unfinished"] += len(verdict.unfinished)
        counts["mistaken"] += len(verdict.mistaken)
        left_open += [name for name in verdict.unfinished if name != "none"]
        wrong += [(seed, name) for name in verdict.mistaken]
    if FUZZ:
        with capsys.disabled():
            sys.stdout.write(f"\n{', '.join(f'{count:,} {what}' for what, count in counts.items())}\n")
    assert not wrong
    assert 10 * len(left_open) <= PROBLEMS, Counter(left_open)
    assert 4 * counts["with an optimum above max-load"] >= PROBLEMS


def _mixed(seed: int) -> LayoutProblem:
    """Alignments that sums of sizes do not keep, and in every third problem pins."""
    rng = random.Random(seed)
    p = random_problem(rng, rng.randint(2, 10), 7, rng.choice((6, 20, 40))) if seed % 2 else sample(seed)
    choice = rng.choice(((1, 2), (1, 2, 8), (4, 16), (1, 64)))
    mixed = LayoutProblem(tuple(replace(b, alignment=rng.choice(choice)) for b in p.buffers))
    placed = solve(mixed, solver="greedy").layout
    if seed % 3 or placed is None:
        return mixed if Instance.of(mixed).misaligning else _mixed(seed + 10**6)
    pins = set(rng.sample(range(len(mixed.buffers)), min(len(mixed.buffers), rng.choice((1, 2, 4)))))
    offsets = (offset if i in pins else None for i, offset in enumerate(placed.offsets))
    return LayoutProblem(tuple(map(_pinned, mixed.buffers, offsets)))


def _pinned(buffer: Buffer, offset: int | None) -> Buffer:
    return replace(buffer, offset=offset)


def test_every_rule_set_agrees_with_cp_sat_on_mixed_alignments_and_pins() -> None:
    counts: Counter[str] = Counter()
    for seed in range(MIXED):
        verdict = judge(_mixed(seed))
        assert not verdict.mistaken, seed
        counts["above"] += verdict.best > verdict.bound
        counts["all rules, unfinished"] += "all" in verdict.unfinished
    assert 3 * counts["above"] >= MIXED
    assert 2 * counts["all rules, unfinished"] <= MIXED


def _constrained(rng: random.Random) -> LayoutProblem:
    """Mixed alignments, and mostly a pin or two that leave each other alone."""
    p = random_problem(rng, rng.randint(1, 9), 7, rng.choice((6, 20)), rng.choice(((1,), (1, 2, 8), (4, 8))))
    buffers = list(p.buffers)
    for i in rng.sample(range(len(buffers)), min(len(buffers), rng.choice((0, 1, 1, 2)))):
        floor = max((b.offset + b.size for b in buffers if b.offset is not None), default=rng.randrange(20))
        alignment = buffers[i].alignment
        buffers[i] = replace(buffers[i], offset=-(-floor // alignment) * alignment)
    return LayoutProblem(tuple(buffers))


def test_pins_and_mixed_alignments_agree_with_cp_sat() -> None:
    """No solver but CP-SAT promises to finish here; whatever is claimed must be true."""
    proved = 0
    for seed in range(PINNED):
        p = _constrained(random.Random(seed))
        best, outcome = optimum(p), solve(p)
        assert outcome.layout is not None
        assert find_violations(p, outcome.layout) == (), seed
        assert outcome.lower_bound <= best <= outcome.layout.peak, seed
        assert outcome.status is not Status.OPTIMAL or outcome.layout.peak == best, seed
        proved += outcome.status is Status.OPTIMAL
    assert proved >= 0.9 * PINNED


@pytest.mark.parametrize("seed", range(25))
def test_the_oracle_itself_agrees_with_trying_every_order(seed: int) -> None:
    rng = random.Random(seed)
    p = _constrained(rng)
    p = LayoutProblem(p.buffers[:5])
    assert optimum(p) == best_peak(p)
    assert find_violations(p, stacked(p)) == ()


@pytest.mark.parametrize("rows", GADGETS, ids=len)
def test_gadgets_need_more_than_their_load(rows: tuple[tuple[int, int, int], ...]) -> None:
    p = problem(*rows)
    assert optimum(p) == max_load(p).bytes + 1


def test_the_smallest_gadget_defeats_every_order() -> None:
    p = problem(*GADGETS[0])
    assert (max_load(p).bytes, best_peak(p)) == (15, 16)
    assert solve(replace(p, capacity=15), options=SolveOptions(fit=True)).status is Status.INFEASIBLE


@pytest.mark.parametrize("seed", range(20))
def test_tilings_are_full_everywhere(seed: int) -> None:
    p = tiling(random.Random(seed), 24, 12, 20)
    assert max_load(p).bytes == optimum(p) == 24
    assert sum(b.size * (b.lifespan.end - b.lifespan.start) for b in p.buffers) == 24 * 12
