"""From ONNX's operators to ours: a function an operator, found by its name in one of the families.

    arithmetic  means the same here, or is put together from others, with operands that are known
    movement    shapes, orders of moves, sequences of tensors
    neural      layers, random numbers, losses
    quantised   dequantise, compute, quantise

What is in none of them is expanded where ONNX itself defines it by other operators, computed where all of its
operands are known, and otherwise missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from solver.importers.onnx.lowering import arithmetic, movement, neural, quantised
from solver.importers.onnx.network import Lowering, Site, Unsupported

__all__ = ["LOWERINGS", "Lowering", "Site", "Unsupported"]

#: Operator of ONNX -> its translation; a later family takes the place of an earlier one.
LOWERINGS: Mapping[str, Lowering] = {
    **arithmetic.LOWERINGS,
    **movement.LOWERINGS,
    **neural.LOWERINGS,
    **quantised.LOWERINGS,
}
