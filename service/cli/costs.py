"""Costs of steps on the command line: measured here, read from a file, or written to one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from service.cli.console import (
    print_json,
    print_line,
    read_document,
    read_options,
    reporting,
    write_document,
)
from service.cli.models import ModelFile, read_model_file
from solver import documents, pipeline
from solver.errors import OptionsError
from solver.executor import measured_costs
from solver.pipeline import BlockProgram, TrainableGraph
from solver.plan import Costs, PlanOptions

__all__ = ["chosen", "write"]

#: Values of `--costs` beside the name of a file.
_MEASURED, _ROOFLINE = "measured", "roofline"

_NO_CHOICES: Final[Mapping[str, Any]] = {}


def chosen(
    fields: Mapping[str, Any], file: ModelFile, choices: Mapping[str, Any] = _NO_CHOICES
) -> dict[str, Any]:
    """The fields of an options document, in which the costs take the place of the text `costs`.

    `choices` are those for models of other tools.
    """
    options = dict(fields)
    text = options.pop("costs", _ROOFLINE)
    if text == _MEASURED:
        graph = _graph(file, options, choices)
        costs = _measured(graph, pipeline.free_measures(graph, read_options(options)), 5)
    elif text != _ROOFLINE:
        with reporting(as_json=False, document=text):
            costs = documents.load_costs(read_document(Path(text)))
    else:
        return options
    return {**options, "costs": {"about": costs.about, "nanoseconds": dict(costs.nanoseconds)}}


def write(
    model: Path,
    fields: Mapping[str, Any],
    output: Path,
    repeats: int,
    choices: Mapping[str, Any] = _NO_CHOICES,
    *,
    modelled: bool,
    as_json: bool,
) -> None:
    """Write the time of each step of `model`: measured here `repeats` times, or by the roofline.

    `fields` are those of an options document, `choices` those for models of other tools.
    """
    requested = read_options(fields)
    options = requested.options
    if not pipeline.checked(options).capabilities.recompute:
        raise OptionsError(
            f"Target {options.target!r} runs each step once, whatever it takes.",
            remedy="Leave it out: costs are for plans that decide by them.",
            path=("target",),
        )
    graph = _graph(read_model_file(model), fields, choices)
    options = pipeline.free_measures(graph, requested)
    costs = pipeline.modelled_costs(graph, options) if modelled else _measured(graph, options, repeats)
    write_document(output, documents.dump_costs(costs, indent=2) + b"\n")
    if str(output) != "-":
        total = sum(cost for _, cost in costs.nanoseconds)
        if as_json:
            print_json({"steps": len(costs.nanoseconds), "nanoseconds": total, "about": costs.about})
        else:
            count = len(costs.nanoseconds)
            print_line(f"{count:,} steps, {total / 1e6:,.3f} ms an iteration ({costs.about}).")


def _graph(file: ModelFile, fields: Mapping[str, Any], choices: Mapping[str, Any]) -> TrainableGraph:
    network = file.read(fields.get("batch"), choices)
    if isinstance(network, BlockProgram):
        raise OptionsError(
            f"{network.name!r} is a program of explicit operations, which have no kernels to be timed here.",
            remedy="Give a graph.",
            path=("costs",),
        )
    return network


def _measured(graph: TrainableGraph, options: PlanOptions, repeats: int) -> Costs:
    """Time the steps that a plan under these options has, in a plan without a schedule.

    What is rewritten depends on options that schedule as well, so it is decided with all of them first.
    Raises OptionsError for the target `c`, whose steps are one call.
    """
    if options.target == "c":
        raise OptionsError(
            "Steps of a plan for target 'c' cannot be timed one by one: compiled C runs them in one call.",
            remedy="Leave out --costs; or write modelled times with `arenaplan costs graph.json --target c"
            " --roofline -o costs.json`, edit them, and give --costs costs.json.",
            path=("costs",),
        )
    prepared = pipeline.start_of(graph, options).prepared
    assert prepared is not None  # a graph is
    plain = PlanOptions(
        target=options.target,
        alignment=options.alignment,
        scratch_budget=prepared.scratch_budget,
        update=options.update,
        in_place=options.in_place,
        sub_ranges=options.sub_ranges,
        storage=options.storage,
    )
    return measured_costs(prepared.graph, pipeline.plan(prepared.graph, plain), repeats=repeats)
