"""Graphs of as many operations as are asked for: the three shapes that deep networks have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from arenaplan.builder import Document, Tape, Tensor, adam, layers, ops

__all__ = ["DEEP", "multilayer_perceptron", "residual", "transformer"]

BATCH, WIDTH, LENGTH, HEADS = 16, 64, 16, 4

#: Operations of a block of the transformer.
_OF_A_BLOCK = 32


def multilayer_perceptron(operations: int) -> Document:
    """Dense layers and activations, one behind the other; half as many blocks as operations."""
    return _regression("deep MLP", operations // 2, lambda x: ops.relu(layers.dense(x, WIDTH)))


def residual(operations: int) -> Document:
    """Blocks that what comes in goes round; a third as many blocks as operations."""
    return _regression("residual", operations // 3, lambda x: x + ops.relu(layers.dense(x, WIDTH)))


def _regression(name: str, blocks: int, block: Callable[[Tensor], Tensor]) -> Document:
    tape = Tape(name, batch=BATCH)
    x, wanted = tape.input("x", WIDTH), tape.label("wanted", WIDTH)
    for _ in range(blocks):
        x = block(x)
    return tape.document(ops.mean_squared_error(x, wanted), adam(0.001))


def transformer(operations: int) -> Document:
    """Attention with several heads and a layer of four times the width, each behind a normalisation."""
    tape = Tape("transformer", batch=BATCH)
    x, wanted = tape.input("x", LENGTH, WIDTH), tape.label("wanted", LENGTH, WIDTH)
    for k in range(max(1, operations // _OF_A_BLOCK)):
        with tape.scope(f"block{k}"):
            x = x + _attention(layers.layer_norm(x))
            x = x + layers.project(ops.gelu(layers.project(layers.layer_norm(x), 4 * WIDTH)), WIDTH)
    return tape.document(ops.mean_squared_error(x, wanted), adam(0.001))


def _attention(x: Tensor) -> Tensor:
    query, key, value = (
        layers.project(x, WIDTH).reshape(0, 0, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3) for _ in range(3)
    )
    scores = (query * (1 / math.sqrt(WIDTH // HEADS))) @ key.transpose(0, 1, 3, 2)
    mixed = (ops.softmax(scores) @ value).transpose(0, 2, 1, 3)
    return layers.project(mixed.reshape(0, 0, WIDTH), WIDTH)


#: By name; each takes a number of operations and meets it to within a block.
DEEP: Mapping[str, Callable[[int], Document]] = {
    "deep MLP": multilayer_perceptron,
    "residual": residual,
    "transformer": transformer,
}
