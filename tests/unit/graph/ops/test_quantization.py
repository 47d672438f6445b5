"""Quantisation: types, what fits, and what is refused where a derivative is needed."""

from __future__ import annotations

import pytest

from solver.errors import InternalError
from solver.graph.ops import FAMILIES, lookup
from solver.graph.types import DType, TensorType
from tests.support.one_node import needs_of, node_of

DATA, BYTES = TensorType((2, 6, 3), DType.FLOAT32), TensorType((2, 6, 3), DType.INT8)


def scales(*shape: int, dtype: DType = DType.FLOAT32) -> TensorType:
    return TensorType(shape, dtype)


@pytest.mark.parametrize("type_", FAMILIES["quantization"])
def test_there_is_a_forward_kernel_only(type_: str) -> None:
    data = BYTES if type_ == "DequantizeLinear" else DATA
    assert lookup(type_).forward_only
    assert lookup(type_).differentiable(node_of(type_, [data, scales()])) == frozenset()
    with pytest.raises(InternalError, match=f"{type_!r} has no derivative"):
        needs_of(type_, [data, scales()], (0,))
