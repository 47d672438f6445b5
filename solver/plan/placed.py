"""A layout of bare buffers: the problem, the offsets, and the certificate. What a plan is to a graph."""

from __future__ import annotations

from dataclasses import dataclass

from solver.layout.problem import Layout, Problem
from solver.plan.plan import Certificate

__all__ = ["LayoutOptions", "PlacedBuffers"]


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """What a caller may choose. Sizes are bytes.

    `capacity` takes the place of the problem's own; `alignment` is a least alignment of all buffers.
    `deadline_seconds` bounds the search by wall time; without it budgets are counted in work and the
    layout is deterministic.
    """

    solver: str = "portfolio"
    capacity: int | None = None
    alignment: int | None = None
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PlacedBuffers:
    """`problem` is the one that was solved, with the options' capacity and alignment.

    `digest` is SHA-256 over the canonical JSON without the digest itself, in hexadecimal, once the
    layout is sealed; `deterministic` is false when wall time decided the result.
    """

    problem: Problem
    options: LayoutOptions
    layout: Layout
    certificate: Certificate
    deterministic: bool
    digest: str = ""

    @property
    def gap(self) -> float:
        """``peak / lower_bound - 1``; 0.0 where nothing needs to be placed."""
        bound = self.certificate.lower_bound
        return self.layout.peak / bound - 1.0 if bound else 0.0
