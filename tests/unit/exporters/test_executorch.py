"""ExecuTorch's tensors placed by the layout search: alone, and in real programs where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.exporters.executorch import arranged, plan_memory
from solver.exporters.executorch_runs import Instruction, StaleRead, Tensor, find_stale_read, overwritten

ENOUGH = 10**9


@dataclass(eq=False)
class Spec:
    """What a TensorSpec says about memory: the last node is part of its life."""

    allocated_memory: int
    lifetime: list[int | None]
    storage_base: Spec | None = None
    storage_base_offset: int = 0


def overlap(a: Spec, b: Spec, offsets: Any) -> bool:
    """In time and in bytes."""
    (first, last), (start, end) = a.lifetime, b.lifetime
    assert first is not None
    assert last is not None
    assert start is not None
    assert end is not None
    apart = offsets[id(a)] + a.allocated_memory <= offsets[id(b)]
    apart = apart or offsets[id(b)] + b.allocated_memory <= offsets[id(a)]
    return first <= end and start <= last and not apart


class TestArranged:
    def test_better_than_buckets(self) -> None:
        """The second and the third live one after the other, and together with the first."""
        specs = [Spec(64, [0, 3]), Spec(32, [0, 1]), Spec(32, [2, 3]), Spec(96, [4, 5])]
        found = arranged(specs, 16, 0, ENOUGH)
        assert found is not None
        assert found[1] == 96

    def test_the_last_node_belongs_to_a_life(self) -> None:
        first, second = Spec(16, [0, 1]), Spec(16, [1, 2])
        found = arranged([first, second], 16, 0, ENOUGH)
        assert found is not None
        assert found[1] == 32

    def test_behind_the_memory_of_others(self) -> None:
        spec = Spec(16, [0, 1])
        assert arranged([spec], 16, 40, ENOUGH) == ({id(spec): 48}, 64)

    def test_only_what_is_smaller(self) -> None:
        spec = Spec(16, [0, 1])
        assert arranged([spec], 16, 0, 16) is None
        assert arranged([spec], 16, 0, 17) is not None

    def test_in_the_bytes_of_another_one(self) -> None:
        whole = Spec(64, [0, 5])
        part = Spec(32, [2, 3], whole, 32)
        inner = Spec(16, [3, 3], part, 16)
        other = Spec(16, [0, 5])
        found = arranged([inner, part, whole, other], 16, 0, ENOUGH)
        assert found is not None
        offsets, size = found
        assert (offsets[id(part)], offsets[id(inner)]) == (offsets[id(whole)] + 32, offsets[id(whole)] + 48)
        assert size == 80

    def test_what_is_not_known_is_left_alone(self) -> None:
        whole = Spec(64, [0, 5])
        assert arranged([Spec(16, [0, None])], 16, 0, ENOUGH) is None
        assert arranged([Spec(16, [0, 1], whole)], 16, 0, ENOUGH) is None
        circular = Spec(16, [0, 1])
        circular.storage_base = circular
        assert arranged([circular], 16, 0, ENOUGH) is None

    def test_nothing_has_any_offset(self) -> None:
        empty = Spec(0, [0, 1])
        assert arranged([empty], 16, 0, ENOUGH) == ({id(empty): 0}, 0)

    @given(
        st.lists(
            st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12
        ),
        st.integers(0, 64),
    )
    def test_no_two_share_bytes_at_a_time(self, rows: list[tuple[int, int, int]], start: int) -> None:
        specs = [Spec(16 * size, [min(a, b), max(a, b)]) for size, a, b in rows]
        found = arranged(specs, 16, start, ENOUGH)
        assert found is not None
        offsets, size = found
        assert all(offsets[id(spec)] % 16 == 0 and offsets[id(spec)] >= start for spec in specs)
        assert all(offsets[id(spec)] + spec.allocated_memory <= size for spec in specs)
        pairs = [(a, b) for i, a in enumerate(specs) for b in specs[i + 1 :]]
        assert not any(overlap(a, b, offsets) for a, b in pairs if a.allocated_memory and b.allocated_memory)


class TestOverwritten:
    """Three instructions: 0 makes a, 1 makes b, 2 reads both."""

    def instructions(self, offset: int, memory: int | None = 1) -> list[Instruction]:
        given, a = Tensor(0, 1, 256, 64), Tensor(1, 1, 0, 64)
        b, c = Tensor(2, memory, offset, 64), Tensor(3, 1, 128, 64)
        return [
            Instruction("relu", (given,), (a,)),
            Instruction("tanh", (a, Tensor(9)), (b,)),
            Instruction("add", (a, b), (c,)),
        ]

    def test_apart(self) -> None:
        for offset, memory in ((64, 1), (0, 2), (0, None)):
            made = self.instructions(offset, memory)
            assert [overwritten(made, position) for position in range(3)] == [(), (), ()]

    def test_partly_on_an_operand(self) -> None:
        made = self.instructions(48)
        assert overwritten(made, 1) == ()
        assert overwritten(made, 2) == ((made[0].writes[0], 0, 1),)

    def test_on_what_the_caller_gave(self) -> None:
        made = [*self.instructions(256), Instruction("mul", (Tensor(0, 1, 256, 64),), ())]
        assert overwritten(made, 3) == ((Tensor(0, 1, 256, 64), -1, 1),)

    def test_in_words(self) -> None:
        made = tuple(self.instructions(48))
        first, second = str(StaleRead(2, "add", 1.5, overwritten(made, 2), made)).splitlines()
        assert first.startswith("instruction 2 (add) reads what was not written for it:")
        assert first.endswith(" by up to 1.5.")
        assert second.startswith("Bytes 0 to 64 of memory 1 should hold what instruction 0 (relu) wrote;")
        assert second.endswith(" instruction 1 (tanh) has written there since.")


def test_without_executorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch.exir.memory_planning", None)
    with pytest.raises(ImportError, match=r"arenaplan\[executorch\]"):
        plan_memory(16, [], None, None)


# -------------------------------------------------------------------------------- real programs


@pytest.fixture
def build() -> Callable[..., Any]:
    """From an exported program and algorithms to ExecuTorch's program."""
    pytest.importorskip("executorch.exir", reason="ExecuTorch is not installed: the extra [executorch]")
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
    from executorch.exir.passes import MemoryPlanningPass

    def built(exported: Any, *algorithms: Any) -> Any:
        planning = MemoryPlanningPass(MemoryPlanningAlgorithmSuite(list(algorithms)))
        return to_edge(exported).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))

    return built


