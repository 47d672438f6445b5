"""What each step costs: a deterministic roofline in whole nanoseconds, so that sums are exact everywhere.

    seconds of a step  =  products / 30 GFLOP/s  +  bytes touched / 4 GB/s  +  2 us

The figures are those of the project's own kernels on one core of a server. A schedule is chosen by the
ratios between steps, which other machines share more or less; where they do not, measured seconds of steps
take their place (`given_costs`).
"""

from __future__ import annotations

from collections.abc import Mapping

from solver.errors import OptionsError
from solver.graph.ops.base import Node
from solver.graph.ops.recurrent import GATES, cell
from solver.program import Phase, Program, Step

__all__ = ["flops_of", "given_costs", "roofline"]

_FLOPS_A_NANOSECOND, _BYTES_A_NANOSECOND, _NANOSECONDS_A_STEP = 30, 4, 2_000

#: Slots of derivatives that take one product each: of the data and of the weights.
_PRODUCTS = frozenset({"dx0", "dx1"})


def flops_of(program: Program, step: Step) -> int:
    """Floating-point operations of the products in a step; 0 where it has none. Cost: linear in its slots."""
    node = program.operations[step.operation]
    forward = _forward_flops(node)
    if not forward or step.phase is Phase.FORWARD or node.operation.type in GATES:
        return forward
    return forward * max(1, sum(b.slot in _PRODUCTS and b.access.defines for b in step.bindings))


def _forward_flops(node: Node) -> int:
    """Two for each multiplication with its addition."""
    kind = node.operation.type
    if kind == "Conv":
        weights = node.input(1)
        return 2 * node.outputs[0].elements * weights.elements // weights.shape[0]
    if kind == "ConvTranspose":
        weights = node.input(1)
        return 2 * node.input(0).elements * weights.elements // weights.shape[0]
    if kind == "Gemm":
        rows = node.outputs[0].elements // node.outputs[0].shape[-1]
        return 2 * node.outputs[0].elements * node.input(0).elements // rows
    if kind == "MatMul":
        return 2 * node.outputs[0].elements * node.input(0).shape[-1]
    if kind in GATES:
        sizes = cell(node)
        return 2 * sizes.batch * (node.input(sizes.w).elements + node.input(sizes.r).elements)
    return 0


def roofline(program: Program) -> tuple[int, ...]:
    """Nanoseconds of each step; what it updates is read and written. Linear in the bindings."""
    found = []
    for step in program.steps:
        touched = sum(
            (b.access.reads + b.access.defines) * program.values[b.value].type.nbytes for b in step.bindings
        )
        products = -(-flops_of(program, step) // _FLOPS_A_NANOSECOND)
        found.append(products - (-touched // _BYTES_A_NANOSECOND) + _NANOSECONDS_A_STEP)
    return tuple(found)


def given_costs(program: Program, seconds: Mapping[str, float]) -> tuple[int, ...]:
    """Nanoseconds of each step from a table of seconds, by the label of the step or by its operation's id.

    Raises OptionsError for a step that neither names, and for a cost that is negative or not finite.
    """
    found = []
    for step, label in zip(program.steps, program.step_labels, strict=True):
        operation = program.operations[step.operation].operation.id
        cost = seconds.get(label, seconds.get(operation))
        if cost is None:
            raise OptionsError(
                f"The costs name neither the step {label!r} nor its operation {operation!r}.",
                remedy="Give the seconds of every step.",
                path=("costs",),
            )
        if not 0 <= cost < float("inf"):
            raise OptionsError(
                f"The cost of {label!r} is {cost} seconds.",
                remedy="Give zero or more, and finite.",
                path=("costs",),
            )
        found.append(round(cost * 1e9))
    return tuple(found)
