"""The figures of a plan, added up again: sizes of spaces, lower bounds, capacity; and held buffers apart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from solver.layout import Certificate, Proof, Status
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import Region, loads

__all__ = ["check_figures"]


def check_figures(plan: Plan) -> Iterator[Violation]:
    """Every figure that the plan's own buffers do not bear out.

    Rules: ``size``, ``overlap``, ``bound``, ``proof``, ``capacity``. Lives, loads and sums are computed
    again. A bound of proof ``solver`` that lies above the load rests on the search that gave it; nothing
    but its arithmetic can be checked here. O(n log n) for n buffers.
    """
    program, placed = plan.program, plan.regions
    curves = loads(program, found=placed)
    for number, space in enumerate(program.spaces):
        inside = [region for region in placed if region.space == number]
        size, certificate = plan.sizes[number], plan.certificates[number]
        top = max((plan.offsets[r.members[0]] + r.size for r in inside if r.size), default=0)
        if top != size:
            yield Violation(
                "size", (), f"Space {space.name!r} claims {size:,} bytes; its buffers end at {top:,}."
            )
        if plan.holds:
            yield from _overlaps(plan, inside)
        yield from _certificate(space.name, size, certificate, curves[number])
    for size, tier in zip(plan.sizes, plan.options.tiers, strict=False):
        if size > tier.bytes:
            yield Violation(
                "capacity", (), f"Tier {tier.name!r} has {tier.bytes:,} bytes; {size:,} of it are used."
            )
    capacity = plan.options.capacity
    if capacity is not None and plan.arena_bytes > capacity:
        yield Violation(
            "capacity",
            (),
            f"The spaces take {plan.arena_bytes:,} bytes, the capacity is {capacity:,}.",
        )


def _certificate(name: str, size: int, certificate: Certificate, curve: Sequence[int]) -> Iterator[Violation]:
    load = max(curve, default=0)
    bound, witness = certificate.lower_bound, certificate.witness_step
    if not load <= bound <= size:
        yield Violation(
            "bound",
            (),
            f"Space {name!r} claims the lower bound {bound:,}; {load:,} bytes are live at once and it has"
            f" {size:,}.",
        )
    optimal = certificate.status is Status.OPTIMAL
    if certificate.status not in (Status.OPTIMAL, Status.FEASIBLE):
        yield Violation("proof", (), f"Space {name!r} has a layout and is {certificate.status.value}.")
    elif optimal != (certificate.proof is not None):
        yield Violation("proof", (), f"Space {name!r} is {certificate.status.value} with no matching proof.")
    elif optimal and bound != size:
        yield Violation("proof", (), f"Space {name!r} is claimed optimal above its lower bound.")
    if certificate.proof is Proof.MAX_LOAD or witness is not None:
        at = curve[witness] if witness is not None and 0 <= witness < len(curve) else 0
        wanted = size if certificate.proof is Proof.MAX_LOAD else load
        if at != wanted and (witness is not None or size):
            yield Violation(
                "proof",
                (),
                f"Space {name!r} claims {wanted:,} bytes live on level {witness}; {at:,} are.",
            )


def _overlaps(plan: Plan, placed: Sequence[Region]) -> Iterator[Violation]:
    """Pairs of buffers that are held at the same time in the same bytes: the first that a sweep meets.

    As long as the live buffers, sorted by offset, are disjoint, a new one can only meet the two
    between which it falls. Comparing neighbours of the sorted list alone would be unsound.
    """
    events = [(span.start, 1, i) for i, r in enumerate(placed) if r.size for span in r.spans]
    events += [(span.end, 0, i) for i, r in enumerate(placed) if r.size for span in r.spans]
    live: list[tuple[int, int, int]] = []
    for _, starts, i in sorted(events):
        offset = plan.offsets[placed[i].members[0]]
        key = (offset, offset + placed[i].size, i)
        at = bisect_left(live, key)
        if not starts:
            del live[at]
            continue
        for other in (*live[max(at - 1, 0) : at], *live[at : at + 1]):
            if other[0] < key[1] and key[0] < other[1]:
                names = tuple(plan.program.values[placed[k].members[0]].label for k in sorted((i, other[2])))
                yield Violation(
                    "overlap",
                    names,
                    f"{names[0]!r} and {names[1]!r} share bytes"
                    f" [{max(key[0], other[0])}, {min(key[1], other[1])}) while both are held.",
                )
                return
        live.insert(at, key)
