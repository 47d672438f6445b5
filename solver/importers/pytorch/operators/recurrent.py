"""LSTM, GRU and plain recurrence. A layer and direction becomes one sequence, which a graph unrolls.

PyTorch's blocks of rows are i f g o (LSTM) and r z n (GRU), ONNX's i o f c and z r h: weights lie here in
ONNX's order, and are brought into it and back when they are loaded and read.
"""

from __future__ import annotations

from collections.abc import Sequence

from solver.graph import AttributeValue
from solver.importers.pytorch.context import Context, Gates, Handler, UnsupportedError, Value
from solver.importers.pytorch.operators.elementwise import HANDLERS as ELEMENTWISE

__all__ = ["HANDLERS"]

_ORDERS = {"LSTM": Gates((0, 3, 1, 2)), "GRU": Gates((1, 0, 2))}


def _layers(
    c: Context,
    type_: str,
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    has_biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
    **attributes: AttributeValue,
) -> tuple[Value, list[list[Value]]]:
    """The output of the last layer, and the last states: for each kind one a layer and direction."""
    if x.rank != 3:
        raise UnsupportedError("sequences without a batch")
    directions = ("forward", "reverse") if bidirectional else ("forward",)
    each = 4 if has_biases else 2
    if len(weights) != each * layers * len(directions):
        raise UnsupportedError("a projection of the hidden state")
    lasts: list[list[Value]] = [[] for _ in states]
    scope = c.scope
    for layer in range(layers):
        parts = []
        for d, direction in enumerate(directions):
            number = layer * len(directions) + d
            c.scope = f"{scope}.l{layer}" + (".reverse" if d else "")
            w, r, *biases = weights[number * each : (number + 1) * each]
            if type_ in _ORDERS:
                c.layouts |= {operand.name: _ORDERS[type_] for operand in (w, r, *biases)}
            b = c.apply("Concat", *biases, axis=0) if biases else None
            # An initial state of zeros is what a sequence begins with anyway.
            first = [_initial(c, state, number, batch_first) for state in states]
            outputs = ("Y", "Y_h", "Y_c")[: 1 + len(states)]
            y, *last = c.many(
                type_,
                [x, w, r, b, None, *first],
                outputs,
                direction=direction,
                layout=int(batch_first),
                **attributes,
            )
            parts.append(_without_directions(c, y, batch_first))
            for kind, value in zip(lasts, last, strict=True):
                kind.append(_without_directions(c, value, batch_first, state=True))
        c.scope = scope
        x = parts[0] if len(parts) == 1 else c.apply("Concat", *parts, axis=2)
        if dropout and training and layer < layers - 1:
            x = ELEMENTWISE["dropout.default"](c, x, dropout, training)
    return x, lasts


def _initial(c: Context, state: Value, number: int, batch_first: bool) -> Value | None:
    """[1, batch, hidden] of one layer and direction; [batch, 1, hidden] where the batch comes first."""
    if state.constant is not None and not state.constant.any():
        return None
    piece = c.slice(state, 0, number, number + 1) if state.shape[0] > 1 else state
    return c.reshape(piece, (state.shape[1], 1, state.shape[2])) if batch_first else piece


def _without_directions(c: Context, y: Value, batch_first: bool, *, state: bool = False) -> Value:
    """The axis of directions, which has one position, left out."""
    axis = (1 if batch_first else 0) if state else (2 if batch_first else 1)
    return c.reshape(y, (*y.shape[:axis], *y.shape[axis + 1 :]))


def _stacked(c: Context, lasts: Sequence[Value]) -> Value:
    raised = [c.reshape(x, (1, *x.shape)) for x in lasts]
    return raised[0] if len(raised) == 1 else c.apply("Concat", *raised, axis=0)


def _recurrent(type_: str, **attributes: AttributeValue) -> Handler:
    def handler(
        c: Context, x: Value, states: Value | Sequence[Value], weights: Sequence[Value], *rest: object
    ) -> tuple[Value, ...]:
        several = [states] if isinstance(states, Value) else states
        y, lasts = _layers(c, type_, x, several, weights, *rest, **attributes)  # type: ignore[arg-type]
        return (y, *(_stacked(c, last) for last in lasts))

    return handler


HANDLERS: dict[str, Handler] = {
    "lstm.input": _recurrent("LSTM"),
    "gru.input": _recurrent("GRU", linear_before_reset=1),
    "rnn_tanh.input": _recurrent("RNN"),
    "rnn_relu.input": _recurrent("RNN", nonlinearity="Relu"),
}
