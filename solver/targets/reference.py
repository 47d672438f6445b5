"""The reference target: what this project's own kernels need, in one arena."""

from __future__ import annotations

from solver.layout import Lifespan
from solver.targets.pools import TargetBuffer
from solver.training.program import TrainingOperand

__all__ = ["ALIGNMENT", "POOL", "buffer"]

#: A cache line, and the widest vector register of today's CPUs (AVX-512).
ALIGNMENT = 64

#: Weights, activations, derivatives, optimizer state and scratch share one arena.
POOL = "arena"


def buffer(operand: TrainingOperand, lifespan: Lifespan, alignment: int = ALIGNMENT) -> TargetBuffer:
    """The buffer of an operand that shares it with none."""
    return TargetBuffer(operand.id, operand.kind, operand.lifetime, operand.type, lifespan, alignment)
