"""Whether a network can be trained in a capacity, what would make it fit, and the cost of smaller peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "Attempt",
    "Changes",
    "OptionValue",
    "Remedy",
    "TradeOff",
    "TradeOffPoint",
    "Verdict",
    "VerdictStatus",
]

#: A field of an options document: a number, text, tiers as text, costs; null takes back what was asked for.
OptionValue = int | bool | str | tuple[str, ...] | Mapping[str, Any] | None


class VerdictStatus(Enum):
    """`IMPOSSIBLE`: proved, for every order of the steps and any recomputation. `OPEN`: neither a plan nor a
    proof was found. `PLAN`: there is a plan.
    """

    IMPOSSIBLE = "impossible"
    OPEN = "open"
    PLAN = "plan"


class Changes(Enum):
    """How much a remedy changes the computation, from the least to the most.

    `NOTHING`: every bit stays. `ROUNDING`: the same mathematics, rounded differently. `TRAINING`: something
    else is learned.
    """

    NOTHING = "nothing"
    ROUNDING = "rounding"
    TRAINING = "training"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A combination of measures, and the plan that was made and proved with it.

    `names` are the measures. `arena_bytes` are those where kernels run. `options` is an options document with
    all that the plan was made with, the capacity and what was asked for included, but without a deadline;
    `graph_fields` are those of the graph document that change, whole; together they repeat the plan.
    `choices` say the same of a model of another tool, and of a document on the command line. `extra`
    are nanoseconds of modelled time for one update beyond those of the program as it was asked for; negative
    where it saves time. `bound`: nanoseconds that are proved to be necessary with these measures, None
    where nothing is proved.
    """

    names: tuple[str, ...]
    changes: Changes
    arena_bytes: int
    extra: int
    bound: int | None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    choices: Mapping[str, OptionValue] = field(default_factory=dict)
    graph_fields: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A combination of measures that does not fit. The smallest plan found takes `arena_bytes`; if `proved`,
    no plan with these measures fits.
    """

    names: tuple[str, ...]
    changes: Changes
    arena_bytes: int
    proved: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Known facts about `capacity` bytes for one network and its options; all sizes are bytes.

    `peak` is what the program takes in which nothing runs again. `floor` is proved: the step `floor_step`
    needs it in every order and with any recomputation, `fixed` of it for weights, optimizer variables and
    constants, `scratch` for scratch, the rest for the values that it has `touched` and for those `waiting`
    for later steps that cannot be made again, each with its bytes. `smallest` is the smallest arena that was
    found; `impossible` bytes, 0 where nothing is known, are proved to be too few for every schedule of
    this order. The plan within the capacity takes `arena_bytes`, None without one, and runs
    `repeated_steps` again: those may cost nothing.

    Costs are nanoseconds of modelled time for one update, which takes `update_nanoseconds` as it was asked
    for: `smallest_extra` more within the smallest peak, `extra` more within the capacity, of which `bound`
    are proved to be necessary; None where there is no plan, and where nothing is proved. `remedies` are plans
    within the capacity; the best comes first; without any, `attempts` are combinations that do not fit, the
    nearest first. `complete` is false where wall time ended a search.
    """

    graph: str
    capacity: int
    status: VerdictStatus
    peak: int
    floor: int
    floor_step: str
    fixed: int
    scratch: int
    touched: tuple[tuple[str, int], ...]
    waiting: tuple[tuple[str, int], ...]
    smallest: int
    smallest_extra: int
    impossible: int
    update_nanoseconds: int
    extra: int | None
    bound: int | None
    remedies: tuple[Remedy, ...]
    complete: bool = True
    arena_bytes: int | None = None
    repeated_steps: int = 0
    attempts: tuple[Attempt, ...] = ()

    @property
    def fits_as_it_is(self) -> bool:
        """Whether there is a plan in which nothing runs again."""
        return self.status is VerdictStatus.PLAN and not self.extra and not self.repeated_steps


@dataclass(frozen=True, slots=True)
class TradeOffPoint:
    """One schedule: `peak` bytes live at once, for `extra` nanoseconds of repeated steps.

    `bound` are nanoseconds that every schedule within `peak` bytes costs at least which keeps the order of
    first runs; 0 where nothing is proved. `extra_flops` are products that are computed again.
    """

    peak: int
    extra: int
    bound: int
    extra_flops: int
    repeated_steps: int

    @property
    def optimal(self) -> bool:
        """Whether no schedule within the peak is cheaper, for the given order of first runs."""
        return self.extra <= self.bound


@dataclass(frozen=True, slots=True)
class TradeOff:
    """Points with falling peaks and rising costs; the first is the program as it is.

    No schedule of any order takes less than `floor` bytes, which the step `floor_step` needs. With
    `impossible` bytes, 0 where nothing is known, no schedule exists that keeps the order of first runs.
    `step_nanoseconds` and `step_flops` are the modelled time and the products of one iteration in which
    nothing runs again. `complete` is false where wall time ended a search.
    """

    graph: str
    points: tuple[TradeOffPoint, ...]
    floor: int
    floor_step: str
    impossible: int
    step_nanoseconds: int
    step_flops: int
    complete: bool = True

    @property
    def present(self) -> TradeOffPoint:
        """The program in which nothing runs again."""
        return self.points[0]
