"""Element-wise work in blocks that fit the cache, and sums over broadcast axes.

An element-wise kernel with an intermediate value needs scratch for it. Cut into blocks, that is a
block and not a tensor:

    y [rows, columns] += bias [columns]        derivative of bias = sum of dy over the rows

    +-------------+  block 0   --sum--> bias   (written)
    +-------------+  block 1   --sum--> partial, added to bias
    +-------------+  block 2   --sum--> partial, added to bias

Blocks and the views of them are made once, when a kernel is prepared. The order of additions
follows from the shapes alone, so results repeat bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product

import numpy as np

from solver.errors import InternalError
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import Array

__all__ = [
    "Step",
    "block_views",
    "bound",
    "cuts",
    "flat_blocks",
    "is_new",
    "optional",
    "present",
    "run_all",
    "staging",
    "sum_into",
    "sum_steps",
    "with_small_buffers",
]

Step = Callable[[], None]

_BUFFER_ELEMENTS = 2048


def optional(arrays: tuple[Array | None, ...], position: int) -> Array | None:
    """The array at `position`, or nothing where it was left out."""
    return arrays[position] if position < len(arrays) else None


def present(*arrays: Array | None) -> tuple[Array, ...]:
    """The arrays, all of which a step must have, C-contiguous: reshaping another would copy it.

    Raises InternalError when one is left out or has gaps.
    """
    there = tuple(array for array in arrays if array is not None)
    if len(there) != len(arrays):
        raise InternalError("A kernel was prepared without an array that it needs.")
    if not all(array.flags.c_contiguous for array in there):
        raise InternalError("A kernel was prepared with an array that is not C-contiguous.")
    return there


def bound(function: Callable[..., object], *arguments: object, **options: object) -> Step:
    """A step that calls `function` with these arguments and drops what it returns."""

    def run() -> None:
        function(*arguments, **options)

    return run


def run_all(steps: Sequence[Step]) -> Step:
    """One function that calls `steps` in order."""
    if len(steps) == 1:
        return steps[0]
    fixed = tuple(steps)

    def run() -> None:
        for step in fixed:
            step()

    return run


def staging(scratch: Array, shape: Sequence[int]) -> Array:
    """The front of a scratch array, seen in `shape`."""
    return scratch.reshape(-1)[: math.prod(shape)].reshape(shape)


def with_small_buffers(step: Step) -> Step:
    """`step` with NumPy's iteration buffers held to 8 KiB an operand for float32.

    Where operands broadcast or have gaps NumPy copies them through buffers, at its default size 64 KiB
    an operand for float64; small ones stay in the first-level cache and are no slower.
    """

    def run() -> None:
        with np.errstate():
            np.setbufsize(_BUFFER_ELEMENTS)
            step()

    return run


def flat_blocks(*arrays: Array, size: int = BLOCK_ELEMENTS) -> Iterator[tuple[Array, ...]]:
    """Views of at most `size` elements of C-contiguous arrays of one shape."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, size):
        yield tuple(array[start : start + size] for array in flat)


def block_views(shape: Sequence[int], arrays: Sequence[Array]) -> Iterator[tuple[Array, ...]]:
    """Views of C-contiguous `arrays`, which broadcast to `shape`, block by block of `shape`.

    All views of one block have the same rank; an axis along which an array is broadcast has size 1
    in its view. A block has at most `BLOCK_ELEMENTS` elements of `shape`.
    """
    sizes, views = _coalesced(shape, arrays)
    for index in cuts(sizes):
        yield tuple(view[_broadcast_index(view, sizes, index)] for view in views)


def _coalesced(shape: Sequence[int], arrays: Sequence[Array]) -> tuple[tuple[int, ...], list[Array]]:
    """Neighbouring axes along which the same arrays are broadcast, joined into one axis."""
    rank = len(shape)
    padded = [(1,) * (rank - array.ndim) + array.shape for array in arrays]
    axes = [axis for axis in range(rank) if shape[axis] != 1]

    def pattern(axis: int) -> tuple[bool, ...]:
        return tuple(sizes[axis] == 1 for sizes in padded)

    groups = [list(group) for _, group in groupby(axes, key=pattern)] or [[]]
    views = [
        array.reshape([math.prod(sizes[axis] for axis in group) for group in groups])
        for array, sizes in zip(arrays, padded, strict=True)
    ]
    return tuple(math.prod(shape[axis] for axis in group) for group in groups), views


def cuts(sizes: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Slices that cut `sizes` into blocks: single steps of the outer axes, pieces of one, all of the rest."""
    whole, split = 1, len(sizes)
    while split and whole * sizes[split - 1] <= BLOCK_ELEMENTS:
        split -= 1
        whole *= sizes[split]
    steps = [1] * len(sizes)
    steps[split:] = sizes[split:]
    if split:
        steps[split - 1] = BLOCK_ELEMENTS // whole
    ranges = [range(0, size, step) for size, step in zip(sizes, steps, strict=True)]
    for starts in product(*ranges):
        yield tuple(
            slice(start, min(start + step, size))
            for start, step, size in zip(starts, steps, sizes, strict=True)
        )


def _broadcast_index(view: Array, sizes: tuple[int, ...], index: tuple[slice, ...]) -> tuple[slice, ...]:
    return tuple(
        slice(None) if have < want else part
        for have, want, part in zip(view.shape, sizes, index, strict=True)
    )


def sum_into(
    source: Array, target: Array, partial: Array | None, *, first: bool, function: np.ufunc = np.add
) -> Step:
    """Sum `source` over the axes where `target`, of the same rank, has size 1.

    `first` overwrites `target`; otherwise the sum goes through `partial` and is added to it. Another
    associative `function` takes the place of the sum.
    """
    axes = tuple(axis for axis, size in enumerate(source.shape) if target.shape[axis] == 1 and size > 1)
    if not axes:
        return bound(np.copyto, target, source) if first else bound(function, target, source, out=target)
    if first:
        return bound(function.reduce, source, axis=axes, out=target, keepdims=True)
    if partial is None:
        raise InternalError("A sum in several parts takes scratch for a part.")
    part = staging(partial, target.shape)

    def run() -> None:
        function.reduce(source, axis=axes, out=part, keepdims=True)
        function(target, part, out=target)

    return run


def sum_steps(
    source: Array,
    target: Array,
    partial: Array | None,
    seen: set[int] | None = None,
    *,
    function: np.ufunc = np.add,
) -> list[Step]:
    """Steps that write to `target` the sum of `source` over the axes along which it broadcasts.

    A target that collects several sources takes one `seen` for all of them.
    """
    if not source.size:
        return (
            [] if seen is not None and not is_new(seen, target) else [bound(target.fill, function.identity)]
        )
    seen = set() if seen is None else seen
    steps = []
    for part, into in block_views(source.shape, (source, target)):
        steps.append(sum_into(part, into, partial, first=is_new(seen, into), function=function))
    return steps


def is_new(seen: set[int], view: Array) -> bool:
    """Whether no view that starts where `view` does was asked about before."""
    address = view.__array_interface__["data"][0]
    new = address not in seen
    seen.add(address)
    return new
