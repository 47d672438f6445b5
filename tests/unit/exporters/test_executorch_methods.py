"""All methods of an ExecuTorch program in one plan: of graphs made here, and in its runtime if installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import OptionsError, PlanError
from solver.exporters.executorch import arranged
from solver.exporters.executorch_methods import ProgramMemoryPlanningPass
from tests.support.executorch import ALIGNMENT, Module, Spec, install, share
from tests.support.executorch_programs import stateful, training_methods


@pytest.fixture(autouse=True)
def executorch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is imported of ExecuTorch, where a test does not ask for the real one."""
    if "runtime" not in request.fixturenames:
        install(monkeypatch)


def plan(*methods: Module, planning: ProgramMemoryPlanningPass | None = None) -> list[list[int]]:
    """The sizes of the memories of each method."""
    planning = planning or ProgramMemoryPlanningPass(alignment=ALIGNMENT)
    for method in methods:
        planning.run(method, method.signature)
    planning.run_multimethod()
    return [method.meta["non_const_buffer_sizes"] for method in methods]


def violations(*methods: Module) -> list[str]:
    """What is wrong with the places of a program's tensors, by definition."""
    wrong: list[str] = []
    states = {name: spec for method in methods for name, spec in method.states.items()}
    for number, method in enumerate(methods):
        for name, spec in {**method.states, **method.constants}.items():
            if name in states and (spec.mem_id, spec.mem_offset) != (
                states[name].mem_id,
                states[name].mem_offset,
            ):
                wrong.append(f"{name} of method {number} lies elsewhere")
        own = [spec for module in method.modules() for spec in module.activations]
        for spec in own:
            others = [state for state in states.values() if not in_bytes_of(spec, state)]
            wrong += [f"an activation of method {number} lies on a state" for s in others if share(spec, s)]
        for module in method.modules():
            pairs = [(a, b) for k, a in enumerate(module.activations) for b in module.activations[:k]]
            for a, b in pairs:
                live = a.lifetime[0] <= b.lifetime[1] and b.lifetime[0] <= a.lifetime[1]
                if live and share(a, b) and a.storage_base is not b and b.storage_base is not a:
                    wrong.append(f"two activations of method {number} share bytes")
        for spec in (*own, *method.states.values()):
            assert spec.mem_id is not None
            assert spec.mem_offset is not None
            size = method.meta["non_const_buffer_sizes"][spec.mem_id]
            if spec.mem_offset % ALIGNMENT or spec.end > size:
                wrong.append(f"a tensor of method {number} lies outside of its memory")
        inside = [(s, a) for b in method.branches for s in b.activations for a in method.activations]
        if any(share(s, a) for s, a in inside):
            wrong.append(f"a branch of method {number} lies on its activations")
    return wrong


def in_bytes_of(spec: Spec, other: Spec) -> bool:
    return spec is other or (spec.storage_base is not None and in_bytes_of(spec.storage_base, other))


