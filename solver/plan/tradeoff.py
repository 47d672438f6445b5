"""The trade-off between memory and time: what each smaller peak costs, and what it costs at least."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TradeOff", "TradeOffPoint"]


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
