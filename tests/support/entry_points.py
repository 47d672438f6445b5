"""Small deployments for what reads plans: reports, pictures, exporters, commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from solver.graph import TrainableGraph, evaluation, inference
from solver.pipeline import EntryRequest, plan_deployment
from solver.plan import Deployment, PlanOptions, RequestedOptions
from solver.plan.deployment import Purpose
from tests.support.graphs import chain

__all__ = ["requested", "small_deployment", "trained_and_used"]

_SUBJECTS: Mapping[str, Callable[[TrainableGraph], TrainableGraph]] = {
    "train": lambda graph: graph,
    "infer": inference,
    "evaluate": evaluation,
}


def requested(
    name: str,
    graph: TrainableGraph,
    purpose: Purpose = "train",
    model: str = "net",
    options: PlanOptions | None = None,
) -> EntryRequest:
    """An entry point of a training graph, for this purpose."""
    subject = _SUBJECTS[purpose](graph)
    return EntryRequest(name, model, purpose, subject, RequestedOptions(options or PlanOptions()))


def trained_and_used(graph: TrainableGraph, *purposes: Purpose) -> Deployment:
    """A deployment of a training graph with an entry point for each purpose, which it is named after."""
    return plan_deployment("net", [requested(purpose, graph, purpose) for purpose in purposes])


def small_deployment() -> Deployment:
    """Training of a batch of six, inference of one example, evaluation of two; Adam's variables are held."""
    entries = [
        requested("train", chain((8, 6, 4), 6, optimizer="Adam"), "train", options=PlanOptions(batch=6)),
        requested("infer", chain((8, 6, 4), 1, optimizer="Adam"), "infer", options=PlanOptions(batch=1)),
        requested(
            "evaluate", chain((8, 6, 4), 2, optimizer="Adam"), "evaluate", options=PlanOptions(batch=2)
        ),
    ]
    return plan_deployment("net", entries)
