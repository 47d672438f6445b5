"""A small transformer that predicts the next token: attention, layer norm, one table for both ends.

Vaswani et al., "Attention is all you need", 2017, in the form with the normalisation first; the table of
embeddings is also the output projection (Press and Wolf, 2017), so it has two readers and two partial
gradients. The sequences say everything twice: the second half can be known by who looks back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from arenaplan.builder import Batch, Model, Tape, Tensor, adam, layers, ops
from examples.gallery.example import Example
from solver.graph import DType

__all__ = ["EXAMPLE", "batches", "build"]

TOKENS, LENGTH, WIDTH, HEADS, BLOCKS = 16, 16, 64, 4, 2

#: Added to the scores of what lies in the future. Softmax turns it into zero.
_NEVER = -1e9


def build(batch: int) -> Model:
    tape = Tape("transformer", batch=batch)
    token = tape.input("token", LENGTH, dtype=DType.INT64)
    following = tape.label("following", LENGTH, dtype=DType.INT64)
    table = tape.parameter("table", [TOKENS, WIDTH], "normal", scale=0.1)
    place = tape.parameter("place", [LENGTH, WIDTH], "normal", scale=0.1)
    future = tape.constant("future", np.triu(np.full((LENGTH, LENGTH), _NEVER, np.float32), 1))
    x = layers.embedding(token, table) + place
    for k in range(BLOCKS):
        with tape.scope(f"block{k}"):
            x = x + _attention(layers.layer_norm(x), future)
            hidden = ops.gelu(layers.project(layers.layer_norm(x), 4 * WIDTH))
            x = x + layers.project(hidden, WIDTH)
    x = layers.layer_norm(x).reshape(-1, WIDTH)
    logits = tape.apply("Gemm", x, table, name="logits", transB=1).reshape(-1, LENGTH, TOKENS)
    return tape.minimise(ops.cross_entropy(logits, following, sparse=True), adam(0.003))


def _attention(x: Tensor, future: Tensor) -> Tensor:
    """Each head mixes values of the past by how well their keys meet the query."""
    with x.tape.scope("attention"):
        query, key, value = (_heads(layers.project(x, WIDTH, name=n)) for n in ("query", "key", "value"))
        scores = (query * (1 / math.sqrt(WIDTH // HEADS))) @ key.transpose(0, 1, 3, 2)
        mixed = ops.softmax(scores + future) @ value
        return layers.project(mixed.transpose(0, 2, 1, 3).reshape(0, 0, WIDTH), WIDTH, name="output")


def _heads(x: Tensor) -> Tensor:
    """[batch, heads, length, width of a head]."""
    return x.reshape(0, 0, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def batches(seed: int, size: int) -> Iterator[Batch]:
    """Random tokens, then the same again; the label is the sequence one token later."""
    rng = np.random.default_rng(seed)
    while True:
        half = rng.integers(0, TOKENS, (size, LENGTH // 2))
        twice = np.concatenate([half, half, half[:, :1]], axis=1)
        yield {"token": twice[:, :-1], "following": twice[:, 1:]}


#: The second half costs nothing at best, the first half the logarithm of the number of tokens.
EXAMPLE = Example(
    "transformer", "A transformer that learns to look back", build, batches,
    batch=16, steps=120, goal=0.62 * math.log(TOKENS),
)  # fmt: skip
