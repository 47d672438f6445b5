"""The memories of a plan that kernels reach, and how long accesses to them take, for people and scripts."""

from __future__ import annotations

from dataclasses import dataclass

from solver.plan.views import PlanView

__all__ = ["Homes", "MemoryUse", "homes"]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """One memory: its bytes, the `used` ones, and the number of its `buffers`."""

    name: str
    bytes: int
    used: int
    buffers: int


@dataclass(frozen=True, slots=True)
class Homes:
    """Nanoseconds of one iteration: `accesses` of all memories, of which `bound` are proved for every choice
    of homes, `checked` of them by the rows in the plan; and `time` with the steps and all copies.
    """

    memories: tuple[MemoryUse, ...]
    accesses: int
    bound: int
    checked: int
    time: int

    @property
    def proof(self) -> str:
        """How near the accesses are to the least, in words."""
        if self.accesses <= self.bound:
            return "proved to be the least for these steps"
        if not self.bound:
            return "of which none are proved to be needed"
        hundredths = -(10_000 * (self.bound - self.accesses) // self.bound)  # rounded up
        return f"proved to be within {hundredths / 100:.2f} % of the least for these steps"


def homes(plan: PlanView) -> Homes | None:
    """The plan's record of homes, with the use of each memory; None for one memory. Linear."""
    facts = next((record.facts for record in plan.records if record.name == "homes"), None)
    if facts is None or not plan.options.memories:
        return None
    uses = (
        MemoryUse(memory.name, memory.bytes, arena.size, len(arena.buffers))
        for memory, arena in zip(plan.options.memories, plan.arenas, strict=False)
    )
    return Homes(
        tuple(uses),
        int(facts.get("access_nanoseconds", 0)),
        int(facts.get("bound_nanoseconds", 0)),
        int(facts.get("checked_nanoseconds", 0)),
        int(facts.get("nanoseconds", 0)),
    )
