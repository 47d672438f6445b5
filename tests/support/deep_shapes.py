"""More layout problems of one shape each: deep ones, of which a twentieth or more live at once, and regular.

Simple orders are at their best where much lives at once: whatever goes wrong elsewhere is averaged out, and
one order in some thirty happens to suit the shape.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from solver.layout import Buffer, Hole, LayoutProblem, Lifespan
from tests.support.shapes import SHAPES, Shape, nested, pinned

__all__ = ["DEEP", "EVERY"]

#: Size, start, end.
_Row: TypeAlias = tuple[int, int, int]
_Draw: TypeAlias = Callable[[random.Random], int]

#: The largest of most sizes, and the largest power of two as an exponent, of alignments.
_LARGEST: Final = 100_000
_ALIGNMENTS: Final = 13


def _rows(rows: list[_Row], alignments: list[int] | None = None) -> LayoutProblem:
    aligned = zip(rows, alignments or [1] * len(rows), strict=True)
    buffers = (Buffer(f"b{i}", z, Lifespan(s, e), a) for i, ((z, s, e), a) in enumerate(aligned))
    return LayoutProblem(tuple(buffers))


def _any_size(rng: random.Random) -> int:
    return rng.randint(1, _LARGEST)


def _alignments(n: int, rng: random.Random) -> list[int]:
    return [2 ** rng.randrange(_ALIGNMENTS) for _ in range(n)]


def _lives(n: int, rng: random.Random, depth: float) -> list[tuple[int, int]]:
    """Births anywhere, lives of any length up to that at which this share of all live at once."""
    starts = [rng.randrange(n) for _ in range(n)]
    return [(start, start + rng.randint(1, max(2, int(2 * depth * n)))) for start in starts]


def _deep(size: _Draw, depth: float = 0.05, *, aligned: bool = False) -> Shape:
    """Sizes by `size`, lives by `_lives`; `aligned`: any alignment up to 4096."""

    def made(n: int, seed: int) -> LayoutProblem:
        rng = random.Random(seed)
        rows = [(size(rng), start, end) for start, end in _lives(n, rng, depth)]
        return _rows(rows, _alignments(n, rng) if aligned else None)

    return made


def _by_life(size: Callable[[int, int, random.Random], int], depth: float = 0.05) -> Shape:
    """Sizes by life and number of buffers."""

    def made(n: int, seed: int) -> LayoutProblem:
        rng = random.Random(seed)
        return _rows([(size(end - start, n, rng), start, end) for start, end in _lives(n, rng, depth)])

    return made


def _stepped(row: Callable[[int, int, random.Random], _Row]) -> Shape:
    """One row for each position, number of buffers and generator."""

    def made(n: int, seed: int) -> LayoutProblem:
        rng = random.Random(seed)
        return _rows([row(i, n, rng) for i in range(n)])

    return made


def _one_alignment_each(n: int, seed: int) -> LayoutProblem:
    """Equal sizes, of any alignment."""
    rng = random.Random(seed)
    return _rows([(3000, start, end) for start, end in _lives(n, rng, 0.05)], _alignments(n, rng))


def _tiling(n: int, seed: int) -> LayoutProblem:
    """A rectangle cut in two again and again, across time or across memory: nothing is wasted at best."""
    rng, boxes = random.Random(seed), [(0, 8 * n, 0, 1000 * n)]
    while len(boxes) < n:
        at = rng.randrange(len(boxes))
        start, end, bottom, top = boxes[at]
        if rng.random() < 0.5 and end - start > 1:
            cut = rng.randint(start + 1, end - 1)
            boxes[at] = (start, cut, bottom, top)
            boxes.append((cut, end, bottom, top))
        elif top - bottom > 1:
            cut = rng.randint(bottom + 1, top - 1)
            boxes[at] = (start, end, bottom, cut)
            boxes.append((start, end, cut, top))
    rng.shuffle(boxes)
    return _rows([(top - bottom, start, end) for start, end, bottom, top in boxes])


def _bursts(n: int, seed: int) -> LayoutProblem:
    """Births in forty bursts, lives of up to ten of these."""
    rng = random.Random(seed)
    starts = [100 * rng.randrange(40) for _ in range(n)]
    return _rows([(_any_size(rng), start, start + rng.randint(1, 1000)) for start in starts])


def _sawtooth(n: int, seed: int) -> LayoutProblem:
    """Twenty teeth, in each of which all live until its end; one in twenty is a bridge to the next ones."""
    rng, tooth, rows = random.Random(seed), max(2, n // 20), list[_Row]()
    for i in range(n):
        end = (i // tooth + 1) * tooth
        rows.append((_any_size(rng), i, end + (rng.randint(1, 3 * tooth) if rng.random() < 0.05 else 0)))
    return _rows(rows)


def _training(n: int, seed: int) -> LayoutProblem:
    """Half of them live from a step forwards to its mirror backwards, the others shortly."""
    rng, rows = random.Random(seed), list[_Row]()
    for i in range(n):
        step, short = i // 2, rng.randint(1, 4)
        rows.append(
            (_any_size(rng), step, 2 * n - step) if i % 2 else (_any_size(rng), 4 * step, 4 * step + short)
        )
    return _rows(rows)


def _ring(n: int, seed: int) -> LayoutProblem:
    """Lives of one length, a third of them with a gap in the middle in which nothing is held."""
    rng, life, made = random.Random(seed), max(8, n // 20), list[Buffer]()
    for i in range(n):
        start, holes = rng.randrange(n), tuple[Hole, ...]()
        if i % 3 == 0:
            holes = (Hole(Lifespan(start + life // 4, start + life // 2), 0, 0),)
        made.append(Buffer(f"b{i}", rng.randint(1, 1000), Lifespan(start, start + life), 1, None, holes))
    return LayoutProblem(tuple(made))


def _layers(n: int, seed: int) -> LayoutProblem:
    """A hundred layers of one size each, whose buffers live for a few layers."""
    rng = random.Random(seed)
    sizes = [2 ** rng.randrange(8, 17) * rng.choice((1, 3)) for _ in range(100)]
    rows = list[_Row]()
    for _ in range(n):
        layer = rng.randrange(100)
        rows.append((sizes[layer], layer, layer + rng.randint(1, 12)))
    return _rows(rows)


def _shuffled(problem: LayoutProblem, seed: int) -> LayoutProblem:
    buffers = list(problem.buffers)
    random.Random(seed).shuffle(buffers)
    return replace(problem, buffers=tuple(buffers))


def _life(n: int, rng: random.Random) -> int:
    """A twentieth of all, and a little more or less."""
    return max(2, n // 20 + rng.randint(-n // 400, n // 400))


DEEP: Final[Mapping[str, Shape]] = MappingProxyType(
    {
        "any, deep": _deep(_any_size),
        "any, very deep": _deep(_any_size, 0.2),
        "mixed alignments, deep": _deep(_any_size, aligned=True),
        "mixed alignments, very deep": _deep(_any_size, 0.2, aligned=True),
        "mixed alignments, few bytes": _deep(lambda rng: rng.randint(1, 5000), aligned=True),
        "equal sizes, mixed alignments": _one_alignment_each,
        "powers of two, deep": _deep(lambda rng: 2 ** rng.randrange(16)),
        "powers of two, very deep": _deep(lambda rng: 2 ** rng.randrange(16), 0.2),
        "powers of two, aligned": _deep(lambda rng: 2 ** rng.randrange(16), aligned=True),
        "equal sizes, deep": _deep(lambda rng: 64),
        "two sizes, deep": _deep(lambda rng: rng.choice((1000, 1618))),
        "few sizes, deep": _deep(lambda rng: rng.choice((96, 160, 1000, 4096, 70_000))),
        "small integers, deep": _deep(lambda rng: rng.randint(1, 8)),
        "small integers, very deep": _deep(lambda rng: rng.randint(1, 8), 0.2),
        "heavy tail, deep": _deep(lambda rng: int(1000 * rng.paretovariate(1.1))),
        "close sizes, deep": _deep(lambda rng: rng.randint(90_000, 100_000)),
        "size with life": _by_life(lambda life, n, rng: 10 * life + rng.randint(1, 100)),
        "size inverse to life": _by_life(lambda life, n, rng: 100 * n // life + rng.randint(1, 100)),
        "size inverse to root of life": _by_life(
            lambda life, n, rng: int(1e6 / life**0.5) + rng.randint(1, 9)
        ),
        "one length, deep": _stepped(lambda i, n, rng: (_any_size(rng), i, i + n // 20 + 1)),
        "one length, births anywhere": _stepped(
            lambda i, n, rng: (_any_size(rng), s := rng.randrange(n), s + n // 20 + 1)
        ),
        "almost one length, deep": _stepped(lambda i, n, rng: (_any_size(rng), i, i + _life(n, rng))),
        "two lengths": _stepped(
            lambda i, n, rng: (_any_size(rng), i, i + (n // 8 if rng.random() < 0.2 else n // 80) + 1)
        ),
        "staircase down, deep": _stepped(
            lambda i, n, rng: (1000 - 999 * i // n + rng.randrange(20), i, i + 2 + i // 10)
        ),
        "staircase up, deep": _stepped(
            lambda i, n, rng: (1 + 999 * i // n + rng.randrange(20), i, i + 2 + i // 10)
        ),
        "growing": _stepped(lambda i, n, rng: (1 + i + rng.randrange(50), i, i + 1 + rng.randint(1, n // 5))),
        "shrinking": _stepped(
            lambda i, n, rng: (n - i + rng.randrange(50), i, i + 1 + rng.randint(1, n // 5))
        ),
        "stack": _stepped(lambda i, n, rng: (_any_size(rng), i, 2 * n - i + rng.randint(0, n // 10))),
        "queue": _stepped(lambda i, n, rng: (_any_size(rng), i, n + i - rng.randint(0, n // 10))),
        "sawtooth with bridges": _sawtooth,
        "tiling": _tiling,
        "nested, shuffled": lambda n, seed: _shuffled(nested(n, seed), seed),
        "bursts": _bursts,
        "layers": _layers,
        "training": _training,
        "ring with gaps": _ring,
        "pins, deep": lambda n, seed: pinned(_deep(_any_size)(n, seed), 0.02, seed),
        "a third pinned, deep": lambda n, seed: pinned(_deep(_any_size)(n, seed), 0.3, seed),
        "most pinned, deep": lambda n, seed: pinned(
            _deep(lambda rng: 2 ** rng.randrange(16))(n, seed), 0.6, seed
        ),
    }
)

#: All shapes, those of few at a time first.
EVERY: Final[Mapping[str, Shape]] = MappingProxyType({**SHAPES, **DEEP})