def sizes(program: Any) -> list[int]:
    found: list[int] = program.executorch_program.execution_plan[0].non_const_buffer_sizes
    return found


def outputs(program: Any, inputs: Any) -> Any:
    from executorch.runtime import Runtime

    return Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)


def exported(name: str, *, training: bool) -> tuple[Callable[[], Any], tuple[Any, ...]]:
    """What exports a model, with its backward pass where that is asked for, and the inputs."""
    import torch
    from torch.export.experimental import _export_forward_backward

    from tests.support.pytorch_models import example

    made = example(name)
    if not training:
        module = made.module.eval()
        return lambda: torch.export.export(module, made.inputs), made.inputs

    class WithLoss(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = made.module

        def forward(self, *tensors: Any) -> Any:
            output = self.module(*tensors[: len(made.inputs)])
            losses = {"mse": torch.nn.functional.mse_loss, "cross-entropy": torch.nn.functional.cross_entropy}
            return losses[made.loss](output, *tensors[len(made.inputs) :])

    inputs = (*made.inputs, *made.targets)
    return lambda: _export_forward_backward(torch.export.export(WithLoss(), inputs)), inputs


@pytest.mark.filterwarnings("ignore")  # of PyTorch and ExecuTorch themselves
@pytest.mark.parametrize(
    ("name", "training"), [("mlp", True), ("resnet", False), ("gpt", False), ("lstm", True), ("lenet", False)]
)
def test_real_programs(build: Callable[..., Any], name: str, training: bool) -> None:
    """The same bits in no more memory than by ExecuTorch's own algorithm."""
    import torch
    from executorch.exir.memory_planning import greedy

    export, inputs = exported(name, training=training)
    theirs, ours = build(export(), greedy), build(export(), plan_memory)
    assert all(a <= b for a, b in zip(sizes(ours), sizes(theirs), strict=True))
    assert sizes(build(export(), greedy, plan_memory)) == sizes(ours)
    for a, b in zip(outputs(theirs, inputs), outputs(ours, inputs), strict=True):
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore")  # of PyTorch and ExecuTorch themselves
def test_a_wrong_offset_is_found_by_running(torch_module: Any) -> None:
    """The output of tanh lies where that of relu still waits for the addition."""
    from executorch.exir import to_edge

    module, inputs, torch = torch_module
    edge = to_edge(torch.export.export(module, inputs, strict=True))

    def wrong(alignment: int, specs: Any, graph_module: Any, signature: Any, padding: int = 0) -> Any:
        made = plan_memory(alignment, specs, graph_module, signature, padding)
        named = {node.name: node.meta.get("spec") for node in graph_module.graph.nodes}
        relu, tanh = (next(s for name, s in named.items() if kind in name) for kind in ("relu", "tanh"))
        made.spec_dict[tanh] = replace(made.spec_dict[tanh], mem_offset=made.spec_dict[relu].mem_offset)
        return made

    assert find_stale_read(edge, plan_memory, inputs) is None
    found = find_stale_read(edge, wrong, inputs)
    assert found is not None
    assert found.name == "aten::add.out"
    ((_, writer, over),) = found.culprits
    names = [found.instructions[k].name for k in (writer, over)]
    assert names == ["aten::relu.out", "aten::tanh.out"]


@pytest.fixture
def torch_module() -> Any:
    """A network of two branches, and its inputs."""
    pytest.importorskip("executorch.exir", reason="ExecuTorch is not installed: the extra [executorch]")
    import torch

    class Branches(torch.nn.Module):  # type: ignore[misc]  # not installed where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            left = torch.relu(self.first(x))
            return left + torch.tanh(self.second(left))

    torch.manual_seed(0)
    return Branches(), (torch.randn(2, 8),), torch
