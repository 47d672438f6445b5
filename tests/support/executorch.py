"""What ExecuTorch hands to planning algorithms, and what planning imports of it, for tests without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

__all__ = ["ALIGNMENT", "Module", "Spec", "install", "share"]

ALIGNMENT = 16


@dataclass(eq=False)
class Spec:
    """The fields of a TensorSpec that planning reads and writes."""

    nbytes: int
    lifetime: list[int]
    mem_id: int | None = None
    storage_base: Spec | None = None
    storage_base_offset: int = 0
    scalar_type: str = "ScalarType.BYTE"
    device: Any = None
    alignment: int = ALIGNMENT
    mem_offset: int | None = None
    mem_obj_id: int | None = None

    @property
    def shape(self) -> tuple[int]:
        return (self.nbytes,)

    @property
    def allocated_memory(self) -> int:
        return -(-self.nbytes // self.alignment) * self.alignment

    def realign(self, alignment: int) -> None:
        self.alignment = alignment

    @property
    def end(self) -> int:
        assert self.mem_offset is not None
        return self.mem_offset + self.allocated_memory


@dataclass(eq=False)
class Module:
    """A method: `states` it writes, `constants` it only reads, both by name, and tensors of its own."""

    states: dict[str, Spec] = field(default_factory=dict)
    constants: dict[str, Spec] = field(default_factory=dict)
    activations: list[Spec] = field(default_factory=list)
    branches: list[Module] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    input_mem_buffer_sizes: list[int] = field(default_factory=list)

    @property
    def graph(self) -> Any:
        named = {**self.states, **self.constants}
        nodes = [
            SimpleNamespace(op="placeholder", name=n, target=n, meta={"spec": spec}, args=(), kwargs={})
            for n, spec in named.items()
        ]
        return SimpleNamespace(nodes=nodes)

    @property
    def signature(self) -> Any:
        buffers = {name: name for name in (*self.states, *self.constants)}
        return SimpleNamespace(inputs_to_parameters={}, inputs_to_buffers=buffers, user_inputs=("x",))

    @property
    def specs(self) -> list[Spec]:
        return [*self.states.values(), *self.activations]

    def children(self) -> list[Module]:
        return self.branches

    def modules(self) -> Iterator[Module]:
        """This graph, and those of branches at all depths."""
        yield self
        for branch in self.branches:
            yield from branch.modules()


@dataclass
class Place:
    mem_id: int
    mem_obj_id: int
    mem_offset: int


def side_by_side(
    alignment: int, specs: Sequence[Spec], graph_module: Module, _signature: Any, padding: int = 0
) -> Any:
    """Stands for ExecuTorch's `greedy`: no two tensors share a byte."""
    sizes = list(graph_module.input_mem_buffer_sizes)
    places: dict[Spec, Place] = {}
    for spec in sorted(specs, key=lambda spec: spec.storage_base is not None):
        spec.realign(alignment)
        memory = 1 if spec.mem_id is None else spec.mem_id
        if spec.storage_base is not None:
            base = places[spec.storage_base]
            places[spec] = Place(base.mem_id, 0, base.mem_offset + spec.storage_base_offset)
            continue
        sizes += [0] * (memory + 1 - len(sizes))
        places[spec] = Place(memory, 0, sizes[memory])
        sizes[memory] += spec.allocated_memory
    return SimpleNamespace(spec_dict=places, bufsizes=[size + padding if size else 0 for size in sizes])


class PlanningPass:
    """Stands for ExecuTorch's `MemoryPlanningPass`: calls the algorithm for branches, then the graph."""

    def __init__(self, algorithm: Any, *, alignment: int, **_options: Any) -> None:
        self.algorithm, self.alignment = algorithm, alignment

    def run(self, module: Module, signature: Any) -> Any:
        self.plan(module, signature)
        return SimpleNamespace(graph_module=module)

    def plan(self, module: Module, signature: Any) -> list[int]:
        inside = [self.plan(branch, signature) for branch in module.branches]
        count = max(map(len, inside), default=0)
        module.input_mem_buffer_sizes = [max(s[k] for s in inside if k < len(s)) for k in range(count)]
        sizes = self.algorithm(self.alignment, module.specs, module, signature, 0)
        module.meta["non_const_buffer_sizes"] = sizes
        return list(sizes)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts what is imported of ExecuTorch where Python looks for it."""
    planning, passes = ModuleType("executorch.exir.memory_planning"), ModuleType("executorch.exir.passes")
    vars(planning).update(
        greedy=side_by_side,
        SpecAllocResult=Place,
        MemoryAlgoResult=lambda places, sizes: SimpleNamespace(spec_dict=places, bufsizes=sizes),
    )
    vars(passes).update(MemoryPlanningPass=PlanningPass)
    packages = [ModuleType("executorch"), ModuleType("executorch.exir")]
    for module in (*packages, planning, passes):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def share(a: Spec, b: Spec) -> bool:
    """Whether both have a byte in common."""
    assert a.mem_offset is not None
    assert b.mem_offset is not None
    inside = a.mem_offset < b.end and b.mem_offset < a.end
    return a.mem_id == b.mem_id and inside and bool(a.allocated_memory and b.allocated_memory)
