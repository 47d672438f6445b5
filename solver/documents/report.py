"""Report documents: what training in the arena showed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from solver.canonical import NotFinite, to_bytes, word_for
from solver.documents.fields import DocumentModel, JsonList, Natural, Text
from solver.documents.read import header, read
from solver.reports.validation import StepReport, ValidationReport, Violation

__all__ = ["ReportDocument", "dump_report", "load_report"]

_Loss = float | NotFinite


class StepOfReport(DocumentModel):
    """One training step: both losses, and the tensors whose bits differ after it."""

    step: Natural
    loss: _Loss | None = Field(description="null where the graph has none.")
    reference_loss: _Loss | None
    identical: bool
    differing: JsonList[str]
    entry: Text = Field("", description="The entry point that ran; left out for a plan of one program.")
    size: Text = Field("", description="The size of the step, as batch 5; left out for a plan of one size.")


class ViolationOfReport(DocumentModel):
    """One broken promise of the plan."""

    rule: str
    buffers: JsonList[str]
    detail: str


class ReportDocument(DocumentModel):
    """`identical`: no rule is violated, and all `compared` tensors agreed bit for bit after each step."""

    format: Literal["arenaplan.report"]
    version: Literal[1]
    identical: bool
    compared: Natural = Field(description="Tensors compared after each step.")
    arena_bytes: Natural
    paged_in: Natural = Field(0, description="Bytes read from the paging file; left out without one.")
    paged_out: Natural = Field(0, description="Bytes written to the paging file; left out without one.")
    steps: JsonList[StepOfReport]
    violations: JsonList[ViolationOfReport]


def load_report(data: bytes | Mapping[str, Any]) -> ValidationReport:
    """The report of a document. Raises DocumentError."""
    document = read(ReportDocument, data)
    return ValidationReport(
        steps=tuple(
            StepReport(
                s.step,
                _number(s.loss),
                _number(s.reference_loss),
                s.identical,
                s.differing,
                s.entry,
                s.size,
            )
            for s in document.steps
        ),
        violations=tuple(Violation(v.rule, v.buffers, v.detail) for v in document.violations),
        identical=document.identical,
        compared=document.compared,
        arena_bytes=document.arena_bytes,
        paged_in=document.paged_in,
        paged_out=document.paged_out,
    )


def dump_report(report: ValidationReport, *, indent: int | None = None) -> bytes:
    """The document of a report; losses keep every bit, and those not finite are written as words."""
    document = {
        **header(ReportDocument),
        "identical": report.identical,
        "compared": report.compared,
        "arena_bytes": report.arena_bytes,
        **({"paged_in": report.paged_in} if report.paged_in else {}),
        **({"paged_out": report.paged_out} if report.paged_out else {}),
        "steps": [_step_to_dict(step) for step in report.steps],
        "violations": [
            {"rule": v.rule, "buffers": list(v.buffers), "detail": v.detail} for v in report.violations
        ],
    }
    return to_bytes(document, indent=indent)


def _number(loss: _Loss | None) -> float | None:
    return None if loss is None else float(loss)


def _step_to_dict(step: StepReport) -> dict[str, Any]:
    return {
        "step": step.step,
        "loss": word_for(step.loss),
        "reference_loss": word_for(step.reference_loss),
        "identical": step.identical,
        "differing": list(step.differing),
        **({"entry": step.entry} if step.entry else {}),
        **({"size": step.size} if step.size else {}),
    }
