"""Convolutions of one to three spatial axes; images stay NCHW, weights as PyTorch has them."""

from __future__ import annotations

from collections.abc import Sequence

from solver.graph import AttributeValue
from solver.importers.pytorch.context import Context, Handler, Value

__all__ = ["HANDLERS", "listed"]


def listed(sizes: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """A number for each spatial axis; one number, or a list of one, stands for all."""
    values = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return values * rank if len(values) == 1 else values


def _batched(c: Context, x: Value, weight: Value) -> Value:
    """The images with a batch axis, of size 1 if they have none."""
    return c.reshape(x, (1, *x.shape)) if x.rank == weight.rank - 1 else x


def _conv(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    rank = weight.rank - 2
    dilations = listed(dilation, rank)
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True)]
        pads = (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
    else:
        pads = (0,) * 2 * rank if isinstance(padding, str) else listed(padding, rank) * 2
    y = c.apply(
        "Conv",
        _batched(c, x, weight),
        weight,
        *([bias] if bias else []),
        kernel_shape=weight.shape[2:],
        strides=listed(stride, rank),
        dilations=dilations,
        pads=pads,
        group=groups,
    )
    return y if x.rank == weight.rank else c.reshape(y, y.shape[1:])


def _transposed(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Value:
    rank = weight.rank - 2
    attributes: dict[str, AttributeValue] = {
        "kernel_shape": weight.shape[2:],
        "strides": listed(stride, rank),
        "dilations": listed(dilation, rank),
        "pads": listed(padding, rank) * 2,
        "output_padding": listed(output_padding, rank),
        "group": groups,
    }
    y = c.apply("ConvTranspose", _batched(c, x, weight), weight, *([bias] if bias else []), **attributes)
    return y if x.rank == weight.rank else c.reshape(y, y.shape[1:])


def _convolution(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    if transposed:
        return _transposed(c, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(c, x, weight, bias, stride, padding, dilation, groups)


HANDLERS: dict[str, Handler] = {
    **{f"conv{n}d.{kind}": _conv for n in (1, 2, 3) for kind in ("default", "padding")},
    "conv_transpose1d.default": _transposed,
    "conv_transpose2d.input": _transposed,
    "conv_transpose3d.input": _transposed,
    "convolution.default": _convolution,
}
