"""Graphs, how they are trained, and the checks that always run."""

from solver.graph.build import MAX_OPERATIONS, DeclaredOperand, Trainable, build_graph, forward_graph
from solver.graph.content import graph_digest
from solver.graph.nodes import output_types
from solver.graph.objective import with_training
from solver.graph.purposes import evaluation, inference
from solver.graph.types import (
    Array,
    AttributeValue,
    DType,
    FileRange,
    Graph,
    Initializer,
    Operand,
    Operation,
    OptimizerSpec,
    Role,
    TensorType,
    TrainableGraph,
    TrainingRules,
    TrainingSpec,
)

__all__ = [
    "MAX_OPERATIONS",
    "Array",
    "AttributeValue",
    "DType",
    "DeclaredOperand",
    "FileRange",
    "Graph",
    "Initializer",
    "Operand",
    "Operation",
    "OptimizerSpec",
    "Role",
    "TensorType",
    "Trainable",
    "TrainableGraph",
    "TrainingRules",
    "TrainingSpec",
    "build_graph",
    "evaluation",
    "forward_graph",
    "graph_digest",
    "inference",
    "output_types",
    "with_training",
]
