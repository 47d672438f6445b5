"""Going back to what caused a failure, and promoting kinds that were placed too late."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from solver.compile import load
from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan, Rules, SolveOptions
from solver.layout.exact.feasibility import Answer, Decision, FeasibilitySearch, Watch
from solver.layout.kernels.priorities import priorities
from solver.layout.kernels.skyline_choice import ROUND, prepare
from solver.layout.kernels.skyline_conflicts import stretch
from solver.layout.kernels.skyline_state import (
    GUIDED,
    PROMOTION,
    RULES,
    SEED,
    STRETCHES,
    SearchState,
    allocate,
    kinds,
)
from solver.layout.model.instance import Instance
from tests.support.buffers import best_peak, random_problem
from tests.support.oracle import tiling

pytestmark = pytest.mark.skipif(not load(), reason="nothing compiles here")

#: One run, so that what two searches have to look at can be compared.
ONE_RUN = Rules(restarts=False, transposition=False)


def decide(problem: LayoutProblem, capacity: int, rules: Rules, guide: list[int] | None = None) -> Decision:
    options = SolveOptions(threads=1, rules=rules)
    search = FeasibilitySearch(Instance.of(problem), options)
    offsets = None if guide is None else np.array(guide, dtype=np.int64)
    return search.decide(capacity, 10**8, Watch(Deadline(), options), offsets)


def fresh_state(instance: Instance) -> SearchState:
    made = allocate(instance, 1, np.full(len(instance), 10**6), 4, 100, np.array([0, 2**62]), 1)
    made.counters[[SEED, RULES, GUIDED]] = (1, PROMOTION, 1)
    return made


def test_a_search_that_goes_back_to_the_cause_looks_at_far_less() -> None:
    """One depth-first run for each tiling, without a table that would save part of it, too."""
    spent = {True: 0, False: 0}
    for seed in range(30):
        p = tiling(random.Random(seed), 40, 40, 60)
        for jumps in spent:
            decision = decide(p, 40, replace(ONE_RUN, jumps=jumps))
            assert decision.answer is Answer.YES
            spent[jumps] += decision.work
    assert spent[True] < spent[False] / 2


@pytest.mark.parametrize("jumps", [True, False])
@pytest.mark.parametrize("promotion", [True, False])
def test_neither_changes_what_fits(jumps: bool, promotion: bool) -> None:
    rules = Rules(jumps=jumps, promotion=promotion)
    for seed in range(60):
        rng = random.Random(seed)
        p = random_problem(rng, rng.randint(1, 7), 9, 9, rng.choice(((1,), (4,), (1, 2, 8))))
        best, guide = best_peak(p), [0] * len(p.buffers)
        assert decide(p, best, rules, guide).answer is Answer.YES
        assert decide(p, best - 1, rules, guide).answer is Answer.NO


def test_bits_of_a_stretch_are_those_of_its_sections() -> None:
    """Problems with more sections than bits share them among neighbours."""
    for sections in (1, 5, STRETCHES, 3 * STRETCHES + 1):
        instance = Instance.of(
            LayoutProblem(tuple(Buffer(str(t), 1, Lifespan(t, t + 2)) for t in range(sections)))
        )
        s, rng = fresh_state(instance), random.Random(sections)
        assert s.bit.min() == 0
        assert s.bit.max() < STRETCHES
        bits = 1 << s.bit.astype(np.int64)
        for _ in range(50):
            start = rng.randrange(instance.sections)
            end = rng.randint(start + 1, instance.sections)
            assert stretch(s, start, end) == np.bitwise_or.reduce(bits[start:end])


def test_the_more_active_a_kind_the_earlier_it_is_tried() -> None:
    instance = Instance.of(random_problem(random.Random(7), 40, 6, 3, (1,)))
    kind = kinds(instance)
    ranks = np.vstack((*priorities(instance, kind), np.zeros(len(instance)))).astype(np.int16)
    passive, active = fresh_state(instance), fresh_state(instance)
    active.activity[kind[0]] = 5
    earlier = [0, 0]
    for run in range(0, 2 * ROUND, 2):
        for s in (passive, active):
            with np.errstate(over="ignore"):  # of hashes
                prepare(s, ranks, run)
        places = [int((s.rank < s.rank[0]).sum()) for s in (passive, active)]
        earlier = [total + place for total, place in zip(earlier, places, strict=True)]
        kept = [np.argsort(s.rank[kind != kind[0]], kind="stable").tolist() for s in (passive, active)]
        assert kept[0] == kept[1], "the others keep their order"
    assert earlier[1] < earlier[0] / 2
