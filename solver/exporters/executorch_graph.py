"""The kernel calls of a graph that ExecuTorch plans, in their order, with the bytes that they touch.

ExecuTorch plans a graph from the lives of its tensors, and the graphs of branches and loops before it, all of
them in the same bytes in front. The result of a branch is not copied out of these: its tensor is handed on
(`MoveCall`). So it lies where the next branch writes, while it still has readers.

    submodules   [ true_graph_0: result ]   [ true_graph_1: writes ]
    main graph   x  cond ................................... cond_1  add(cond, cond_1)   reads true_graph_1's

Written for ExecuTorch 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

__all__ = [
    "Instruction",
    "StaleOperand",
    "Tensor",
    "offset_in_root",
    "root",
    "stale_operands",
    "stale_reads_of_graph",
]

#: Calls that touch no bytes: they name memory, give it back, or pick one result of several.
_SILENT: Final = frozenset({"alloc", "free", "getitem", "view"})
#: A faulty program tends to have many faults of one cause.
_MAX_SENTENCES: Final = 3


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


def stale_reads_of_graph(graph_module: Any, places: Mapping[Any, Any]) -> list[str]:
    """A sentence for each operand of a graph that is overwritten before it is read; three at most.

    `places` are the results of a planning algorithm by `TensorSpec`. Tensors of submodules have theirs with
    them. Branches are followed in as many combinations as show each pair of two conditions in all four; a
    loop is followed twice. Cost: linear in the kernel calls and in the tensors alive at each of them.
    """
    sentences: dict[tuple[str, str], str] = {}
    conditions, bit = 0, -1
    while bit < max(conditions - 1, 0).bit_length():
        # First all conditions alike; then by one bit of their numbers each time, as any two differ in one.
        for flipped in (False, True):
            trace = _Trace(places, partial(_takes_first_branch, bit, flipped))
            trace.run(graph_module)
            conditions = max(conditions, trace.conditions)
            for stale in stale_operands(trace.instructions):
                names = [trace.instructions[k].name for k in (stale.writer, stale.over, stale.position)]
                sentences.setdefault((names[0], names[1]), _sentence(stale.tensor, *names))
            if not conditions:
                break
        bit += 1
    return list(sentences.values())[:_MAX_SENTENCES]


def stale_operands(instructions: Sequence[Instruction]) -> list[StaleOperand]:
    """The operands of all instructions that are overwritten before they are read, in the order of the reads.

    Operands that no instruction has written are left out. Cost: for each write, the tensors that are still to
    be read then.
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


def _takes_first_branch(bit: int, flipped: bool, condition: int) -> bool:
    return flipped != (bit >= 0 and bool(condition >> bit & 1))


def _sentence(tensor: Tensor, writer: str, over: str, reader: str) -> str:
    return (
        f"{reader} reads what {writer} wrote into bytes {tensor.offset:,} to {tensor.offset + tensor.size:,}"
        f" of memory {tensor.memory}, but {over} has written there since."
    )