class TestPlaces:
    def test_a_state_has_one_address_above_which_methods_overlay(self) -> None:
        train = Module({"w": Spec(48, [0, 9])}, {}, [Spec(64, [0, 3]), Spec(64, [2, 5]), Spec(64, [4, 9])])
        infer = Module({}, {"w": Spec(48, [0, 4])}, [Spec(96, [0, 2])])
        assert plan(train, infer) == [[0, 48 + 128], [0, 48 + 96]]
        assert violations(train, infer) == []

    def test_a_state_of_another_method_is_held(self) -> None:
        """A method that does not name a state leaves it alone."""
        write = Module({"cache": Spec(32, [0, 9])}, {}, [Spec(16, [0, 1])])
        other = Module({}, {}, [Spec(64, [0, 1])])
        assert plan(write, other) == [[0, 48], [0, 96]]
        assert violations(write, other) == []

    def test_constants_that_no_method_writes_are_not_planned(self) -> None:
        constant = Spec(64, [0, 9])
        reader = Module({}, {"table": constant}, [Spec(16, [0, 1])])
        assert plan(reader) == [[0, 16]]
        assert (constant.mem_id, constant.mem_offset) == (None, None)

    def test_states_in_the_memory_that_a_pass_of_the_user_chose(self) -> None:
        train = Module({"w": Spec(48, [0, 9], mem_id=3)}, {}, [Spec(32, [0, 3]), Spec(16, [0, 3], mem_id=3)])
        infer = Module({}, {"w": Spec(48, [0, 4])}, [Spec(96, [0, 2])])
        assert plan(train, infer) == [[0, 32, 0, 64], [0, 96, 0, 48]]
        assert violations(train, infer) == []

    def test_part_of_a_state(self) -> None:
        state = Spec(64, [0, 9])
        part = Spec(16, [1, 2], storage_base=state, storage_base_offset=32)
        method = Module({"cache": state}, {}, [part, Spec(16, [0, 3])])
        assert plan(Module({"first": Spec(16, [0, 1])}), method) == [[0, 80], [0, 96]]
        assert part.mem_offset == (state.mem_offset or 0) + 32

    def test_branches_lie_above_states_and_below_the_graph(self) -> None:
        branches = [Module(activations=[Spec(32, [0, 1])]), Module(activations=[Spec(48, [0, 1])])]
        method = Module({"cache": Spec(16, [0, 9])}, {}, [Spec(64, [0, 3])], branches)
        assert plan(method) == [[0, 16 + 48 + 64]]
        assert violations(method) == []
        assert [branch.meta["non_const_buffer_sizes"] for branch in branches] == [[0, 48], [0, 64]]

    def test_a_pass_is_used_for_several_programs_and_named_for_each_method(self) -> None:
        """ExecuTorch calls `run_multimethod` once for each method that names the pass."""
        planning = ProgramMemoryPlanningPass()
        first = Module({"a": Spec(64, [0, 1])})
        second = Module({"b": Spec(16, [0, 1])})
        assert plan(first, planning=planning) == [[0, 64]]
        planning.run_multimethod()
        assert plan(second, planning=planning) == [[0, 16]]
        assert first.meta["non_const_buffer_sizes"] == [0, 64]

    def test_a_program_that_failed_leaves_nothing(self) -> None:
        planning = ProgramMemoryPlanningPass()
        planning.run(first := Module({"a": Spec(64, [0, 1])}), first.signature)
        broken = Module(activations=[Spec(16, [0, 1], device=SimpleNamespace(name="CUDA"))])
        with pytest.raises(OptionsError, match=r"not in the host's memory.*plan_memory"):
            planning.run(broken, broken.signature)
        assert plan(Module({"b": Spec(16, [0, 1])}), planning=planning) == [[0, 16]]

    def test_nothing_to_plan(self) -> None:
        assert plan(Module()) == [[0, 0]]

    sizes = st.integers(0, 5).map(lambda size: 16 * size)

    @st.composite
    @staticmethod
    def methods(draw: Any) -> list[Module]:
        names = {name: draw(TestPlaces.sizes) for name in "abc"}
        memories = {name: draw(st.sampled_from([None, 1, 2])) for name in names}

        def activations() -> list[Spec]:
            rows = draw(
                st.lists(
                    st.tuples(TestPlaces.sizes, st.integers(0, 6), st.integers(0, 6), st.booleans()),
                    max_size=6,
                )
            )
            return [Spec(n, sorted([a, b]), 2 if elsewhere else None) for n, a, b, elsewhere in rows]

        made = []
        for _ in range(draw(st.integers(1, 3))):
            written = draw(st.sets(st.sampled_from("abc")))
            read = draw(st.sets(st.sampled_from("abc"))) - written
            states = {name: Spec(names[name], [0, 9], memories[name]) for name in sorted(written)}
            branches = [Module(activations=activations()) for _ in range(draw(st.integers(0, 2)))]
            constants = {name: Spec(names[name], [0, 9]) for name in sorted(read)}
            made.append(Module(states, constants, activations(), branches))
        return made

    @given(methods())
    def test_any_program(self, methods: list[Module]) -> None:
        """The rules hold, and no method has more than the states and a layout of its own tensors."""
        plan(*methods)
        assert violations(*methods) == []
        states = {name: spec for method in methods for name, spec in method.states.items()}
        for method in methods:
            for memory, size in enumerate(method.meta["non_const_buffer_sizes"]):
                below = sum(s.allocated_memory for s in states.values() if s.mem_id == memory)
                for group in [method.activations], [branch.activations for branch in method.branches]:
                    tops = [arranged_size(specs, memory) for specs in group]
                    below += max(tops, default=0)
                assert size == below


def arranged_size(specs: Sequence[Spec], memory: int) -> int:
    layout = arranged([spec for spec in specs if spec.mem_id == memory], ALIGNMENT, 0, 10**9)
    assert layout is not None
    return layout[1]


class TestRefusals:
    def test_two_shapes_of_one_name(self) -> None:
        train, infer = Module({"net.w": Spec(48, [0, 9])}), Module({}, {"net.w": Spec(32, [0, 9])})
        with pytest.raises(PlanError) as caught:
            plan(train, infer)
        assert "'net.w' is byte 48 in the method with inputs (x) and byte 32 in" in caught.value.message
        assert "another name" in caught.value.remedy

    def test_two_types_of_one_name(self) -> None:
        other = Spec(48, [0, 9], scalar_type="ScalarType.INT")
        with pytest.raises(PlanError, match=r"is byte 48 in .* and int 48 in"):
            plan(Module({"w": Spec(48, [0, 9])}), Module({"w": other}))

    def test_two_memories_of_one_name(self) -> None:
        with pytest.raises(PlanError, match=r"'w' is assigned to memory 2 .* memory 3 .* same mem_id"):
            plan(Module({"w": Spec(48, [0, 9], mem_id=2)}), Module({"w": Spec(48, [0, 9], mem_id=3)}))

    def test_without_executorch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "executorch.exir.passes", None)
        with pytest.raises(ImportError, match=r"pip install 'executorch>=.* 'torch>="):
            ProgramMemoryPlanningPass()


