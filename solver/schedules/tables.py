"""A scheduling problem as arrays, and the numbers that decide about recomputation: one a gap.

A value is touched by steps of the given order; between two touches lies a gap, behind the last one the tail.

    touched at     2           7     9                each gap has one of three numbers
    gaps           [-----------)[----)[-- tail
    HOLD           the bytes stay through the gap
    AGAIN          dropped; made again when first wanted in the gap, and then held
    BRIEF          dropped; made again whenever wanted, and dropped again behind that reader

Numbers of all gaps give one sequence of steps, whose loads are exact (`kernel.simulate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout.model.instance import Integers

__all__ = [
    "AGAIN",
    "BRIEF",
    "HOLD",
    "MOST_RUNS",
    "Tables",
    "Work",
    "end_to_end",
    "nothing_again",
    "tables",
    "work_for",
]

HOLD, AGAIN, BRIEF = range(3)

#: Steps that a sequence may have for each step of the program, before it counts as a runaway recursion.
MOST_RUNS = 12


class Tables(NamedTuple):
    """The problem. Lists lie end to end: those of step t are ``reads[read_start[t]:read_start[t + 1]]``."""

    read_start: Integers
    reads: Integers
    write_start: Integers
    writes: Integers
    touch_start: Integers
    touches: Integers
    size: Integers
    fed: Integers
    kept: Integers
    maker: Integers
    scratch: Integers
    scratch_again: Integers
    cost: Integers
    until: Integers
    fixed: int


class Work(NamedTuple):
    """Room for one simulation, and what it leaves: of event k the step and the load in bytes; of instance i
    the value and the events of its definition and its last touch.
    """

    steps: Integers
    load: Integers
    change: Integers
    value: Integers
    first: Integers
    last: Integers
    #: By value: whether it is there, its gap, who made it for itself alone, and its current instance.
    there: Integers
    gap: Integers
    owner: Integers
    current: Integers
    #: By depth of the recursion: the step, and its read that is looked at.
    stack: Integers
    place: Integers
    #: Peak, extra cost, events, bytes over the budget summed over events, instances; see `kernel`.
    result: Integers


def end_to_end(rows: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    """Where each list starts, and behind the last one the end; and all lists, one behind the other."""
    starts = np.zeros(len(rows) + 1, np.int64)
    starts[1:] = np.cumsum([len(row) for row in rows])
    return starts, np.array(list(chain.from_iterable(rows)), np.int64)


def tables(problem: ScheduleProblem) -> Tables:
    """The arrays of a problem."""

    def column(numbers: Sequence[int]) -> Integers:
        return np.array(numbers, np.int64)

    return Tables(
        *end_to_end(problem.reads),
        *end_to_end(problem.writes),
        *end_to_end(problem.touches),
        column(problem.size),
        column(problem.fed),
        column(problem.kept),
        column(problem.maker),
        column(problem.scratch),
        column(problem.scratch_again),
        column(problem.cost),
        column(problem.until),
        problem.fixed,
    )


def work_for(problem: ScheduleProblem) -> Work:
    """Room for simulations of a problem, to be used again and again."""
    steps, values = len(problem.steps), len(problem.values)
    events = MOST_RUNS * steps + 1
    widest = max((len(row) for row in problem.writes), default=0)
    instances = events * max(widest, 1) + values

    def room(count: int) -> Integers:
        return np.zeros(max(count, 1), np.int64)

    return Work(
        steps=room(events),
        load=room(events),
        change=room(events + 1),
        value=room(instances),
        first=room(instances),
        last=room(instances),
        there=room(values),
        gap=room(values),
        owner=room(values),
        current=room(values),
        stack=room(steps + 2),
        place=room(steps + 2),
        result=room(5),
    )


def nothing_again(problem: ScheduleProblem) -> Integers:
    """The numbers of the given order as it is; behind its last touch a value is made again for each use."""
    numbers = np.zeros(sum(map(len, problem.touches)), np.int64)
    ends = np.cumsum([len(row) for row in problem.touches])
    numbers[ends - 1] = BRIEF
    return numbers
