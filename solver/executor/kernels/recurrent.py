"""Kernels of recurrent cells: two products of matrices forward, up to four backward.

All gates of a cell are columns of one matrix, [batch, gates * hidden], so that each product treats them at
once; a single gate is a view of its columns. Element-wise work goes through these views in place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.executor.kernels.helpers.blocks import (
    Step,
    bound,
    optional,
    present,
    run_all,
    staging,
    with_small_buffers,
)
from solver.graph.ops.recurrent import PEEPHOLES, Cell, cell
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _matrix(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    """An operand as a matrix, without the axis in front; nothing where it is left out."""
    array = optional(arrays, position)
    return None if array is None else array.reshape(array.shape[-2:])


def _vector(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    array = optional(arrays, position)
    return None if array is None else array.reshape(-1)


def _gate_columns(array: Array, count: int) -> list[Array]:
    """The columns of each gate."""
    return np.split(array, count, axis=1)


def _input_product(call: Call, sizes: Cell, out: Array, together: int) -> list[Step]:
    """out = X W' + its biases; those of the product with R are added in the first `together` columns."""
    x, w = present(_matrix(call.x, 0), _matrix(call.x, sizes.w))
    bias = _vector(call.x, sizes.b)
    steps = [bound(np.matmul, x, w.T, out=out)]
    if bias is not None:
        steps.append(bound(np.add, out, bias[: sizes.rows], out=out))
        if bias.size > sizes.rows:
            part = out[:, :together]
            steps.append(bound(np.add, part, bias[sizes.rows :][:together], out=part))
    return steps


def _add_state_product(call: Call, sizes: Cell, out: Array, state: Array | None, rows: slice) -> list[Step]:
    """out += state R', with these rows of R; nothing where the state is zeros."""
    if state is None:
        return []
    (r,) = present(_matrix(call.x, sizes.r))
    product = staging(call.scratch["recurrent"], out.shape)
    return [bound(np.matmul, state, r[rows].T, out=product), bound(np.add, out, product, out=out)]


def _times_gate(out: Array, gate: Array, *factors: Array) -> list[Step]:
    """out = gate (1 - gate) * factors: behind a sigmoid."""
    steps = [bound(np.subtract, 1, gate, out=out)]
    return steps + [bound(np.multiply, out, factor, out=out) for factor in (gate, *factors)]


def _times_tanh(out: Array, squashed: Array, *factors: Array) -> list[Step]:
    """out = (1 - squashed ** 2) * factors: behind a tanh."""
    steps = [bound(np.multiply, squashed, squashed, out=out), bound(np.subtract, 1, out, out=out)]
    return steps + [bound(np.multiply, out, factor, out=out) for factor in factors]


def _input_derivatives(call: Call, sizes: Cell, inner: Array) -> list[Step]:
    """dX and dW from the derivative of the gates' sums."""
    dx, dw, steps = _matrix(call.dx, 0), _matrix(call.dx, sizes.w), list[Step]()
    if dx is not None:
        steps.append(bound(np.matmul, inner, *present(_matrix(call.x, sizes.w)), out=dx))
    if dw is not None:
        steps.append(bound(np.matmul, inner.T, *present(_matrix(call.x, 0)), out=dw))
    return steps


def _bias_derivative(call: Call, sizes: Cell, inner: Array) -> list[Step]:
    """dB: the sum over the examples, for both biases the same."""
    db = _vector(call.dx, sizes.b)
    if db is None:
        return []
    steps = [bound(np.add.reduce, inner, axis=0, out=db[: sizes.rows])]
    if db.size > sizes.rows:
        steps.append(bound(np.copyto, db[sizes.rows :], db[: sizes.rows]))
    return steps


#: Places of the gates of an LSTM, and of its peepholes; the candidate has none.
_INPUT, _OUTPUT, _FORGET = range(3)


# ------------------------------------------------------------------------------------------- forward


def _rnn_forward(call: Call) -> Step:
    sizes = cell(call.node)
    (y,) = present(_matrix(call.y, 0))
    steps = [
        *_input_product(call, sizes, y, sizes.rows),
        *_add_state_product(call, sizes, y, _matrix(call.x, 1), slice(None)),
        bound(apply_activation, call.attributes["nonlinearity"], y),
    ]
    return with_small_buffers(run_all(steps))


