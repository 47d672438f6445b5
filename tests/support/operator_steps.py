"""Every step that an operation can have in a training program, run on memory that holds what a test says.

A step gets the slots that the program binds and nothing else: a constant input is planned with and never
read, of a backward step only what it asked for is there. Slots are named as in programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from solver.executor.kernels import kernels_for
from solver.executor.kernels.base import Call
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET, Node, OperationType, ScratchRequest
from solver.graph.storage import Storage
from solver.graph.types import Array, TensorType
from tests.support.one_operation import OneOperation, placed, poisoned

__all__ = ["Case", "OperatorStep", "steps_of"]


@dataclass(frozen=True, slots=True)
class Case:
    """An operator, values of its inputs (``None`` for one left out), attributes, storages by position."""

    type: str
    values: tuple[Array | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    scratch_budget: int = DEFAULT_SCRATCH_BUDGET
    stored: Mapping[int, Storage] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ",".join("-" if v is None else f"{v.dtype}{list(v.shape)}" for v in self.values)
        attributes = "".join(f" {key}={value}" for key, value in self.attributes.items())
        storages = "".join(f" {position} stored as {how}" for position, how in self.stored.items())
        return f"{self.type} {shapes}{attributes}{storages}".replace(" ", "_")

    def operation(self) -> OneOperation:
        return OneOperation(
            self.type,
            self.values,
            outputs=self.outputs,
            scratch_budget=self.scratch_budget,
            stored=self.stored,
            **self.attributes,
        )


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """One step: what its read slots hold, the types of what it writes and of its scratch.

    A slot in `reads` and in `writes` is updated in place.
    """

    kind: OperationType
    node: Node
    forward: bool
    reads: Mapping[str, Array]
    writes: Mapping[str, TensorType]
    scratch: Mapping[str, TensorType]

    def __str__(self) -> str:
        direction = "forward" if self.forward else "backward"
        return f"{direction}: {', '.join(self.reads)} -> {', '.join(self.writes)}"

    @property
    def takes_one_or_all(self) -> bool:
        """Whether it is forward, or computes the derivative of one input alone, or those of all inputs."""
        return self.forward or len(self.writes) in (1, len(self.kind.differentiable(self.node)))

    def run(
        self,
        *,
        written: int = 0xFF,
        scratch: int = 0xFF,
        changed: Mapping[str, Array] | None = None,
        shared: Mapping[str, str] | None = None,
        laid: Mapping[str, int] | None = None,
    ) -> dict[str, bytes]:
        """The contents of each slot that the step writes, run once in memory of its own.

        Every byte of results is `written` before, every byte of scratch `scratch`. `changed` replaces what
        slots hold, `shared` puts a slot into the memory of a read one, `laid` has the first byte of slots
        that lie in one block together. Raises where the step writes to a slot that it only reads.
        """
        shared, given = shared or {}, {**self.reads, **(changed or {})}
        arrays = {slot: placed(value) for slot, value in given.items() if slot not in shared}
        for slot, type_ in self.writes.items():
            if slot not in arrays:
                arrays[slot] = _filled(type_, written)
        for slot, source in shared.items():
            shape = self.writes[slot].shape if slot in self.writes else given[slot].shape
            arrays[slot] = arrays[source].reshape(shape)
        block = placed(np.full(sum(array.nbytes for array in arrays.values()), written, np.uint8))
        for slot, at in sorted((laid or {}).items(), key=lambda item: item[0] in self.reads):
            place = block[at : at + arrays[slot].nbytes].view(arrays[slot].dtype).reshape(arrays[slot].shape)
            if slot in self.reads:
                place[...] = arrays[slot]
            arrays[slot] = place
        work = {name: _filled(type_, scratch) for name, type_ in self.scratch.items()}
        overwritten = {*self.writes, *shared, *shared.values(), *(laid or {})}
        for slot in given.keys() - overwritten:
            arrays[slot].flags.writeable = False
        kernels = kernels_for(self.kind.name)
        prepare = kernels.forward if self.forward else kernels.backward
        with np.errstate(all="ignore"):
            prepare(self._call(arrays, work))()
        for slot in given.keys() - overwritten:
            assert arrays[slot].tobytes() == given[slot].tobytes(), f"the step changed {slot}"
        for slot in given.keys() & (laid or {}).keys():
            assert arrays[slot].tobytes() == given[slot].tobytes(), f"the step changed {slot}"
        return {slot: arrays[slot].tobytes() for slot in self.writes}

    def _call(self, arrays: Mapping[str, Array], scratch: Mapping[str, Array]) -> Call:
        inputs, outputs = range(len(self.node.inputs)), range(len(self.node.outputs))
        positional = {f"{slot}{i}" for slot in ("x", "dx") for i in inputs}
        positional |= {f"{slot}{k}" for slot in ("y", "dy") for k in outputs}
        return Call(
            self.node,
            x=tuple(arrays.get(f"x{i}") for i in inputs),
            y=tuple(arrays.get(f"y{k}") for k in outputs),
            dy=tuple(arrays.get(f"dy{k}") for k in outputs),
            dx=tuple(arrays.get(f"dx{i}") for i in inputs),
            saved={name: array for name, array in arrays.items() if name not in positional},
            scratch=scratch,
        )


def _filled(type_: TensorType, byte: int) -> Array:
    array = poisoned(type_)
    array.reshape(-1).view(np.uint8).fill(byte)
    return array


def steps_of(case: Case) -> Iterator[OperatorStep]:
    """The forward step, without optional results too, and a backward step for each set of derivatives.

    Training asks for any set: what is trained in one step, the rest that leads to a parameter in another.
    Where there are several outputs, the derivatives of some may be missing.
    """
    operation = case.operation()
    kind, node = operation.kind, operation.node
    with np.errstate(all="ignore"):
        outputs = operation.forward_all()
    values = {
        f"x{i}": value
        for i, value in enumerate(operation.values)
        if value is not None and i not in kind.constant_inputs
    }
    saved = {request.name: request.type for request in kind.saved(node)}
    results = {f"y{k}": type_ for k, type_ in enumerate(node.outputs)}
    updated = {f"x{i}": node.input(i) for i in sorted(kind.updates(node))}
    scratch = _types(kind.forward_scratch(node))
    yield OperatorStep(kind, node, True, values, {**results, **updated, **saved}, scratch)
    if kind.optional_saved:
        kept = {name: type_ for name, type_ in saved.items() if name not in kind.optional_saved}
        yield OperatorStep(kind, node, True, values, {**results, **updated, **kept}, scratch)
    for wanted in _subsets(sorted(kind.differentiable(node))):
        needs = kind.backward(node, frozenset(wanted))
        reads = {f"x{i}": values[f"x{i}"] for i in sorted(needs.inputs)}
        reads |= {f"y{k}": outputs[k] for k in sorted(needs.outputs)}
        reads |= {name: operation.saved[name] for name in sorted(needs.saved)}
        writes = {f"dx{i}": node.input(i) for i in wanted}
        for derivatives in _derivatives(node.outputs) if needs.reads_output_derivatives else [{}]:
            yield OperatorStep(kind, node, False, {**reads, **derivatives}, writes, _types(needs.scratch))


def _types(requests: Sequence[ScratchRequest]) -> dict[str, TensorType]:
    return {request.name: request.type for request in requests}


def _derivatives(outputs: Sequence[TensorType]) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(11)
    given = [np.asarray(rng.standard_normal(t.shape), t.dtype.numpy) for t in outputs]
    for positions in _subsets(range(len(given))):
        yield {f"dy{k}": given[k] for k in positions}


def _subsets(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All but the empty one."""
    for size in range(1, len(positions) + 1):
        yield from combinations(positions, size)
