"""Linear layers that exporters write as a product with a transposed weight, as one Gemm.

    Transpose(w) ──► MatMul(x, w') ──► Add b         Reshape(x) ──► Gemm(x, w, b, transB=1) ──► Reshape

The transposed weight is a copy, which would wait for the backward pass. The axes of x before the last one are
rows of one product; with `in_place` both reshapes are views.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from solver.graph import Operation
from solver.importers.onnx.network import Network

__all__ = ["join_products"]


def join_products(network: Network, *read: str) -> None:
    """Replace such products, in place; what is not read any more stays, for others to drop. Linear.

    `read` are operands that something beside operations reads: the loss, outputs.
    """
    operations = list(network.operations)
    by_output = {name: op for op in operations for name in op.outputs if name}
    readers = Counter(name for op in operations for name in op.inputs)
    readers.update(read)
    rows: dict[str, str] = {}
    network.operations.clear()
    for operation in operations:
        product, bias = operation, ""
        if operation.type == "Add":
            for name, other in (operation.inputs, operation.inputs[::-1]):
                maker = by_output.get(name)
                if maker is not None and maker.type == "MatMul" and readers[name] == 1:
                    product, bias = maker, other
        weight = _transposed(network, by_output, product)
        if weight is None or not _is_bias(network, operation, bias):
            network.operations.append(operation)
            continue
        x, shape = product.inputs[0], network.types[operation.outputs[0]].type.shape
        if len(shape) > 2 and x not in rows:
            sizes = network.types[x].type.shape
            flat = network.constant(np.array([math.prod(sizes[:-1]), sizes[-1]], np.int64), f"{x}.rows")
            rows[x] = network.emit("Reshape", [x, flat.name], f"{operation.id}.rows")[0].name
        inputs = (rows.get(x, x) if len(shape) > 2 else x, weight, *([bias] if bias else []))
        if len(shape) == 2:
            network.operations.append(
                Operation(operation.id, "Gemm", inputs, operation.outputs, {"transB": 1})
            )
            continue
        y = network.emit("Gemm", inputs, f"{operation.id}.product", transB=1)[0]
        whole = network.constant(np.array(shape, np.int64), f"{operation.outputs[0]}.shape")
        network.operations.append(Operation(operation.id, "Reshape", (y.name, whole.name), operation.outputs))


def _transposed(network: Network, by_output: dict[str, Operation], product: Operation) -> str | None:
    """The matrix whose transpose a product has as its second operand."""
    if product.type != "MatMul" or len(network.types[product.outputs[0]].type.shape) < 2:
        return None
    maker = by_output.get(product.inputs[1])
    if maker is None or maker.type != "Transpose":
        return None
    matrix = len(network.types[maker.inputs[0]].type.shape) == 2
    swapped = maker.attributes.get("perm", (1, 0)) == (1, 0)
    rank = len(network.types[product.inputs[0]].type.shape)
    return maker.inputs[0] if matrix and swapped and rank >= 2 else None


def _is_bias(network: Network, operation: Operation, bias: str) -> bool:
    """Whether what is added to a product is a vector as long as its last axis, or nothing is."""
    last = network.types[operation.outputs[0]].type.shape[-1:]
    return not bias or network.types[bias].type.shape == last
