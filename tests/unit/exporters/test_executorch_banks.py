"""Tensors in banks with capacities: against every choice of homes, and beside ExecuTorch's own planner."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import CapacityError, OptionsError
from solver.exporters.executorch import plan_memory
from solver.exporters.executorch_banks import MemoryMap, Tenant, lodged, memory_map
from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan
from solver.layout.api import solve
from tests.support.executorch import Bank, Spec, graph_of, install


def map_of(*sizes: int, alignment: int | None = None) -> MemoryMap:
    """Banks b0, b1, ... with the memories 1, 2, ..."""
    banks = [Bank(f"b{k}", size, k + 1, alignment) for k, size in enumerate(sizes)]
    return memory_map(SimpleNamespace(banks=banks), 16)


def tenant(nbytes: int, first: int, last: int, accessed: int = 0, memory: int | None = None) -> Tenant:
    return Tenant(f"{nbytes}@{first}", nbytes, Lifespan(first, last + 1), accessed or nbytes, memory)


def time(banks: MemoryMap, tenants: Sequence[Tenant], memories: Sequence[int]) -> int:
    return sum(banks.time(t.accessed, m - 1) for t, m in zip(tenants, memories, strict=True))


def best_by_trying(tenants: Sequence[Tenant], banks: MemoryMap) -> int | None:
    """The least time of all choices of homes in which each bank has a layout; None where there is none."""
    count, times = len(banks.banks), []
    for homes in itertools.product(range(1, count + 1), repeat=len(tenants)):
        if any(t.memory not in (None, home) for t, home in zip(tenants, homes, strict=True)):
            continue
        for bank in banks.banks:
            inside = [t for t, home in zip(tenants, homes, strict=True) if home == bank.memory]
            buffers = (Buffer(str(k), t.nbytes, t.span, bank.alignment) for k, t in enumerate(inside))
            layout = solve(LayoutProblem(tuple(buffers), bank.nbytes)).layout if inside else None
            if inside and (layout is None or layout.peak > bank.nbytes):
                break
        else:
            times.append(time(banks, tenants, homes))
    return min(times, default=None)


def with_remedy(banks: MemoryMap, error: CapacityError) -> MemoryMap:
    needed = {
        name: int(size.replace(",", "")) for name, size in re.findall(r"'(\w+)' ([\d,]+)", error.remedy)
    }
    assert needed, error.remedy
    return banks.with_capacities([needed.get(bank.name, bank.nbytes) for bank in banks.banks])


class TestHomes:
    def test_what_is_accessed_most_lies_in_the_fast_bank(self) -> None:
        """Largest first, as ExecuTorch has it, would put the large tensor there."""
        tenants = [tenant(128, 0, 3, 128), tenant(64, 0, 3, 640), tenant(64, 0, 3, 640)]
        assert lodged(tenants, map_of(128, 1024), Deadline())[0] == [2, 1, 1]

    def test_a_chosen_bank_is_kept(self) -> None:
        tenants = [tenant(64, 0, 3, 9999, memory=2), tenant(64, 0, 3)]
        memories, offsets = lodged(tenants, map_of(1024, 1024), Deadline())
        assert (memories, offsets) == ([2, 1], [0, 0])

    def test_fits_where_the_largest_first_does_not(self) -> None:
        """96 in the first bank leaves no room for both of 64; they fit there, and it fits behind them."""
        tenants = [tenant(96, 0, 1), tenant(64, 0, 1), tenant(64, 0, 1)]
        assert lodged(tenants, map_of(128, 96), Deadline())[0] == [2, 1, 1]

    def test_no_bytes_lie_anywhere(self) -> None:
        assert lodged([tenant(0, 0, 1, memory=2)], map_of(16, 16), Deadline()) == ([2], [0])
        assert lodged([], map_of(16), Deadline()) == ([], [])

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 6).map(lambda n: 16 * n),
                st.integers(0, 3),
                st.integers(0, 3),
                st.integers(1, 4),
                st.sampled_from([None, None, None, 1, 2]),
            ),
            min_size=1,
            max_size=5,
        ),
        st.lists(st.integers(1, 9).map(lambda n: 16 * n), min_size=2, max_size=3),
    )
    def test_against_every_choice(self, rows: list[Any], sizes: list[int]) -> None:
        """Never refused where it fits, never slower than the best; refusals become plans by their remedy."""
        tenants = [tenant(n, min(a, b), max(a, b), n * c, memory) for n, a, b, c, memory in rows]
        banks = map_of(*sizes)
        best = best_by_trying(tenants, banks)
        if best is None:
            with pytest.raises(CapacityError) as caught:
                lodged(tenants, banks, Deadline())
            lodged(tenants, with_remedy(banks, caught.value), Deadline())
        else:
            assert time(banks, tenants, lodged(tenants, banks, Deadline())[0]) == best


class TestRefusals:
    def test_a_bank_too_small_for_what_must_lie_there(self) -> None:
        with pytest.raises(CapacityError) as caught:
            lodged([tenant(64, 0, 3, memory=1), tenant(48, 2, 3, memory=1)], map_of(96, 1024), Deadline())
        assert caught.value.message == (
            "Bank 'b0' (mem_id 1) has 96 bytes: tensors that must lie there take 112 at once; the largest is"
            " '64@0', 64 bytes."
        )
        assert caught.value.remedy == "Give 'b0' 112 bytes."
        assert (caught.value.required, caught.value.available, caught.value.proved) == (112, 96, True)

    def test_all_banks_together_too_small(self) -> None:
        with pytest.raises(CapacityError, match=r"'b0' 64, 'b1' 32 bytes.* 112 bytes are live.*Give 'b1' 48"):
            lodged([tenant(64, 0, 3), tenant(48, 2, 3)], map_of(64, 32), Deadline())

    def test_two_banks_too_small(self) -> None:
        tenants = [tenant(64, 0, 3, memory=1), tenant(48, 2, 3, memory=2)]
        with pytest.raises(CapacityError) as caught:
            lodged(tenants, map_of(32, 32), Deadline())
        assert caught.value.remedy == "Give 'b0' 64 and 'b1' 48 bytes."

    def test_an_alignment_that_is_no_multiple(self) -> None:
        with pytest.raises(OptionsError, match=r"'b0' has an alignment of 24 bytes.* multiple of 16"):
            map_of(64, alignment=24)

    @pytest.mark.parametrize("target", [{"tcm": 64}, [Bank("tcm", 64, 1)], 64])
    def test_what_is_no_memory_map(self, target: object) -> None:
        with pytest.raises(OptionsError, match=r"of type (dict|list|int), .*target=TargetMemoryMap\(\[Bank"):
            memory_map(target, 16)

    @pytest.mark.parametrize(
        "rates", [{"tcm": 4e9}, {"tcm": 4e9, "sram": 0.0}, {"tcm": 4e9, "sram": "fast"}, {}]
    )
    def test_speeds_that_are_not_those_of_the_banks(self, rates: dict[str, Any]) -> None:
        target = SimpleNamespace(banks=[Bank("tcm", 64, 1), Bank("sram", 64, 2)])
        with pytest.raises(OptionsError, match=r"banks are tcm, sram.*bytes_per_second=\{'tcm': 1e9, 'sram'"):
            memory_map(target, 16, bytes_per_second=rates)


class TestPlanMemory:
    """`plan_memory` with a `TargetMemoryMap`, as ExecuTorch calls it."""

    @pytest.fixture(autouse=True)
    def executorch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        install(monkeypatch)

    def plan(self, specs: Sequence[Spec], *sizes: int, reserved: Sequence[int] = (), **options: Any) -> Any:
        banks = [Bank(f"b{k}", size, k + 1) for k, size in enumerate(sizes)]
        graph_module = graph_of(specs, options.pop("accesses", [1] * len(specs)), reserved)
        return plan_memory(16, specs, graph_module, None, target=SimpleNamespace(banks=banks), **options)

    def test_banks_and_sizes(self) -> None:
        specs = [Spec(64, [0, 3]), Spec(64, [1, 2]), Spec(32, [0, 3], mem_id=2), Spec(48, [0, 9], mem_id=5)]
        result = self.plan(specs, 64, 512, accesses=[1, 5, 1, 1])
        assert result.bufsizes == [0, 64, 96, 0, 0, 48]
        assert [result.spec_dict[spec].mem_id for spec in specs] == [2, 1, 2, 5]

    def test_parts_lie_in_the_bytes_of_their_tensor(self) -> None:
        whole = Spec(64, [0, 3])
        part = Spec(16, [1, 2], storage_base=whole, storage_base_offset=32)
        result = self.plan([part, whole, Spec(64, [0, 3])], 64, 64)
        assert result.spec_dict[part].mem_id == result.spec_dict[whole].mem_id
        assert result.spec_dict[part].mem_offset == result.spec_dict[whole].mem_offset + 32

    def test_branches_and_loops_take_their_bytes(self) -> None:
        """32 bytes of the first bank are theirs, so what is accessed most fits only into the second."""
        spec = Spec(64, [0, 3])
        assert self.plan([spec], 80, 64, reserved=[0, 32]).spec_dict[spec].mem_id == 2
        assert self.plan([spec], 96, 64, reserved=[0, 32]).spec_dict[spec].mem_offset == 32

    def test_speeds(self) -> None:
        """What is accessed most lies in the first bank, or in the second one if that is faster."""
        specs = [Spec(64, [0, 3]), Spec(32, [0, 3]), Spec(32, [0, 3])]

        def memories(**options: Any) -> list[int]:
            result = self.plan(specs, 64, 96, accesses=[3, 2, 1], **options)
            return [result.spec_dict[spec].mem_id for spec in specs]

        assert memories() == [1, 2, 2]
        assert memories(bytes_per_second={"b0": 1e9, "b1": 2e9}) == [2, 2, 1]

    def test_other_devices(self) -> None:
        with pytest.raises(OptionsError, match=r"not in the host's memory"):
            self.plan([Spec(16, [0, 1], device=SimpleNamespace(name="CUDA"))], 64)

    def test_padding(self) -> None:
        specs = [Spec(64, [0, 3])]
        banks = SimpleNamespace(banks=[Bank("tcm", 96, 1), Bank("sram", 128, 2)])
        result = plan_memory(16, specs, graph_of(specs, [1]), None, 64, target=banks)
        assert result.bufsizes == [0, 0, 128]
        small = SimpleNamespace(banks=[Bank("tcm", 96, 1)])
        with pytest.raises(CapacityError, match=r"Give 'tcm' 128 bytes"):
            plan_memory(16, specs, graph_of(specs, [1]), None, 64, target=small)


# ---------------------------------------------------------------------------------- beside ExecuTorch's own


@pytest.fixture
def banked() -> Any:
    """ExecuTorch's planner for banks."""
    name = "executorch.exir.banked_memory_planning"
    return pytest.importorskip(name, reason="ExecuTorch 1.5.1 is not installed: the extra [executorch]")


