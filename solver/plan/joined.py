"""The plans of a deployment as one: the entry points run one after the other, each of them once.

    persistent  ████████████████████████████   live all the time, listed once
    train       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
    infer                       ▒▒▒▒▒▒▒▒▒▒▒▒
    levels      0 ───────────── 40 ──────── 60

Names of steps and of all other values begin with the name of their entry point. Reports, pictures and
exporters that take a plan take this one as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate

from solver.layout import Certificate, Lifespan, Status
from solver.plan.deployment import Deployment, EntryPoint
from solver.plan.options import PlanOptions
from solver.plan.views import AliasedValue, Arena, PlannedBuffer, PlannedStep, level_ids
from solver.program import Record, Replacement

__all__ = ["JoinedPlan"]


@dataclass(frozen=True)
class JoinedPlan:
    """A plan as reports see it (`solver.plan.views.PlanView`), of all entry points of a deployment."""

    deployment: Deployment

    @property
    def graph(self) -> str:
        return self.deployment.name

    @property
    def graph_digest(self) -> str:
        """The digests of all graphs, in the order of the entry points."""
        return "+".join(entry_point.plan.graph_digest for entry_point in self.deployment.entry_points)

    @cached_property
    def options(self) -> PlanOptions:
        """The options that all entry points have in common; others have their default.

        `parallelism` is the largest, so that levels are called levels if one entry point has any.
        """
        first, *others = (entry_point.plan.options for entry_point in self.deployment.entry_points)
        plain = PlanOptions()
        differing = {
            field.name: getattr(plain, field.name)
            for field in fields(PlanOptions)
            if any(getattr(other, field.name) != getattr(first, field.name) for other in others)
        }
        most = max(options.parallelism for options in (first, *others))
        return replace(first, **differing | {"parallelism": most})

    @property
    def replacements(self) -> tuple[Replacement, ...]:
        return ()

    @property
    def records(self) -> tuple[Record, ...]:
        """None: passes record what they did to one program."""
        return ()

    @property
    def deterministic(self) -> bool:
        return all(entry_point.plan.deterministic for entry_point in self.deployment.entry_points)

    @property
    def digest(self) -> str:
        return self.deployment.digest

    @property
    def arena_bytes(self) -> int:
        return self.deployment.arena_bytes

    @property
    def lower_bound(self) -> int:
        return self.deployment.lower_bound

    @property
    def gap_bytes(self) -> int:
        return self.deployment.gap_bytes

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first level of each entry point, and behind them the number of all levels."""
        durations = (entry_point.plan.duration for entry_point in self.deployment.entry_points)
        return tuple(accumulate(durations, initial=0))

    @property
    def duration(self) -> int:
        return self.starts[-1]

    @property
    def times(self) -> tuple[int, ...]:
        return tuple(step.level for step in self.steps)

    @cached_property
    def persistent(self) -> frozenset[str]:
        """The names of the persistent values, as the buffers here have them."""
        return frozenset(row.name for row in self.deployment.persistent)

    @cached_property
    def names(self) -> tuple[Mapping[str, str], ...]:
        """For each entry point the name here of each of its values, by label. Linear."""
        taken = set(self.persistent)
        names: list[Mapping[str, str]] = []
        for k, entry_point in enumerate(self.deployment.entry_points):
            values = entry_point.plan.program.values
            own = {values[row.values[k]].label: row.name for row in self.deployment.persistent}
            for value in values:
                if value.label not in own:
                    own[value.label] = _unused(f"{entry_point.name}/{value.label}", taken)
                    taken.add(own[value.label])
            names.append(own)
        return tuple(names)

    @cached_property
    def steps(self) -> tuple[PlannedStep, ...]:
        return tuple(
            replace(
                step,
                id=f"{entry_point.name}/{step.id}",
                uses=tuple(names[label] for label in step.uses),
                defs=tuple(names[label] for label in step.defs),
                scratch=tuple(names[label] for label in step.scratch),
                level=step.level + start,
            )
            for entry_point, names, start in self._parts()
            for step in entry_point.plan.steps
        )

    def level_ids(self) -> tuple[str, ...]:
        """The steps of each level. Linear."""
        return level_ids(self.steps, self.duration)

    @cached_property
    def arenas(self) -> tuple[Arena, ...]:
        """The spaces, each with its persistent buffers and those of every entry point. O(n log n)."""
        plans = [entry_point.plan for entry_point in self.deployment.entry_points]
        return tuple(
            Arena(arenas[0].name, max(arena.size for arena in arenas), self._certificate(arenas),
                  tuple(self._buffers(arenas)))
            for arenas in zip(*(plan.arenas for plan in plans), strict=True)
        )  # fmt: skip

    def buffers(self) -> Iterator[tuple[Arena, PlannedBuffer]]:
        for arena in self.arenas:
            for buffer in arena.buffers:
                yield arena, buffer

    # ------------------------------------------------------------------------------------------ parts

    def _parts(self) -> Iterator[tuple[EntryPoint, Mapping[str, str], int]]:
        """Each entry point, the names of its values, and its first level."""
        return zip(self.deployment.entry_points, self.names, self.starts[:-1], strict=True)

    def _certificate(self, arenas: Sequence[Arena]) -> Certificate:
        """The certificate of the entry point with the largest bound, on the levels here."""
        k = max(range(len(arenas)), key=lambda k: (arenas[k].certificate.lower_bound, -k))
        certificate, start = arenas[k].certificate, self.starts[k]
        if certificate.lower_bound < max(arena.size for arena in arenas):
            certificate = replace(certificate, status=Status.FEASIBLE, proof=None)
        witness = certificate.witness_step
        return replace(certificate, witness_step=None if witness is None else witness + start)

    def _buffers(self, arenas: Sequence[Arena]) -> Iterator[PlannedBuffer]:
        whole = Lifespan(0, max(self.duration, 1))
        persistent: dict[str, PlannedBuffer] = {}
        transient: list[PlannedBuffer] = []
        for arena, (_, names, start) in zip(arenas, self._parts(), strict=True):
            for buffer in arena.buffers:
                moved = _renamed(buffer, names, start)
                if moved.id not in self.persistent:
                    transient.append(moved)
                    continue
                first = persistent.get(moved.id)
                # What shares the bytes of a persistent value is another value in each entry point.
                first_value, *sharing = moved.values
                values = (replace(first_value, lifespan=whole), *sharing)
                if first is not None:
                    values = (*first.values, *sharing)
                persistent[moved.id] = replace(
                    first or moved, lifespan=whole, aliases=values if len(values) > 1 else ()
                )
        # In the order of the deployment, which is that of the addresses.
        for row in self.deployment.persistent:
            if row.name in persistent:
                yield persistent[row.name]
        yield from transient


def _renamed(buffer: PlannedBuffer, names: Mapping[str, str], start: int) -> PlannedBuffer:
    """The buffer with the names of the joined plan, its life `start` levels later."""
    return replace(
        buffer,
        id=names[buffer.id],
        lifespan=_later(buffer.lifespan, start),
        lent=tuple(_later(span, start) for span in buffer.lent),
        aliases=tuple(_value(value, names, start) for value in buffer.aliases),
    )


def _value(value: AliasedValue, names: Mapping[str, str], start: int) -> AliasedValue:
    source = None if value.source is None else names[value.source]
    return replace(value, id=names[value.id], source=source, lifespan=_later(value.lifespan, start))


def _later(span: Lifespan, start: int) -> Lifespan:
    return Lifespan(span.start + start, span.end + start)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"{name}'"
    return name
