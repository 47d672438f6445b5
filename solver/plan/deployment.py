"""Plans of several programs that run in the same memory, one at a time: the entry points of a deployment.

    train      [ weights | optimizer variables | activations, gradients, scratch ............ ]
    infer      [ weights | (held)              | activations, scratch ..... ]
    bytes      0 ─── persistent values ────────┴── each entry point's own values overlay those of others

Each entry point has an ordinary plan, whose program also holds what only the others keep from one run to the
next. A persistent value lies at the same place in all plans, and each program leaves it as it is or as its
reference does. So every plan is proved by itself, and with that every sequence of runs.

In this order: entry points as they are asked for, those of a deployment, the choice of one of them, facts
about them, and all of them as one plan.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, zip_longest
from typing import Final, Literal, cast, get_args

from solver.errors import OptionsError
from solver.layout import Certificate, Lifespan, Proof, Status
from solver.names import counted
from solver.plan.options import PlanOptions
from solver.plan.plan import Plan
from solver.plan.views import (
    AliasedValue,
    Arena,
    PlannedBuffer,
    PlannedStep,
    PlanView,
    level_ids,
    memory_maps,
)
from solver.program import EntryKind, Kind, Phase, Record, Replacement

__all__ = [
    "MAX_ENTRIES",
    "MAX_TIES",
    "PURPOSES",
    "Deployment",
    "EntryPoint",
    "EntryPointReport",
    "EntrySpec",
    "JoinedPlan",
    "Persistent",
    "PersistentRow",
    "Purpose",
    "Tie",
    "check_name",
    "deployment_notes",
    "entry_point_reports",
    "one_plan",
    "persistent_rows",
    "plan_of",
    "plans_to_compare",
    "purpose_of_plan",
    "read_entry",
    "read_tie",
]

#: What a run of an entry point is for: a training step; outputs; a loss without training; or a program whose
#: steps are no operators.
Purpose = Literal["train", "infer", "evaluate", "run"]

PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)

#: Entry points of one deployment: far more than devices have, and few enough to be planned one by one.
MAX_ENTRIES: Final = 1024

#: Ties of one deployment: each looks at the names of all persistent values.
MAX_TIES: Final = 1024

#: Characters of a name.
_MAX_NAME: Final = 1024

#: A batch, of at most as many digits as 2**63 - 1 has.
_BATCH: Final = re.compile(r"(?=0*[1-9])[0-9]{1,19}")

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class EntrySpec:
    """An entry point as it is asked for. Without a name it is called as its purpose is, behind the name of
    its model where there are several; without a batch it takes that of the options.
    """

    purpose: Purpose
    model: str = ""
    batch: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Tie:
    """Values whose names match `right` are those whose names match `left`, with the same text for each ``*``.

    Values that the planner derives, as optimizer variables, have an ``@`` in their names; none of them is
    tied: each model that trains has its own.
    """

    left: str
    right: str

    @property
    def text(self) -> str:
        return f"{self.left}={self.right}"


def read_entry(text: str) -> EntrySpec:
    """The entry point that a text names: ``train``, ``infer:batch=1,name=camera``, ``encoder.infer``.

    Raises OptionsError for another text.
    """
    head, *words = text.replace(":", ",", 1).split(",")
    model, _, purpose = head.rpartition(".")
    pairs = [word.partition("=") for word in words]
    fields = {key: value for key, _, value in pairs if value}
    batch, name = fields.get("batch"), fields.get("name", "")
    wrong = (
        purpose not in PURPOSES
        or not fields.keys() <= {"batch", "name"}
        or len(fields) < len(words)  # an empty word, or one that comes twice
        or (batch is not None and not _BATCH.fullmatch(batch))
    )
    if wrong:
        raise OptionsError(
            f"{text!r:.200} is no entry point.",
            remedy=f"Write one of {', '.join(PURPOSES)}, with a batch or a name if it needs one, as"
            " infer:batch=1,name=camera; of several models its name in front, as encoder.infer.",
            path=("entries",),
        )
    return EntrySpec(cast("Purpose", purpose), model, int(batch) if batch else None, name)


def read_tie(text: str) -> Tie:
    """The tie that a text names, ``a.encoder.*=b.encoder.*``. Raises OptionsError for another text."""
    left, equals, right = text.partition("=")
    if not (left and equals and right) or "=" in right:
        raise OptionsError(
            f"{text!r:.200} ties nothing.",
            remedy="Write two names of persistent values, as a.encoder.*=b.encoder.*.",
            path=("ties",),
        )
    return Tie(left, right)


def check_name(name: str, of: str, path: tuple[str | int, ...]) -> None:
    """Raises OptionsError for a name that documents and tables cannot show; `of` says what it names."""
    if not name or len(name) > _MAX_NAME or _UNPRINTABLE.search(name):
        raise OptionsError(
            f"{name!r:.80} is no name of {of}.",
            remedy=f"Give 1 to {_MAX_NAME:,} characters without control characters.",
            path=path,
        )


def purpose_of_plan(plan: Plan) -> Purpose:
    """The purpose of a run of the plan's program, as its steps and values show it. Linear."""
    program = plan.program
    phases = {step.phase for step in program.steps}
    if Phase.EXPLICIT in phases:
        return "run"
    if phases != {Phase.FORWARD}:
        return "train"
    return "evaluate" if any(value.kind is Kind.LOSS for value in program.values) else "infer"


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One program of a deployment, by the name under which it is called. `model` is the network that it runs:
    programs of one model have the same persistent values, by name.
    """

    name: str
    model: str
    purpose: Purpose
    plan: Plan


@dataclass(frozen=True, slots=True)
class Persistent:
    """A value that stays from one run to the next, and its number in the program of each entry point.

    Its first contents are those that the first entry point has which does not hold it for others.
    """

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Deployment:
    """Entry points that share their memory. `digest` is SHA-256, in hexadecimal, over the canonical document
    without the digest itself.
    """

    name: str
    entry_points: tuple[EntryPoint, ...]
    persistent: tuple[Persistent, ...]
    producer: str = ""
    digest: str = ""

    def __repr__(self) -> str:
        """A line for the arena, one for each entry point, and one for the proof."""
        lines = [
            f"<Deployment of {self.name!r}: {self.arena_bytes:,} bytes, {self.persistent_bytes:,} persistent,"
        ]
        for entry_point in self.entry_points:
            plan = entry_point.plan
            lines.append(
                f" {entry_point.name}: {plan.arena_bytes:,} bytes, lower bound {plan.lower_bound:,},"
            )
        if self.gap_bytes:
            proof = f"not proved to be the smallest: {self.gap_bytes:,} bytes above the bound"
        else:
            proof = "proved to be the smallest for these steps"
        return "\n".join([*lines, f" {proof}>"])

    def _repr_html_(self) -> str:
        """The same with the memory map of each arena, in which every entry point runs once, for notebooks."""
        return f"<pre>{html.escape(repr(self))}</pre>\n" + "\n".join(memory_maps(JoinedPlan(self)))

    def __getitem__(self, name: str) -> EntryPoint:
        """The entry point of this name. Raises KeyError."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, EntryPoint]:
        return {entry_point.name: entry_point for entry_point in self.entry_points}

    def name_of(self, model: str, label: str) -> str:
        """The name of a value of a model: its label, behind the name of the model where there are several."""
        return f"{model}.{label}" if self._has_several_models else label

    @cached_property
    def _has_several_models(self) -> bool:
        return len({entry_point.model for entry_point in self.entry_points}) > 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each space: those of the largest entry point."""
        return tuple(map(max, zip_longest(*(e.plan.sizes for e in self.entry_points), fillvalue=0)))

    @property
    def arena_bytes(self) -> int:
        """Total size of all spaces, in bytes."""
        return sum(self.sizes)

    @property
    def lower_bound(self) -> int:
        """Bytes that every arena has in which all entry points run: the largest bound of one of them."""
        bounds = ([c.lower_bound for c in e.plan.certificates] for e in self.entry_points)
        return sum(map(max, zip_longest(*bounds, fillvalue=0)))

    @property
    def gap_bytes(self) -> int:
        """Bytes beyond the lower bound; 0 proves that nothing smaller exists."""
        return self.arena_bytes - self.lower_bound

    @property
    def persistent_bytes(self) -> int:
        """Bytes of persistent values, as they are reserved."""
        size = self.reserved_bytes
        return sum(size.get(persistent.values[0], 0) for persistent in self.persistent)

    @cached_property
    def reserved_bytes(self) -> dict[int, int]:
        """The bytes that are reserved for a persistent value, by its number in the first entry point."""
        return {region.members[0]: region.size for region in self.entry_points[0].plan.regions}


def plan_of(planned: Plan | Deployment, entry_point: str | None = None) -> Plan | Deployment:
    """The plan of the entry point of this name; without a name everything that was planned.

    Raises OptionsError for a name that is not there, and for a plan of one program, which has no names.
    """
    if entry_point is None:
        return planned
    if not isinstance(planned, Deployment):
        raise OptionsError(
            f"The plan of {planned.graph!r:.80} has no entry points: it is for one program.",
            remedy="Leave out --entry-point.",
            path=("entry_point",),
        )
    return _named(planned, entry_point)


def _named(deployment: Deployment, entry_point: str) -> Plan:
    for one in deployment.entry_points:
        if one.name == entry_point:
            return one.plan
    raise OptionsError(
        f"There is no entry point {entry_point!r:.80}.",
        remedy=f"Choose from {_names(deployment)}.",
        path=("entry_point",),
    )


def one_plan(planned: Plan | Deployment, entry_point: str | None = None) -> Plan:
    """The same where one program is asked for. Raises OptionsError for a deployment without a name, too."""
    chosen = plan_of(planned, entry_point)
    if not isinstance(chosen, Deployment):
        return chosen
    raise OptionsError(
        f"The plan of {chosen.name!r:.80} has {counted(len(chosen.entry_points), 'entry point')}, and this is"
        " for one program.",
        remedy=f"Add --entry-point {chosen.entry_points[0].name}, or another of {_names(chosen)}.",
        path=("entry_point",),
    )


def plans_to_compare(
    old: PlanView | Deployment, new: PlanView | Deployment, entry_point: str | None = None
) -> tuple[PlanView, PlanView] | tuple[Deployment, Deployment]:
    """Two plans of one program, or two deployments; of a deployment the entry point of this name, if any.

    Raises OptionsError where only one of the two has entry points and none is named, where none has and one
    is named, and for a name that is not there.
    """
    if isinstance(old, Deployment) and isinstance(new, Deployment) and entry_point is None:
        return old, new
    deployments = [one for one in (old, new) if isinstance(one, Deployment)]
    if deployments and entry_point is None:
        raise OptionsError(
            f"One plan is of one program, and the other has the entry points {_names(deployments[0])}.",
            remedy=f"Add --entry-point {deployments[0].entry_points[0].name} to compare that one.",
            path=("entry_point",),
        )
    if entry_point is not None and not deployments:
        raise OptionsError(
            "The plans have no entry points: each is for one program.",
            remedy="Leave out --entry-point.",
            path=("entry_point",),
        )
    first, second = (
        _named(one, entry_point or "") if isinstance(one, Deployment) else one for one in (old, new)
    )
    return first, second


def _names(deployment: Deployment) -> str:
    return ", ".join(entry_point.name for entry_point in deployment.entry_points)


@dataclass(frozen=True, slots=True)
class EntryPointReport:
    """One entry point of a deployment. Sizes are bytes.

    Its `arena_bytes` are persistent values that it uses, those that it holds for others, and what lives in
    its own runs alone (`transient_bytes`). `decides` says that the arena is as large as this entry point
    needs; `added_bytes` is by how much the arena would be smaller without it. `proof` is None where a gap
    is left.
    """

    name: str
    model: str
    purpose: Purpose
    batch: int | None
    arena_bytes: int
    persistent_bytes: int
    held_bytes: int
    transient_bytes: int
    lower_bound: int
    gap_bytes: int
    proof: Proof | None
    steps: int
    decides: bool
    added_bytes: int


def entry_point_reports(deployment: Deployment) -> tuple[EntryPointReport, ...]:
    """The facts of each entry point, in the order of the deployment. Linear in the values of each program."""
    return tuple(_report(deployment, k) for k in range(len(deployment.entry_points)))


def _report(deployment: Deployment, k: int) -> EntryPointReport:
    entry_point = deployment.entry_points[k]
    plan = entry_point.plan
    kept = _persistent_bytes(deployment, [k])
    proofs = {certificate.proof for certificate in plan.certificates}
    weakest = Proof.SOLVER if Proof.SOLVER in proofs else Proof.MAX_LOAD
    return EntryPointReport(
        name=entry_point.name,
        model=entry_point.model,
        purpose=entry_point.purpose,
        batch=plan.options.batch,
        arena_bytes=plan.arena_bytes,
        persistent_bytes=kept,
        held_bytes=deployment.persistent_bytes - kept,
        transient_bytes=plan.arena_bytes - deployment.persistent_bytes,
        lower_bound=plan.lower_bound,
        gap_bytes=plan.gap_bytes,
        proof=None if None in proofs else weakest,
        steps=len(plan.program.steps),
        decides=plan.arena_bytes == deployment.arena_bytes,
        added_bytes=deployment.arena_bytes - _bytes_without(deployment, k),
    )


def _persistent_bytes(deployment: Deployment, chosen: Sequence[int]) -> int:
    """The reserved bytes of the persistent values that one of these entry points, by number, uses itself."""
    size = deployment.reserved_bytes
    entries = [deployment.entry_points[k].plan.program.entry for k in chosen]
    held = [{entry.value for entry in row if entry.kind is EntryKind.HELD} for row in entries]
    return sum(
        size.get(row.values[0], 0)
        for row in deployment.persistent
        if any(row.values[k] not in values for k, values in zip(chosen, held, strict=True))
    )


def _bytes_without(deployment: Deployment, k: int) -> int:
    """The arena that the other entry points need, with their transient values where they lie."""
    others = [j for j in range(len(deployment.entry_points)) if j != k]
    if not others:
        return 0
    columns = zip(*(deployment.entry_points[j].plan.sizes for j in others), strict=True)
    sizes: list[int] = [max(column) for column in columns]
    return sum(sizes) - deployment.persistent_bytes + _persistent_bytes(deployment, others)


def deployment_notes(deployment: Deployment) -> Iterator[str]:
    """Sentences on what the entry points have in common, and on which of them decides the arena."""
    yield (
        f"Persistent: {len(deployment.persistent):,} values take {deployment.persistent_bytes:,} bytes, at"
        " the same place for every entry point."
    )
    if len(deployment.entry_points) < 2:
        return
    parts = ", ".join(_deciding(deployment))
    proof = (
        f"{deployment.gap_bytes:,} bytes above the lower bound {deployment.lower_bound:,}"
        if deployment.gap_bytes
        else "nothing smaller exists"
    )
    yield (f"{parts}: {proof}. An entry point adds the bytes by which the arena would be smaller without it.")


def _deciding(deployment: Deployment) -> Iterator[str]:
    """For each memory that is taken the entry points that need all of it."""
    spaces = deployment.entry_points[0].plan.program.spaces
    for k, (space, size) in enumerate(zip(spaces, deployment.sizes, strict=False)):
        *others, last = [one.name for one in deployment.entry_points if one.plan.sizes[k] == size]
        names = f"{', '.join(others)} and {last} decide" if others else f"{last} decides"
        if size or len(spaces) == 1:
            yield f"{names} the size of {space.name if len(spaces) > 1 else 'the arena'}"


@dataclass(frozen=True, slots=True)
class PersistentRow:
    """Where a persistent value lies: `nbytes` (as needed) from `offset` of the `space`, in every plan."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    space: str
    offset: int
    nbytes: int


