"""A memory plan: a program, a place for each of its values, and the certificates of the arenas.

A plan stands on its own: its reader can allocate the arenas, run the steps in them, and check every
claim without the planner (`solver.verify`). It stores no lifespan, sum or peak: they are computed.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from solver.errors import PlanError
from solver.layout import Certificate, Lifespan, Proof
from solver.plan.options import PlanOptions, SizeRange
from solver.plan.views import AliasedValue, Arena, PlannedBuffer, PlannedStep, level_ids, memory_maps
from solver.program import (
    Access,
    CostBound,
    EntryKind,
    HomeBound,
    Lifetime,
    Phase,
    Program,
    Record,
    Region,
    Replacement,
    held_lives,
    regions,
)

__all__ = ["Plan", "PlannedSizes", "RefusedSize"]


@dataclass(frozen=True, slots=True)
class RefusedSize:
    """Sizes, one for each range, at which the plan is not right, and why."""

    sizes: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedSizes:
    """The sizes that a plan serves. It was made at the largest of each range.

    `proved` are the sizes, one for each range, at which the plan was proved when it was made. Sizes inside
    the ranges that are neither proved nor refused are proved when they are first used.
    """

    ranges: tuple[SizeRange, ...]
    proved: tuple[tuple[int, ...], ...]
    refused: tuple[RefusedSize, ...] = ()

    @property
    def most(self) -> tuple[int, ...]:
        """The sizes at which the plan was made."""
        return tuple(each.most for each in self.ranges)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.ranges)

    @property
    def largest(self) -> dict[str, int]:
        """The sizes at which the plan was made, by name."""
        return {each.name: each.most for each in self.ranges}

    def __contains__(self, sizes: object) -> bool:
        """Whether the sizes, one for each range, lie inside the ranges."""
        return (
            isinstance(sizes, tuple)
            and len(sizes) == len(self.ranges)
            and all(each.least <= size <= each.most for each, size in zip(self.ranges, sizes, strict=True))
        )

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raises PlanError for sizes outside of the ranges, and for refused ones with the reason."""
        for each in self.ranges:
            if not each.least <= sizes[each.name] <= each.most:
                served = ", ".join(map(str, self.ranges))
                raise PlanError(
                    f"The {each.name} is {sizes[each.name]}; the plan serves {served}.",
                    remedy=f"Give a {each.name} inside the range, or plan with a range that has it.",
                    path=(each.name,),
                )
        chosen = tuple(sizes[name] for name in self.names)
        for refused in self.refused:
            if refused.sizes == chosen:
                asked = ", ".join(f"{name} {size}" for name, size in zip(self.names, chosen, strict=True))
                raise PlanError(
                    f"The plan does not serve {asked}: {refused.reason}",
                    remedy="Plan this size by itself.",
                    path=(self.names[0],),
                )

    def all(self) -> Iterator[tuple[int, ...]]:
        """Every combination of sizes inside the ranges, the smallest first."""
        return itertools.product(*(range(each.least, each.most + 1) for each in self.ranges))


