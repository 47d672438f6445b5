"""Values that a program computed are told from values that training made."""

from __future__ import annotations

import numpy as np

from solver.graph import Array
from solver.importers.tables import is_computed, looks_like_a_table
from tests.support.every import grid

RNG = np.random.default_rng(4)


def fourier(length: int, window: int, hop: Array) -> Array:
    """The basis of a Fourier transform: cosines, then sines, times a window."""
    angles = 2 * np.pi * np.outer(np.arange(length // 2 + 1), np.arange(length)) / length
    envelope = np.zeros(length)
    start = (length - window) // 2
    envelope[start : start + window] = hop
    return np.concatenate([np.cos(angles), -np.sin(angles)])[:, None] * envelope


def positions(count: int, channels: int) -> Array:
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(channels // 2) * 2 / channels)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(1, count, channels)


COMPUTED = {
    "in a row": np.arange(16.0).reshape(1, 16, 1, 1),
    "even steps": np.linspace(-1, 1, 9),
    "edges": np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float64),
    "identity": np.eye(4)[:, :, None, None],
    "causal": np.tri(5),
    "hides": np.where(np.tri(5) > 0, 0, -np.inf),
    "sine positions": positions(4, 6),
    "long positions": positions(600, 64),
    "cosine transform": np.cos(np.pi * np.outer(np.arange(8), np.arange(8) + 0.5) / 8),
    "no window": fourier(16, 16, np.ones(16)),
    "Hann": fourier(64, 64, np.hanning(64)),
    "short Hamming": fourier(512, 400, np.hamming(400)),
}


@grid("dtype", ["float32", "float64"])
@grid("kind", COMPUTED)
def test_tables(kind: str, dtype: str) -> None:
    assert is_computed(COMPUTED[kind].astype(dtype))


@grid("shape", [(4,), (8,), (3, 4), (8, 8), (18, 1, 16), (16, 3, 3, 3), (4, 12)])
def test_weights_are_no_tables(shape: tuple[int, ...]) -> None:
    """Neither those that training begins with, nor smooth ones, as positions that were learned."""
    assert not any(is_computed(np.full(shape, fill, np.float32)) for fill in (0, 0.02, 1))
    for _ in range(100):
        noise = RNG.standard_normal(shape).astype(np.float32)
        assert not is_computed(noise)
        assert not is_computed(np.cumsum(noise, axis=0))


def test_names_of_buffers() -> None:
    names = ["stft.basis_buffer", "rotary.inv_freq", "encoder/position_ids", "attn.causal_mask"]
    assert all(looks_like_a_table(name, None) for name in names)
    assert not any(looks_like_a_table(name, None) for name in ("mean.weight", "conv.weight", "masks.0"))
