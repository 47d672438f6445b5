"""From a sequence of steps to a program: the only code that makes repeated steps.

    sequence    0 1 2 0 3          step 0 runs again in front of step 3

    the first run of a step      is the step, which reads the latest instances
    a further run                writes new values, ``x@again1``; readers behind it take these
                                 uses scratch of its own, ``conv@forward.columns@again1``
                                 and leaves in scratch what it would update: statistics move once

Everything behind it sees ordinary steps and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from solver.program import Access, Binding, Kind, Program

__all__ = ["rerun"]


def rerun(program: Program, sequence: Sequence[int]) -> Program:
    """The program that runs its steps in this order, some of them several times. Linear in the bindings.

    Each step of a sequential program without aliases stands in `sequence` once at least. Whether repeated
    steps find what they found the first time is not checked here: the proof does. The program itself
    where the sequence is its own order.
    """
    if len(sequence) == len(program.steps) and all(t == s for t, s in enumerate(sequence)):
        return program
    values, steps = list(program.values), []
    latest: dict[int, int] = {}
    runs: dict[int, int] = {}

    def fresh(value: int, run: int, kind: Kind | None = None) -> int:
        old = values[value]
        values.append(replace(old, label=f"{old.label}@again{run}", kind=kind or old.kind))
        return len(values) - 1

    for level, t in enumerate(sequence):
        step, run = program.steps[t], runs.get(t, 0)
        runs[t] = run + 1
        bound = []
        for binding in step.bindings:
            value, access = latest.get(binding.value, binding.value), binding.access
            if run and access is Access.UPDATE:
                value, access = fresh(binding.value, run, Kind.SCRATCH), Access.SCRATCH
            elif run and access.writes:
                value = fresh(binding.value, run)
            elif access is Access.WRITE:
                value = binding.value
            bound.append((binding, Binding(binding.slot, value, access)))
        for old, new in bound:
            if new.access is Access.WRITE:
                latest[old.value] = new.value
        bindings = tuple(new for _, new in bound)
        steps.append(replace(step, bindings=bindings, level=level, until=level))
    return replace(program, values=tuple(values), steps=tuple(steps))
