"""Executes training programs in planned memory, and proves plans right by training."""

from solver.executor.arithmetic import rewritten
from solver.executor.batches import synthetic_batch
from solver.executor.blocks import BlockRunner, BlockViews
from solver.executor.c_files import C_WEIGHTS, c_files, first_contents, zip_archive
from solver.executor.measured import logged_accesses, measured_costs
from solver.executor.proved import KernelSet, inline_data
from solver.executor.runs import graph_of_batch
from solver.executor.trainer import Trainer
from solver.executor.validate import StepReport, ValidationReport, validate
from solver.verify import AccessFault, MemoryAccess, check_accesses

__all__ = [
    "C_WEIGHTS",
    "AccessFault",
    "BlockRunner",
    "BlockViews",
    "KernelSet",
    "MemoryAccess",
    "StepReport",
    "Trainer",
    "ValidationReport",
    "c_files",
    "check_accesses",
    "first_contents",
    "graph_of_batch",
    "inline_data",
    "logged_accesses",
    "measured_costs",
    "rewritten",
    "synthetic_batch",
    "validate",
    "zip_archive",
]
