"""The fast check says what the reference check says, of right layouts and of wrong ones of every kind."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from solver.layout import Buffer, Hole, Layout, LayoutProblem, Lifespan, check_problem, find_violations
from solver.layout.check import is_sound
from solver.layout.check.fast import Rectangles, rectangles
from solver.layout.check.reference import violations
from solver.layout.check.sweep import disjoint

#: Layouts; `./run fuzz` compares 100,000.
LAYOUTS = 100_000 if os.environ.get("ARENAPLAN_FUZZ") else 10_000

#: Numbers that no array of 64 bits holds, and offsets that are no numbers of bytes.
ODD_OFFSETS: tuple[Any, ...] = (2**70, -(2**70), 2**63 - 1, 2**62, -1, 1.5, True)


def lifespan(rng: random.Random, first: int, last: int) -> Lifespan:
    start = rng.randrange(first, last)
    return Lifespan(start, rng.randint(start + 1, last))


def holes(rng: random.Random, span: Lifespan, size: int) -> tuple[Hole, ...]:
    """Holes that lie apart in the lifespan, some with bytes, some without."""
    edges = sorted(
        rng.sample(range(span.start, span.end + 1), min(2 * rng.randint(0, 2), span.end - span.start))
    )
    found = []
    for start, end in list(pairwise(edges))[::2]:
        low, high = sorted((rng.randint(0, size), rng.randint(0, size)))
        found.append(Hole(Lifespan(start, end), low, high))
    empty = sum(h.lifespan.end - h.lifespan.start for h in found if h.low == h.high)
    return () if size and empty == span.end - span.start else tuple(found)


def buffer(rng: random.Random, i: int) -> Buffer:
    span, size = lifespan(rng, 0, 9), rng.choice((0, 1, 2, 3, 4, 8, 12))
    made = Buffer(f"b{i}", size, span, rng.choice((1, 1, 2, 4)))
    return replace(made, holes=holes(rng, span, size)) if rng.random() < 0.4 else made


def offsets(rng: random.Random, buffers: list[Buffer]) -> list[Any]:
    """At random, where many overlap; or the lowest aligned offset that overlaps nothing placed before."""
    if rng.random() < 0.3:
        return [rng.randrange(0, 24, b.alignment) for b in buffers]
    found: list[Any] = []
    for i, b in enumerate(buffers):
        offset, before = 0, LayoutProblem(tuple(buffers[: i + 1]))
        while any(v.rule == "overlap" for v in violations(before, Layout((*found, offset), 0), _last(i))):
            offset += b.alignment
        found.append(offset)
    return found


def _last(i: int) -> list[tuple[int, int]]:
    return [(j, i) for j in range(i)]


def case(rng: random.Random) -> tuple[LayoutProblem, Layout]:
    """A problem and a layout of it, right or damaged in one to three places."""
    buffers = [buffer(rng, i) for i in range(rng.randint(0, 6))]
    at = offsets(rng, buffers)
    for i, offset in enumerate(at):
        if rng.random() < 0.15:
            buffers[i] = replace(buffers[i], offset=offset)
    peak = max((o + b.size for o, b in zip(at, buffers, strict=True) if b.size), default=0)
    capacity = rng.choice((None, None, peak, peak + 1))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3)) if at else 0):
        i = rng.randrange(len(at))
        match rng.randrange(9):
            case 0 | 1 | 2:  # by one byte, often into a neighbour or off its alignment, or away from its pin
                at[i] += rng.choice((-1, 1))
            case 3:  # by an aligned step
                at[i] += rng.choice((-1, 1)) * buffers[i].alignment
            case 4:  # onto another one
                at[i] = rng.choice(at)
            case 5:
                at[i] = rng.choice(ODD_OFFSETS)
            case 6:
                peak += rng.choice((-1, 1))
            case 7:
                capacity = max(0, peak - 1)
            case _:
                other = buffers[i].lifespan.start + rng.choice((0, 2**64))
                moved = Lifespan(other, other + rng.randint(1, 9))
                buffers[i] = replace(buffers[i], lifespan=moved, holes=())
    if rng.random() < 0.01:
        at = at[:-1] if rng.random() < 0.5 else [*at, 0]
    return LayoutProblem(tuple(buffers), capacity), Layout(tuple(at), peak)


def largest(problem: LayoutProblem, layout: Layout) -> int:
    return max(*layout.offsets, *(b.lifespan.end for b in problem.buffers), 0)


def swept(rows: Rectangles) -> bool | None:
    """What the compiled sweep says, None where numbers do not fit 64 bits."""
    plain = all(column.dtype == np.int64 for column in rows)
    return disjoint(*rows[:4]) if plain and len(rows[0]) else None


def test_the_fast_check_says_what_the_reference_check_says() -> None:
    rules: Counter[str] = Counter()
    for seed in range(LAYOUTS):
        problem, layout = case(random.Random(seed))
        expected = list(violations(problem, layout))
        assert Counter(find_violations(problem, layout)) == Counter(expected), seed
        if is_sound(problem, layout):
            assert not expected, seed
        else:
            assert expected or largest(problem, layout) >= 2**63, seed
        if len(layout.offsets) == len(problem.buffers):
            clear = swept(rectangles(problem, layout.offsets))
            assert clear is None or clear is not any(v.rule == "overlap" for v in expected), seed
        rules.update({v.rule for v in expected} or {"none"})
    # Every rule is broken often enough, and many layouts are right.
    assert set(rules) == {"none", "count", "offset", "alignment", "pin", "overlap", "peak", "capacity"}
    assert min(rules.values()) >= LAYOUTS // 250, rules
    assert rules["none"] >= LAYOUTS // 5, rules


@pytest.mark.parametrize("seed", range(4))
def test_many_small_layouts_side_by_side_in_time_are_one_large_one(seed: int) -> None:
    """More rows than one block has, of which some are live for long."""
    rng = random.Random(seed)
    buffers: list[Buffer] = [Buffer(f"long{i}", 4, Lifespan(0, 200 + i)) for i in range(3)]
    at: list[int] = [0, 4, 8]
    for k in range(150):
        parts = [buffer(rng, i) for i in range(3)]
        for i, b in enumerate(parts):
            span = Lifespan(b.lifespan.start + 3 * k, b.lifespan.end + 3 * k)
            buffers.append(Buffer(f"{k}.{i}", b.size, span, b.alignment))
            at.append(12 + 40 * (k % 4) + 12 * i - 11 * (rng.random() < 0.05))
    problem = LayoutProblem(tuple(buffers))
    layout = Layout(tuple(at), max(o + b.size for o, b in zip(at, buffers, strict=True) if b.size))
    check_problem(problem)
    expected = list(violations(problem, layout))
    assert any(v.rule == "overlap" for v in expected)
    assert Counter(find_violations(problem, layout)) == Counter(expected)
    assert len(find_violations(problem, layout, limit=2)) == 2
    assert not swept(rectangles(problem, layout.offsets))
