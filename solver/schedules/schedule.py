"""The answer of a search for a schedule, and its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Schedule", "ScheduleProof", "SearchProgress", "Teller"]


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search for a schedule; a figure that it does not have is None.

    The best so far has a peak of `peak_bytes`, of which `bound_bytes` are proved to be necessary; what runs
    again costs `extra_nanoseconds`, of which `bound_nanoseconds` are proved; `step_nanoseconds` are those of
    an iteration in which nothing does. It moves `moved_bytes`.
    """

    peak_bytes: int | None = None
    bound_bytes: int | None = None
    extra_nanoseconds: int | None = None
    bound_nanoseconds: int | None = None
    step_nanoseconds: int | None = None
    moved_bytes: int | None = None


#: Receives each better schedule, and each better bound.
Teller = Callable[[SearchProgress], None]


class ScheduleProof(Enum):
    """Why no schedule is cheaper than the bound says.

    `ORDER`: nothing runs again. `RELAXATION`: the bound of the few-moment relaxation, for the given order of
    first runs and any recomputation.
    """

    ORDER = "order"
    RELAXATION = "relaxation"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps in the order in which they run, some of them several times.

    `peak` is in bytes, as is `given_peak`, that of the order as it was given. `extra` and `bound` are
    nanoseconds: what the repetitions cost, and what they cost at least in every schedule within `budget`
    bytes that keeps the order of first runs. `proof` tells where the bound comes from, None for the bound 0
    that needs none. `impossible`: no schedule that keeps the order of first runs keeps the budget, which the
    relaxation shows. `complete` is false where wall time ended the search. `numbers` are those of the gaps:
    another search of the same problem may start from them. `moments` are the steps of the relaxation.
    """

    sequence: tuple[int, ...]
    budget: int
    peak: int
    given_peak: int
    extra: int
    bound: int
    proof: ScheduleProof | None
    impossible: bool = False
    complete: bool = True
    numbers: tuple[int, ...] = field(default=(), repr=False, compare=False)
    moments: tuple[int, ...] = field(default=(), repr=False, compare=False)

    @property
    def fits(self) -> bool:
        return self.peak <= self.budget

    @property
    def optimal(self) -> bool:
        """Whether no schedule within the budget is cheaper, for the given order of first runs."""
        return self.fits and self.extra <= self.bound
