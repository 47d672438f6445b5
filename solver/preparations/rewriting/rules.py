"""The rules, in the order in which they are tried: what makes the graph smaller for the next comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from solver.graph.ops import lookup
from solver.graph.ops.helpers.spatial import Axis
from solver.graph.ops.pooling import pool_window
from solver.graph.types import Array, AttributeValue, DType, Initializer, Operand, Operation, Role, TensorType
from solver.preparations.rewriting.head import ChunkHead
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import RANDOM, Surroundings

__all__ = ["CHUNK_HEAD", "RULES"]


class DropDeadCode(Rule):
    """Operations that neither the loss nor an output depends on, all at once, and operands left unread.

    Training emits no backward step for them as it is: no derivative of the loss comes to them. What
    updates a state is alive, and so is all that it reads.
    """

    name: ClassVar[str] = "drop-dead-code"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.BITWISE

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        return Edit(around.dead) if around.dead and operation.id == around.dead[-1] else None


class MergeDuplicates(Rule):
    """f(X), f(X) = one f(X) for the readers of both.

    Its derivative is f'(dY + dZ) where it was f'(dY) + f'(dZ): the same, since derivatives are linear in
    dY, up to rounding. Not what draws random numbers or updates a state, nor where the second
    is an output, whose name has to survive.
    """

    name: ClassVar[str] = "merge-duplicates"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        first = around.first_alike(operation)
        if first.id == operation.id or operation.type in RANDOM:
            return None
        if not around.changes_nothing_else(operation) or any(
            name in around.kept for name in operation.outputs
        ):
            return None
        return Edit((operation.id,), renamed=dict(zip(operation.outputs, first.outputs, strict=True)))


#: Bytes by which outputs may exceed the constants they are computed from: planning stays small.
_GROWTH = 1024 * 1024

#: Work that can exceed the size of its operands a thousandfold.
_COSTLY = frozenset({"AveragePool", "Conv", "ConvTranspose", "MaxPool"})


class FoldConstants(Rule):
    """Y = f(constants) is a constant, with the very bits that the kernel of f gives.

    No derivative goes through it: no parameter stands before it. Parameters are never folded, not even
    frozen ones: a checkpoint may bring other values. Nor is what draws random numbers, what updates a
    state, and what slides windows. Quantised weights stay as small as they are stored.
    """

    name: ClassVar[str] = "fold-constants"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.BITWISE

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type in RANDOM | _COSTLY or not around.changes_nothing_else(operation):
            return None
        if any(name in around.kept for name in operation.outputs):
            return None
        if not all(map(around.is_constant, filter(None, operation.inputs))):
            return None
        inputs = [around.constant(name) if name else None for name in operation.inputs]
        node = around.nodes[operation.id]
        if operation.type == "DequantizeLinear" and node.outputs[0].nbytes > node.input(0).nbytes:
            return None
        size = sum(value.nbytes for value in inputs if value is not None)
        if sum(type_.nbytes for type_ in node.outputs) > size + _GROWTH:
            return None
        values = around.arithmetic.outputs(node, inputs)
        constants = tuple(
            Operand(name, type_, Role.CONSTANT, Initializer("values", value.tobytes()))
            for name, type_, value in zip(operation.outputs, node.outputs, values, strict=True)
        )
        return Edit((operation.id,), constants=constants)


_IMAGES = frozenset({"Conv", "ConvTranspose"})
_MATRICES = frozenset({"Gemm", "MatMul"})


class FuseBias(Rule):
    """Add(A B, b) = Gemm(A, B, b) and Add(Conv(X, W), b) = Conv(X, W, b), b a value for each channel.

    dA, dB, dX and dW read the derivative of the sum, which is that of the product; db is its sum over
    everything but the channels in both forms, added up in another order. b stays the operand that it
    is: where its shape is [C, 1, 1], a Reshape makes the vector that the convolution takes, and a tied
    bias goes on collecting its derivatives. Not for a product that has a bias or an activation
    already, or another reader, and not along an axis that is not the channels'.
    """

    name: ClassVar[str] = "fuse-bias"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != "Add":
            return None
        for product, bias in (operation.inputs, operation.inputs[::-1]):
            inner = around.feeding(product)
            if inner is not None and _takes_bias(around, inner, operation, bias):
                return _fused(around, inner, operation, bias)
        return None


def _takes_bias(around: Surroundings, inner: Operation, add: Operation, bias: str) -> bool:
    node, sum_ = around.nodes[inner.id], around.nodes[add.id]
    if inner.type not in _IMAGES | _MATRICES or node.has_input(2):
        return False
    if node.attributes.get("activation", "None") != "None" or node.outputs != sum_.outputs:
        return False
    shape = node.outputs[0].shape
    if inner.type in _MATRICES and (len(shape) != 2 or len(node.input(0).shape) != 2):
        return False
    axis = 1 if node.attributes.get("data_layout") == "NCHW" else len(shape) - 1
    return _is_along(around.graph.operands[bias].shape, axis, shape)


def _is_along(bias: tuple[int, ...], axis: int, shape: tuple[int, ...]) -> bool:
    """Whether `bias` has an element for each position of `axis` of `shape`, and is broadcast elsewhere."""
    whole = (1,) * (len(shape) - len(bias)) + bias
    return whole == tuple(size if i == axis else 1 for i, size in enumerate(shape))


def _fused(around: Surroundings, inner: Operation, add: Operation, bias: str) -> Edit:
    attributes: dict[str, AttributeValue] = {**inner.attributes, **add.attributes}
    if inner.type in _MATRICES:
        attributes.pop("beta", None)
        inputs = (*inner.inputs[:2], bias)
        return Edit((inner.id, add.id), (Operation(inner.id, "Gemm", inputs, add.outputs, attributes),))
    reshapes, constants = _as_vector(around, add, bias)
    vector = reshapes[0].outputs[0] if reshapes else constants[0].id if constants else bias
    fused = Operation(inner.id, inner.type, (*inner.inputs[:2], vector), add.outputs, attributes)
    return Edit((inner.id, add.id), (*reshapes, fused), constants)


def _as_vector(
    around: Surroundings, add: Operation, bias: str
) -> tuple[tuple[Operation, ...], tuple[Operand, ...]]:
    """The operands that make the bias a vector: none, a constant, or a Reshape and its shape."""
    type_, value = around.graph.operands[bias].type, around.constant(bias)
    if len(type_.shape) == 1:
        return (), ()
    name, flat = around.new_operand(f"{add.id}.bias"), TensorType((type_.elements,), type_.dtype)
    if value is not None:
        return (), (Operand(name, flat, Role.CONSTANT, Initializer("values", value.tobytes())),)
    size = np.array(flat.shape, np.int64)
    shape = Operand(
        around.new_operand(f"{add.id}.bias.shape"),
        TensorType(size.shape, DType.INT64),
        Role.CONSTANT,
        Initializer("values", size.tobytes()),
    )
    reshape = Operation(around.new_operation(f"{add.id}.bias"), "Reshape", (bias, shape.id), (name,))
    return (reshape,), (shape,)


class FoldNormalization(Rule):
    """(Conv(X, W, b) - mean) f + shift = Conv(X, f W, f (b - mean) + shift), f = scale / sqrt(var + epsilon).

    f is a factor for each filter, and a convolution is linear in its filters. dX = Conv'(f dY, W)
    = Conv'(dY, f W). All of W, b, scale, shift, mean and var have to be constants. Were W trained,
    a step of gradient descent on f W would move it by 1 / f^2 of what one on W does: another training.
    Parameters, even frozen ones, keep their memory for checkpoints, and running statistics are states.
    Normalisation in training mode never folds: its statistics depend on X.
    """

    name: ClassVar[str] = "fold-normalization"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != "BatchNormalization":
            return None
        inner = around.feeding(operation.inputs[0])
        if inner is None or not _fits(around, inner, operation):
            return None
        norm = [around.constant(name) for name in operation.inputs[1:]]
        linear = [around.constant(name) for name in inner.inputs[1:] if name]
        constants = [value for value in (*norm, *linear) if value is not None]
        if len(constants) < len(norm) + len(linear):
            return None
        epsilon = float(around.nodes[operation.id].attributes["epsilon"])
        weight, bias = _folded(
            constants[:4], epsilon, constants[4], constants[5] if len(constants) > 5 else None
        )
        return _folded_edit(around, inner, operation, weight, bias)


def _fits(around: Surroundings, inner: Operation, norm: Operation) -> bool:
    node, frozen = around.nodes[inner.id], around.nodes[norm.id].attributes
    return (
        inner.type == "Conv"
        and node.attributes["activation"] == "None"
        and not frozen["training_mode"]
        and frozen["data_layout"] == node.attributes["data_layout"]
    )


def _folded(norm: list[Array], epsilon: float, weight: Array, bias: Array | None) -> tuple[Array, Array]:
    """Weights and bias; computed in float64 and rounded once. The filters are axis 0 in both layouts."""
    scale, shift, mean, variance = (value.astype(np.float64) for value in norm)
    factor = scale / np.sqrt(variance + epsilon)
    centred = -mean if bias is None else bias - mean
    folded = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    return folded.astype(weight.dtype), (factor * centred + shift).astype(weight.dtype)


def _folded_edit(around: Surroundings, inner: Operation, norm: Operation, weight: Array, bias: Array) -> Edit:
    types = around.graph.operands
    constants = tuple(
        Operand(around.new_operand(f"{inner.id}.{word}"), type_, Role.CONSTANT, _values(value))
        for word, type_, value in (
            ("folded_weight", types[inner.inputs[1]].type, weight),
            ("folded_bias", types[norm.inputs[2]].type, bias),
        )
    )
    inputs = (inner.inputs[0], *(constant.id for constant in constants))
    fused = Operation(inner.id, inner.type, inputs, norm.outputs, inner.attributes)
    return Edit((inner.id, norm.id), (fused,), constants)


def _values(value: Array) -> Initializer:
    return Initializer("values", value.tobytes())


_EXACT = frozenset({"Clip", "Relu"})

_EXACT_FUSED = frozenset({"Relu", "Relu6"})


class PoolFirst(Rule):
    """MaxPool(act(X)) = act(MaxPool(X)) for Relu and Clip, which never fall and compute nothing anew.

    Where the largest element of a window is strictly inside the bounds, it is the largest on both sides,
    the first one as well, and dY goes to it alone; elsewhere both derivatives are 0. What is gained is the
    large output of the activation: the backward step of pooling needs only which tap won, and that of the
    activation then the small output.

        X 4 n -> act 4 n, kept -> pool n, kept        becomes        X 4 n -> pool n -> act n, kept

    Sigmoid and Tanh round different X to one Y, so another tap could win. Not where a window lies wholly
    in the padding, which is -infinity and no element, nor where something else reads the activation.
    """

    name: ClassVar[str] = "pool-first"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != "MaxPool" or len(operation.outputs) != 1:
            return None
        inner = around.feeding(operation.inputs[0])
        window = pool_window(around.nodes[operation.id])
        if inner is None or not all(map(_always_looks_at_something, window.axes)):
            return None
        if inner.type in _EXACT:
            return _pooled_edit(around, (), inner, operation)
        if inner.attributes.get("activation") not in _EXACT_FUSED:
            return None
        linear, activation = activation_apart(around, inner)
        return _pooled_edit(around, (linear,), activation, operation)


def _pooled_edit(
    around: Surroundings, before: tuple[Operation, ...], activation: Operation, pool: Operation
) -> Edit:
    """`before`, the pool of what the activation reads, and the activation of that."""
    pooled = around.new_operand(f"{pool.id}.linear")
    first = Operation(pool.id, pool.type, activation.inputs[:1], (pooled,), pool.attributes)
    last = replace(activation, inputs=(pooled, *activation.inputs[1:]), outputs=pool.outputs)
    gone = before[0].id if before else activation.id
    return Edit((gone, pool.id), (*before, first, last))


def _always_looks_at_something(axis: Axis) -> bool:
    reads = (
        range(o * axis.stride - axis.before, axis.size, axis.dilation)[: axis.kernel] for o in range(axis.out)
    )
    return all(any(position >= 0 for position in taps) for taps in reads)


_SAME_NAME = frozenset({"Relu", "Sigmoid", "Tanh"})


class FuseActivation(Rule):
    """act(f(X)) is f(X) with `activation` act: Relu, Sigmoid, Tanh, and Clip to [0, 6], which is Relu6.

    Every one of them is differentiable from its output alone, so the operator multiplies dY by act'(Y)
    where it used to be given the product. Values are those of the same kernel run in place. Gradients
    may round differently: the operator stages the product chunk by chunk, and where that makes the
    chunks smaller, a sum over them is cut elsewhere. Sigmoid and Tanh may differ in the last bit, where
    NumPy's loops over gaps are not those over dense memory.
    Not where something else reads f(X), or it has an activation already.
    """

    name: ClassVar[str] = "fuse-activation"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        activation = _fusible_activation(around, operation)
        if activation is None:
            return None
        inner = around.feeding(operation.inputs[0])
        if inner is None or not lookup(inner.type).fuses_activation:
            return None
        if around.nodes[inner.id].attributes["activation"] != "None":
            return None
        attributes = {**inner.attributes, "activation": activation}
        fused = Operation(inner.id, inner.type, inner.inputs, operation.outputs, attributes)
        return Edit((inner.id, operation.id), (fused,))


def _fusible_activation(around: Surroundings, operation: Operation) -> str | None:
    """The name under which an operator would fuse it."""
    if operation.type in _SAME_NAME:
        return operation.type
    return "Relu6" if operation.type == "Clip" and _bounds(around, operation) == (0.0, 6.0) else None


def _bounds(around: Surroundings, clip: Operation) -> tuple[float | None, float | None]:
    """Attributes or constant inputs; None for what is unbounded, or bounded by what is not a constant."""
    node = around.nodes[clip.id]

    def bound(position: int, key: str) -> float | None:
        if not node.has_input(position):
            attribute: float | None = node.attributes[key]
            return attribute
        value = around.constant(clip.inputs[position])
        return None if value is None else float(value.reshape(()))

    return bound(1, "min"), bound(2, "max")


class SplitActivation(Rule):
    """f(X) with an activation is act(f(X)): `FuseActivation` backwards, with the same algebra.

    A product that fuses its activation reads Y until its last derivative is done, and stages dY act'(Y)
    beside dY. By itself the activation is through with Y and dY before the product's derivatives begin:

        fused       X  W  Y  dY  staged  dW          apart       Y  dY  dZ   then   X  W  dZ  dW
    """

    name: ClassVar[str] = "split-activation"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING
    adds_operations: ClassVar[bool] = True

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.attributes.get("activation", "None") == "None":
            return None
        return Edit((operation.id,), activation_apart(around, operation))


def activation_apart(around: Surroundings, operation: Operation) -> tuple[Operation, Operation]:
    """An operation with a fused activation as two."""
    attributes = dict(operation.attributes)
    type_, bounds = _APART[str(attributes.pop("activation"))]
    linear = around.new_operand(f"{operation.id}.linear")
    inner = Operation(operation.id, operation.type, operation.inputs, (linear,), attributes)
    name = around.new_operation(f"{operation.id}.activation")
    return inner, Operation(name, type_, (linear,), operation.outputs, bounds)


_APART: Mapping[str, tuple[str, Mapping[str, AttributeValue]]] = MappingProxyType(
    {
        "Relu": ("Relu", {}),
        "Relu6": ("Clip", {"min": 0.0, "max": 6.0}),
        "Sigmoid": ("Sigmoid", {}),
        "Tanh": ("Tanh", {}),
    }
)


#: The rule of the preparation `chunked_head`, which rewriting does not try by itself.
CHUNK_HEAD = ChunkHead()

RULES: tuple[Rule, ...] = (
    DropDeadCode(),
    MergeDuplicates(),
    FoldConstants(),
    FuseBias(),
    FoldNormalization(),
    PoolFirst(),
    FuseActivation(),
    SplitActivation(),
)
