"""Layout problems of one shape each, of any number of buffers, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from solver.layout import Buffer, Hole, LayoutProblem, Lifespan, solve

__all__ = ["SHAPES", "Shape", "nested", "pinned"]

#: A number of buffers and a seed -> a problem.
Shape = Callable[[int, int], LayoutProblem]


def _rows(rows: list[tuple[int, int, int]], alignments: list[int] | None = None) -> LayoutProblem:
    """From (size, start, end)."""
    aligned = zip(rows, alignments or [1] * len(rows), strict=True)
    buffers = (Buffer(f"b{i}", z, Lifespan(s, e), a) for i, ((z, s, e), a) in enumerate(aligned))
    return LayoutProblem(tuple(buffers))


def _lives(n: int, rng: random.Random, most: int = 60) -> list[tuple[int, int]]:
    """Born at any of twice as many steps as there are buffers."""
    starts = [rng.randrange(2 * n) for _ in range(n)]
    return [(start, start + rng.randint(1, most)) for start in starts]


def _drawn(n: int, seed: int, size: Callable[[random.Random], int]) -> LayoutProblem:
    rng = random.Random(seed)
    return _rows([(size(rng), start, end) for start, end in _lives(n, rng)])


def _equal(n: int, seed: int) -> LayoutProblem:
    rng = random.Random(seed)
    return _rows([(64, start, start + 50) for start in (rng.randrange(n) for _ in range(n))])


def _meeting(n: int, seed: int, others: int) -> LayoutProblem:
    """Each meets so many before it and behind it."""
    rng = random.Random(seed)
    return _rows([(rng.randint(1, 1000), 2 * i, 2 * i + 2 * others + 1) for i in range(n)])


def _lanes(n: int, seed: int, lanes: int) -> LayoutProblem:
    """So many live at once, one after the other in each lane."""
    rng, ends, rows = random.Random(seed), [0] * lanes, list[tuple[int, int, int]]()
    for _ in range(n):
        lane = min(range(lanes), key=ends.__getitem__)
        start = ends[lane]
        ends[lane] = start + rng.randint(1, 12)
        rows.append((rng.randint(1, 1000), start, ends[lane]))
    return _rows(rows)


def nested(n: int, seed: int) -> LayoutProblem:
    """Any two lifespans are nested or apart."""
    rng, rows, todo = random.Random(seed), list[tuple[int, int, int]](), [(0, 4 * n)]
    while len(rows) < n:
        at = rng.randrange(len(todo))
        todo[at], todo[-1] = todo[-1], todo[at]
        start, end = todo.pop()
        rows.append((rng.randint(1, 1000), start, end))
        if end - start > 2:
            middle = rng.randint(start + 1, end - 1)
            todo += [(start, middle), (middle, end)]
        todo = todo or [(0, 4 * n)]
    return _rows(rows)


def _proper(n: int, seed: int) -> LayoutProblem:
    """Lives of one length, a birth a step: none lies within another."""
    rng = random.Random(seed)
    return _rows([(rng.randint(1, 100_000), i, i + 50) for i in range(n)])


def _mixed(n: int, seed: int) -> LayoutProblem:
    """Any size, any alignment from 1 to 4096."""
    rng = random.Random(seed)
    rows = [(rng.randint(1, 100_000), start, end) for start, end in _lives(n, rng)]
    return _rows(rows, [2 ** rng.randrange(13) for _ in range(n)])


def pinned(problem: LayoutProblem, share: float, seed: int) -> LayoutProblem:
    """This share of the buffers pinned where a greedy layout has them."""
    rng, placed = random.Random(seed), solve(problem, solver="first-fit").layout
    offsets = placed.offsets if placed else ()
    chosen = set(rng.sample(range(len(offsets)), max(1, int(share * len(offsets)))))
    buffers = enumerate(problem.buffers)
    return LayoutProblem(tuple(replace(b, offset=offsets[i]) if i in chosen else b for i, b in buffers))


def _gapped(n: int, seed: int, alignment: int = 1) -> LayoutProblem:
    """Half of the buffers have a gap, during which some of these hold a quarter of their bytes."""
    rng, made = random.Random(seed), list[Buffer]()
    for i, (start, end) in enumerate(_lives(n, rng)):
        size, holes = rng.randint(1, 1000) * max(1, alignment // 16), list[Hole]()
        if end - start > 4 and rng.random() < 0.5:
            begin = rng.randint(start + 1, end - 3)
            held = 0 if rng.random() < 0.7 else size // 4
            holes.append(Hole(Lifespan(begin, rng.randint(begin + 1, end - 1)), 0, held))
        made.append(Buffer(f"b{i}", size, Lifespan(start, end), alignment, None, tuple(holes)))
    return LayoutProblem(tuple(made))


def _staircase(n: int, seed: int) -> LayoutProblem:
    """A birth a step, each living longer and smaller than the one before: sizes mislead, time does not."""
    rng = random.Random(seed)
    return _rows([(1000 - 999 * i // n + rng.randrange(20), i, i + 2 + i // 20) for i in range(n)])


def _almost_proper(n: int, seed: int) -> LayoutProblem:
    """Lives of one length, an eighth of them all, but for one in twenty that lives longer."""
    rng = random.Random(seed)
    lives = [n // 8 + 1 + (rng.randint(1, n // 10 + 1) if rng.random() < 0.05 else 0) for _ in range(n)]
    return _rows([(rng.randint(1, 100_000), i, i + life) for i, life in enumerate(lives)])


def _aligned_chain(n: int, seed: int) -> LayoutProblem:
    """A chain, of any alignment from 1 to 256."""
    rng = random.Random(seed)
    rows = [(rng.randint(1, 1000), 2 * i, 2 * i + 3) for i in range(n)]
    return _rows(rows, [2 ** rng.randrange(9) for _ in range(n)])


SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "equal sizes": _equal,
        "chain": lambda n, seed: _meeting(n, seed, 1),
        "each meets two": lambda n, seed: _meeting(n, seed, 2),
        "four lanes": lambda n, seed: _lanes(n, seed, 4),
        "nested": nested,
        "one length": _proper,
        "staircase": _staircase,
        "almost one length": _almost_proper,
        "chain, aligned": _aligned_chain,
        "any": lambda n, seed: _drawn(n, seed, lambda rng: rng.randint(1, 100_000)),
        "powers of two": lambda n, seed: _drawn(n, seed, lambda rng: 2 ** rng.randrange(16)),
        "heavy tail": lambda n, seed: _drawn(n, seed, lambda rng: int(1000 * rng.paretovariate(1.1))),
        "mixed alignments": _mixed,
        "pins": lambda n, seed: pinned(_drawn(n, seed, lambda rng: rng.randint(1, 100_000)), 0.02, seed),
        "gaps": _gapped,
        "gaps, aligned": lambda n, seed: _gapped(n, seed, 4096),
    }
)
