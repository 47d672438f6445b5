"""A matrix transposed only to be multiplied."""

from __future__ import annotations

from typing import ClassVar

from solver.graph.types import Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["FuseTranspose"]

_FLAGS = ("transA", "transB")


class FuseTranspose(Rule):
    """MatMul(A, Transpose(B)) = Gemm(A, B) with transB, and the same of A: BLAS reads either order.

    dB is written through the transposed view where its derivative used to be a tensor of its own, and
    so is B^T. The product's sums may be taken in another order. For matrices, not for batches of them,
    and not where something else reads the transposed matrix.
    """

    name: ClassVar[str] = "fuse-transpose"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type not in ("Gemm", "MatMul"):
            return None
        if any(len(around.nodes[operation.id].input(i).shape) != 2 for i in (0, 1)):
            return None
        for position, flag in enumerate(_FLAGS):
            inner = around.feeding(operation.inputs[position])
            if inner is not None and inner.type == "Transpose" and _turns(around, inner):
                return _edit(operation, inner, position, flag)
        return None


def _turns(around: Surroundings, transpose: Operation) -> bool:
    return around.nodes[transpose.id].attributes["perm"] in (None, (1, 0))


def _edit(product: Operation, transpose: Operation, position: int, flag: str) -> Edit:
    inputs = tuple(transpose.inputs[0] if i == position else name for i, name in enumerate(product.inputs))
    attributes = {**product.attributes, flag: 1}
    if product.attributes.get(flag):
        del attributes[flag]
    fused = Operation(product.id, "Gemm", inputs, product.outputs, attributes)
    return Edit((transpose.id, product.id), (fused,))