@pytest.mark.filterwarnings("ignore")  # of PyTorch and ExecuTorch themselves
def test_beside_banked_greedy(banked: Any) -> None:
    """Of 60 random problems none is slower than ExecuTorch's plan, or refused where that fits."""
    from executorch.exir.schema import DeviceType

    random = np.random.default_rng(0)
    fitted = 0
    for _ in range(60):
        specs = []
        for _ in range(int(random.integers(3, 25))):
            first = int(random.integers(20))
            life = [first, min(19, first + int(random.integers(8)))]
            memory: int | None = int(random.integers(1, 3)) if random.random() < 1 / 3 else None
            specs.append(Spec(int(random.integers(1, 500)), life, memory, device=DeviceType.CPU))
        total = sum(spec.allocated_memory for spec in specs)
        sizes = [int(total * part) for part in random.choice([0.1, 0.3, 0.6], size=2)]
        target = banked.TargetMemoryMap([banked.Bank(f"b{k}", n + 16, k + 1) for k, n in enumerate(sizes)])
        counts = [int(count) for count in random.integers(1, 4, len(specs))]
        graph_module = graph_of(specs, counts)

        def seconds(result: Any, specs: list[Spec] = specs, counts: list[int] = counts) -> float:
            rows = zip(specs, counts, strict=True)
            return float(sum(s.nbytes * c * 10 ** (result.spec_dict[s].mem_id - 1) for s, c in rows))

        try:
            theirs = seconds(banked.BankedGreedy(target)(16, specs, graph_module))
        except banked.BankPlacementError:
            continue
        fitted += 1
        ours = plan_memory(16, specs, graph_module, None, target=target)
        # The model counts whole blocks of 16 bytes, so the last ones may differ.
        slack = sum(15 * count * 10 for count in counts)
        assert seconds(ours) <= theirs + slack
        assert all(ours.bufsizes[k + 1] <= n + 16 for k, n in enumerate(sizes) if k + 1 < len(ours.bufsizes))
    assert fitted > 20


