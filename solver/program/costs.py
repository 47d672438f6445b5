"""What the steps of a program take on some machine, as its owner measured or wrote it down."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass

from solver.errors import OptionsError
from solver.program.ir import Program

__all__ = ["MOST_NANOSECONDS", "Costs", "check_costs", "given_costs"]

#: The longest iteration that costs may describe, eleven days: sums over repetitions stay exact in 64 bits.
MOST_NANOSECONDS = 10**15

#: Names that a wrong one is compared with: a tenth of a second.
_MOST_COMPARED = 5_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Whole nanoseconds by name: the label of a step, or the id of an operation for those of its steps that
    are not named themselves. `about` says for people where they come from.
    """

    nanoseconds: tuple[tuple[str, int], ...]
    about: str = ""


def given_costs(program: Program, costs: Costs) -> tuple[int, ...]:
    """Nanoseconds of each step. A repetition takes what its first run takes; copies between memories 0, as
    their time follows from bandwidths. Linear.

    Raises OptionsError for a step that the costs do not name, and for a cost that is negative or not whole.
    """
    table, found = dict(costs.nanoseconds), []
    for step, label, run in zip(program.steps, program.step_labels, program.runs, strict=True):
        if step.reference is None:
            found.append(0)
            continue
        label = label.removesuffix(f".again{run}") if run else label
        operation = program.operations[step.operation].operation.id
        name = label if label in table else operation
        if name not in table:
            raise OptionsError(
                f"The costs name neither the step {label!r} nor its operation {operation!r}.",
                remedy="Give nanoseconds for every step. `arenaplan costs` writes them all, under the options"
                " of the plan.",
                path=("costs", "nanoseconds"),
            )
        found.append(_checked(name, table[name]))
    return tuple(found)


def check_costs(program: Program, costs: Costs) -> None:
    """Raises OptionsError for what `given_costs` refuses, for names that the program does not have, and for
    an iteration that takes no time or more than `MOST_NANOSECONDS`. Linear.
    """
    known = {*program.step_labels, *(node.operation.id for node in program.operations)}
    for name, cost in costs.nanoseconds:
        if name not in known:
            raise OptionsError(
                f"The costs name {name!r}, which is neither a step nor an operation of this graph.",
                remedy=f"{_hint(name, known)}Remove it, or use the options that the costs were taken with.",
                path=("costs", "nanoseconds", name),
            )
        _checked(name, cost)
    total = sum(given_costs(program, costs))
    if not 0 < total <= MOST_NANOSECONDS:
        raise OptionsError(
            f"The costs of all steps add up to {total:,} nanoseconds.",
            remedy=f"Give costs that add up to more than zero, and to {MOST_NANOSECONDS:,} at most.",
            path=("costs", "nanoseconds"),
        )


def _checked(name: str, cost: object) -> int:
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise OptionsError(
            f"The cost of {name!r} is {cost!r} nanoseconds.",
            remedy="Give a whole number, zero or more.",
            path=("costs", "nanoseconds", name),
        )
    return cost


def _hint(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1) if len(known) <= _MOST_COMPARED else []
    return f"Did you mean {close[0]!r}? " if close else ""
