"""Plans the memory of training neural networks, proves the plan, and trains in it: what programs import.

    import arenaplan

    plan = arenaplan.plan("model.json", capacity="24 MiB")       # or a graph, a program, a model of a Tape
    print(plan.arena_bytes)

    captured = arenaplan.torch.graph(module, (images,), loss="cross-entropy")
    for loss in captured.train(batches):                         # in the planned arena
        ...

Everything is loaded when it is first asked for, so that importing this package takes milliseconds. The
packages behind it, `solver`, `service` and `clients`, have generic names: where something else of that name
comes first in Python's path, importing this package says so.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arenaplan.hidden_packages import NEIGHBOURS, hidden

if TYPE_CHECKING:
    from arenaplan import executorch, jax, onnx, torch
    from arenaplan.builder import Model, Tape, Tensor, adam, layers, ops, sgd
    from arenaplan.models import (
        choose_trainable,
        deploy,
        entry_graphs,
        explain,
        load_graph,
        load_plan,
        load_program,
        plan,
        plan_at,
        save,
        tradeoff,
    )
    from clients import AsyncClient, Client
    from solver.errors import (
        ArenaplanError,
        CapacityError,
        DocumentError,
        GraphError,
        InternalError,
        OptionsError,
        PlanError,
        ProblemError,
    )
    from solver.executor import Trainer, synthetic_batch, validate
    from solver.graph import evaluation, inference
    from solver.pipeline import BlockProgram, TrainableGraph
    from solver.plan import Deployment, Plan, PlanOptions
    from solver.reports.validation import ValidationReport
    from solver.reports.verdict import TradeOff, Verdict

__all__ = [
    "ArenaplanError",
    "AsyncClient",
    "BlockProgram",
    "CapacityError",
    "Client",
    "Deployment",
    "DocumentError",
    "GraphError",
    "InternalError",
    "Model",
    "OptionsError",
    "Plan",
    "PlanError",
    "PlanOptions",
    "ProblemError",
    "Tape",
    "Tensor",
    "TradeOff",
    "TrainableGraph",
    "Trainer",
    "ValidationReport",
    "Verdict",
    "adam",
    "choose_trainable",
    "deploy",
    "entry_graphs",
    "evaluation",
    "executorch",
    "explain",
    "inference",
    "jax",
    "layers",
    "load_graph",
    "load_plan",
    "load_program",
    "onnx",
    "ops",
    "plan",
    "plan_at",
    "save",
    "sgd",
    "synthetic_batch",
    "torch",
    "tradeoff",
    "validate",
]

#: The names of each module; a name of no module is a module itself.
_WHERE = {
    "arenaplan.builder": "Model Tape Tensor adam layers ops sgd",
    "arenaplan.models": "choose_trainable deploy entry_graphs explain load_graph load_plan load_program plan"
    " plan_at save tradeoff",
    "clients": "AsyncClient Client",
    "solver.errors": "ArenaplanError CapacityError DocumentError GraphError InternalError"
    " OptionsError PlanError ProblemError",
    "solver.executor": "Trainer synthetic_batch validate",
    "solver.graph": "evaluation inference",
    "solver.pipeline": "BlockProgram TrainableGraph",
    "solver.plan": "Deployment Plan PlanOptions",
    "solver.reports.validation": "ValidationReport",
    "solver.reports.verdict": "TradeOff Verdict",
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names.split()}

_HIDDEN = hidden(Path(__file__).parent.parent, NEIGHBOURS)
if "solver" in _HIDDEN:
    raise ImportError(_HIDDEN["solver"], name="solver")
for _sentence in _HIDDEN.values():
    warnings.warn(_sentence, RuntimeWarning, stacklevel=2)


if not TYPE_CHECKING:  # a checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name not in _MODULE_OF:
            return importlib.import_module(f"{__name__}.{name}")
        module = _MODULE_OF[name]
        if module in _HIDDEN:
            raise ImportError(_HIDDEN[module], name=module)
        value = globals()[name] = getattr(importlib.import_module(module), name)
        return value


def __dir__() -> list[str]:
    return list(__all__)
