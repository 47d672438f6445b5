"""Executes training programs in planned memory, and proves plans right by training."""

from solver.executor.batches import synthetic_batch
from solver.executor.trainer import Trainer
from solver.executor.validate import StepReport, ValidationReport, validate

__all__ = ["StepReport", "Trainer", "ValidationReport", "synthetic_batch", "validate"]
