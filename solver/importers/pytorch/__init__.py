"""PyTorch modules, captured by `torch.export` and translated to graphs. PyTorch is imported when one is.

module ──torch.export──► operators (functional) ──translate──► operands and operations ──► graph
                                 ▲                   │
                                 └── decomposed ◄────┘ where an operator is missing
"""

from __future__ import annotations

from solver.importers.pytorch.context import Weight
from solver.importers.pytorch.graph import LOSSES, Imported, import_module
from solver.importers.pytorch.program import trace, trace_module

__all__ = ["LOSSES", "Imported", "Weight", "import_module", "trace", "trace_module"]
