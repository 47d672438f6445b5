"""Steps: forward against ONNX, and memory."""

from __future__ import annotations

import numpy as np

from solver.graph.ops import FAMILIES
from tests.support.every import grid
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import assert_onnx

NAMES = FAMILIES["rounding"]


@grid("dtype", ["float32", "float64"])
@grid("type_", NAMES)
def test_forward_is_onnx_without_memory_of_tensor_size(type_: str, dtype: str) -> None:
    assert_onnx(OneOperation(type_, [np.array([-2.5, -1.2, -0.5, 0.0, 0.5, 1.5, 2.5, 7.9], dtype)]))
    OneOperation(type_, [np.ones((10, 40, 500), dtype)]).assert_lean()
