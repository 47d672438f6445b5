"""UNIDIRECTIONAL_SEQUENCE_LSTM, in float: cells unrolled over time, with all that the operator may have.

    inputs 1-4    weights of the input to the gates i, f, c, o    9-11   peepholes of i, f, o
    inputs 5-8    weights of the output before to the gates       12-15  biases
    inputs 16-17  projection of the output, and its bias          20-23  scales of layer normalisations

Without the weights of the gate i, it is 1 - f (CIFG). A plain layer becomes the graph's own LSTM, and any
other one operations: for each step in time the gates, the cell state and the output. States begin at zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from solver.importers.circle.network import Network, Unsupported
from solver.importers.circle.read import ModelOperator

__all__ = ["LSTM", "unidirectional_lstm"]

LSTM: Final = "UNIDIRECTIONAL_SEQUENCE_LSTM"

#: Inputs by gate.
_INPUT: Final[Mapping[str, int]] = {"i": 1, "f": 2, "c": 3, "o": 4}
_RECURRENT: Final[Mapping[str, int]] = {"i": 5, "f": 6, "c": 7, "o": 8}
_PEEPHOLE: Final[Mapping[str, int]] = {"i": 9, "f": 10, "o": 11}
_BIAS: Final[Mapping[str, int]] = {"i": 12, "f": 13, "c": 14, "o": 15}
_PROJECTION, _PROJECTION_BIAS = 16, 17
_NORMALISED: Final[Mapping[str, int]] = {"i": 20, "f": 21, "c": 22, "o": 23}
#: The gates in the order of the graph's LSTM.
_ORDER: Final = "iofc"
#: The number that the format adds to a variance.
_VARIANCE_EPSILON: Final = 1e-8

#: Activations of the cell state.
_ACTIVATIONS: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {
    "TANH": ("Tanh", {}),
    "RELU": ("Relu", {}),
    "RELU6": ("Clip", {"min": 0.0, "max": 6.0}),
    "RELU_N1_TO_1": ("Clip", {"min": -1.0, "max": 1.0}),
}


def unidirectional_lstm(net: Network, operator: ModelOperator) -> None:
    """The output at each step in time, [batch, time, outputs], or with the time in front as the input."""
    activation = operator.word("FusedActivationFunction", "NONE")
    if activation not in ("NONE", *_ACTIVATIONS):
        raise Unsupported(f"has the activation {activation}")
    if operator.options.get("DiagonalRecurrentTensors"):
        raise Unsupported("has diagonal recurrent weights")
    cell_clip, output_clip = operator.real("CellClip", 0.0), operator.real("ProjClip", 0.0)
    plain = net.has_input(_INPUT["i"]) and activation == "TANH" and not cell_clip
    if plain and not any(map(net.has_input, (_PROJECTION, *_NORMALISED.values()))):
        _plain(net, time_major=bool(operator.integer("TimeMajor", 0)))
    else:
        _Unrolled(net, activation, cell_clip, output_clip).emit(bool(operator.integer("TimeMajor", 0)))


def _plain(net: Network, *, time_major: bool) -> None:
    x = net.input(0)
    inputs = [x, *(_joined(net, [places[gate] for gate in _ORDER]) for places in (_INPUT, _RECURRENT, _BIAS))]
    if net.has_input(_PEEPHOLE["o"]):
        inputs += ["", "", "", _joined(net, [_PEEPHOLE[gate] for gate in "iof"])]
    (states,) = net.parts("LSTM", inputs, 1, {"layout": 0 if time_major else 1})
    net.emit("Squeeze", [states, net.numbers((1 if time_major else 2,))])


def _joined(net: Network, positions: Sequence[int]) -> str:
    """Weights of all gates, one below the other."""
    return net.part("Concat", [net.weight(position) for position in positions], {"axis": 0})


class _Unrolled:
    """Makes the operations of one layer; lives for one call of `unidirectional_lstm`."""

    def __init__(self, net: Network, activation: str, cell_clip: float, output_clip: float) -> None:
        self.net = net
        self.activation = activation
        self.cell_clip, self.output_clip = cell_clip, output_clip
        self.gates = "ifco" if net.has_input(_INPUT["i"]) else "fco"

    def emit(self, time_major: bool) -> None:
        net, axis = self.net, 0 if time_major else 1
        steps = net.shape(0)[axis]
        pieces = [net.input(0)]
        if steps > 1:
            pieces = net.parts("Split", [net.input(0)], steps, {"axis": axis, "num_outputs": steps})
        output, cell, outputs = "", "", []
        for piece in pieces:
            x = net.part("Squeeze", [piece, net.numbers((axis,))])
            output, cell = self._step(x, output, cell)
            outputs.append(net.part("Unsqueeze", [output, net.numbers((axis,))]))
        net.emit("Concat", outputs, {"axis": axis})

    def _step(self, x: str, output: str, cell: str) -> tuple[str, str]:
        """Output and cell state after a step; "" stands for those before the first, which are zero."""
        net = self.net
        gates = {gate: self._gate(gate, x, output, cell) for gate in self.gates if gate != "o"}
        if "i" not in gates:
            gates["i"] = net.part("Sub", [net.scalar(1.0), gates["f"]])
        state = net.part("Mul", [gates["i"], gates["c"]])
        if cell:
            state = net.part("Add", [net.part("Mul", [gates["f"], cell]), state])
        state = self._clipped(state, self.cell_clip)
        gate = self._gate("o", x, output, state)
        result = net.part("Mul", [gate, self._activated(state)])
        if net.has_input(_PROJECTION):
            factors = [result, net.weight(_PROJECTION), *net.bias(_PROJECTION_BIAS)]
            result = self._clipped(net.part("Gemm", factors, {"transB": 1}), self.output_clip)
        return result, state

    def _gate(self, gate: str, x: str, output: str, cell: str) -> str:
        """A gate: a function of the input, the previous output and, through peepholes, the cell state."""
        net, is_normalised = self.net, self.net.has_input(_NORMALISED[gate])
        bias = net.bias(_BIAS[gate])
        total = net.part(
            "Gemm", [x, net.weight(_INPUT[gate]), *(() if is_normalised else bias)], {"transB": 1}
        )
        if output:
            product = net.part("Gemm", [output, net.weight(_RECURRENT[gate])], {"transB": 1})
            total = net.part("Add", [total, product])
        if cell and gate in _PEEPHOLE and net.has_input(_PEEPHOLE[gate]):
            total = net.part("Add", [total, net.part("Mul", [cell, net.weight(_PEEPHOLE[gate])])])
        if is_normalised:
            weights = [net.weight(_NORMALISED[gate]), *bias]
            total = net.part(
                "LayerNormalization", [total, *weights], {"axis": -1, "epsilon": _VARIANCE_EPSILON}
            )
        return self._activated(total) if gate == "c" else net.part("Sigmoid", [total])

    def _activated(self, value: str) -> str:
        if self.activation == "NONE":
            return value
        type_, limits = _ACTIVATIONS[self.activation]
        return self.net.part(type_, [value], limits)

    def _clipped(self, value: str, limit: float) -> str:
        return self.net.part("Clip", [value], {"min": -limit, "max": limit}) if limit > 0 else value
