"""Constant folding with NumPy: shapes, ranges, masks and tables are computed once, at import.

Exporters write shapes as arithmetic: Shape, Gather, Mul, Concat, Reshape. With every dimension known it all
comes to constants. The usual operators are below; those that are rare are left to onnx's reference
evaluator. Nothing is computed that would have more than `MOST_ELEMENTS` elements, and what a result will
need is known first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from solver.errors import DocumentError
from solver.graph import Array

__all__ = ["MOST_ELEMENTS", "can_evaluate", "evaluate"]

#: 256 MiB of float32.
MOST_ELEMENTS: Final = 2**26

Attributes = Mapping[str, Any]
Inputs = Sequence[Array | None]

#: Results as large as what the operands broadcast to.
_BROADCAST: Final[Mapping[str, Callable[..., Any]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Where": np.where,
    "Not": np.logical_not,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Cos": np.cos,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
    "Sign": np.sign,
    "Reciprocal": np.reciprocal,
    "Tanh": np.tanh,
    "IsNaN": np.isnan,
}
#: By the reference evaluator: no result is larger than the operands together, or than they broadcast to.
_BY_REFERENCE: Final = frozenset(
    {
        *("ArgMax", "ArgMin", "Clip", "CumSum", "DepthToSpace", "Flatten"),
        *("Hardmax", "IsInf", "LogSoftmax", "Max", "Mean", "Min", "Mod"),
        *(
            "NonZero",
            "Pow",
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
        ),
        *(
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
            "Relu",
            "ReverseSequence",
            "ScatterElements",
        ),
        *(
            "ScatterND",
            "Sigmoid",
            "Softmax",
            "Softplus",
            "SpaceToDepth",
            "Sum",
            "Tan",
            "TopK",
            "Trilu",
            "Unique",
        ),
        *(
            "Erf",
            "Sinh",
            "Cosh",
            "Asin",
            "Acos",
            "Atan",
            "Asinh",
            "Acosh",
            "Atanh",
            "BitShift",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseNot",
        ),
        *("BitwiseXor", "GatherND", "Compress"),
    }
)


def can_evaluate(op: str) -> bool:
    return op in _BROADCAST or op in _BY_REFERENCE or op in _OWN


def evaluate(op: str, inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> list[Array]:
    """Results of an operator on constants. Raises DocumentError where it cannot be done."""
    try:
        with np.errstate(all="ignore"):
            if op in _BROADCAST:
                arrays = [array for array in inputs if array is not None]
                _check_size(np.broadcast_shapes(*(a.shape for a in arrays)))
                return [_of_type(np.asarray(_BROADCAST[op](*arrays)), op, arrays)]
            if op in _OWN:
                results = _OWN[op](inputs, attributes, opset, outputs)
                return results if isinstance(results, list) else [np.asarray(results)]
            return _by_reference(op, inputs, attributes, opset, outputs)
    except DocumentError:
        raise
    except Exception as error:  # noqa: BLE001 - an evaluator may raise anything on constants that make no sense
        raise DocumentError(
            f"{op} of constants of shape {[list(a.shape) for a in inputs if a is not None]} fails:"
            f" {' '.join(str(error).split())[:120]}.",
            remedy="Export the model again, and check it with onnx.checker.",
        ) from None


def _of_type(result: Array, op: str, arrays: Sequence[Array]) -> Array:
    """NumPy widens some integers, ONNX does not."""
    if result.dtype == np.bool_ or op == "IsNaN":
        return result
    return result.astype(arrays[-1].dtype, copy=False)


def _check_size(shape: Sequence[int]) -> None:
    if min(shape, default=1) < 0 or math.prod(map(int, shape)) > MOST_ELEMENTS or len(shape) > 32:
        raise DocumentError(
            f"A constant of shape {[int(size) for size in shape][:8]} would have to be made.",
            remedy=f"At most {MOST_ELEMENTS:,} elements are; give smaller dimensions.",
        )


def _by_reference(op: str, arrays: Inputs, attributes: Attributes, opset: int, outputs: int) -> list[Array]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    if op in ("Max", "Min", "Mean", "Sum", "Mod", "Pow"):
        _check_size(np.broadcast_shapes(*(a.shape for a in arrays if a is not None)))
    if op == "GatherND" and arrays[0] is not None and arrays[1] is not None:
        _check_size((*arrays[1].shape[:-1], *arrays[0].shape[arrays[1].shape[-1] :]))
    names = ["" if array is None else f"x{i}" for i, array in enumerate(arrays)]
    feeds = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    results = [f"y{k}" for k in range(outputs)]
    node = onnx.helper.make_node(op, names, results, **attributes)
    outs = [onnx.helper.make_empty_tensor_value_info(name) for name in results]
    graph = onnx.helper.make_graph([node], "constant", inputs, outs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, feeds)]


# ------------------------------------------------------------------------------------ the usual operators


def _axes(inputs: Inputs, attributes: Attributes, position: int) -> tuple[int, ...] | None:
    axes = inputs[position] if len(inputs) > position else None
    if axes is not None:
        return tuple(int(a) for a in axes.reshape(-1))
    return tuple(attributes["axes"]) if "axes" in attributes else None


def _ints(array: Array | None) -> tuple[int, ...]:
    return () if array is None else tuple(int(v) for v in array.reshape(-1))


def _first(inputs: Inputs) -> Array:
    array = inputs[0]
    if array is None:
        raise ValueError("its first input is left out")
    return array


def _reshape(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    data = _first(inputs)
    shape = _ints(inputs[1]) if len(inputs) > 1 else tuple(attributes["shape"])
    if not attributes.get("allowzero", 0):
        shape = tuple(data.shape[i] if size == 0 else size for i, size in enumerate(shape))
    return data.reshape(shape)


def _squeeze(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    axes = _axes(inputs, attributes, 1)
    return np.squeeze(_first(inputs), axis=axes)


def _unsqueeze(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    return np.expand_dims(_first(inputs), _axes(inputs, attributes, 1) or ())


def _slice(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    data = _first(inputs)
    if len(inputs) > 1:
        starts, ends = _ints(inputs[1]), _ints(inputs[2])
        axes = _ints(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else tuple(range(len(starts)))
        steps = _ints(inputs[4]) if len(inputs) > 4 and inputs[4] is not None else (1,) * len(starts)
    else:
        starts, ends = tuple(attributes["starts"]), tuple(attributes["ends"])
        axes, steps = tuple(attributes.get("axes", range(len(starts)))), (1,) * len(starts)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = None if step < 0 and end < -data.shape[axis] else end
        index[axis] = slice(start, stop, step)
    return data[tuple(index)]


def _concat(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    arrays = [array for array in inputs if array is not None]
    _check_size((sum(array.size for array in arrays),))
    return np.concatenate(arrays, axis=attributes["axis"])


def _gather(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    data, index = _first(inputs), inputs[1]
    assert index is not None
    axis = attributes.get("axis", 0)
    _check_size((*data.shape[:axis], *index.shape, *data.shape[axis % data.ndim + 1 :]))
    return np.take(data, index, axis=axis)


def _gather_elements(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    data, index = _first(inputs), inputs[1]
    assert index is not None
    axis = attributes.get("axis", 0) % data.ndim
    corner = tuple(slice(None) if i == axis else slice(size) for i, size in enumerate(index.shape))
    return np.take_along_axis(data[corner], index.astype(np.int64), axis=axis)


def _expand(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    shape = np.broadcast_shapes(_first(inputs).shape, _ints(inputs[1]))
    _check_size(shape)
    return np.broadcast_to(_first(inputs), shape).copy()


def _tile(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    data, repeats = _first(inputs), _ints(inputs[1])
    _check_size([size * times for size, times in zip(data.shape, repeats, strict=True)])
    return np.tile(data, repeats)


def _constant_of_shape(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    shape, value = _ints(inputs[0]), attributes.get("value", np.zeros(1, np.float32))
    _check_size(shape)
    return np.full(shape, value.reshape(-1)[0], value.dtype)


def _range(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    start, limit, delta = (array.reshape(-1)[0] for array in inputs if array is not None)
    _check_size((max(0, math.ceil((float(limit) - float(start)) / float(delta))),))
    return np.arange(start, limit, delta, dtype=_first(inputs).dtype)


def _pad(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    data = _first(inputs)
    pads = _ints(inputs[1]) if len(inputs) > 1 else tuple(attributes["pads"])
    axes = _ints(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else tuple(range(data.ndim))
    value = inputs[2].reshape(-1)[0] if len(inputs) > 2 and inputs[2] is not None else 0
    widths = [(0, 0)] * data.ndim
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    _check_size([size + sum(pair) for size, pair in zip(data.shape, widths, strict=True)])
    mode = attributes.get("mode", "constant")
    if mode == "constant":
        return np.pad(data, widths, constant_values=value)
    return np.pad(data, widths, mode=mode)


def _one_hot(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    index, depth, values = _first(inputs), inputs[1], inputs[2]
    assert depth is not None
    assert values is not None
    size = int(depth.reshape(-1)[0])
    _check_size((*index.shape, size))
    hot = (index.astype(np.int64) % size)[..., None] == np.arange(size)
    return np.moveaxis(np.where(hot, values[1], values[0]), -1, attributes.get("axis", -1))


def _split(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> list[Array]:
    data, axis = _first(inputs), attributes.get("axis", 0)
    sizes = (
        _ints(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else tuple(attributes.get("split", ()))
    )
    if not sizes:
        each = -(-data.shape[axis] // outputs)
        sizes = (*[each] * (outputs - 1), data.shape[axis] - each * (outputs - 1))
    return [np.asarray(part) for part in np.split(data, np.cumsum(sizes)[:-1].tolist(), axis=axis)]


def _transpose(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    return np.ascontiguousarray(np.transpose(_first(inputs), attributes.get("perm")))


def _div(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    left, right = _first(inputs), inputs[1]
    assert right is not None
    _check_size(np.broadcast_shapes(left.shape, right.shape))
    if left.dtype.kind in "iu":
        if not np.all(right):
            raise ValueError("a division by zero")
        return np.asarray(
            np.trunc(left / right) if left.dtype.itemsize < 8 else _whole_quotient(left, right)
        ).astype(left.dtype)
    return np.divide(left, right)


def _whole_quotient(left: Array, right: Array) -> Array:
    """Towards zero, exactly."""
    return np.asarray(np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right)))


def _matmul(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    left, right = _first(inputs), inputs[1]
    assert right is not None
    if left.ndim and right.ndim:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        _check_size((*batch, *left.shape[-2:-1], *(right.shape[-1:] if right.ndim > 1 else ())))
    return np.asarray(np.matmul(left, right))


def _cast(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    return np.asarray(_first(inputs).astype(_numpy(attributes["to"])))


def _cast_like(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    assert inputs[1] is not None
    return np.asarray(_first(inputs).astype(inputs[1].dtype))


def _numpy(element: int) -> np.dtype[Any]:
    import onnx

    if element in (10, 16):  # of 16 bits: as float32, like the weights
        return np.dtype(np.float32)
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))


def _eye_like(inputs: Inputs, attributes: Attributes, opset: int, outputs: int) -> Array:
    data = _first(inputs)
    dtype = _numpy(attributes["dtype"]) if "dtype" in attributes else data.dtype
    rows, columns = data.shape
    _check_size(data.shape)
    return np.asarray(np.eye(rows, columns, attributes.get("k", 0), dtype))


_OWN: Final[Mapping[str, Callable[[Inputs, Attributes, int, int], Array | list[Array]]]] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _div,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "MatMul": _matmul,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
