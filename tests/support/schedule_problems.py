"""Small scheduling problems, and their exact optimum by a search that shares nothing with the solver.

`layered` draws directed graphs in layers, in the spirit of Gagrani et al. 2022: each step defines one value
and reads one to three of the layer before it, now and then one from further back.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from solver.accounting import ScheduleProblem
from solver.graph import DType, Operation, TensorType
from solver.graph.ops.base import Node
from solver.program import Access, Binding, Builder, Kind, Phase, Program, Space, dependencies

__all__ = ["before", "exact", "layered", "legal", "mixed", "problem", "program_of"]


def problem(
    reads: Sequence[Sequence[int]],
    size: Sequence[int],
    cost: Sequence[int],
    *,
    kept: Sequence[int] = (),
    again: Sequence[bool] | None = None,
    fixed: int = 0,
) -> ScheduleProblem:
    """Step t defines value t and reads ``reads[t]``; all may run again unless `again` says otherwise."""
    count = len(reads)
    may = [True] * count if again is None else list(again)
    ends = set(kept)
    return ScheduleProblem(
        steps=tuple(f"s{t}" for t in range(count)),
        reads=tuple(map(tuple, reads)),
        writes=tuple((t,) for t in range(count)),
        updates=((),) * count,
        scratch=(0,) * count,
        scratch_again=(0,) * count,
        cost=tuple(cost),
        until=tuple(count if may[t] and t not in ends else -1 for t in range(count)),
        values=tuple(f"v{t}" for t in range(count)),
        size=tuple(size),
        fed=(False,) * count,
        kept=tuple(t in ends for t in range(count)),
        maker=tuple(t if may[t] and t not in ends else -1 for t in range(count)),
        together=tuple(range(count)),
        fixed=fixed,
    )


def layered(
    count: int, seed: int, *, width: float = 2.5, skip: float = 0.5, once: float = 0.0
) -> ScheduleProblem:
    """`count` steps in layers of about `width`; the values of the last layer are kept. `once` is the share of
    steps that must not run again.
    """
    rng = random.Random(seed)
    layers: list[list[int]] = []
    made = 0
    while made < count:
        more = min(count - made, max(1, round(rng.gauss(width, width / 3))))
        layers.append(list(range(made, made + more)))
        made += more
    reads: list[set[int]] = [set() for _ in range(count)]
    for before, layer in pairwise(layers):
        for t in layer:
            reads[t].update(rng.sample(before, min(len(before), rng.randint(1, 3))))
            if before[0] and rng.random() < skip:
                reads[t].add(rng.randrange(before[0]))
        for t in before:
            if not any(t in reads[reader] for reader in layer):
                reads[rng.choice(layer)].add(t)
    size, cost = ([rng.randint(1, 100) for _ in range(count)] for _ in range(2))
    again = [rng.random() >= once for _ in range(count)]
    return problem([sorted(found) for found in reads], size, cost, kept=layers[-1], again=again)


def before(given: ScheduleProblem) -> tuple[frozenset[int], ...]:
    """The steps that each step must follow: what defines what it reads, and what reads what it updates."""
    defined = ((*wrote, *updated) for wrote, updated in zip(given.writes, given.updates, strict=True))
    return dependencies(zip(given.reads, defined, strict=True))


def legal(order: Sequence[int], earlier: Sequence[frozenset[int]]) -> bool:
    """Whether an order has every step once, behind those it must follow."""
    place = {t: k for k, t in enumerate(order)}
    return sorted(order) == list(range(len(order))) and all(
        place[s] < place[t] for t, steps in enumerate(earlier) for s in steps
    )


def program_of(given: ScheduleProblem) -> Program:
    """A program whose problem is the one that `problem` gave: operators are made up, as nothing runs."""
    builder = Builder("problem", [Space("arena", 1)])
    numbers = [
        builder.value(label, TensorType((size,), DType.UINT8), Kind.ACTIVATION, label)
        for label, size in zip(given.values, given.size, strict=True)
    ]
    for t, label in enumerate(given.steps):
        node = Node(Operation(label, "MadeUp", (), ()), (), (), (), {})
        bindings = [Binding(f"x{k}", numbers[v], Access.READ) for k, v in enumerate(given.reads[t])]
        bindings += [Binding(f"y{k}", numbers[v], Access.WRITE) for k, v in enumerate(given.writes[t])]
        again = given.until[t] >= 0 or given.kept[t]
        builder.step(builder.operation(node), Phase.FORWARD if again else Phase.CALC_DERIVATIVE, bindings)
    for v, kept in enumerate(given.kept):
        if kept:
            builder.exits[numbers[v]] = None
    return builder.finish(all_values=True)


def mixed(count: int, seed: int) -> ScheduleProblem:
    """`count` steps that define one value or two, beside values of the caller, with scratch; exits, steps
    that must not run again, and often a value that a late step updates: what read it before must not run
    again behind it.
    """
    rng = random.Random(seed)
    given, once, far = rng.randint(0, 2), rng.choice((0.0, 0.2, 0.5)), rng.choice((0.2, 0.6))
    reads: list[set[int]] = []
    writes: list[tuple[int, ...]] = []
    maker = [-1] * given
    for t in range(count):
        made = len(maker)
        reads.append(set())
        for _ in range(rng.randint(1, 3) if made else 0):
            near = made - 1 - min(made - 1, int(rng.expovariate(0.6)))
            reads[t].add(rng.randrange(made) if rng.random() < far else near)
        writes.append(tuple(range(made, made + rng.choice((1, 1, 1, 2)))))
        maker += [t] * len(writes[t])
    kept = [rng.random() < 0.1 for _ in maker]
    until = [
        count if rng.random() >= once and not any(kept[v] for v in written) else -1 for written in writes
    ]
    updates: list[tuple[int, ...]] = [()] * count
    if rng.random() < 0.5:
        late = rng.randrange(2, count)
        updated = rng.randrange(writes[late][0])
        reads[late].add(updated)
        updates[late] = (updated,)
        until[late] = -1
        if maker[updated] >= 0:
            until[maker[updated]] = -1
        for t in range(late):
            if updated in reads[t] and until[t] >= 0:
                until[t] = late
    scratch = [rng.choice((0, 0, rng.randint(1, 40))) for _ in range(count)]
    return ScheduleProblem(
        steps=tuple(f"s{t}" for t in range(count)),
        reads=tuple(tuple(sorted(found)) for found in reads),
        writes=tuple(writes),
        updates=tuple(updates),
        scratch=tuple(scratch),
        scratch_again=tuple(bytes_ + rng.choice((0, 0, 9)) for bytes_ in scratch),
        cost=tuple(rng.randint(1, 100) for _ in range(count)),
        until=tuple(until),
        values=tuple(f"v{v}" for v in range(len(maker))),
        size=tuple(rng.randint(1, 100) for _ in maker),
        fed=tuple(v < given for v in range(len(maker))),
        kept=tuple(kept),
        maker=tuple(t if t >= 0 and until[t] >= 0 else -1 for t in maker),
        together=tuple(range(len(maker))),
        fixed=rng.choice((0, 13)),
    )


def exact(given: ScheduleProblem, budget: int) -> int | None:
    """The least extra cost of any schedule that keeps the order of first runs; None if there is none.

    Dijkstra over (steps run for the first time, values in memory): any step that has run, and may run again
    there, may do so any number of times, whenever what it reads is there. For some dozen steps and values.
    """
    count, values = len(given.steps), range(len(given.values))
    need = [sum(1 << v for v in reads) for reads in given.reads]
    wrote = [sum(1 << v for v in writes) for writes in given.writes]
    kept = sum(1 << v for v in values if given.kept[v])

    def following(done: int, memory: int) -> Iterator[tuple[int, int, int]]:
        for v in values if done else ():  # the caller's are there until something has run
            if memory >> v & 1 and not kept >> v & 1:
                yield 0, done, memory & ~(1 << v)
        for t in range(min(done + 1, count)):
            first = t == done
            if need[t] & ~memory or not (first or given.until[t] >= done):
                continue
            after = memory | wrote[t]
            scratch = (given.scratch if first else given.scratch_again)[t]
            live = sum(given.size[v] for v in values if after >> v & 1)
            if given.fixed + scratch + live <= budget:
                yield 0 if first else given.cost[t], done + first, after

    begin = (0, sum(1 << v for v in values if given.fed[v]))
    best, heap = {begin: 0}, [(0, *begin)]
    while heap:
        cost, done, memory = heapq.heappop(heap)
        if best[done, memory] < cost:
            continue
        if done == count:
            return cost
        for more, then, left in following(done, memory):
            if cost + more < best.get((then, left), cost + more + 1):
                best[then, left] = cost + more
                heapq.heappush(heap, (cost + more, then, left))
    return None
