"""The outputs of ONNX's reference evaluator for one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from solver.graph.types import Array
from tests.support.activations import PLAIN_ACTIVATIONS
from tests.support.operator_steps import Case

__all__ = ["assert_onnx", "is_onnx", "onnx_reference"]

_OPSET = 19
#: Operators that came later, or whose definition changed.
_OPSETS = {
    "Gelu": 20,
    "GroupNormalization": 21,
    "QuantizeLinear": 21,
    "DequantizeLinear": 21,
    "RMSNormalization": 23,
    "Swish": 24,
}
#: Attributes that the reference gets in another form.
_TRANSLATED = {"activation", "data_layout", "training_mode"}


def onnx_reference(
    type_: str,
    values: Sequence[Array | None],
    attributes: Mapping[str, Any],
    opset: int = _OPSET,
    outputs: int = 1,
) -> list[Array]:
    """The first outputs of operator `type_`; ``None`` is an input left out."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(values)]
    given = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in given.items()
    ]
    defined = [f"y{k}" for k in range(outputs)]
    node = onnx.helper.make_node(type_, names, defined, **attributes)
    results = [onnx.helper.make_empty_tensor_value_info(name) for name in defined]
    graph = onnx.helper.make_graph([node], "one", inputs, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return [np.asarray(result) for result in ReferenceEvaluator(model).run(defined, given)]


def is_onnx(case: Case) -> bool:
    """Whether ONNX's evaluator computes the operator with these attributes, on elements that are not stored.

    Of a pool it rounds the size down where pads come first, and fails where a window leaves the image; its
    random numbers are others, of a shape that is an attribute.
    """
    if case.stored or not onnx.defs.has(case.type) or case.type == "RandomUniform":
        return False
    if case.type == "MaxPool":
        window, lower = case.attributes["kernel_shape"], case.attributes.get("auto_pad") == "SAME_LOWER"
        return not lower and max(window) < 256
    known = onnx.defs.get_schema(case.type, _opset(case)).attributes
    return not case.attributes.keys() - known.keys() - _TRANSLATED


def _opset(case: Case) -> int:
    """Some inputs of today were attributes once."""
    if case.type == "Clip":
        return 6 if len(case.values) == 1 else 13
    if case.type == "Split" and "num_outputs" not in case.attributes:
        return 11 if "split" in case.attributes else 13
    if "axes" in case.attributes and case.type != "Resize":
        return 11
    return _OPSETS.get(case.type, _OPSET)


def assert_onnx(case: Case, tolerance: float) -> None:
    """The outputs have the shapes, types and elements of ONNX.

    The evaluator has channels in second place, no fused activation, batch normalization for inference only,
    and one filter for each group of a transposed convolution.
    """
    attributes, values = dict(case.attributes), list(case.values)
    activation = PLAIN_ACTIVATIONS[attributes.pop("activation", "None")]
    is_last = attributes.pop("data_layout", "NCHW") == "NHWC"
    if is_last:
        images = 2 if case.type.startswith("Conv") else 1
        values[:images] = [np.moveaxis(np.asarray(value), -1, 1) for value in values[:images]]
    if attributes.pop("training_mode", 0):
        x = np.asarray(values[0])
        axes = (0, *range(2, x.ndim))
        values[3:] = [f(x, axis=axes, dtype="float64").astype(x.dtype) for f in (np.mean, np.var)]
    if case.type == "CumSum":
        values[1] = np.asarray(values[1]).reshape(())
    if case.type == "ConvTranspose":
        groups = attributes.pop("group", 1)
        axes_of_groups = zip(values, (1, 0, 0), strict=False)
        parts = zip(*(np.split(np.asarray(v), groups, axis) for v, axis in axes_of_groups), strict=True)
        expected = [
            np.concatenate([onnx_reference(case.type, part, attributes)[0] for part in parts], axis=1)
        ]
    else:
        expected = onnx_reference(case.type, values, attributes, _opset(case), case.outputs)
    for result, reference in zip(case.operation().forward_all(), expected, strict=True):
        reference = activation(np.moveaxis(reference, 1, -1) if is_last else reference)
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
        np.testing.assert_allclose(result, reference, rtol=tolerance, atol=tolerance)
