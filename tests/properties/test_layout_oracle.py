"""CP-SAT as oracle of the compiled search, every rule on and off; ten problems for each fuzz example."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from dataclasses import replace

import pytest

from solver.layout import (
    Buffer,
    Hole,
    LayoutProblem,
    Lifespan,
    Rules,
    SolveOptions,
    Status,
    find_violations,
    max_load,
    solve,
)
from solver.layout.model.instance import Instance, layout_of
from solver.layout.model.pieces import without_holes
from solver.layout.structures import STRUCTURES, structured
from tests.support.buffers import best_peak, problem, random_problem, solved
from tests.support.every import grid
from tests.support.oracle import GADGETS, RULE_SETS, judge, optimum, sample, stacked, tiling
from tests.support.shapes import SHAPES, pinned

pytestmark = pytest.mark.fuzz

FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)
PROBLEMS = 10 * FUZZ or 30
MIXED = FUZZ or 9
PINNED = FUZZ or 15
STRUCTURED = 10 * FUZZ or 60


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


def test_structures_agree_with_cp_sat_with_their_rule_on_and_off(capsys: pytest.CaptureFixture[str]) -> None:
    """Equal sizes, chains, nests and others: what a theorem places, and what search makes of it."""
    met: Counter[str] = Counter()
    shapes = [shape for name, shape in SHAPES.items() if not name.startswith("gaps")]
    for seed in range(STRUCTURED):
        p = _small(shapes[seed % len(shapes)](random.Random(seed).randint(1, 14), seed), seed)
        best, bound = optimum(p), max_load(p).bytes
        for name, offsets in structured(Instance.of(p)):
            placed = layout_of(Instance.of(p), offsets)
            assert find_violations(p, placed) == (), (seed, name)
            assert best <= placed.peak, (seed, name)
            met[name] += placed.peak == best == bound
        for on in (True, False):
            outcome = solved(p, options=SolveOptions(threads=1, rules=Rules(structure=on)))
            assert outcome.lower_bound <= best <= outcome.layout.peak, seed
            assert outcome.status is not Status.OPTIMAL or outcome.layout.peak == best, seed
    if FUZZ:
        with capsys.disabled():
            of_each = ", ".join(f"{count:,} {name} at the bound" for name, count in sorted(met.items()))
            sys.stdout.write(f"\n{STRUCTURED:,} problems, structure on and off; {of_each}\n")
    assert set(met) == {structure.name for structure in STRUCTURES}


def _small(p: LayoutProblem, seed: int) -> LayoutProblem:
    """Sizes and alignments that CP-SAT is quick with, every other time four times the alignment.

    Where something was pinned, something is pinned again: where a greedy layout of the small sizes has it.
    Of mixed alignments it takes no more than eight buffers in a second.
    """
    alignment, mixed = (1, 4)[seed % 2], len({b.alignment for b in p.buffers}) > 1
    small = LayoutProblem(
        tuple(
            replace(b, size=b.size % 40 + 1, alignment=min(b.alignment, 8) * alignment, offset=None)
            for b in p.buffers[: 8 if mixed else None]
        )
    )
    return pinned(small, 0.2, seed) if any(b.offset is not None for b in p.buffers) else small


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


def _gapped(seed: int) -> LayoutProblem:
    """Gaps in most lifespans, of which some hold a part; any alignments, and in every third problem pins."""
    rng = random.Random(seed)
    p = random_problem(rng, rng.randint(2, 9), 9, rng.choice((6, 20, 40)))
    choice, made = rng.choice(((1,), (4,), (1, 2, 8), (4, 16))), list[Buffer]()
    for buffer in p.buffers:
        holes, begin, last = list[Hole](), buffer.lifespan.start + 1, buffer.lifespan.end - 1
        while begin < last and rng.random() < 0.8:
            start = rng.randrange(begin, last)
            end = rng.randint(start + 1, last)
            low, high = sorted(rng.choices(range(buffer.size + 1), k=2)) if rng.random() < 0.4 else (0, 0)
            holes.append(Hole(Lifespan(start, end), low, high))
            begin = end + 1
        made.append(replace(buffer, alignment=rng.choice(choice), holes=tuple(holes)))
    gapped = LayoutProblem(tuple(made))
    placed = solve(gapped, solver="greedy").layout
    if seed % 3 or placed is None:
        return gapped
    pins = set(rng.sample(range(len(made)), min(len(made), rng.choice((1, 2)))))
    offsets = (offset if i in pins else None for i, offset in enumerate(placed.offsets))
    return LayoutProblem(tuple(map(_pinned, gapped.buffers, offsets)))


def test_gaps_agree_with_cp_sat() -> None:
    proved = useful = 0
    for seed in range(PINNED):
        p = _gapped(seed)
        best, outcome = optimum(p), solve(p, options=SolveOptions(threads=1))
        assert outcome.layout is not None
        assert find_violations(p, outcome.layout) == (), seed
        assert max_load(p).bytes <= outcome.lower_bound <= best <= outcome.layout.peak, seed
        assert outcome.status is not Status.OPTIMAL or outcome.layout.peak == best, seed
        proved += outcome.status is Status.OPTIMAL
        useful += best < max_load(without_holes(p)).bytes
    assert proved >= 0.9 * PINNED
    assert 5 * useful >= PINNED


@grid("seed", range(25))
def test_the_oracle_itself_agrees_with_trying_every_order(seed: int) -> None:
    rng = random.Random(seed)
    p = _constrained(rng)
    p = LayoutProblem(p.buffers[:5])
    assert optimum(p) == best_peak(p)
    assert find_violations(p, stacked(p)) == ()


@grid("rows", GADGETS)
def test_gadgets_need_more_than_their_load(rows: tuple[tuple[int, int, int], ...]) -> None:
    p = problem(*rows)
    assert optimum(p) == max_load(p).bytes + 1


def test_the_smallest_gadget_defeats_every_order() -> None:
    p = problem(*GADGETS[0])
    assert (max_load(p).bytes, best_peak(p)) == (15, 16)
    assert solve(replace(p, capacity=15), options=SolveOptions(fit=True)).status is Status.INFEASIBLE


@grid("seed", range(20))
def test_tilings_are_full_everywhere(seed: int) -> None:
    p = tiling(random.Random(seed), 24, 12, 20)
    assert max_load(p).bytes == optimum(p) == 24
    assert sum(b.size * (b.lifespan.end - b.lifespan.start) for b in p.buffers) == 24 * 12
