"""Layer sections of nntrainer's model files as operations: one function a type, shapes followed on the way.

Activations are NCHW. What nntrainer calls 1:1:w is a matrix here unless a convolution or a pooling reads
it. Weights have their outputs in front: [filters, channels, height, width] and [units, inputs].

What nntrainer calls 1:t:f is a sequence of t steps with f features, an image of one channel for other layers;
a matrix is a sequence of a single step. Gates lie in our operators' order, which decides nothing before
weights are loaded.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from solver.graph import AttributeValue, DeclaredOperand, DType, Initializer, Operation, Role
from solver.importers.nntrainer.ini import Section

__all__ = [
    "BRANCHES",
    "CELL_KEYS",
    "EMBEDDING_KEYS",
    "LAYER_TYPES",
    "LOSS_LAYERS",
    "RECURRENT_KEYS",
    "SPATIAL",
    "WEIGHT_KEYS",
    "Network",
    "Value",
    "add_layer",
    "cell",
    "check_penalties",
    "embedding",
    "only_input",
    "parameter",
    "recurrent",
    "reshaped",
    "weights",
]

#: Keys of layers with weights.
WEIGHT_KEYS: Final = frozenset(
    {
        "weight_initializer",
        "bias_initializer",
        "bias_init_zero",
        "disable_bias",
        "weight_regularizer",
        "weight_regularizer_constant",
        "weight_decay",
        "bias_decay",
    }
)


@dataclass(frozen=True, slots=True)
class Value:
    """The output of a layer; `type` is the operator that defined it, or its fused activation.

    `is_index` where the elements are integers, which only an embedding reads. `further` are the layer's
    other outputs.
    """

    name: str
    shape: tuple[int, ...]
    type: str = ""
    is_index: bool = False
    further: tuple[Value, ...] = ()


def only_input(section: Section, inputs: Sequence[Value]) -> Value:
    """The input of a layer that has one."""
    if len(inputs) != 1:
        section.fail("input_layers", f"names {len(inputs)} layers", "This type has one input.")
    return inputs[0]


@dataclass(slots=True)
class Network:
    """The graph so far. `owners` names the section of each operation.

    `trained` are the sections with weights that are trained, `notes` what the caller should know.
    """

    batch: int
    operands: list[DeclaredOperand] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    trained: dict[str, Section] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def declare(
        self,
        section: Section,
        name: str,
        role: Role,
        shape: Sequence[int],
        initializer: Initializer | None = None,
        *,
        trainable: bool = True,
        dtype: DType = DType.FLOAT32,
    ) -> str:
        self.operands.append(
            DeclaredOperand(name, role, tuple(shape), dtype, initializer, trainable, path=(section.name,))
        )
        if role is Role.PARAMETER and trainable:
            self.trained[section.name] = section
        return name

    def emit(
        self,
        section: Section,
        type_: str,
        inputs: Sequence[str],
        shape: tuple[int, ...],
        attributes: Mapping[str, AttributeValue] | None = None,
        *,
        name: str = "",
        skipped: int = 0,
        further: Sequence[str] = (),
    ) -> Value:
        """Add an operation called `name`, or like its section.

        Its first outputs may be `skipped`; `further` ones have the same shape.
        """
        name, attributes = name or section.name, attributes or {}
        output = f"{name}.out"
        outputs = (*[""] * skipped, output, *further)
        self.operations.append(Operation(name, type_, tuple(inputs), outputs, attributes))
        self.owners.append(section.name)
        others = tuple(Value(other, shape, type_) for other in further)
        return Value(output, shape, str(attributes.get("activation", type_)), further=others)


def weights(network: Network, section: Section, shape: tuple[int, ...]) -> list[str]:
    """Weight and bias of a layer, whose outputs are the first axis."""
    check_penalties(section)
    names = [
        parameter(network, section, "weight", "weight_initializer", "xavier_uniform", shape=shape, fans=shape)
    ]
    if not section.flag("disable_bias", default=False):
        default = "zeros" if section.flag("bias_init_zero", default=True) else "xavier_uniform"
        names.append(
            parameter(network, section, "bias", "bias_initializer", default, shape=shape[:1], fans=shape)
        )
    return names


def check_penalties(section: Section) -> None:
    """Regularisers have no place in a graph: they are refused."""
    for key in ("weight_regularizer", "weight_decay", "bias_decay"):
        if section.word(key, "none") != "none" and _constant(section) != 0:
            remedy = "Leave it out: it takes no memory. The weight_decay of the optimizer does much the same."
            section.fail(key, "penalises weights, which a graph cannot say", remedy)


def parameter(
    network: Network,
    section: Section,
    what: str,
    key: str,
    default: str,
    *,
    shape: Sequence[int],
    fans: tuple[int, ...],
    role: Role = Role.PARAMETER,
) -> str:
    """Declare a weight of a layer, initialised as `key` says, with the fans of a weight of shape `fans`."""
    name = f"{section.name}.{what}"
    trainable = section.flag("trainable", default=True)
    initializer = _initializer(section, key, default, name, fans)
    return network.declare(section, name, role, shape, initializer, trainable=trainable)


def _constant(section: Section) -> float:
    return section.number("weight_regularizer_constant") if "weight_regularizer_constant" in section else 1.0


def _initializer(
    section: Section, key: str, default: str, operand: str, weight: tuple[int, ...]
) -> Initializer:
    """Variance scaling by the fans of the weight, after LeCun, Glorot and He."""
    word = section.choice(key, ("zeros", "ones", *_SCALES), default)
    if word in ("zeros", "ones"):
        return Initializer(word)
    fan_in, fan_out = math.prod(weight[1:]), weight[0] * math.prod(weight[2:])
    scale = math.sqrt(_SCALES[word](fan_in, fan_out))
    kind = word.rpartition("_")[2]
    width = scale * math.sqrt(3) if kind == "uniform" else scale
    return Initializer(kind, scale=width, seed=zlib.crc32(operand.encode()))


#: Variance by fan in and fan out.
_SCALES: Final[Mapping[str, Callable[[int, int], float]]] = MappingProxyType(
    {
        f"{name}_{kind}": variance
        for name, variance in (
            ("lecun", lambda fan_in, fan_out: 1 / fan_in),
            ("xavier", lambda fan_in, fan_out: 2 / (fan_in + fan_out)),
            ("he", lambda fan_in, fan_out: 2 / fan_in),
        )
        for kind in ("normal", "uniform")
    }
)


CELL_KEYS: Final = WEIGHT_KEYS | {"unit", "hidden_state_activation", "integrate_bias", "dropout_rate"}
RECURRENT_KEYS: Final = CELL_KEYS | {"return_sequences", "max_timestep"}
EMBEDDING_KEYS: Final = frozenset(
    {
        *("in_dim", "out_dim", "in_length", "weight_initializer"),
        *("weight_regularizer", "weight_regularizer_constant", "weight_decay"),
    }
)

_NONLINEARITIES: Final = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}

_Builder = Callable[[Network, Section, Sequence[Value], str], Value]


def recurrent(type_: str, gates: int) -> _Builder:
    """The builder of an LSTM, a GRU or an RNN."""

    def build(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
        value = only_input(section, inputs)
        batch, steps, features = _sequence_shape(section, value)
        units, returns = section.integer("unit", least=1), section.flag("return_sequences", default=False)
        attributes = _attributes(section, type_, steps, returns=returns)
        directions = 2 if "direction" in attributes else 1
        sequence = reshaped(network, section, value.name, (batch, steps, features), "sequence")
        names = [sequence.name, *_weights(network, section, gates * units, (units, features), directions)]
        states = network.emit(section, type_, names, (), attributes, skipped=0 if returns else 1)
        width = units * directions
        shape = (batch, 1, steps, width) if returns and steps > 1 else (batch, width)
        return reshaped(network, section, states.name, shape, "states")

    return build


def _sequence_shape(section: Section, value: Value) -> tuple[int, int, int]:
    if len(value.shape) == 2:
        return value.shape[0], 1, value.shape[1]
    batch, channels, steps, features = value.shape
    if channels != 1:
        section.fail("type", f"reads {channels} channels", "A sequence is 1:steps:features.")
    if section.integer("max_timestep", steps) != steps:
        section.fail("max_timestep", f"is not the {steps} steps of the input", "Leave it out.")
    return batch, steps, features


def _attributes(section: Section, type_: str, steps: int, *, returns: bool) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"layout": 1, **_cell_attributes(section, type_)}
    if type_ == "LSTM" and section.flag("bidirectional", default=False):
        if steps > 1 and not returns:
            what = "takes the last step of both directions, of which the reverse one has seen a single step"
            section.fail("bidirectional", what, "Say return_sequences = true.")
        attributes["direction"] = "bidirectional"
    return attributes


def _cell_attributes(section: Section, type_: str) -> dict[str, AttributeValue]:
    """Raises DocumentError for activations that the operators do not have, and for dropout inside."""
    if "dropout_rate" in section and section.number("dropout_rate") != 0:
        section.fail("dropout_rate", "drops states between steps", "Put a dropout layer behind it.")
    if type_ == "RNN":
        word = section.choice("hidden_state_activation", _NONLINEARITIES, "tanh")
        return {"nonlinearity": _NONLINEARITIES[word]}
    section.choice("hidden_state_activation", ("tanh",), "tanh")
    section.choice("recurrent_activation", ("sigmoid",), "sigmoid")
    if type_ == "GRU":
        return {"linear_before_reset": int(section.flag("reset_after", default=True))}
    return {}


def cell(type_: str, gates: int) -> _Builder:
    """The builder of a single step: it reads its input and the states before, a layer each."""
    states = 2 if type_ == "LSTM" else 1

    def build(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
        if len(inputs) != 1 + states:
            what = f"names {len(inputs)} layers"
            section.fail("input_layers", what, f"This type reads its input and {states} state(s).")
        units = section.integer("unit", least=1)
        value, *before = inputs
        if len(value.shape) != 2 or any(state.shape != (value.shape[0], units) for state in before):
            what = "names layers that are not matrices, or states of another width"
            section.fail("input_layers", what, f"States are 1:1:{units}.")
        weights = _weights(network, section, gates * units, (units, value.shape[1]), 1)
        names = [*(each.name for each in inputs), *weights]
        attributes = _cell_attributes(section, type_)
        further = [f"{section.name}.cell"] if states == 2 else []
        shape = (value.shape[0], units)
        return network.emit(section, f"{type_}Cell", names, shape, attributes, further=further)

    return build


def _weights(
    network: Network, section: Section, rows: int, sizes: tuple[int, int], directions: int
) -> list[str]:
    """W, R and B, with an axis of directions where there are two."""
    check_penalties(section)
    units, features = sizes
    front = (2,) if directions == 2 else ()
    own = ("weight_initializer", "xavier_uniform")
    names = []
    for what, columns in (("weight", features), ("recurrent", units)):
        fans = (rows, columns)
        names.append(parameter(network, section, what, *own, shape=(*front, *fans), fans=fans))
    if not section.flag("disable_bias", default=False):
        count = rows if section.flag("integrate_bias", default=False) else 2 * rows
        own = ("bias_initializer", "zeros")
        names.append(parameter(network, section, "bias", *own, shape=(*front, count), fans=(rows, features)))
    return names


def reshaped(network: Network, section: Section, name: str, shape: tuple[int, ...], what: str) -> Value:
    """The same elements in another shape, by an operation called after the section and `what`."""
    data = Initializer("values", np.array(shape, np.int64).tobytes())
    constant = network.declare(
        section, f"{section.name}.{what}.shape", Role.CONSTANT, (len(shape),), data, dtype=DType.INT64
    )
    return network.emit(section, "Reshape", [name, constant], shape, name=f"{section.name}.{what}")


def embedding(network: Network, section: Section, inputs: Sequence[Value], _: str) -> Value:
    """Rows of a table by index: 1:1:n indices become a sequence of n steps."""
    value = only_input(section, inputs)
    if not value.is_index:
        section.fail("input_layers", "names a layer that makes no indices", "Let it read an input layer.")
    check_penalties(section)
    count, width = section.integer("in_dim", least=1), section.integer("out_dim", least=1)
    batch, length = value.shape
    if section.integer("in_length", length) != length:
        section.fail("in_length", f"is not the {length} indices of the input", "Leave it out.")
    shape = (count, width)
    own = ("weight_initializer", "xavier_uniform")
    table = parameter(network, section, "weight", *own, shape=shape, fans=shape)
    rows = network.emit(section, "Gather", [table, value.name], (batch, length, width))
    return reshaped(network, section, rows.name, (batch, 1, length, width), "sequence")


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
