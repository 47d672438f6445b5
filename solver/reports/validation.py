"""Results of the proof and of a validation: plain facts, so that documents carry them without an executor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StepReport", "ValidationReport", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise of a plan: the `rule`, the `buffers` involved, and a sentence with the figures."""

    rule: str
    buffers: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of both runs. `differing` names the tensors whose bits differ after it.

    The losses are None where the graph has none: an inference. `entry` is the entry point that ran, empty for
    a plan of one program; `size` the size of the step, as ``batch 5``, of a plan for several.
    """

    step: int
    loss: float | None
    reference_loss: float | None
    identical: bool
    differing: tuple[str, ...]
    entry: str = ""
    size: str = ""


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """`identical` is true when no rule is violated and all `compared` tensors agreed after each step.

    `paged_in` and `paged_out` are the bytes that all steps together read from a paging file and wrote to it.
    """

    steps: tuple[StepReport, ...]
    violations: tuple[Violation, ...]
    identical: bool
    compared: int
    arena_bytes: int
    paged_in: int = 0
    paged_out: int = 0
