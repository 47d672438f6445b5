"""Which tensors of a model are trained: the format does not say, so the operators that read them do.

    place of a weight      filters and biases of convolutions and products, a factor of a product of
                           matrices, tables of embeddings, slopes, scales and shifts of
                           normalisations, weights of an LSTM
    scale or shift         one number a channel that is added to or multiplied with what a weight has
                           had a part in: a normalisation, or a bias, that stands behind its layer
    anything else          not trained: scalars, what an image is divided by, masks, anchors, tables
                           of positions

Names say nothing. A weight is found behind moves, too (TRANSPOSE, RESHAPE, DEQUANTIZE, CONCATENATION ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from solver.importers.circle.read import Model, ModelOperator

__all__ = ["MOVES", "TRANSPOSE_BIAS", "needed_operators", "weight_tensors"]

#: MediaPipe's transposed convolution with a bias.
TRANSPOSE_BIAS: Final = "CUSTOM Convolution2DTransposeBias"

#: Operator -> inputs that are weights.
_WEIGHTS: Final[Mapping[str, frozenset[int]]] = MappingProxyType(
    {
        **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), frozenset({1, 2})),
        **dict.fromkeys(("INSTANCE_NORM", TRANSPOSE_BIAS), frozenset({1, 2})),
        "BATCH_MATMUL": frozenset({0, 1}),
        "EMBEDDING_LOOKUP": frozenset({1}),
        "GATHER": frozenset({0}),
        "PRELU": frozenset({1}),
        "TRANSPOSE_CONV": frozenset({1, 3}),
        "UNIDIRECTIONAL_SEQUENCE_LSTM": frozenset({*range(1, 18), *range(20, 24)}),
    }
)
#: Operators behind which a single number that is added is the bias of one unit.
_PRODUCTS: Final = frozenset(
    {
        *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"),
        *(TRANSPOSE_BIAS, "BATCH_MATMUL"),
    }
)
_SHIFTS: Final = frozenset({"ADD", "SUB"})
_SCALES: Final = frozenset({"ADD", "SUB", "MUL"})
#: Operators whose result is what they are given, moved.
MOVES: Final = frozenset(
    {
        *("BROADCAST_TO", "CONCATENATION", "DENSIFY", "DEQUANTIZE", "EXPAND_DIMS", "PACK", "RESHAPE"),
        *("SLICE", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TRANSPOSE", "UNPACK"),
    }
)


def needed_operators(model: Model, tensors: Iterable[int]) -> tuple[int, ...]:
    """Numbers of the operators that `tensors` depend on, in the file's order, without those before inputs."""
    defined_by = {number: k for k, operator in enumerate(model.operators) for number in operator.outputs}
    for number in model.inputs:
        defined_by.pop(number, None)
    needed: set[int] = set()
    pending = list(tensors)
    while pending:
        k = defined_by.get(pending.pop())
        if k is not None and k not in needed:
            needed.add(k)
            pending += [number for number in model.operators[k].inputs if number >= 0]
    return tuple(sorted(needed))


def weight_tensors(model: Model, operators: Sequence[int]) -> frozenset[int]:
    """Numbers of the tensors that stand in the place of a weight of one of `operators`.

    Those that hold no floating constant are among them where something else stands there. Linear.
    """
    chosen = [model.operators[k] for k in operators]
    found = {
        operator.inputs[position]
        for operator in chosen
        for position in _WEIGHTS.get(operator.code, ())
        if position < len(operator.inputs)
    }
    found |= set(_per_channel(model, chosen, _behind_moves(chosen, found)))
    return frozenset(_behind_moves(chosen, found))


def _behind_moves(operators: Sequence[ModelOperator], numbers: Iterable[int]) -> set[int]:
    """The tensors, and what they are moved from."""
    found = set(numbers)
    for operator in reversed(operators):
        if operator.code in MOVES and found.intersection(operator.outputs):
            found.update(_moved(operator))
    return found


def _moved(operator: ModelOperator) -> tuple[int, ...]:
    """What a move moves, without the numbers that say where to."""
    if operator.code in ("CONCATENATION", "PACK"):
        return operator.inputs
    return operator.inputs[1:2] if operator.code == "SPLIT" else operator.inputs[:1]


def _per_channel(model: Model, operators: Sequence[ModelOperator], weights: set[int]) -> Iterable[int]:
    """Constants that scale or shift the channels of what weights have had a part in."""
    constants = {number for number, tensor in enumerate(model.tensors) if tensor.data is not None}
    for operator in operators:
        if operator.code in MOVES and constants.issuperset(n for n in operator.inputs if n >= 0):
            constants.update(operator.outputs)
    #: What a shift of one channel may stand behind: a product, or a scale of one channel.
    products: set[int] = set()
    trained = {number for number in weights & constants if model.tensors[number].type.startswith("FLOAT")}
    for k, operator in enumerate(operators):
        if operator.code in _PRODUCTS:
            products.update(operator.outputs)
        if operator.code in _SCALES and len(operator.inputs) == 2:
            for constant, other in (operator.inputs, operator.inputs[::-1]):
                if constant not in constants or other not in trained or other in constants:
                    continue
                shape, data = model.tensors[constant].shape, model.tensors[other].shape
                channels = data[-1] if data else 0
                if not shape or shape != (*[1] * (len(shape) - 1), channels):
                    continue
                if operator.code in _SHIFTS:
                    is_single = other in products
                else:
                    is_single = _is_shifted(model, operators[k + 1 :], operator.outputs[0], constants)
                    products.update(operator.outputs if is_single else ())
                if channels > 1 or is_single:
                    yield constant
        if trained.intersection(operator.inputs):
            trained.update(operator.outputs)


def _is_shifted(model: Model, operators: Iterable[ModelOperator], number: int, constants: set[int]) -> bool:
    """Whether a constant of one element that is no scalar is added to the tensor, as a shift is."""
    readers = [operator for operator in operators if number in operator.inputs]
    if len(readers) != 1 or readers[0].code not in _SHIFTS:
        return False
    others = [other for other in readers[0].inputs if other in constants]
    return any(model.tensors[other].shape and set(model.tensors[other].shape) == {1} for other in others)
