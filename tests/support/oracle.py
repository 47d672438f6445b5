"""Small layout problems of many kinds, a third with an optimum above the max-load bound, and their judges.

`optimum` asks CP-SAT in a model of its own that shares nothing with the product but the types. Where load
meets optimum, a search only has to find; where it does not, it has to refute, which is where a wrong search
would lie. Random problems rarely have such an optimum, so several kinds are made on purpose:

    stream    every step full, or nearly: births fill what deaths have left, lifespans cross
    gadget    one of `GADGETS` with other buffers around, below and after it, sizes scaled
    tiling    a full rectangle, cut up; one piece then longer, shorter, larger or smaller
    loose     anything
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

from ortools.sat.python import cp_model

from solver.layout import (
    Buffer,
    Deadline,
    Layout,
    LayoutProblem,
    Lifespan,
    Rules,
    SolveOptions,
    find_violations,
    max_load,
    solve,
)
from solver.layout.exact.capacity_search import CapacitySearch
from solver.layout.exact.feasibility import Watch
from solver.layout.model.instance import Instance
from tests.support.buffers import varied

__all__ = ["GADGETS", "RULE_SETS", "Verdict", "judge", "optimum", "sample", "stacked", "tightened", "tiling"]

#: size:start-end. Problems whose optimum lies above their load, each as small as a search could make it.
_GADGETS: Final = """
6:0-1 3:0-2 6:0-2 1:1-3 5:1-4 2:2-4 8:3-5 6:4-5
4:0-1 4:0-2 2:1-3 3:1-3 2:2-4 1:2-5 2:3-5 5:4-6 4:5-6
7:0-1 4:0-2 5:0-2 4:1-3 1:1-4 8:2-4 7:3-5 4:4-5 5:4-5
6:0-1 7:0-1 6:0-3 5:1-2 7:1-2 1:1-4 8:2-5 7:3-4 11:4-5
3:0-1 7:0-1 1:0-2 7:1-2 2:1-3 1:1-4 4:2-3 4:2-4 6:3-5 5:4-5
6:0-1 3:0-2 6:0-2 5:1-3 1:1-4 1:2-4 3:3-4 3:3-5 6:3-5 6:4-5
3:0-1 4:0-1 4:0-2 10:0-2 1:1-3 5:1-4 12:2-4 4:3-5 6:4-5 7:4-5
6:0-1 6:0-2 3:0-3 6:0-3 3:1-3 1:1-4 3:2-3 4:2-4 8:3-4 8:3-4
8:0-1 5:0-2 6:0-2 6:0-2 7:1-3 7:1-4 1:2-4 12:2-5 8:3-5 11:4-5
10:0-1 10:0-1 5:0-2 7:0-3 9:1-2 7:1-3 4:1-4 13:2-4 6:3-4 9:3-4
5:0-1 5:0-1 6:0-2 2:1-3 7:1-3 1:1-4 2:2-4 2:3-5 5:3-5 5:3-5 4:4-5
7:0-1 4:0-2 7:0-2 1:1-3 2:1-4 3:1-4 9:2-4 4:3-5 3:4-5 3:4-5 7:4-5
11:0-1 9:0-3 10:1-2 3:1-4 1:2-5 7:3-6 7:3-6 5:4-7 3:5-8 9:6-8 6:7-8
5:0-1 5:0-1 7:0-1 8:0-2 4:1-3 6:1-4 7:1-5 1:2-4 8:3-5 5:4-5 5:4-5
5:0-1 11:0-1 8:0-2 4:1-3 10:1-3 3:1-4 1:2-4 8:3-4 11:3-5 7:4-5 7:4-5
5:0-1 8:0-1 13:0-1 4:0-2 2:0-3 10:1-2 14:1-4 13:2-3 3:2-5 14:3-5 15:4-5
"""


def _rows(line: str) -> tuple[tuple[int, int, int], ...]:
    """(size, start, end) of each buffer."""
    cells = (re.split("[:-]", word) for word in line.split())
    return tuple((int(size), int(start), int(end)) for size, start, end in cells)


GADGETS: Final = tuple(map(_rows, _GADGETS.split("\n")[1:-1]))

#: For each seed of a search; the default solver needs a hundredth of it, a search without any rule all.
WORK: Final = 5_000_000

#: Each with its name: all rules, each rule left out, none.
RULE_SETS: Final[dict[str, Rules]] = {
    "all": Rules(),
    **{f"without {f.name}": replace(Rules(), **{f.name: False}) for f in fields(Rules)},
    "none": Rules(**{f.name: False for f in fields(Rules)}),
}


def optimum(problem: LayoutProblem) -> int:
    """The smallest peak; exact, with pins, gaps, any alignments. Milliseconds for some thirty small buffers.

    Offsets count in granules, the smallest alignment: between multiples of it nothing starts, so a buffer
    keeps others off whole granules; where a gap begins or ends between multiples, a granule is a byte. Only
    the peak is in bytes.
    """
    model = cp_model.CpModel()
    granule, most = min(b.alignment for b in problem.buffers), stacked(problem).peak
    if any(edge % granule for b in problem.buffers for hole in b.holes for edge in (hole.low, hole.high)):
        granule = 1
    peak = model.new_int_var(0, most, "")
    spans, ranges = [], []
    for buffer in problem.buffers:
        stride = buffer.alignment // granule
        strides = model.new_int_var(0, most // buffer.alignment, "")
        if buffer.offset is not None:
            model.add(strides == buffer.offset // buffer.alignment)
        for start, end, low, high in _rectangles(buffer):
            spans.append(model.new_fixed_size_interval_var(start, end - start, ""))
            bottom, height = stride * strides + low // granule, -(-(high - low) // granule)
            ranges.append(model.new_fixed_size_interval_var(bottom, height, ""))
        model.add(buffer.alignment * strides + buffer.size <= peak)
    model.add_no_overlap_2d(spans, ranges)
    model.minimize(peak)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        raise AssertionError("CP-SAT did not finish")
    return round(solver.objective_value)


def _rectangles(buffer: Buffer) -> list[tuple[int, int, int, int]]:
    """First step, one past the last, and the bytes held in between, before, in and behind each gap."""
    made, begin = list[tuple[int, int, int, int]](), buffer.lifespan.start
    for hole in buffer.holes:
        made.append((begin, hole.lifespan.start, 0, buffer.size))
        made.append((hole.lifespan.start, hole.lifespan.end, hole.low, hole.high))
        begin = hole.lifespan.end
    made.append((begin, buffer.lifespan.end, 0, buffer.size))
    return [each for each in made if each[0] < each[1] and each[2] < each[3]]


def stacked(problem: LayoutProblem) -> Layout:
    """Pins where they are, everything else one above the other: the worst layout worth the name."""
    offsets, top = [], max((b.offset + b.size for b in problem.buffers if b.offset is not None), default=0)
    for buffer in problem.buffers:
        offset = -(-top // buffer.alignment) * buffer.alignment if buffer.offset is None else buffer.offset
        offsets.append(offset)
        top = max(top, offset + buffer.size)
    return Layout(tuple(offsets), top)


def tightened(problem: LayoutProblem, options: SolveOptions) -> tuple[Layout, int]:
    """Best layout and proved bound (bytes) of the compiled search by itself: no greedy layout before it."""
    watch = Watch(Deadline(), options)
    bound = max_load(problem).bytes
    search = CapacitySearch(
        Instance.of(problem), stacked(problem), bound, watch, lambda _layout, _proved: None
    )
    result = search.tighten()
    return result.layout, max(bound, result.proved)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of CP-SAT, the searches that disagree, and those that ran out of work before an answer.

    The last two name rule sets, or ``portfolio`` for the default solver.
    """

    bound: int
    best: int
    mistaken: tuple[str, ...]
    unfinished: tuple[str, ...]


