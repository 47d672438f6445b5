"""Facts about the entry points of a deployment, and the plan of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.errors import OptionsError
from solver.layout import Proof
from solver.names import counted
from solver.plan.deployment import Deployment, EntryPoint, Purpose
from solver.plan.plan import Plan
from solver.plan.views import PlanView
from solver.program import EntryKind

__all__ = [
    "EntryPointReport",
    "PersistentRow",
    "deployment_notes",
    "entry_point_reports",
    "one_plan",
    "persistent_rows",
    "plan_of",
    "plans_to_compare",
]


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
        proof=_weakest([certificate.proof for certificate in plan.certificates]),
        steps=len(plan.program.steps),
        decides=plan.arena_bytes == deployment.arena_bytes,
        added_bytes=deployment.arena_bytes - _bytes_without(deployment, k),
    )


def _weakest(proofs: list[Proof | None]) -> Proof | None:
    if None in proofs:
        return None
    return Proof.SOLVER if Proof.SOLVER in proofs else Proof.MAX_LOAD


def _persistent_bytes(deployment: Deployment, chosen: Sequence[int]) -> int:
    """The reserved bytes of the persistent values that one of these entry points, by number, uses itself."""
    size = deployment.reserved_bytes
    held = [_held(deployment.entry_points[k]) for k in chosen]
    return sum(
        size.get(row.values[0], 0)
        for row in deployment.persistent
        if any(row.values[k] not in values for k, values in zip(chosen, held, strict=True))
    )


def _held(entry_point: EntryPoint) -> frozenset[int]:
    program = entry_point.plan.program
    return frozenset(entry.value for entry in program.entry if entry.kind is EntryKind.HELD)


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
