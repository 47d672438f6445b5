"""The graph that the sections of a model file are translated to, and the weights of a layer."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from solver.graph import AttributeValue, DeclaredOperand, DType, Initializer, Operation, Role
from solver.importers.nntrainer.ini import Section

__all__ = ["WEIGHT_KEYS", "Network", "Value", "check_penalties", "only_input", "parameter", "weights"]

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
