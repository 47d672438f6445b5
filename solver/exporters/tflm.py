"""TensorFlow Lite models whose tensors TFLM places where a plan says.

TensorFlow Lite for Microcontrollers plans the memory of inference when it starts, greedily. A model may
bring the offsets along: metadata of the name OfflineMemoryAllocation, 32-bit integers
``[version, subgraphs, tensors, offset of tensor 0, ...]`` over the tensors of all subgraphs, one subgraph
after the other. The interpreter places tensors of offset -1 around the others, and scratch of its kernels.

Whatever persists from one inference to the next is left to the interpreter, which keeps it apart: variable
tensors, and resource variables, of which tensors are handles only. A tensor that persists without being
marked as a variable is refused by name: the interpreter itself would place others on top of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.errors import CapacityError, DocumentError
from solver.importers.circle.metadata import with_metadata
from solver.importers.circle.read import Model, ModelTensor, damaged, read_subgraphs
from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan, Outcome
from solver.layout.api import solve

__all__ = ["METADATA", "OfflinePlan", "inference_problem", "load_offsets", "with_offline_plan"]

METADATA: Final = "OfflineMemoryAllocation"

#: Alignment of each buffer in TFLM's arena, in bytes.
ALIGNMENT: Final = 16

_VERSION: Final = 1
_ONLINE: Final = -1

#: Operators that run other subgraphs, with the options that name these, in the order in which they run.
_CALLS: Final[Mapping[str, tuple[str, ...]]] = {
    "CALL_ONCE": ("InitSubgraphIndex",),
    "IF": ("ThenSubgraphIndex", "ElseSubgraphIndex"),
    "WHILE": ("CondSubgraphIndex", "BodySubgraphIndex"),
}
#: Operators whose output still holds operands of earlier inferences.
_ACCUMULATING: Final = frozenset({"CUSTOM CIRCULAR_BUFFER"})
#: Levels of subgraphs that run subgraphs. Models that a network was exported to have three or four.
_MAX_DEPTH: Final = 32


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """A model with its plan. `offsets` are those of its tensors by number; `outcome` says how good they are.

    Numbers count the tensors of all subgraphs, one subgraph after the other. The arena needs `size` bytes for
    the tensors with offsets. Scratch of kernels comes besides, and the tensors that are `left` to the
    interpreter, bytes by number.
    """

    data: bytes
    offsets: Mapping[int, int]
    size: int
    outcome: Outcome
    left: Mapping[int, int]


def inference_problem(data: bytes) -> tuple[LayoutProblem, tuple[int, ...]]:
    """The tensors that get an offset in TFLM's arena, with their lifespans, and the number of each of them.

    A step is an operator; inputs are there before the first one, and outputs stay behind the last, for the
    caller. An operator that runs subgraphs takes all steps of these, one subgraph after the other. Sizes are
    rounded up as TFLM does. Raises DocumentError for a file that cannot be read, for tensors of types without
    a size, and for tensors that TFLM itself does not keep as long as the model needs them.
    """
    problem, numbers, _ = _problem(read_subgraphs(data))
    return problem, numbers


def _problem(graphs: tuple[Model, ...]) -> tuple[LayoutProblem, tuple[int, ...], Mapping[int, int]]:
    """The problem, the numbers of its tensors, and the bytes of the tensors that are left to TFLM."""
    lives = _Lives(graphs)
    with damaged("The model"):
        lives.walk(0, "the caller of the model")
    tensors = [tensor for graph in graphs for tensor in graph.tensors]
    left = {k for k, tensor in enumerate(tensors) if tensor.is_variable or tensor.type == "RESOURCE"}
    # TFLM looks for the offset of a variable of a later subgraph at its number within that subgraph, as if it
    # were one of the first. If another tensor has an offset there, the variable gets no memory at all.
    left |= {
        number
        for graph in graphs[1:]
        for number, tensor in enumerate(graph.tensors)
        if tensor.is_variable and number in lives.first
    }
    numbers = tuple(sorted(lives.first.keys() - left))
    buffers = tuple(
        Buffer(
            f"{number}:{tensors[number].name}",
            _size(tensors[number]),
            Lifespan(lives.first[number], lives.last[number] + 1),
            ALIGNMENT,
        )
        for number in numbers
    )
    return LayoutProblem(buffers), numbers, {number: _size(tensors[number]) for number in sorted(left)}


class _Lives:
    """First and last step of the tensors in the arena, by their numbers.

    TFLM believes that a tensor lives from the operator that writes it to the last one that reads it, or from
    the beginning if it is an input. A tensor that lives longer is refused: one that two operators write, and
    one that is read before it is written, whose value is that of the inference before.
    """

    def __init__(self, graphs: tuple[Model, ...]) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._graphs = graphs
        self._writers: dict[int, str] = {}
        self._callers: dict[int, str] = {}
        self._step = 0

    def walk(self, index: int, caller: str, depth: int = 0) -> None:
        """Follow a subgraph, which begins at the current step. Then the current step is its last one."""
        if not 0 <= index < len(self._graphs):
            raise IndexError
        if index in self._callers or depth > _MAX_DEPTH:
            before = self._callers.get(index, f"{depth} levels of others")
            raise DocumentError(
                f"Subgraph {index} is run by {before} and by {caller}: TFLM keeps its tensors for one of"
                " them only.",
                remedy="Export the model with a subgraph of its own for each operator that runs one.",
            )
        self._callers[index] = caller
        graph, start = self._graphs[index], sum(len(before.tensors) for before in self._graphs[:index])
        self._write(graph, start, graph.inputs, caller)
        for k, operator in enumerate(graph.operators):
            self._step += k > 0
            name = f"operator {k} ({operator.code}) of subgraph {index}"
            self._read(graph, start, operator.inputs, name)
            self._write(graph, start, operator.outputs, name)
            if operator.code in _ACCUMULATING:
                self._check_kept(graph, operator.outputs, name)
            for turn, option in enumerate(_CALLS.get(operator.code, ())):
                self._step += turn > 0
                self.walk(operator.integer(option), name, depth + 1)
            # Operands are copied into each of the subgraphs, and results out of each of them.
            self._read(graph, start, operator.inputs + operator.outputs, name)
        self._read(graph, start, graph.outputs, caller)

    def _write(self, graph: Model, start: int, numbers: Iterable[int], writer: str) -> None:
        for number in numbers:
            if number < 0 or not _is_placed(graph.tensors[number]):
                continue
            if start + number in self.first:
                raise DocumentError(
                    f"Tensor {_named(graph, number)} is written by {self._writers[start + number]} and by"
                    f" {writer}: TFLM does not keep it from the first to the second.",
                    remedy="Give each operator outputs of its own, or mark the tensor as a variable.",
                )
            self._writers[start + number] = writer
            self.first[start + number] = self.last[start + number] = self._step

    def _read(self, graph: Model, start: int, numbers: Iterable[int], reader: str) -> None:
        for number in numbers:
            if number < 0 or not _is_placed(graph.tensors[number]):
                continue
            if start + number not in self.first:
                raise DocumentError(
                    f"Tensor {_named(graph, number)} is read by {reader} before anything writes it, and it is"
                    " not a variable: TFLM does not keep it from one inference to the next.",
                    remedy="Mark it as a variable (is_variable), or make it an input of the model.",
                )
            self.last[start + number] = self._step

    def _check_kept(self, graph: Model, outputs: Iterable[int], name: str) -> None:
        for number in outputs:
            if number >= 0 and _is_placed(graph.tensors[number]):
                raise DocumentError(
                    f"Tensor {_named(graph, number)} collects what {name} reads in several inferences, and it"
                    " is not a variable: TFLM does not keep it from one to the next.",
                    remedy="Mark it as a variable (is_variable).",
                )


def _named(graph: Model, number: int) -> str:
    return repr(graph.tensors[number].name[:200]) if graph.tensors[number].name else f"number {number}"


def _is_placed(tensor: ModelTensor) -> bool:
    """Whether a tensor takes bytes of the arena that others may have before and after it."""
    kept = tensor.data is not None or tensor.is_variable or tensor.type == "RESOURCE"
    return not kept and 0 not in tensor.shape


def _size(tensor: ModelTensor) -> int:
    # The handle of a resource variable is an integer of 32 bits.
    dtype = "<i4" if tensor.type == "RESOURCE" else tensor.dtype
    if not dtype:
        raise DocumentError(
            f"Tensor {tensor.name!r:.200} is {tensor.type}, whose size is not known.",
            remedy="Only tensors of numbers and conditions can be planned.",
        )
    size = int(np.prod(tensor.shape, dtype=object)) * np.dtype(dtype).itemsize
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def with_offline_plan(
    data: bytes, *, capacity: int | None = None, solver: str = "portfolio", deadline: Deadline | None = None
) -> OfflinePlan:
    """The model with offsets for its tensors, in place of its own if it has some.

    Raises CapacityError where the tensors do not fit `capacity` bytes, and what `inference_problem` raises.
    Costs what `solver.layout.api.solve` costs, and one copy of the file.
    """
    graphs = read_subgraphs(data)
    problem, numbers, left = _problem(graphs)
    problem = LayoutProblem(problem.buffers, capacity)
    outcome = solve(problem, solver=solver, deadline=deadline or Deadline())
    if outcome.layout is None or (capacity is not None and outcome.layout.peak > capacity):
        bound = outcome.lower_bound
        raise CapacityError(
            CapacityError.sentence("The tensors need", peak=None, bound=bound, capacity=capacity or 0),
            remedy="Raise the capacity, or make the model smaller.",
            required=bound,
            available=capacity or 0,
            live_at_peak=[],
            path=("capacity",),
            proved=bound > (capacity or 0),
        )
    offsets = dict(zip(numbers, outcome.layout.offsets, strict=True))
    count = sum(len(graph.tensors) for graph in graphs)
    table = (_VERSION, len(graphs), count, *(offsets.get(number, _ONLINE) for number in range(count)))
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
    return OfflinePlan(written, offsets, outcome.layout.peak, outcome, left)


def load_offsets(data: bytes) -> dict[int, int] | None:
    """The offsets that a model brings along, by number of the tensor over all subgraphs; None without any.

    Raises DocumentError for metadata that is too short for what it says.
    """
    graphs = read_subgraphs(data)
    content = graphs[0].metadata.get(METADATA) if graphs else None
    if content is None:
        return None
    words = np.frombuffer(content[: len(content) // 4 * 4], "<i4").tolist()
    if len(words) < 3 or words[2] < 0 or len(words) < 3 + words[2]:
        raise DocumentError(
            f"The metadata {METADATA} has {len(words)} words, too few for its offsets.",
            remedy="Write the plan again.",
        )
    return {number: offset for number, offset in enumerate(words[3 : 3 + words[2]]) if offset != _ONLINE}
