"""Which of a model's tensors are trained. ONNX does not say it; the places of operands that read one decide.

    W and B of Conv, Gemm, MatMul, LSTM; scale and bias of a normalisation; a slope       parameter
    the table of a Gather, unless its rows are sines and cosines of positions             parameter
    running mean and variance of a BatchNormalization                                     state
    a first state of an LSTM, GRU or RNN that is all zeros                                constant
    added to a product, as long as its units (one of one unit, too)                       parameter
    added to, or multiplied with, what a layer computed, if of several elements           parameter,
        unless its values are a mask, whole numbers or sines: a program computed these
    the same with what inputs and constants alone lead to: there is no layer yet          constant
    frequencies of Sin and Cos; variances under a Sqrt; bounds, scales, exponents         constant
    anywhere else: an initializer of several elements under a name of the network's own   parameter

In the places named above it does not matter how a tensor is called, and where it is kept: as an initializer,
in a Constant or ConstantOfShape, in a branch or a function. Uses are looked up through moves (Transpose,
Reshape), through arithmetic of constants with each other, and through calls of functions.

A layer is an operator that reads a constant and is not one of `_PASSES`, which hold no weights; or a division
by a deviation that is computed, as in a normalisation that is written out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import numpy as np

from solver.graph import Array, Role
from solver.importers.onnx.lowering.quantised import SCALES
from solver.importers.onnx.read import StoredTensor, constant_tensor, tensors_of
from solver.importers.tables import BUFFERS, is_computed, is_mask, is_waves

if TYPE_CHECKING:
    import onnx

__all__ = ["Body", "Roles"]

#: A function's domain and name; None is the graph of the model.
Body = tuple[str, str] | None

#: Operator -> positions of what it is trained by.
_WEIGHTS: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), frozenset({1, 2})),
    **dict.fromkeys(("Gemm", "Einsum"), frozenset({0, 1, 2})),
    "PRelu": frozenset({1}),
    "MatMul": frozenset({0, 1}),
    **dict.fromkeys(
        (
            *("LayerNormalization", "InstanceNormalization", "GroupNormalization"),
            *("RMSNormalization", "SimplifiedLayerNormalization", "BatchNormalization"),
        ),
        frozenset({1, 2}),
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), frozenset({1, 2, 3, 7})),
}
_STATES: Final = frozenset({3, 4})
#: Operator -> positions of the state that its first step starts from.
_FIRST: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("GRU", "RNN"), frozenset({5})),
    "LSTM": frozenset({5, 6}),
}
#: Operator -> positions of floating operands that have to be known: scales, bounds, exponents.
_KNOWN: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("Resize", "Pad", "OneHot", "Range"), frozenset({1, 2, 3})),
    **dict.fromkeys(("Clip", "Dropout"), frozenset({1, 2})),
    **dict.fromkeys(("Upsample", "Pow"), frozenset({1})),
    **SCALES,
}
_ARITHMETIC: Final = frozenset({"Add", "Sub", "Mul", "Div", "Sum"})
#: Operators whose result is their first operand, moved; and functions of one operand.
_MOVES: Final = frozenset(
    {
        *("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Cast", "CastLike", "Expand"),
        *("Flatten", "Slice", "Split", "SplitToSequence", "SequenceAt"),
    }
)
_UNARY: Final = frozenset(
    {
        *("Exp", "Neg", "Softplus", "Tanh", "Sigmoid", "Abs", "Reciprocal", "Pow"),
        *("ReduceL2", "ReduceSum", "ReduceSumSquare", "ReduceMean"),
    }
)
#: Operators through which uses are looked up where all operands are constants.
_OF_CONSTANTS: Final = _ARITHMETIC | _UNARY | {"MatMul", "Einsum", "Concat", "Max", "Min"}
#: Operators that hold no weights: what they compute from inputs and constants is no layer's result.
_PASSES: Final = frozenset(
    {
        *(
            *_ARITHMETIC,
            *_MOVES,
            *_UNARY,
            "Sqrt",
            "Log",
            "Max",
            "Min",
            "Sum",
            "Mean",
            "Pad",
            "Clip",
            "Dropout",
        ),
        *("Resize", "Upsample", "Tile", "ReduceL1", "ReduceMax", "ReduceMin", "QuantizeLinear"),
        *("DequantizeLinear", "CumSum", "GatherND", "GatherElements", "Gather", "Mod"),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    }
)
#: Moves that keep what was added to a product beside it.
_KEEPS_UNITS: Final = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout"})
#: Names that exporters make up.
_MADE_UP: Final = re.compile(
    r"(::|^/|^_*val(_\d+)?$|^\d+$|(^|[/_.:])const|lifted_tensor|scalar_tensor|_output_\d+$|^t\d+$|^initializer\d*$"
    r"|^tmp|^_to_copy)",
    re.IGNORECASE,
)
#: Last parts of names of scalars that are trained.
_SCALARS: Final = re.compile(r"(weight|bias|gamma|beta|alpha|scale|temperature|\.[wb]_\d+)$")
#: Moves and calls between a tensor and its reader that are followed; longer chains do not occur in models.
_MAX_MOVES: Final = 32
#: A tensor that hides what it is added to.
_MASK_VALUE: Final = -100.0


class _Source(IntEnum):
    """The kind of operands that a value is computed from; of several operands the largest counts."""

    CONSTANTS = 0
    INPUTS = 1
    LAYERS = 2


class Roles:
    """The roles of all tensors of one model.

    `trained` are names, and patterns of names, that a caller wants as parameters whatever their places say.
    Building is linear in the nodes; a question costs the nodes that its tensor reaches through moves, once,
    and reads values where the places leave it to them.
    """

    def __init__(
        self,
        tensors: Sequence[StoredTensor],
        nodes: Sequence[onnx.NodeProto],
        functions: Mapping[tuple[str, str], onnx.FunctionProto],
        trained: Iterable[str] = (),
    ) -> None:
        self._functions = functions
        self._trained = tuple(trained)
        self._bodies: dict[Body, _Nodes] = {}
        self._formals: dict[Body, tuple[_Source, ...]] = {}
        self._bodies[None] = _Nodes.of(nodes, {}, tensors, self._called)
        self._places: dict[tuple[Body, str], frozenset[str]] = {}
        #: Where no tensor stands in the place of a weight, what is computed with the inputs is trained.
        self._is_bare = False
        self._is_bare = not any(
            self._by_place(tensor, None) in (Role.PARAMETER, None)
            for tensor in self._bodies[None].stored.values()
        )

    def of(self, tensor: StoredTensor, body: Body = None, *, is_initializer: bool = True) -> Role:
        """PARAMETER, STATE or CONSTANT for a tensor that `body` holds."""
        role = self._by_place(tensor, body)
        # PyTorch writes the group normalisation as an instance normalisation by ones and zeros.
        is_of_instance = self._of(tensor.name, body) == {"weight", "instance"}
        if not is_initializer and is_of_instance and np.unique(tensor.array()).tolist() in ([0], [1]):
            return Role.CONSTANT
        if role is None:
            role = self._by_name(tensor) if is_initializer else Role.CONSTANT
        if role is Role.CONSTANT and self._is_asked_for(tensor, body):
            return Role.PARAMETER
        return role

    def is_filled_weight(self, name: str, body: Body, *, is_zero: bool) -> bool:
        """Whether the result of a ConstantOfShape, whose shape the file holds, stands in a weight's place.

        Zeros that are added to what a layer computes may be a first state, and are none.
        """
        shape = self._nodes(body).shape_of(name)
        if shape is None:
            return False
        places = self._of(name, body)
        if "weight" in places or f"bias {math.prod(shape)}" in places:
            return True
        return bool(places & {"arithmetic", "part of a weight"}) and math.prod(shape) > 1 and not is_zero

    def _is_asked_for(self, tensor: StoredTensor, body: Body) -> bool:
        if tensor.dtype is None or not tensor.dtype.is_floating or not tensor.elements:
            return False
        if tensor.name in self._trained:
            return True
        matching = [pattern for pattern in self._trained if fnmatchcase(tensor.name, pattern)]
        if tensor.elements == 1:  # "*" means weights, and not each literal 0.5
            matching = [pattern for pattern in matching if pattern.strip("*?")]
        return bool(matching) and not self._of(tensor.name, body) <= {"known"}

    def _by_place(self, tensor: StoredTensor, body: Body) -> Role | None:
        """The role by where operators read the tensor, or None where either role may stand."""
        if tensor.dtype is None or not tensor.dtype.is_floating or not tensor.elements:
            return Role.CONSTANT
        places = self._of(tensor.name, body)
        if "weight" in places:
            return Role.PARAMETER
        if "state" in places:
            return Role.STATE
        if tensor.shape and f"bias {tensor.elements}" in places:
            return Role.PARAMETER
        if "first state" in places and not _has(tensor, np.any):
            return Role.CONSTANT
        if places <= {"known", "bound"}:
            return Role.CONSTANT
        if "table" in places:
            return Role.CONSTANT if _has(tensor, is_waves) else Role.PARAMETER
        if "part of a weight" in places and tensor.elements > 1:
            return Role.PARAMETER
        if any(place in ("arithmetic", "part of a weight") or place.startswith("bias") for place in places):
            if tensor.elements == 1:
                return Role.PARAMETER if _is_named_scalar(tensor) else Role.CONSTANT
            is_no_weight = is_mask if self._is_bare else is_computed
            return Role.CONSTANT if _has(tensor, is_no_weight) else Role.PARAMETER
        if self._is_bare and "preprocessing" in places and tensor.elements > 1:
            return Role.CONSTANT if _has(tensor, is_mask) else Role.PARAMETER
        if places & {"angle", "statistic", "preprocessing"}:
            return Role.CONSTANT
        return None

    def _by_name(self, tensor: StoredTensor) -> Role:
        last = tensor.name.rpartition(".")[2].rpartition("/")[2]
        if tensor.elements == 1:
            return Role.PARAMETER if _is_named_scalar(tensor) else Role.CONSTANT
        if _has(tensor, lambda values: not np.isfinite(values).all() or values.max() <= _MASK_VALUE):
            return Role.CONSTANT
        if _MADE_UP.search(tensor.name) or (BUFFERS.search(last) and not _SCALARS.search(last)):
            return Role.CONSTANT
        return Role.PARAMETER

    # ------------------------------------------------------------------------------------------- places

    def _nodes(self, body: Body) -> _Nodes:
        if body not in self._bodies:
            assert body is not None, "the graph of the model is there from the start"
            self._called(body, ())
        return self._bodies[body]

    def _called(self, body: Body, operands: Sequence[_Source]) -> Sequence[_Source] | None:
        """The sources of the results of a function's call; None for another operator.

        The function's nodes see, of each operand, the largest source of all calls.
        """
        function = self._functions.get(body) if body is not None else None
        if function is None:
            return None
        is_known = max(operands, default=_Source.CONSTANTS) is not _Source.CONSTANTS
        formals = tuple(operands) if is_known else (_Source.LAYERS,) * len(function.input)
        formals = tuple(map(max, zip(formals, self._formals.get(body, formals), strict=False)))
        if formals != self._formals.get(body):
            self._formals[body] = formals
            sources = dict(zip(function.input, formals, strict=False))
            self._bodies[body] = _Nodes.of(function.node, sources, (), self._called)
        return [self._bodies[body].source(name) for name in function.output]

    def _of(self, name: str, body: Body, depth: int = 0) -> frozenset[str]:
        """Places that read a value: weight, state, known, table, bias N, arithmetic, angle, statistic, ..."""
        key = (body, name)
        if key not in self._places:
            self._places[key] = frozenset()  # a cycle, which the walk refuses
            nodes = self._nodes(body)
            places: set[str] = set()
            for node, position in nodes.readers.get(name, ()):
                places.update(self._place(node, position, body, depth))
            for outer in nodes.aliases.get(name, ()):
                places |= self._of(outer, body, depth + 1)
            self._places[key] = frozenset(places)
        return self._places[key]

    def _place(self, node: onnx.NodeProto, position: int, body: Body, depth: int) -> Iterable[str]:
        op, key = node.op_type, (node.domain, node.op_type)
        nodes = self._nodes(body)
        if depth > _MAX_MOVES:
            return {"other"}
        if key in self._functions:
            formal = self._functions[key].input
            return self._of(formal[position], key, depth + 1) if position < len(formal) else ()
        if op == "BatchNormalization" and position in _STATES:
            return {"state"}
        if position in _KNOWN.get(op, ()):
            return {"known"}
        if position in _FIRST.get(op, ()):
            return {"first state"}
        others = [nodes.source(name) for k, name in enumerate(node.input) if k != position and name]
        of_constants = max(others, default=_Source.CONSTANTS) is _Source.CONSTANTS
        if op == "Gather" and position == 0:
            return {"table"}
        if op in ("Max", "Min") and not of_constants:
            return {"bound"}
        if position in _WEIGHTS.get(op, ()) and not (of_constants and op in ("MatMul", "Einsum")):
            if op == "MatMul" and nodes.is_angle(node.output[0]):
                return {"angle"}
            return {"weight", "instance"} if op == "InstanceNormalization" else {"weight"}
        if op == "Sqrt":
            return {"statistic"}
        if op in _ARITHMETIC and len(node.input) == 2 and not of_constants:
            return {nodes.arithmetic_place(node, position)}
        is_moved = op in _MOVES and position == 0
        if not is_moved and not (of_constants and op in _OF_CONSTANTS):
            return {"other"}
        places = {place for output in node.output for place in self._of(output, body, depth + 1)}
        if not is_moved and "weight" in places:  # a number that a weight is multiplied with is none
            places = places - {"weight"} | {"part of a weight"}
        return places or {"other"}


@dataclass(slots=True)
class _Nodes:
    """The nodes of one body, those of its branches among them: who reads and who makes each value."""

    stored: dict[str, StoredTensor]
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = field(default_factory=dict)
    makers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    #: Output of a branch -> outputs of the If.
    aliases: dict[str, list[str]] = field(default_factory=dict)
    sources: dict[str, _Source] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        nodes: Iterable[onnx.NodeProto],
        formals: Mapping[str, _Source],
        tensors: Iterable[StoredTensor],
        called: Callable[[Body, Sequence[_Source]], Sequence[_Source] | None],
    ) -> _Nodes:
        body = cls({tensor.name: tensor for tensor in tensors})
        body.sources = {**formals, **dict.fromkeys(body.stored, _Source.CONSTANTS)}
        for node in body._flattened(nodes):
            for position, name in enumerate(node.input):
                body.readers.setdefault(name, []).append((node, position))
            tensor = constant_tensor(node)
            if tensor is not None:
                body.stored.setdefault(tensor.name, tensor)
            operands = [body.source(name) if name else _Source.CONSTANTS for name in node.input]
            results = called((node.domain, node.op_type), operands)
            sources = results or [body._source_of(node, operands)] * len(node.output)
            body.makers |= dict.fromkeys(node.output, node)
            body.sources |= dict(zip(node.output, sources, strict=False))
        return body

    def _flattened(self, nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self.sources |= dict.fromkeys((v.name for v in attribute.g.input), _Source.LAYERS)
                    for tensor in tensors_of(attribute.g):
                        self.stored.setdefault(tensor.name, tensor)
                        self.sources.setdefault(tensor.name, _Source.CONSTANTS)
                    yield from self._flattened(attribute.g.node)
                    inward = attribute.g.output[1:] if node.op_type == "Loop" else attribute.g.output
                    for inner, outer in zip(inward, node.output, strict=False):
                        self.aliases.setdefault(inner.name, []).append(outer)
            yield node

    def source(self, name: str) -> _Source:
        return self.sources.get(name, _Source.INPUTS)

    def _source_of(self, node: onnx.NodeProto, sources: Sequence[_Source]) -> _Source:
        op = node.op_type
        if op in ("Constant", "Shape", "Size"):
            return _Source.CONSTANTS
        branches = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        if op == "If" and branches:
            return max(self.source(output.name) for branch in branches for output in branch.output)
        if branches:
            return _Source.LAYERS
        largest = max(sources, default=_Source.CONSTANTS)
        if op == "CastLike":
            return sources[0]
        if op == "Gather" and self._is_floating(node.input[0]):
            return _Source.LAYERS
        if largest is not _Source.INPUTS:
            return largest
        if op in _PASSES:
            is_alike = op in ("Div", "Mul") and _Source.CONSTANTS not in sources
            is_normalised = is_alike and any(map(self._is_deviation, node.input))
            return _Source.LAYERS if is_normalised else largest
        has_held = any(self.source(name) is _Source.CONSTANTS for name in node.input if name)
        return _Source.LAYERS if has_held else largest

    def _is_floating(self, name: str) -> bool:
        dtype = self.stored[name].dtype if name in self.stored else None
        return dtype is not None and dtype.is_floating

    def arithmetic_place(self, node: onnx.NodeProto, position: int) -> str:
        """The place of a constant operand of Add, Sub, Mul or Div whose other operand is computed."""
        other = node.input[1 - position]
        if self._is_quantised(other):
            return "known"
        if node.op_type == "Mul" and self.is_angle(node.output[0]):
            return "angle"
        if node.op_type == "Sub" and position == 1 and self._is_normalised(node.output[0]):
            return "statistic"
        if node.op_type in ("Add", "Sub", "Sum"):
            units = self._units(other)
            if units is not None:
                return f"bias {units}"
        return "preprocessing" if self.source(other) is _Source.INPUTS else "arithmetic"

    def is_angle(self, name: str) -> bool:
        """Whether both Sin and Cos are taken of a value, moved and scaled by constants or not."""
        return {"Sin", "Cos"} <= self._functions_of(name)

    def _functions_of(self, name: str, depth: int = 0) -> set[str]:
        functions = {node.op_type for node, _ in self.readers.get(name, ())}
        for node, position in self.readers.get(name, ()) if depth < _MAX_MOVES else ():
            others = (self.source(other) for k, other in enumerate(node.input) if k != position)
            is_scaled = node.op_type in _ARITHMETIC and all(s is _Source.CONSTANTS for s in others)
            if is_scaled or node.op_type in _MOVES | {"Concat"}:
                functions |= self._functions_of(node.output[0], depth + 1)
        return functions

    def _is_normalised(self, name: str) -> bool:
        """Whether a value is divided by a deviation that the file holds: the root of a variance."""
        readers = [(node, k) for node, k in self.readers.get(name, ()) if node.op_type in ("Div", "Mul")]
        others = [node.input[1 - k] for node, k in readers if len(node.input) == 2]
        return any(self.source(name) is _Source.CONSTANTS and self._is_deviation(name) for name in others)

    def _is_deviation(self, name: str, depth: int = 0) -> bool:
        """Whether a value is a root, or one over it, moved and scaled or not."""
        maker = self.makers.get(name)
        if maker is None or depth > _MAX_MOVES:
            return False
        if maker.op_type == "Sqrt":
            return True
        passed = maker.op_type in _MOVES | {"Div", "Mul", "Reciprocal"}
        return passed and any(self._is_deviation(operand, depth + 1) for operand in maker.input)

    def _is_quantised(self, name: str, depth: int = 0) -> bool:
        """Whether a value is the scale of a quantised tensor, or a sum of products of integers."""
        maker = self.makers.get(name)
        if maker is not None and maker.op_type in _MOVES and depth < _MAX_MOVES:
            return self._is_quantised(maker.input[0], depth + 1)
        return maker is not None and maker.op_type in (
            "DynamicQuantizeLinear",
            "MatMulInteger",
            "ConvInteger",
        )

    def _units(self, name: str, depth: int = 0) -> int | None:
        """The number of units of the product that a value is, if it is one with a weight of known shape."""
        maker = self.makers.get(name)
        if maker is None or depth > _MAX_MOVES:
            return None
        if maker.op_type in _KEEPS_UNITS:
            return self._units(maker.input[0], depth + 1)
        if maker.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or len(maker.input) < 2:
            return None
        shape = self.shape_of(maker.input[1])
        if shape is None or len(shape) < 2:
            return None
        attributes = {attribute.name: int(attribute.i) for attribute in maker.attribute}
        if maker.op_type == "ConvTranspose":
            return shape[1] * attributes.get("group", 1)
        if maker.op_type == "Conv" or attributes.get("transB", 0):
            return shape[0]
        return shape[-1]

    def shape_of(self, name: str, depth: int = 0) -> tuple[int, ...] | None:
        """The shape of a value that the file holds, through moves that keep or permute it, or None."""
        if name in self.stored:
            return self.stored[name].shape
        maker = self.makers.get(name)
        if maker is None or depth > _MAX_MOVES:
            return None
        if maker.op_type == "ConstantOfShape":
            sizes = self.stored.get(maker.input[0])
            if sizes is None or sizes.elements > 8 or sizes.absent:
                return None
            return tuple(int(size) for size in sizes.array().reshape(-1))
        if maker.op_type not in ("Identity", "Cast", "Transpose", "QuantizeLinear", "DequantizeLinear"):
            return None
        shape = self.shape_of(maker.input[0], depth + 1)
        if shape is None or maker.op_type != "Transpose":
            return shape
        perm = next(
            (tuple(a.ints) for a in maker.attribute if a.name == "perm"), tuple(reversed(range(len(shape))))
        )
        return tuple(shape[i] for i in perm) if sorted(perm) == list(range(len(shape))) else None


# ------------------------------------------------------------------------------------------- names and values


def _has(tensor: StoredTensor, test: Callable[[Array], bool]) -> bool:
    """Whether the values are at hand and pass a test."""
    values = tensor.values()
    return values is not None and bool(test(values))


def _is_named_scalar(tensor: StoredTensor) -> bool:
    """Whether a scalar has the name of a parameter: ``blocks.0.alpha``; ``alpha`` only if it has an axis."""
    name = tensor.name
    is_own = ("." in name or "_" in name or tensor.shape) and not _MADE_UP.search(name)
    return bool(is_own and _SCALARS.search(name))
