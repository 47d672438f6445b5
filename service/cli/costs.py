"""Costs of steps on the command line: measured here, or modelled, and written to a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.cli.answers import answer, read_source
from service.cli.console import print_json, print_line, read_options, write_document
from solver import documents, pipeline
from solver.errors import OptionsError
from solver.requests import Request

__all__ = ["write"]


def write(
    model: Path,
    fields: Mapping[str, Any],
    output: Path,
    repeats: int,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
) -> None:
    """Write the time of each step of `model`: measured here `repeats` times, or without by the roofline.

    `fields` are those of an options document, `choices` those for models of other tools.
    """
    requested, source = read_options(fields), read_source(model, choices)
    if not pipeline.checked(requested.options).capabilities.recompute:
        raise OptionsError(
            f"Target {requested.options.target!r} runs each step once, whatever it takes.",
            remedy="Leave it out: costs are for plans that decide by them.",
            path=("target",),
        )
    costs = answer(Request("costs", {source.name: source}, requested, repeats=repeats), as_json=as_json)
    write_document(output, documents.dump_costs(costs, indent=2) + b"\n")
    if str(output) == "-":
        return
    count, total = len(costs.nanoseconds), sum(cost for _, cost in costs.nanoseconds)
    if as_json:
        print_json({"steps": count, "nanoseconds": total, "about": costs.about})
    else:
        print_line(f"{count:,} steps, {total / 1e6:,.3f} ms an iteration ({costs.about}).")
