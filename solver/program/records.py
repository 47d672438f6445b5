"""Records of preparations and passes, as plans keep them; and the bound on what recomputation costs.

A `CostBound` has all that is needed to add it up: it is the dual of a linear program.

At a few moments of the order of first runs, variables say which values are in memory; between two moments,
which steps run again:

    order of first runs   0 ............ t0 ......... t1 ...... t2 ............ n
                                         |            |         |
    held[v, i]            value v is in memory while step t_i runs
    made[p, i]                           step p runs again in (t_i, t_i+1]

Every schedule that keeps the order and the budget satisfies these rows:

    READER      v is read behind t_i, by a first run up to t_i+1:    held[v, i] + made[maker of v, i] >= 1
    REPETITION  p, run again, reads v:                    held[v, i] + made[maker of v, i] - made[p, i] >= 0
    HELD        v is there at t_i+1, too:               held[v, i] + made[maker of v, i] - held[v, i+1] >= 0
    BUDGET      what is not held at t_i makes room, even if all of a set A is not:
                    sum over the others of ceil(min(size, rest) / d) (1 - held[v, i]) >= ceil(rest / d)
                    where the rest is what is needed beyond the bytes of A

so with multipliers y >= 0 of the rows a x >= b, and costs c of what runs again, no schedule costs less than

    sum of y b  +  sum over all variables of min(0, c - sum of y a)          (weak duality; x in [0, 1])

whatever the multipliers are: good ones come from a solver, and nothing has to be believed about it. Rows of a
budget are those of Carr et al. (*Strengthening integrality gaps for capacitated network design and covering
problems*, SODA 2000), rounded as Chvátal and Gomory do: a value is held or not, so no part of it makes room.

Where values may be defined in the bytes of others, fewer bytes are needed. Of values that show the same
contents by views, and of those that the step at t_i may define one in the other's bytes, a row of a budget
then has the largest alone; of those that may be held, the one that is read last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["CostBound", "DualRow", "HomeBound", "HomeRow", "Record", "Replacement", "RowKind"]


@dataclass(frozen=True, slots=True)
class Record:
    """The name of a preparation or a pass, and figures of it for people. Nothing relies on them."""

    name: str
    facts: Mapping[str, int | str | bool]


@dataclass(frozen=True, slots=True)
class Replacement:
    """One use of a rewriting rule: operations by id, and `into`, those that replace them.

    Replacements of one `group` were tried and taken together; the bytes are the lower bounds of the
    arena before and after the group.
    """

    rule: str
    operations: tuple[str, ...]
    into: tuple[str, ...]
    group: int
    bytes_before: int
    bytes_after: int


class RowKind(Enum):
    """The kinds of rows; see the module."""

    READER = "reader"
    REPETITION = "repetition"
    HELD = "held"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class DualRow:
    """A row at a moment, by number, with its multiplier in parts of the denominator.

    `value` and `step` are those of the reference program, -1 where the kind has none. `divisor` is in bytes,
    0 for rows without one, and `without` are the values of the set A.
    """

    kind: RowKind
    moment: int
    multiplier: int
    value: int = -1
    step: int = -1
    divisor: int = 0
    without: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CostBound:
    """At least `nanoseconds` are spent on repetitions by every schedule within `budget` bytes whose first
    runs have this `order`, of steps of the reference program, and in which forward steps alone run again.

    `moments` are positions in that order, rising.
    """

    budget: int
    nanoseconds: int
    order: tuple[int, ...]
    moments: tuple[int, ...]
    denominator: int
    rows: tuple[DualRow, ...]


@dataclass(frozen=True, slots=True)
class HomeRow:
    """The capacity of a memory on a level, with its multiplier in parts of the denominator."""

    memory: int
    level: int
    multiplier: int


@dataclass(frozen=True, slots=True)
class HomeBound:
    """Accesses take at least `nanoseconds` in every choice of homes within the capacities, for the
    steps and the aliases of the plan. `solver.accounting.homes` says how the rows prove that.
    """

    nanoseconds: int
    denominator: int
    rows: tuple[HomeRow, ...]
