"""The preparation `fit_scratch`: as much scratch as kernels may have without making the peak.

More scratch makes kernels faster and the arena larger, but only where the peak is at a step with scratch. On
small devices it often is: the default of 2 MiB makes 44 % of LeNet's arena. With a sixteenth of it, a step
takes 6.1 ms instead of 4.5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from solver.preparations.base import Planner, Preparation, Prepared
from solver.program import Record

__all__ = ["FitScratch"]

#: Scratch may add at most 1 / `_SHARE` to the bytes that are needed anyway. The last reductions below that
#: cost kernels more time than all before (LeNet: 3 % of the arena against a step of nine times the length).
_SHARE: Final = 16


@dataclass(frozen=True, slots=True)
class FitScratch(Preparation):
    """Whether the scratch budget is made smaller, so that scratch does not make the peak.

    With a capacity that the least scratch keeps, the budget becomes the largest power of two that keeps it
    too; otherwise the largest one whose footprint is within a sixteenth of that of the least scratch. One
    derivation for each trial, about seven of them. It runs before rewriting and, where that replaced
    something, behind it once more: there is less then that scratch adds to.
    """

    name: ClassVar[str] = "fit_scratch"

    fit_scratch: bool = False
    capacity: int | None = None

    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        earlier = next((record for record in prepared.records if record.name == self.name), None)
        nothing_since = earlier is not None and (not prepared.replacements or earlier is prepared.records[-1])
        if not self.fit_scratch or nothing_since:
            return prepared

        def bound(budget: int) -> int:
            return planner.footprint(replace(prepared, scratch_budget=budget))[0]

        initial, least = prepared.scratch_budget, bound(1)
        limit = least + least // _SHARE
        if self.capacity is not None and self.capacity >= least:
            limit = self.capacity
        before = bound(initial)
        budget, after = initial, before
        if before > limit:
            # 2**fits keeps the limit; 2**exceeds may not.
            fits, after, exceeds = 0, least, (initial - 1).bit_length()
            while exceeds - fits > 1 and not planner.stop():
                middle = (fits + exceeds) // 2
                footprint = bound(1 << middle)
                if footprint <= limit:
                    fits, after = middle, footprint
                else:
                    exceeds = middle
            budget = 1 << fits
        facts: dict[str, int | str | bool] = {
            "budget_before": initial,
            "budget_after": budget,
            "bound_before": before,
            "bound_after": after,
        }
        if earlier is not None:
            facts |= {"budget_before": earlier.facts["budget_before"]}
        return replace(
            prepared,
            scratch_budget=budget,
            complete=prepared.complete and not planner.stop(),
            records=(*(r for r in prepared.records if r is not earlier), Record(self.name, facts)),
        )
