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
from solver.importers.onnx.lowering.movement import pad_widths, slice_bounds, split_sizes, target_shape
from solver.importers.onnx.network import Constant, Site

__all__ = ["MOST_ELEMENTS", "can_evaluate", "evaluate"]

#: Elements of the largest constant that is computed: 256 MiB of float32.
MOST_ELEMENTS: Final = 2**26
#: Axes that NumPy's arrays had before version 2.
_MAX_AXES: Final = 32

#: Operator -> function of NumPy, whose result is as large as what the operands broadcast to.
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
        *("Acos", "Acosh", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd"),
        *("BitwiseNot", "BitwiseOr", "BitwiseXor", "Clip", "Compress", "Cosh", "CumSum", "DepthToSpace"),
        *("Erf", "Flatten", "GatherND", "Hardmax", "IsInf", "LogSoftmax", "Max", "Mean", "Min", "Mod"),
        *("NonZero", "Pow", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
        *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "ReverseSequence"),
        *("ScatterElements", "ScatterND", "Sigmoid", "Sinh", "Softmax", "Softplus", "SpaceToDepth", "Sum"),
        *("Tan", "TopK", "Trilu", "Unique"),
    }
)


def can_evaluate(op: str) -> bool:
    """Whether an operator of ONNX can be computed at import."""
    return op in _BROADCAST or op in _BY_REFERENCE or op in _OWN


def evaluate(site: Site) -> list[Array]:
    """The outputs of a node whose inputs are all known. Raises DocumentError where that fails."""
    arrays = [value.array for value in site.inputs if isinstance(value, Constant)]
    try:
        with np.errstate(all="ignore"):
            if site.op in _BROADCAST:
                _check_size(np.broadcast_shapes(*(a.shape for a in arrays)))
                result = np.asarray(_BROADCAST[site.op](*arrays))
                if result.dtype != np.bool_ and site.op != "IsNaN":  # NumPy widens some integers
                    result = result.astype(arrays[-1].dtype, copy=False)
                return [result]
            if site.op in _OWN:
                results = _OWN[site.op](site)
                return results if isinstance(results, list) else [np.asarray(results)]
            return _by_reference(site, arrays)
    except DocumentError:
        raise
    except Exception as error:  # noqa: BLE001 - an evaluator may raise anything on constants that make no sense
        raise DocumentError(
            f"{site.op} of constants of shape {[list(array.shape) for array in arrays]} fails:"
            f" {' '.join(str(error).split())[:120]}.",
            remedy="Export the model again, and check it with onnx.checker.",
        ) from None


def _check_size(shape: Sequence[int]) -> None:
    elements = math.prod(map(int, shape))
    if min(shape, default=1) < 0 or elements > MOST_ELEMENTS or len(shape) > _MAX_AXES:
        raise DocumentError(
            f"A constant of shape {[int(size) for size in shape][:8]} would have to be made.",
            remedy=f"At most {MOST_ELEMENTS:,} elements are; give smaller dimensions.",
        )


def _by_reference(site: Site, arrays: Sequence[Array]) -> list[Array]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    if site.op in ("Max", "Min", "Mean", "Sum", "Mod", "Pow"):
        _check_size(np.broadcast_shapes(*(array.shape for array in arrays)))
    if site.op == "GatherND":
        data, index = arrays[:2]
        _check_size((*index.shape[:-1], *data.shape[index.shape[-1] :]))
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(site.inputs)]
    feeds = dict(zip(filter(None, names), arrays, strict=True))
    inputs = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    results = [f"y{k}" for k in range(max(1, len(site.is_read)))]
    node = onnx.helper.make_node(site.op, names, results, **site.attributes)
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in results]
    graph = onnx.helper.make_graph([node], "constant", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", site.opset)])
    return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, feeds)]


# ------------------------------------------------------------------------------------ the usual operators


def _data(site: Site, position: int = 0) -> Array:
    return site.constant(position, "an operand")


def _slice(site: Site) -> Array:
    data = _data(site)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(*slice_bounds(site), strict=True):
        stop = None if step < 0 and end < -data.shape[axis] else end
        index[axis] = slice(start, stop, step)
    return data[tuple(index)]


def _concat(site: Site) -> Array:
    arrays = [_data(site, i) for i in range(len(site.inputs)) if site.has(i)]
    _check_size((sum(array.size for array in arrays),))
    return np.concatenate(arrays, axis=site.attributes["axis"])


