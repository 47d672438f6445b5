"""Which of a model's tensors are trained: ONNX does not say, so it is told from use and name.

    weight position    W of Conv, B of Gemm, scale of a normalisation, the table of a Gather   a parameter
    running statistic  inputs 3 and 4 of BatchNormalization                                    a state
    anywhere else      a floating tensor of several elements under a name of the network's own  a parameter
                       (positional embeddings, class tokens, layer scales); a constant if an
                       exporter made the name up, or if it is one that buffers have

Uses are looked up through moves (Transpose, Reshape) and through calls of functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from solver.graph import Role
from solver.importers.onnx.lowering.quantised import SCALES
from solver.importers.onnx.read import StoredTensor

if TYPE_CHECKING:
    import onnx

__all__ = ["roles_of"]

_Key = tuple[str, str]

#: Operator -> positions of what it is trained by.
_WEIGHTS: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), frozenset({1, 2})),
    **dict.fromkeys(("Gemm", "PRelu"), frozenset({0, 1, 2})),
    "MatMul": frozenset({0, 1}),
    **dict.fromkeys(
        (
            *("LayerNormalization", "InstanceNormalization", "GroupNormalization"),
            *("RMSNormalization", "SimplifiedLayerNormalization", "BatchNormalization"),
        ),
        frozenset({1, 2}),
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), frozenset({1, 2, 3, 7})),
    "Gather": frozenset({0}),
}
_STATES: Final = frozenset({3, 4})
#: Operator -> positions of floating operands that have to be known: scales, bounds, exponents.
_KNOWN: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(("Resize", "Pad", "OneHot", "Range"), frozenset({1, 2, 3})),
    **dict.fromkeys(("Clip", "Dropout"), frozenset({1, 2})),
    **dict.fromkeys(("Upsample", "Pow"), frozenset({1})),
    **SCALES,
}
#: Operators whose result is what they are given, moved.
_MOVES: Final = frozenset(
    {
        "Identity",
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Cast",
        "Expand",
        "Flatten",
        "Slice",
        "Split",
    }
    | {"Concat", "SplitToSequence", "SequenceAt"}
)
#: Names that exporters make up.
_MADE_UP: Final = re.compile(
    r"(::|^/|^_*val(_\d+)?$|^\d+$|const|lifted_tensor|scalar_tensor|_output_\d+$|^t\d+$|^initializer\d*$|^tmp|^_to_copy)",
    re.IGNORECASE,
)
#: Last parts of names under which modules keep what they do not train.
_BUFFERS: Final = re.compile(
    r"(inv_freq|rotary|freqs?|freqs_cis|(attn_|attention_|causal_|bias_)?mask(ed_bias)?|position_ids|token_type_ids"
    r"|relative_position_index|relative_coords_table|running_(mean|var)|num_batches_tracked|anchors?|window|mel_filters"
    r"|mean|std|pixel_(mean|std)|(cos|sin)(_cached?)?|pe|basis|filterbank|fb)$"
)
#: Last parts of names of scalars that are trained.
_SCALARS: Final = re.compile(r"(weight|bias|gamma|beta|alpha|scale|temperature)$")
_DEPTH: Final = 32


def roles_of(
    tensors: Sequence[StoredTensor],
    nodes: Sequence[onnx.NodeProto],
    functions: Mapping[_Key, onnx.FunctionProto],
    trained: Iterable[str] = (),
) -> dict[str, Role]:
    """PARAMETER, STATE or CONSTANT for each tensor; those named in `trained` are parameters. About linear."""
    uses, asked = _Uses(nodes, functions), frozenset(trained)
    return {
        tensor.name: Role.PARAMETER if tensor.name in asked else _role(tensor, uses.of(tensor.name))
        for tensor in tensors
    }


def _role(tensor: StoredTensor, kinds: frozenset[str]) -> Role:
    if tensor.dtype is None or not tensor.dtype.is_floating or not tensor.elements:
        return Role.CONSTANT
    if "state" in kinds:
        return Role.STATE
    last = tensor.name.rpartition(".")[2].rpartition("/")[2]
    if _BUFFERS.search(last) and not _SCALARS.search(last):
        return Role.CONSTANT
    if "weight" in kinds:
        return Role.PARAMETER
    if _MADE_UP.search(tensor.name) or kinds <= {"known"}:
        return Role.CONSTANT
    if tensor.elements == 1:
        return Role.PARAMETER if _SCALARS.search(last) and "." in tensor.name else Role.CONSTANT
    return Role.PARAMETER


class _Uses:
    """Where names are read, in the graph and in the functions that it calls."""

    def __init__(self, nodes: Sequence[onnx.NodeProto], functions: Mapping[_Key, onnx.FunctionProto]) -> None:
        self.functions = functions
        self.readers: dict[_Key | None, dict[str, list[tuple[onnx.NodeProto, int]]]] = {None: _readers(nodes)}
        self.known: dict[tuple[_Key | None, str], frozenset[str]] = {}

    def of(self, name: str, where: _Key | None = None, depth: int = 0) -> frozenset[str]:
        """Kinds of uses: weight, state, known, other."""
        if (where, name) in self.known:
            return self.known[where, name]
        self.known[where, name] = frozenset()  # a cycle, which the walk refuses
        found: set[str] = set()
        if where not in self.readers:
            assert where is not None
            self.readers[where] = _readers(self.functions[where].node)
        for node, position in self.readers[where].get(name, ()):
            found.update(self._kinds(node, position, where, depth))
        self.known[where, name] = frozenset(found)
        return self.known[where, name]

    def _kinds(self, node: onnx.NodeProto, position: int, where: _Key | None, depth: int) -> Iterable[str]:
        key = (node.domain, node.op_type)
        if depth > _DEPTH:
            return {"other"}
        if key in self.functions:
            formal = self.functions[key].input
            return self.of(formal[position], key, depth + 1) if position < len(formal) else ()
        if node.op_type == "BatchNormalization" and position in _STATES:
            return {"state"}
        if position in _WEIGHTS.get(node.op_type, ()):
            return {"weight"}
        if position in _KNOWN.get(node.op_type, ()):
            return {"known"}
        if node.op_type in _MOVES and (position == 0 or node.op_type == "Concat"):
            kinds = {kind for output in node.output for kind in self.of(output, where, depth + 1)}
            return kinds or {"other"}
        return {"other"}


def _readers(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[tuple[onnx.NodeProto, int]]]:
    found: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in nodes:
        for position, name in enumerate(node.input):
            found.setdefault(name, []).append((node, position))
    return found
