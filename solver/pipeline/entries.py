"""The programs that entry points run, as ``infer:batch=1`` of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from solver.errors import BatchError, LossError, OptionsError, PlanError
from solver.graph import TrainableGraph, evaluation, inference
from solver.pipeline.deployment import EntryRequest
from solver.plan import MAX_ENTRIES, EntrySpec, RequestedOptions, refuse_ranges
from solver.plan.deployment import Deployment, Purpose

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["Networks", "entry_graphs", "entry_requests", "entry_subject"]

#: Networks by name, each read for a batch, or for its own.
Networks = Mapping[str, "Callable[[int | None], TrainableGraph | BlockProgram]"]


def entry_requests(
    networks: Networks, specs: Sequence[EntrySpec], requested: RequestedOptions
) -> list[EntryRequest]:
    """The entry points to plan, each with the graph or program that it runs.

    Without specs each network is one entry point, which is called as it is, for what it can do first: train,
    evaluate, infer. Raises OptionsError for a model that is not there, or that has no such entry point.
    """
    refuse_ranges(requested.ranges, "Each entry point")
    batch = requested.options.batch
    specs = specs or [
        EntrySpec(_first_purpose(read(batch)), model, name=model) for model, read in networks.items()
    ]
    if len(specs) > MAX_ENTRIES:
        raise OptionsError(
            f"There are {len(specs):,} entry points; {MAX_ENTRIES:,} are the most.",
            remedy="Plan them as several deployments.",
            path=("entries",),
        )
    requests = [_request(networks, spec, requested, k) for k, spec in enumerate(specs)]
    idle = [model for model in networks if model not in {request.model for request in requests}]
    if idle:
        raise OptionsError(
            f"Model {idle[0]!r:.200} has no entry point.",
            remedy=f"Name one of it, as {idle[0]:.200}.infer, or leave the model out.",
            path=("entries",),
        )
    return requests


def _request(networks: Networks, spec: EntrySpec, requested: RequestedOptions, k: int) -> EntryRequest:
    model = spec.model or (next(iter(networks)) if len(networks) == 1 else "")
    if model not in networks:
        of = f"model {model!r:.200}, which is not there" if model else "no model, and there are several"
        known = ", ".join(f"{name}.{spec.purpose}" for name in networks)
        raise OptionsError(
            f"Entry point {spec.purpose!r} is of {of}.",
            remedy=f"Write one of {known:.500}.",
            path=("entries", k),
        )
    try:
        network = networks[model](spec.batch or requested.options.batch)
    except BatchError as error:
        if spec.batch:
            error.path = ("entries", k, "batch")
        raise
    try:
        subject = entry_subject(network, spec.purpose)
    except (OptionsError, LossError) as error:
        raise OptionsError(
            f"Entry point {spec.purpose!r} of {model!r:.200}: {error.message}",
            remedy=error.remedy,
            path=("entries", k),
        ) from error
    name = spec.name or (spec.purpose if len(networks) == 1 else f"{model}.{spec.purpose}")
    # A program has no batch of its own: that of the options is for the graphs beside it.
    is_graph = isinstance(network, TrainableGraph)
    if spec.batch and not is_graph:
        raise OptionsError(
            f"Entry point {name!r:.200} is a program of explicit operations, which has no batch.",
            remedy="Leave out its batch.",
            path=("entries", k, "batch"),
        )
    batch = spec.batch or (requested.options.batch if is_graph else None)
    return EntryRequest(name, model, spec.purpose, subject, requested.having(batch=batch))


def entry_subject(network: TrainableGraph | BlockProgram, purpose: Purpose) -> TrainableGraph | BlockProgram:
    """The graph or program that an entry point of this purpose runs.

    Raises OptionsError for a purpose that the network does not have, LossError as `inference` does.
    """
    if not isinstance(network, TrainableGraph):
        if purpose == "run":
            return network
        raise OptionsError(
            f"{network.name!r} is a program of explicit operations: it is run as it is.",
            remedy="Name its entry point run.",
        )
    if purpose == "run":
        raise OptionsError(
            f"{network.name!r} is a graph, which is trained, evaluated, or used to infer.",
            remedy="Name its entry point train, evaluate or infer.",
        )
    if purpose == "train" and not network.trainable:
        raise OptionsError(
            f"Nothing of {network.name!r} is trained.",
            remedy="Name a loss and what is trained, or an entry point infer or evaluate.",
        )
    if purpose == "evaluate":
        return evaluation(network)
    return inference(network) if purpose == "infer" else network


def entry_graphs(
    networks: Networks, deployment: Deployment, *, skips_programs: bool = False
) -> dict[str, TrainableGraph]:
    """The graph that each entry point runs, by name, from the networks of the deployment by theirs.

    One network alone may have any name. Raises OptionsError for one that is not there, or that cannot do what
    the entry point is for; PlanError for an entry point of explicit operations, if it is not to be left out.
    """
    names = dict.fromkeys(entry_point.model for entry_point in deployment.entry_points)
    if len(names) == len(networks) == 1:
        networks = dict(zip(names, networks.values(), strict=True))
    for name in (*names, *networks):
        if name not in networks or name not in names:
            where = "there" if name not in networks else "of the plan"
            raise OptionsError(
                f"Model {name!r:.200} is not {where}.",
                remedy=f"Give each model of the plan by its name: {', '.join(names):.500}.",
            )
    graphs: dict[str, TrainableGraph] = {}
    for entry_point in deployment.entry_points:
        network = networks[entry_point.model](entry_point.plan.options.batch)
        try:
            subject = entry_subject(network, entry_point.purpose)
        except (OptionsError, LossError) as error:
            message = f"Entry point {entry_point.name!r}: {error.message}"
            raise OptionsError(
                message, remedy="Give the model that the plan was made from, and its --loss."
            ) from error
        if isinstance(subject, TrainableGraph):
            graphs[entry_point.name] = subject
        elif not skips_programs:
            raise PlanError(
                f"Entry point {entry_point.name!r} runs explicit operations, whose kernels are not here.",
                remedy="Run it from Python, with a function for each operation.",
            )
    return graphs


def _first_purpose(network: TrainableGraph | BlockProgram) -> Purpose:
    if not isinstance(network, TrainableGraph):
        return "run"
    return "train" if network.trainable else "infer" if network.loss is None else "evaluate"
