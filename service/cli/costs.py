"""Costs of steps on the command line: measured here, read from a file, or written to one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.cli.console import print_json, print_line, read_document, reporting, write_document
from service.cli.models import read_model
from solver import documents, pipeline
from solver.errors import OptionsError
from solver.executor import measured_costs
from solver.pipeline import BlockProgram, TrainableGraph
from solver.plan import Costs

__all__ = ["chosen", "write"]

#: What `--costs` takes beside a file.
_MEASURED, _ROOFLINE = "measured", "roofline"

#: Options that schedule, which have no say in what a step takes.
_SCHEDULING = frozenset({"capacity", "recompute", "order", "tiers", "parallelism", "workers", "costs"})


def chosen(
    given: Mapping[str, Any],
    document: bytes,
    model: Path,
    choices: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The fields of an options document, with the costs that its text `costs` stands for in its place.

    `choices` are those for models of other tools.
    """
    found = dict(given)
    text = found.pop("costs", _ROOFLINE)
    if text == _MEASURED:
        found["costs"] = _fields(_measured(found, document, model, 5, choices))
    elif text != _ROOFLINE:
        with reporting(as_json=False, document=text):
            found["costs"] = _fields(documents.load_costs(read_document(Path(text))))
    return found


def write(
    model: Path, given: Mapping[str, Any], output: Path, repeats: int, *, modelled: bool, as_json: bool
) -> None:
    """Write what each step of `model` takes: measured here `repeats` times, or by the roofline."""
    document = read_document(model)
    costs = (
        pipeline.modelled_costs(_graph(document, model, given), documents.load_options(given))
        if modelled
        else _measured(given, document, model, repeats)
    )
    write_document(output, documents.dump_costs(costs, indent=2) + b"\n")
    if str(output) != "-":
        total = sum(cost for _, cost in costs.nanoseconds)
        if as_json:
            print_json({"steps": len(costs.nanoseconds), "nanoseconds": total, "about": costs.about})
        else:
            count = len(costs.nanoseconds)
            print_line(f"{count:,} steps, {total / 1e6:,.3f} ms an iteration ({costs.about}).")


def _fields(costs: Costs) -> dict[str, Any]:
    return {"about": costs.about, "nanoseconds": dict(costs.nanoseconds)}


def _graph(
    document: bytes,
    model: Path,
    given: Mapping[str, Any],
    choices: Mapping[str, Any] = MappingProxyType({}),
) -> TrainableGraph:
    found = read_model(document, model, given.get("batch"), choices)
    if isinstance(found, BlockProgram):
        raise OptionsError(
            f"{found.name!r} is a program of explicit operations, which have no kernels to be timed here.",
            remedy="Give a graph.",
            path=("costs",),
        )
    return found


def _measured(
    given: Mapping[str, Any],
    document: bytes,
    model: Path,
    repeats: int,
    choices: Mapping[str, Any] = MappingProxyType({}),
) -> Costs:
    """Plan without a schedule, and time the steps of that plan."""
    plain = {name: value for name, value in given.items() if name not in _SCHEDULING}
    graph = _graph(document, model, given, choices)
    return measured_costs(graph, pipeline.plan(graph, documents.load_options(plain)), repeats=repeats)