def _lstm_forward(call: Call) -> Step:
    sizes, gates = cell(call.node), call.saved["gates"]
    i, o, f, g = _gate_columns(gates, 4)
    h, c = present(_matrix(call.y, 0), _matrix(call.y, 1))
    before = _matrix(call.x, 2)
    steps = [
        *_input_product(call, sizes, gates, sizes.rows),
        *_add_state_product(call, sizes, gates, _matrix(call.x, 1), slice(None)),
        *_add_peepholes(call, i, _INPUT, before, h),
        *_add_peepholes(call, f, _FORGET, before, h),
        bound(apply_activation, "Sigmoid", i),
        bound(apply_activation, "Sigmoid", f),
        bound(np.tanh, g, out=g),
        bound(np.multiply, i, g, out=c),
    ]
    if before is not None:
        steps += [bound(np.multiply, f, before, out=h), bound(np.add, c, h, out=c)]
    steps += [
        *_add_peepholes(call, o, _OUTPUT, c, h),
        bound(apply_activation, "Sigmoid", o),
        bound(np.tanh, c, out=h),
        bound(np.multiply, h, o, out=h),
    ]
    return with_small_buffers(run_all(steps))


def _peepholes(arrays: tuple[Array | None, ...]) -> list[Array] | None:
    """The weights from the cell state to the gates input, output, forget; nothing where there are none."""
    weights = _vector(arrays, PEEPHOLES)
    return None if weights is None else np.split(weights, 3)


def _add_peepholes(call: Call, target: Array, gate: int, factor: Array | None, free: Array) -> list[Step]:
    """target += peephole weights of a gate * factor, by way of `free`."""
    weights = _peepholes(call.x)
    if weights is None or factor is None:
        return []
    return [bound(np.multiply, factor, weights[gate], out=free), bound(np.add, target, free, out=target)]


def _gru_forward(call: Call) -> Step:
    sizes, gates = cell(call.node), call.saved["gates"]
    both, h = gates[:, : 2 * sizes.hidden], _matrix(call.x, 1)
    z, r, new = _gate_columns(gates, 3)
    (y,) = present(_matrix(call.y, 0))
    linear = call.attributes["linear_before_reset"]
    steps = [
        *_input_product(call, sizes, gates, 2 * sizes.hidden if linear else sizes.rows),
        *_add_state_product(call, sizes, both, h, slice(2 * sizes.hidden)),
        bound(apply_activation, "Sigmoid", both),
        *(_reset_product(call, sizes, h, r, new, y) if linear else _reset_state(call, sizes, h, r, new, y)),
        bound(np.tanh, new, out=new),
    ]
    if h is None:
        steps += [bound(np.multiply, z, new, out=y), bound(np.subtract, new, y, out=y)]
    else:
        steps += [bound(np.subtract, h, new, out=y), bound(np.multiply, y, z, out=y)]
        steps.append(bound(np.add, y, new, out=y))
    return with_small_buffers(run_all(steps))


def _reset_state(call: Call, sizes: Cell, h: Array | None, r: Array, new: Array, free: Array) -> list[Step]:
    """new += (r * H) Rh', by way of `free`."""
    if h is None:
        return []
    product = _add_state_product(call, sizes, new, free, slice(2 * sizes.hidden, None))
    return [bound(np.multiply, r, h, out=free), *product]


def _reset_product(call: Call, sizes: Cell, h: Array | None, r: Array, new: Array, free: Array) -> list[Step]:
    """new += r * (H Rh' + bias), whose second factor is saved."""
    product, bias = call.saved["product"], _vector(call.x, sizes.b)
    steps = [bound(product.fill, 0)]
    if h is not None:
        (weights,) = present(_matrix(call.x, sizes.r))
        steps = [bound(np.matmul, h, weights[2 * sizes.hidden :].T, out=product)]
    if bias is not None and bias.size > sizes.rows:
        steps.append(bound(np.add, product, bias[-sizes.hidden :], out=product))
    return [*steps, bound(np.multiply, r, product, out=free), bound(np.add, new, free, out=new)]


