"""Which operators there are: those of graphs, and those of ONNX that an import takes."""

from __future__ import annotations

from solver.graph.ops import FAMILIES, SEQUENCES
from solver.importers.onnx.evaluate import can_evaluate
from solver.importers.onnx.lowering import LOWERINGS
from solver.importers.onnx.walk import expanded_by_onnx

__all__ = ["onnx_operators", "own_operators"]


def own_operators() -> dict[str, list[str]]:
    """Names by family, in the families' order; sequences are unrolled into cells."""
    return {**{family: list(names) for family, names in FAMILIES.items()}, "sequences": sorted(SEQUENCES)}


def onnx_operators() -> dict[str, list[str]]:
    """The operators of ONNX that can be imported, by how.

    `translated` ones become operations; `expanded` ones are defined by ONNX itself through others, which
    have to be translated; `computed` ones are taken where all that they are given is known when the model is
    imported. The last two need the package onnx.
    """
    translated = sorted({*LOWERINGS, "Constant", "If", "Loop", "Scan", "Shape", "Size"})
    names, expanded = expanded_by_onnx()
    rest = set(names) - set(translated)
    return {
        "translated": translated,
        "expanded": sorted(rest & set(expanded)),
        "computed": sorted(name for name in rest - set(expanded) if can_evaluate(name)),
    }
