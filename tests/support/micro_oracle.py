"""TFLM's interpreter without numbers: which operand does not hold what was written for it.

Every write stamps the bytes of a tensor with a number of its own, and every read asks whether all bytes still
have the number of the last write. Tensors lie where the interpreter puts them: at the offset of the metadata;
variables without one, and other tensors without one, in memory of their own; resource variables apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from solver.importers.circle.read import Model, ModelOperator, read_subgraphs

__all__ = ["stale_reads"]


def stale_reads(data: bytes, offsets: Mapping[int, int], inferences: int = 3, seed: int = 0) -> list[str]:
    """The operands that are overwritten before they are read, in some inferences one after the other.

    Conditions of IF and rounds of WHILE are random. Only what an operator reads and what the caller fetches
    counts.
    """
    run = _Run(read_subgraphs(data), offsets, np.random.default_rng(seed))
    for _ in range(inferences):
        graph = run.graphs[0]
        for number in graph.inputs:
            run.write(0, number)
        run.invoke(0)
        for number in graph.outputs:
            run.read(0, number, "the caller")
    return run.faults


@dataclass
class _Run:
    graphs: tuple[Model, ...]
    offsets: Mapping[int, int]
    random: np.random.Generator
    arena: dict[int, int] = field(default_factory=dict)
    expected: dict[tuple[int, int], int] = field(default_factory=dict)
    apart: dict[tuple[int, int], int] = field(default_factory=dict)
    initialised: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def place(self, index: int, number: int) -> range | None:
        """Bytes of the arena; None for memory apart."""
        tensor = self.graphs[index].tensors[number]
        own = sum(len(graph.tensors) for graph in self.graphs[:index]) + number
        if tensor.is_variable:
            # The interpreter allocates a variable where it finds no offset, and looks at the wrong number.
            if number not in self.offsets:
                return None
            if own not in self.offsets:
                self.faults.append(f"no memory for {tensor.name} of subgraph {index}")
                return None
        elif own not in self.offsets or tensor.type == "RESOURCE":
            return None
        size = int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize
        return range(self.offsets[own], self.offsets[own] + size)

    def write(self, index: int, number: int) -> None:
        stamp = len(self.expected) + int(self.random.integers(1 << 60))
        self.expected[index, number] = stamp
        place = self.place(index, number)
        if place is None:
            self.apart[index, number] = stamp
        else:
            self.arena |= dict.fromkeys(place, stamp)

    def read(self, index: int, number: int, reader: str) -> None:
        tensor = self.graphs[index].tensors[number]
        if tensor.data is not None:
            return
        if tensor.is_variable and (index, number) not in self.expected:
            self.write(index, number)  # zeros, before the first inference
        place = self.place(index, number)
        held = (
            {self.apart.get((index, number))} if place is None else {self.arena.get(byte) for byte in place}
        )
        if held != {self.expected.get((index, number), -1)}:
            self.faults.append(f"{reader} reads {tensor.name} of subgraph {index}")

    def invoke(self, index: int) -> None:
        for operator in self.graphs[index].operators:
            self.operator(index, operator)

    def operator(self, index: int, operator: ModelOperator) -> None:
        operands = [number for number in operator.inputs if number >= 0]

        def call(option: str, passed: list[int], returned: tuple[int, ...]) -> None:
            callee = operator.integer(option)
            for number in passed:
                self.read(index, number, operator.code)
            for number in self.graphs[callee].inputs[: len(passed)]:
                self.write(callee, number)
            self.invoke(callee)
            for number in self.graphs[callee].outputs:
                self.read(callee, number, operator.code)
            for number in returned:
                self.write(index, number)

        match operator.code:
            case "IF":
                self.read(index, operands[0], "IF")
                branch = "ThenSubgraphIndex" if self.random.integers(2) else "ElseSubgraphIndex"
                call(branch, operands[1:], operator.outputs)
            case "WHILE":
                call("CondSubgraphIndex", operands, ())
                for number in operands:
                    self.read(index, number, "WHILE")
                for number in operator.outputs:
                    self.write(index, number)
                for _ in range(self.random.integers(4)):
                    call("BodySubgraphIndex", list(operator.outputs), operator.outputs)
                    call("CondSubgraphIndex", list(operator.outputs), ())
            case "CALL_ONCE":
                if operator.integer("InitSubgraphIndex") not in self.initialised:
                    self.initialised.add(operator.integer("InitSubgraphIndex"))
                    call("InitSubgraphIndex", [], ())
            case _:
                for number in operands:
                    self.read(index, number, operator.code)
                updated = [k for k in operands if self.graphs[index].tensors[k].is_variable]
                for number in (*updated, *operator.outputs):
                    self.write(index, number)
