"""ONNX's LSTM, GRU and RNN: cells unrolled over time, which share their weights.

    X [time, batch, inputs]   -- Split -->   x0      x1      x2
                                              |       |       |
    initial state   ----------------------> cell -> cell -> cell ---> Y_h [directions, batch, hidden]
                                              |       |       |
    Y [time, directions, batch, hidden]  <-   +------ + ----- +   Concat, Unsqueeze

A graph holds the cells alone: each is an operation with tensors of its own, so that a plan sees what of
each step in time must be kept. W, R and B are operands of every cell; what the cells say about their
gradients is accumulated as for any operand of several operations. With `layout` 1 the batch comes first
in X, Y and the states. Operands have ONNX's axis of directions in front; with one direction they may do
without.

Sequences of several lengths have a mask in the place of the lengths: truth values [time, batch, 1], which say
which steps belong to each sequence. A step beyond leaves the states as they are, and its place in Y is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from solver.errors import TooManyOperationsError
from solver.graph.ops.base import Attribute, Node, Signature
from solver.graph.ops.helpers.shared import bad_attribute, same_floating
from solver.graph.types import AttributeValue, DType, Operation, TensorType

__all__ = ["SEQUENCES", "RecurrentSequence"]

_X, _W, _R, _B, _LENGTHS, _H, _C, _P = range(8)
_DIRECTIONS: Final = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True, slots=True)
class _Sizes:
    steps: int
    batch: int
    hidden: int
    directions: int


class RecurrentSequence(Signature):
    """Inputs X, W, R, B, sequence_lens, initial states, peepholes; outputs Y, Y_h and Y_c, or "" for each
    that is not needed.

    sequence_lens are constants that all are the number of steps, or a mask. What is not part of the cells is
    refused: other activations than theirs, and clipping.
    """

    outputs = None
    #: The operator of one step, and its own attributes.
    cell: ClassVar[str]
    states: ClassVar[int] = 1
    own: ClassVar[Mapping[str, Attribute]] = {}
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "direction": Attribute("string", default="forward", choices=_DIRECTIONS),
        "hidden_size": Attribute("int", minimum=1),
        "layout": Attribute("int", default=0, choices=(0, 1)),
    }

    def rules(self) -> dict[str, Attribute]:
        return {**super().rules(), **self.own}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        """Types of the outputs, of those left out, too."""
        dtype = same_floating(node, (i for i in range(len(node.inputs)) if i != _LENGTHS))
        sizes, names = self._sizes(node), node.operation.outputs
        if not any(names) or len(names) > 1 + self.states:
            raise node.mismatch(f"expected names for some of {1 + self.states} outputs")
        batch_first = node.attributes["layout"]
        state = [sizes.directions, sizes.batch]
        whole = [sizes.batch, sizes.steps, sizes.directions] if batch_first else [sizes.steps, *state]
        shapes = [whole, *[state[::-1] if batch_first else state] * self.states]
        return tuple(TensorType((*shape, sizes.hidden), dtype) for shape in shapes[: len(names)])

    def _sizes(self, node: Node) -> _Sizes:
        x, r = node.input(_X).shape, node.input(_R).shape
        if len(x) != 3 or len(r) not in (2, 3):
            raise node.mismatch("expected X of three axes and R of two or three")
        directions = 2 if node.attributes["direction"] == "bidirectional" else 1
        steps, batch = x[1::-1] if node.attributes["layout"] else x[:2]
        if node.attributes["hidden_size"] not in (None, r[-1]):
            raise bad_attribute(node, "hidden_size", f"must be that of R, {r[-1]}")
        for position in (_W, _R, _B, _P):
            if directions == 2 and node.has_input(position) and node.input(position).shape[0] != 2:
                raise node.mismatch(f"expected input {position} to have two directions in front")
        if node.has_input(_LENGTHS) and not _are_whole(node, steps, batch):
            raise node.mismatch(
                f"expected the length of each sequence to be {steps}, a constant, or a mask of truth values"
                f" [{steps}, {batch}, 1]"
            )
        return _Sizes(steps, batch, r[-1], directions)

    def unroll(self, node: Node, limit: int) -> tuple[Operation, ...]:
        """The operations that define the same outputs, in order.

        Raises TooManyOperationsError for more than `limit` cells.
        """
        sizes = self._sizes(node)
        if sizes.steps * sizes.directions > limit:
            raise TooManyOperationsError(
                f"Operation {node.operation.id!r} ({self.name}) takes {sizes.steps:,} steps in time; at most"
                f" {limit:,} more operations are allowed.",
                remedy="Cut the sequences, or raise the limit where the planner is configured.",
            )
        own = {key: node.attributes[key] for key in self.own}
        return _Unrolling(node, sizes, self.cell, self.states, own).operations()


def _are_whole(node: Node, steps: int, batch: int) -> bool:
    """Whether the lengths of the sequences are all the number of steps, and constant; or a mask."""
    lengths = node.constants[_LENGTHS]
    if _is_mask(node):
        return node.input(_LENGTHS).shape == (steps, batch, 1)
    return lengths is not None and len(lengths) == batch and set(lengths) == {steps}


def _is_mask(node: Node) -> bool:
    return node.has_input(_LENGTHS) and node.input(_LENGTHS).dtype is DType.BOOL


class _Unrolling:
    """Makes the operations of one sequence; lives for one call of `unroll`."""

    def __init__(
        self, node: Node, sizes: _Sizes, cell: str, states: int, own: Mapping[str, AttributeValue]
    ) -> None:
        self.node = node
        self.sizes = sizes
        self.cell = cell
        self.states = states
        self.own = own
        self.batch_first = bool(node.attributes["layout"])
        self.emitted: list[Operation] = []
        #: Operands of each direction, by position.
        self.split: dict[int, list[str]] = {}
        #: The mask at each step in time, and as floats; of all steps as floats.
        self.masks: list[str] = []
        self.factors: list[str] = []
        self.factor = ""

    def operations(self) -> tuple[Operation, ...]:
        """All of them, with the outputs called as the sequence calls them."""
        pieces = self._pieces()
        if _is_mask(self.node):
            mask, to = self._optional(_LENGTHS), 1 if self.node.input(_X).dtype is DType.FLOAT32 else 11
            (self.factor,) = self._emit("Cast", "factor", [mask], to=to)
            # Slices of truth values are made by a cast, as C has Split for floats alone.
            self.factors = self._in_time(self.factor, "factors", "factor")
            self.masks = [
                self._emit("Cast", f"mask{t}", [factor], to=9)[0] for t, factor in enumerate(self.factors)
            ]
        chains = [self._chain(d, pieces) for d in range(self.sizes.directions)]
        outputs = dict(enumerate(self.node.operation.outputs))
        names = {}
        if outputs.get(0):
            names[self._whole([hidden for hidden, _ in chains])] = outputs[0]
        for k in range(self.states):
            if outputs.get(k + 1):
                names[self._last([last[k] for _, last in chains], "hc"[k])] = outputs[k + 1]
        return tuple(_renamed(operation, names) for operation in self.emitted)

    def _emit(
        self,
        type_: str,
        what: str,
        inputs: Sequence[str],
        *,
        outputs: Sequence[str] = (),
        **attributes: AttributeValue,
    ) -> list[str]:
        """Add an operation called after the sequence, and likewise its outputs; returns their names."""
        name = f"{self.node.operation.id}.{what}"
        defined = [f"{self.node.operation.id}.{output}" for output in outputs or (what,)]
        self.emitted.append(Operation(name, type_, tuple(inputs), tuple(defined), attributes))
        return defined

    def _optional(self, position: int) -> str:
        inputs = self.node.operation.inputs
        return inputs[position] if position < len(inputs) else ""

    def _pieces(self) -> list[str]:
        """X at each step in time, [1, batch, inputs]."""
        x = self._optional(_X)
        if self.batch_first:
            (x,) = self._emit("Transpose", "x", [x], perm=(1, 0, 2))
        return self._in_time(x, "steps", "x")

    def _in_time(self, name: str, what: str, prefix: str) -> list[str]:
        """The slices of an operand along its axis of time."""
        if self.sizes.steps == 1:
            return [name]
        outputs = [f"{prefix}{t}" for t in range(self.sizes.steps)]
        return self._emit("Split", what, [name], outputs=outputs, axis=0)

    def _operand(self, position: int) -> list[str]:
        """An operand of the cells, of each direction."""
        if position not in self.split:
            self.split[position] = self._by_direction(position)
        return self.split[position]

    def _by_direction(self, position: int) -> list[str]:
        name, count = self._optional(position), self.sizes.directions
        if name and position in (_H, _C) and self.batch_first and len(self.node.input(position).shape) == 3:
            (name,) = self._emit("Transpose", f"in{position}", [name], perm=(1, 0, 2))
        if not name or count == 1:
            return [name] * count
        outputs = [f"in{position}.{direction}" for direction in _DIRECTIONS[:count]]
        return self._emit("Split", f"in{position}.directions", [name], outputs=outputs, axis=0)

    def _chain(self, direction: int, pieces: Sequence[str]) -> tuple[list[str], list[str]]:
        """(H at each step in time, the last states) of the cells of one direction."""
        w, r, b = (self._operand(position)[direction] for position in (_W, _R, _B))
        states = [self._operand(position)[direction] for position in (_H, _C)[: self.states]]
        peepholes = [self._operand(_P)[direction]] if self._optional(_P) else []
        backward = self.node.attributes["direction"] == "reverse" or direction == 1
        prefix = "reverse." if backward else ""
        hidden = [""] * len(pieces)
        for t in range(len(pieces))[:: -1 if backward else 1]:
            inputs = [pieces[t], *states, w, r, b, *peepholes]
            outputs = [f"{prefix}{name}{t}" for name in "hc"[: self.states]]
            after = self._emit(self.cell, f"{prefix}{t}", inputs, outputs=outputs, **self.own)
            if self.masks:
                after = [
                    self._held(t, f"{prefix}{t}.{k}", *pair)
                    for k, pair in enumerate(zip(after, states, strict=True))
                ]
            states = after
            hidden[t] = states[0]
        return hidden, states

    def _held(self, t: int, what: str, after: str, before: str) -> str:
        """A state after step t, or before it in sequences that the step is beyond. Left out, it is 0."""
        if before:
            return self._emit("Where", f"{what}.held", [self.masks[t], after, before])[0]
        return self._emit("Mul", f"{what}.held", [after, self.factors[t]])[0]

    def _whole(self, hidden: Sequence[Sequence[str]]) -> str:
        """Y: the states of all steps, of all directions."""
        parts = []
        for d, steps in enumerate(hidden):
            joined = self._emit("Concat", f"all.{d}", steps, axis=0) if len(steps) > 1 else list(steps)
            parts += self._emit("Unsqueeze", f"Y.{d}", joined, axes=(1,))
        if len(parts) > 1:
            parts = self._emit("Concat", "Y", parts, axis=1)
        if self.factor:
            factor = self._emit("Unsqueeze", "factor.Y", [self.factor], axes=(1,))
            parts = self._emit("Mul", "Y.held", [*parts, *factor])
        if self.batch_first:
            parts = self._emit("Transpose", "Y.batch", parts, perm=(2, 0, 1, 3))
        return parts[0]

    def _last(self, states: Sequence[str], what: str) -> str:
        """Y_h or Y_c: the last state of each direction."""
        parts = list(states)
        if len(parts) > 1:
            parts = self._emit("Concat", f"Y_{what}", parts, axis=0)
        if self.batch_first:
            parts = self._emit("Transpose", f"Y_{what}.batch", parts, perm=(1, 0, 2))
        return parts[0]


def _renamed(operation: Operation, names: Mapping[str, str]) -> Operation:
    inputs, outputs = (
        tuple(names.get(name, name) for name in names_there)
        for names_there in (operation.inputs, operation.outputs)
    )
    return Operation(operation.id, operation.type, inputs, outputs, operation.attributes)


class _LSTM(RecurrentSequence):
    name = "LSTM"
    arity = (3, 8)
    cell = "LSTMCell"
    states = 2


class _GRU(RecurrentSequence):
    name = "GRU"
    arity = (3, 6)
    cell = "GRUCell"
    own: ClassVar[Mapping[str, Attribute]] = {
        "linear_before_reset": Attribute("int", default=0, choices=(0, 1))
    }


class _RNN(RecurrentSequence):
    name = "RNN"
    arity = (3, 6)
    cell = "RNNCell"
    own: ClassVar[Mapping[str, Attribute]] = {
        "nonlinearity": Attribute("string", default="Tanh", choices=("Tanh", "Relu", "Sigmoid"))
    }


#: The sequences by name.
SEQUENCES: Final[Mapping[str, RecurrentSequence]] = {
    sequence.name: sequence for sequence in (_LSTM(), _GRU(), _RNN())
}
