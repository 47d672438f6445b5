"""One plan for ranges of sizes: made at the largest, and proved at others.

graph at batch 32 ──► plan ──► the same steps and places at batch 31, 30, ... 1, each proved
                               a size at which the training step is another one is refused, with the reason
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

from solver.errors import ArenaplanError, OptionsError, PlanError
from solver.graph import TrainableGraph, graph_digest
from solver.layout import Deadline, Status
from solver.pipeline.layout import settled
from solver.pipeline.options import checked
from solver.pipeline.paths import reference_of
from solver.plan import (
    Plan,
    PlannedSizes,
    RefusedSize,
    RequestedOptions,
    SizeRange,
    check_ranges,
    with_digest,
)
from solver.program import EntryKind, Program
from solver.verify import prove_at

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["at_largest", "plan_at", "reference_at", "with_planned_sizes"]

#: The most steps, all sizes together, that are proved when a plan is made: some seconds. Where ranges have
#: more, the ends and the powers of two between them are proved, and others when they are first used.
_MOST_STEPS: Final = 50_000


def at_largest(graph: TrainableGraph | BlockProgram, requested: RequestedOptions) -> TrainableGraph:
    """The graph at the largest size of each range.

    Raises OptionsError for a range that is empty, named twice, or of a dimension that is not symbolic, and
    for a target that is planned for one size.
    """
    ranges = requested.ranges
    if not isinstance(graph, TrainableGraph):
        raise OptionsError(
            f"{graph.name!r:.80} is a program of explicit operations, whose blocks have one size.",
            remedy="Give a graph, or plan without ranges.",
            path=(ranges[0].name,),
        )
    target = checked(requested.options)
    if not target.capabilities.trains:
        raise OptionsError(
            f"Target {target.name!r} has the memory of a runtime that is set up for one size.",
            remedy="Plan one batch, or target 'reference'.",
            path=("target",),
        )
    check_ranges(ranges)
    for each in ranges:
        if each.name not in graph.sizes:
            known = ", ".join(graph.sizes)
            raise OptionsError(
                f"A range of {each.name!r:.60} is asked for, and no shape of {graph.name!r:.80} names it.",
                remedy=f"Its symbolic dimensions are {known}."
                if known
                else f'Write "{each.name}" for the dimension in shapes of the document, or give one size.',
                path=each.path,
            )
    return graph.at(**{each.name: each.most for each in ranges})


def reference_at(graph: TrainableGraph, plan: Plan) -> Program:
    """The reference program of a graph, prepared as the plan says. Raises PlanError as `rewritten` does."""
    if plan.replacements or plan.options.frozen_storage is not None or plan.options.tile_bytes is not None:
        from solver.executor.arithmetic import rewritten  # with the kernels, which most plans do without

        graph = rewritten(graph, plan)
    return reference_of(graph, plan.options)


def plan_at(plan: Plan, graph: TrainableGraph) -> Plan:
    """An ordinary plan at the size of `graph`, with the steps and places of `plan`, proved.

    `graph` is the graph of the plan at any size inside its ranges. Raises PlanError for a size outside of
    them, and where the plan is not right at this size. Cost: reading, deriving and proving one program.
    """
    sizes = plan.planned_sizes
    if sizes is None:
        raise PlanError(
            "The plan was made for one size.",
            remedy="Plan with a range, as --batch 1..32.",
            path=("planned_sizes",),
        )
    sizes.check({name: graph.sizes.get(name, 0) for name in sizes.names})
    planned = reference_at(graph.at(**sizes.largest), plan)
    return _plan_at(plan, planned, graph)


def _plan_at(plan: Plan, planned: Program, graph: TrainableGraph, *, grows: bool = False) -> Plan:
    reference, digest = reference_at(graph, plan), graph_digest(graph)
    other, violations = prove_at(plan, planned, reference, digest, grows=grows)
    if violations:
        raise PlanError(
            f"The plan breaks rule {violations[0].rule} at this size: {violations[0].detail}",
            remedy="Plan this size by itself, or a range without it.",
        )
    batch = graph.sizes.get("batch") if plan.options.batch is not None else None
    return with_digest(replace(other, options=replace(other.options, batch=batch)))


def with_planned_sizes(
    plan: Plan, graph: TrainableGraph, ranges: Sequence[SizeRange], deadline: Deadline | None = None
) -> Plan:
    """The plan, made of `graph` at the largest sizes, with the sizes of the ranges at which it is proved.

    Few sizes are all proved; of many, the ends and the powers of two. A range begins with the smallest size
    that is not refused; sizes inside that are refused are named with the reason. Where a smaller size needs
    more bytes than the largest, the plan has these. Sizes that are left behind the deadline are proved when
    they are used.
    """
    deadline = deadline or Deadline()
    served = _serving(plan, graph, ranges, deadline)
    if served.sizes == plan.sizes or plan.options.constraints or deadline.expired:
        return served
    # With what stays at the bottom, the bytes above it can be shared otherwise at each size.
    staying = {entry.value for entry in plan.program.entry if entry.kind is not EntryKind.FED}
    alone = {r.members[0] for r in plan.regions if len(r.members) == 1 and not r.lent and not r.space}
    lower = _serving(settled(plan, sorted(staying & alone)), graph, ranges, deadline)
    refused = len(lower.planned_sizes.refused) if lower.planned_sizes else 0
    better = served.planned_sizes is not None and refused <= len(served.planned_sizes.refused)
    return lower if better and lower.arena_bytes < served.arena_bytes else served


def _serving(plan: Plan, graph: TrainableGraph, ranges: Sequence[SizeRange], deadline: Deadline) -> Plan:
    planned = reference_at(graph, plan)
    asked = PlannedSizes(tuple(ranges), ())
    sizes, proved, refused, is_whole = plan.sizes, [], [], True
    for size in _chosen(asked, len(plan.program.steps)):
        if size == asked.most:  # the plan itself, which is proved
            proved.append(size)
            continue
        if deadline.expired:
            is_whole = False
            continue
        try:
            other = _plan_at(plan, planned, graph.at(**dict(zip(asked.names, size, strict=True))), grows=True)
        except ArenaplanError as error:
            refused.append(RefusedSize(size, error.message))
        else:
            proved.append(size)
            sizes = tuple(map(max, sizes, other.sizes))
    if len(ranges) == 1 and (ranges[0].least,) in [each.sizes for each in refused]:
        asked = replace(asked, ranges=(replace(ranges[0], least=proved[0][0]),))
    served = replace(asked, proved=tuple(proved), refused=tuple(refused))
    certificates = tuple(
        planned if grown == size else replace(planned, status=Status.FEASIBLE, proof=None)
        for planned, size, grown in zip(plan.certificates, plan.sizes, sizes, strict=True)
    )
    deterministic = plan.deterministic and is_whole
    return with_digest(
        replace(
            plan,
            sizes=sizes,
            certificates=certificates,
            deterministic=deterministic,
            planned_sizes=served,
        )
    )


def _chosen(sizes: PlannedSizes, steps: int) -> Iterator[tuple[int, ...]]:
    """The sizes to prove, the smallest first: all of few, else the ends and powers of two of each range."""
    if steps * prod(each.most - each.least + 1 for each in sizes.ranges) <= _MOST_STEPS:
        return sizes.all()
    powers = [2**k for k in range(max(each.most for each in sizes.ranges).bit_length())]
    return product(
        *(
            sorted({each.least, each.most, *(p for p in powers if each.least < p < each.most)})
            for each in sizes.ranges
        )
    )
