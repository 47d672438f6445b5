"""The cost of each step: a deterministic roofline in whole nanoseconds, so that sums are exact everywhere.

    seconds of a step  =  products / 30 GFLOP/s  +  bytes touched / 4 GB/s  +  2 us

The figures are those of the project's own kernels on one core of a server. A schedule is chosen by the
ratios between steps, which are similar on other machines; if they are not, costs measured there take the
place of the roofline (`solver.program.Costs`).
"""

from __future__ import annotations

import math

from solver.graph.ops.base import Node
from solver.graph.ops.recurrent import GATES, cell
from solver.program import Costs, Phase, Program, Step, given_costs

__all__ = ["flops_of", "roofline", "step_costs"]

_FLOPS_A_NANOSECOND, _BYTES_A_NANOSECOND, _NANOSECONDS_A_STEP = 30, 4, 2_000

#: Operators whose backward step computes the product of the forward step again.
_COMPUTED_AGAIN = frozenset({"ProductLogSumExp"})

#: Slots of derivatives that take one product each: of the data and of the weights.
_PRODUCTS = frozenset({"dx0", "dx1"})


def flops_of(program: Program, step: Step) -> int:
    """Floating-point operations of the products in a step; 0 where it has none. Cost: linear in its slots.

    Explicit steps, whose kernels are words, say it themselves, or it is 0 as well.
    """
    node = program.operations[step.operation]
    if step.phase is Phase.EXPLICIT:
        return int(node.attributes.get("flops", 0))
    forward = _forward_flops(node)
    if not forward or step.phase is Phase.FORWARD or node.operation.type in GATES:
        return forward
    products = max(1, sum(b.slot in _PRODUCTS and b.access.defines for b in step.bindings))
    return forward * (products + (node.operation.type in _COMPUTED_AGAIN))


def _forward_flops(node: Node) -> int:
    """Two for each multiplication with its addition."""
    kind = node.operation.type
    if kind == "Conv":
        weights = node.input(1)
        return 2 * node.outputs[0].elements * math.prod(weights.shape[1:])
    if kind == "ConvTranspose":
        weights = node.input(1)
        return 2 * node.input(0).elements * math.prod(weights.shape[1:])
    if kind == "Gemm":
        rows, columns = math.prod(node.outputs[0].shape[:-1]), node.outputs[0].shape[-1]
        return 2 * columns * node.input(0).elements if rows else 0
    if kind == "ProductLogSumExp":
        return 2 * node.outputs[0].elements * node.input(1).elements
    if kind == "MatMul":
        return 2 * node.outputs[0].elements * node.input(0).shape[-1]
    if kind in GATES:
        sizes = cell(node)
        return 2 * sizes.batch * (node.input(sizes.w).elements + node.input(sizes.r).elements)
    return 0


def roofline(program: Program) -> tuple[int, ...]:
    """Nanoseconds of each step; what it updates is read and written. Linear in the bindings.

    Explicit steps may say how many bytes they move, and what they take.
    """
    nanoseconds = []
    for step in program.steps:
        stated = program.operations[step.operation].attributes if step.phase is Phase.EXPLICIT else {}
        if "nanoseconds" in stated:
            nanoseconds.append(int(stated["nanoseconds"]))
            continue
        touched = (
            int(stated["bytes"])
            if "bytes" in stated
            else sum(
                (b.access.reads + b.access.defines) * program.values[b.value].type.nbytes
                for b in step.bindings
            )
        )
        products = -(-flops_of(program, step) // _FLOPS_A_NANOSECOND)
        nanoseconds.append(products - (-touched // _BYTES_A_NANOSECOND) + _NANOSECONDS_A_STEP)
    return tuple(nanoseconds)


def step_costs(program: Program, costs: Costs | None = None) -> tuple[int, ...]:
    """Nanoseconds of each step: by `costs`, else by the roofline. Raises as `given_costs` does. Linear."""
    return roofline(program) if costs is None else given_costs(program, costs)
