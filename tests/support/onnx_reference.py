"""The outputs of ONNX's reference evaluator for one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from solver.graph.types import Array
from tests.support.one_operation import OneOperation

__all__ = ["assert_onnx", "onnx_reference"]

_OPSET = 18


def onnx_reference(
    type_: str, values: Sequence[Array | None], attributes: Mapping[str, Any], opset: int = _OPSET
) -> Array:
    """The first output of operator `type_`; ``None`` is an input left out."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(values)]
    given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in given.items()
    ]
    output = onnx.helper.make_empty_tensor_value_info("y")
    node = onnx.helper.make_node(type_, names, ["y"], **attributes)
    graph = onnx.helper.make_graph([node], "one", inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    (found,) = ReferenceEvaluator(model).run(["y"], given)
    return np.asarray(found)


def assert_onnx(operation: OneOperation, rtol: float = 0, atol: float = 0, opset: int = _OPSET) -> None:
    """The first output has the shape, type and elements of ONNX for the same values and attributes."""
    result = operation.forward()
    expected = onnx_reference(operation.type, operation.values, operation.attributes, opset)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
