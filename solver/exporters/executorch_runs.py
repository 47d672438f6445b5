"""Reads of stale bytes by an ExecuTorch program, found by running it.

The program is built twice from the same graph: with the plan in question, and with every tensor in bytes of
its own. Both run in ExecuTorch's own runtime, which records the output of each instruction (ETDump). Until
the first output that differs between the two, all results were right when they were written. So that
instruction is the one that read wrong bytes, and the addresses in the program say whose they were. Written
for ExecuTorch 1.5.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from solver.graph.types import Array

__all__ = [
    "Instruction",
    "StaleOperand",
    "StaleRead",
    "Tensor",
    "find_stale_read",
    "overwritten",
    "place_apart",
    "stale_operands",
]

#: Bytes of an element, by ExecuTorch's numbers of types.
_BYTES: Final[Mapping[int, int]] = {0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 2, 6: 4, 7: 8, 11: 1, 15: 2}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a program: bytes from `offset` on of a memory; None for a memory that is not planned."""

    number: int
    memory: int | None = None
    offset: int = 0
    size: int = 0

    def meets(self, other: Tensor) -> bool:
        """Whether both have a byte in common."""
        return (
            self.memory is not None
            and self.memory == other.memory
            and self.offset < other.offset + other.size
            and other.offset < self.offset + self.size
        )


@dataclass(frozen=True, slots=True)
class Instruction:
    """A kernel call: what it reads, and what it writes."""

    name: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class StaleOperand:
    """An operand of the instruction at `position` that `over` has written into since `writer` wrote it."""

    tensor: Tensor
    writer: int
    over: int
    position: int


@dataclass(frozen=True, slots=True)
class StaleRead:
    """The instruction at `position` reads wrong bytes; its output is off by at most `difference`.

    `culprits` are an operand that was overwritten, who wrote it, and who wrote over it, by positions; empty
    where the addresses do not say, as for bytes that a kernel writes outside of its outputs.
    """

    position: int
    name: str
    difference: float
    culprits: tuple[tuple[Tensor, int, int], ...]
    instructions: tuple[Instruction, ...]

    def __str__(self) -> str:
        first = f"instruction {self.position} ({self.name}) reads what was not written for it"
        lines = [f"{first}: its output is the first that differs, by up to {self.difference:.3g}."]
        for tensor, writer, over in self.culprits:
            wrote = "the caller" if writer < 0 else f"instruction {writer} ({self.instructions[writer].name})"
            lines.append(
                f"Bytes {tensor.offset:,} to {tensor.offset + tensor.size:,} of memory {tensor.memory} should"
                f" hold what {wrote} wrote; instruction {over} ({self.instructions[over].name}) has written"
                " there since."
            )
        return "\n".join(lines)


def overwritten(instructions: Sequence[Instruction], position: int) -> tuple[tuple[Tensor, int, int], ...]:
    """Of the operands of an instruction, those that another one has written into since they were made.

    Each with the instruction that wrote it (-1: none before) and the last one to write there. Cost: linear in
    the instructions.
    """
    stale = []
    for tensor in instructions[position].reads:
        maker, over = -1, -1
        for earlier, instruction in enumerate(instructions[:position]):
            for written in instruction.writes:
                if written.number == tensor.number:
                    maker = over = earlier
                elif written.meets(tensor):
                    over = earlier
        if over != maker:
            stale.append((tensor, maker, over))
    return tuple(stale)


def stale_operands(instructions: Sequence[Instruction]) -> list[StaleOperand]:
    """The operands of all instructions that are overwritten before they are read, in the order of the reads.

    As `overwritten`, for operands that an instruction has written. Cost: for each write, the tensors that are
    still to be read then.
    """
    last_read = {t.number: k for k, instruction in enumerate(instructions) for t in instruction.reads}
    last_write: dict[int, tuple[Tensor, int, int]] = {}
    stale: list[StaleOperand] = []
    for position, instruction in enumerate(instructions):
        for tensor in instruction.reads:
            known, writer, over = last_write.get(tensor.number, (tensor, position, position))
            if over != writer:
                stale.append(StaleOperand(known, writer, over, position))
        for written in instruction.writes:
            for number, (tensor, writer, _) in last_write.items():
                if number != written.number and tensor.meets(written):
                    last_write[number] = tensor, writer, position
        last_write |= {tensor.number: (tensor, position, position) for tensor in instruction.writes}
        last_write = {
            number: entry for number, entry in last_write.items() if last_read.get(number, -1) > position
        }
    return stale