def _gather(site: Site) -> Array:
    data, index, axis = _data(site), _data(site, 1), site.get("axis", 0)
    _check_size((*data.shape[:axis], *index.shape, *data.shape[axis % data.ndim + 1 :]))
    return np.take(data, index, axis=axis)


def _gather_elements(site: Site) -> Array:
    data, index = _data(site), _data(site, 1)
    axis = site.get("axis", 0) % data.ndim
    corner = tuple(slice(None) if i == axis else slice(size) for i, size in enumerate(index.shape))
    return np.take_along_axis(data[corner], index.astype(np.int64), axis=axis)


def _expand(site: Site) -> Array:
    shape = np.broadcast_shapes(site.shape(), site.ints(1, "the shape"))
    _check_size(shape)
    return np.broadcast_to(_data(site), shape).copy()


def _tile(site: Site) -> Array:
    data, repeats = _data(site), site.ints(1, "the repeats")
    _check_size([size * times for size, times in zip(data.shape, repeats, strict=True)])
    return np.tile(data, repeats)


def _constant_of_shape(site: Site) -> Array:
    shape, value = site.ints(0, "the shape"), site.get("value", np.zeros(1, np.float32))
    _check_size(shape)
    return np.full(shape, value.reshape(-1)[0], value.dtype)


def _range(site: Site) -> Array:
    start, limit, delta = (_data(site, i).reshape(-1)[0] for i in range(3))
    _check_size((max(0, math.ceil((float(limit) - float(start)) / float(delta))),))
    return np.arange(start, limit, delta, dtype=_data(site).dtype)


def _pad(site: Site) -> Array:
    data, mode = _data(site), site.get("mode", "constant")
    before, after = pad_widths(site)
    widths = list(zip(before, after, strict=True))
    _check_size([size + sum(pair) for size, pair in zip(data.shape, widths, strict=True)])
    if mode != "constant":
        return np.pad(data, widths, mode=mode)
    value = _data(site, 2).reshape(-1)[0] if site.has(2) else 0
    return np.pad(data, widths, constant_values=value)


def _one_hot(site: Site) -> Array:
    index, depth, values = (_data(site, i) for i in range(3))
    size = int(depth.reshape(-1)[0])
    _check_size((*index.shape, size))
    hot = (index.astype(np.int64) % size)[..., None] == np.arange(size)
    return np.moveaxis(np.where(hot, values[1], values[0]), -1, site.get("axis", -1))


def _split(site: Site) -> list[Array]:
    axis = site.get("axis", 0)
    ends = np.cumsum(split_sizes(site))[:-1].tolist()
    return [np.asarray(part) for part in np.split(_data(site), ends, axis=axis)]


def _div(site: Site) -> Array:
    """Quotients of integers are cut off towards zero, those of 64 bits exactly."""
    left, right = _data(site), _data(site, 1)
    _check_size(np.broadcast_shapes(left.shape, right.shape))
    if left.dtype.kind not in "iu":
        return np.divide(left, right)
    if not np.all(right):
        raise ValueError("a division by zero")
    if left.dtype.itemsize < 8:
        return np.asarray(np.trunc(left / right)).astype(left.dtype)
    quotient = np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right))
    return np.asarray(quotient).astype(left.dtype)


def _matmul(site: Site) -> Array:
    left, right = _data(site), _data(site, 1)
    if left.ndim and right.ndim:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        _check_size((*batch, *left.shape[-2:-1], *(right.shape[-1:] if right.ndim > 1 else ())))
    return np.asarray(np.matmul(left, right))


def _numpy(element: int) -> np.dtype[Any]:
    import onnx

    if element in (10, 16):  # of 16 bits: as float32, like the weights
        return np.dtype(np.float32)
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))


def _eye_like(site: Site) -> Array:
    rows, columns = site.shape()
    _check_size((rows, columns))
    dtype = _numpy(site.attributes["dtype"]) if "dtype" in site.attributes else _data(site).dtype
    return np.asarray(np.eye(rows, columns, site.get("k", 0), dtype))


_OWN: Final[Mapping[str, Callable[[Site], Array | list[Array]]]] = {
    "Cast": lambda site: _data(site).astype(_numpy(site.attributes["to"])),
    "CastLike": lambda site: _data(site).astype(_data(site, 1).dtype),
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
    "Reshape": lambda site: _data(site).reshape(target_shape(site)),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": lambda site: np.squeeze(_data(site), axis=site.axes()),
    "Tile": _tile,
    "Transpose": lambda site: np.ascontiguousarray(np.transpose(_data(site), site.get("perm"))),
    "Unsqueeze": lambda site: np.expand_dims(_data(site), site.axes() or ()),
}
