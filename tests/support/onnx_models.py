"""Small ONNX models, made on the spot, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from solver.graph import TrainableGraph
from solver.graph.types import Array
from solver.importers.onnx import load_onnx
from solver.importers.options import Imported, ImportOptions

__all__ = ["imported", "model_of", "node", "nodes_of", "perceptron", "shape_of", "types_of"]

node = helper.make_node


def nodes_of(text: str) -> list[onnx.NodeProto]:
    """Nodes without attributes, each of one output, its inputs before it: ``"MatMul x w h, Relu h y"``."""
    return [node(type_, inputs, [output]) for type_, *inputs, output in map(str.split, text.split(","))]


#: Element types of inputs by NumPy's names.
_ELEMENTS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}

Shape = Sequence[int | str | None]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape | tuple[str, Shape]],
    weights: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """An input is its shape, or its element type and shape; a weight is an array, or a number (float32)."""
    given = []
    for name, what in inputs.items():
        dtype, shape = what if len(what) == 2 and isinstance(what[1], tuple) else ("float32", what)
        given.append(helper.make_tensor_value_info(name, _ELEMENTS[dtype], shape))  # type: ignore[index, arg-type]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    initializers = [numpy_helper.from_array(_array(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", given, made, initializers)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def perceptron() -> onnx.ModelProto:
    """Two layers of 16, 32 and 4 numbers; its first dimension, n, is left open."""
    nodes = nodes_of("Gemm x w b h, Relu h r, Gemm r v y")
    rng, sizes = np.random.default_rng(0), {"w": (16, 32), "b": (32,), "v": (32, 4)}
    weights = {name: rng.random(size, np.float32) for name, size in sizes.items()}
    return model_of(nodes, {"x": ("n", 16)}, weights)


def _array(value: Any) -> Array:
    return value if isinstance(value, np.ndarray) else np.asarray(value, np.float32)


def imported(model: onnx.ModelProto, **options: Any) -> Imported:
    """The import of the bytes; the loss is mse by default."""
    return load_onnx(model.SerializeToString(), options=ImportOptions(**{"loss": "mse", **options}))


def types_of(graph: TrainableGraph) -> list[str]:
    return [operation.type for operation in graph.operations]


def shape_of(graph: TrainableGraph, name: str) -> tuple[int, ...]:
    return graph.operands[name].shape
