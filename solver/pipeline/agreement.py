"""Entry points with tiers: an agreement on which memory has each persistent value between two runs.

    train   fits with w1 away ──► away: w1
    infer   its peak with the optimizer's variables is too high ──► away: w1, w1@m, w2@m
    train   again, now without w1@m and w2@m at its start ──► the same ──► agreed

A program needs a value that is away in fast memory only from its first to its last touch, and moves it in and
out in each run. One that it holds for others lies in slow memory and costs it nothing, so these leave first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from solver.errors import CapacityError
from solver.pipeline.paths import Candidate, Plans
from solver.plan import PlanOptions
from solver.program import RESIDUE, EntryKind, Program, Tier, Value, loads

__all__ = ["Member", "agreed"]

#: Plans the entry point of a number.
Planner = Callable[[int], Candidate]


@dataclass(frozen=True, slots=True)
class Member:
    """An entry point: its plans and options, and the label of each persistent value in its program, by name.

    It holds the values `held` for others.
    """

    plans: Plans
    options: PlanOptions
    label_of: Mapping[str, str]
    held: frozenset[str]


def agreed(members: Sequence[Member], shared: Mapping[str, Value], plan: Planner) -> list[Candidate]:
    """A plan for each member, made by `plan`, which all have the same values away between two runs.

    More and more values are away, so that this ends after at most as many rounds as there are values; mostly
    after two. Raises CapacityError where a tier has no room.
    """
    agreement = _Agreement(members, shared, plan)
    candidates: dict[int, Candidate] = {}
    order = sorted(range(len(members)), key=lambda k: len(members[k].held))
    while True:
        behind = [
            k
            for k in order
            if k not in candidates or agreement.homes(members[k], candidates[k]) != agreement.away
        ]
        if not behind:
            return [candidates[k] for k in range(len(members))]
        for k in behind:
            candidates[k] = agreement.fitted(k)


@dataclass(slots=True)
class _Agreement:
    members: Sequence[Member]
    shared: Mapping[str, Value]
    plan: Planner
    #: By name the tier of each value that is away.
    away: dict[str, int] = field(default_factory=dict)

    def fitted(self, k: int) -> Candidate:
        """A plan of a member with all that is away, to which it adds what has to leave."""
        member = self.members[k]
        self._send(member, self._excess(member))
        while True:
            member.plans.away = {member.label_of[name]: tier for name, tier in self.away.items()}
            try:
                candidate = self.plan(k)
            except CapacityError as error:
                if error.path[:2] != ("tiers", 0) or not self._send(member, max(1, error.excess)):
                    raise
                continue
            for name, tier in self.homes(member, candidate).items():
                if name not in self.away:
                    self._put(name, tier)
            return candidate

    def homes(self, member: Member, candidate: Candidate) -> dict[str, int]:
        """The tier of each value that the plan of a member has in slower memory between two runs."""
        tier_of = _tiers_by_label(candidate.reference.program, candidate.plan.program)
        return {name: tier_of[label] for name, label in member.label_of.items() if tier_of[label]}

    def _excess(self, member: Member) -> int:
        """Bytes that the member lacks in the first tier if nothing of its own leaves."""
        peak = max(loads(member.plans.behind(member.options).program)[0], default=0)
        gone = sum(_rounded(self.shared[name]) for name in self.away if name in member.held)
        return peak - gone - member.options.tiers[0].bytes

    def _send(self, member: Member, excess: int) -> bool:
        """Send away what a member holds for others, the largest first, until that is so many bytes. Returns
        whether anything was left to send.
        """
        rest = [name for name in member.held if name not in self.away]
        for name in sorted(rest, key=lambda name: (-self.shared[name].type.nbytes, name)):
            if excess <= 0:
                break
            self._put(name, 1)
            excess -= _rounded(self.shared[name])
        return bool(rest)

    def _put(self, name: str, asked: int) -> None:
        """Put a value into the tier asked for, or into the first one that has room beside what is away.

        Raises CapacityError where none has.
        """
        tiers, size = self.members[0].options.tiers, _rounded(self.shared[name])
        room = [tier.bytes for tier in tiers]
        for other, tier in self.away.items():
            room[tier] -= _rounded(self.shared[other])
        home = next((k for k in (asked, *range(1, len(tiers))) if room[k] >= size), None)
        if home is None:
            raise _no_room(name, size, room, tiers)
        self.away[name] = home


def _tiers_by_label(reference: Program, program: Program) -> dict[str, int]:
    return {
        reference.values[entry.reference].label: program.values[entry.value].space
        for entry in program.entry
        if entry.kind is not EntryKind.FED
    }


def _rounded(value: Value) -> int:
    """Bytes of a value as they are reserved where values are paged."""
    return -(-value.type.nbytes // RESIDUE) * RESIDUE


def _no_room(name: str, size: int, room: Sequence[int], tiers: Sequence[Tier]) -> CapacityError:
    tier = max(range(1, len(tiers)), key=room.__getitem__)
    lacking = size - room[tier]
    return CapacityError(
        f"No slower tier has room between two runs for {name!r} ({size:,} bytes), and {tiers[0].name!r} has"
        " none for it in some entry point.",
        remedy=f"Give {tiers[tier].name!r} {lacking:,} bytes more, or raise {tiers[0].name!r}.",
        required=tiers[tier].bytes + lacking,
        available=tiers[tier].bytes,
        live_at_peak=[(name, size)],
        path=("tiers", tier, "bytes"),
    )
