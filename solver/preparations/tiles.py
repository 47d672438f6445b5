"""The preparation `tile_bytes`: weights that are not trained are cut into tiles of their rows.

    table [151936, 896] ──► table.tile0 [2048, 896], table.tile1 [2048, 896], ...

    Gather(table, ids)              TileGather of each tile, one behind the other
    Gemm(x, table) + bias           Gemm of each tile, Concat, Add
    ProductLogSumExp(x, table)      ProductLogSumExp of each tile, LogAddExp and sums

Steps of its own read a tile, so paging brings tile by tile into fast memory; as nothing writes it, it is
never written back. The derivative of a product's other input is a sum over tiles, in their order, so it
rounds differently. These tiles are operands; the scratch named `tile` of a kernel is not one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar, Final

import numpy as np

from solver.errors import OptionsError
from solver.graph import Initializer, Operand, Operation, Role, TrainableGraph, output_types
from solver.graph.nodes import graph_nodes
from solver.graph.ops import signature
from solver.graph.ops.base import Node
from solver.graph.types import AttributeValue, DType, RowRange, TensorType
from solver.preparations.base import Planner, Preparation, Prepared

__all__ = ["Tiles", "cut_weights", "with_tiles"]

#: The most tiles of all weights together: each adds operations to the graph.
_MOST_TILES: Final = 4096


@dataclass(frozen=True, slots=True)
class Tiles(Preparation):
    """`tile_bytes` is what a tile has at most, None cuts nothing. Raises OptionsError where it is no size."""

    name: ClassVar[str] = "tiles"

    tile_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.tile_bytes is not None and self.tile_bytes < 1:
            raise OptionsError(
                f"A tile of {self.tile_bytes:,} bytes has no row.",
                remedy="Give the bytes of a tile, as 4MiB, or leave it out.",
                path=("tile_bytes",),
            )

    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        graph = with_tiles(prepared.graph, self.tile_bytes)
        return prepared if graph is prepared.graph else replace(prepared, graph=graph)


def with_tiles(graph: TrainableGraph, tile_bytes: int | None) -> TrainableGraph:
    """The graph with frozen weights of more bytes cut into tiles; the very same one where none is.

    A weight is cut if every operation that reads it is one of those above, without a fused activation, a
    scaled bias, or a bias of a head. All tiles but the last have the same number of rows, one at least.
    Raises OptionsError for more than some thousand tiles. Linear in what comes out.
    """
    cuts = cut_weights(graph, tile_bytes)
    if tile_bytes is None or not cuts:
        return graph
    tiles = sum(map(len, cuts.values()))
    if tiles > _MOST_TILES:
        raise OptionsError(
            f"Tiles of {tile_bytes:,} bytes cut the weights into {tiles:,}; {_MOST_TILES:,} are possible.",
            remedy=f"Give at least {tile_bytes * -(-tiles // _MOST_TILES):,} bytes.",
            path=("tile_bytes",),
        )
    return _Cutting(graph, cuts).run()


def cut_weights(graph: TrainableGraph, tile_bytes: int | None) -> dict[str, tuple[Operand, ...]]:
    """The weights that `with_tiles` cuts, each with its tiles; none where `tile_bytes` is None."""
    return {} if tile_bytes is None else dict(_cuts(graph, tile_bytes))


def _cuts(graph: TrainableGraph, tile_bytes: int) -> Iterator[tuple[str, tuple[Operand, ...]]]:
    """Weights to be cut, with their tiles."""
    large = {
        operand.id
        for operand in graph.operands.values()
        if operand.role in (Role.PARAMETER, Role.CONSTANT)
        and operand.id not in graph.trained
        and operand.id not in graph.fixed_types
        and operand.dtype.is_floating
        and operand.type.nbytes > tile_bytes
        and operand.id not in graph.results
    }
    axes: dict[str, set[int | None]] = {}
    if large:
        for node in graph_nodes(graph).values():
            for position, name in enumerate(node.operation.inputs):
                if name in large:
                    axes.setdefault(name, set()).add(_axis(node, position))
    for name, axes_of_readers in axes.items():
        axis = next(iter(axes_of_readers))
        if len(axes_of_readers) == 1 and axis is not None:
            tiles = _tiles(graph.operands[name], axis, tile_bytes)
            if len(tiles) > 1:
                yield name, tiles


def _axis(node: Node, position: int) -> int | None:
    """The axis along which an input may be cut; None where the operation takes it whole."""
    operation, attributes = node.operation, node.attributes
    if operation.type not in _CUT or attributes.get("activation", "None") != "None":
        return None
    if operation.type == "Gemm" and node.has_input(2) and attributes["beta"] != 1:
        return None
    if operation.type == "MatMul" and len(node.input(0).shape) < 2:
        return None
    if operation.type == "ProductLogSumExp" and node.has_input(3):
        return None
    return signature(operation.type).stored_axis(node, position)


def _tiles(operand: Operand, axis: int, tile_bytes: int) -> tuple[Operand, ...]:
    rows = operand.shape[axis]
    most = max(1, tile_bytes // max(1, operand.type.nbytes // rows))
    size = -(-rows // -(-rows // most))
    first = operand.first
    if first.file is not None and first.file.nbytes is None:
        first = replace(first, file=replace(first.file, nbytes=operand.type.nbytes))
    tiles = []
    for number, start in enumerate(range(0, rows, size)):
        shape = (*operand.shape[:axis], min(size, rows - start), *operand.shape[axis + 1 :])
        type_ = TensorType(shape, operand.dtype, operand.type.storage)
        initializer = replace(first, rows=RowRange(axis, start, rows))
        tiles.append(Operand(f"{operand.id}.tile{number}", type_, operand.role, initializer))
    return tuple(tiles)


class _Cutting:
    """A graph being built, with tiles in place of the weights in `cuts`: operands and operations so far."""

    def __init__(self, graph: TrainableGraph, cuts: Mapping[str, tuple[Operand, ...]]) -> None:
        self._graph = graph
        self._names = {*graph.operands, *(operation.id for operation in graph.operations)}
        self._tiles = {
            name: [replace(tile, id=self._name(tile.id)) for tile in tiles] for name, tiles in cuts.items()
        }
        sources = [o for o in graph.operands.values() if o.role is not Role.INTERMEDIATE and o.id not in cuts]
        tiles = [tile for tiles in self._tiles.values() for tile in tiles]
        self.operands = {operand.id: operand for operand in (*sources, *tiles)}
        self.operations: list[Operation] = []

    def run(self) -> TrainableGraph:
        for operation in self._graph.operations:
            position = next((i for i, name in enumerate(operation.inputs) if name in self._tiles), None)
            if position is None:
                self.add(operation)
                continue
            attributes = signature(operation.type).normalise(operation)
            _CUT[operation.type](self, operation, self._tiles[operation.inputs[position]], attributes)
        # A graph lists operands that no operation computes first.
        sources = {name: o for name, o in self.operands.items() if o.role is not Role.INTERMEDIATE}
        return self._graph.with_graph(operands=sources | self.operands, operations=tuple(self.operations))

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)
        types = output_types(operation, self.operands)
        for name, type_ in zip(operation.outputs, types, strict=True):
            if name:
                self.operands[name] = Operand(name, type_, Role.INTERMEDIATE)

    def new(
        self,
        operation: Operation,
        word: str,
        type_: str,
        inputs: Sequence[str],
        outputs: Sequence[str] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        results: int = 1,
    ) -> tuple[str, ...]:
        """Add an operation that stands for a part of `operation`; the names of what it defines."""
        name = self._name(f"{operation.id}.{word}")
        outputs = tuple(outputs) or tuple(f"{name}.{k}" if results > 1 else name for k in range(results))
        self.add(Operation(name, type_, tuple(inputs), outputs, attributes or {}))
        return outputs

    def constant(self, operation: Operation, word: str, value: np.generic) -> str:
        name = self._name(f"{operation.id}.{word}")
        type_ = TensorType((), DType(value.dtype.name))
        self.operands[name] = Operand(name, type_, Role.CONSTANT, Initializer("values", value.tobytes()))
        return name

    def _name(self, stem: str) -> str:
        """A name that nothing has yet."""
        names = (f"{stem}_{number}" if number else stem for number in count())
        name = next(name for name in names if name not in self._names)
        self._names.add(name)
        return name


def _cut_gather(cutting: _Cutting, operation: Operation, tiles: Sequence[Operand], _: object) -> None:
    rows, start, before = sum(tile.shape[0] for tile in tiles), 0, ""
    for number, tile in enumerate(tiles):
        inputs = [tile.id, operation.inputs[1], *([before] if before else [])]
        last = operation.outputs if number == len(tiles) - 1 else ()
        (before,) = cutting.new(
            operation, str(number), "TileGather", inputs, last, {"first_row": start, "rows": rows}
        )
        start += tile.shape[0]


def _cut_product(
    cutting: _Cutting,
    operation: Operation,
    tiles: Sequence[Operand],
    attributes: Mapping[str, Any],
) -> None:
    own = dict(operation.attributes)
    bias = operation.inputs[2] if len(operation.inputs) > 2 else ""
    columns = [
        cutting.new(operation, str(number), operation.type, (operation.inputs[0], tile.id), (), own)[0]
        for number, tile in enumerate(tiles)
    ]
    axis = len(cutting.operands[columns[0]].shape) - 1
    (joined,) = cutting.new(
        operation, "joined", "Concat", columns, () if bias else operation.outputs, {"axis": axis}
    )
    if bias:
        cutting.new(operation, "biased", "Add", (joined, bias), operation.outputs)


def _cut_head(
    cutting: _Cutting,
    operation: Operation,
    tiles: Sequence[Operand],
    attributes: Mapping[str, Any],
) -> None:
    x, _, labels = operation.inputs[:3]
    axis = 1 - int(attributes["transB"])
    first = int(attributes["first_class"])
    end = first + sum(tile.shape[axis] for tile in tiles)
    own = {**operation.attributes, "classes": attributes.get("classes", end)}
    sums, chosen = [], []
    for number, tile in enumerate(tiles):
        own["first_class"] = first
        both = cutting.new(operation, str(number), operation.type, (x, tile.id, labels), (), own, results=2)
        sums.append(both[0])
        chosen.append(both[1])
        first += tile.shape[axis]
    ignored = attributes.get("ignore_index")
    whole = () if ignored is not None else operation.outputs[:1]
    (joined,) = cutting.new(operation, "log_sums", "LogAddExp", sums, whole)
    if ignored is not None:
        dtype = cutting.operands[labels].dtype
        floating = cutting.operands[joined].dtype
        other = cutting.constant(operation, "ignored", dtype.numpy.type(ignored))
        zero = cutting.constant(operation, "zero", floating.numpy.type(0))
        (mask,) = cutting.new(operation, "is_ignored", "Equal", (labels, other))
        cutting.new(operation, "counted", "Where", (mask, zero, joined), operation.outputs[:1])
    total = chosen[0]
    for number, part in enumerate(chosen[1:], start=1):
        last = operation.outputs[1:] if number == len(chosen) - 1 else ()
        (total,) = cutting.new(operation, f"chosen{number}", "Add", (total, part), last)


#: How the operations are cut that read tiles.
_CUT: Final[Mapping[str, Callable[[_Cutting, Operation, Sequence[Operand], Mapping[str, Any]], None]]] = {
    "Gather": _cut_gather,
    "Gemm": _cut_product,
    "MatMul": _cut_product,
    "ProductLogSumExp": _cut_head,
}