class _Trace:
    """Follows a graph with those of its submodules; `branch` says for the nth condition which way it goes."""

    def __init__(self, places: Mapping[Any, Any], branch: Callable[[int], bool]) -> None:
        self.instructions: list[Instruction] = []
        self.conditions = 0
        self._places, self._branch = places, branch
        #: What stands for the tensors of a specification, where that is not memory of its own.
        self._bound: dict[int, Tensor] = {}

    def run(self, graph_module: Any) -> None:
        inputs = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._call("the caller", [], [tensor for node in inputs for tensor in self._tensors(node)])
        results = self._follow(graph_module, "")
        self._call("the caller", results, [])

    def _follow(self, graph_module: Any, prefix: str) -> list[Tensor]:
        """Append the calls of a graph; its results."""
        for node in graph_module.graph.nodes:
            if node.op == "output":
                return self._operands(node)
            if node.op != "call_function" or (kind := _kind(node)) in _SILENT:
                continue
            match kind:
                case "cond":
                    self._cond(graph_module, node, prefix)
                case "map_impl":
                    _, mapped, rest = node.args
                    self._loop(graph_module, node, prefix, carried=[], sliced=mapped, rest=rest)
                case "scan":
                    _, carried, sliced, rest = node.args
                    self._loop(graph_module, node, prefix, carried=carried, sliced=sliced, rest=rest)
                case _:
                    self._call(prefix + node.name, self._operands(node), self._tensors(node))
        return []

    def _cond(self, graph_module: Any, node: Any, prefix: str) -> None:
        condition, *branches, operands = node.args
        self._call(prefix + node.name, self._tensors(condition), [])
        taken = branches[0 if self._branch(self.conditions) else 1]
        self.conditions += 1
        called = getattr(graph_module, taken.target)
        self._bind(called, [self._tensors(operand) for operand in operands])
        results = self._follow(called, f"{prefix}{taken.target}.")
        # Results are handed on as they are, so the tensors of the node stand for the bytes of the branch.
        for spec, result in zip(_specs(node), results, strict=False):
            self._bound[id(root(spec))] = result

    def _loop(
        self, graph_module: Any, node: Any, prefix: str, *, carried: Any, sliced: Any, rest: Any
    ) -> None:
        """Slices are copied in, results are copied out: of `scan` the carried ones first."""
        called = getattr(graph_module, node.args[0].target)
        inputs = [n for n in called.graph.nodes if n.op == "placeholder"]
        slices = inputs[len(carried) : len(carried) + len(sliced)]
        outputs, name = self._tensors(node), prefix + node.name
        self._call(name, [tensor for value in carried for tensor in self._tensors(value)], outputs)
        for _ in range(2):
            operands = [[output] for output in outputs[: len(carried)]]
            operands += [self._tensors(value) for value in (*slices, *rest)]
            self._bind(called, operands)
            whole = [tensor for value in sliced for tensor in self._tensors(value)]
            self._call(name, whole, [tensor for value in slices for tensor in self._tensors(value)])
            results = self._follow(called, f"{prefix}{node.args[0].target}.")
            self._call(name, [*results, *outputs], outputs)

    def _bind(self, called: Any, operands: list[list[Tensor]]) -> None:
        inputs = [node for node in called.graph.nodes if node.op == "placeholder"]
        for node, tensors in zip(inputs, operands, strict=False):
            for spec, tensor in zip(_specs(node), tensors, strict=False):
                self._bound[id(root(spec))] = tensor

    def _call(self, name: str, reads: list[Tensor], writes: list[Tensor]) -> None:
        self.instructions.append(Instruction(name, tuple(reads), tuple(writes)))

    def _operands(self, node: Any) -> list[Tensor]:
        """The tensors that a node reads, in their order; memory that is named for results is not read."""
        values = [value for value in _nodes((node.args, node.kwargs)) if _kind(value) != "alloc"]
        return [tensor for value in values for tensor in self._tensors(value)]

    def _tensors(self, node: Any) -> list[Tensor]:
        return [self._tensor(root(spec)) for spec in _specs(node)]

    def _tensor(self, spec: Any) -> Tensor:
        if id(spec) in self._bound:
            return self._bound[id(spec)]
        place = self._places.get(spec, spec)
        if getattr(spec, "const", False) or place.mem_id is None or place.mem_offset is None:
            return Tensor(id(spec))
        return Tensor(id(spec), place.mem_id, place.mem_offset, spec.allocated_memory)


def _kind(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target)) if node.op == "call_function" else node.op


def _nodes(arguments: Any) -> Iterator[Any]:
    """The nodes among arguments, however they are nested."""
    match arguments:
        case dict():
            yield from _nodes(list(arguments.values()))
        case list() | tuple():
            for argument in arguments:
                yield from _nodes(argument)
        case node if hasattr(node, "op"):
            yield node


def _specs(node: Any) -> Iterator[Any]:
    """The specifications of the tensors of a node; of a view those of what it is a view of."""
    if not hasattr(node, "op"):
        return
    while _kind(node) == "view":
        node = node.args[0]
    pending = [node.meta.get("spec")]
    while pending:
        match pending.pop(0):
            case list() | tuple() as several:
                pending[:0] = several
            case spec if hasattr(spec, "allocated_memory"):
                yield spec


def root(spec: Any) -> Any:
    """The specification whose bytes those of another one are part of."""
    while getattr(spec, "storage_base", None) is not None:
        spec = spec.storage_base
    return spec


def offset_in_root(spec: Any) -> int:
    """The offset of a tensor in the bytes of the one that it is part of."""
    offset = 0
    while getattr(spec, "storage_base", None) is not None:
        offset += spec.storage_base_offset
        spec = spec.storage_base
    return offset
