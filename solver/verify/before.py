"""What a plan's program was before passes put copies and repetitions into it: figures are held against that.

plan       conv   page_out(x)   relu   page_in(x)   grad(x@stay1)   conv again   ...
unpaged    conv                 relu                grad(x)         conv again   ...     copies join values
once       conv                 relu                grad(x)                      ...     in this order
"""

from __future__ import annotations

from dataclasses import replace

from solver.accounting.clocks import is_copy
from solver.plan import Plan
from solver.program import Program

__all__ = ["once", "unpaged"]


def unpaged(program: Program) -> Program:
    """The program without copies, whose ends are one value, and without aliases; all in the first space.

    What the caller writes into two memories, or what both keep from one iteration to the next, is one value
    as well. O(b log v) for b bindings and v values.
    """
    root = list(range(len(program.values)))

    def of(value: int) -> int:
        while root[value] != value:
            root[value] = root[root[value]]
            value = root[value]
        return value

    def join(one: int, other: int) -> None:
        first, second = sorted((of(one), of(other)))
        root[second] = first

    for step in program.steps:
        if is_copy(program, step):
            join(*(b.value for b in step.bindings))
    known: dict[int, int] = {}
    for e in program.entry:
        join(e.value, known.setdefault(e.reference, e.value))
    kept = [step for step in program.steps if not is_copy(program, step)]
    number = {level: k for k, level in enumerate(sorted({step.level for step in kept}))}
    steps = [
        replace(
            step,
            bindings=tuple(replace(b, value=of(b.value)) for b in step.bindings),
            level=number[step.level],
            until=number[step.level],
        )
        for step in kept
    ]
    entry = {of(e.value): replace(e, value=of(e.value)) for e in program.entry}
    exits = {of(e.value): replace(e, value=of(e.value)) for e in program.exit}
    return replace(
        program,
        values=tuple(replace(value, space=0) for value in program.values),
        steps=tuple(steps),
        entry=tuple(entry.values()),
        exit=tuple(exits.values()),
        aliases=(),
    )


def once(reference: Program, plan: Plan) -> Program:
    """The reference in the order of the plan's first runs, one step after the other. Linear."""
    steps = zip(plan.program.steps, plan.program.runs, strict=True)
    return reference.reordered([s.reference for s, run in steps if s.reference is not None and not run])
