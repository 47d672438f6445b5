"""Networks that measurements take beside the gallery: a language model and a network with long skips."""

from __future__ import annotations

import numpy as np

from arenaplan.builder import Document, Tape, Tensor, adam, layers, ops, sgd
from solver.graph import DType, TrainableGraph

__all__ = ["gpt", "unet"]


def gpt(
    *,
    batch: int = 4,
    length: int = 128,
    width: int = 256,
    heads: int = 8,
    blocks: int = 6,
    words: int = 4096,
    optimizer: Document | None = None,
) -> TrainableGraph:
    """Blocks of causal attention, normalised first; the table of words is tied to the output."""
    tape = Tape("gpt", batch=batch)
    word = tape.input("word", length, dtype=DType.INT64)
    following = tape.label("following", length, dtype=DType.INT64)
    table = tape.parameter("table", [words, width], "normal", scale=0.1)
    future = tape.constant("future", np.triu(np.full((length, length), -1e9, np.float32), 1))
    x = layers.embedding(word, table) + tape.parameter("place", [length, width], "normal", scale=0.1)
    for k in range(blocks):
        with tape.scope(f"block{k}"):
            y = layers.layer_norm(x)
            query, key, value = (
                layers.project(y, width).reshape(0, 0, heads, width // heads).transpose(0, 2, 1, 3)
                for _ in range(3)
            )
            scores = (query * (heads / width) ** 0.5) @ key.transpose(0, 1, 3, 2) + future
            mixed = (ops.softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(0, 0, width)
            x = x + layers.project(mixed, width)
            x = x + layers.project(ops.gelu(layers.project(layers.layer_norm(x), 4 * width)), width)
    x = layers.layer_norm(x).reshape(-1, width)
    logits = tape.apply("Gemm", x, table, name="logits", transB=1).reshape(-1, length, words)
    loss = ops.cross_entropy(logits, following, sparse=True)
    return tape.minimise(loss, optimizer or sgd(0.1)).graph


def unet(*, batch: int = 4, side: int = 64, filters: int = 16, levels: int = 5) -> TrainableGraph:
    """Classes of the pixels of an image: each level works at half the size of the one above and hands its
    result back to it.
    """
    tape = Tape("unet", batch=batch)

    def level(x: Tensor, filters: int, below: int) -> Tensor:
        x = convolutions(x, filters)
        if not below:
            return x
        deeper = layers.upsample(level(ops.pool(x, 2), 2 * filters, below - 1), filters)
        return convolutions(tape.apply("Concat", x, deeper, name=f"joined{below}", axis=3), filters)

    def convolutions(x: Tensor, filters: int) -> Tensor:
        for _ in range(2):
            x = ops.relu(layers.batch_norm(layers.conv(x, filters, 3, bias=False)))
        return x

    pixels = level(tape.input("image", side, side, 3), filters, levels - 1)
    scores = layers.conv(pixels, 2, 1).reshape(-1, side * side, 2)
    return tape.minimise(ops.cross_entropy(scores, tape.label("classes", side * side, 2)), adam(0.001)).graph
