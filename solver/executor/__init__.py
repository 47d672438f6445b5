"""Executes training programs in planned memory, and proves plans right by training."""

from solver.executor.batches import synthetic_batch
from solver.executor.blocks import BlockRunner, BlockViews
from solver.executor.measured import measured_costs
from solver.executor.replayed import rewritten
from solver.executor.trainer import Trainer
from solver.executor.validate import StepReport, ValidationReport, validate

__all__ = [
    "BlockRunner",
    "BlockViews",
    "StepReport",
    "Trainer",
    "ValidationReport",
    "measured_costs",
    "rewritten",
    "synthetic_batch",
    "validate",
]
