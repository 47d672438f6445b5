"""Waves: steps that k workers run at the same time.

    execution order   a  b  c  d  e  f          wave       0   1   2   3
    has to follow     -  a  a  b  c  d,e        worker 1   a   b   d   f
                                                worker 2       c   e

A wave ends when all its steps have ended (a barrier), so it is the unit of time of lifespans: buffers
that steps of one wave touch, scratch included, live at the same time and share no byte. Two steps of a
wave never write the same operand, and none reads what another writes; so each step finds the values that
it finds in the execution order, and computes the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import chain

from solver.errors import GraphError, InternalError, OptionsError
from solver.liveness.dependencies import dependencies
from solver.liveness.use_def import verify_reordering
from solver.training.explicit import BlockProgram
from solver.training.program import TrainingProgram

__all__ = ["MAX_WORKERS", "blocks_in_waves", "in_waves", "verify_waves", "waves"]

#: More threads than any machine has that trains on a CPU, and few enough to start at once.
MAX_WORKERS = 64


def waves(before: Sequence[Collection[int]], workers: int) -> Iterator[list[int]]:
    """List scheduling: each wave takes, of the steps that are ready, the `workers` earliest in the order.

    `before` lists for each step the steps that it has to follow; a step is ready when all of them are in
    earlier waves. The earliest first, because the execution order is the one that keeps memory low: the
    further ahead a step runs, the longer its results wait for their readers.
    O((n + e) log n) for n steps and e dependencies.
    """
    waiting = [len(found) for found in before]
    after: list[list[int]] = [[] for _ in before]
    for t, found in enumerate(before):
        for s in found:
            after[s].append(t)
    ready = [t for t, count in enumerate(waiting) if not count]
    heapify(ready)
    while ready:
        wave = [heappop(ready) for _ in range(min(workers, len(ready)))]
        yield wave
        for s in wave:
            for t in after[s]:
                waiting[t] -= 1
                if not waiting[t]:
                    heappush(ready, t)


def in_waves(program: TrainingProgram, workers: int, *, stage: int = 0) -> TrainingProgram:
    """The steps of `program` wave by wave; the program itself for one worker. Verified, deterministic.

    The step at position `stage` and those behind it wait for all steps before it: updates that are to come
    at the end do not fill gaps in the backward pass. Raises OptionsError for too many workers, or none.
    """
    _check(workers)
    if workers == 1:
        return program
    before = _needs(program)
    late = [frozenset(s - stage for s in found if s >= stage) for found in before[stage:]]
    ends = ([t + stage for t in wave] for wave in waves(late, workers))
    order, times = _flat(chain(waves(before[:stage], workers), ends))
    grouped = replace(program, steps=tuple(program.steps[t] for t in order), waves=times)
    verify_reordering(program, grouped)
    verify_waves(grouped)
    return grouped


def blocks_in_waves(program: BlockProgram, workers: int) -> BlockProgram:
    """The same for an explicit program."""
    _check(workers)
    if workers == 1:
        return program
    order, times = _flat(waves(_needs(program), workers))
    grouped = replace(program, operations=tuple(program.operations[t] for t in order), waves=times)
    if _named(program) != _named(grouped):
        raise InternalError("The waves change what an operation has to follow.")
    verify_waves(grouped)
    return grouped


def _needs(program: TrainingProgram | BlockProgram) -> tuple[frozenset[int], ...]:
    """For each step the positions of those that it has to follow."""
    if isinstance(program, BlockProgram):
        return dependencies((o.reads, o.writes) for o in program.operations)
    return dependencies((s.uses, s.defs) for s in program.steps)


def _names(program: TrainingProgram | BlockProgram) -> list[str]:
    if isinstance(program, BlockProgram):
        return [operation.name for operation in program.operations]
    return [str(step.index) for step in program.steps]


def _named(program: BlockProgram) -> dict[str, set[str]]:
    names = _names(program)
    return {name: {names[s] for s in before} for name, before in zip(names, _needs(program), strict=True)}


def _flat(groups: Iterable[list[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The steps in their new order, and the wave of each."""
    pairs = [(t, wave) for wave, group in enumerate(groups) for t in group]
    return tuple(t for t, _ in pairs), tuple(wave for _, wave in pairs)


def _check(workers: int) -> None:
    if not 1 <= workers <= MAX_WORKERS:
        raise OptionsError(
            f"workers is {workers}.", remedy=f"Give 1 to {MAX_WORKERS} workers.", path=("workers",)
        )


def verify_waves(program: TrainingProgram | BlockProgram) -> None:
    """Check that no two steps of one wave depend on each other. Linear. Raises GraphError naming both."""
    for t, before in enumerate(_needs(program)):
        for s in before:
            if program.times[s] >= program.times[t]:
                names = _names(program)
                raise GraphError(
                    f"Steps {names[s]} and {names[t]} are both in wave {program.times[t]}, and one writes"
                    " what the other touches.",
                    remedy="Put the second one into a later wave.",
                )
