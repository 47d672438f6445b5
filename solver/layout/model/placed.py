"""A layout of bare buffers: the problem, the offsets, and the certificate. What a plan is to a graph."""

from __future__ import annotations

from dataclasses import dataclass, field

from solver.layout.model.certificate import Certificate
from solver.layout.model.options import Rules
from solver.layout.model.problem import Layout, LayoutProblem

__all__ = ["LayoutOptions", "PlacedBuffers"]


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """What a caller may choose. Sizes are bytes.

    `capacity` takes the place of the problem's own: the search ends once it is met, and without one it
    minimises. `alignment` is a least alignment of all buffers. `deadline_seconds` bounds the search by
    wall time, `work` by buffers and sections looked at; left out, it is the solver's default, or
    without end until a deadline. `target_gap` is a fraction of the lower bound at which to stop.
    `threads` changes the time, never the answer; `race` takes the first answer of any thread. Without
    deadline and race the layout is the same on every machine.
    """

    solver: str = "portfolio"
    capacity: int | None = None
    alignment: int | None = None
    deadline_seconds: float | None = None
    work: int | None = None
    seed: int = 0
    threads: int = 2
    race: bool = False
    target_gap: float = 0.0
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class PlacedBuffers:
    """`problem` is the one that was solved, with the options' capacity and alignment.

    `digest` is SHA-256 over the canonical JSON without the digest itself, in hexadecimal, once the
    layout has one; `deterministic` is false when wall time decided the result.
    """

    problem: LayoutProblem
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
