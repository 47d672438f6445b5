"""Memory plans for ExecuTorch's programs. Needs the extra ``arenaplan[executorch]``.

from executorch.exir import ExecutorchBackendConfig
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
from executorch.exir.passes import MemoryPlanningPass

suite = MemoryPlanningAlgorithmSuite([arenaplan.executorch.plan_memory])
program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(suite)))
"""

from solver.exporters.executorch import plan_memory

__all__ = ["plan_memory"]
