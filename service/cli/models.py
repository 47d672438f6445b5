"""Models of other tools as graph documents, and the operators that graphs have."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from service.cli.answers import answer, read_source
from service.cli.console import print_json, print_line, write_document
from solver import documents
from solver.errors import DocumentError, OptionsError
from solver.pipeline import TrainableGraph
from solver.plan import PlanOptions, RequestedOptions
from solver.requests import Request

__all__ = ["print_operators", "run_import"]


def run_import(
    path: Path,
    output: Path,
    batch: int | None,
    choices: Mapping[str, Any],
    *,
    as_json: bool,
    server: str | None = None,
) -> None:
    """Write the graph document of a model; weights by where they are, from the folder of `output`.

    The service at `server` imports it without the packages that its format needs here.
    """
    source = read_source(path, choices)
    if source.importer is None:
        source.parsed()
        command = f"arenaplan plan {shlex.quote(str(path))} -o plan.json"
        raise DocumentError(f"{str(path)!r:.200} is a document already.", remedy=f"Plan it: {command}")
    options = RequestedOptions(PlanOptions(batch=batch))
    graph = answer(Request("import", {source.name: source}, options), as_json=as_json, server=server)
    folder = Path.cwd() if str(output) == "-" else output.resolve().parent
    write_document(output, documents.dump_graph(_from(folder, graph), indent=2) + b"\n")
    if str(output) == "-":
        return
    facts = {
        "graph": graph.name,
        "operations": len(graph.operations),
        "trained": len(graph.trainable),
        "parameters": sum(graph.operands[name].type.elements for name in graph.trainable),
    }
    if as_json:
        print_json(facts)
    else:
        print_line(
            f"{graph.name}: {facts['operations']:,} operations, {facts['trained']:,} trained tensors of"
            f" {facts['parameters']:,} elements"
        )


def print_operators(*, onnx: bool, target: str | None, as_json: bool) -> None:
    """Operators by family; or ONNX's that are imported, with those that ONNX itself defines by others.

    Of the target `c` those that have a kernel.
    """
    from solver.importers.operators import onnx_operators, own_operators

    if target not in (None, "c") or (target and onnx):
        raise OptionsError(
            "A target and ONNX have lists of their own."
            if onnx
            else f"The target {target!r:.80} has no list of operators.",
            remedy="Leave out --onnx." if onnx else "Write --target c, or leave it out for all operators.",
            path=("target",),
        )
    operators = onnx_operators() if onnx else own_operators()
    if target is not None:
        from solver.c_kernels import KERNELS

        with_kernels = {family: [n for n in names if n in KERNELS] for family, names in operators.items()}
        operators = {family: names for family, names in with_kernels.items() if names}
    if as_json:
        print_json(operators)
        return
    for family, names in operators.items():
        print_line(f"{family}: {', '.join(names)}")


def _from(folder: Path, graph: TrainableGraph) -> TrainableGraph:
    """The same graph with the places of files as seen from a folder."""
    operands = {}
    for operand in graph.operands.values():
        initializer = operand.initializer
        if initializer is not None and initializer.file is not None and initializer.file.path:
            place = os.path.relpath(Path(initializer.file.path).resolve(), folder)
            operand = replace(
                operand, initializer=replace(initializer, file=replace(initializer.file, path=place))
            )
        operands[operand.id] = operand
    return graph.with_graph(operands=operands)
