"""Deployments of small networks: entry points that train, infer and evaluate, with batches of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from solver.graph import TrainableGraph, evaluation, inference
from solver.pipeline import EntryRequest, plan_deployment, reference_of
from solver.plan import Deployment, Plan, PlanOptions, RequestedOptions, Tie
from solver.program import Program
from solver.verify import held_references
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual, tower

__all__ = ["MODELS", "classifier", "deployed", "entries", "held_reference", "with_plan"]

#: A network, for a batch.
Network = Callable[[int], TrainableGraph]


def classifier(batch: int = 4) -> TrainableGraph:
    """Cross entropy with classes that the graph computes: one that is no class stops a step halfway."""
    s = Sketch("classifier")
    h = s.op("Gemm", [s.input("x", batch, 3), s.parameter("w", 5, 3)], "h", transB=1)
    classes = s.op("Cast", [s.op("Abs", [s.label("t", batch)], "positive")], "classes", to=7)
    s.op("CategoricalCrossEntropy", [h, classes], "loss", from_logits=1, sparse=1)
    return s.graph(optimizer="Adam")


#: Networks with bias and momentum, tied weights, running statistics, and dropout.
MODELS: Mapping[str, Network] = {
    "chain": lambda batch: chain(batch=batch, optimizer="SGD", momentum=0.9),
    "residual": lambda batch: residual(batch=batch),
    "convolutional": lambda batch: convolutional(batch=batch),
    "batch normalised": lambda batch: batch_normalised(batch=batch),
    "dropout": lambda batch: tower(2, rows=batch, width=6, dropout=True, optimizer="Adam"),
}


def entries(network: Network, model: str = "m", prefix: str = "") -> list[EntryRequest]:
    """Training on 4 examples, inference of one, and evaluation of two."""
    return [
        EntryRequest(f"{prefix}train", model, "train", network(4)),
        EntryRequest(f"{prefix}infer", model, "infer", inference(network(1))),
        EntryRequest(f"{prefix}evaluate", model, "evaluate", evaluation(network(2))),
    ]


def deployed(
    requests: Iterable[EntryRequest], ties: Sequence[Tie] = (), **options: Any
) -> tuple[dict[str, TrainableGraph], Deployment]:
    """The graph of each entry point, and the deployment with these options."""
    requests = [*requests]
    if options:
        requested = RequestedOptions(PlanOptions(**options))
        requests = [replace(request, requested=requested) for request in requests]
    subjects = [(request.name, request.subject) for request in requests]
    graphs = {name: graph for name, graph in subjects if isinstance(graph, TrainableGraph)}
    return graphs, plan_deployment("device", requests, ties)


def held_reference(graphs: Mapping[str, TrainableGraph], deployment: Deployment, k: int) -> Program:
    """The reference program of an entry point, with what it holds for others."""
    pairs = [(entry_point.plan, graphs[entry_point.name]) for entry_point in deployment.entry_points]
    programs = [reference_of(graph, plan.options) for plan, graph in pairs]
    return held_references(deployment, programs)[k]


def with_plan(deployment: Deployment, name: str, plan: Plan) -> Deployment:
    """The deployment with another plan for one of its entry points."""
    return replace(
        deployment,
        entry_points=tuple(
            replace(entry_point, plan=plan) if entry_point.name == name else entry_point
            for entry_point in deployment.entry_points
        ),
    )