@dataclass(frozen=True)
class Plan:
    """`offsets` has the first byte of each value in its space, `sizes` the bytes of each space.

    `graph_digest` ties the plan to its graph, `reference_digest` to the reference program that it must
    agree with. `holds` are lives that the target makes longer than the program needs. `deterministic` is
    false when wall time decided the result. `producer` names the version of arenaplan that made it.
    `cost_bound` proves what recomputation costs at least, where something is proved; `home_bound` how long
    accesses take at least, where kernels reach several memories.
    `planned_sizes` are the sizes that it serves beside its own, where it serves several.
    `digest` is SHA-256 over the plan's canonical document without the digest itself, in hexadecimal.
    """

    graph: str
    graph_digest: str
    reference_digest: str
    options: PlanOptions
    program: Program
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    certificates: tuple[Certificate, ...]
    deterministic: bool
    holds: Mapping[int, Lifespan] = field(default_factory=dict)
    replacements: tuple[Replacement, ...] = ()
    records: tuple[Record, ...] = ()
    producer: str = ""
    digest: str = ""
    cost_bound: CostBound | None = None
    home_bound: HomeBound | None = None
    planned_sizes: PlannedSizes | None = None

    def __repr__(self) -> str:
        """Three lines: the name and bytes; the bound; whether the bound proves that nothing is smaller."""
        arenas = "one arena" if len(self.sizes) == 1 else f"{len(self.sizes)} arenas"
        if self.gap_bytes:
            proof = f"not proved to be the smallest: {self.gap_bytes:,} bytes above the bound"
        elif all(certificate.proof is Proof.MAX_LOAD for certificate in self.certificates):
            proof = "proved to be the smallest for these steps; anyone can add the bound up"
        else:
            proof = "proved to be the smallest for these steps by a complete search"
        return (
            f"<Plan of {self.graph!r}: {self.arena_bytes:,} bytes in {arenas},\n"
            f" lower bound {self.lower_bound:,} bytes,\n"
            f" {proof}>"
        )

    def _repr_html_(self) -> str:
        """The same with the memory map of each arena, for notebooks."""
        return f"<pre>{html.escape(repr(self))}</pre>\n" + "\n".join(memory_maps(self))

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions that the layout placed, in its order: computed from program and holds."""
        return regions(self.program, self.holds)

    @cached_property
    def steps(self) -> tuple[PlannedStep, ...]:
        """The steps with labels instead of numbers."""
        program, label = self.program, [value.label for value in self.program.values]
        steps_with_labels = []
        for t, step in enumerate(program.steps):
            uses = dict.fromkeys(label[b.value] for b in step.bindings if b.access.reads)
            defs = dict.fromkeys(label[b.value] for b in step.bindings if b.access.defines)
            scratch = dict.fromkeys(label[b.value] for b in step.bindings if b.access is Access.SCRATCH)
            steps_with_labels.append(
                PlannedStep(
                    program.step_labels[t],
                    program.kernel(step),
                    (*uses,),
                    (*defs,),
                    (*scratch,),
                    step.level,
                    program.runs[t],
                )
            )
        return tuple(steps_with_labels)

    @cached_property
    def arenas(self) -> tuple[Arena, ...]:
        """The spaces with their buffers. O(n log n) for n values."""
        program, spans, lifetimes = (
            self.program,
            held_lives(self.program, self.holds),
            _lifetimes(self.program),
        )
        aliases = {alias.value: alias for alias in reversed(program.aliases)}
        by_space: list[list[PlannedBuffer]] = [[] for _ in program.spaces]
        for region in self.regions:
            first = program.values[region.members[0]]
            members = []
            for member in region.members:
                value, alias = program.values[member], aliases.get(member)
                members.append(
                    AliasedValue(
                        value.label,
                        value.kind,
                        lifetimes[member],
                        value.type.shape,
                        value.type.dtype.value,
                        spans[member],
                        None if alias is None else program.values[alias.source].label,
                        alias is not None and alias.view,
                        self.offsets[member],
                        value.type.nbytes,
                        str(value.type.storage or ""),
                    )
                )
            longest = max((member.lifetime for member in members), key=_LENGTHS.__getitem__)
            by_space[region.space].append(
                PlannedBuffer(
                    id=first.label,
                    kind=first.kind,
                    lifetime=longest,
                    shape=first.type.shape,
                    dtype=first.type.dtype.value,
                    nbytes=region.nbytes,
                    size=region.size,
                    alignment=program.spaces[region.space].alignment,
                    lifespan=region.lifespan,
                    offset=self.offsets[region.members[0]],
                    aliases=tuple(members) if len(members) > 1 else (),
                    lent=region.lent,
                    storage=str(first.type.storage or ""),
                )
            )
        return tuple(
            Arena(space.name, size, certificate, tuple(buffers))
            for space, size, certificate, buffers in zip(
                program.spaces, self.sizes, self.certificates, by_space, strict=True
            )
        )

    @property
    def arena_bytes(self) -> int:
        """Total size of all arenas, in bytes."""
        return sum(self.sizes)

    @property
    def lower_bound(self) -> int:
        return sum(certificate.lower_bound for certificate in self.certificates)

    @property
    def gap_bytes(self) -> int:
        """Bytes of the arenas beyond the lower bound; 0 proves that nothing smaller exists."""
        return self.arena_bytes - self.lower_bound

    @property
    def times(self) -> tuple[int, ...]:
        """The level of each step."""
        return tuple(step.level for step in self.program.steps)

    @property
    def duration(self) -> int:
        """Levels of one iteration."""
        return self.program.duration

    def level_ids(self) -> tuple[str, ...]:
        """The steps of each level: the label of a step, or several with a + between them. Linear."""
        return level_ids(self.steps, self.duration)

    def buffers(self) -> Iterator[tuple[Arena, PlannedBuffer]]:
        for arena in self.arenas:
            for buffer in arena.buffers:
                yield arena, buffer


_LENGTHS = {lifetime: length for length, lifetime in enumerate(Lifetime)}


def _lifetimes(program: Program) -> dict[int, Lifetime]:
    # A target may hold what no step of a plan touches, if the plan is wrong.
    lifetimes = dict.fromkeys(range(len(program.values)), Lifetime.ITERATION)
    for step in program.steps:
        inside = (
            Lifetime.BACKWARD_FUNCTION
            if step.phase not in (Phase.FORWARD, Phase.EXPLICIT)
            else Lifetime.FORWARD_FUNCTION
        )
        for binding in step.bindings:
            scratch = binding.access is Access.SCRATCH
            lifetimes[binding.value] = inside if scratch else Lifetime.ITERATION
    lifetimes.update((exit_.value, Lifetime.EPOCH) for exit_ in program.exit)
    lifetimes.update(
        (entry.value, Lifetime.MAX) for entry in program.entry if entry.kind is not EntryKind.FED
    )
    return lifetimes
