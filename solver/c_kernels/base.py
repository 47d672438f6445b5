"""A kernel in C as the planner and the exporter see it: what it can compute, its work area, and its call."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from solver.graph.ops.base import Node
from solver.graph.types import DType, TensorType
from solver.program import Phase

__all__ = [
    "ACTIVATION",
    "C_TYPES",
    "CKernel",
    "Call",
    "FloatKernel",
    "Task",
    "float_number",
    "number",
    "spread",
    "table",
]

#: The types of elements in C.
C_TYPES: Final[Mapping[DType, str]] = {
    DType.FLOAT32: "ap_f32",
    DType.FLOAT64: "double",
    DType.INT64: "int64_t",
    DType.INT32: "int32_t",
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.BOOL: "uint8_t",
}

#: Structs that begin with arrays of six numbers, and how many.
_OF_ROWS: Final = {"ap_pairs": 3, "ap_steps": 2, "ap_region": 3, "ap_operands": 4}

#: The name in C of each activation that an operator may apply to its own output.
ACTIVATION = {
    "None": "AP_NONE",
    "Relu": "AP_RELU",
    "Relu6": "AP_RELU6",
    "Sigmoid": "AP_SIGMOID",
    "Tanh": "AP_TANH",
}


@dataclass(frozen=True, slots=True)
class Task:
    """One step as a kernel sees it: its operation, its direction, and the slots that it binds."""

    node: Node
    phase: Phase
    slots: frozenset[str]

    @property
    def is_forward(self) -> bool:
        return self.phase is Phase.FORWARD

    @property
    def activation(self) -> str:
        """The activation that the operator applies to its output, in C."""
        return ACTIVATION[self.node.attributes.get("activation", "None")]

    @property
    def activates(self) -> bool:
        return self.activation != "AP_NONE"


@dataclass(frozen=True, slots=True)
class Call:
    """A task whose call is written: `place` gives the C expression of a slot's address, and `table` the name
    of a constant struct of this type with these members. `iteration` and `update` are expressions: the number
    of the iteration, and of the update that it belongs to, both from 1.
    """

    task: Task
    place: Callable[[str], str]
    table: Callable[[str, Iterable[int | str]], str]
    iteration: str = "iteration"
    update: str = "update"

    def at(self, slot: str) -> str:
        """The address of a slot; a null pointer where the step does not bind it."""
        return self.place(slot) if slot in self.task.slots else "0"

    @property
    def activation(self) -> str:
        """The statement that applies the task's activation to Y, behind a blank; empty if there is none."""
        return self.activated(self.task.activation) if self.task.activates else ""

    def activated(self, name: str) -> str:
        """The statement that applies an activation to Y, by its name in C, behind a blank."""
        name = name.lower()
        return (
            f" {name}_forward({self.at('y0')}, {self.at('y0')}, {spread(self.task.node.outputs[0].shape)}u);"
        )


class CKernel(ABC):
    """The kernels of one operator. Stateless. `source` is the C file that has them, without its suffix."""

    operators: ClassVar[tuple[str, ...]]
    source: ClassVar[str]

    def refusal(self, task: Task) -> str | None:
        """Why no kernel here computes the task, as the end of a sentence; None if one does."""
        return None

    def file_of(self, task: Task) -> str:
        """The C file that has the kernel of the task."""
        return self.source

    def work(self, task: Task) -> int:
        """Bytes of the work area, which is undefined before and after the call."""
        return 0

    @abstractmethod
    def write(self, call: Call) -> str:
        """The C statement that computes the task."""


class FloatKernel(CKernel):
    """Kernels of operands that are all float32."""

    def refusal(self, task: Task) -> str | None:
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        return None


def only_float32(types: Iterable[TensorType | None]) -> bool:
    return all(type_ is None or type_.dtype is DType.FLOAT32 for type_ in types)


def table(name: str, type_: str, members: Iterable[int | str]) -> str:
    """The definition of a constant struct with these members."""
    numbers = [str(member) for member in members]
    rows = 6 * _OF_ROWS.get(type_, 0)
    arrays = [f"{{{', '.join(numbers[i : i + 6])}}}" for i in range(0, rows, 6)]
    numbers = [*arrays, *numbers[rows:]]
    return f"static const {type_} {name} = {{{', '.join(numbers)}}};"


def number(value: float) -> str:
    """A C literal that is exactly this double."""
    if math.isinf(value):
        return "-AP_INFINITY" if value < 0 else "AP_INFINITY"
    return float(value).hex() if not float(value).is_integer() or abs(value) > 1e15 else f"{value:.1f}"


def float_number(value: float) -> str:
    """A C literal of the nearest float, which last bits of the double do not change."""
    return number(value) if math.isinf(value) else f"{number(float(np.float32(value)))}f"


def spread(shape: Iterable[int]) -> int:
    """The elements of a shape."""
    return math.prod(shape)
