"""Verdict documents: whether a network fits a capacity, and what would make it fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from solver.canonical import to_bytes
from solver.documents.costs import CostsFields
from solver.documents.fields import DocumentModel, Int64, JsonList, Name, Natural, Positive, Text
from solver.documents.read import header, read
from solver.reports.verdict import Attempt, Changes, Remedy, Verdict, VerdictStatus

__all__ = ["VerdictDocument", "dump_verdict", "load_verdict"]


class LiveValue(DocumentModel):
    """A value and its bytes."""

    operand: Text
    bytes: Natural


_OptionValue = bool | int | str | JsonList[Text] | CostsFields | None


class RemedyOfVerdict(DocumentModel):
    """A combination of measures that fits the capacity: planned, and its plan proved."""

    measures: JsonList[Text]
    changes: Literal["nothing", "rounding", "training"] = Field(
        description="Nothing: every bit stays. Rounding: the same mathematics. Training: what is learned."
    )
    arena_bytes: Natural
    extra: Int64 = Field(description="Nanoseconds of modelled time for an update, beyond the present ones.")
    bound: Int64 | None = Field(None, description="Proved lower bound of `extra` with these measures.")
    options: dict[str, _OptionValue] = Field(
        description="The options document to plan it with; null takes back what was asked for."
    )
    choices: dict[str, _OptionValue] = Field(
        {},
        description="Of a model of another tool: choices that change, as parameters of the query. The command"
        " line takes them for graph documents, too.",
    )
    graph_fields: dict[str, Any] = Field(description="Fields of the graph document that change, whole.")
    note: Text = ""


class AttemptOfVerdict(DocumentModel):
    """A combination of measures that does not fit the capacity."""

    measures: JsonList[Text]
    changes: Literal["nothing", "rounding", "training"]
    arena_bytes: Natural = Field(
        description="Of the smallest plan found; with `proved`, of every plan at least."
    )
    excess: Natural = Field(description="Bytes beyond the capacity.")
    proved: bool = Field(description="Whether no plan with these measures fits.")


class VerdictDocument(DocumentModel):
    """Facts about a capacity. Sizes are bytes; costs are nanoseconds of modelled time for one update."""

    format: Literal["arenaplan.verdict"]
    version: Literal[1]
    graph: Name
    capacity: Natural
    status: Literal["impossible", "open", "plan"] = Field(
        description="Impossible is proved, for every order and any recomputation; open: nothing is known."
    )
    peak: Natural = Field(description="Bytes live at once where nothing runs again.")
    floor: Natural = Field(description="No schedule of any order takes less: proved.")
    floor_step: Text
    fixed: Natural = Field(description="Weights, optimizer variables and constants, part of the floor.")
    scratch: Natural
    touched: JsonList[LiveValue] = Field(description="What the step of the floor reads and writes.")
    waiting: JsonList[LiveValue] = Field(
        description="What waits there for later steps and cannot be made again."
    )
    smallest: Natural = Field(description="The smallest arena that was found.")
    smallest_extra: Natural
    impossible: Natural = Field(description="Proved to be too few bytes for this order; 0: nothing known.")
    update_nanoseconds: Positive
    extra: Int64 | None = Field(None, description="Of the plan within the capacity.")
    bound: Int64 | None = Field(None, description="Proved lower bound of `extra`.")
    remedies: JsonList[RemedyOfVerdict] = Field(description="The best first.")
    complete: bool = Field(description="False where wall time ended a search.")
    arena_bytes: Natural | None = Field(None, description="Of the plan within the capacity.")
    repeated_steps: Natural = Field(0, description="Of that plan.")
    attempts: JsonList[AttemptOfVerdict] = Field(
        (), description="Where there is neither a plan nor a remedy: what was tried, the nearest first."
    )


def load_verdict(data: bytes | Mapping[str, Any]) -> Verdict:
    """The verdict of a document. Raises DocumentError."""
    document = read(VerdictDocument, data)
    plain = {"format", "version", "status", "touched", "waiting", "remedies", "attempts"}
    return Verdict(
        status=VerdictStatus(document.status),
        touched=tuple((value.operand, value.bytes) for value in document.touched),
        waiting=tuple((value.operand, value.bytes) for value in document.waiting),
        remedies=tuple(
            Remedy(
                names=r.measures, changes=Changes(r.changes), **r.model_dump(exclude={"measures", "changes"})
            )
            for r in document.remedies
        ),
        attempts=tuple(
            Attempt(a.measures, Changes(a.changes), a.arena_bytes, a.proved) for a in document.attempts
        ),
        **document.model_dump(exclude=plain),
    )


def dump_verdict(verdict: Verdict, *, indent: int | None = None) -> bytes:
    """The document of a verdict."""
    figures = {
        name: getattr(verdict, name) for name in VerdictDocument.model_fields if hasattr(verdict, name)
    }
    for name in ("arena_bytes", "repeated_steps", "attempts"):  # left out where there is none
        if figures[name] == VerdictDocument.model_fields[name].default:
            del figures[name]
    document = {
        **header(VerdictDocument),
        **figures,
        "status": verdict.status.value,
        "touched": _live(verdict.touched),
        "waiting": _live(verdict.waiting),
        "remedies": [_remedy(remedy) for remedy in verdict.remedies],
    }
    if verdict.attempts:
        document["attempts"] = [_attempt(attempt, verdict.capacity) for attempt in verdict.attempts]
    return to_bytes(document, indent=indent)


def _live(values: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"operand": name, "bytes": size} for name, size in values]


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "measures": list(remedy.names),
        "changes": remedy.changes.value,
        "arena_bytes": remedy.arena_bytes,
        "extra": remedy.extra,
        "bound": remedy.bound,
        "options": dict(remedy.options),
        **({"choices": dict(remedy.choices)} if remedy.choices else {}),
        "graph_fields": dict(remedy.graph_fields),
        "note": remedy.note,
    }


def _attempt(attempt: Attempt, capacity: int) -> dict[str, Any]:
    return {
        "measures": list(attempt.names),
        "changes": attempt.changes.value,
        "arena_bytes": attempt.arena_bytes,
        "excess": attempt.arena_bytes - capacity,
        "proved": attempt.proved,
    }
