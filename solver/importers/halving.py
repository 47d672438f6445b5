"""A reduction that graphs have no operator for, in a logarithm of its size."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeVar

__all__ = ["product_of_slices"]

_Value = TypeVar("_Value")


def product_of_slices(
    x: _Value,
    axis: int,
    size: int,
    cut: Callable[[_Value, int, int, int], _Value],
    multiply: Callable[[_Value, _Value], _Value],
) -> _Value:
    """The product of x along an axis of `size`: its halves are multiplied until one slice is left.

    `cut(x, axis, begin, end)` records a slice, `multiply(a, b)` a product. They are called 5 log2(size) times
    at most, where one slice after the other would take `size` of each.
    """
    odd: list[_Value] = []
    while size > 1:
        half = size // 2
        if size % 2:
            odd.append(cut(x, axis, size - 1, size))
        x = multiply(cut(x, axis, 0, half), cut(x, axis, half, 2 * half))
        size = half
    return reduce(multiply, odd, x)
