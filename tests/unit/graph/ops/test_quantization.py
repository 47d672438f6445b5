"""Quantisation: types, what fits, and what is refused where a derivative is needed."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, InternalError, ShapeMismatchError
from solver.graph.ops import FAMILIES, lookup
from solver.graph.types import DType, TensorType
from tests.support.one_node import needs_of, node_of

DATA, BYTES = TensorType((2, 6, 3), DType.FLOAT32), TensorType((2, 6, 3), DType.INT8)


def scales(*shape: int, dtype: DType = DType.FLOAT32) -> TensorType:
    return TensorType(shape, dtype)


@pytest.mark.parametrize("shape", [(), (1,), (6,)])
def test_types(shape: tuple[int, ...]) -> None:
    zero = scales(*shape, dtype=DType.INT8)
    assert node_of("QuantizeLinear", [DATA, scales(*shape), zero]).outputs == (BYTES,)
    assert node_of("QuantizeLinear", [DATA, scales(*shape)]).outputs[0].dtype is DType.UINT8
    assert node_of("QuantizeLinear", [DATA, scales(*shape)], output_dtype=3).outputs == (BYTES,)
    assert node_of("DequantizeLinear", [BYTES, scales(*shape), zero]).outputs == (DATA,)
    double = scales(*shape, dtype=DType.FLOAT64)
    assert node_of("DequantizeLinear", [BYTES, double]).outputs[0].dtype is DType.FLOAT64


@pytest.mark.parametrize(
    ("inputs", "attributes", "said"),
    [
        ([BYTES, scales(5)], {}, "expected a scale of one element or of 6"),
        ([BYTES, scales(2)], {}, "expected a scale of one element or of 6"),
        ([DATA, scales()], {}, "expected int8, uint8 or int32"),
        ([BYTES, scales(), scales(dtype=DType.UINT8)], {}, "zero points of int8"),
        ([BYTES, scales(), scales(6, dtype=DType.INT8)], {}, "zero points of int8"),
        ([BYTES, scales(2, 3, 3)], {"block_size": 4}, "each block of 4 positions of axis 1"),
        ([BYTES, scales(2, 2, 3)], {"block_size": 2}, "each block of 2 positions of axis 1"),
    ],
)
def test_what_does_not_fit(inputs: list[Any], attributes: dict[str, int], said: str) -> None:
    with pytest.raises(ShapeMismatchError, match=said):
        node_of("DequantizeLinear", inputs, **attributes)


def test_axes_and_types_that_are_asked_for() -> None:
    with pytest.raises(AttributeRuleError, match="must lie in"):
        node_of("DequantizeLinear", [BYTES, scales(6)], axis=3)
    with pytest.raises(AttributeRuleError, match="must be the type of the scale"):
        node_of("DequantizeLinear", [BYTES, scales()], output_dtype=11)
    with pytest.raises(AttributeRuleError, match="must be the type of the input"):
        node_of("QuantizeLinear", [DATA, scales()], precision=11)
    with pytest.raises(ShapeMismatchError, match="a scale of their type"):
        node_of("QuantizeLinear", [DATA, scales(dtype=DType.FLOAT64)])


@pytest.mark.parametrize("type_", FAMILIES["quantization"])
def test_there_is_a_forward_kernel_only(type_: str) -> None:
    data = BYTES if type_ == "DequantizeLinear" else DATA
    assert lookup(type_).forward_only
    assert lookup(type_).differentiable(node_of(type_, [data, scales()])) == frozenset()
    with pytest.raises(InternalError, match=f"{type_!r} has no derivative"):
        needs_of(type_, [data, scales()], (0,))
