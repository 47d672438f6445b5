"""A plan whose persistent values stay where another plan has them, as far as they can.

    old plan ──► places of persistent values ──► pins, without those that collide with anything ──► plan
                                                  │ nothing fits the capacity
                                                  ▼
                                         the largest values first, each kept if there is still a plan

Two persistent values of one plan share no byte, so all of them can stay unless something else is in the way:
a constraint, the capacity, or another type. Among the plans that keep as many bytes as that, the layout
search takes the smallest arena it finds; the price is the difference to the plan without the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from solver.collector import collector_paused
from solver.errors import CapacityError, ConstraintError, OptionsError
from solver.graph import TrainableGraph
from solver.graph.types import TensorType
from solver.layout import Pin
from solver.native import heeding_deadline
from solver.pipeline.measures import candidate_requested, plans_of
from solver.pipeline.paths import Plans
from solver.pipeline.ranges import at_largest, with_planned_sizes
from solver.pipeline.strategy import Candidate
from solver.pipeline.watch import Follower, Observer
from solver.plan import Plan, RequestedOptions
from solver.plan.deployment import Deployment
from solver.program import Program, Record, conflicts, persistent, regions

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["plan_like"]

#: Plans that are tried at most where not all values can stay within the capacity.
MOST_PLANS: Final = 64

#: The share of the time until the deadline that is left for the plan whose values stay.
FOR_PINNED: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a persistent value lies in the old plan. `name` is that of a pin at this place."""

    name: str
    label: str
    space: str
    type: TensorType
    offset: int


@collector_paused()
@heeding_deadline
def plan_like(
    subject: TrainableGraph | BlockProgram,
    requested: RequestedOptions,
    old: Plan | Deployment,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
    advise: bool = True,
) -> Plan:
    """The plan of `plan_requested` with the persistent values of `old` at their places.

    Its options have these places as pins. The record ``like`` says how many values and bytes stay, why each
    of the others does not, and how many bytes the plan without `old` takes. Raises as `plan_requested` does,
    and OptionsError for tiers and memories. Cost: that of two plans; of some more where not all values can
    stay within the capacity.
    """
    if requested.ranges:
        graph = at_largest(subject, requested)
        alone = replace(requested, ranges=())
        plan = plan_like(graph, alone, old, observe=observe, follow=follow, advise=advise)
        return with_planned_sizes(plan, graph, requested.ranges)
    options = requested.options
    if options.tiers or options.memories:
        several = "tiers" if options.tiers else "memories"
        raise OptionsError(
            f"With {several}, the planner chooses where values lie, so none can stay as in another plan.",
            remedy=f"Leave out --like, or the {several}.",
            path=("like",),
        )
    plans = plans_of(subject, options, observe, follow)
    deadline = plans.deadline
    plans.deadline = deadline.leaving(FOR_PINNED)
    without = candidate_requested(plans, requested, advise=advise)
    plans.deadline = deadline
    places = _places(old)
    moved, pins = _staying(without, places)
    candidate, given_up = _keeping(plans, requested, without, pins)
    lost = {pin.name for pin in given_up}
    kept = [pin for pin in pins if pin.name not in lost]
    moved |= dict.fromkeys(lost, "no plan within the capacity was found in which it stays")
    facts: dict[str, int | str | bool] = {
        "plan": old.digest,
        "kept": len(kept),
        "kept_bytes": sum(places[pin.name].type.nbytes for pin in kept),
        "moved": len(moved),
        "bytes_without": without.bytes,
        "nanoseconds_without": without.nanoseconds,
        **{f"moved.{name}": why for name, why in sorted(moved.items())},
    }
    plan = replace(candidate.plan, records=(*candidate.plan.records, Record("like", facts)))
    return plans.proved(replace(candidate, plan=plan))


