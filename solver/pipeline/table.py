"""Several plans for one range, each for a part of it, where the best plan of a small size is much smaller.

    sizes     1 ......... 6 | 7 ................ 16 | 17 ..................... 32
    plan          of 6      |         of 16         |            of 32

A plan of one size takes at every smaller one the bytes of its arena, so each part is as large as its largest
size. Where the parts end is exact for the sizes that are looked at: dynamic programming over them, which
minimises the largest ratio of a size's bytes to those of its own best plan, and then the sum of the ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from solver.errors import ArenaplanError, OptionsError
from solver.graph import TrainableGraph
from solver.pipeline.measures import plan_requested
from solver.pipeline.ranges import at_largest, reference_at, with_planned_sizes
from solver.pipeline.watch import Follower
from solver.plan import Plan, RequestedOptions, SizeRange, resized

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["NEAR", "PlanTable", "plan_table"]

#: The share of a size's own best plan by which its bytes in the table may be above it.
NEAR: Final = 0.05

#: The most sizes of a range that are planned; of more, sizes at equal ratios.
_MOST_SIZES: Final = 32


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Plans for the parts of a range, the smallest first. `own` are the bytes of the best plan of each size
    that was looked at, by size; `enough` is the number of plans that bring each of them within `NEAR` of
    that, 0 where none does.
    """

    plans: tuple[Plan, ...]
    own: dict[int, int]
    enough: int

    @property
    def worst(self) -> tuple[float, ...]:
        """For each plan the largest ratio of its bytes to those of a size's own best plan."""
        return tuple(
            max(plan.arena_bytes / self.own[size] for size in self._sizes(plan)) for plan in self.plans
        )

    def _sizes(self, plan: Plan) -> Iterator[int]:
        assert plan.planned_sizes is not None, "every plan of a table serves a range"
        part = plan.planned_sizes.ranges[0]
        return (size for size in self.own if part.least <= size <= part.most)


def plan_table(
    graph: TrainableGraph | BlockProgram,
    requested: RequestedOptions,
    count: int,
    *,
    observe: Callable[[str], None] | None = None,
    follow: Follower | None = None,
) -> PlanTable:
    """At most `count` plans that serve the one range of the request together, each size by one of them.

    Raises OptionsError for a count below 1 and for another number of ranges than one, and what
    `plan_requested` raises. Cost: a plan for each size that is looked at, and a proof for each pair.
    """
    if len(requested.ranges) != 1:
        raise OptionsError(
            f"There are {len(requested.ranges)} ranges for a table of plans.",
            remedy="Give one, as --batch 1..32.",
            path=("plans",),
        )
    if count < 1:
        raise OptionsError(
            f"A table of {count} plans is asked for.", remedy="Give 1 or more.", path=("plans",)
        )
    graph = at_largest(graph, requested)
    (whole,) = requested.ranges
    sizes = list(_sizes(whole))
    best: dict[int, Plan] = {}
    for size in sizes:
        if observe is not None:
            observe(f"{whole.name} {size}")
        asked = replace(requested, ranges=())
        if whole.name == "batch":
            asked = asked.having(batch=size)
        try:
            best[size] = plan_requested(graph.at(**{whole.name: size}), asked, follow=follow)
        except ArenaplanError as error:
            error.message = f"{whole.name} {size:,}: {error.message}"
            if best:
                error.remedy += f" Or let the range end at {max(best):,}, which there is a plan for."
            raise
    own = {size: plan.arena_bytes for size, plan in best.items()}
    needs = [_needs(best[size], graph, whole.name, sizes[: k + 1]) for k, size in enumerate(sizes)]
    plans, start, enough = list[Plan](), whole.least, 0
    chosen: tuple[int, ...] = ()
    for number, (ratio, ends) in enumerate(_parts(list(own.values()), needs), 1):
        chosen = ends if number <= count else chosen
        if not enough and ratio <= 1 + NEAR:
            enough = number
        if number >= count and enough:
            break
    for k in chosen:
        part = SizeRange(whole.name, start, sizes[k])
        there = graph.at(**{whole.name: sizes[k]})
        plans.append(with_planned_sizes(best[sizes[k]], there, (part,)))
        start = sizes[k] + 1
    return PlanTable(tuple(plans), own, enough)


def _sizes(whole: SizeRange) -> Iterator[int]:
    """All sizes of a range, or some at equal ratios, the ends among them."""
    if whole.most - whole.least < _MOST_SIZES:
        yield from range(whole.least, whole.most + 1)
        return
    ratio = (whole.most / whole.least) ** (1 / (_MOST_SIZES - 1))
    yield from sorted({round(whole.least * ratio**k) for k in range(_MOST_SIZES)} | {whole.most})


def _needs(plan: Plan, graph: TrainableGraph, name: str, sizes: Sequence[int]) -> list[float]:
    """For each k the bytes that the plan of the last size takes if it serves all sizes from the k-th on.

    Infinite where the training step is another one at some size.
    """
    planned = reference_at(graph.at(**{name: sizes[-1]}), plan)
    needs, most = list[float](), float(plan.arena_bytes)
    for size in reversed(sizes):
        try:
            there = resized(plan, planned, reference_at(graph.at(**{name: size}), plan), grows=True)
            most = max(most, there.arena_bytes)
        except ArenaplanError:
            most = inf
        needs.append(most)
    return needs[::-1]


def _parts(own: Sequence[int], needs: Sequence[Sequence[float]]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """For at most 1, 2, ... parts the least largest ratio, and the numbers of the last size of each part.

    Of those with the least largest ratio, those with the least sum of ratios. O(n^3) for each number of
    parts.
    """
    count = len(own)
    # By how many sizes are served, from the smallest on: the largest ratio, the sum of ratios, the ends.
    best: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, ()), *[(inf, inf, ())] * count]
    for _ in range(count):
        longer = list(best)
        for end in range(count):
            for start in range(end, -1, -1):
                ratios = [needs[end][start] / own[k] for k in range(start, end + 1)]
                worst, total, ends = best[start]
                part = (max(worst, *ratios), total + sum(ratios), (*ends, end))
                longer[end + 1] = min(longer[end + 1], part)
        best = longer
        yield best[count][0], best[count][2]
