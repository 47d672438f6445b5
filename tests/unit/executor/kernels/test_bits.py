"""Bits: forward against ONNX, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.ops import FAMILIES
from tests.support.every import grid
from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import assert_onnx

NAMES = FAMILIES["bits"]
DIRECTIONS: list[dict[str, Any]] = [{"direction": "LEFT"}, {"direction": "RIGHT"}]


@grid("dtype", ["int8", "uint8", "int32", "int64"])
@grid("type_", NAMES)
def test_forward_is_onnx(type_: str, dtype: str) -> None:
    x, y = np.arange(12, dtype=dtype).reshape(3, 4) * 9, np.array([1, 0, 3, 2], dtype)
    for attributes in DIRECTIONS if type_ == "BitShift" else [{}]:
        assert_onnx(OneOperation(type_, [x] if type_ == "BitwiseNot" else [x, y], **attributes))


@pytest.mark.parametrize("type_", ["BitwiseAnd", "BitwiseNot"])
def test_nothing_of_tensor_size_is_allocated(type_: str) -> None:
    x = np.ones((10, 40, 500), np.int32)
    OneOperation(type_, [x] if type_ == "BitwiseNot" else [x, x[0]]).assert_lean()