def judge(problem: LayoutProblem) -> Verdict:
    """Every rule set of the compiled search, and the default solver, against CP-SAT and the sweep."""
    best = optimum(problem)
    options = SolveOptions(threads=1, work=WORK)
    claims = {name: tightened(problem, replace(options, rules=rules)) for name, rules in RULE_SETS.items()}
    outcome = solve(problem, options=options)
    claims["portfolio"] = (outcome.layout or stacked(problem), outcome.lower_bound)
    return Verdict(
        max_load(problem).bytes,
        best,
        tuple(name for name, claim in claims.items() if not _true(problem, *claim, best)),
        tuple(name for name, (layout, proved) in claims.items() if proved < layout.peak),
    )


def _true(problem: LayoutProblem, layout: Layout, proved: int, best: int) -> bool:
    """Nothing is claimed that is not so."""
    return proved <= best <= layout.peak and not find_violations(problem, layout)


def sample(seed: int) -> LayoutProblem:
    """A problem of some kind; the same seed gives the same problem."""
    rng = random.Random(seed)
    kinds: tuple[Callable[[random.Random], LayoutProblem], ...] = (_stream, _gadget, _perturbed, _loose)
    (kind,) = rng.choices(kinds, weights=(55, 25, 10, 10))
    made = kind(rng)
    while rng.random() < 0.2:
        made = varied(rng, made)
    return _aligned(rng, made) if rng.random() < 0.15 else made


