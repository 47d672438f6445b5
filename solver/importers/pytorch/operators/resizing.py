"""Images of another size, interpolated as PyTorch does it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from solver.importers.pytorch.context import Context, Handler, Value

__all__ = ["HANDLERS"]


def _resize(c: Context, x: Value, scales: Sequence[float] | None, mode: str, coordinates: str) -> Value:
    """Resizes by the factors, which need not be whole, or without them to the size that PyTorch states."""
    if scales is not None:
        factors = np.array([1, 1, *scales], np.float32)
        inputs = [x, None, c.constant(f"{c.scope}.scales", factors)]
    else:
        inputs = [x, None, None, c.integers("sizes", c.result.shape)]
    return c.apply(
        "Resize", *inputs, mode=mode, coordinate_transformation_mode=coordinates, nearest_mode="floor"
    )


def _between(
    mode: str,
    c: Context,
    x: Value,
    sizes: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None = None,
) -> Value:
    return _resize(c, x, scales, mode, "align_corners" if align_corners else "pytorch_half_pixel")


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        [f"upsample_nearest{n}d.vec" for n in (1, 2, 3)],
        lambda c, x, sizes, scales=None: _resize(c, x, scales, "nearest", "asymmetric"),
    ),
    "upsample_linear1d.vec": partial(_between, "linear"),
    "upsample_bilinear2d.vec": partial(_between, "linear"),
    "upsample_trilinear3d.vec": partial(_between, "linear"),
    "upsample_bicubic2d.vec": partial(_between, "cubic"),
}
