"""Graphs with branches of some size: what several threads can do side by side."""

from __future__ import annotations

from solver.graph import TrainableGraph
from tests.support.graphs import Sketch

__all__ = ["heads", "inception"]


def inception(batch: int = 16, side: int = 28, width: int = 16, blocks: int = 2) -> TrainableGraph:
    """Blocks of four branches (convolutions of 1x1, 3x3, 5x5, and a pooled one), joined by Concat."""
    s = Sketch("inception")
    x, channels = s.input("x", batch, 3, side, side), 3
    for k in range(blocks):
        branches = [_branch(s, x, f"b{k}.{size}", channels, width, size) for size in (1, 3, 5)]
        pool = s.op("AveragePool", [x], f"b{k}.pool", kernel_shape=(3, 3), auto_pad="SAME_UPPER")
        branches.append(_branch(s, pool, f"b{k}.pooled", channels, width, 1))
        x, channels = s.op("Concat", branches, f"b{k}.y", axis=1), 4 * width
    h = s.op("ReduceMean", [x], "h", axes=(2, 3), keepdims=0)
    h = s.op("Gemm", [h, s.parameter("w", channels, 10)], "z")
    s.op("CategoricalCrossEntropy", [h, s.label("t", batch, 10)], "loss", from_logits=1)
    return s.graph(optimizer="Adam")


def _branch(s: Sketch, x: str, name: str, channels: int, width: int, size: int) -> str:
    """1x1 down to `width`, then `size` x `size`."""
    kernel = s.parameter(f"{name}.k1", width, channels, 1, 1)
    x = s.op("Conv", [x, kernel], f"{name}.narrow", activation="Relu")
    if size == 1:
        return x
    kernel = s.parameter(f"{name}.k2", width, width, size, size)
    return s.op("Conv", [x, kernel], f"{name}.wide", auto_pad="SAME_UPPER", activation="Relu")


def heads(batch: int = 8, length: int = 128, width: int = 256, count: int = 4) -> TrainableGraph:
    """Attention, each head with matrices of its own, so that heads are branches."""
    s = Sketch("heads")
    x, part = s.input("x", batch, length, width), width // count
    mixed = []
    for k in range(count):
        q, key, value = (
            s.op("MatMul", [x, s.parameter(f"h{k}.{n}.w", width, part)], f"h{k}.{n}") for n in "qkv"
        )
        turned = s.op("Transpose", [key], f"h{k}.turned", perm=(0, 2, 1))
        weights = s.op("Softmax", [s.op("MatMul", [q, turned], f"h{k}.scores")], f"h{k}.weights")
        mixed.append(s.op("MatMul", [weights, value], f"h{k}.mixed"))
    joined = s.op("Concat", mixed, "joined", axis=2)
    y = s.op("MatMul", [joined, s.parameter("out", width, width)], "y")
    s.op("MeanSquaredError", [y, s.label("t", batch, length, width)], "loss")
    return s.graph(optimizer="Adam")
