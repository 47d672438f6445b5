"""ONNX models: a network in, a graph that can be trained out.

    file --read--> skeleton + ranges --roles--> parameters, states, constants
         --walk--> operations of ours --recognise--> layers that exporters write out --loss--> trainable graph

Nothing of a model's size is copied: weights stay in the file, by offset and SHA-256. `onnx` is imported when
the first model is.
"""

from __future__ import annotations

from solver.importers.onnx.load import load_onnx
from solver.importers.onnx.lowering import LOWERINGS

__all__ = ["IMPORTED_OPERATORS", "load_onnx"]

#: Operators of ONNX that have a translation of their own, sorted.
IMPORTED_OPERATORS: tuple[str, ...] = tuple(sorted(LOWERINGS))
