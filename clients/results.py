"""Answers as frozen dataclasses, and how they are read. `document` is the whole answer, as JSON values.

`notes` are sentences on the import of a model that was sent: which tensors are not trained, and what else its
plan does not show. A graph has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import httpx

from clients.connections import address, document_of
from clients.errors import ProblemError, UnexpectedAnswer, problem_of

T = TypeVar("T")


class Result:
    """The contents of an answer. Subclasses are dataclasses whose slots are the names of their fields."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any], notes: tuple[str, ...] = (), cached: bool = False) -> Self:
        """Of a document; KeyError, TypeError, ValueError or IndexError for one of another form."""
        facts = {**document, **cls._parts(document), "document": document, "notes": notes, "cached": cached}
        values = {name: facts[name] for name in cls.__slots__}
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})

    @classmethod
    def _parts(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that are no members of the document, or have another form there."""
        return {}


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
        bound, status, solver = (certificate[name] for name in ("lower_bound", "status", "solver"))
        return cls(name, size, bound, status, certificate.get("proof"), solver)

    @classmethod
    def largest(cls, arenas: Sequence[ArenaResult]) -> ArenaResult:
        """The arena in which each of several programs runs: as large as the largest, and so is its bound."""
        size = max(arena.bytes for arena in arenas)
        bounding = max(arenas, key=lambda arena: arena.lower_bound)
        if size == bounding.bytes:
            return bounding
        return replace(bounding, bytes=size, status="feasible", proof=None)


@dataclass(frozen=True, slots=True)
class PlanResult(Result):
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
    def _parts(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        entry_points = {row["name"]: cls.of(row["plan"]) for row in document.get("entry_points", ())}
        if entry_points:
            columns = zip(*(plan.arenas for plan in entry_points.values()), strict=True)
            arenas = tuple(ArenaResult.largest(column) for column in columns)
            deterministic = all(plan.deterministic for plan in entry_points.values())
        else:
            arenas = tuple(ArenaResult.of(space) for space in document["spaces"])
            deterministic = document["deterministic"]
        proofs = {arena.proof for arena in arenas}
        return {
            "arena_bytes": sum(arena.bytes for arena in arenas),
            "lower_bound": sum(arena.lower_bound for arena in arenas),
            "status": "optimal" if all(arena.status == "optimal" for arena in arenas) else "feasible",
            "proof": None if None in proofs else "solver" if "solver" in proofs else "max-load",
            "deterministic": deterministic,
            "arenas": arenas,
            "entry_points": entry_points,
        }


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan of `size` bytes in the file `path`; `cached` and `notes` as of `PlanResult`."""

    digest: str
    path: Path
    size: int
    cached: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TradeOffPointResult:
    """`peak` bytes for `extra` of the step's time; at least `bound` of it is proved. Shares, as 0.05."""

    peak: int
    extra: float
    bound: float


@dataclass(frozen=True, slots=True)
class TradeOffResult(Result):
    """Points with falling peaks and rising costs; no schedule takes less than `floor` bytes.

    `complete` is false where wall time ended the search; `document` is the whole curve.
    """

    floor: int
    points: tuple[TradeOffPointResult, ...]
    complete: bool
    document: Mapping[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    @classmethod
    def _parts(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        step = document["step_nanoseconds"]
        points = document["points"]
        return {
            "points": tuple(
                TradeOffPointResult(p["peak"], p["extra"] / step, p["bound"] / step) for p in points
            )
        }


@dataclass(frozen=True, slots=True)
class RemedyResult(Result):
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
class VerdictResult(Result):
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
    def _parts(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        update, extra = document["update_nanoseconds"], document["extra"]
        remedies = document["remedies"]
        return {
            "extra": None if extra is None else extra / update,
            "remedies": tuple(RemedyResult.of({**row, "extra": row["extra"] / update}) for row in remedies),
        }


@dataclass(frozen=True, slots=True)
class LayoutResult(Result):
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
    def _parts(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        offsets = {buffer["id"]: buffer["offset"] for buffer in document["buffers"]}
        return {"proof": None, "witness_step": None, **document["certificate"], "offsets": offsets}


@dataclass(frozen=True, slots=True)
class StepResult(Result):
    """One step: the loss in the arena, and that of the run without sharing; None in an inference."""

    step: int
    loss: float | None
    reference_loss: float | None
    identical: bool
    differing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViolationResult(Result):
    """A rule that the plan breaks."""

    rule: str
    buffers: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class ValidationResult(Result):
    """`identical`: no rule is broken and every tensor agreed bit for bit after each step."""

    identical: bool
    compared: int
    arena_bytes: int
    steps: tuple[StepResult, ...]
    violations: tuple[ViolationResult, ...]
    document: Mapping[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    @classmethod
    def _parts(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "steps": tuple(map(StepResult.of, document["steps"])),
            "violations": tuple(map(ViolationResult.of, document["violations"])),
        }


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is, as far as the service can tell: bytes, and seconds since its work began.

    While steps are looked for that run again, `extra_nanoseconds` is what they cost so far,
    `bound_nanoseconds` what they cost at least, of an iteration of `step_nanoseconds`; paging moves
    `moved_bytes`.
    """

    stage: str
    seconds: float
    done: float | None = None
    peak_bytes: int | None = None
    bound_bytes: int | None = None
    extra_nanoseconds: int | None = None
    bound_nanoseconds: int | None = None
    step_nanoseconds: int | None = None
    moved_bytes: int | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JobProgress:
        known: dict[str, Any] = {name: document.get(name) for name in cls.__slots__}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class JobStatus(Result):
    """A job as it was when the service was asked. `state` is ``queued``, ``running``, ``succeeded``,
    ``failed`` or ``cancelled``; `error` is why it has failed, `attempts` how often it was begun.
    """

    id: str
    task: str
    state: str
    created: datetime
    started: datetime | None
    finished: datetime | None
    attempts: int
    progress: JobProgress | None
    error: ProblemError | None
    document: Mapping[str, Any] = field(repr=False)

    @property
    def ended(self) -> bool:
        """Whether it stays in this state."""
        return self.state in ("succeeded", "failed", "cancelled")

    @classmethod
    def _parts(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        created = datetime.fromisoformat(document["created"])
        started, finished, progress, error = map(document.get, ("started", "finished", "progress", "error"))
        return {
            "created": created,
            "started": None if started is None else datetime.fromisoformat(started),
            "finished": None if finished is None else datetime.fromisoformat(finished),
            "progress": None if progress is None else JobProgress.of(progress),
            "error": None if error is None else problem_of(error),
        }


@dataclass(frozen=True, slots=True)
class JobEvent:
    """News of a job: `kind` is ``state``, ``progress`` or, once, ``end``."""

    kind: str
    status: JobStatus


# ------------------------------------------------------------------------------------------ reading


def notes_of(response: httpx.Response) -> tuple[str, ...]:
    """Notes on the import of the model that was sent. Empty for graphs, and where the header is damaged."""
    try:
        notes = json.loads(response.headers.get("Arenaplan-Notes", "[]"))
    except ValueError:
        return ()
    return tuple(map(str, notes)) if isinstance(notes, list) else ()


def is_cached(response: httpx.Response) -> bool:
    """Whether the service had the answer already."""
    return bool(response.headers.get("X-Cache") == "hit")


def check(response: httpx.Response) -> httpx.Response:
    """The response, if it is a success. Raises as `read` for any other."""
    if not response.is_success:
        read(response, dict)
    return response


def read(response: httpx.Response, of: Callable[..., T]) -> T:
    """The result that `of` makes of a successful answer: its document, its notes, and whether it was cached.

    Raises ProblemError for what the service declines, and UnexpectedAnswer for anything else: a document
    that lacks a member, of another version say.
    """
    document = document_of(response)
    if document is None:
        raise UnexpectedAnswer(f"{_answered(response)} with something other than a JSON object.")
    if not response.is_success and "type" not in document:
        raise UnexpectedAnswer(f"{_answered(response)} without saying why.")
    if not response.is_success:
        raise problem_of(document)
    try:
        return of(document, notes_of(response), is_cached(response))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        words = f"{_answered(response)} with a document of another form: {error!r}."
        raise UnexpectedAnswer(words) from error


def _answered(response: httpx.Response) -> str:
    return f"{address(response.request.url, '')} answered {response.status_code}"