# ------------------------------------------------------------------------------------------ backward


def _state_derivatives(call: Call, sizes: Cell, inner: Array) -> list[Step]:
    """dH and dR, where H goes through R alone."""
    dh, dr, h = _matrix(call.dx, 1), _matrix(call.dx, sizes.r), _matrix(call.x, 1)
    steps: list[Step] = []
    if dh is not None:
        steps.append(bound(np.matmul, inner, *present(_matrix(call.x, sizes.r)), out=dh))
    if dr is not None:
        steps.append(bound(dr.fill, 0) if h is None else bound(np.matmul, inner.T, h, out=dr))
    return steps


def _rnn_backward(call: Call) -> Step:
    sizes, inner = cell(call.node), call.scratch["inner"]
    y, dy = present(_matrix(call.y, 0), _matrix(call.dy, 0))
    steps = [
        bound(activation_derivative, call.attributes["nonlinearity"], y, dy, inner),
        *_input_derivatives(call, sizes, inner),
        *_state_derivatives(call, sizes, inner),
        *_bias_derivative(call, sizes, inner),
    ]
    return with_small_buffers(run_all(steps))


def _lstm_backward(call: Call) -> Step:
    """From dH' to o and C', from dC' to i, f and the candidate, from there through the products."""
    sizes, inner = cell(call.node), call.scratch["inner"]
    i, _, f, g = _gate_columns(call.saved["gates"], 4)
    d_i, _, d_f, d_g = _gate_columns(inner, 4)
    dc, squashed = call.scratch["cell"], call.scratch["squashed"]
    before = _matrix(call.x, 2)
    steps = [
        *_lstm_output(call),
        *_times_gate(d_i, i, g, dc),
        *_times_tanh(d_g, g, i, dc),
        *([bound(d_f.fill, 0)] if before is None else _times_gate(d_f, f, before, dc)),
        *_peephole_derivatives(call, before, [d_i, _gate_columns(inner, 4)[_OUTPUT], d_f], squashed),
        *_input_derivatives(call, sizes, inner),
        *_state_derivatives(call, sizes, inner),
        *_bias_derivative(call, sizes, inner),
    ]
    d_before = _matrix(call.dx, 2)
    if d_before is not None:
        steps.append(bound(np.multiply, dc, f, out=d_before))
        steps += _add_peepholes(call, d_before, _INPUT, d_i, squashed) + _add_peepholes(
            call, d_before, _FORGET, d_f, squashed
        )
    return with_small_buffers(run_all(steps))


def _lstm_output(call: Call) -> list[Step]:
    """The derivatives of C' and of the output gate; what reads neither H' nor C' later passes nothing on."""
    dh, dc_after = _matrix(call.dy, 0), _matrix(call.dy, 1)
    (c,) = present(_matrix(call.y, 1))
    o, d_o = (_gate_columns(array, 4)[_OUTPUT] for array in (call.saved["gates"], call.scratch["inner"]))
    dc, squashed = call.scratch["cell"], call.scratch["squashed"]
    if dh is None:
        return [bound(d_o.fill, 0), bound(np.copyto, dc, *present(dc_after))]
    steps = [
        bound(np.tanh, c, out=squashed),
        *_times_gate(d_o, o, squashed, dh),
        *_times_tanh(dc, squashed, o, dh),
        *_add_peepholes(call, dc, _OUTPUT, d_o, squashed),
    ]
    return steps if dc_after is None else [*steps, bound(np.add, dc, dc_after, out=dc)]


def _peephole_derivatives(call: Call, before: Array | None, inner: list[Array], free: Array) -> list[Step]:
    """dP: what each gate saw of C or C', times its derivative, summed over the examples."""
    derivatives, steps = _peepholes(call.dx), list[Step]()
    if derivatives is None:
        return []
    for target, gate, seen in zip(derivatives, inner, (before, _matrix(call.y, 1), before), strict=True):
        if seen is None:
            steps.append(bound(target.fill, 0))
        else:
            steps += [
                bound(np.multiply, gate, seen, out=free),
                bound(np.add.reduce, free, axis=0, out=target),
            ]
    return steps


