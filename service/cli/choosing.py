"""The choice of what to train within a capacity, on the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from service.cli.answers import answer, asked
from service.cli.console import Exit, print_json, print_line, read_document, write_document
from service.cli.show import print_row
from service.cli.verdicts import print_scratch
from solver import documents
from solver.errors import DocumentError, OptionsError
from solver.reports.rows import row_named
from solver.requests import Request
from solver.verdict import ChosenTrainable

__all__ = ["BYTES", "choose"]

#: In the place of a file: the score of a layer is the bytes of its parameters.
BYTES: Final = "bytes"


def choose(
    model: Path,
    fields: Mapping[str, Any],
    scores: str,
    output: Path | None,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
) -> Exit:
    """Choose the layers to train within the capacity, which is among `fields`, and print them.

    `scores` is `BYTES`, or names a file with a JSON object of numbers by operation or parameter. The plan
    goes to `output`, if there is one. Raises OptionsError for scores that are none.
    """
    source, requested = asked(model, fields, choices)
    by_name = None if scores == BYTES else _read(Path(scores))
    result = answer(Request("trainable", {source.name: source}, requested, scores=by_name))
    if output is not None and result.plan is not None:
        write_document(output, documents.dump_plan(result.plan, indent=2) + b"\n")
    if as_json:
        print_json(_facts(result))
    else:
        budget = requested.options.scratch_budget
        _print(Console(highlight=False), result, budget, is_document=source.importer is None)
    return Exit.OK if result.plan is not None else Exit.TOO_LARGE


def _read(path: Path) -> dict[str, float]:
    try:
        scores = documents.parse_json(read_document(path))
    except DocumentError as error:
        raise OptionsError(
            f"{path.name!r}: {error.message}", remedy=error.remedy, path=("choose_trainable",)
        ) from error
    if not isinstance(scores, dict) or not all(type(each) in (int, float) for each in scores.values()):
        raise OptionsError(
            f"{path.name!r} is no JSON object of numbers.",
            remedy='Write scores by the name of an operation or parameter, as {"conv1": 0.2, "fc": 3}.',
            path=("choose_trainable",),
        )
    return scores


def _facts(result: ChosenTrainable) -> dict[str, Any]:
    return {
        "graph": result.graph,
        "capacity": result.capacity,
        "layers": [layer.name for layer in result.layers],
        "trainable": result.trainable,
        "score": result.score,
        "all_scores": result.all_scores,
        "arena_bytes": None if result.plan is None else result.plan.arena_bytes,
        "scratch_budget": None if result.plan is None else result.plan.options.scratch_budget,
        "exact": result.exact,
        "open": result.open,
        "sets": result.sets,
        "complete": result.complete,
    }


def _print(console: Console, result: ChosenTrainable, budget: int, *, is_document: bool) -> None:
    """Print the choice; `budget` is the scratch budget of the request."""
    title = f"{result.graph} in {result.capacity:,} bytes"
    if result.plan is None:
        certain = "not even" if result.exact else "no plan was found, not even of"
        console.print(escape(f"{title}: {certain} the forward pass with its loss{' fits' * result.exact}."))
    else:
        score = f"a score of {result.score:,.10g} of {result.all_scores:,.10g}"
        console.print(escape(f"{title}: {score}, in {result.plan.arena_bytes:,}. Train"))
        for layer in result.layers:
            console.print(escape(f"  {layer.name} ({', '.join(layer.parameters)}), {layer.score:,.10g}"))
        if not result.layers:
            console.print("  nothing: no layer fits besides")
        print_row(console, row_named("recomputation", result.plan))
        if is_document and result.layers:
            names = json.dumps(list(result.trainable), ensure_ascii=False)
            print_line(f'In the document: "trainable": {names}')
        elif result.layers:
            print_line(f"With the model: --trainable {shlex.quote(','.join(result.trainable))}")
        print_scratch(result.plan, budget)
    if result.exact:
        console.print(
            "No set with a larger score fits with this scratch budget, in any order and with any"
            " recomputation of steps that may run again."
        )
    elif result.open:
        sets = "set has" if result.open == 1 else "sets have"
        console.print(
            f"Open: {result.open:,} {sets} a larger score, and neither a plan nor a proof was found."
        )
    if not result.complete:
        console.print(f"After {result.sets:,} sets the search was cut short: a better one may fit.")
