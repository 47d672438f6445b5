"""Plans of ExecuTorch's programs by ExecuTorch and here: several methods in one memory.

    python -m tests.benchmarks.executorch_plans

Runs with an interpreter that has executorch, torch and what this project needs.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from rich.console import Console
from rich.table import Table

import arenaplan
from tests.support.executorch_programs import attention, stateful, training_methods

#: Calls in random order of the methods that share counters, and steps of the others.
CALLS, STEPS = 1000, 20


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


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    several_methods(Console(width=160))


if __name__ == "__main__":
    main()
