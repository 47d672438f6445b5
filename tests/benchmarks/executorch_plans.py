"""Plans of ExecuTorch's programs by ExecuTorch and here: several methods in one memory, and banks.

    python -m tests.benchmarks.executorch_plans

Runs with an interpreter that has executorch, torch and what this project needs. The whole training steps are
read from files where these stand beside the project.
"""

from __future__ import annotations

import copy
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.banked_memory_planning import Bank, BankedGreedy, BankPlacementError, TargetMemoryMap
from executorch.exir.memory_planning import greedy
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.schema import DeviceType
from executorch.runtime import Runtime
from rich.console import Console
from rich.table import Table
from torch.export.experimental import _export_forward_backward

import arenaplan
from solver.errors import CapacityError
from solver.exporters.executorch_graph import accesses
from tests.support.buffers import DATA, read_csv
from tests.support.executorch import ALIGNMENT, Spec, graph_of
from tests.support.executorch_programs import attention, stateful, training_methods
from tests.support.pytorch_models import example

#: Calls in random order of the methods that share counters, and steps of the others.
CALLS, STEPS = 1000, 20

#: The fast bank has these shares of the bytes live at once; a tight slow one exceeds the rest by `SLACK`.
FAST, SLACK = (0.1, 0.25, 0.5), 0.02

#: How many times as long an access takes in the slow bank.
SLOWDOWN = 10


def passes() -> dict[str, Callable[[], Any]]:
    return {
        "default": MemoryPlanningPass,
        "share_mutable_buffers": partial(MemoryPlanningPass, share_mutable_buffers=True),
        "arenaplan": arenaplan.executorch.ProgramMemoryPlanningPass,
    }


def loaded(methods: dict[str, Any], planning: Any) -> tuple[Any, int]:
    """A program with all methods loaded, and the bytes of its memories, which the methods share."""
    config = ExecutorchBackendConfig(memory_planning_pass=planning)
    built = to_edge(methods).to_executorch(config)
    program = Runtime.get().load_program(built.buffer)
    for name in methods:
        program.load_method(name)
    sizes = [plan.non_const_buffer_sizes for plan in built.executorch_program.execution_plan]
    count = max(map(len, sizes))
    return program, sum(max(s[k] for s in sizes if k < len(s)) for k in range(count))


def counters(planning: Any) -> tuple[int, str]:
    modules, _ = stateful()
    x = torch.zeros(4, 8)
    methods = {name: torch.export.export(module, (x,), strict=True) for name, module in modules.items()}
    program, nbytes = loaded(methods, planning)
    random, wrong = np.random.default_rng(0), 0
    for _ in range(CALLS):
        name = str(random.choice(list(modules)))
        x = torch.from_numpy(random.integers(-2, 3, (4, 8)).astype(np.float32))
        with torch.no_grad():
            expected = modules[name](x)
        wrong += not torch.equal(program.load_method(name).execute((x,))[0], expected)
    return nbytes, f"{wrong} of {CALLS:,} outputs differ from PyTorch's"


