"""Cells of recurrent networks: one step in time of ONNX's LSTM, GRU and RNN, with its gates and weights.

    X [batch, inputs]   H [batch, hidden]   W [gates * hidden, inputs]   R [gates * hidden, hidden]
    B [2 * gates * hidden]: biases of the products with W, then of those with R; or the former alone

Gates lie in ONNX's order: input, output, forget, cell for LSTM; update, reset, hidden for GRU. Every operand
may have one more axis in front, of size 1: what is sliced from a sequence, or ONNX's axis of directions; the
outputs have it where X has. A state that is left out is zeros. A sequence is a chain of cells that share
W, R and B (`solver.graph.unroll`).

The forward step saves the gates, activated; the backward step computes the derivatives in front of the
activations from them, and all else is products of matrices with those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest, scratch
from solver.graph.ops.helpers.shared import same_floating
from solver.graph.types import TensorType

__all__ = ["GATES", "OPERATORS", "PEEPHOLES", "Cell", "cell"]

#: Gates of each cell.
GATES: Mapping[str, int] = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}

#: Input of LSTMCell: weights from the cell state to the gates input, output, forget.
PEEPHOLES = 6


@dataclass(frozen=True, slots=True)
class Cell:
    """Sizes of a cell, and where its operands stand: X, `states` states, W, R, B."""

    batch: int
    inputs: int
    hidden: int
    gates: int
    states: int

    @property
    def rows(self) -> int:
        """Rows of W and R: columns of all gates together."""
        return self.gates * self.hidden

    @property
    def w(self) -> int:
        return self.states + 1

    @property
    def r(self) -> int:
        return self.states + 2

    @property
    def b(self) -> int:
        return self.states + 3


def cell(node: Node) -> Cell:
    """Sizes of a cell. Raises ShapeMismatchError for operands that do not fit together."""
    gates, states = GATES[node.operation.type], 2 if node.operation.type == "LSTMCell" else 1
    x, w, r = (_plain(node, i, 2) for i in (0, states + 1, states + 2))
    sizes = Cell(x[0], x[1], r[1], gates, states)
    if r[0] != sizes.rows or w != (sizes.rows, sizes.inputs):
        raise node.mismatch(f"expected W [{gates} H, {x[1]}] and R [{gates} H, H] of one hidden size H")
    for position in range(1, 1 + states):
        if node.has_input(position) and _plain(node, position, 2) != (sizes.batch, sizes.hidden):
            raise node.mismatch(f"expected a state of shape [{sizes.batch}, {sizes.hidden}]")
    if node.has_input(sizes.b) and _plain(node, sizes.b, 1) not in ((sizes.rows,), (2 * sizes.rows,)):
        raise node.mismatch(f"expected {sizes.rows} or {2 * sizes.rows} biases")
    if node.has_input(PEEPHOLES) and _plain(node, PEEPHOLES, 1) != (3 * sizes.hidden,):
        raise node.mismatch(f"expected {3 * sizes.hidden} weights of peepholes")
    return sizes


def _plain(node: Node, position: int, rank: int) -> tuple[int, ...]:
    """Shape without an axis of size 1 in front."""
    shape = node.input(position).shape
    plain = shape[1:] if len(shape) == rank + 1 and shape[0] == 1 else shape
    if len(plain) != rank:
        raise node.mismatch(f"expected input {position} to have {rank} axes, or one more of size 1 in front")
    return plain


#: X and W, which stands behind the states.
_FACTORS = {type_: frozenset({"x0", "x3" if type_ == "LSTMCell" else "x2"}) for type_ in GATES}


class _Cell(OperationType):
    #: Outputs are the states that the inputs have.
    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype, sizes = same_floating(node, range(len(node.inputs))), cell(node)
        shape = (*node.input(0).shape[:-2], sizes.batch, sizes.hidden)
        return (TensorType(shape, dtype),) * sizes.states

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        """The product of H and R, before it is added to that of X and W."""
        sizes = cell(node)
        if not node.has_input(1):
            return ()
        return (scratch("recurrent", (sizes.batch, sizes.rows), node.input(0).dtype),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        sizes = cell(node)
        shapes = dict(self._scratch(node, sizes, derivatives))
        return BackwardNeeds(
            inputs=frozenset(i for i in self._reads(node, sizes, derivatives) if node.has_input(i)),
            outputs=self._results(),
            saved=frozenset(request.name for request in self.saved(node)),
            scratch=tuple(scratch(name, shape, node.input(0).dtype) for name, shape in shapes.items()),
        )

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        """X and W are read as factors of each other's derivatives, and for nothing else."""
        if forward:
            return frozenset()
        factors = _FACTORS[node.operation.type]
        return frozenset({slot[1:]}) if slot[1:] in factors else factors

    def _reads(self, node: Node, sizes: Cell, derivatives: frozenset[int]) -> Iterator[int]:
        """The other factor of each product."""
        partners = {0: sizes.w, sizes.w: 0, 1: sizes.r, sizes.r: 1}
        yield from (partners[i] for i in derivatives if i in partners)

    def _results(self) -> frozenset[int]:
        """Outputs that the backward step reads."""
        return frozenset()

    def _scratch(
        self, node: Node, sizes: Cell, derivatives: frozenset[int]
    ) -> Iterator[tuple[str, tuple[int, int]]]:
        """`inner` is the derivative of what the gates are activations of."""
        yield "inner", (sizes.batch, sizes.rows)


