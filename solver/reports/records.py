"""The records of a plan in words and figures: steps that run again, transfers between memories, and homes."""

from __future__ import annotations

from dataclasses import dataclass

from solver.plan import PlannedStep, PlanView
from solver.program import COPY

__all__ = [
    "Homes",
    "MemoryUse",
    "PagedCopy",
    "Paging",
    "Recomputation",
    "Repetition",
    "TierUse",
    "homes",
    "paging",
    "recomputation",
]


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
