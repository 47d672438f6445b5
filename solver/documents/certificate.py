"""How good an arena is, as documents of plans and of layouts say it."""

from __future__ import annotations

from typing import Literal

from solver.documents.fields import DocumentModel, Int64, Text
from solver.layout import Proof, Status
from solver.plan import Certificate

__all__ = ["CertificateOfPlan", "to_certificate"]


class CertificateOfPlan(DocumentModel):
    """How good an arena is, and why that is known."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    proof: Literal["max-load", "solver"] | None
    lower_bound: Int64
    witness_step: Int64 | None
    solver: Text


def to_certificate(given: CertificateOfPlan) -> Certificate:
    return Certificate(
        status=Status(given.status),
        proof=None if given.proof is None else Proof(given.proof),
        lower_bound=given.lower_bound,
        witness_step=given.witness_step,
        solver=given.solver,
    )
