"""Memory plans for ExecuTorch's programs. Needs ExecuTorch: the extra ``executorch``.

from executorch.exir import ExecutorchBackendConfig
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite
from executorch.exir.passes import MemoryPlanningPass

suite = MemoryPlanningAlgorithmSuite([arenaplan.executorch.plan_memory])
program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(suite)))

`ProgramMemoryPlanningPass` plans all methods of a program together, so that they share buffers and weights:

config = ExecutorchBackendConfig(memory_planning_pass=arenaplan.executorch.ProgramMemoryPlanningPass())
"""

from typing import TYPE_CHECKING, Any

from solver.errors import OptionsError
from solver.exporters.executorch import plan_memory
from solver.exporters.executorch_methods import ProgramMemoryPlanningPass
from solver.removed import removed

__all__ = ["ProgramMemoryPlanningPass", "plan_memory"]

if not TYPE_CHECKING:  # type checkers know the names above alone

    def __getattr__(name: str) -> Any:
        sentence = removed(f"executorch.{name}")
        if sentence is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        raise OptionsError(sentence, path=(name,))
