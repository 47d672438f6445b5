"""Identity: of attributes by type and bytes, and of programs by their digest.

Numbers that compare equal may compute other bits, so attributes are compared by type and bytes. The digest of
a program ties a plan to the reference program that it must agree with.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import islice
from operator import attrgetter
from typing import Final

from solver.graph.ops.base import Node
from solver.graph.types import TensorType
from solver.program.ir import Access, Binding, Program, Step, Value

__all__ = ["PIECE", "exact", "reference_digest"]


def exact(value: object) -> Hashable:
    """A key that two attributes share only if they have the same types and bytes, elements included.

    -0.0 differs from 0.0, 0.0 from 0, True from 1; a NaN equals a NaN of the same bytes. Linear.
    """
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, Mapping):
        return "mapping", frozenset((exact(key), exact(item)) for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return type(value).__name__, tuple([exact(item) for item in value])
    return type(value).__name__, repr(value)


#: Rows that are hashed at a time: some tens of kilobytes of text.
PIECE: Final = 500

_SLOT: Callable[[Binding], tuple[str, Access]] = attrgetter("slot", "access")
_NUMBER: Callable[[Binding], int] = attrgetter("value")


def reference_digest(program: Program) -> str:
    """SHA-256, in hexadecimal, over a text of everything that a program says. Linear.

    Rows of plain numbers and words in a fixed order, attributes by name; no table is needed to check one
    digest against another, so it takes a fraction of the time of a document. The text is that of ``repr``
    of tuples and lists; it is written and hashed piece by piece.
    """
    spaces = [(space.name, space.alignment, space.addressable) for space in program.spaces]
    entry = [(entry.value, entry.kind.word, entry.reference) for entry in program.entry]
    exits = [(exit_.value, exit_.reference) for exit_ in program.exit]
    aliases = [(a.value, a.source, a.step, a.view, a.offset) for a in program.aliases]
    initial = [
        (value, repr(initial), *(() if initial.rows is None else astuple(initial.rows)))
        for value, initial in sorted(program.initial.items())
    ]
    digest = hashlib.sha256(f"{('program', program.name, program.period)!r}\n{spaces!r}".encode())
    for rows in (
        _values(program.values),
        _nodes(program.operations),
        _steps(program.steps),
        map(repr, entry),
        map(repr, exits),
        map(repr, aliases),
        map(repr, initial),
    ):
        digest.update(b"\n[")
        between = ""
        while piece := list(islice(rows, PIECE)):
            digest.update(f"{between}{', '.join(piece)}".encode())
            between = ", "
        digest.update(b"]")
    return digest.hexdigest()


def _values(values: Iterable[Value]) -> Iterator[str]:
    types: dict[int, str] = {}
    for value in values:
        type_ = types.get(id(value.type))
        if type_ is None:
            shape, dtype, *stored = _type(value.type)
            text = f"{dtype}{shape}{''.join(map(repr, stored))}"
            type_ = types[id(value.type)] = repr(text)
        yield f"({value.label!r}, {type_}, {value.kind.word!r}, {value.origin!r}, {value.space})"


def _nodes(nodes: Iterable[Node]) -> Iterator[str]:
    """The parts of a node that decide what its kernel computes, as plain values.

    Updates of all weights have one mapping of attributes, types are shared as well: each is written once.
    """
    types: dict[int, str] = {}
    attributes: dict[int, str] = {}
    for node in nodes:
        operation = node.operation
        for type_ in (*node.inputs, *node.outputs):
            if id(type_) not in types:
                types[id(type_)] = repr(type_ and _type(type_))
        if id(node.attributes) not in attributes:
            attributes[id(node.attributes)] = repr(sorted(node.attributes.items()))
        named = (operation.id, operation.type, operation.inputs, operation.outputs, node.scratch_budget)
        inputs = ", ".join([types[id(type_)] for type_ in node.inputs])
        outputs = ", ".join([types[id(type_)] for type_ in node.outputs])
        shared, floats = attributes[id(node.attributes)], sorted(node.floats.items())
        yield f"({named!r}, [{inputs}], [{outputs}], {shared}, {node.constants!r}, {floats!r})"


def _type(type_: TensorType) -> tuple[object, ...]:
    stored = () if type_.storage is None else (astuple(type_.storage),)
    return (type_.shape, type_.dtype.value, *stored)


def _steps(steps: Iterable[Step]) -> Iterator[str]:
    """Steps of one form differ in numbers alone, so each form is written once, with places for them."""
    forms: dict[tuple[object, ...], str] = {}
    for step in steps:
        slots = tuple(map(_SLOT, step.bindings))
        key = (step.phase, step.part, step.due, slots)
        form = forms.get(key)
        if form is None:
            part, words = repr(step.part).replace("%", "%%"), step.phase.word
            rows = [f"({slot!r}, ".replace("%", "%%") + f"%d, {access.word!r})" for slot, access in slots]
            form = forms[key] = f"((%d, {words!r}, {part}, {step.due}, %s, %d, %d), [{', '.join(rows)}])"
        yield form % (
            step.operation, step.reference, step.level, step.until, *map(_NUMBER, step.bindings)
        )  # fmt: skip
