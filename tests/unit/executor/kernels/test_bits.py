"""Bits: forward against ONNX, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.ops import FAMILIES
from tests.support.every import grid
from tests.support.one_operation import OneOperation, allocated
from tests.support.onnx_reference import onnx_reference

NAMES = FAMILIES["bits"]
DIRECTIONS: list[dict[str, Any]] = [{"direction": "LEFT"}, {"direction": "RIGHT"}]


@grid("dtype", ["int8", "uint8", "int32", "int64"])
@grid("type_", NAMES)
def test_forward_is_onnx(type_: str, dtype: str) -> None:
    x, y = np.arange(12, dtype=dtype).reshape(3, 4) * 9, np.array([1, 0, 3, 2], dtype)
    values = [x] if type_ == "BitwiseNot" else [x, y]
    for attributes in DIRECTIONS if type_ == "BitShift" else [{}]:
        found = OneOperation(type_, values, **attributes).forward()
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, onnx_reference(type_, values, attributes))


@pytest.mark.parametrize("type_", ["BitwiseAnd", "BitwiseNot"])
def test_nothing_of_tensor_size_is_allocated(type_: str) -> None:
    x = np.ones((10, 40, 500), np.int32)
    operation = OneOperation(type_, [x] if type_ == "BitwiseNot" else [x, x[0]])
    assert allocated(operation.prepare_forward()[1]) < 64 * 1024
