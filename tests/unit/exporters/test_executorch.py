"""ExecuTorch's tensors placed by the layout search: alone, and in real programs where it is installed."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arenaplan
from solver.errors import OptionsError
from solver.exporters.executorch import arranged, plan_memory
from solver.exporters.executorch_graph import (
    Instruction,
    StaleOperand,
    Tensor,
    stale_operands,
    stale_reads_of_graph,
)
from solver.exporters.executorch_methods import ProgramMemoryPlanningPass
from tests.support import executorch as stand_in

ENOUGH = 10**9


@dataclass(eq=False)
class Spec:
    """The memory fields of a TensorSpec: the last node is part of its life."""

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


class TestStaleOperands:
    """Three instructions: 0 makes a, 1 makes b, 2 reads both."""

    def instructions(self, offset: int, memory: int | None = 1) -> list[Instruction]:
        given, a = Tensor(0, 1, 256, 64), Tensor(1, 1, 0, 64)
        b, c = Tensor(2, memory, offset, 64), Tensor(3, 1, 128, 64)
        return [
            Instruction("relu", (given,), (a,)),
            Instruction("tanh", (a, Tensor(9)), (b,)),
            Instruction("add", (a, b), (c,)),
        ]

    @pytest.mark.parametrize(("offset", "memory"), [(64, 1), (0, 2), (0, None)])
    def test_apart(self, offset: int, memory: int | None) -> None:
        assert stale_operands(self.instructions(offset, memory)) == []

    def test_partly_on_an_operand(self) -> None:
        calls = self.instructions(48)
        assert stale_operands(calls) == [StaleOperand(calls[0].writes[0], 0, 1, 2)]

    def test_as_overwritten_says(self) -> None:
        random = np.random.default_rng(0)
        for _ in range(200):
            made = []
            for _ in range(12):
                picks = [
                    Tensor(int(k), 1, 32 * int(k % 4), 32 + 32 * int(k % 2))
                    for k in random.integers(8, size=3)
                ]
                made.append(Instruction("op", tuple(picks[:2]), tuple(picks[2:])))
            expected = [
                (tensor, writer, over, position)
                for position in range(12)
                for tensor, writer, over in overwritten(made, position)
                if writer >= 0
            ]
            found = [(s.tensor, s.writer, s.over, s.position) for s in stale_operands(made)]
            assert found == expected


@dataclass(eq=False)
class Placed(Spec):
    """A tensor specification that has its place."""

    mem_id: int | None = 1
    mem_offset: int | None = 0


@dataclass(eq=False)
class Node:
    """A node of a graph of PyTorch, as far as it says what it reads and writes."""

    name: str
    op: str = "call_function"
    target: Any = None
    args: tuple[Any, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    kwargs: dict[str, Any] = field(default_factory=dict)


def kernel(name: str, *operands: Node, offset: int | None = None, size: int = 32) -> Node:
    spec = Placed(size, [0, 0], mem_id=None if offset is None else 1, mem_offset=offset)
    out = Node(f"{name}_out", target=SimpleNamespace(__name__="alloc"), meta={"spec": spec})
    target = SimpleNamespace(__name__="op.out")
    return Node(name, target=target, args=operands, meta={"spec": spec}, kwargs={"out": out})


def placeholder(name: str, offset: int | None = None) -> Node:
    spec = Placed(32, [0, 0], mem_id=None if offset is None else 1, mem_offset=offset)
    return Node(name, "placeholder", name, meta={"spec": spec})


def graph(*nodes: Node, results: Any, **submodules: Any) -> Any:
    output = Node("output", "output", "output", (results,))
    return SimpleNamespace(graph=SimpleNamespace(nodes=[*nodes, output]), **submodules)


def higher(kind: str, name: str, *arguments: Any, offsets: tuple[int, ...] = (512,)) -> Node:
    specs = [Placed(32, [0, 0], mem_offset=offset) for offset in offsets]
    return Node(name, target=SimpleNamespace(__name__=kind), args=arguments, meta={"spec": specs})


def called(name: str) -> Node:
    return Node(name, "get_attr", name)


def item(node: Node, k: int) -> Node:
    target = SimpleNamespace(__name__="getitem")
    return Node(f"{node.name}_{k}", target=target, args=(node, k), meta={"spec": node.meta["spec"][k]})


class TestStaleReadsOfGraphs:
    def branch(self, offset: int, *, steps: int = 1) -> Any:
        """A graph of one input, whose result lies at `offset` of the bytes that all submodules share."""
        x = placeholder("x")
        nodes = [x]
        for k in range(steps):
            nodes.append(kernel(f"step_{k}", nodes[-1], offset=offset + 32 * (k % 2)))
        return graph(*nodes, results=[nodes[-1]])

    def conditions(
        self, offsets: list[tuple[int, int]], *, copied: bool = False, last_only: bool = False
    ) -> Any:
        """Conditions one after the other, and a kernel that reads all results, or the last one."""
        x = placeholder("x", 256)
        nodes, results = [x], [x]
        submodules: dict[str, Any] = {}
        for k, (then, other) in enumerate(offsets):
            submodules |= {f"then_{k}": self.branch(then), f"other_{k}": self.branch(other)}
            branches = called(f"then_{k}"), called(f"other_{k}")
            condition = higher("cond", f"cond_{k}", x, *branches, (results[-1],), offsets=(512 + 32 * k,))
            result = item(condition, 0)
            nodes += [*branches, condition, result]
            if copied:
                result = kernel(f"copy_{k}", result, offset=1024 + 32 * k)
                nodes.append(result)
            results.append(result)
        total = kernel("total", *(results[-1:] if last_only else results), offset=2048)
        return graph(*nodes, total, results=(total,), **submodules)

    def test_the_result_of_a_branch_is_overwritten_by_the_next(self) -> None:
        sentences = stale_reads_of_graph(self.conditions([(0, 0), (0, 0)]), {})
        assert len(sentences) == 3
        for sentence in sentences:
            assert re.fullmatch(
                r"total reads what (then|other)_0\.step_0 wrote into bytes 0 to 32 of memory 1, but"
                r" (then|other)_1\.step_0 has written there since\.",
                sentence,
            )

    @pytest.mark.parametrize("number", [2, 3, 5, 9])
    def test_one_pair_of_branches_is_enough(self, number: int) -> None:
        """Each branch writes elsewhere, but for one of the first and one of the last condition."""
        for first in (0, 1):
            for last in (0, 1):
                offsets = [[4096 + 64 * k, 4096 + 64 * k + 32] for k in range(number)]
                offsets[-1][last] = offsets[0][first]
                (sentence,) = stale_reads_of_graph(self.conditions([(a, b) for a, b in offsets]), {})
                assert f"{('then', 'other')[first]}_0.step_0 wrote" in sentence
                assert f"{('then', 'other')[last]}_{number - 1}.step_0 has written" in sentence

    def test_one_condition_or_copies_or_no_reader(self) -> None:
        assert stale_reads_of_graph(self.conditions([(0, 0)]), {}) == []
        assert stale_reads_of_graph(self.conditions([(0, 32)] * 4, copied=True), {}) == []
        # The operand of the second branch is read before its result is written, which is the same call.
        assert stale_reads_of_graph(self.conditions([(0, 0), (0, 0)], last_only=True), {}) == []

    def test_in_branches_of_branches(self) -> None:
        inner = self.conditions([(0, 0), (0, 0)])
        x = placeholder("x", 4096)
        outer = higher("cond", "outer", x, called("inner"), called("other"), (x,))
        top = graph(x, outer, results=(item(outer, 0),), inner=inner, other=self.branch(0))
        (sentence, *_) = stale_reads_of_graph(top, {})
        assert sentence.startswith("inner.total reads what inner.")

    def test_places_of_the_plan_come_before_those_of_the_tensors(self) -> None:
        x, a = placeholder("x", 0), kernel("a", placeholder("x", 0), offset=64)
        b = kernel("b", x, offset=128)
        total = kernel("total", a, b, offset=192)
        top = graph(x, a, b, total, results=(total,))
        assert stale_reads_of_graph(top, {}) == []
        (sentence,) = stale_reads_of_graph(top, {b.meta["spec"]: SimpleNamespace(mem_id=1, mem_offset=80)})
        assert sentence == (
            "total reads what a wrote into bytes 64 to 96 of memory 1, but b has written there since."
        )

    @pytest.mark.parametrize("offset", [0, 64])
    def test_loops_read_their_operands_in_each_round(self, offset: int) -> None:
        """The body writes where the second operand lies: only the first round reads it in time."""
        x, rest = placeholder("x", 128), placeholder("rest", offset)
        piece, other = placeholder("piece", 192), placeholder("other")
        body = graph(piece, other, first := kernel("first", piece, other, offset=0), results=[first])
        loop = higher("map_impl", "map", called("body"), [x], [rest])
        sentences = stale_reads_of_graph(graph(x, rest, loop, results=loop, body=body), {})
        assert len(sentences) == (offset == 0)
        assert all("body.first reads what the caller wrote" in sentence for sentence in sentences)

    @pytest.mark.parametrize("offset", [512, 640])
    def test_what_a_loop_carries(self, offset: int) -> None:
        start, x = placeholder("start", 128), placeholder("x", 256)
        carried, piece = placeholder("carried"), placeholder("piece", 0)
        first = kernel("first", piece, offset=offset)
        second = kernel("second", carried, first, offset=704)
        body = graph(carried, piece, first, second, results=[second, first])
        loop = higher("scan", "scan", called("body"), [start], [x], [], offsets=(512, 576))
        sentences = stale_reads_of_graph(graph(start, x, loop, results=loop, body=body), {})
        assert len(sentences) == (offset == 512)
        assert all("body.second reads what scan wrote into bytes 512" in sentence for sentence in sentences)

    def test_views_and_parts_lie_in_the_bytes_of_others(self) -> None:
        x = placeholder("x", 0)
        whole = kernel("whole", x, offset=64)
        view = Node(
            "view", target=SimpleNamespace(__name__="view"), args=(whole,), meta={"spec": Placed(32, [0, 0])}
        )
        over = kernel("over", x, offset=64)
        total = kernel("total", view, offset=128)
        (sentence,) = stale_reads_of_graph(graph(x, whole, view, over, total, results=(total,)), {})
        assert sentence.startswith("total reads what whole wrote into bytes 64 to 96")
        over.meta["spec"].storage_base = whole.meta["spec"]  # the same bytes on purpose
        assert stale_reads_of_graph(graph(x, whole, view, over, total, results=(total,)), {}) == []


def test_without_executorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch.exir.memory_planning", None)
    with pytest.raises(ImportError, match=r"pip install 'executorch>=.* 'torch>="):
        plan_memory(16, [], None, None)


@pytest.mark.parametrize("name", ["target", "bytes_per_second"])
def test_banks_answer_with_what_replaces_them(name: str) -> None:
    options: dict[str, Any] = {name: {}}
    for function in (partial(plan_memory, 16, [], None, None), ProgramMemoryPlanningPass):
        with pytest.raises(OptionsError, match="leave out target and bytes_per_second") as caught:
            function(**options)
        assert caught.value.path == (name,)
    with pytest.raises(TypeError, match=r"plan_memory\(\) got an unexpected keyword argument 'targets'"):
        plan_memory(16, [], None, None, targets=[])


@pytest.mark.parametrize("name", ["StaleRead", "find_stale_read"])
def test_runs_of_programs_answer_with_what_replaces_them(name: str) -> None:
    with pytest.raises(OptionsError, match="plan_memory and ProgramMemoryPlanningPass warn of them"):
        getattr(arenaplan.executorch, name)
    assert not hasattr(arenaplan.executorch, "find_stale_write")


class TestOneMethod:
    """`plan_memory` as ExecuTorch calls it, beside a `greedy` by which no tensors share bytes."""

    @pytest.fixture(autouse=True)
    def executorch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stand_in.install(monkeypatch)

    def test_parts_lie_in_the_bytes_of_their_tensor(self) -> None:
        whole = stand_in.Spec(64, [0, 3])
        part = stand_in.Spec(16, [1, 2], storage_base=whole, storage_base_offset=32)
        specs = [part, whole, stand_in.Spec(64, [4, 5])]
        result = plan_memory(16, specs, stand_in.Module(), None)
        assert result.bufsizes == [0, 64]
        assert result.spec_dict[part].mem_offset == result.spec_dict[whole].mem_offset + 32

    def test_branches_and_loops_take_the_bottom_and_padding_the_top(self) -> None:
        spec, other = stand_in.Spec(64, [0, 3]), stand_in.Spec(48, [0, 9], mem_id=2)
        below = stand_in.Module(input_mem_buffer_sizes=[0, 32])
        result = plan_memory(16, [spec, other, stand_in.Spec(64, [4, 5])], below, None, 64)
        assert result.spec_dict[spec].mem_offset == 32
        assert result.bufsizes == [0, 32 + 64 + 64, 48 + 64]


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
    """A function that exports a model, with its backward pass if `training`, and the inputs."""
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
@pytest.mark.parametrize("cloned", [False, True])
def test_branches_one_after_the_other(build: Callable[..., Any], cloned: bool) -> None:
    """ExecuTorch's plan of two conditions is wrong with its own algorithm, too; copies mend it."""
    import torch

    class Twice(torch.nn.Module):  # type: ignore[misc]  # not installed where types are checked
        def forward(self, x: Any, y: Any) -> Any:
            def then(x: Any, y: Any) -> Any:
                return (x * 2 + y).relu() + x

            def other(x: Any, y: Any) -> Any:
                return (x - y).tanh() * y

            a = torch.cond(x.sum() > 0, then, other, (x, y))
            a = a.clone() if cloned else a
            b = torch.cond(y.sum() > 0, then, other, (a, y))
            b = b.clone() if cloned else b
            return a + b, b

    inputs = torch.ones(4, 8), torch.ones(4, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = build(torch.export.export(Twice(), inputs), plan_memory)
    named = [str(w.message) for w in caught if "Results may be wrong" in str(w.message)]
    same = all(torch.allclose(a, b) for a, b in zip(outputs(program, inputs), Twice()(*inputs), strict=True))
    assert (same, bool(named)) == (cloned, not cloned)
    assert all("has written there since" in sentence for sentence in named)
