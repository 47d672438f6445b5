"""ONNX models, as graphs. Needs the package onnx when the first model is read."""

from solver.importers.onnx import IMPORTED_OPERATORS, load_onnx

__all__ = ["IMPORTED_OPERATORS", "load_onnx"]
