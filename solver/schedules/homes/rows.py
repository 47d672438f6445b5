"""The levels that capacities are about: of all levels those on which the most is held at once.

level    0  1  2  3  4  5  6  7
a        [-----------)
b              [--------------)
c                       [-----)
rows              ^        ^        what is held on other levels is held on one of these as well
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

import numpy as np

from solver.accounting.homes import HomeProblem
from solver.layout.model.instance import Integers

__all__ = ["Rows"]


class Rows:
    """The rows of a problem. `levels` has one level for each, rising.

    `spans[i]` are the half-open ranges of rows on which item i is held; it may be empty in sum, where others
    that are held for longer stand for it.
    """

    def __init__(self, problem: HomeProblem) -> None:
        self.problem = problem
        starts = {span.start for item in problem.items if item.size for span in item.spans}
        ends = {span.end for item in problem.items if item.size for span in item.spans}
        points = sorted(starts | ends)
        # A row stands in front of each end behind the first start that follows the end before.
        self.levels: list[int] = []
        born = None
        for point in points:
            if point in ends and born is not None:
                self.levels.append(born)
                born = None
            if point in starts:
                born = point
        self.spans = [
            [(bisect_left(self.levels, s.start), bisect_left(self.levels, s.end)) for s in item.spans]
            for item in problem.items
        ]
        self.size = [item.size for item in problem.items]

    def __len__(self) -> int:
        return len(self.levels)

    @cached_property
    def load(self) -> Integers:
        """The bytes of all items on each row."""
        total = np.zeros(len(self), np.int64)
        for i, size in enumerate(self.size):
            self.add(total, i, size)
        return total

    def add(self, load: Integers, i: int, size: int) -> None:
        """Change the load by `size` bytes where item i is held."""
        for low, high in self.spans[i]:
            load[low:high] += size

    def room(self, load: Integers, i: int, capacity: int) -> bool:
        """Whether item i keeps the capacity beside a load that it is not part of."""
        most = capacity - self.size[i]
        return all(low == high or int(load[low:high].max()) <= most for low, high in self.spans[i])
