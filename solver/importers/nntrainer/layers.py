"""Layer sections of nntrainer's model files as operations: one function a type, shapes followed on the way.

Activations are NCHW. What nntrainer calls 1:1:w is a matrix here unless a convolution or a pooling reads
it. Weights have their outputs in front: [filters, channels, height, width] and [units, inputs].
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from solver.graph import AttributeValue, Role
from solver.importers.nntrainer.ini import Section
from solver.importers.nntrainer.network import (
    WEIGHT_KEYS,
    Network,
    Value,
    check_penalties,
    only_input,
    parameter,
    weights,
)
from solver.importers.nntrainer.sequences import (
    CELL_KEYS,
    EMBEDDING_KEYS,
    RECURRENT_KEYS,
    cell,
    embedding,
    recurrent,
    reshaped,
)

__all__ = ["BRANCHES", "LAYER_TYPES", "LOSS_LAYERS", "SPATIAL", "add_layer"]


_Builder = Callable[[Network, Section, Sequence[Value], str], Value]

_COMMON: Final = frozenset(
    {"type", "input_layers", "input_shape", "activation", "flatten", "trainable", "clip_grad_by_norm"}
)
_WINDOW: Final = frozenset({"stride", "padding"})
#: Keys of preparations of the data that happen in place, in the layer that reads them.
_PREPARED: Final = frozenset({"normalization", "standardization"})
#: Initial values of the running statistics, of scale and shift.
_STATISTICS: Final = (
    ("mean", "moving_mean_initializer", "zeros"),
    ("variance", "moving_variance_initializer", "ones"),
)
_AFFINE: Final = (("gamma", "gamma_initializer", "ones"), ("beta", "beta_initializer", "zeros"))

_KEYS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        # The last two mean nothing for an input, and files have them all the same.
        "input": _PREPARED | {"bias_initializer", "bias_init_zero"},
        "fully_connected": WEIGHT_KEYS | _PREPARED | {"unit"},
        "conv2d": WEIGHT_KEYS | _WINDOW | _PREPARED | {"filters", "kernel_size", "dilation"},
        "pooling2d": _WINDOW | {"pooling", "pool_size"},
        "batch_normalization": frozenset(
            {"epsilon", "momentum", "axis", "weight_decay", "bias_decay", "weight_regularizer_constant"}
        ).union(key for _, key, _ in (*_STATISTICS, *_AFFINE)),
        "lstm": RECURRENT_KEYS | {"recurrent_activation", "bidirectional"},
        "gru": RECURRENT_KEYS | {"recurrent_activation", "reset_after"},
        "rnn": RECURRENT_KEYS,
        "lstmcell": CELL_KEYS | {"recurrent_activation"},
        "grucell": CELL_KEYS | {"recurrent_activation", "reset_after"},
        "rnncell": CELL_KEYS,
        "embedding": EMBEDDING_KEYS,
        "dropout": frozenset({"dropout_rate"}),
        "activation": frozenset(),
        "flatten": frozenset(),
        "addition": frozenset(),
        "concat": frozenset({"axis"}),
        "split": frozenset({"axis", "split_dimension", "split_number"}),
        "multiout": frozenset(),
        "output": frozenset(),
    }
)

_ACTIVATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "none": "None",
        "relu": "Relu",
        "sigmoid": "Sigmoid",
        "tanh": "Tanh",
        "softmax": "Softmax",
        "leaky_relu": "LeakyRelu",
        "elu": "Elu",
        "swish": "Swish",
        "gelu": "Gelu",
    }
)
#: Activations that a convolution or a fully connected layer applies to its own output.
_FUSED: Final = frozenset({"Relu", "Sigmoid", "Tanh"})
_WEIGHTED: Final = frozenset({"fully_connected", "conv2d"})
#: Types all of whose outputs are their input.
BRANCHES: Final = frozenset({"multiout", "output"})
#: Types that read images.
SPATIAL: Final = frozenset({"conv2d", "pooling2d"})
#: Losses that are layers of their own, and what they are called in [Model].
LOSS_LAYERS: Final[Mapping[str, str]] = MappingProxyType({"mse": "mse", "cross_softmax": "cross"})


def _activation(section: Section) -> str:
    return _ACTIVATIONS[section.choice("activation", _ACTIVATIONS, "none")]


def _image(section: Section, inputs: Sequence[Value]) -> Value:
    value = only_input(section, inputs)
    if len(value.shape) != 4:
        section.fail("type", "reads images, but its input is flat", "Put it before the flatten layer.")
    return value


# ------------------------------------------------------------------------------------------ layers


def _fully_connected(network: Network, section: Section, inputs: Sequence[Value], activation: str) -> Value:
    """The product with each row; 1:t:f is t rows for each example."""
    value = only_input(section, inputs)
    if len(value.shape) == 4 and value.shape[1] > 1:
        section.fail("type", "reads an image", "Put a flatten layer before it.")
    units = section.integer("unit", least=1)
    *outer, width = value.shape
    rows = value
    if len(outer) > 1:
        rows = reshaped(network, section, value.name, (math.prod(outer), width), "rows")
    own = weights(network, section, (units, width))
    attributes: dict[str, AttributeValue] = {"transB": 1, "activation": activation}
    product = network.emit(section, "Gemm", [rows.name, *own], (rows.shape[0], units), attributes)
    return product if rows is value else reshaped(network, section, product.name, (*outer, units), "steps")


def _conv2d(network: Network, section: Section, inputs: Sequence[Value], activation: str) -> Value:
    value = _image(section, inputs)
    filters, kernel = section.integer("filters", least=1), section.pair("kernel_size")
    stride, dilation = section.pair("stride", (1, 1)), section.pair("dilation", (1, 1))
    padding, sides = _window(section, value.shape[2:], kernel, stride, dilation)
    own = weights(network, section, (filters, value.shape[1], *kernel))
    return network.emit(
        section,
        "Conv",
        [value.name, *own],
        (value.shape[0], filters, *sides),
        {
            "kernel_shape": kernel,
            "strides": stride,
            "dilations": dilation,
            "activation": activation,
            **padding,
        },
    )


def _pooling2d(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    value = _image(section, inputs)
    kind = section.choice("pooling", ("max", "average", "global_max", "global_average"))
    if kind.startswith("global"):
        for key in ("pool_size", "stride", "padding"):
            if key in section:
                section.fail(key, "has no meaning for a global pooling", "Leave it out.")
    size = value.shape[2:] if kind.startswith("global") else section.pair("pool_size")
    kernel = (size[0], size[1])
    stride = section.pair("stride", (1, 1))
    padding, sides = _window(section, value.shape[2:], kernel, stride, (1, 1))
    return network.emit(
        section,
        "MaxPool" if kind.endswith("max") else "AveragePool",
        [value.name],
        (*value.shape[:2], *sides),
        {"kernel_shape": kernel, "strides": stride, **padding},
    )


def _window(
    section: Section,
    sides: Sequence[int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[dict[str, AttributeValue], tuple[int, ...]]:
    """Padding as an attribute, and height and width of the output."""
    if section.word("padding") == "same":
        return {"auto_pad": "SAME_UPPER"}, tuple(-(-n // s) for n, s in zip(sides, stride, strict=True))
    pads = (0, 0, 0, 0)
    if section.word("padding", "valid") != "valid":
        pads = _pads(section.integers("padding", (1, 2, 4)))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    free = [sides[i] + pads[i] + pads[i + 2] - reach[i] for i in range(2)]
    if min(free) < 0:
        what = f"leaves {sides[0]}x{sides[1]} too small for a window of {reach[0]}x{reach[1]}"
        section.fail("padding", what, "Pad more, or make the window smaller.")
    return {"pads": pads}, tuple(room // step + 1 for room, step in zip(free, stride, strict=True))


def _pads(values: Sequence[int]) -> tuple[int, int, int, int]:
    """From all sides, (vertical, horizontal) or (top, bottom, left, right) to (top, left, bottom, right)."""
    if len(values) == 4:
        return values[0], values[2], values[1], values[3]
    return values[0], values[-1], values[0], values[-1]


def _input(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    for key in sorted(_PREPARED):
        if section.flag(key, default=False):
            what = f"{section.place(key)}: {key} of {section.name!r:.60} is not part of the plan"
            network.notes.append(f"{what}, because nntrainer does it in place to the data: {_DATA[key]}.")
    return only_input(section, inputs)


#: Key of an input layer -> the preparation that the caller has to do instead.
_DATA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "normalization": "feed a batch less its smallest element, divided by its largest then",
        "standardization": "feed each example less its mean, divided by its norm then over its elements",
    }
)


def _batch_normalization(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    """Over the channels of images, the columns of matrices, with statistics of the batch, also where frozen.

    Where nothing is said nntrainer takes images of one channel apart by columns, which is refused.
    """
    value = only_input(section, inputs)
    usual = 1 if len(value.shape) == 4 else 3
    default = usual if len(value.shape) == 2 or value.shape[1] > 1 else 3
    if section.integer("axis", default) != usual:
        what = f"is {section.integer('axis', default)}, for an input of shape {list(value.shape)}"
        section.fail("axis", what, f"Only axis {usual} is normalised here; say axis = {usual}.")
    check_penalties(section)
    shape = value.shape[1:2]
    affine = [parameter(network, section, *what, shape=shape, fans=shape) for what in _AFFINE]
    running = [
        parameter(network, section, *what, shape=shape, fans=shape, role=Role.STATE) for what in _STATISTICS
    ]
    attributes: dict[str, AttributeValue] = {
        "epsilon": section.number("epsilon") if "epsilon" in section else 1e-3,
        "momentum": section.number("momentum") if "momentum" in section else 0.99,
        "training_mode": 1,
    }
    names = [value.name, *affine, *running]
    return network.emit(section, "BatchNormalization", names, value.shape, attributes)


def _dropout(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    value = only_input(section, inputs)
    rate = section.number("dropout_rate") if "dropout_rate" in section else 0.0
    if not 0 <= rate < 1:
        section.fail("dropout_rate", f"is {rate}", "Choose a number from 0 to below 1.")
    attributes: dict[str, AttributeValue] = {"ratio": rate, "seed": zlib.crc32(section.name.encode())}
    return network.emit(section, "Dropout", [value.name], value.shape, attributes)


def _activation_layer(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    value = only_input(section, inputs)
    activation = _activation(section)
    if activation == "None":
        section.fail("activation", "is missing", f"Choose one of {', '.join(_ACTIVATIONS)}.")
    return network.emit(section, activation, [value.name], value.shape)


def _flatten(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    return _flattened(network, section, only_input(section, inputs), section.name)


def _flattened(network: Network, section: Section, value: Value, name: str) -> Value:
    shape = (value.shape[0], math.prod(value.shape[1:]))
    return network.emit(section, "Flatten", [value.name], shape, name=name)


def _addition(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    """A sum of n layers is a chain of n - 1 additions."""
    if len(inputs) < 2:
        section.fail("input_layers", f"names {len(inputs)} layers", "An addition has two inputs at least.")
    if len({value.shape for value in inputs}) > 1:
        section.fail("input_layers", "names layers of different shapes", "Give them one shape.")
    total = inputs[0]
    for k, value in enumerate(inputs[1:], 2):
        name = section.name if k == len(inputs) else f"{section.name}.{k}"
        total = network.emit(section, "Add", [total.name, value.name], value.shape, name=name)
    return total


def _concat(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    """Axes count N, C, H, W; a matrix has its columns at 3. Channels are joined where nothing is said."""
    rank = len(inputs[0].shape)
    axis = section.integer("axis", 1 if rank == 4 else 3, least=1)
    if axis not in ((1, 2, 3) if rank == 4 else (3,)):
        section.fail("axis", f"is {axis}", "Choose 1, 2 or 3 for images, 3 for flat inputs.")
    axis = axis if rank == 4 else 1
    rests = {(value.shape[:axis], value.shape[axis + 1 :]) for value in inputs}
    if len(rests) > 1:
        section.fail("input_layers", "names layers that differ beside the axis", "Give them one shape.")
    shape = inputs[0].shape
    joined = (*shape[:axis], sum(value.shape[axis] for value in inputs), *shape[axis + 1 :])
    return network.emit(section, "Concat", [value.name for value in inputs], joined, {"axis": axis})


def _split(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    """Equal parts along an axis, each of them an output: one of every position, or `split_number`.

    Axes count N, C, H, W; a matrix has its columns at 3.
    """
    value = only_input(section, inputs)
    key = "split_dimension" if "split_dimension" in section else "axis"
    axis, rank = section.integer(key, least=1), len(value.shape)
    if axis not in ((1, 2, 3) if rank == 4 else (3,)):
        section.fail(key, f"is {axis}", "Choose 1, 2 or 3 for images, 3 for flat inputs.")
    axis = axis if rank == 4 else 1
    count = section.integer("split_number", value.shape[axis], least=1)
    if value.shape[axis] % count:
        what = f"is {count}, and the axis has {value.shape[axis]} positions"
        section.fail("split_number", what, "Choose a number that divides them.")
    shape = (*value.shape[:axis], value.shape[axis] // count, *value.shape[axis + 1 :])
    if count == 1:
        return value
    further = [f"{section.name}.out{k}" for k in range(1, count)]
    attributes: dict[str, AttributeValue] = {"axis": axis, "num_outputs": count}
    return network.emit(section, "Split", [value.name], shape, attributes, further=further)


def _pass_on(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    """Several readers need no layer of their own in a graph."""
    return only_input(section, inputs)


_BUILDERS: Final[Mapping[str, _Builder]] = MappingProxyType(
    {
        "input": _input,
        "fully_connected": _fully_connected,
        "conv2d": _conv2d,
        "pooling2d": _pooling2d,
        "batch_normalization": _batch_normalization,
        "lstm": recurrent("LSTM", 4),
        "gru": recurrent("GRU", 3),
        "rnn": recurrent("RNN", 1),
        "lstmcell": cell("LSTM", 4),
        "grucell": cell("GRU", 3),
        "rnncell": cell("RNN", 1),
        "embedding": embedding,
        "dropout": _dropout,
        "activation": _activation_layer,
        "flatten": _flatten,
        "addition": _addition,
        "concat": _concat,
        "split": _split,
        "multiout": _pass_on,
        "output": _pass_on,
    }
)

LAYER_TYPES: Final = tuple(_BUILDERS)


def add_layer(
    network: Network, section: Section, type_: str, inputs: Sequence[Value], *, fuses: bool = True
) -> Value:
    """The layer of a section, then its activation, then its flattening.

    `fuses`: whether an activation may become an attribute of the operation before it.
    """
    section.check_keys(_KEYS[type_] | _COMMON)
    for key in sorted(_PREPARED):
        if type_ != "input" and section.flag(key, default=False):
            section.fail(key, "is done by input layers alone", "Put a layer of type input before it.")
    if any(value.is_index for value in inputs) and type_ not in ("input", "embedding"):
        section.fail(
            "type", "reads indices, as an embedding does", "Let an input be read by one kind of layer."
        )
    activation = _activation(section)
    fused = fuses and activation in _FUSED and type_ in _WEIGHTED
    value = _BUILDERS[type_](network, section, inputs, activation if fused else "None")
    further = value.further
    if activation != "None" and not fused and type_ != "activation":
        name = f"{section.name}.activation"
        value = network.emit(section, activation, [value.name], value.shape, name=name)
    if section.flag("flatten", default=False) and type_ != "flatten":
        value = _flattened(network, section, value, f"{section.name}.flatten")
    return replace(value, further=further)