def _gru_backward(call: Call) -> Step:
    """From dH' to z and h, from h through its product to r, from there through the other products."""
    sizes, inner = cell(call.node), call.scratch["inner"]
    z, r, new = _gate_columns(call.saved["gates"], 3)
    d_z, d_r, d_new = _gate_columns(inner, 3)
    (dy,) = present(_matrix(call.dy, 0))
    h, through = _matrix(call.x, 1), call.scratch["through"]
    steps = [bound(np.subtract, 1, z, out=through), *_times_tanh(d_new, new, through, dy)]
    # The difference H - h stands in `d_r`, which is free until its turn.
    steps.append(bound(np.subtract, 0 if h is None else h, new, out=d_r))
    steps += _times_gate(d_z, z, d_r, dy)
    if call.attributes["linear_before_reset"]:
        steps += [
            *_times_gate(d_r, r, call.saved["product"], d_new),
            bound(np.multiply, d_new, r, out=through),
        ]
    elif h is None:
        steps.append(bound(d_r.fill, 0))
    else:
        (weights,) = present(_matrix(call.x, sizes.r))
        steps.append(bound(np.matmul, d_new, weights[2 * sizes.hidden :], out=through))
        steps += _times_gate(d_r, r, h, through)
    steps += [
        *_input_derivatives(call, sizes, inner),
        *_gru_weights(call, sizes),
        *_gru_state(call, sizes),
        *_bias_derivative(call, sizes, inner),
        *_gru_bias(call, sizes),
    ]
    return with_small_buffers(run_all(steps))


def _gru_state(call: Call, sizes: Cell) -> list[Step]:
    """dH: past z, and through the products with R."""
    dh = _matrix(call.dx, 1)
    if dh is None:
        return []
    weights, dy = present(_matrix(call.x, sizes.r), _matrix(call.dy, 0))
    both, inner = 2 * sizes.hidden, call.scratch["inner"]
    z, r, _ = _gate_columns(call.saved["gates"], 3)
    through, partial = call.scratch["through"], call.scratch["partial"]
    steps = [bound(np.matmul, inner[:, :both], weights[:both], out=dh)]
    if call.attributes["linear_before_reset"]:
        steps.append(bound(np.matmul, through, weights[both:], out=partial))
    else:
        steps.append(bound(np.multiply, through, r, out=partial))
    steps.append(bound(np.add, dh, partial, out=dh))
    return [*steps, bound(np.multiply, z, dy, out=partial), bound(np.add, dh, partial, out=dh)]


def _gru_weights(call: Call, sizes: Cell) -> list[Step]:
    """dR: the first two gates saw H, the third r * H, or `linear_before_reset`, H by a product of its own."""
    dr, h = _matrix(call.dx, sizes.r), _matrix(call.x, 1)
    if dr is None:
        return []
    if h is None:
        return [bound(dr.fill, 0)]
    both, inner = 2 * sizes.hidden, call.scratch["inner"]
    steps = [bound(np.matmul, inner[:, :both].T, h, out=dr[:both])]
    if call.attributes["linear_before_reset"]:
        return [*steps, bound(np.matmul, call.scratch["through"].T, h, out=dr[both:])]
    seen, r = call.scratch["partial"], _gate_columns(call.saved["gates"], 3)[1]
    steps.append(bound(np.multiply, r, h, out=seen))
    return [*steps, bound(np.matmul, inner[:, both:].T, seen, out=dr[both:])]


def _gru_bias(call: Call, sizes: Cell) -> list[Step]:
    """The last bias stands inside the brackets with `linear_before_reset`."""
    db = _vector(call.dx, sizes.b)
    if db is None or db.size == sizes.rows or not call.attributes["linear_before_reset"]:
        return []
    return [bound(np.add.reduce, call.scratch["through"], axis=0, out=db[-sizes.hidden :])]


KERNELS: Mapping[str, Kernels] = {
    "LSTMCell": Kernels(_lstm_forward, _lstm_backward),
    "GRUCell": Kernels(_gru_forward, _gru_backward),
    "RNNCell": Kernels(_rnn_forward, _rnn_backward),
}
