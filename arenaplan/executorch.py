"""Memory plans for ExecuTorch's programs. Needs ExecuTorch: the extra ``executorch``.

from executorch.exir import ExecutorchBackendConfig
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
from executorch.exir.passes import MemoryPlanningPass

suite = MemoryPlanningAlgorithmSuite([arenaplan.executorch.plan_memory])
program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(suite)))

`ProgramMemoryPlanningPass` plans all methods of a program together, so that they share buffers and weights:

config = ExecutorchBackendConfig(memory_planning_pass=arenaplan.executorch.ProgramMemoryPlanningPass())

Both take a `TargetMemoryMap` as `target`: banks of several memories, with capacities.

`find_stale_read(edge, algorithm, inputs)` runs a program in the memory that any algorithm plans, and names
the instruction that reads what was not written for it.
"""

from solver.exporters.executorch import plan_memory
from solver.exporters.executorch_methods import ProgramMemoryPlanningPass
from solver.exporters.executorch_runs import StaleRead, find_stale_read

__all__ = ["ProgramMemoryPlanningPass", "StaleRead", "find_stale_read", "plan_memory"]