def place_apart(
    alignment: int, specs: Collection[Any], graph_module: Any, graph_signature: Any, extra_padding: int = 0
) -> Any:
    """An algorithm of ExecuTorch's memory planning by which no two tensors ever share a byte."""
    from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult, greedy

    theirs = greedy(alignment, specs, graph_module, graph_signature, extra_padding)
    sizes = list(getattr(graph_module, "input_mem_buffer_sizes", None) or [0] * len(theirs.bufsizes))
    sizes += [0] * (len(theirs.bufsizes) - len(sizes))
    placed = {}
    for spec, place in theirs.spec_dict.items():
        placed[spec] = SpecAllocResult(place.mem_id, place.mem_obj_id, sizes[place.mem_id])
        sizes[place.mem_id] += -(-spec.allocated_memory // alignment) * alignment
    return MemoryAlgoResult(placed, [size + extra_padding if size else 0 for size in sizes])


def find_stale_read(
    edge: Any, algorithm: Any, inputs: tuple[Any, ...], *, debug_bytes: int = 1 << 26
) -> StaleRead | None:
    """Run `edge`, an `EdgeProgramManager`, in memory that `algorithm` plans; None where all outputs agree.

    `inputs` are tensors of PyTorch. `debug_bytes` must hold the outputs of all instructions. Raises
    ImportError without ExecuTorch. Cost: builds and runs the program twice.
    """
    program = _program(edge, algorithm)
    expected, actual = (_outputs(one, inputs, debug_bytes) for one in (_program(edge, place_apart), program))
    instructions = _instructions(program.executorch_program.execution_plan[0])
    for position, (right, wrong) in enumerate(zip(expected, actual, strict=True)):
        if right.tobytes() != wrong.tobytes():
            with np.errstate(all="ignore"):
                difference = np.abs(right.astype(np.float64) - wrong.astype(np.float64)).max(initial=0.0)
            name = instructions[position].name
            culprits = overwritten(instructions, position)
            return StaleRead(position, name, float(difference), culprits, instructions)
    return None


def _program(edge: Any, algorithm: Any) -> Any:
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass(MemoryPlanningAlgorithmSuite([algorithm]))
    # Building changes the graph that it is given.
    return copy.deepcopy(edge).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


def _outputs(program: Any, inputs: tuple[Any, ...], debug_bytes: int) -> list[Array]:
    """The output of each instruction of a run."""
    from executorch.devtools import Inspector
    from executorch.extension.pybindings import portable_lib

    load = portable_lib._load_for_executorch_from_buffer  # the only way to the runtime that records outputs
    module = load(program.buffer, enable_etdump=True, debug_buffer_size=debug_bytes)
    module.forward(inputs)
    with tempfile.TemporaryDirectory() as folder:
        dump, debug = Path(folder, "run.etdp"), Path(folder, "run.bin")
        module.write_etdump_result_to_file(str(dump), str(debug))
        inspector = Inspector(etdump_path=str(dump), debug_buffer_path=str(debug))
        return [
            np.ascontiguousarray(event.debug_data[0].detach().numpy())
            for block in inspector.event_blocks
            for event in block.events
            if event.name == "OPERATOR_CALL" and event.debug_data
        ]


def _instructions(plan: Any) -> tuple[Instruction, ...]:
    """The kernel calls of a method, from its emitted form."""
    from torch import ops

    instructions = []
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        if type(call).__name__ != "KernelCall":
            continue
        operator = plan.operators[call.op_index]
        namespace, _, name = operator.name.partition("::")
        schema = getattr(getattr(getattr(ops, namespace), name), operator.overload or "default")._schema
        reads: list[Tensor] = []
        writes: list[Tensor] = []
        # Behind the arguments of the schema stand the results, which are the outputs among these.
        for argument, number in zip(schema.arguments, call.args, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            (writes if written else reads).extend(_tensors(plan, number))
        label = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        instructions.append(Instruction(label, tuple(reads), tuple(writes)))
    return tuple(instructions)


def _tensors(plan: Any, number: int) -> Iterator[Tensor]:
    """The tensors of an argument: itself, those of a list, or none."""
    value = plan.values[number].val
    match type(value).__name__:
        case "Tensor":
            place = value.allocation_info
            if place is None:
                yield Tensor(number)
                return
            offset = place.memory_offset_low + (place.memory_offset_high << 32)
            size = math.prod(value.sizes) * _BYTES[int(value.scalar_type)]
            yield Tensor(number, place.memory_id, offset, size)
        case "TensorList" | "OptionalTensorList":
            for item in value.items:
                if item >= 0:
                    yield from _tensors(plan, item)