@pytest.mark.filterwarnings("ignore")  # of PyTorch and ExecuTorch themselves
def test_a_program_in_two_banks_runs(banked: Any) -> None:
    """The same bits as in one memory; ExecuTorch's planner needs more bytes of the fast bank."""
    import torch
    from executorch.exir import ExecutorchBackendConfig, to_edge
    from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.runtime import Runtime

    from solver.exporters.executorch_methods import ProgramMemoryPlanningPass
    from tests.support.pytorch_models import example

    made = example("gpt")
    exported = partial(torch.export.export, made.module.eval(), made.inputs)

    def built(planning: Any) -> Any:
        return to_edge(exported()).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))

    def run(program: Any) -> tuple[list[int], Any]:
        handle = Runtime.get().load_program(program.buffer)
        sizes = program.executorch_program.execution_plan[0].non_const_buffer_sizes
        return list(sizes), handle.load_method("forward").execute(made.inputs)

    (_, whole), expected = run(built(MemoryPlanningPass()))
    target = banked.TargetMemoryMap([banked.Bank("tcm", 8192, 1), banked.Bank("sram", whole, 2)])
    suite = MemoryPlanningAlgorithmSuite([partial(plan_memory, target=target)])
    for planning in (MemoryPlanningPass(suite), ProgramMemoryPlanningPass(target=target)):
        sizes, outputs = run(built(planning))
        assert sizes[1] <= 8192
        assert sum(sizes) <= whole
        assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))


def test_a_bank_of_a_remedy_is_large_enough() -> None:
    """Fragmentation counts: 32 bytes are free at each step, but not together."""
    tenants = [tenant(32, 0, 1), tenant(32, 0, 3), tenant(32, 2, 3), tenant(64, 2, 3)]
    banks = map_of(64)
    with pytest.raises(CapacityError) as caught:
        lodged(tenants, banks, Deadline())
    larger = with_remedy(banks, caught.value)
    assert larger != replace(banks)
    assert lodged(tenants, larger, Deadline())[0] == [1] * 4
