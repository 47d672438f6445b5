"""Operators of graphs in PyTorch: as much of them as the examples use. Images are channels-last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from solver.graph import Operation
from solver.graph.ops.loss import PROBABILITY_EPSILON

__all__ = ["OPERATORS"]

Run = Mapping[str, Any]


def _given(op: Operation, run: Run) -> list[Any]:
    return [run[name] if name else None for name in op.inputs]


def _activated(torch: Any, operation: Operation, y: Any) -> Any:
    match operation.attributes.get("activation", "None"):
        case "Relu":
            return torch.relu(y)
        case "Relu6":
            return torch.nn.functional.relu6(y)
        case "Tanh":
            return torch.tanh(y)
    return y


# -------------------------------------------------------------------------------------------- images


def _first(x: Any) -> Any:
    """Channels first, a view."""
    return x.permute(0, 3, 1, 2)


def _last(x: Any) -> Any:
    return x.permute(0, 2, 3, 1)


def _pads(op: Operation, x: Any, kernel: Any) -> list[int]:
    """In front and behind of each side, the last side first."""
    strides: Any = op.attributes.get("strides", (1, 1))
    found = []
    for size, k, s in reversed(list(zip(x.shape[2:], kernel, strides, strict=True))):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        found += [total // 2, total - total // 2]
    return found if op.attributes.get("auto_pad") == "SAME_UPPER" else [0] * len(found)


def _padded(torch: Any, x: Any, pads: list[int], value: float) -> Any:
    return torch.nn.functional.pad(x, pads, value=value) if any(pads) else x


def _conv(torch: Any, op: Operation, run: Run) -> Any:
    x, w, *bias = _given(op, run)
    w = _first(w)
    strides, groups = op.attributes.get("strides", (1, 1)), op.attributes.get("group", 1)
    x = _first(x)
    pads, inside = _pads(op, x, w.shape[2:]), (0, 0)
    if pads[::2] == pads[1::2]:  # what a convolution does itself needs no bytes of its own
        pads, inside = [], (pads[2], pads[0])
    x = _padded(torch, x, pads, 0.0)
    y = torch.nn.functional.conv2d(x, w, *bias, stride=strides, padding=inside, groups=groups)
    return _last(_activated(torch, op, y))


def _conv_transpose(torch: Any, op: Operation, run: Run) -> Any:
    x, w, *bias = _given(op, run)
    strides = op.attributes.get("strides", (1, 1))
    return _last(torch.nn.functional.conv_transpose2d(_first(x), _first(w), *bias, stride=strides))


def _max_pool(torch: Any, op: Operation, run: Run) -> Any:
    kernel, x = op.attributes["kernel_shape"], _first(run[op.inputs[0]])
    x = _padded(torch, x, _pads(op, x, kernel), float("-inf"))
    return _last(torch.nn.functional.max_pool2d(x, kernel, op.attributes.get("strides")))


def _average_pool(torch: Any, op: Operation, run: Run) -> Any:
    x, kernel = _first(run[op.inputs[0]]), op.attributes["kernel_shape"]
    return _last(torch.nn.functional.avg_pool2d(x, kernel, op.attributes.get("strides")))


def _batch_norm(torch: Any, op: Operation, run: Run) -> Any:
    x, scale, shift, mean, variance = _given(op, run)
    y = torch.nn.functional.batch_norm(
        _first(x), mean, variance, scale, shift,
        training=bool(op.attributes.get("training_mode")),
        momentum=1 - float(op.attributes.get("momentum", 0.9)),  # type: ignore[arg-type]  # a number
        eps=op.attributes.get("epsilon", 1e-5),
    )  # fmt: skip
    return _last(y)


# ------------------------------------------------------------------------------ products and movement


def _gemm(torch: Any, op: Operation, run: Run) -> Any:
    assert op.attributes.get("transB"), "the weight of a linear layer is [outputs, inputs]"
    return _activated(torch, op, torch.nn.functional.linear(*_given(op, run)))


def _pad(torch: Any, op: Operation, run: Run) -> Any:
    pads = [int(p) for p in run[op.inputs[1]]]
    half = len(pads) // 2
    flat = [p for pair in zip(pads[:half][::-1], pads[half:][::-1], strict=True) for p in pair]
    return torch.nn.functional.pad(run[op.inputs[0]], flat)


def _mean(torch: Any, op: Operation, run: Run) -> Any:
    axes: Any = op.attributes.get("axes") or tuple(int(a) for a in run[op.inputs[1]])
    return run[op.inputs[0]].mean(tuple(axes), keepdim=bool(op.attributes.get("keepdims", 1)))


def _reshape(torch: Any, op: Operation, run: Run) -> Any:
    x, shape = run[op.inputs[0]], [int(d) for d in run[op.inputs[1]]]
    return x.reshape([d or x.shape[k] for k, d in enumerate(shape)])


def _split(torch: Any, op: Operation, run: Run) -> Any:
    return run[op.inputs[0]].chunk(len(op.outputs), op.attributes.get("axis", 0))


def _layer_norm(torch: Any, op: Operation, run: Run) -> Any:
    x, scale, shift = _given(op, run)
    return torch.nn.functional.layer_norm(x, scale.shape, scale, shift, op.attributes.get("epsilon", 1e-5))


def _lstm_cell(torch: Any, op: Operation, run: Run) -> Any:
    """ONNX has the gates as input, output, forget, cell; PyTorch as input, forget, cell, output."""
    x, hidden, cell, *weights = _given(op, run)
    ordered = []
    for weight in (*weights[:2], *weights[2].chunk(2)):
        i, o, f, c = weight.chunk(4)
        ordered.append(torch.cat([i, f, c, o]))
    plain = x.squeeze(0) if x.dim() == 3 else x
    zeros = plain.new_zeros(plain.shape[0], weights[1].shape[-1])
    state = tuple(zeros if s is None else s.reshape(zeros.shape) for s in (hidden, cell))
    found = torch.lstm_cell(plain, state, *ordered)
    return tuple(s.reshape(*x.shape[:-1], -1) for s in found)


# -------------------------------------------------------------------------------------------- losses


def _entropy(torch: Any, op: Operation, run: Run) -> Any:
    p, t = _given(op, run)
    if op.attributes.get("from_logits"):
        target = t.flatten() if op.attributes.get("sparse") else t.flatten(0, -2)
        return torch.nn.functional.cross_entropy(p.flatten(0, -2), target)
    held = p + (p.clamp_min(PROBABILITY_EPSILON) - p).detach()  # below the bound, the slope at the bound
    return -(t * torch.log(held)).sum(-1).mean()


def _binary_entropy(torch: Any, op: Operation, run: Run) -> Any:
    assert op.attributes.get("from_logits"), "logits alone"
    return torch.nn.functional.binary_cross_entropy_with_logits(*_given(op, run))


OPERATORS: Mapping[str, Callable[[Any, Operation, Run], Any]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "Gemm": _gemm,
    "LSTMCell": _lstm_cell,
    "Pad": _pad,
    "ReduceMean": _mean,
    "Reshape": _reshape,
    "Split": _split,
    "Add": lambda torch, op, run: _activated(torch, op, run[op.inputs[0]] + run[op.inputs[1]]),
    "Mul": lambda torch, op, run: _activated(torch, op, run[op.inputs[0]] * run[op.inputs[1]]),
    "MatMul": lambda torch, op, run: _activated(torch, op, run[op.inputs[0]] @ run[op.inputs[1]]),
    "Transpose": lambda torch, op, run: run[op.inputs[0]].permute(op.attributes["perm"]),
    "Flatten": lambda torch, op, run: run[op.inputs[0]].flatten(1),
    "Gather": lambda torch, op, run: torch.nn.functional.embedding(run[op.inputs[1]], run[op.inputs[0]]),
    "Relu": lambda torch, op, run: torch.relu(run[op.inputs[0]]),
    "Clip": lambda torch, op, run: run[op.inputs[0]].clamp(op.attributes["min"], op.attributes["max"]),
    "Gelu": lambda torch, op, run: torch.nn.functional.gelu(
        run[op.inputs[0]], approximate=op.attributes.get("approximate", "none")
    ),
    "Softmax": lambda torch, op, run: torch.softmax(run[op.inputs[0]], -1),
    "CategoricalCrossEntropy": _entropy,
    "BinaryCrossEntropy": _binary_entropy,
    "MeanSquaredError": lambda torch, op, run: torch.nn.functional.mse_loss(*_given(op, run)),
}