def _places(old: Plan | Deployment) -> dict[str, _Place]:
    """The places of persistent values, by the names of pins."""
    if isinstance(old, Deployment):
        plan = old.entry_points[0].plan
        numbered = [(row.name, row.values[0]) for row in old.persistent]
    else:
        plan = old
        numbered = [(plan.program.values[value].label, value) for value in persistent(plan.program)]
    program, places = plan.program, dict[str, _Place]()
    for label, value in numbered:
        name, space = _name(program, label, value), program.spaces[program.values[value].space].name
        places[name] = _Place(name, label, space, program.values[value].type, plan.offsets[value])
    return places


def _name(program: Program, label: str, value: int) -> str:
    """The name of a pin of a value: its label, behind the name of any other space than the first."""
    space = program.values[value].space
    return f"{program.spaces[space].name}:{label}" if space else label


def _staying(without: Candidate, places: dict[str, _Place]) -> tuple[dict[str, str], list[Pin]]:
    """Why some values cannot stay, by name, and the pins of all others.

    A pin that the user gives goes before the old place. Of two values that collide the smaller one moves.
    """
    plan = without.plan
    program, options = plan.program, plan.options
    now = {_name(program, program.values[v].label, v): v for v in persistent(program)}
    by_user = {pin.name for pin in options.pins}
    elsewhere = {place.label: place for name, place in places.items() if name not in now}
    moved: dict[str, str] = {}
    pins: dict[str, Pin] = {}
    for name, value in now.items():
        type_, place = program.values[value].type, places.get(name)
        if place is None:
            other = elsewhere.pop(program.values[value].label, None)
            moved[name] = (
                "new" if other is None else f"was in {other.space!r:.60}, which only the old plan has"
            )
        elif place.type != type_:
            moved[name] = f"was {place.type}, is {type_}"
        elif name not in by_user:
            pins[name] = Pin(name, place.offset)
    moved |= dict.fromkeys((place.name for place in elsewhere.values()), "no longer there")
    inside = regions(program, without.reference.holds)
    capacities = [options.capacity] * len(program.spaces)
    while True:
        pinned = replace(options, pins=(*options.pins, *pins.values())).constraints
        colliding: dict[str, str] = {}
        for conflict in conflicts(program, inside, pinned.rules(program), capacities):
            names = [_name(program, program.values[m].label, m) for r in conflict.regions for m in r.members]
            ours = [name for name in names if name in pins]
            if ours and colliding.keys().isdisjoint(ours):
                colliding[min(ours, key=lambda name: places[name].type.nbytes)] = conflict.message
        if not colliding:
            return moved, list(pins.values())
        moved |= colliding
        pins = {name: pin for name, pin in pins.items() if name not in colliding}


def _keeping(
    plans: Plans, requested: RequestedOptions, without: Candidate, pins: Sequence[Pin]
) -> tuple[Candidate, list[Pin]]:
    """The plan that keeps these pins, and the pins that were given up for it.

    Where no plan keeps all of them within the capacity, greedily: the pins of the largest values first, half
    of what is left at a time, as long as there is a plan. At most `MOST_PLANS` plans are tried.
    """
    size = {}
    program = without.plan.program
    for value in persistent(program):
        size[_name(program, program.values[value].label, value)] = program.values[value].type.nbytes
    best, kept, given_up = without, list[Pin](), list[Pin]()
    blocks = [sorted(pins, key=lambda pin: -size[pin.name])]
    tried = 0
    while blocks:
        block = blocks.pop()
        if not block:
            continue
        candidate = None
        if tried < MOST_PLANS and not (tried and plans.deadline.expired):
            tried += 1
            candidate = _pinned(plans, requested, [*kept, *block])
        if candidate is not None:
            best, kept = candidate, [*kept, *block]
        elif len(block) == 1 or tried >= MOST_PLANS:
            given_up += block
        else:
            half = len(block) // 2
            blocks += [block[half:], block[:half]]
    return best, given_up


def _pinned(plans: Plans, requested: RequestedOptions, pins: Sequence[Pin]) -> Candidate | None:
    """The plan with these pins, if there is one."""
    try:
        asked = requested.having(pins=(*requested.options.pins, *pins))
        return candidate_requested(plans, asked, advise=False)
    except (CapacityError, ConstraintError):
        return None