class _LSTMCell(_Cell):
    """H' = o * tanh(C') with C' = f * C + i * tanh(cell); inputs X, H, C, W, R, B, P, outputs H', C'.

    Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000. Peepholes (P, [3 hidden],
    optional) let i and f see C, and o see C'.
    """

    name = "LSTMCell"
    arity = (5, 7)
    outputs = 2

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        sizes = cell(node)
        return (scratch("gates", (sizes.batch, sizes.rows), node.input(0).dtype),)

    def _reads(self, node: Node, sizes: Cell, derivatives: frozenset[int]) -> Iterator[int]:
        yield from super()._reads(node, sizes, derivatives)
        yield from (2, PEEPHOLES)

    def _results(self) -> frozenset[int]:
        return frozenset({1})

    def _scratch(
        self, node: Node, sizes: Cell, derivatives: frozenset[int]
    ) -> Iterator[tuple[str, tuple[int, int]]]:
        """`squashed` is tanh(C') first and free then, `cell` the derivative of C'."""
        yield from super()._scratch(node, sizes, derivatives)
        yield "squashed", (sizes.batch, sizes.hidden)
        yield "cell", (sizes.batch, sizes.hidden)


class _GRUCell(_Cell):
    """H' = (1 - z) * h + z * H, where h sees H through the reset gate r; inputs X, H, W, R, B.

    h = tanh(X Wh' + (r * H) Rh' + biases), after Cho et al. 2014; with `linear_before_reset`
    h = tanh(X Wh' + bias + r * (H Rh' + bias)), as in cuDNN, Keras and PyTorch.
    """

    name = "GRUCell"
    arity = (4, 5)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "linear_before_reset": Attribute("int", default=0, choices=(0, 1))
    }

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        """The gates; with `linear_before_reset` also the factor of the reset gate."""
        sizes, dtype = cell(node), node.input(0).dtype
        requests = [scratch("gates", (sizes.batch, sizes.rows), dtype)]
        if node.attributes["linear_before_reset"]:
            requests.append(scratch("product", (sizes.batch, sizes.hidden), dtype))
        return tuple(requests)

    def _reads(self, node: Node, sizes: Cell, derivatives: frozenset[int]) -> Iterator[int]:
        """The derivative of the reset gate goes through R, unless it is applied after it."""
        yield from super()._reads(node, sizes, derivatives)
        yield 1
        if not node.attributes["linear_before_reset"] and node.has_input(1):
            yield sizes.r

    def _scratch(
        self, node: Node, sizes: Cell, derivatives: frozenset[int]
    ) -> Iterator[tuple[str, tuple[int, int]]]:
        """`through` is the derivative of the product with Rh, or of r * H; `partial` part of dH, or r * H."""
        yield from super()._scratch(node, sizes, derivatives)
        yield "through", (sizes.batch, sizes.hidden)
        if derivatives & {1, sizes.r} and node.has_input(1):
            yield "partial", (sizes.batch, sizes.hidden)


class _RNNCell(_Cell):
    """H' = nonlinearity(X W' + H R' + biases), after Elman 1990; inputs X, H, W, R, B."""

    name = "RNNCell"
    arity = (4, 5)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "nonlinearity": Attribute("string", default="Tanh", choices=("Tanh", "Relu", "Sigmoid"))
    }

    def _results(self) -> frozenset[int]:
        return frozenset({0})


OPERATORS: tuple[OperationType, ...] = (_LSTMCell(), _GRUCell(), _RNNCell())