# ---------------------------------------------------------------------------------- in ExecuTorch's runtime


@pytest.fixture
def runtime() -> Any:
    """Builds a program of methods by name, and loads it; the sizes of the memories by method."""
    pytest.importorskip("executorch.exir", reason="ExecuTorch is not installed: the extra [executorch]")
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.runtime import Runtime

    def loaded(methods: dict[str, Any], planning: Any) -> tuple[Any, dict[str, list[int]]]:
        built = to_edge(methods).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
        plans = built.executorch_program.execution_plan
        program = Runtime.get().load_program(built.buffer)
        for name in methods:  # loading a method later would write the initial values of its weights again
            program.load_method(name)
        return program, {p.name: list(p.non_const_buffer_sizes) for p in plans if p.name in methods}

    return loaded


@pytest.mark.filterwarnings("ignore")  # of PyTorch and ExecuTorch themselves
def test_each_method_reads_what_another_one_wrote(runtime: Any) -> None:
    """1,000 calls in random order agree with PyTorch bit for bit."""
    import torch
    from executorch.exir.passes import MemoryPlanningPass

    modules, counters = stateful()
    x = torch.ones(4, 8)

    def exported() -> dict[str, Any]:
        return {name: torch.export.export(module, (x,), strict=True) for name, module in modules.items()}

    program, sizes = runtime(exported(), ProgramMemoryPlanningPass())
    _, theirs = runtime(exported(), MemoryPlanningPass(share_mutable_buffers=True))
    assert all(sum(sizes[name]) <= sum(theirs[name]) for name in modules)
    assert all(memories[0] == 0 and len(memories) == 2 for memories in sizes.values())
    program.load_method("add").execute(
        (-x,)
    )  # nothing, so that ExecuTorch's states are defined, which start as zeros here
    random = np.random.default_rng(0)
    for _ in range(1000):
        name = str(random.choice(list(modules)))
        given_x = torch.from_numpy(random.integers(-2, 3, (4, 8)).astype(np.float32))
        with torch.no_grad():
            expected = modules[name](given_x)
        (actual,) = program.load_method(name).execute((given_x,))
        assert torch.equal(actual, expected), name
    assert counters.total.sum() > 0


@pytest.mark.filterwarnings("ignore")  # of PyTorch and ExecuTorch themselves
def test_a_pass_of_the_user_chooses_memories(runtime: Any) -> None:
    """What `run` finds set stays set: a state in memory 2, sums in memory 3."""
    import torch

    class Pools(ProgramMemoryPlanningPass):
        def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
            for node in graph_module.graph.nodes:
                if "counters_total" in str(node.target) and node.op == "placeholder":
                    node.meta["spec"].mem_id = 2
                elif "add" in str(node.target) and "spec" in node.meta:
                    node.meta["spec"].mem_id = 3
            return super().run(graph_module, graph_signature)

    modules, _ = stateful()
    x = torch.ones(4, 8)
    methods = {name: torch.export.export(module, (x,), strict=True) for name, module in modules.items()}
    program, sizes = runtime(methods, Pools())
    assert {memories[2] for memories in sizes.values()} == {128}
    assert sizes["remember"][3] >= 64
    program.load_method("add").execute((x,))
    program.load_method("read").execute((x,))
    (total,) = program.load_method("read").execute((x,))
    assert torch.equal(total, torch.full((4, 8), 3.0))


@pytest.mark.filterwarnings("ignore")  # of PyTorch and ExecuTorch themselves
def test_training_and_inference_share_the_weights(runtime: Any) -> None:
    """The network learns as in PyTorch, and inference uses what was learned."""
    import torch
    from executorch.exir.passes import MemoryPlanningPass

    methods, net, (x, y) = training_methods()
    program, sizes = runtime(methods, ProgramMemoryPlanningPass())
    theirs = [runtime(training_methods()[0], MemoryPlanningPass(share_mutable_buffers=b))[1] for b in (0, 1)]
    assert max(map(sum, sizes.values())) <= min(max(map(sum, own.values())) for own in theirs)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        loss, *results = program.load_method("train").execute((x, y))
        program.load_method("update").execute(tuple(results[: len(results) // 2]))
        (inferred,) = program.load_method("infer").execute((x,))
        optimizer.zero_grad()
        expected = torch.nn.functional.mse_loss(net(x), y)
        expected.backward()
        optimizer.step()
        assert torch.allclose(loss, expected, rtol=1e-5)
        assert torch.allclose(inferred, net(x), rtol=1e-4, atol=1e-5)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
