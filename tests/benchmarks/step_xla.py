"""The same training steps in JAX: what XLA needs for each, arguments and temporary memory together.

    python -m tests.benchmarks.step_xla

Runs with an interpreter that has jax, and prints one JSON object. A step is forward, backward and SGD with
momentum; weights and momentum are donated, so that XLA may renew them in place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_rng = np.random.default_rng(0)


def _drawn(*shape: int) -> Any:
    return (_rng.standard_normal(shape) * 0.05).astype(np.float32)


def _zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def _ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def _conv(x: Any, w: Any, stride: int = 1, pad: int = 0, groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, w, (stride, stride), [(pad, pad)] * 2,
        dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=groups,
    )  # fmt: skip


def _pool(x: Any, size: int, stride: int, pad: int = 0) -> Any:
    window, steps = (1, 1, size, size), (1, 1, stride, stride)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, steps, [(0, 0), (0, 0), (pad, pad), (pad, pad)])


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def _batch_norm(x: Any, p: Any) -> Any:
    """With the statistics of the batch; the running ones are not kept."""
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p[0][:, None, None] + p[1][:, None, None]


def _mlp() -> Any:
    weights = [_drawn(784, 256), _zeros(256), _drawn(256, 128), _zeros(128), _drawn(128, 10), _zeros(10)]

    def logits(p: Any, x: Any) -> Any:
        x = jax.nn.relu(x @ p[0] + p[1])
        return jax.nn.relu(x @ p[2] + p[3]) @ p[4] + p[5]

    return weights, logits, _drawn(32, 784), _rng.integers(0, 10, 32).astype(np.int32)


def _lenet() -> Any:
    shapes = (6, 1, 5, 5), (16, 6, 5, 5), (400, 120), (120, 84), (84, 10)
    weights = [w for s in shapes for w in (_drawn(*s), _zeros(s[0] if len(s) > 2 else s[1]))]

    def logits(p: Any, x: Any) -> Any:
        x = _pool(jax.nn.relu(_conv(x, p[0], pad=2) + p[1][:, None, None]), 2, 2)
        x = _pool(jax.nn.relu(_conv(x, p[2]) + p[3][:, None, None]), 2, 2).reshape(x.shape[0], -1)
        return jax.nn.relu(jax.nn.relu(x @ p[4] + p[5]) @ p[6] + p[7]) @ p[8] + p[9]

    return weights, logits, _drawn(32, 1, 28, 28), _rng.integers(0, 10, 32).astype(np.int32)


def _transformer(batch: int = 4, length: int = 64, width: int = 128, heads: int = 4, words: int = 512) -> Any:
    def layer() -> Any:
        return {
            "norm1": (_ones(width), _zeros(width)), "qkv": (_drawn(width, 3 * width), _zeros(3 * width)),
            "out": (_drawn(width, width), _zeros(width)), "norm2": (_ones(width), _zeros(width)),
            "up": (_drawn(width, 4 * width), _zeros(4 * width)),
            "down": (_drawn(4 * width, width), _zeros(width)),
        }  # fmt: skip

    weights = {
        "words": _drawn(words, width), "places": _drawn(length, width), "layers": [layer(), layer()],
        "norm": (_ones(width), _zeros(width)), "head": (_drawn(width, words), _zeros(words)),
    }  # fmt: skip

    def affine(x: Any, p: Any) -> Any:
        return x @ p[0] + p[1]

    def logits(p: Any, index: Any) -> Any:
        x = p["words"][index] + p["places"]
        for q in p["layers"]:
            parts = jnp.split(affine(_layer_norm(x, *q["norm1"]), q["qkv"]), 3, -1)
            query, key, value = (
                part.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for part in parts
            )
            scores = jax.nn.softmax(query @ key.transpose(0, 1, 3, 2) / np.sqrt(width // heads), -1)
            x = x + affine((scores @ value).transpose(0, 2, 1, 3).reshape(x.shape), q["out"])
            hidden = jax.nn.gelu(affine(_layer_norm(x, *q["norm2"]), q["up"]), approximate=False)
            x = x + affine(hidden, q["down"])
        return affine(_layer_norm(x, *p["norm"]), p["head"])

    index, label = (_rng.integers(0, words, (batch, length)).astype(np.int32) for _ in range(2))
    return weights, logits, index, label


class _Walk:
    """A network written once, for weights that are drawn (`weights` None) and for those that are given."""

    def __init__(self, given: Any = None) -> None:
        self.made: list[Any] = []
        self.given = None if given is None else iter(given)

    def weight(self, make: Callable[[], Any]) -> Any:
        if self.given is not None:
            return next(self.given)
        self.made.append(make())
        return self.made[-1]

    def conv_norm(self, x: Any, out: int, size: int, stride: int, groups: int = 1) -> Any:
        w = self.weight(lambda: _drawn(out, x.shape[1] // groups, size, size))
        p = self.weight(lambda: (_ones(out), _zeros(out)))
        if self.given is None:  # shapes are enough
            side = (x.shape[2] - 1) // stride + 1
            return np.zeros((x.shape[0], out, side, side), np.float32)
        return _batch_norm(_conv(x, w, stride, size // 2, groups), p)

    def head(self, x: Any, classes: int = 1000) -> Any:
        w, b = self.weight(lambda: _drawn(x.shape[1], classes)), self.weight(lambda: _zeros(classes))
        return None if self.given is None else x.mean((2, 3)) @ w + b


def _resnet18(walk: _Walk, x: Any) -> Any:
    relu = jax.nn.relu if walk.given is not None else lambda y: y
    x = relu(walk.conv_norm(x, 64, 7, 2))
    x = _pool(x, 3, 2, 1) if walk.given is not None else x[:, :, ::2, ::2]
    for width, first in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for stride in (first, 1):
            y = walk.conv_norm(relu(walk.conv_norm(x, width, 3, stride)), width, 3, 1)
            x = walk.conv_norm(x, width, 1, stride) if x.shape != y.shape else x
            x = relu(x + y)
    return walk.head(x)


def _mobilenet_v2(walk: _Walk, x: Any) -> Any:
    relu6 = jax.nn.relu6 if walk.given is not None else lambda y: y
    x = relu6(walk.conv_norm(x, 32, 3, 2))
    first_blocks = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)
    last_blocks = (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    for expand, width, count, first in first_blocks + last_blocks:
        for k in range(count):
            inner, y = x.shape[1] * expand, x
            y = relu6(walk.conv_norm(y, inner, 1, 1)) if expand > 1 else y
            y = relu6(walk.conv_norm(y, inner, 3, first if k == 0 else 1, groups=inner))
            y = walk.conv_norm(y, width, 1, 1)
            x = x + y if x.shape == y.shape else y
    return walk.head(relu6(walk.conv_norm(x, 1280, 1, 1)))


def _images(network: Callable[[_Walk, Any], Any], size: int) -> Any:
    x, walk = _drawn(8, 3, size, size), _Walk()
    network(walk, x)
    label = _rng.integers(0, 1000, 8).astype(np.int32)
    return walk.made, lambda p, x: network(_Walk(p), x), x, label


NETWORKS: dict[str, Callable[[], Any]] = {
    "mlp_b32": _mlp,
    "lenet_b32": _lenet,
    "tf2_d128_b4": _transformer,
    "resnet18_224_b8": lambda: _images(_resnet18, 224),
    "mbv2_96_b8": lambda: _images(_mobilenet_v2, 96),
}


def needed(weights: Any, logits: Any, x: Any, label: Any) -> int:
    """Bytes of arguments and temporaries of one step, as XLA's compiler states them."""

    def loss(p: Any, x: Any, label: Any) -> Any:
        scores = jax.nn.log_softmax(logits(p, x))
        return -jnp.mean(jnp.take_along_axis(scores, label[..., None], -1))

    def step(p: Any, moments: Any, x: Any, label: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(p, x, label)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
        return jax.tree.map(lambda w, m: w - 0.01 * m, p, moments), moments, value

    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(
        weights, jax.tree.map(np.zeros_like, weights), x, label
    ).compile()  # fmt: skip
    analysis = compiled.memory_analysis()
    return int(analysis.argument_size_in_bytes + analysis.temp_size_in_bytes)


def main() -> None:
    print(json.dumps({name: needed(*make()) for name, make in NETWORKS.items()}))


if __name__ == "__main__":
    main()
