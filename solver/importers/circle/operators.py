"""One function for each operator of Circle and TensorFlow Lite: what it becomes in a graph.

Images are NHWC on both sides. Weights of convolutions are [out, height, width, in] on both; those of a
depthwise convolution are [1, height, width, out] there, and those of a transposed one [out, height, width,
in]: both change their order, and `Weight.axes` remembers how.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from solver.importers.circle.network import Network, Unsupported, slices
from solver.importers.circle.read import CUSTOM_OPTIONS, ModelOperator
from solver.importers.circle.roles import TRANSPOSE_BIAS

__all__ = [
    "LSTM",
    "OPERATORS",
    "complex_absolute",
    "imaginary_part",
    "real_part",
    "real_transform",
    "unidirectional_lstm",
]

#: Activations that operators with an attribute `activation` apply to their own output.
_FUSED: Final = MappingProxyType({"NONE": "None", "RELU": "Relu", "RELU6": "Relu6", "TANH": "Tanh"})

#: Activations as operators, with their attributes.
_BEHIND: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "RELU": ("Relu", {}),
    "RELU6": ("Clip", {"min": 0.0, "max": 6.0}),
    "RELU_N1_TO_1": ("Clip", {"min": -1.0, "max": 1.0}),
    "TANH": ("Tanh", {}),
}


#: Options of MediaPipe's transposed convolution: padding, stride in width, stride in height.
_TRANSPOSE_OPTIONS: Final = struct.Struct("<iii")
_TRANSPOSE_PADDINGS: Final[Mapping[int, str]] = {1: "SAME", 2: "VALID"}


def _windows(operator: ModelOperator) -> dict[str, str | tuple[int, ...]]:
    dilations = operator.integer("DilationHFactor", 1), operator.integer("DilationWFactor", 1)
    return {
        "data_layout": "NHWC",
        "strides": (operator.integer("StrideH"), operator.integer("StrideW")),
        "auto_pad": "SAME_UPPER" if operator.word("Padding") == "SAME" else "VALID",
        **({"dilations": dilations} if dilations != (1, 1) else {}),
    }


def _activated(
    net: Network, type_: str, inputs: list[str], attributes: Mapping[str, object], *, fuses: bool = True
) -> None:
    """Emits an operator with its fused activation, as an operator of its own where `type_` cannot fuse it."""
    activation = net.operator.word("FusedActivationFunction", "NONE")
    if fuses and activation in _FUSED:
        net.emit(type_, inputs, {**attributes, "activation": _FUSED[activation]})
    elif activation == "NONE":
        net.emit(type_, inputs, attributes)
    elif activation in _BEHIND:
        follower, limits = _BEHIND[activation]
        net.emit(follower, [net.part(type_, inputs, attributes)], limits)
    else:
        raise Unsupported(f"has the activation {activation}")


def _convolution(net: Network, operator: ModelOperator) -> None:
    x, channels = net.input(0), net.shape(0)[-1]
    weight, bias = net.weight(1), net.bias(2)
    shape = net.shape(1)
    if channels % shape[3]:
        raise Unsupported(f"has weights {list(shape)} for {channels} channels")
    attributes = {**_windows(operator), "kernel_shape": shape[1:3], "group": channels // shape[3]}
    _activated(net, "Conv", [x, weight, *bias], attributes)


def _depthwise(net: Network, operator: ModelOperator) -> None:
    x, channels = net.input(0), net.shape(0)[-1]
    shape = net.shape(1)
    weight, bias = net.weight(1, axes=(3, 1, 2, 0)), net.bias(2)
    attributes = {**_windows(operator), "kernel_shape": shape[1:3], "group": channels}
    _activated(net, "Conv", [x, weight, *bias], attributes)


def _transposed(net: Network, operator: ModelOperator) -> None:
    weight, x, bias = net.weight(1, axes=(3, 1, 2, 0)), net.input(2), net.bias(3)
    size = net.integers(0)
    padding = "SAME_UPPER" if operator.word("Padding") == "SAME" else "NOTSET"
    attributes = {
        **_windows(operator),
        "kernel_shape": net.shape(1)[1:3],
        "auto_pad": padding,
        "output_shape": tuple(size[1:3]),
    }
    _activated(net, "ConvTranspose", [x, weight, *bias], attributes, fuses=False)


def _transposed_with_bias(net: Network, operator: ModelOperator) -> None:
    """MediaPipe's own operator: the output is as large as the windows reach, less what SAME takes away."""
    options = operator.options.get(CUSTOM_OPTIONS)
    if not isinstance(options, bytes) or len(options) < _TRANSPOSE_OPTIONS.size:
        raise KeyError(CUSTOM_OPTIONS)
    padding, stride_w, stride_h = _TRANSPOSE_OPTIONS.unpack_from(options)
    if padding not in _TRANSPOSE_PADDINGS or min(stride_w, stride_h) < 1:
        raise ValueError
    x, weight, bias = net.input(0), net.weight(1, axes=(3, 1, 2, 0)), net.bias(2)
    kernel, strides = net.shape(1)[1:3], (stride_h, stride_w)
    cut = [0, 0]
    if _TRANSPOSE_PADDINGS[padding] == "SAME":
        cut = [
            max(0, k - (n - 1) % s - 1) for k, n, s in zip(kernel, net.shape(0)[1:3], strides, strict=True)
        ]
    first = [size // 2 for size in cut]
    pads = (*first, *(size - half for size, half in zip(cut, first, strict=True)))
    attributes = {"data_layout": "NHWC", "kernel_shape": kernel, "strides": strides, "pads": pads}
    net.emit("ConvTranspose", [x, weight, *bias], attributes)


def _fully_connected(net: Network, operator: ModelOperator) -> None:
    if operator.options.get("WeightsFormat", 0):
        raise Unsupported("has shuffled weights")
    x, shape = net.input(0), net.shape(0)
    units, width = net.shape(1)
    weight, bias = net.weight(1), net.bias(2)
    if len(shape) != 2 or shape[1] != width:
        x = net.part("Reshape", [x, net.numbers((-1, width))])
    inputs, attributes = [x, weight, *bias], {"transB": 1}
    if not operator.options.get("KeepNumDims") or len(shape) == 2:
        _activated(net, "Gemm", inputs, attributes)
    else:
        product = net.part("Gemm", inputs, attributes)
        _activated(net, "Reshape", [product, net.numbers((*shape[:-1], units))], {}, fuses=False)


def _pool(type_: str) -> Callable[[Network, ModelOperator], None]:
    def pool(net: Network, operator: ModelOperator) -> None:
        window = (operator.integer("FilterHeight"), operator.integer("FilterWidth"))
        attributes = {**_windows(operator), "kernel_shape": window}
        plain = net.operator.word("FusedActivationFunction", "NONE") == "NONE"
        if type_ == "AveragePool" and plain and net.keeps_scale():
            net.emit_on_elements(type_, attributes)  # their mean is rounded, not that of the floats
        else:
            _activated(net, type_, [net.input(0)], attributes, fuses=False)

    return pool


def _reshape(net: Network, operator: ModelOperator) -> None:
    if len(operator.inputs) > 1 and operator.inputs[1] >= 0:
        sizes = net.integers(1)
    else:
        sizes = net.option_sizes("NewShape")
    net.emit("Reshape", [net.input(0), net.numbers(net.with_batch(sizes, net.shape(0)))])


def _arithmetic(type_: str) -> Callable[[Network, ModelOperator], None]:
    return lambda net, _: _activated(net, type_, [net.input(0), net.input(1)], {})


def _unary(type_: str, **attributes: float | str) -> Callable[[Network, ModelOperator], None]:
    return lambda net, _: net.emit(type_, [net.input(0)], attributes)


def _binary(type_: str) -> Callable[[Network, ModelOperator], None]:
    return lambda net, _: net.emit(type_, [net.input(0), net.input(1)])


def _reduction(type_: str) -> Callable[[Network, ModelOperator], None]:
    def reduction(net: Network, operator: ModelOperator) -> None:
        keep = operator.integer("KeepDims", 0)
        net.emit(type_, [net.input(0), net.numbers(net.integers(1))], {"keepdims": keep})

    return reduction


def _softmax(net: Network, operator: ModelOperator) -> None:
    x, beta = net.input(0), operator.real("Beta", 1.0)
    if beta != 1.0:
        x = net.part("Mul", [x, net.scalar(beta)])
    net.emit("Softmax", [x], {"axis": -1})


def _pad(net: Network, operator: ModelOperator) -> None:
    pads = np.array(net.integers(1)).reshape(-1, 2)
    inputs = [net.input(0), net.numbers(pads.T.ravel().tolist())]
    if operator.code == "PADV2":
        inputs.append(net.input(2))
    if operator.options.get("Mode") == "SYMMETRIC":
        _mirrored(net, pads.tolist())
        return
    mode = "reflect" if operator.code == "MIRROR_PAD" else "constant"
    net.emit("Pad", inputs, {"mode": mode})


def _mirrored(net: Network, pads: list[list[int]]) -> None:
    """Mirrors the border with the edge repeated: positions that go back and forth gather each axis."""
    x = net.input(0)
    axes = [axis for axis, pair in enumerate(pads) if any(pair)]
    for axis in axes or [0]:
        places = np.pad(np.arange(net.shape(0)[axis]), pads[axis], "symmetric")
        inputs = [x, net.numbers(places.tolist())]
        if axis == (axes or [0])[-1]:
            net.emit("Gather", inputs, {"axis": axis})
        else:
            x = net.part("Gather", inputs, {"axis": axis})


def _squeeze(net: Network, operator: ModelOperator) -> None:
    axes = net.option_sizes("SqueezeDims") or [k for k, n in enumerate(net.file_shape(0)) if n == 1 and k]
    net.emit("Squeeze", [net.input(0), net.numbers(axes)])


def _slice(net: Network, _: ModelOperator) -> None:
    begin, sizes = net.integers(1), net.integers(2)
    ends = [net.shape(0)[k] if size < 0 else first + size
            for k, (first, size) in enumerate(zip(begin, sizes, strict=True))]  # fmt: skip
    if begin[0] == 0 and sizes[0] == net.file_shape(0)[0]:
        ends[0] = net.shape(0)[0]  # all of the file's batch: all of ours
    net.emit("Slice", [net.input(0), net.numbers(begin), net.numbers(ends)])


def _strided_slice(net: Network, operator: ModelOperator) -> None:
    shape = net.shape(0)
    taken = slices(operator, len(shape), [np.array(net.integers(k)) for k in (1, 2, 3)])
    if isinstance(taken[0], slice) and taken[0].stop == net.file_shape(0)[0]:
        taken = (slice(taken[0].start, None, taken[0].step), *taken[1:])
    begins, ends, steps, kept, sizes = [], [], [], [], iter(shape)
    for part in taken:
        if part is None:
            kept.append(1)
            continue
        size = next(sizes)
        if isinstance(part, slice):
            first, last, step = part.indices(size)
            kept.append(len(range(first, last, step)))
            last = last if last >= 0 else -size - 1  # before the first one
        else:
            first, step = part % size, 1
            last = first + 1
        begins.append(first)
        ends.append(last)
        steps.append(step)
    axes = net.numbers(range(len(shape)))
    inputs = [net.input(0), net.numbers(begins), net.numbers(ends), axes, net.numbers(steps)]
    if all(isinstance(part, slice) for part in taken):
        net.emit("Slice", inputs)
    elif kept:
        net.emit("Reshape", [net.part("Slice", inputs), net.numbers(kept)])
    else:
        net.emit("Squeeze", [net.part("Slice", inputs)])


def _concatenation(net: Network, operator: ModelOperator) -> None:
    inputs = [net.input(k) for k in range(len(operator.inputs))]
    _activated(net, "Concat", inputs, {"axis": operator.integer("Axis")}, fuses=False)


def _pack(net: Network, operator: ModelOperator) -> None:
    axis = operator.integer("Axis", 0)
    parts = [net.part("Unsqueeze", [net.input(k), net.numbers((axis,))]) for k in range(len(operator.inputs))]
    net.emit("Concat", parts, {"axis": axis})


def _unpack(net: Network, operator: ModelOperator) -> None:
    axis, count = operator.integer("Axis", 0), len(operator.outputs)
    parts = net.parts("Split", [net.input(0)], count, {"axis": axis, "num_outputs": count})
    for k, part in enumerate(parts):
        net.emit("Squeeze", [part, net.numbers((axis,))], output=k)


def _split(net: Network, operator: ModelOperator) -> None:
    (axis,) = net.integers(0)
    net.emit("Split", [net.input(1)], {"axis": axis, "num_outputs": len(operator.outputs)})


def _split_v(net: Network, _: ModelOperator) -> None:
    (axis,), sizes = net.integers(2), list(net.integers(1))
    if -1 in sizes:
        sizes[sizes.index(-1)] = net.shape(0)[axis] - (sum(sizes) + 1)
    net.emit("Split", [net.input(0), net.numbers(sizes)], {"axis": axis})


def _gather(net: Network, operator: ModelOperator) -> None:
    if operator.options.get("BatchDims"):
        raise Unsupported("gathers by batch (batch_dims)")
    table = net.weight(0) if net.is_constant(0) else net.input(0)
    net.emit("Gather", [table, net.input(1)], {"axis": operator.integer("Axis", 0)})


def _squared_difference(net: Network, _: ModelOperator) -> None:
    difference = net.part("Sub", [net.input(0), net.input(1)])
    net.emit("Mul", [difference, difference])


def _gelu(net: Network, operator: ModelOperator) -> None:
    approximate = "tanh" if operator.options.get("Approximate") else "none"
    net.emit("Gelu", [net.input(0)], {"approximate": approximate})


def _instance_norm(net: Network, operator: ModelOperator) -> None:
    attributes = {"data_layout": "NHWC", "epsilon": operator.real("Epsilon", 1e-5)}
    inputs = [net.input(0), net.weight(1), net.weight(2)]
    _activated(net, "InstanceNormalization", inputs, attributes, fuses=False)


def _batch_matmul(net: Network, operator: ModelOperator) -> None:
    def side(k: int, turned: bool) -> str:
        factor = net.weight(k) if net.is_constant(k) else net.input(k)
        if not turned:
            return factor
        axes = list(range(len(net.shape(k))))
        return net.part("Transpose", [factor], {"perm": (*axes[:-2], axes[-1], axes[-2])})

    options = operator.options
    left, right = side(0, bool(options.get("AdjointLhs"))), side(1, bool(options.get("AdjointRhs")))
    net.emit("MatMul", [left, right])


def _resize(mode: str) -> Callable[[Network, ModelOperator], None]:
    def resize(net: Network, operator: ModelOperator) -> None:
        batch, _, _, channels = net.shape(0)
        height, width = net.integers(1)
        how = "asymmetric"
        if operator.options.get("AlignCorners"):
            how = "align_corners"
        elif operator.options.get("HalfPixelCenters"):
            how = "half_pixel"
        attributes: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": how}
        if mode == "nearest":
            attributes["nearest_mode"] = "round_prefer_ceil" if how == "align_corners" else "floor"
        sizes = net.numbers((batch, height, width, channels))
        net.emit("Resize", [net.input(0), "", "", sizes], attributes)

    return resize


def _cast(net: Network, operator: ModelOperator) -> None:
    if net.is_complex(0):
        real_part(net, operator)
        return
    to = {"<f4": 1, "<f8": 11, "<i4": 6, "<i8": 7, "|u1": 2, "|b1": 9}.get(net.output_dtype())
    if to is None:
        raise Unsupported("casts to a type that graphs do not have")
    net.emit("Cast", [net.input(0)], {"to": to})


def _select(net: Network, _: ModelOperator) -> None:
    net.emit("Where", [net.input(k) for k in range(3)])


def _extreme(comparison: str) -> Callable[[Network, ModelOperator], None]:
    def extreme(net: Network, _: ModelOperator) -> None:
        a, b = net.input(0), net.input(1)
        net.emit("Where", [net.part(comparison, [a, b]), a, b])

    return extreme


def _reduce_min(net: Network, operator: ModelOperator) -> None:
    """The smallest is the largest with the other sign."""
    inputs = [net.part("Neg", [net.input(0)]), net.numbers(net.integers(1))]
    net.emit("Neg", [net.part("ReduceMax", inputs, {"keepdims": int(operator.integer("KeepDims", 0))})])


def _add_n(net: Network, operator: ModelOperator) -> None:
    x = net.input(0)
    for k in range(1, len(operator.inputs) - 1):
        x = net.part("Add", [x, net.input(k)])
    net.emit("Add", [x, net.input(len(operator.inputs) - 1)])


def _l2_normalised(net: Network, operator: ModelOperator) -> None:
    x = net.input(0)
    squares = net.part("ReduceSum", [net.part("Mul", [x, x]), net.numbers((-1,))], {"keepdims": 1})
    norm = net.part("Clip", [net.part("Sqrt", [squares])], {"min": 1e-6})
    _activated(net, "Div", [x, norm], {}, fuses=False)


def _reverse(net: Network, _: ModelOperator) -> None:
    axes = net.integers(1)
    bounds = ([-1] * len(axes), [-net.shape(0)[axis] - 1 for axis in axes], axes, [-1] * len(axes))
    net.emit("Slice", [net.input(0), *map(net.numbers, bounds)])


def _cumsum(net: Network, operator: ModelOperator) -> None:
    flags = {key.lower(): int(operator.integer(key, 0)) for key in ("Exclusive", "Reverse")}
    net.emit("CumSum", [net.input(0), net.numbers(net.integers(1))], flags)


def _tile(net: Network, _: ModelOperator) -> None:
    """[a, b] repeated (r, s) times is [r, a, s, b] of one copy each, seen as [ra, sb]."""
    shape, times = net.shape(0), net.integers(1)
    opened = net.part("Reshape", [net.input(0), net.numbers([n for size in shape for n in (1, size)])])
    wide = [n for pair in zip(times, shape, strict=True) for n in pair]
    copied = net.part("Expand", [opened, net.numbers(wide)])
    net.emit("Reshape", [copied, net.numbers([r * size for r, size in zip(times, shape, strict=True)])])


def _rearranged(
    net: Network, x: str, apart: Iterable[int], perm: Sequence[int], shape: Iterable[int]
) -> None:
    moved = net.part("Transpose", [net.part("Reshape", [x, net.numbers(apart)])], {"perm": tuple(perm)})
    net.emit("Reshape", [moved, net.numbers(shape)])


def _space_to_depth(net: Network, operator: ModelOperator) -> None:
    (n, h, w, c), b = net.shape(0), operator.integer("BlockSize")
    _rearranged(
        net, net.input(0), (n, h // b, b, w // b, b, c), (0, 1, 3, 2, 4, 5), (n, h // b, w // b, c * b * b)
    )


def _depth_to_space(net: Network, operator: ModelOperator) -> None:
    (n, h, w, c), b = net.shape(0), operator.integer("BlockSize")
    rest = c // (b * b)
    _rearranged(net, net.input(0), (n, h, w, b, b, rest), (0, 1, 3, 2, 4, 5), (n, h * b, w * b, rest))


def _space_to_batch(net: Network, _: ModelOperator) -> None:
    """Makes an image of every b-th row and column; Keras writes dilated convolutions that way."""
    blocks, pads = net.integers(1), np.array(net.integers(2)).reshape(-1, 2)
    n, *space = net.shape(0)
    space, rest = space[: len(blocks)], space[len(blocks) :]
    x = net.input(0)
    if pads.any():
        whole = np.zeros((2, 1 + len(space) + len(rest)), np.int64)
        whole[:, 1 : 1 + len(space)] = pads.T
        x = net.part("Pad", [x, net.numbers(whole.ravel().tolist())])
        space = [size + sum(pair) for size, pair in zip(space, pads.tolist(), strict=True)]
    cut = [size // block for size, block in zip(space, blocks, strict=True)]
    apart = [n, *(k for pair in zip(cut, blocks, strict=True) for k in pair), *rest]
    outer = [2 * k + 2 for k in range(len(blocks))]
    perm = [*outer, 0, *(k - 1 for k in outer), *range(len(apart) - len(rest), len(apart))]
    _rearranged(net, x, apart, perm, (n * int(np.prod(blocks)), *cut, *rest))


def _batch_to_space(net: Network, _: ModelOperator) -> None:
    blocks, crops = net.integers(1), np.array(net.integers(2)).reshape(-1, 2).tolist()
    batch, *space = net.shape(0)
    space, rest = space[: len(blocks)], space[len(blocks) :]
    n, count = batch // int(np.prod(blocks)), len(blocks)
    whole = [size * block for size, block in zip(space, blocks, strict=True)]
    pairs = [axis for k in range(count) for axis in (count + 1 + k, k)]
    perm = (count, *pairs, *range(2 * count + 1, 2 * count + 1 + len(rest)))
    x = net.part("Reshape", [net.input(0), net.numbers((*blocks, n, *space, *rest))])
    x = net.part("Transpose", [x], {"perm": perm})
    x = net.part("Reshape", [x, net.numbers((n, *whole, *rest))])
    begins = [first for first, _ in crops]
    ends = [size - last for size, (_, last) in zip(whole, crops, strict=True)]
    net.emit("Slice", [x, net.numbers(begins), net.numbers(ends), net.numbers(range(1, count + 1))])


# ---------------------------------------------------------------------------------- the LSTM over a sequence

LSTM: Final = "UNIDIRECTIONAL_SEQUENCE_LSTM"

#: Inputs by gate.
_INPUT: Final[Mapping[str, int]] = {"i": 1, "f": 2, "c": 3, "o": 4}
_RECURRENT: Final[Mapping[str, int]] = {"i": 5, "f": 6, "c": 7, "o": 8}
_PEEPHOLE: Final[Mapping[str, int]] = {"i": 9, "f": 10, "o": 11}
_BIAS: Final[Mapping[str, int]] = {"i": 12, "f": 13, "c": 14, "o": 15}
_PROJECTION, _PROJECTION_BIAS = 16, 17
_NORMALISED: Final[Mapping[str, int]] = {"i": 20, "f": 21, "c": 22, "o": 23}
#: The gates in the order of the graph's LSTM.
_ORDER: Final = "iofc"
#: The number that the format adds to a variance.
_VARIANCE_EPSILON: Final = 1e-8

#: Activations of the cell state.
_ACTIVATIONS: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {
    "TANH": ("Tanh", {}),
    "RELU": ("Relu", {}),
    "RELU6": ("Clip", {"min": 0.0, "max": 6.0}),
    "RELU_N1_TO_1": ("Clip", {"min": -1.0, "max": 1.0}),
}


def unidirectional_lstm(net: Network, operator: ModelOperator) -> None:
    """The output at each step in time, [batch, time, outputs], or with the time in front as the input.

        inputs 1-4    weights of the input to the gates i, f, c, o    9-11   peepholes of i, f, o
        inputs 5-8    weights of the output before to the gates       12-15  biases
        inputs 16-17  projection of the output, and its bias          20-23  scales of layer normalisations

    Without the weights of the gate i, it is 1 - f (CIFG). A plain layer becomes the graph's own LSTM, and any
    other one operations: for each step in time the gates, the cell state and the output. States begin at
    zero.
    """
    activation = operator.word("FusedActivationFunction", "NONE")
    if activation not in ("NONE", *_ACTIVATIONS):
        raise Unsupported(f"has the activation {activation}")
    if operator.options.get("DiagonalRecurrentTensors"):
        raise Unsupported("has diagonal recurrent weights")
    cell_clip, output_clip = operator.real("CellClip", 0.0), operator.real("ProjClip", 0.0)
    plain = net.has_input(_INPUT["i"]) and activation == "TANH" and not cell_clip
    if plain and not any(map(net.has_input, (_PROJECTION, *_NORMALISED.values()))):
        _plain(net, time_major=bool(operator.integer("TimeMajor", 0)))
    else:
        _Unrolled(net, activation, cell_clip, output_clip).emit(bool(operator.integer("TimeMajor", 0)))


def _plain(net: Network, *, time_major: bool) -> None:
    x = net.input(0)
    inputs = [x, *(_joined(net, [places[gate] for gate in _ORDER]) for places in (_INPUT, _RECURRENT, _BIAS))]
    if net.has_input(_PEEPHOLE["o"]):
        inputs += ["", "", "", _joined(net, [_PEEPHOLE[gate] for gate in "iof"])]
    (states,) = net.parts("LSTM", inputs, 1, {"layout": 0 if time_major else 1})
    net.emit("Squeeze", [states, net.numbers((1 if time_major else 2,))])


def _joined(net: Network, positions: Sequence[int]) -> str:
    """Weights of all gates, one below the other."""
    return net.part("Concat", [net.weight(position) for position in positions], {"axis": 0})


class _Unrolled:
    """Makes the operations of one layer; lives for one call of `unidirectional_lstm`."""

    def __init__(self, net: Network, activation: str, cell_clip: float, output_clip: float) -> None:
        self.net = net
        self.activation = activation
        self.cell_clip, self.output_clip = cell_clip, output_clip
        self.gates = "ifco" if net.has_input(_INPUT["i"]) else "fco"

    def emit(self, time_major: bool) -> None:
        net, axis = self.net, 0 if time_major else 1
        steps = net.shape(0)[axis]
        pieces = [net.input(0)]
        if steps > 1:
            pieces = net.parts("Split", [net.input(0)], steps, {"axis": axis, "num_outputs": steps})
        output, cell, outputs = "", "", []
        for piece in pieces:
            x = net.part("Squeeze", [piece, net.numbers((axis,))])
            output, cell = self._step(x, output, cell)
            outputs.append(net.part("Unsqueeze", [output, net.numbers((axis,))]))
        net.emit("Concat", outputs, {"axis": axis})

    def _step(self, x: str, output: str, cell: str) -> tuple[str, str]:
        """Output and cell state after a step; "" stands for those before the first, which are zero."""
        net = self.net
        gates = {gate: self._gate(gate, x, output, cell) for gate in self.gates if gate != "o"}
        if "i" not in gates:
            gates["i"] = net.part("Sub", [net.scalar(1.0), gates["f"]])
        state = net.part("Mul", [gates["i"], gates["c"]])
        if cell:
            state = net.part("Add", [net.part("Mul", [gates["f"], cell]), state])
        state = self._clipped(state, self.cell_clip)
        gate = self._gate("o", x, output, state)
        result = net.part("Mul", [gate, self._activated(state)])
        if net.has_input(_PROJECTION):
            factors = [result, net.weight(_PROJECTION), *net.bias(_PROJECTION_BIAS)]
            result = self._clipped(net.part("Gemm", factors, {"transB": 1}), self.output_clip)
        return result, state

    def _gate(self, gate: str, x: str, output: str, cell: str) -> str:
        """A gate: a function of the input, the previous output and, through peepholes, the cell state."""
        net, is_normalised = self.net, self.net.has_input(_NORMALISED[gate])
        bias = net.bias(_BIAS[gate])
        total = net.part(
            "Gemm", [x, net.weight(_INPUT[gate]), *(() if is_normalised else bias)], {"transB": 1}
        )
        if output:
            product = net.part("Gemm", [output, net.weight(_RECURRENT[gate])], {"transB": 1})
            total = net.part("Add", [total, product])
        if cell and gate in _PEEPHOLE and net.has_input(_PEEPHOLE[gate]):
            total = net.part("Add", [total, net.part("Mul", [cell, net.weight(_PEEPHOLE[gate])])])
        if is_normalised:
            weights = [net.weight(_NORMALISED[gate]), *bias]
            total = net.part(
                "LayerNormalization", [total, *weights], {"axis": -1, "epsilon": _VARIANCE_EPSILON}
            )
        return self._activated(total) if gate == "c" else net.part("Sigmoid", [total])

    def _activated(self, value: str) -> str:
        if self.activation == "NONE":
            return value
        type_, limits = _ACTIVATIONS[self.activation]
        return self.net.part(type_, [value], limits)

    def _clipped(self, value: str, limit: float) -> str:
        return self.net.part("Clip", [value], {"min": -limit, "max": limit}) if limit > 0 else value


# ---------------------------------------------------------------------------------------- Fourier transforms

#: Elements of the table of cosines; longer transforms are for a fast algorithm.
MAX_TABLE_ELEMENTS: Final = 2**24


def real_transform(net: Network, operator: ModelOperator) -> None:
    """RFFT2D along the last axis: of n values, cut or filled up with zeros, n // 2 + 1 complex ones.

    It is a product with cosines and one with sines. A complex tensor is a pair of operands, its real and its
    imaginary part; `Network.add` moves both.
    """
    rows, length = net.integers(1)
    shape = net.shape(0)
    if rows != 1 or shape[-2] != 1:
        raise Unsupported("transforms two axes")
    x, width, count = net.input(0), min(length, shape[-1]), length // 2 + 1
    if length < 1 or width * count > MAX_TABLE_ELEMENTS:
        raise Unsupported(f"transforms {length:,} elements, for which a table of cosines is too large")
    if width < shape[-1]:
        x = net.part("Slice", [x, *map(net.numbers, ([0], [width], [len(shape) - 1]))])
    angles = np.outer(np.arange(width), np.arange(count)) % length * (2 * math.pi / length)
    parts = [net.part("MatMul", [x, net.table(wave)]) for wave in (np.cos(angles), -np.sin(angles))]
    net.set_complex(operator.outputs[0], (parts[0], parts[1]))


def real_part(net: Network, _: ModelOperator) -> None:
    _as_output(net, net.complex(0)[0])


def imaginary_part(net: Network, _: ModelOperator) -> None:
    _as_output(net, net.complex(0)[1])


def _as_output(net: Network, part: str) -> None:
    """The operator's output, under its own name, is the operand `part`."""
    net.emit("Reshape", [part, net.numbers(net.types[part].type.shape)])


def complex_absolute(net: Network, _: ModelOperator) -> None:
    squares = [net.part("Mul", [part, part]) for part in net.complex(0)]
    net.emit("Sqrt", [net.part("Add", squares)])


#: By the schema's name. What is not here is refused, all of it at once.
OPERATORS: Final[Mapping[str, Callable[[Network, ModelOperator], None]]] = {
    "ABS": _unary("Abs"),
    "ADD": _arithmetic("Add"),
    "ADD_N": _add_n,
    "AVERAGE_POOL_2D": _pool("AveragePool"),
    "BATCH_MATMUL": _batch_matmul,
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_TO": lambda net, _: net.emit(
        "Expand", [net.input(0), net.numbers(net.with_batch(net.integers(1), net.shape(0)))]
    ),
    "CAST": _cast,
    "CEIL": _unary("Ceil"),
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolution,
    TRANSPOSE_BIAS: _transposed_with_bias,
    "COMPLEX_ABS": complex_absolute,
    "COS": _unary("Cos"),
    "CUMSUM": _cumsum,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEQUANTIZE": lambda net, _: net.dequantize(),
    "DEPTH_TO_SPACE": _depth_to_space,
    "DIV": _arithmetic("Div"),
    "ELU": _unary("Elu"),
    "EMBEDDING_LOOKUP": lambda net, _: net.emit("Gather", [net.weight(1), net.input(0)], {"axis": 0}),
    "EQUAL": _binary("Equal"),
    "EXP": _unary("Exp"),
    "EXPAND_DIMS": lambda net, _: net.emit("Unsqueeze", [net.input(0), net.numbers(net.integers(1))]),
    "FILL": lambda net, _: net.emit("Expand", [net.input(1), net.numbers(net.integers(0))]),
    "FLOOR": _unary("Floor"),
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "GELU": _gelu,
    "GREATER": _binary("Greater"),
    "GREATER_EQUAL": _binary("GreaterOrEqual"),
    "HARD_SWISH": _unary("HardSwish"),
    "IMAG": imaginary_part,
    "INSTANCE_NORM": _instance_norm,
    "L2_NORMALIZATION": _l2_normalised,
    "LEAKY_RELU": lambda net, operator: net.emit(
        "LeakyRelu", [net.input(0)], {"alpha": operator.real("Alpha", 0.0)}
    ),
    "LESS": _binary("Less"),
    "LESS_EQUAL": _binary("LessOrEqual"),
    "LOG": _unary("Log"),
    "LOGICAL_AND": _binary("And"),
    "LOGICAL_NOT": _unary("Not"),
    "LOGICAL_OR": _binary("Or"),
    "LOGISTIC": _unary("Sigmoid"),
    "LOG_SOFTMAX": _unary("LogSoftmax", axis=-1),
    "MAXIMUM": _extreme("Greater"),
    "MAX_POOL_2D": _pool("MaxPool"),
    "MEAN": _reduction("ReduceMean"),
    "MINIMUM": _extreme("Less"),
    "MIRROR_PAD": _pad,
    "MUL": _arithmetic("Mul"),
    "NEG": _unary("Neg"),
    "NOT_EQUAL": lambda net, _: net.emit("Not", [net.part("Equal", [net.input(0), net.input(1)])]),
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "POW": _binary("Pow"),
    "PRELU": lambda net, _: net.emit("PRelu", [net.input(0), net.weight(1)]),
    "REAL": real_part,
    "REDUCE_MAX": _reduction("ReduceMax"),
    "REDUCE_MIN": _reduce_min,
    "QUANTIZE": lambda net, operator: net.quantize(net.input(0), operator.outputs[0]),
    "RELU": _unary("Relu"),
    "RELU6": _unary("Clip", min=0.0, max=6.0),
    "RELU_0_TO_1": _unary("Clip", min=0.0, max=1.0),
    "RELU_N1_TO_1": _unary("Clip", min=-1.0, max=1.0),
    "RESHAPE": _reshape,
    "RESIZE_BILINEAR": _resize("linear"),
    "RESIZE_NEAREST_NEIGHBOR": _resize("nearest"),
    "REVERSE_V2": _reverse,
    "RFFT2D": real_transform,
    "ROUND": _unary("Round"),
    "RSQRT": lambda net, _: net.emit("Reciprocal", [net.part("Sqrt", [net.input(0)])]),
    "SELECT": _select,
    "SELECT_V2": _select,
    "SIGN": _unary("Sign"),
    "SIN": _unary("Sin"),
    "SLICE": _slice,
    "SOFTMAX": _softmax,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": _space_to_depth,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQRT": _unary("Sqrt"),
    "SQUARE": lambda net, _: net.emit("Mul", [net.input(0), net.input(0)]),
    "SQUARED_DIFFERENCE": _squared_difference,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "SUB": _arithmetic("Sub"),
    "SUM": _reduction("ReduceSum"),
    "TANH": _unary("Tanh"),
    "TILE": _tile,
    "TRANSPOSE": lambda net, _: net.emit("Transpose", [net.input(0)], {"perm": tuple(net.integers(1))}),
    "TRANSPOSE_CONV": _transposed,
    LSTM: unidirectional_lstm,
    "UNPACK": _unpack,
}
