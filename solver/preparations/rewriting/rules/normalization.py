"""Frozen normalisation behind a frozen convolution."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from solver.graph.types import Array, Initializer, Operand, Operation, Role
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["FoldNormalization"]


class FoldNormalization(Rule):
    """(Conv(X, W, b) - mean) f + shift = Conv(X, f W, f (b - mean) + shift), f = scale / sqrt(var + epsilon).

    f is a factor for each filter, and a convolution is linear in its filters. dX = Conv'(f dY, W)
    = Conv'(dY, f W). All of W, b, scale, shift, mean and var have to be constants. Were W trained,
    a step of gradient descent on f W would move it by 1 / f^2 of what one on W does: another training.
    Parameters, even frozen ones, keep their memory for checkpoints, and running statistics are states.
    Normalisation in training mode never folds: its statistics depend on X.
    """

    name: ClassVar[str] = "fold-normalization"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != "BatchNormalization":
            return None
        inner = around.feeding(operation.inputs[0])
        if inner is None or not _fits(around, inner, operation):
            return None
        norm = [around.constant(name) for name in operation.inputs[1:]]
        linear = [around.constant(name) for name in inner.inputs[1:] if name]
        constants = [value for value in (*norm, *linear) if value is not None]
        if len(constants) < len(norm) + len(linear):
            return None
        epsilon = float(around.nodes[operation.id].attributes["epsilon"])
        weight, bias = _folded(
            constants[:4], epsilon, constants[4], constants[5] if len(constants) > 5 else None
        )
        return _edit(around, inner, operation, weight, bias)


def _fits(around: Surroundings, inner: Operation, norm: Operation) -> bool:
    node, frozen = around.nodes[inner.id], around.nodes[norm.id].attributes
    return (
        inner.type == "Conv"
        and node.attributes["activation"] == "None"
        and not frozen["training_mode"]
        and frozen["data_layout"] == node.attributes["data_layout"]
    )


def _folded(norm: list[Array], epsilon: float, weight: Array, bias: Array | None) -> tuple[Array, Array]:
    """Weights and bias; computed in float64 and rounded once. The filters are axis 0 in both layouts."""
    scale, shift, mean, variance = (value.astype(np.float64) for value in norm)
    factor = scale / np.sqrt(variance + epsilon)
    centred = -mean if bias is None else bias - mean
    folded = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    return folded.astype(weight.dtype), (factor * centred + shift).astype(weight.dtype)


def _edit(around: Surroundings, inner: Operation, norm: Operation, weight: Array, bias: Array) -> Edit:
    types = around.graph.operands
    constants = tuple(
        Operand(around.new_operand(f"{inner.id}.{word}"), type_, Role.CONSTANT, _values(value))
        for word, type_, value in (
            ("folded_weight", types[inner.inputs[1]].type, weight),
            ("folded_bias", types[norm.inputs[2]].type, bias),
        )
    )
    inputs = (inner.inputs[0], *(constant.id for constant in constants))
    fused = Operation(inner.id, inner.type, inputs, norm.outputs, inner.attributes)
    return Edit((inner.id, norm.id), (fused,), constants)


def _values(value: Array) -> Initializer:
    return Initializer("values", value.tobytes())
