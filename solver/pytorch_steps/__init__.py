"""Training steps that PyTorch's own kernels run, in memory that is planned here.

    step        one planned tensor, the slab, in which a step trains: `arenaplan.torch.train_step`
    training    a step that is recorded with its optimizer, as PyTorch calls it
    recording   the calls of kernels, one by one, on tensors without elements
    guards      what a record depends on besides tensors
    budget      a partitioner of `torch.compile` that keeps a budget of bytes
    joint       the joint graph that a partitioner gets, as a scheduling problem
    held        the bytes that the two graphs of a partition hold

How PyTorch's programs are read stands in `solver.importers.pytorch`. PyTorch is imported when a step is made.
"""

from solver.pytorch_steps.budget import Budget, Partition, as_partitioner
from solver.pytorch_steps.step import StepValidation, TrainStep

__all__ = ["Budget", "Partition", "StepValidation", "TrainStep", "as_partitioner"]
