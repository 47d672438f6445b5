"""Which tensors of a model are trained: the format does not say, so the operators that read them do.

    place of a weight      filters and biases of convolutions and products, a factor of a product of
                           matrices, tables of embeddings, slopes, scales and shifts of
                           normalisations, weights of an LSTM
    scale or shift         one number a channel that is added to or multiplied with what a weight has
                           had a part in: a normalisation, or a bias, that stands behind its layer
    table of positions     added to rows of a table or to products, moved and added up, a row of channels
                           for each position; no mask, no whole numbers, no sines
    anything else          not trained: scalars, masks, anchors, and arithmetic on what inputs and constants
                           alone lead to, as the normalisation of an image: there is no layer yet

A layer has had a weight; or it is a normalisation by a root that is computed (RSQRT). Names say
nothing. A weight is found behind moves, too (TRANSPOSE, RESHAPE, DEQUANTIZE, CONCATENATION ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from solver.importers.circle.read import Model, ModelOperator
from solver.importers.tables import is_computed

__all__ = ["MOVES", "TRANSPOSE_BIAS", "needed_operators", "weight_tensors"]

#: MediaPipe's transposed convolution with a bias.
TRANSPOSE_BIAS: Final = "CUSTOM Convolution2DTransposeBias"

#: Operator -> inputs that are weights.
_WEIGHTS: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), frozenset({1, 2})),
    **dict.fromkeys(("INSTANCE_NORM", TRANSPOSE_BIAS), frozenset({1, 2})),
    "BATCH_MATMUL": frozenset({0, 1}),
    "EMBEDDING_LOOKUP": frozenset({1}),
    "GATHER": frozenset({0}),
    "PRELU": frozenset({1}),
    "TRANSPOSE_CONV": frozenset({1, 3}),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": frozenset({*range(1, 18), *range(20, 24)}),
}
#: Operators behind which a single number that is added is the bias of one unit.
_PRODUCTS: Final = frozenset(
    {
        *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"),
        *(TRANSPOSE_BIAS, "BATCH_MATMUL"),
    }
)
#: Operators that take rows of a table.
_LOOKUPS: Final = frozenset({"EMBEDDING_LOOKUP", "GATHER"})
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
    weights = {
        operator.inputs[position]
        for operator in chosen
        for position in _WEIGHTS.get(operator.code, ())
        if position < len(operator.inputs)
    }
    weights |= set(_scales_and_shifts(model, chosen, _through_moves(chosen, weights)))
    return frozenset(_through_moves(chosen, weights))


def _through_moves(operators: Sequence[ModelOperator], numbers: Iterable[int]) -> set[int]:
    """The tensors, and what they are moved from."""
    reached = set(numbers)
    for operator in reversed(operators):
        if operator.code in MOVES and reached.intersection(operator.outputs):
            reached.update(_moved_operands(operator))
    return reached


def _moved_operands(operator: ModelOperator) -> tuple[int, ...]:
    """The operands whose elements a move carries over, without those that say where to."""
    if operator.code in ("CONCATENATION", "PACK"):
        return operator.inputs
    return operator.inputs[1:2] if operator.code == "SPLIT" else operator.inputs[:1]


def _scales_and_shifts(model: Model, operators: Sequence[ModelOperator], weights: set[int]) -> Iterable[int]:
    """Constants that scale or shift channels behind weights, and tables that are added to embeddings."""
    constants = {number for number, tensor in enumerate(model.tensors) if tensor.data is not None}
    readers: dict[int, list[ModelOperator]] = {}
    stored: dict[int, int] = {}  # of constants in half precision: the tensor that the file has
    for operator in operators:
        if operator.code in MOVES and constants.issuperset(n for n in operator.inputs if n >= 0):
            constants.update(operator.outputs)
            if operator.code == "DEQUANTIZE":
                stored[operator.outputs[0]] = operator.inputs[0]
        for number in operator.inputs:
            readers.setdefault(number, []).append(operator)
    trained = {number for number in weights & constants if model.tensors[number].type.startswith("FLOAT")}
    #: Products and scales of one channel; products and rows of trained tables, moved and added up.
    products: set[int] = set()
    embeddings: set[int] = set()
    roots: set[int] = set()
    for operator in operators:
        if operator.code == "RSQRT" and not constants.issuperset(operator.inputs):
            roots.update(operator.outputs)
            trained.update(operator.outputs)
        if operator.code in _PRODUCTS:
            products.update(operator.outputs)
        is_embedding = operator.code in _PRODUCTS | _LOOKUPS and trained.intersection(operator.inputs)
        if is_embedding or (operator.code in MOVES | {"ADD"} and embeddings.intersection(operator.inputs)):
            embeddings.update(operator.outputs)
        if operator.code in _SCALES and len(operator.inputs) == 2:
            for constant, other in (operator.inputs, operator.inputs[::-1]):
                if constant not in constants or other not in trained or other in constants:
                    continue
                is_shift = operator.code in _SHIFTS
                one = other in products if is_shift else _is_shifted(model, readers, operator, constants)
                if one and not is_shift:
                    products.update(operator.outputs)
                scaled = operator.outputs[0] if other in roots else other
                if _is_per_channel(model, constant, scaled, one) or (
                    is_shift
                    and other in embeddings
                    and _is_table(model, stored.get(constant, constant), other)
                ):
                    yield constant
        if trained.intersection(operator.inputs):
            trained.update(operator.outputs)


def _is_per_channel(model: Model, constant: int, data: int, one: bool) -> bool:
    """Whether there is one number a channel; of one channel, only where `one` says that it is no scalar."""
    shape, channels = model.tensors[constant].shape, (model.tensors[data].shape or (0,))[-1]
    return bool(shape) and shape == (*[1] * (len(shape) - 1), channels) and (channels > 1 or one)


def _is_table(model: Model, constant: int, data: int) -> bool:
    """Whether there is a row of channels for each position, with values that training can have made."""
    tensor, sizes = model.tensors[constant], model.tensors[data].shape
    shape = tensor.shape[next((k for k, size in enumerate(tensor.shape) if size > 1), 0) :]
    if len(shape) < 2 or shape != sizes[-len(shape) :] or tensor.data is None or tensor.sparsity:
        return False
    values = tensor.array()
    return bool((values != values.flat[0]).any()) and not is_computed(values)


def _is_shifted(
    model: Model, readers: Mapping[int, Sequence[ModelOperator]], scale: ModelOperator, constants: set[int]
) -> bool:
    """Whether a constant of one element that is no scalar is added to what was scaled, as a shift is."""
    followers = readers.get(scale.outputs[0], ())
    if len(followers) != 1 or followers[0].code not in _SHIFTS:
        return False
    others = [other for other in followers[0].inputs if other in constants]
    return any(model.tensors[other].shape and set(model.tensors[other].shape) == {1} for other in others)
