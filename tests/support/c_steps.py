"""Single steps of operators as functions in one C library, called on arrays of NumPy's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solver.c_kernels import C_TYPES, KERNELS, SOURCES, Call, Task, table
from solver.graph.types import Array, DType, TensorType
from solver.program import Phase
from tests.support.c_objects import shared_library
from tests.support.one_operation import placed, poisoned
from tests.support.operator_steps import OperatorStep

__all__ = ["CSteps", "task_of_step"]

#: The name of a step's work area, as a slot.
_WORK = "work"


def task_of_step(step: OperatorStep) -> Task:
    slots = frozenset({*step.reads, *step.writes})
    return Task(step.node, Phase.FORWARD if step.forward else Phase.CALC_GRADIENT, slots)


@dataclass(frozen=True, slots=True)
class _Written:
    """A function in C, and the slots whose addresses it takes in this order."""

    text: str
    slots: Sequence[str]


class CSteps:
    """A C file with one function for each of these steps, for a folder of its own."""

    def __init__(self, steps: Iterable[OperatorStep], folder: Path) -> None:
        self._folder, self._tables = folder, list[str]()
        self._slots: dict[int, tuple[int, Sequence[str]]] = {}
        functions = list[str]()
        for step in steps:
            written = self._function(len(functions), step)
            self._slots[id(step)] = (len(functions), written.slots)
            functions.append(written.text)
        text = "\n".join(('#include "ap.h"', *self._tables, *functions, ""))
        (folder / "steps.c").write_text(text, encoding="ascii")

    def _function(self, k: int, step: OperatorStep) -> _Written:
        task = task_of_step(step)
        kernel = KERNELS[step.kind.name]
        slots = [*sorted(task.slots)]
        if kernel.work(task):
            slots.append(_WORK)
        types = {slot: DType(array.dtype.name) for slot, array in step.reads.items()}
        types |= {slot: type_.dtype for slot, type_ in step.writes.items()}
        types[_WORK] = DType.FLOAT32

        def place(slot: str) -> str:
            return f"(({C_TYPES[types[slot]]} *)s[{slots.index(slot)}])"

        def constant(type_: str, members: Iterable[int | str]) -> str:
            name = f"t{len(self._tables)}"
            self._tables.append(table(name, type_, members))
            return name

        task = Task(task.node, task.phase, frozenset(slots))
        statement = kernel.write(Call(task, place, constant))
        return _Written(
            f"void step{k}(void *const *s, uint32_t iteration) {{ (void)s, (void)iteration; {statement} }}",
            slots,
        )

    def compiled(self, compiler: str, *flags: str) -> ctypes.CDLL:
        library = self._folder / f"steps{''.join(flags).replace('/', '')}{compiler}.so"
        strict = (
            "-std=c11",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wconversion",
        )
        own, kernels = [self._folder / "steps.c"], sorted(SOURCES.glob("*.c"))
        # Functions that only call kernels: to optimise three thousand of them takes longer than all kernels.
        of_functions = ["-O0", f"-I{SOURCES}"]
        shared_library(library, compiler, *strict, *flags, own=own, kernels=kernels, own_flags=of_functions)
        return ctypes.CDLL(str(library))

    def run(
        self,
        library: ctypes.CDLL,
        step: OperatorStep,
        shared: Mapping[str, str] | None = None,
        *,
        changed: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """The contents of each slot that the step writes, in memory of NaN; `shared` puts a slot into the
        memory of a read one, `changed` replaces what slots hold.
        """
        k, slots = self._slots[id(step)]
        reads = {**step.reads, **(changed or {})}
        arrays = {slot: placed(value) for slot, value in reads.items()}
        for slot, type_ in step.writes.items():
            if shared and slot in shared:
                arrays[slot] = arrays[shared[slot]].reshape(type_.shape)
            elif slot not in arrays:
                arrays[slot] = poisoned(type_)
        if _WORK in slots:
            nbytes = KERNELS[step.kind.name].work(task_of_step(step))
            arrays[_WORK] = _guarded(nbytes)
        addresses = (ctypes.c_void_p * max(1, len(slots)))(*(arrays[slot].ctypes.data for slot in slots))
        getattr(library, f"step{k}")(addresses, ctypes.c_uint32(1))
        for slot in reads.keys() - step.writes.keys() - {*(shared or {}).values()}:
            assert arrays[slot].tobytes() == reads[slot].tobytes(), f"the step changed {slot}"
        if _WORK in slots:
            assert (arrays[_WORK].reshape(-1)[nbytes // 4 :].view(np.uint8) == 0xFF).all(), "work overrun"
        return {slot: arrays[slot] for slot in step.writes}


def _guarded(nbytes: int) -> Array:
    """A work area with some bytes behind it that a step must not write."""
    return poisoned(TensorType((nbytes // 4 + 64,), DType.FLOAT32))
