"""Figures of a device: how long each step takes there, and the memories that contents may be paged to.

Costs are measured on the device, or estimated by its owner. Tiers are its memories: first the one in which
kernels run, then those that only hold paged contents.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from solver.errors import OptionsError
from solver.memories import Tier, transfer_nanoseconds
from solver.program.ir import Program

__all__ = [
    "MOST_NANOSECONDS",
    "Costs",
    "Tier",
    "check_costs",
    "check_memories",
    "check_tiers",
    "given_costs",
    "joined_memory",
    "transfer_nanoseconds",
]

#: The longest iteration that costs may describe, eleven days: sums over repetitions stay exact in 64 bits.
MOST_NANOSECONDS = 10**15

#: Names that a wrong one is compared with: a tenth of a second.
_MOST_COMPARED = 5_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Whole nanoseconds by name: the label of a step, or the id of an operation for those of its steps that
    are not named themselves. `about` says for people where they come from.
    """

    nanoseconds: tuple[tuple[str, int], ...]
    about: str = ""


def given_costs(program: Program, costs: Costs) -> tuple[int, ...]:
    """Nanoseconds of each step. A repetition takes what its first run takes; copies between memories 0, as
    their time follows from bandwidths. Linear.

    Raises OptionsError for a step that the costs do not name, and for a cost that is negative or not whole.
    """
    table, nanoseconds = dict(costs.nanoseconds), []
    for step, label, run in zip(program.steps, program.step_labels, program.runs, strict=True):
        if step.reference is None:
            nanoseconds.append(0)
            continue
        label = label.removesuffix(f".again{run}") if run else label
        operation = program.operations[step.operation].operation.id
        name = label if label in table else operation
        if name not in table:
            raise OptionsError(
                f"The costs name neither the step {label!r} nor its operation {operation!r}.",
                remedy="Give nanoseconds for every step. `arenaplan costs` writes them all, under the options"
                " of the plan.",
                path=("costs", "nanoseconds"),
            )
        nanoseconds.append(_checked(name, table[name]))
    return tuple(nanoseconds)


def check_costs(program: Program, costs: Costs) -> None:
    """Raises OptionsError for what `given_costs` refuses, for names that the program does not have, and for
    an iteration that takes no time or more than `MOST_NANOSECONDS`. Linear.
    """
    known = {*program.step_labels, *(node.operation.id for node in program.operations)}
    for name, cost in costs.nanoseconds:
        if name not in known:
            raise OptionsError(
                f"The costs name {name!r}, which is neither a step nor an operation of this graph.",
                remedy=f"{_hint(name, known)}Remove it, or use the options that the costs were taken with.",
                path=("costs", "nanoseconds", name),
            )
        _checked(name, cost)
    total = sum(given_costs(program, costs))
    if not 0 < total <= MOST_NANOSECONDS:
        raise OptionsError(
            f"The costs of all steps add up to {total:,} nanoseconds.",
            remedy=f"Give costs that add up to more than zero, and to {MOST_NANOSECONDS:,} at most.",
            path=("costs", "nanoseconds"),
        )


def _checked(name: str, cost: object) -> int:
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise OptionsError(
            f"The cost of {name!r} is {cost!r} nanoseconds.",
            remedy="Give a whole number, zero or more.",
            path=("costs", "nanoseconds", name),
        )
    return cost


def _hint(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1) if len(known) <= _MOST_COMPARED else []
    return f"Did you mean {close[0]!r}? " if close else ""


def joined_memory(memories: Sequence[Tier]) -> Tier:
    """One memory of all bytes, with the highest speed that a transfer may have from or to one of them."""
    rates = [[getattr(memory, name) for memory in memories] for name in ("read", "write")]
    read, write = (max(each) if all(each) else 0 for each in rates)
    name = "+".join(memory.name for memory in memories)
    latency = min(memory.latency for memory in memories)
    return Tier(name, sum(memory.bytes for memory in memories), read, write, latency)


def check_memories(memories: Sequence[Tier], tiers: Sequence[Tier], place: Sequence[str]) -> None:
    """Raises OptionsError for memories that kernels cannot work in, for `tiers` that nothing can be paged to
    from them, and for places in other memories.
    """
    names: set[str] = set()
    for option, those in (("memories", memories), ("tiers", tiers if memories else ())):
        for i, one in enumerate(those):
            if not one.name or one.name in names:
                what = f"is called {one.name!r}, as another one is" if one.name else "has no name"
                raise OptionsError(
                    f"Memory {i} of {option} {what}.",
                    remedy="Give each memory a name of its own.",
                    path=(option, i, "name"),
                )
            names.add(one.name)
            if one.bytes < 1 or min(one.read, one.write, one.latency) < 0:
                raise OptionsError(
                    f"A figure of memory {one.name!r} is out of range.",
                    remedy="Give sizes of one byte or more; bandwidths and latencies are not negative.",
                    path=(option, i),
                )
    for i, tier in enumerate(tiers if memories else ()):
        for memory in memories:
            for what, rates in (("written", (memory.read, tier.write)), ("read", (tier.read, memory.write))):
                if not any(rates):
                    raise OptionsError(
                        f"Nothing says how fast tier {tier.name!r} is {what} from memory {memory.name!r}.",
                        remedy=f"Give it a bandwidth above zero, as {tier.name}=1GiB,bandwidth=50MB/s.",
                        path=("tiers", i),
                    )
    known = [memory.name for memory in memories]
    for i, text in enumerate(place):
        name, _, memory_name = text.rpartition("=")
        if not name or not memory_name:
            raise OptionsError(
                f"The place {text!r} does not say which value lies in which memory.",
                remedy="Give NAME=MEMORY, as conv1.weight=tcm or *@grad=psram.",
                path=("place", i),
            )
        if memory_name not in known:
            raise OptionsError(
                f"The place {text!r} is in memory {memory_name!r}, which there is not.",
                remedy=f"Choose one of {', '.join(known)}."
                if known
                else f"Give that memory as well: --memory {memory_name}=512KiB,read=4GB/s,write=4GB/s.",
                path=("place", i),
            )


def check_tiers(tiers: Sequence[Tier]) -> None:
    """Raises OptionsError for memories that nothing can be paged between."""
    if not tiers:
        return
    if len(tiers) == 1:
        raise OptionsError(
            f"There is nothing to page out to: the only tier is {tiers[0].name!r}.",
            remedy="Give a second tier, or the size of the first one as the capacity.",
            path=("tiers",),
        )
    names = [tier.name for tier in tiers]
    for i, tier in enumerate(tiers):
        if not tier.name or names.index(tier.name) < i:
            what = f"is called {tier.name!r}, as another one is" if tier.name else "has no name"
            raise OptionsError(
                f"Tier {i} {what}.",
                remedy="Give each tier a name of its own.",
                path=("tiers", i, "name"),
            )
        if tier.bytes < 1 or min(tier.read, tier.write, tier.latency) < 0:
            raise OptionsError(
                f"A figure of tier {tier.name!r} is out of range.",
                remedy="Give sizes of one byte or more; bandwidths and latencies are not negative.",
                path=("tiers", i),
            )
    fast = tiers[0]
    for i, tier in enumerate(tiers[1:], 1):
        for what, rates in (("written", (fast.read, tier.write)), ("read", (tier.read, fast.write))):
            if not any(rates):
                raise OptionsError(
                    f"Nothing says how fast tier {tier.name!r} is {what}.",
                    remedy=f"Give it a bandwidth above zero, as {tier.name}=1GiB,bandwidth=50MB/s, or"
                    f" give one to {fast.name!r}.",
                    path=("tiers", i),
                )
