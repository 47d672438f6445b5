"""The training program of a graph: explicit steps, each with what it reads and writes."""

from solver.training.derive import ACCUMULATE, CLIP, SEED, UPDATE, derive
from solver.training.explicit import Block, BlockOperation, BlockProgram, build_program
from solver.training.program import (
    Binding,
    Lifetime,
    OperandKind,
    Phase,
    Share,
    TrainingOperand,
    TrainingOperandIndex,
    TrainingOperationIndex,
    TrainingProgram,
    TrainingStep,
)

__all__ = [
    "ACCUMULATE",
    "CLIP",
    "SEED",
    "UPDATE",
    "Binding",
    "Block",
    "BlockOperation",
    "BlockProgram",
    "Lifetime",
    "OperandKind",
    "Phase",
    "Share",
    "TrainingOperand",
    "TrainingOperandIndex",
    "TrainingOperationIndex",
    "TrainingProgram",
    "TrainingStep",
    "build_program",
    "derive",
]