def persistent_rows(deployment: Deployment) -> tuple[PersistentRow, ...]:
    """The places of the persistent values, in the order of the deployment. Linear."""
    plan = deployment.entry_points[0].plan
    spaces, rows = plan.program.spaces, []
    for persistent in deployment.persistent:
        number = persistent.values[0]
        value = plan.program.values[number]
        rows.append(
            PersistentRow(
                persistent.name,
                value.kind.value,
                value.type.dtype.value,
                value.type.shape,
                spaces[value.space].name,
                plan.offsets[number],
                value.type.nbytes,
            )
        )
    return tuple(rows)


@dataclass(frozen=True)
class JoinedPlan:
    """The plans of a deployment as one (`PlanView`): the entry points run one after the other, each once.

    persistent  ████████████████████████████   live all the time, listed once
    train       ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
    infer                       ▒▒▒▒▒▒▒▒▒▒▒▒
    levels      0 ───────────── 40 ──────── 60

    Names of steps and of all other values begin with the name of their entry point. Reports, pictures and
    exporters that take a plan take this one as well.
    """

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
                    name = f"{entry_point.name}/{value.label}"
                    while name in taken:
                        name += "'"
                    own[value.label] = name
                    taken.add(name)
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

    def later(span: Lifespan) -> Lifespan:
        return Lifespan(span.start + start, span.end + start)

    def renamed(value: AliasedValue) -> AliasedValue:
        source = None if value.source is None else names[value.source]
        return replace(value, id=names[value.id], source=source, lifespan=later(value.lifespan))

    return replace(
        buffer,
        id=names[buffer.id],
        lifespan=later(buffer.lifespan),
        lent=tuple(map(later, buffer.lent)),
        aliases=tuple(map(renamed, buffer.aliases)),
    )
