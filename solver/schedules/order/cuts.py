"""Bounds on the peak that hold for every order of the steps, by minimum cuts.

    a ──► b ──► c        While d runs, some steps have run: d and what it follows, nothing that follows d,
    a ──► d ──► e        and with each step all that this one follows. What one of them wrote and one of the
    c, e ──► f           others reads is there. Here neither b nor c has run, or b, or both: in each case the
                         value of one of a, b and c waits.

No order has less there than the set of steps that leaves least, and that set is a minimum cut of a network
whose arcs are values (Picard 1976 for closed sets; Elango et al., SPAA 2014, for what is live between them).
`bounds.order_bound` counts what is there with every such set; a cut counts what is there with each, which is
more where branches are many.

Imports OR-Tools, for its maximum flow, when a network is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from solver.accounting.bounds import order_bound
from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.program import followers
from solver.schedules.native import FLOW_ARC, run_native

__all__ = ["Cuts", "least_peak"]

#: Squares of the arcs of all networks that are solved for one bound: a second or two, as hard ones take that
#: many steps. Programs of some thirty thousand steps have too many arcs for a single one.
_ARCS_SQUARED = 10**10


class Cuts:
    """The network of one problem, for cuts at each of its steps.

    ``before[t]`` are the steps that step t must follow. Of values that may share bytes the largest counts.
    """

    def __init__(self, problem: ScheduleProblem, before: Sequence[AbstractSet[int]]) -> None:
        steps, values = len(problem.steps), len(problem.values)
        self._problem, self._source, self._sink = problem, steps + values, steps + values + 1
        self._counted = problem.counted
        writers: list[list[int]] = [[] for _ in range(values)]
        readers: list[list[int]] = [[] for _ in range(values)]
        for t in range(steps):
            for v in problem.writes[t]:
                writers[v].append(t)
            for v in problem.reads[t]:
                readers[v].append(t)
        #: More than all bytes: no cut goes through such an arc.
        self._never = sum(problem.size) + 1
        tails, heads, room = list[int](), list[int](), list[int]()

        def arc(tail: int, head: int, bytes_: int) -> None:
            tails.append(tail)
            heads.append(head)
            room.append(bytes_)

        for t, earlier in enumerate(before):
            for s in earlier:
                arc(t, s, self._never)
        #: The arc that a value's bytes stand for.
        self._arc: dict[int, int] = {}
        for v in sorted(self._counted):
            if len(writers[v]) + problem.fed[v] != 1:
                continue  # which of them comes first is open
            self._arc[v] = len(room)
            arc(self._source if problem.fed[v] else writers[v][0], steps + v, problem.size[v])
            if problem.kept[v]:
                arc(steps + v, self._sink, self._never)
            for t in readers[v]:
                arc(steps + v, t, self._never)
        self._after = followers(before)
        self._tails, self._heads = np.array(tails, np.int64), np.array(heads, np.int64)
        self._room: Integers = np.array(room, np.int64)
        self.arcs = len(room)

    def bytes_at(self, t: int, deadline: Deadline) -> int:
        """The bytes that are live while step t runs, at least, in every order; 0 if the deadline has passed.

        Cost: that of a maximum flow, half a microsecond an arc, and up to 20 where there are many.
        """
        from ortools.graph.python import max_flow  # type: ignore[import-untyped]

        problem, room = self._problem, self._room.copy()
        sure = problem.fixed + problem.scratch[t]
        for v in {*problem.reads[t], *problem.writes[t]} & self._counted:
            sure += problem.size[v]
            if v in self._arc:
                room[self._arc[v]] = 0
        after = self._after[t]
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(self._tails, self._heads, room)
        flow.add_arcs_with_capacity(
            np.array([self._source, *after], np.int64),
            np.array([t, *([self._sink] * len(after))], np.int64),
            np.full(1 + len(after), self._never, np.int64),
        )
        deadline.spend(FLOW_ARC * self.arcs)
        status = run_native(lambda: flow.solve(self._source, self._sink), lambda: None, deadline)
        return sure + int(flow.optimal_flow()) if status == flow.OPTIMAL else 0


def least_peak(
    problem: ScheduleProblem,
    before: Sequence[AbstractSet[int]],
    load: Sequence[int],
    deadline: Deadline | None = None,
) -> int:
    """Bytes that no order of the steps stays below, if each runs once; `order_bound` at least.

    ``load[t]`` are the bytes at step t in some order: no cut there has more, so the fullest steps come first,
    and often a handful is enough. Those that a second or two are too short for are left out.
    """
    deadline = deadline or Deadline()
    bound = order_bound(problem).bytes
    if max(load, default=0) <= bound or sum(map(len, (*before, *problem.reads))) ** 2 > _ARCS_SQUARED:
        return bound
    cuts = Cuts(problem, before)
    for number, t in enumerate(sorted(range(len(load)), key=lambda t: (-load[t], t)), 1):
        if load[t] <= bound or number * cuts.arcs**2 > _ARCS_SQUARED or deadline.expired:
            break
        bound = max(bound, cuts.bytes_at(t, deadline))
    return bound
