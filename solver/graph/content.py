"""A graph as plain JSON values, shapes concrete: what graph documents carry and digests are taken over."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from solver.canonical import digest_of, word_for
from solver.graph.storage import Storage
from solver.graph.types import (
    Initializer,
    Operand,
    Operation,
    OptimizerSpec,
    Role,
    TrainableGraph,
    TrainingRules,
)

__all__ = ["SCHEMES", "declared_operands", "graph_content", "graph_digest", "scheme_content"]

#: The schemes of first values, with the fields of `Initializer` that each takes.
SCHEMES: Final[Mapping[str, tuple[str, ...]]] = {
    "zeros": (),
    "ones": (),
    "constant": ("value",),
    "normal": ("scale", "seed"),
    "uniform": ("scale", "seed"),
    "he_normal": ("seed",),
    "glorot_uniform": ("seed",),
}


def graph_digest(graph: TrainableGraph) -> str:
    """SHA-256, in hexadecimal, over everything that decides how the graph trains.

    That is operands with shapes and initializers, operations with the attributes that were given,
    loss, optimizer, trainable set and outputs; not the graph's title. Values enter by their own SHA-256, so
    that large weights are read once and never encoded, and it makes no difference whether they are inline.
    """
    initializers, values = {}, {}
    for operand in declared_operands(graph):
        initializer = operand.initializer
        if initializer is None:
            continue
        if initializer.kind in SCHEMES:
            initializers[operand.id] = scheme_content(initializer)
            continue
        initializers[operand.id] = {"kind": "values", "base64": ""}
        values[operand.id] = _digest_of_values(initializer)
    content = graph_content(graph, initializers)
    return digest_of({**content, "name": "", "values": values})


def _digest_of_values(initializer: Initializer) -> str:
    if initializer.file is not None:
        return initializer.file.sha256
    return hashlib.sha256(initializer.data or b"").hexdigest()


def declared_operands(graph: TrainableGraph) -> list[Operand]:
    """The operands that a document declares. The types of intermediate ones follow from the operations."""
    return [operand for operand in graph.operands.values() if operand.role is not Role.INTERMEDIATE]


def scheme_content(initializer: Initializer) -> dict[str, Any]:
    """The initializer of a named scheme."""
    fields = {name: word_for(getattr(initializer, name)) for name in SCHEMES[initializer.kind]}
    return {"kind": initializer.kind, **fields}


def graph_content(graph: TrainableGraph, initializers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The graph with the content of each `initializers`, by operand. Training rules with their defaults are
    left out, and loss and optimizer where there is none.
    """
    content: dict[str, Any] = {
        "format": "arenaplan.graph",
        "version": 1,
        "name": graph.name,
        "operands": [
            _operand_content(operand, initializers.get(operand.id)) for operand in declared_operands(graph)
        ],
        "operations": [_operation_content(operation) for operation in graph.operations],
        **({} if graph.loss is None else {"loss": graph.loss}),
        **({} if graph.optimizer is None else {"optimizer": _optimizer_content(graph.optimizer)}),
        "trainable": list(graph.trainable),
        "outputs": list(graph.outputs),
    }
    usual = TrainingRules()
    rules = {name: rule for name, rule in asdict(graph.training).items() if rule != getattr(usual, name)}
    return content | {"training": rules} if rules else content


def _optimizer_content(optimizer: OptimizerSpec) -> dict[str, Any]:
    return {
        "type": optimizer.type,
        **{name: word_for(value) for name, value in optimizer.attributes.items()},
    }


def _operand_content(operand: Operand, initializer: Mapping[str, Any] | None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": operand.id,
        "role": operand.role.value,
        "shape": list(operand.shape),
        "dtype": operand.dtype.value,
    }
    if operand.type.storage is not None:
        content["storage"] = storage_content(operand.type.storage)
    return content if initializer is None else content | {"initializer": initializer}


def storage_content(storage: Storage) -> dict[str, Any]:
    """The document of a storage. What has its default is left out."""
    usual = Storage(storage.kind)
    fields = {name: value for name, value in asdict(storage).items() if value != getattr(usual, name)}
    return {"kind": storage.kind, **fields}


def _operation_content(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": operation.id,
        "type": operation.type,
        "inputs": list(operation.inputs),
        "outputs": list(operation.outputs),
    }
    if operation.attributes:
        content["attributes"] = {name: word_for(value) for name, value in operation.attributes.items()}
    return content
