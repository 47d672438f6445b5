"""Arithmetic on constants by the kernels of training, and the rewritten graph that it is checked with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.errors import PlanError
from solver.executor.initial import initial_value
from solver.executor.kernels import kernels_for
from solver.executor.kernels.base import Call
from solver.executor.memory import BASE_ALIGNMENT
from solver.graph.ops import lookup
from solver.graph.ops.base import Node, ScratchRequest
from solver.graph.types import Array, Operand, TensorType, TrainableGraph
from solver.plan import Plan
from solver.preparations import with_frozen_storage, with_tiles
from solver.preparations.rewriting import CHUNK_HEAD, replay

__all__ = ["KernelArithmetic", "rewritten"]


class KernelArithmetic:
    """The `Arithmetic` of rewriting. Arrays are aligned as in an arena, so that sums round alike."""

    def value(self, operand: Operand) -> Array:
        return initial_value(operand)

    def outputs(self, node: Node, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        kind = lookup(node.operation.type)
        read = [
            None if value is None or i in kind.constant_inputs else _copied(value)
            for i, value in enumerate(inputs)
        ]
        outputs = tuple(_aligned(type_) for type_ in node.outputs)
        call = Call(
            node,
            x=tuple(read),
            y=outputs,
            saved=_arrays(kind.saved(node)),
            scratch=_arrays(kind.forward_scratch(node)),
        )
        with np.errstate(all="ignore"):
            kernels_for(kind.name).forward(call)()
        return outputs


def _arrays(requests: Sequence[ScratchRequest]) -> dict[str, Array]:
    return {request.name: _aligned(request.type) for request in requests}


def _copied(value: Array) -> Array:
    copy = _block(value.nbytes).view(value.dtype).reshape(value.shape)
    np.copyto(copy, value)
    return copy


def _aligned(type_: TensorType) -> Array:
    return _block(type_.nbytes).view(type_.dtype.numpy).reshape(type_.shape)


def _block(nbytes: int) -> Array:
    block = np.empty(nbytes + BASE_ALIGNMENT, np.uint8)
    start = -block.ctypes.data % BASE_ALIGNMENT
    return block[start : start + nbytes]


def rewritten(graph: TrainableGraph, plan: Plan) -> TrainableGraph:
    """The graph with weights stored and operations replaced as the plan has it; itself where it has neither.

    No record is believed: every rule looks again. Raises PlanError where a rule does not hold, and for
    replacements that the options do not ask for.
    """
    asked = {True: plan.options.chunked_head, False: plan.options.rewrite}
    if not all(asked[one.rule == CHUNK_HEAD.name] for one in plan.replacements):
        raise PlanError(
            "The plan replaces operations, and its options do not ask for that.",
            remedy="Plan this graph again with this version.",
            path=("replacements",),
        )
    graph = with_frozen_storage(graph, plan.options.frozen_storage)
    heads = [one for one in plan.replacements if one.rule == CHUNK_HEAD.name]
    others = [one for one in plan.replacements if one.rule != CHUNK_HEAD.name]
    graph = replay(graph, heads, KernelArithmetic())
    graph = with_tiles(with_frozen_storage(graph, plan.options.frozen_storage), plan.options.tile_bytes)
    return replay(graph, others, KernelArithmetic())
