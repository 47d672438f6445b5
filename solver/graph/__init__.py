"""Trainable graphs: operands, operations, loss, optimizer, and the checks that always run."""

from solver.graph.build import MAX_OPERATIONS, DeclaredOperand, Trainable, build_graph
from solver.graph.nodes import output_types
from solver.graph.types import (
    Array,
    AttributeValue,
    DType,
    Graph,
    Initializer,
    Operand,
    Operation,
    OptimizerSpec,
    Role,
    TensorType,
    TrainingRules,
)

__all__ = [
    "MAX_OPERATIONS",
    "Array",
    "AttributeValue",
    "DType",
    "DeclaredOperand",
    "Graph",
    "Initializer",
    "Operand",
    "Operation",
    "OptimizerSpec",
    "Role",
    "TensorType",
    "Trainable",
    "TrainingRules",
    "build_graph",
    "output_types",
]
