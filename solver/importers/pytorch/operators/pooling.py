"""Images of another size: pooling, also to a stated size, and interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from solver.graph import AttributeValue
from solver.importers.pytorch.context import Context, Handler, UnsupportedError, Value, and_nothing
from solver.importers.pytorch.operators.convolution import listed

__all__ = ["HANDLERS"]

_Sizes = int | Sequence[int]


def _pool(c: Context, type_: str, rank: int, x: Value, **attributes: AttributeValue) -> Value:
    """Pools images, with a batch axis or without one."""
    batched = c.reshape(x, (1, *x.shape)) if x.rank == rank + 1 else x
    y = c.apply(type_, batched, **attributes)
    return c.reshape(y, y.shape[1:]) if x.rank == rank + 1 else y


def _max(rank: int) -> Handler:
    def handler(
        c: Context,
        x: Value,
        kernel: _Sizes,
        stride: _Sizes = (),
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        ceil_mode: bool = False,
    ) -> Value:
        kernel = listed(kernel, rank)
        return _pool(
            c,
            "MaxPool",
            rank,
            x,
            kernel_shape=kernel,
            strides=listed(stride or kernel, rank),
            pads=listed(padding, rank) * 2,
            dilations=listed(dilation, rank),
            ceil_mode=int(ceil_mode),
        )

    return handler


def _average(rank: int) -> Handler:
    def handler(
        c: Context,
        x: Value,
        kernel: _Sizes,
        stride: _Sizes = (),
        padding: _Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        kernel = listed(kernel, rank)
        if divisor_override is not None and ceil_mode:
            raise UnsupportedError("a divisor of its own, and windows that are cut off")
        y = _pool(
            c,
            "AveragePool",
            rank,
            x,
            kernel_shape=kernel,
            strides=listed(stride or kernel, rank),
            pads=listed(padding, rank) * 2,
            ceil_mode=int(ceil_mode),
            count_include_pad=int(count_include_pad or divisor_override is not None),
        )
        if divisor_override is None:
            return y
        return c.apply("Mul", y, c.number(math.prod(kernel) / divisor_override, y.dtype))

    return handler


def _adaptive(type_: str, rank: int) -> Handler:
    """Windows of one size, side by side: that is what it comes to where the sizes divide."""

    def handler(c: Context, x: Value, output_sizes: _Sizes) -> Value:
        sizes = x.shape[-rank:]
        outs = c.result.shape[-rank:]
        if type_ == "AveragePool" and all(out == 1 for out in outs):
            axes = c.integers("axes", list(range(x.rank - rank, x.rank)))
            return c.apply("ReduceMean", x, axes, keepdims=1)
        if any(size % out for size, out in zip(sizes, outs, strict=True)):
            for axis, out in enumerate(outs, x.rank - rank):
                x = _uneven(c, type_, x, axis, out)
            return x
        kernel = tuple(size // out for size, out in zip(sizes, outs, strict=True))
        return _pool(c, type_, rank, x, kernel_shape=kernel, strides=kernel)

    return handler


def _uneven(c: Context, type_: str, x: Value, axis: int, out: int) -> Value:
    """Windows along one axis, from floor(k size / out) to before ceil((k + 1) size / out).

    Means are a product with a constant matrix. Of maxima, windows that are shorter than others have their
    last element twice, which adds nothing.
    """
    size = x.shape[axis]
    if size == out:
        return x
    starts = np.arange(out) * size // out
    ends = -(-np.arange(1, out + 1) * size // out)
    if type_ == "AveragePool":
        inside = (np.arange(size)[:, None] >= starts) & (np.arange(size)[:, None] < ends)
        means = (inside / (ends - starts)).astype(x.dtype.numpy)
        product = c.apply("MatMul", c.last(x, axis), c.constant(f"{c.scope}.means", means))
        order = list(range(x.rank - 1))
        order.insert(axis, x.rank - 1)
        return c.transpose(product, order)
    places = np.minimum(starts[:, None] + np.arange(max(ends - starts)), ends[:, None] - 1)
    windows = c.constant(f"{c.scope}.windows", places.astype(np.int64))
    taken = c.apply("Gather", x, windows, axis=axis)
    return c.apply("ReduceMax", taken, c.integers("axes", [axis + 1]), keepdims=0)


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


def _interpolated(
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
    "upsample_linear1d.vec": partial(_interpolated, "linear"),
    "upsample_bilinear2d.vec": partial(_interpolated, "linear"),
    "upsample_trilinear3d.vec": partial(_interpolated, "linear"),
    "upsample_bicubic2d.vec": partial(_interpolated, "cubic"),
}
for _n in (1, 2, 3):
    HANDLERS |= {
        f"max_pool{_n}d.default": _max(_n),
        f"max_pool{_n}d_with_indices.default": and_nothing(_max(_n), 1),
        f"avg_pool{_n}d.default": _average(_n),
        f"adaptive_avg_pool{_n}d.default": _adaptive("AveragePool", _n),
        f"_adaptive_avg_pool{_n}d.default": _adaptive("AveragePool", _n),
        f"adaptive_max_pool{_n}d.default": and_nothing(_adaptive("MaxPool", _n), 1),
    }
