"""The requests of a runtime with its own order: steps, and buffers with lifespans, grouped into pools."""

from __future__ import annotations

from dataclasses import dataclass

from solver.graph.ops.base import Node
from solver.graph.types import Operation, TensorType
from solver.layout import Buffer, LayoutProblem, Lifespan
from solver.program import Access, Binding, Builder, EntryKind, Kind, Lifetime, Phase, Space
from solver.targets.base import Lowered

__all__ = ["Pool", "TargetBuffer", "TargetPlan", "TargetStep", "lowered"]


@dataclass(frozen=True, slots=True)
class TargetBuffer:
    """One tensor as the target allocates it. `size` is its bytes rounded up to `alignment`."""

    id: str
    kind: Kind
    lifetime: Lifetime
    type: TensorType
    lifespan: Lifespan
    alignment: int

    @property
    def size(self) -> int:
        return -(-self.type.nbytes // self.alignment) * self.alignment


@dataclass(frozen=True, slots=True)
class TargetStep:
    """One step of the target's execution order, tensors by buffer id."""

    id: str
    kernel: str
    uses: tuple[str, ...]
    defs: tuple[str, ...]
    scratch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """Buffers that share one arena. `solver` names the planner the target would use, if it insists."""

    name: str
    buffers: tuple[TargetBuffer, ...]
    solver: str | None = None

    def problem(self, capacity: int | None = None) -> LayoutProblem:
        return LayoutProblem(
            tuple(Buffer(b.id, b.size, b.lifespan, b.alignment) for b in self.buffers), capacity
        )


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """All that a target's training iteration asks for."""

    steps: tuple[TargetStep, ...]
    pools: tuple[Pool, ...]


def lowered(name: str, plan: TargetPlan) -> Lowered:
    """The program of what a runtime asks for: its own reference, in one space a pool. Linear.

    The runtime's lifespans are held where they are longer than what its steps need. A buffer that is read
    before any step writes it holds a value from the start.
    """
    builder = Builder(name, [Space(pool.name, _alignment(pool)) for pool in plan.pools])
    spans: dict[int, Lifespan] = {}
    number: dict[str, int] = {}
    end = len(plan.steps)
    written = {buffer for step in plan.steps for buffer in step.defs}
    for space, pool in enumerate(plan.pools):
        for buffer in pool.buffers:
            value = builder.value(buffer.id, buffer.type, buffer.kind, buffer.id, space)
            number[buffer.id], spans[value] = value, buffer.lifespan
            if buffer.lifetime is Lifetime.MAX:
                carried = EntryKind.CARRIED if buffer.id in written else EntryKind.CONSTANT
                builder.entries[value] = carried
            elif buffer.kind in (Kind.INPUT, Kind.LABEL):
                builder.entries[value] = EntryKind.FED
            kept = buffer.lifetime is Lifetime.EPOCH and buffer.lifespan.end == end
            if kept or builder.entries.get(value) is EntryKind.CARRIED:
                builder.exits[value] = None
    defined = set(builder.entries)
    for step in plan.steps:
        bindings = [b for b in _bindings(step) if b[1] in number]
        for _, label, access in bindings:
            if access.reads and number[label] not in defined:
                builder.entries[number[label]] = EntryKind.FED
        defined.update(number[b[1]] for b in bindings)
        node = Node(Operation(step.id, step.kernel, (), ()), (), (), (), {})
        builder.step(
            builder.operation(node),
            Phase.EXPLICIT,
            (Binding(slot, number[label], access) for slot, label, access in bindings),
        )
    return Lowered(builder.finish(all_values=True), tuple(pool.solver for pool in plan.pools), spans)


def _alignment(pool: Pool) -> int:
    return max((buffer.alignment for buffer in pool.buffers), default=1)


def _bindings(step: TargetStep) -> list[tuple[str, str, Access]]:
    uses, defs = dict.fromkeys(step.uses), dict.fromkeys(step.defs)
    bindings = [
        (f"u{i}", name, Access.UPDATE) if name in defs else (f"r{i}", name, Access.READ)
        for i, name in enumerate(uses)
    ]
    bindings += [(f"w{i}", name, Access.WRITE) for i, name in enumerate(defs) if name not in uses]
    taken = {*uses, *defs}
    bindings += [(f"s{i}", name, Access.SCRATCH) for i, name in enumerate(step.scratch) if name not in taken]
    return bindings
