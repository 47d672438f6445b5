"""The same graph in PyTorch eager mode, where PyTorch is installed: the yardstick of a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from solver.executor.initial import initial_value
from solver.graph import Array, Graph, Operation, Role
from solver.graph.ops.loss import PROBABILITY_EPSILON

__all__ = ["eager_step"]


def eager_step(graph: Graph, batch: Mapping[str, Array]) -> Callable[[], float] | None:
    """A function that runs one training step in PyTorch and returns the loss; None without PyTorch.

    Channels-last tensors are kept channels-last in memory, as PyTorch likes them.
    """
    try:
        import torch
    except ImportError:
        return None
    values: dict[str, Any] = {}
    for operand in graph.operands.values():
        if operand.role in (Role.PARAMETER, Role.CONSTANT):
            values[operand.id] = torch.tensor(initial_value(operand).copy())
    values |= {name: torch.tensor(array.copy()) for name, array in batch.items()}
    weights = [values[name].requires_grad_() for name in graph.trainable]
    hyper = graph.optimizer.attributes
    optimizer = torch.optim.Adam(weights, lr=float(hyper.get("learning_rate", 0.001)))

    def step() -> float:
        run = dict(values)
        for operation in graph.operations:
            run[operation.outputs[0]] = _OPERATORS[operation.type](torch, operation, run)
        loss = run[graph.loss]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _activated(torch: Any, operation: Operation, y: Any) -> Any:
    match operation.attributes.get("activation", "None"):
        case "Relu":
            return torch.relu(y)
        case "Relu6":
            return torch.nn.functional.relu6(y)
    return y


def _conv(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    x, w = run[op.inputs[0]].permute(0, 3, 1, 2), run[op.inputs[1]].permute(0, 3, 1, 2)
    bias = run[op.inputs[2]] if len(op.inputs) > 2 else None
    strides: Any = op.attributes.get("strides", (1, 1))
    if op.attributes.get("auto_pad") == "SAME_UPPER":
        x = torch.nn.functional.pad(x, _same(x.shape[2:], w.shape[2:], strides))
    y = torch.nn.functional.conv2d(x, w, bias, stride=strides, groups=op.attributes.get("group", 1))
    return _activated(torch, op, y).permute(0, 2, 3, 1)


def _same(sizes: Any, kernel: Any, strides: Any) -> list[int]:
    pads: list[int] = []
    for size, k, s in reversed(list(zip(sizes, kernel, strides, strict=True))):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        pads += [total // 2, total - total // 2]
    return pads


def _max_pool(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    x = run[op.inputs[0]].permute(0, 3, 1, 2)
    y = torch.nn.functional.max_pool2d(x, op.attributes["kernel_shape"], op.attributes.get("strides"))
    return y.permute(0, 2, 3, 1)


def _gemm(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    assert op.attributes.get("transB"), "the weight of a linear layer is [outputs, inputs]"
    return _activated(torch, op, torch.nn.functional.linear(*(run[name] for name in op.inputs)))


def _pad(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    pads = [int(p) for p in run[op.inputs[1]]]
    half = len(pads) // 2
    flat = [p for pair in zip(pads[:half][::-1], pads[half:][::-1], strict=True) for p in pair]
    return torch.nn.functional.pad(run[op.inputs[0]], flat)


def _mean(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    axes: Any = op.attributes.get("axes") or tuple(int(a) for a in run[op.inputs[1]])
    return run[op.inputs[0]].mean(tuple(axes), keepdim=bool(op.attributes.get("keepdims", 1)))


def _reshape(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    x, shape = run[op.inputs[0]], [int(d) for d in run[op.inputs[1]]]
    return x.reshape([d or x.shape[k] for k, d in enumerate(shape)])


def _layer_norm(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    x, scale, shift = (run[name] for name in op.inputs)
    return torch.nn.functional.layer_norm(x, scale.shape, scale, shift, op.attributes.get("epsilon", 1e-5))


def _entropy(torch: Any, op: Operation, run: Mapping[str, Any]) -> Any:
    p, t = (run[name] for name in op.inputs)
    if op.attributes.get("from_logits"):
        target = t.flatten() if op.attributes.get("sparse") else t.flatten(0, -2)
        return torch.nn.functional.cross_entropy(p.flatten(0, -2), target)
    held = p + (p.clamp_min(PROBABILITY_EPSILON) - p).detach()  # below the bound, the slope at the bound
    return -(t * torch.log(held)).sum(-1).mean()


_OPERATORS: Mapping[str, Callable[[Any, Operation, Mapping[str, Any]], Any]] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "Gemm": _gemm,
    "Pad": _pad,
    "ReduceMean": _mean,
    "Add": lambda torch, op, run: _activated(torch, op, run[op.inputs[0]] + run[op.inputs[1]]),
    "Mul": lambda torch, op, run: _activated(torch, op, run[op.inputs[0]] * run[op.inputs[1]]),
    "MatMul": lambda torch, op, run: _activated(torch, op, run[op.inputs[0]] @ run[op.inputs[1]]),
    "Reshape": _reshape,
    "Transpose": lambda torch, op, run: run[op.inputs[0]].permute(op.attributes["perm"]),
    "Gather": lambda torch, op, run: torch.nn.functional.embedding(run[op.inputs[1]], run[op.inputs[0]]),
    "LayerNormalization": _layer_norm,
    "Gelu": lambda torch, op, run: torch.nn.functional.gelu(
        run[op.inputs[0]], approximate=op.attributes.get("approximate", "none")
    ),
    "Flatten": lambda torch, op, run: run[op.inputs[0]].flatten(1),
    "Softmax": lambda torch, op, run: torch.softmax(run[op.inputs[0]], -1),
    "CategoricalCrossEntropy": _entropy,
}