def perceptron(planning: Any) -> tuple[int, str]:
    torch.manual_seed(0)
    methods, net, (x, y) = training_methods()
    program, nbytes = loaded(methods, planning)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        loss, *results = program.load_method("train").execute((x, y))
        program.load_method("update").execute(tuple(results[: len(results) // 2]))
        program.load_method("infer").execute((x,))
        optimizer.zero_grad()
        expected = torch.nn.functional.mse_loss(net(x), y)
        expected.backward()
        optimizer.step()
    return nbytes, f"loss {float(loss):.3f}, {float(expected):.3f} in PyTorch"


def cache(planning: Any) -> tuple[int, str]:
    torch.manual_seed(0)
    methods, layer = attention()
    program, nbytes = loaded(methods, planning)
    reference, most = copy.deepcopy(layer), 0.0
    for first, length, name in [(0, 16, "prefill"), *((k, 1, "decode") for k in range(16, 64))]:
        x, positions = torch.randn(length, 32), torch.arange(first, first + length)
        with torch.no_grad():
            expected = reference(x, positions)
        (actual,) = program.load_method(name).execute((x, positions))
        most = max(most, float((actual - expected).abs().max()))
    return nbytes, f"differs from PyTorch by at most {most:.0e}"


def several_methods(console: Console) -> None:
    table = Table("program", *passes(), title="Bytes of all methods together, and what they compute")
    for run in (perceptron, cache, counters):
        rows = [run(planning()) for planning in passes().values()]
        table.add_row(run.__name__, *(f"{nbytes:,}: {verdict}" for nbytes, verdict in rows))
    console.print(table)


def steps() -> Iterator[tuple[str, list[Any], Any]]:
    """Tensors and a graph by name: each tensor written and read once, what lives all the time read twice."""
    for path in sorted(DATA.glob("executorch/step_*.csv")):
        buffers = read_csv(path, ALIGNMENT).buffers
        end = max(b.lifespan.end for b in buffers)
        specs = [Spec(b.size, [b.lifespan.start, b.lifespan.end - 1], device=DeviceType.CPU) for b in buffers]
        whole = [b.lifespan.start == 0 and b.lifespan.end == end for b in buffers]
        yield path.stem, specs, graph_of(specs, [2 + lives for lives in whole])


def programs() -> Iterator[tuple[str, list[Any], Any]]:
    """Tensors and the graph of small programs, as ExecuTorch hands them to planning algorithms."""
    for name in ("mlp", "lenet", "lstm", "resnet", "gpt", "transformer"):
        captured: list[tuple[list[Any], Any]] = []

        def take(
            alignment: int, specs: Any, graph: Any, *rest: Any, into: list[tuple[list[Any], Any]] = captured
        ) -> list[int]:
            into.append((list(specs), graph))
            result = greedy(alignment, specs, graph, *rest)
            for spec, place in result.spec_dict.items():
                spec.mem_id, spec.mem_offset, spec.mem_obj_id = place.mem_id, place.mem_offset, 0
            return list(result.bufsizes)

        config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(take))
        to_edge(exported(name)).to_executorch(config)
        specs, graph = captured[-1]
        for spec in specs:
            spec.mem_id = spec.mem_offset = None
        yield name, specs, graph


def exported(name: str) -> Any:
    """Forward and backward of the first three networks, inference of the others."""
    made = example(name)
    if name in ("resnet", "gpt", "transformer"):
        return torch.export.export(made.module.eval(), made.inputs)
    losses = {"mse": torch.nn.functional.mse_loss, "cross-entropy": torch.nn.functional.cross_entropy}

    class WithLoss(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = made.module

        def forward(self, *tensors: Any) -> Any:
            output = self.module(*tensors[: len(made.inputs)])
            return losses[made.loss](output, *tensors[len(made.inputs) :])

    inputs = (*made.inputs, *made.targets)
    return _export_forward_backward(torch.export.export(WithLoss(), inputs))


def modelled(result: Any, graph: Any) -> int:
    counts = accesses(graph)
    return sum(
        spec.allocated_memory * counts[id(spec)] * SLOWDOWN ** (place.mem_id - 1)
        for spec, place in result.spec_dict.items()
    )


def in_banks(specs: Sequence[Any], graph: Any, target: Any) -> tuple[int | None, int | None]:
    """Modelled times by ExecuTorch and here; None where a program is refused."""
    times: list[int | None] = []
    for planner in (BankedGreedy(target), partial(arenaplan.executorch.plan_memory, target=target)):
        try:
            result = planner(ALIGNMENT, specs, graph, None, 0)
        except (BankPlacementError, CapacityError):
            result = None
        for spec in specs:
            spec.realign(ALIGNMENT)
        times.append(None if result is None else modelled(result, graph))
    return times[0], times[1]


def banks(console: Console) -> None:
    headings = [f"{share:.0%} fast" for share in FAST]
    table = Table(
        *("program", "tensors", *headings, "tight: ExecuTorch", "arenaplan", "CPU s"),
        title="Modelled time by ExecuTorch / by arenaplan",
    )
    for name, specs, graph in (*steps(), *programs()):
        began = time.process_time()
        whole = max(arenaplan.executorch.plan_memory(ALIGNMENT, specs, graph, None).bufsizes)
        ratios, tight = [], [0, 0]
        for share in FAST:
            fast = int(whole * share) // ALIGNMENT * ALIGNMENT
            for slow in (2 * whole, int((whole - fast) * (1 + SLACK))):
                target = TargetMemoryMap([Bank("fast", fast, 1), Bank("slow", slow, 2)])
                theirs, ours = in_banks(specs, graph, target)
                if slow == 2 * whole:
                    ratios.append(f"{theirs / ours:.2f}" if theirs and ours else "-")
                else:
                    tight = [tight[0] + (theirs is not None), tight[1] + (ours is not None)]
        seconds = f"{time.process_time() - began:.1f}"
        table.add_row(name, str(len(specs)), *ratios, *(f"{k} of {len(FAST)}" for k in tight), seconds)
    console.print(table)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    console = Console(width=160)
    several_methods(console)
    banks(console)


if __name__ == "__main__":
    main()
