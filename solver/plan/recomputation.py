"""The steps that a plan runs again, and their cost, for people and scripts."""

from __future__ import annotations

from dataclasses import dataclass

from solver.plan.views import PlanView

__all__ = ["Recomputation", "Repetition", "recomputation"]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A step that runs again on `level` and defines `values` anew; `reader` is the first that reads one."""

    step: str
    level: int
    values: tuple[str, ...]
    reader: str | None


@dataclass(frozen=True, slots=True)
class Recomputation:
    """The cost of repetitions, by the costs that the schedule was chosen with: nanoseconds, and products.

    `bound` are nanoseconds that every schedule within the capacity costs at least which keeps the order of
    first runs; it is as large as `extra` where the plan is proved to be the cheapest, and 0 where the
    schedule was made for fewer bytes than the capacity. So many of them as `checked` are proved by rows that
    the plan carries, and that were added up without a solver. No schedule of any order takes less than
    `floor` bytes.
    """

    step: int
    extra: int
    bound: int
    step_flops: int
    extra_flops: int
    checked: int
    floor: int
    peak_before: int
    peak_after: int
    repetitions: tuple[Repetition, ...]

    @property
    def optimal(self) -> bool:
        return self.extra <= self.bound

    @property
    def proof(self) -> str:
        """The proof about the cost, in words: shares are percent of the modelled time of a step."""
        if self.optimal:
            known = "proved to be the least for this order"
        elif self._hundredths(self.bound):
            known = f"{self._share(self.bound)} at least are proved for this order"
        else:
            return "no bound is proved"  # nor is one that is 0.00 %
        if not self._hundredths(self.checked):
            return known
        summed = "which" if self.checked == self.bound else f"of which {self._share(self.checked)}"
        return f"{known}, {summed} can be checked without a solver"

    def _hundredths(self, nanoseconds: int) -> int:
        return 10_000 * nanoseconds // max(self.step, 1)  # rounded down: it is a bound

    def _share(self, nanoseconds: int) -> str:
        return f"{self._hundredths(nanoseconds) / 100:.2f} %"


def recomputation(plan: PlanView) -> Recomputation | None:
    """The plan's record of recomputation, with the repeated steps; None without one. Linear."""
    facts = next((record.facts for record in plan.records if record.name == "recompute"), None)
    if facts is None:
        return None

    def figure(name: str) -> int:
        return int(facts.get(name, 0))

    # Of a smaller budget, where layout or levels took the rest, more is proved than of the capacity.
    bounded = figure("budget") == plan.options.capacity
    return Recomputation(
        step=figure("step_nanoseconds"),
        extra=figure("extra_nanoseconds"),
        bound=figure("bound_nanoseconds") if bounded else 0,
        step_flops=figure("step_flops"),
        extra_flops=figure("extra_flops"),
        checked=figure("checked_nanoseconds") if bounded else 0,
        floor=figure("floor"),
        peak_before=figure("peak_before"),
        peak_after=figure("peak_after"),
        repetitions=_repetitions(plan),
    )


def _repetitions(plan: PlanView) -> tuple[Repetition, ...]:
    reader: dict[str, str] = {}
    for step in plan.steps:
        for name in step.uses:
            reader.setdefault(name, step.id)
    return tuple(
        Repetition(
            step.id,
            step.level,
            step.defs,
            next((reader[name] for name in step.defs if name in reader), None),
        )
        for step in plan.steps
        if step.again
    )
