"""Integers that a caller feeds and steps read as indices or class labels: which of them have a range.

labels [8]         --------------------->  CategoricalCrossEntropy     all 8 in [0, classes)
tokens [4, 17]     Slice  ->  Reshape  ->  Gather                      4 x 16 of 68 in [-rows, rows)
labels [8], float  Cast   --------------->  CategoricalCrossEntropy     computed: the step has to look
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from solver.graph.ops import lookup
from solver.graph.ops.base import IndexRange, Node
from solver.graph.ops.slicing import cut, pieces
from solver.graph.types import Array
from solver.program.ir import COPY, OWN_KERNELS, EntryKind, Phase, Program, Step

__all__ = ["indices"]

#: Operators whose elements are those of their first input, in order.
_IN_ORDER: Final = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "StopGradient", "Cast", COPY})

#: Elements of the largest value whose elements are followed into another order, and into parts.
_MAX_FOLLOWED: Final = 2**20


class _Indices(NamedTuple):
    """`fed` has the ranges of what is fed, by name, with the flat positions of the elements that have them,
    None for all; `computed` those of other integers, by the step that reads them, with the slot.
    """

    fed: Mapping[str, Sequence[tuple[IndexRange, Array | None]]]
    computed: Mapping[int, Sequence[tuple[str, IndexRange]]]


def indices(program: Program) -> _Indices:
    """The ranges of integers that the forward steps of a program read, worked out once. Linear."""
    return program.once("indices", _indices)


def _indices(program: Program) -> _Indices:
    values = program.values
    fed: dict[str, list[tuple[IndexRange, Array | None]]] = {}
    computed: dict[int, list[tuple[str, IndexRange]]] = {}
    followed: dict[int, tuple[str, Array | None]] = {
        entry.value: (values[entry.value].origin, None)
        for entry in program.entry
        if entry.kind is EntryKind.FED and not values[entry.value].type.dtype.is_floating
    }
    for t, step in enumerate(program.steps):
        node = program.operations[step.operation]
        kernel = node.operation.type
        if step.phase is not Phase.FORWARD or (kernel in OWN_KERNELS and kernel != COPY):
            continue
        value_of = {binding.slot: binding.value for binding in step.bindings}
        if (source := followed.get(value_of.get("x0", -1))) is not None:
            followed |= {value: (source[0], moved) for value, moved in _moved(node, step, source[1])}
        for position, range_ in () if kernel == COPY else lookup(kernel).index_ranges(node).items():
            if (source := followed.get(value_of[f"x{position}"])) is None:
                computed.setdefault(t, []).append((f"x{position}", range_))
            else:
                fed.setdefault(source[0], []).append((range_, source[1]))
    return _Indices(fed, computed)


def _moved(node: Node, step: Step, positions: Array | None) -> Iterator[tuple[int, Array | None]]:
    """The results of a step that are elements of its first input, with the positions of these."""
    kind, shape = node.operation.type, node.input(0).shape
    results = {int(b.slot[1:]): b.value for b in step.bindings if b.slot[0] == "y" and b.slot[1:].isdigit()}
    if kind in _IN_ORDER and not node.outputs[0].dtype.is_floating:
        yield results[0], None if positions is None else positions.reshape(node.outputs[0].shape)
    if kind not in ("Slice", "Split", "Transpose", "Expand") or node.input(0).elements > _MAX_FOLLOWED:
        return
    there = np.arange(node.input(0).elements).reshape(shape) if positions is None else positions
    parts = [there]
    if kind == "Transpose":
        parts = [there.transpose(node.attributes["perm"] or range(len(shape))[::-1])]
    elif kind == "Slice":
        parts = [there[cut(node)]]
    elif kind == "Split":
        axis = node.attributes["axis"] % len(shape)
        parts = [*(there[part] for part in pieces(axis, tuple(t.shape[axis] for t in node.outputs)))]
    for k, value in results.items():
        yield value, np.broadcast_to(parts[k], node.outputs[k].shape)
