"""Answers as frozen dataclasses. `document` is the whole answer, as JSON values.

`notes` are sentences on the import of a model that was sent: which tensors are not trained, and what else its
plan does not show. A graph has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

__all__ = [
    "ArenaResult",
    "LayoutResult",
    "PlanResult",
    "RemedyResult",
    "SavedPlan",
    "StepResult",
    "TradeOffPointResult",
    "TradeOffResult",
    "ValidationResult",
    "VerdictResult",
    "ViolationResult",
]


@dataclass(frozen=True, slots=True)
class ArenaResult:
    """One arena. `proof` is ``max-load``, ``solver`` or None; sizes are bytes."""

    name: str
    bytes: int
    lower_bound: int
    status: str
    proof: str | None
    solver: str

    @classmethod
    def of(cls, row: Sequence[Any]) -> ArenaResult:
        """Of a space of a plan document: name, alignment, whether kernels reach it, bytes, certificate."""
        name, _, _, size, certificate = row
        return cls(
            name=name,
            bytes=size,
            lower_bound=certificate["lower_bound"],
            status=certificate["status"],
            proof=certificate.get("proof"),
            solver=certificate["solver"],
        )

    @classmethod
    def largest(cls, arenas: Sequence[ArenaResult]) -> ArenaResult:
        """The arena in which each of several programs runs: as large as the largest, and so is its bound."""
        size, bounding = (
            max(arena.bytes for arena in arenas),
            max(arenas, key=lambda arena: arena.lower_bound),
        )
        if size == bounding.bytes:
            return bounding
        return replace(bounding, bytes=size, status="feasible", proof=None)


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan. Totals are over all arenas, `status` and `proof` are the weakest of them.

    `document` is the plan itself, ready for `validate` or for a file; `cached` says that the service
    had it already. A plan with `entry_points` has the plan of each by name; its arenas are as large as the
    largest of theirs.
    """

    digest: str
    arena_bytes: int
    lower_bound: int
    status: str
    proof: str | None
    deterministic: bool
    arenas: tuple[ArenaResult, ...]
    document: Mapping[str, Any] = field(repr=False)
    cached: bool = False
    notes: tuple[str, ...] = ()
    entry_points: Mapping[str, PlanResult] = field(default_factory=dict, repr=False)

    @property
    def gap(self) -> float:
        """``arena_bytes / lower_bound - 1``: 0.0 for an optimum proved by the bound."""
        return self.arena_bytes / self.lower_bound - 1.0 if self.lower_bound else 0.0

    @property
    def offsets(self) -> Mapping[str, tuple[str, int]]:
        """Where each value lies: its arena and its first byte there, by label. Linear.

        Of a plan with entry points the persistent values alone, by name; each entry point has all of its own.
        """
        if self.entry_points:
            first = next(iter(self.entry_points.values()))
            values = first.document["values"]
            return {
                name: (self.arenas[values[numbers[0]][4]].name, values[numbers[0]][5])
                for name, numbers in self.document["persistent"]
            }
        origins, others = self.document["origins"], dict(self.document["labels"])
        return {
            others.get(number, origins[origin] + suffix): (self.arenas[space].name, offset)
            for number, (suffix, _, _, origin, space, offset) in enumerate(self.document["values"])
        }

    @classmethod
    def of(
        cls, document: Mapping[str, Any], notes: tuple[str, ...] = (), *, cached: bool = False
    ) -> PlanResult:
        entry_points = {row["name"]: cls.of(row["plan"]) for row in document.get("entry_points", ())}
        if entry_points:
            columns = zip(*(plan.arenas for plan in entry_points.values()), strict=True)
            arenas = tuple(ArenaResult.largest(column) for column in columns)
            deterministic = all(plan.deterministic for plan in entry_points.values())
        else:
            arenas = tuple(ArenaResult.of(space) for space in document["spaces"])
            deterministic = document["deterministic"]
        return cls(
            digest=document["digest"],
            arena_bytes=sum(arena.bytes for arena in arenas),
            lower_bound=sum(arena.lower_bound for arena in arenas),
            status="optimal" if all(arena.status == "optimal" for arena in arenas) else "feasible",
            proof=_weakest([arena.proof for arena in arenas]),
            deterministic=deterministic,
            arenas=arenas,
            document=document,
            cached=cached,
            notes=notes,
            entry_points=entry_points,
        )


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan of `size` bytes in the file `path`; `cached` and `notes` as of `PlanResult`."""

    digest: str
    path: Path
    size: int
    cached: bool
    notes: tuple[str, ...] = ()


def _weakest(proofs: list[str | None]) -> str | None:
    if None in proofs:
        return None
    return "solver" if "solver" in proofs else "max-load"


@dataclass(frozen=True, slots=True)
class TradeOffPointResult:
    """`peak` bytes for `extra` of the step's time; at least `bound` of it is proved. Shares, as 0.05."""

    peak: int
    extra: float
    bound: float


