"""The transfers of a plan between memories, and how long they take, for people and scripts."""

from __future__ import annotations

from dataclasses import dataclass

from solver.plan.views import PlannedStep, PlanView
from solver.program import COPY

__all__ = ["PagedCopy", "Paging", "TierUse", "paging"]


@dataclass(frozen=True, slots=True)
class TierUse:
    """One memory: its size, the `used` bytes of it, and those that are `written` to it in an iteration."""

    name: str
    bytes: int
    used: int
    written: int


@dataclass(frozen=True, slots=True)
class PagedCopy:
    """A step that copies `value` of one tier to `target` in another, from `level` on; `nbytes` are moved."""

    step: str
    level: int
    value: str
    target: str
    nbytes: int
    from_tier: str
    to_tier: str


@dataclass(frozen=True, slots=True)
class Paging:
    """Bytes and nanoseconds of one iteration. `moved` is `moved_in` and `moved_out` together.

    `bound` are the bytes that are moved at least, for this order of steps and this lookahead, in levels; 0
    where nothing is proved. `baseline` are those that are moved where everything leaves that can. `compute`
    are the steps alone, with their accesses to several memories, `time` with transfers, one at a time on a
    channel. No plan with these tiers and this order of first runs takes less than `least_time`, whatever
    leaves and whatever runs again; 0 where nothing is proved.
    """

    tiers: tuple[TierUse, ...]
    lookahead: int
    moved_in: int
    moved_out: int
    bound: int
    baseline: int
    compute: int
    time: int
    least_time: int
    peak_before: int
    copies: tuple[PagedCopy, ...]

    @property
    def moved(self) -> int:
        return self.moved_in + self.moved_out

    @property
    def proof(self) -> str:
        """The proof about the bytes that are moved, in words."""
        searched = f"for this order and lookahead {self.lookahead}"
        if self.moved <= self.bound:
            return f"proved to be the least {searched}"
        if not self.bound:
            return f"of which none are proved to be needed {searched}"
        hundredths = -(10_000 * (self.bound - self.moved) // self.bound)  # rounded up
        return f"proved to be within {hundredths / 100:.2f} % of the least {searched}"


def paging(plan: PlanView) -> Paging | None:
    """The plan's record of paging, with the copies; None for one memory. Linear."""
    facts = next((record.facts for record in plan.records if record.name == "paging"), None)
    if facts is None or not plan.options.tiers:
        return None

    def figure(name: str) -> int:
        return int(facts.get(name, 0))

    placed = {v.id: (arena.name, v.nbytes) for arena, buffer in plan.buffers() for v in buffer.values}

    def copy(step: PlannedStep) -> PagedCopy:
        value, target = step.uses[0], step.defs[0]
        (left, _), (entered, nbytes) = (placed.get(name, ("-", 0)) for name in (value, target))
        return PagedCopy(step.id, step.level, value, target, nbytes, left, entered)

    memories = plan.options.memories
    spaces = zip((*memories, *plan.options.tiers), plan.arenas, strict=False)
    uses = [TierUse(t.name, t.bytes, arena.size, figure(f"written.{t.name}")) for t, arena in spaces]
    if memories:  # where kernels work, behind which the tiers stand
        fast, uses = uses[: len(memories)], uses[len(memories) :]
        name = "+".join(use.name for use in fast)
        uses.insert(0, TierUse(name, sum(u.bytes for u in fast), sum(u.used for u in fast), 0))
    accesses = sum(int(r.facts.get("access_nanoseconds", 0)) for r in plan.records if r.name == "homes")
    return Paging(
        tiers=tuple(uses),
        lookahead=figure("lookahead"),
        moved_in=figure("moved_in"),
        moved_out=figure("moved_out"),
        bound=figure("bound"),
        baseline=figure("baseline"),
        compute=figure("compute_nanoseconds") + accesses,
        time=figure("nanoseconds"),
        least_time=figure("least_nanoseconds"),
        peak_before=figure("peak_before"),
        copies=tuple(copy(step) for step in plan.steps if step.kernel == COPY),
    )
