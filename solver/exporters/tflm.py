"""TensorFlow Lite models whose tensors TFLM places where a plan says.

TensorFlow Lite for Microcontrollers plans the memory of inference when it starts, greedily. A model may
bring the offsets along: metadata of the name OfflineMemoryAllocation, 32-bit integers
``[version, subgraphs, tensors, offset of tensor 0, ...]``, with -1 for tensors without a place in the arena.
The interpreter obeys them, and puts what its kernels ask for besides around them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.errors import CapacityError, DocumentError
from solver.importers.circle.metadata import with_metadata
from solver.importers.circle.read import Model, read_model
from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan, Outcome
from solver.layout.api import solve

__all__ = ["METADATA", "OfflinePlan", "inference_problem", "load_offsets", "with_offline_plan"]

METADATA: Final = "OfflineMemoryAllocation"

#: What TFLM aligns each buffer of its arena to.
ALIGNMENT: Final = 16

_VERSION: Final = 1
_ONLINE: Final = -1


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """A model with its plan. `offsets` are those of its tensors by number; `outcome` says how good they are.

    The arena needs `size` bytes for tensors, and what kernels ask for as scratch besides.
    """

    data: bytes
    offsets: Mapping[int, int]
    size: int
    outcome: Outcome


def inference_problem(data: bytes) -> tuple[LayoutProblem, tuple[int, ...]]:
    """The tensors that TFLM puts into its arena, with their lifespans, and which number each of them has.

    A step is an operator; inputs are there before the first one, and outputs stay behind the last, for the
    caller. Sizes are rounded up as TFLM does. Raises DocumentError for a file that cannot be read and for
    tensors of types without a size.
    """
    model = read_model(data)
    first, last = _lives(model)
    numbers = tuple(sorted(first))
    buffers = tuple(
        Buffer(
            f"{number}:{model.tensors[number].name}",
            _size(model, number),
            Lifespan(first[number], last[number] + 1),
            ALIGNMENT,
        )
        for number in numbers
    )
    return LayoutProblem(buffers), numbers


def _lives(model: Model) -> tuple[dict[int, int], dict[int, int]]:
    """First and last step of what is neither constant nor left out."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    steps = len(model.operators)
    touched = [(0, model.inputs), *((k, o.inputs + o.outputs) for k, o in enumerate(model.operators))]
    for step, numbers in [*touched, (max(steps - 1, 0), model.outputs)]:
        for number in numbers:
            if number >= 0 and model.tensors[number].data is None:
                first.setdefault(number, step)
                last[number] = step
    return first, last


def _size(model: Model, number: int) -> int:
    tensor = model.tensors[number]
    if not tensor.dtype:
        raise DocumentError(
            f"Tensor {tensor.name!r} is {tensor.type}, whose size is not known.",
            remedy="Only tensors of numbers and conditions can be planned.",
        )
    size = int(np.prod(tensor.shape, dtype=object)) * np.dtype(tensor.dtype).itemsize
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def with_offline_plan(
    data: bytes, *, capacity: int | None = None, solver: str = "portfolio", deadline: Deadline | None = None
) -> OfflinePlan:
    """The model with offsets for all its tensors, in place of its own if it has some.

    Raises CapacityError where the tensors do not fit `capacity` bytes, DocumentError for a file that cannot
    be read. Costs what `solver.layout.api.solve` costs, and one copy of the file.
    """
    problem, numbers = inference_problem(data)
    problem = LayoutProblem(problem.buffers, capacity)
    outcome = solve(problem, solver=solver, deadline=deadline or Deadline())
    if outcome.layout is None or (capacity is not None and outcome.layout.peak > capacity):
        bound = outcome.lower_bound
        raise CapacityError(
            CapacityError.sentence("The tensors need", found=None, bound=bound, capacity=capacity or 0),
            remedy="Raise the capacity, or make the model smaller.",
            required=bound,
            available=capacity or 0,
            live_at_peak=[],
            path=("capacity",),
            proved=bound > (capacity or 0),
        )
    offsets = dict(zip(numbers, outcome.layout.offsets, strict=True))
    count = len(read_model(data).tensors)
    table = (_VERSION, 1, count, *(offsets.get(number, _ONLINE) for number in range(count)))
    if max(table) >= 2**31:
        raise CapacityError(
            f"The arena is {outcome.layout.peak:,} bytes, and offsets are 32-bit integers.",
            remedy="Make the model smaller.",
            required=outcome.layout.peak,
            available=2**31 - 1,
            live_at_peak=[],
            path=("capacity",),
            proved=False,
        )
    written = with_metadata(data, METADATA, struct.pack(f"<{len(table)}i", *table))
    return OfflinePlan(written, offsets, outcome.layout.peak, outcome)


def load_offsets(data: bytes) -> dict[int, int] | None:
    """The offsets that a model brings along, by number of the tensor; None without any.

    Raises DocumentError for metadata that is too short for what it says.
    """
    found = read_model(data).metadata.get(METADATA)
    if found is None:
        return None
    words = np.frombuffer(found[: len(found) // 4 * 4], "<i4").tolist()
    if len(words) < 3 or words[2] < 0 or len(words) < 3 + words[2]:
        raise DocumentError(
            f"The metadata {METADATA} has {len(words)} words, too few for its offsets.",
            remedy="Write the plan again.",
        )
    return {number: offset for number, offset in enumerate(words[3 : 3 + words[2]]) if offset != _ONLINE}
