"""Why a layout is as good as it is said to be; stands for plans and for bare buffers alike."""

from __future__ import annotations

from dataclasses import dataclass

from solver.layout.model.problem import Proof, Status

__all__ = ["Certificate"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good an arena is, and why that is known.

    `lower_bound` bytes are needed by every layout; under the ``max-load`` proof they are live at
    `witness_step`, which anyone can add up. ``solver`` means a complete search closed the optimality gap.
    """

    status: Status
    proof: Proof | None
    lower_bound: int
    witness_step: int | None
    solver: str