@dataclass(frozen=True, slots=True)
class TradeOffResult:
    """Points with falling peaks and rising costs; no schedule takes less than `floor` bytes.

    `complete` is false where wall time ended the search; `document` is the whole curve.
    """

    floor: int
    points: tuple[TradeOffPointResult, ...]
    complete: bool
    document: Mapping[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> TradeOffResult:
        step = document["step_nanoseconds"]
        points = tuple(
            TradeOffPointResult(p["peak"], p["extra"] / step, p["bound"] / step) for p in document["points"]
        )
        return cls(document["floor"], points, document["complete"], document, notes)


@dataclass(frozen=True, slots=True)
class RemedyResult:
    """Measures with which an arena of `arena_bytes` was planned, for `extra` of an update's time (0.05: 5 %).

    `changes` is ``nothing``, ``rounding`` or ``training``; `options` is the whole options
    document to plan it with, and `graph_fields` are those of the graph document that change.
    """

    measures: tuple[str, ...]
    changes: str
    arena_bytes: int
    extra: float
    options: Mapping[str, Any]
    graph_fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VerdictResult:
    """`status` is ``impossible``, which is proved, ``open`` or ``plan``; sizes are bytes.

    `extra` is the cost of the plan as a share of the time of an update, None without a plan; `remedies`
    stand in the order of their worth; `document` is the whole verdict.
    """

    status: str
    capacity: int
    peak: int
    floor: int
    smallest: int
    extra: float | None
    remedies: tuple[RemedyResult, ...]
    complete: bool
    document: Mapping[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> VerdictResult:
        update = document["update_nanoseconds"]
        return cls(
            status=document["status"],
            capacity=document["capacity"],
            peak=document["peak"],
            floor=document["floor"],
            smallest=document["smallest"],
            extra=None if document["extra"] is None else document["extra"] / update,
            remedies=tuple(
                RemedyResult(
                    tuple(one["measures"]),
                    one["changes"],
                    one["arena_bytes"],
                    one["extra"] / update,
                    one["options"],
                    one["graph_fields"],
                )
                for one in document["remedies"]
            ),
            complete=document["complete"],
            document=document,
            notes=notes,
        )


@dataclass(frozen=True, slots=True)
class LayoutResult:
    """Buffers in one arena of `peak` bytes: `offsets` by the buffer's id.

    `proof` is ``max-load`` (as much is live at `witness_step`), ``solver`` or None; `document` is the
    layout itself; `cached` says that the service had it already.
    """

    digest: str
    peak: int
    lower_bound: int
    status: str
    proof: str | None
    witness_step: int | None
    solver: str
    deterministic: bool
    offsets: Mapping[str, int] = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    cached: bool = False

    @property
    def gap(self) -> float:
        """``peak / lower_bound - 1``: 0.0 for an optimum proved by the bound."""
        return self.peak / self.lower_bound - 1.0 if self.lower_bound else 0.0

    @classmethod
    def of(cls, document: Mapping[str, Any], *, cached: bool = False) -> LayoutResult:
        certificate = document["certificate"]
        return cls(
            digest=document["digest"],
            peak=document["peak"],
            lower_bound=certificate["lower_bound"],
            status=certificate["status"],
            proof=certificate.get("proof"),
            witness_step=certificate.get("witness_step"),
            solver=certificate["solver"],
            deterministic=document["deterministic"],
            offsets={buffer["id"]: buffer["offset"] for buffer in document["buffers"]},
            document=document,
            cached=cached,
        )


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step: the loss in the arena, and that of the run without sharing; None in an inference."""

    step: int
    loss: float | None
    reference_loss: float | None
    identical: bool
    differing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViolationResult:
    """A rule that the plan breaks."""

    rule: str
    buffers: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """`identical`: no rule is broken and every tensor agreed bit for bit after each step."""

    identical: bool
    compared: int
    arena_bytes: int
    steps: tuple[StepResult, ...]
    violations: tuple[ViolationResult, ...]
    document: Mapping[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any], notes: tuple[str, ...] = ()) -> ValidationResult:
        return cls(
            identical=document["identical"],
            compared=document["compared"],
            arena_bytes=document["arena_bytes"],
            steps=tuple(
                StepResult(
                    one["step"], one["loss"], one["reference_loss"], one["identical"], tuple(one["differing"])
                )
                for one in document["steps"]
            ),
            violations=tuple(
                ViolationResult(one["rule"], tuple(one["buffers"]), one["detail"])
                for one in document["violations"]
            ),
            document=document,
            notes=notes,
        )
