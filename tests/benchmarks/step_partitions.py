"""Saved and repeated steps of PyTorch's partitioner, as schedules that this project can price.

    python -m tests.benchmarks.step_partitions NETWORK BUDGET...

Runs with an interpreter that has PyTorch and what this project needs, from the root of the tree, and prints
JSON. A graph becomes a function in PyTorch, of which the joint graph of forward and backward pass is captured
on tensors without values. `min_cut_rematerialization_partition` cuts that in two for each budget of
activations (`torch._functorch.config.activation_memory_budget`; solver and estimates as they are preset).

Each call of an operator is a step that reads and writes tensors, views taken as the tensor that they show.
Weights, inputs and constants are there throughout; a gradient is applied at once. A schedule of PyTorch's are
the calls of the forward part, then those of the backward part.
"""

from __future__ import annotations

import copy
import json
import operator
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._functorch import config
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_arg
from torch.utils.flop_counter import flop_registry

from examples.resnet50 import resnet50
from solver.documents import load_graph
from solver.executor.initial import initial_value
from solver.graph import DType, Role, TrainableGraph
from tests.benchmarks.eager_operators import OPERATORS
from tests.support.other_networks import gpt

__all__ = ["NETWORKS", "partitions"]

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


#: Each gives a graph.
NETWORKS: Mapping[str, Callable[[], TrainableGraph]] = {
    "mobilenet_v2": lambda: load_graph((_EXAMPLES / "mobilenet_v2.json").read_bytes(), batch=10),
    "resnet50": lambda: resnet50(16).graph,
    "gpt": gpt,
}


def partitions(graph: TrainableGraph, budgets: Sequence[float]) -> dict[str, Any]:
    """The steps of the joint graph, and for each budget those that PyTorch runs, in its order."""
    joint, results = _joint(graph)
    found: dict[str, Any] = {}
    for budget in budgets:
        module = copy.deepcopy(joint)
        with config.patch(activation_memory_budget=budget):
            parts = min_cut_rematerialization_partition(module, None, num_fwd_outputs=results)
        steps = _steps(module.graph, results)
        found = found or steps | {"schedules": []}
        assert found["steps"] == steps["steps"], "each budget cuts the same graph"
        number = {name: t for t, name in enumerate(steps["steps"])}
        calls = [node.name for part in parts for node in part.graph.nodes if node.op == "call_function"]
        sequence = [number[name] for name in calls if name in number]
        found["schedules"].append({"budget": budget, "sequence": sequence})
    return found


def _joint(graph: TrainableGraph) -> tuple[Any, int]:
    """The joint graph of forward and backward pass, and how many results the forward pass has."""
    trained = [graph.operands[name] for name in graph.trainable]
    others = [o for o in graph.operands.values() if o.role is not Role.INTERMEDIATE and o not in trained]
    # Shapes and axes are read while the graph is captured, so they need values.
    known = {o.id: initial_value(o) for o in others if o.role is Role.CONSTANT and o.dtype is DType.INT64}
    fed = [o for o in (*trained, *others) if o.id not in known]
    captured: list[tuple[Any, int]] = []
    loss_name = graph.loss
    assert loss_name is not None

    def loss(*tensors: Any) -> Any:
        run = dict(zip([o.id for o in fed], tensors, strict=True)) | known
        for operation in graph.operations:
            made = OPERATORS[operation.type](torch, operation, run)
            run |= zip(operation.outputs, made if isinstance(made, tuple) else (made,), strict=True)
        return run[loss_name]

    def keep(module: Any, inputs: Any, *, num_fwd_outputs: int, **_: Any) -> Any:
        captured.append((copy.deepcopy(module), num_fwd_outputs))
        return min_cut_rematerialization_partition(module, inputs, num_fwd_outputs=num_fwd_outputs)

    with FakeTensorMode():
        given = [torch.empty(o.shape, dtype=getattr(torch, o.dtype.value)) for o in fed]
        for tensor in given[: len(trained)]:
            tensor.requires_grad_()
        aot_function(loss, fw_compiler=lambda module, _: module, partition_fn=keep)(*given)
    return captured[0]


def _steps(graph: Any, results: int) -> dict[str, Any]:
    """Calls of operators, with the tensors that they read and write by number; bytes, and products."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    kept = set(output.args[0][:results])
    fixed, size = 0, list[int]()
    #: The tensors that a call reads where it is given a node.
    shown: dict[Any, list[int]] = {}
    backward: set[Any] = set()
    found: dict[str, Any] = {"steps": [], "reads": [], "writes": [], "products": [], "again": []}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op in ("placeholder", "get_attr"):
            shown[node] = []
            fixed += value.nbytes if isinstance(value, torch.Tensor) else 0
            if "tangents" in node.name:
                backward.add(node)
        elif node.op == "call_function" and (node.target is operator.getitem or _is_view(node)):
            source = node.args[0]
            one_of = node.target is operator.getitem and not _is_view(source)
            shown[node] = [shown[source][node.args[1]]] if one_of else shown[source]
        elif node.op == "call_function":
            shown[node] = []
            for tensor in value if isinstance(value, tuple | list) else (value,):
                shown[node].append(len(size))
                size.append(0 if tensor is None else tensor.nbytes)
            found["steps"].append(node.name)
            found["reads"].append(sorted({v for source in node.all_input_nodes for v in shown[source]}))
            found["writes"].append(shown[node])
            found["products"].append(_products(node))
            found["again"].append(not backward.intersection(node.all_input_nodes))
        if backward.intersection(node.all_input_nodes):
            backward.add(node)
        if node in kept:
            # What the forward pass returns stays, however often it is made.
            for v in shown[node]:
                fixed, size[v] = fixed + size[v], 0
    return found | {"size": size, "fixed": fixed}


def _is_view(node: Any) -> bool:
    """Whether a call shows another tensor's bytes."""
    return bool(node.target.is_view) or node.target.name() == "aten::_unsafe_view"


def _products(node: Any) -> int:
    """Floating-point operations, as PyTorch counts them."""
    count = flop_registry.get(node.target.overloadpacket)
    if count is None:
        return 0
    arguments, options = map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    return int(count(*arguments, **options, out_val=node.meta["val"]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(partitions(NETWORKS[sys.argv[1]](), [float(budget) for budget in sys.argv[2:]])))