def _stream(rng: random.Random) -> LayoutProblem:
    """Two to four dozen buffers."""
    height = rng.randint(9, 48)
    smallest = max(1, height // rng.randint(5, 9))
    largest = max(smallest, height * rng.randint(30, 50) // 100)
    longest, steps = rng.randint(5, 8), rng.randint(16, 30)
    made: list[Buffer] = []
    for step in range(steps):
        left = height - sum(b.size for b in made if b.lifespan.end > step)
        while left >= smallest:
            size = rng.randint(smallest, min(left, largest))
            size = min(left, largest) if left - size < smallest else size
            made.append(
                Buffer(f"b{len(made)}", size, Lifespan(step, min(steps, step + rng.randint(1, longest))))
            )
            left -= size
    return LayoutProblem(tuple(made))


def _gadget(rng: random.Random) -> LayoutProblem:
    """Scaled, maybe time reversed, with others below all of it and after it."""
    rows, scale = rng.choice(GADGETS), rng.randint(1, 4)
    height = scale * _load(rows)
    last = max(end for _, _, end in rows)
    if rng.random() < 0.5:
        rows = tuple((size, last - end, last - start) for size, start, end in rows)
    made = [(scale * size, start, end) for size, start, end in rows]
    below = rng.randint(0, 3)
    made += [(rng.randint(1, 9), 0, last) for _ in range(below)]
    height += sum(size for size, _, _ in made[len(rows) :])
    for _ in range(rng.randint(0, 3)):
        start = last + rng.randint(0, 2)
        last = start + rng.randint(1, 4)
        made.append((rng.randint(1, height), start, last))
    rng.shuffle(made)
    return LayoutProblem(tuple(Buffer(f"b{i}", z, Lifespan(s, e)) for i, (z, s, e) in enumerate(made)))


def _load(rows: tuple[tuple[int, int, int], ...]) -> int:
    return max(sum(size for size, start, end in rows if start <= step < end) for _, step, _ in rows)


def _perturbed(rng: random.Random) -> LayoutProblem:
    return varied(rng, tiling(rng, rng.randint(8, 40), rng.randint(6, 16), rng.randint(8, 22)))


def _loose(rng: random.Random) -> LayoutProblem:
    steps, made = rng.randint(1, 12), []
    for i in range(rng.randint(1, 18)):
        start = rng.randrange(steps)
        made.append(Buffer(f"b{i}", rng.randint(1, 30), Lifespan(start, rng.randint(start + 1, steps))))
    return LayoutProblem(tuple(made))


def _aligned(rng: random.Random, problem: LayoutProblem) -> LayoutProblem:
    """One alignment for all, whatever the sizes: the search then deals with padding."""
    alignment = rng.choice((2, 4, 8))
    return LayoutProblem(tuple(replace(b, alignment=alignment) for b in problem.buffers))


def tiling(rng: random.Random, height: int, width: int, cuts: int) -> LayoutProblem:
    """A rectangle cut into pieces by random cuts: the optimum is its height."""
    pieces = [(0, width, 0, height)]
    for _ in range(cuts):
        start, end, low, high = pieces.pop(rng.randrange(len(pieces)))
        if rng.random() < 0.5 and end - start > 1:
            at = rng.randrange(start + 1, end)
            pieces += [(start, at, low, high), (at, end, low, high)]
        elif high - low > 1:
            at = rng.randrange(low + 1, high)
            pieces += [(start, end, low, at), (start, end, at, high)]
        else:
            pieces.append((start, end, low, high))
    rng.shuffle(pieces)
    return LayoutProblem(
        tuple(Buffer(f"b{i}", high - low, Lifespan(s, e)) for i, (s, e, low, high) in enumerate(pieces))
    )
