"""Values that a program computes and training does not: masks, grids, waves.

    mask     an infinity; 0 and a large negative number; zeros and ones over two axes, as an identity matrix
    grid     whole and half numbers, three or more of them: coordinates, strides, whole numbers in a row
    waves    rows or columns that are sines and cosines, with an envelope or without, or rise evenly

Names tell less than values, and where values are not at hand they are all that there is.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from solver.graph import Array

__all__ = ["BUFFERS", "MAX_TABLE", "is_computed", "is_mask", "is_waves", "looks_like_a_table"]

#: Last parts of names under which modules keep what they do not train.
BUFFERS: Final = re.compile(
    r"(^|_)(inv_freq|rotary|freqs?|freqs_cis|(attn_|attention_|causal_|bias_)?mask(ed_bias)?|position_ids"
    r"|token_type_ids|relative_position_index|relative_coords_table|running_(mean|var)|num_batches_tracked|anchors?"
    r"|window|mel_filters|mean|std|pixel_(mean|std)|(cos|sin)(_cached?)?|pe|basis|filterbank|fb|buffer)$"
)
#: Elements up to which the values of a weight are looked at; those that rule most tensors out.
MAX_TABLE, _HEAD = 2**24, 4096
#: A mask adds this or less to what it hides.
_MASK_VALUE: Final = -100.0
#: Equations that waves fulfil and random numbers do not; rows, and elements of each, of a Fourier basis.
_MIN_EQUATIONS, _MIN_ROWS, _MIN_LENGTH = 3, 8, 12
#: Deviation from a wave, of its largest value; energy of an enveloped wave beside its frequency, of its own
#: and of the largest wave's, as rows of zeros have rounding errors.
_WAVE_DEVIATION, _STRAY_ENERGY, _NOISE = 1e-3, 1e-2, 1e-6


def looks_like_a_table(name: str, values: Array | None) -> bool:
    """Whether a tensor that stands in the place of a weight has the name or the values of a table."""
    if BUFFERS.search(re.split(r"[./:]", name.rstrip("./:"))[-1]):
        return True
    return values is not None and values.size <= MAX_TABLE and is_computed(values)


def is_computed(values: Array) -> bool:
    """Whether values are those of a mask, a grid or waves. Cost: linear for these, little for others."""
    return is_mask(values) or _is_grid(values) or is_waves(values)


def is_mask(values: Array) -> bool:
    """Whether values are infinite; or 0 and a large negative number; or zeros and ones over two axes."""
    if not np.isfinite(values).all():
        return True
    if len(np.unique(values.reshape(-1)[:_HEAD])) > 2:
        return False
    distinct = np.unique(values).tolist()
    has_axes = sum(size > 1 for size in values.shape) >= 2
    hides = len(distinct) == 2 and distinct[1] == 0 and distinct[0] <= _MASK_VALUE
    return bool(hides or (has_axes and distinct == [0.0, 1.0]))


def _is_grid(values: Array) -> bool:
    parts = (values.reshape(-1)[:_HEAD], values)
    return all(bool((part % 0.5 == 0).all()) for part in parts) and len(np.unique(values)) >= 3


def is_waves(values: Array) -> bool:
    """Whether rows or columns are sines and cosines, with an envelope or without, or rise evenly."""
    sizes = [size for size in values.shape if size > 1]
    if not sizes or not np.isfinite(values).all():
        return False
    rows, columns = values.reshape(-1, sizes[-1]), values.reshape(sizes[0], -1).T
    with np.errstate(all="ignore"):  # some rows are looked at first, which rules most tensors out
        has_even = any(_is_even(table[:8]) and _is_even(table) for table in (rows, columns))
        return has_even or (_is_enveloped(rows[:_MIN_ROWS]) and _is_enveloped(rows))


def _is_even(rows: Array) -> bool:
    """Whether rows follow ``x[n+1] + x[n-1] = c x[n]``, as waves and even steps do. Some are not constant."""
    if (rows.shape[1] - 3) * len(rows) < _MIN_EQUATIONS:
        return False
    x = rows.astype(np.float64)
    middle, around = x[:, 1:-1], x[:, 2:] + x[:, :-2]
    power = (middle**2).sum(1, keepdims=True)
    factor = np.divide((middle * around).sum(1, keepdims=True), power, where=power > 0, out=power * 0)
    deviation = np.abs(around - factor * middle) / np.abs(x).max(1, keepdims=True).clip(1e-300)
    return bool((deviation <= _WAVE_DEVIATION).all() and (np.ptp(x, axis=1) > 0).any())


def _is_enveloped(rows: Array) -> bool:
    """Whether the energy of each row lies around one frequency, and rows have several: a Fourier basis."""
    if rows.shape[1] < _MIN_LENGTH or len(rows) < _MIN_ROWS:
        return False
    energy = np.abs(np.fft.rfft(rows.astype(np.float64), axis=1)) ** 2
    peaks, total = energy.argmax(1), energy.sum(1)
    is_far = np.abs(np.arange(energy.shape[1]) - peaks[:, None]) > max(2, rows.shape[1] // 32)
    is_one = (energy * is_far).sum(1) <= _STRAY_ENERGY * total + _NOISE * total.max()
    return bool(is_one.all()) and len(set(peaks.tolist())) >= len(rows) // 4
