"""Results of constants alone are computed once, with the bits that training would compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from solver.executor.arithmetic import KernelArithmetic
from solver.executor.initial import initial_value
from solver.graph import DType, Initializer, Operation, Role, TrainableGraph
from solver.graph.nodes import graph_nodes
from tests.support.graphs import Sketch
from tests.support.rewritable import constant
from tests.support.rewriting import everywhere, same_after, types

RULE = "fold-constants"


def scaled(make: Callable[[Sketch], str], dtype: DType = DType.FLOAT32, **hyper: Any) -> TrainableGraph:
    """A layer whose output is multiplied by what `make` computes."""
    s = Sketch("scaled", dtype)
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    h = s.op("Mul", [h, make(s)], "y")
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss")
    return s.graph(**hyper)


def inverse_deviation(s: Sketch) -> str:
    """1 / sqrt(variance + epsilon), as exporters write it."""
    variance = constant(s, "variance", 6, low=0.5, high=2.0)
    epsilon = s.add("epsilon", Role.CONSTANT, (), initializer=Initializer("constant", value=1e-5))
    s.op("Sqrt", [s.op("Add", [variance, epsilon], "sum")], "root")
    return s.op("Reciprocal", ["root"], "factor")


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
def test_a_chain_of_constants_becomes_one(dtype: DType) -> None:
    before = scaled(inverse_deviation, dtype)
    after = same_after(before, RULE, bitwise=True)
    assert types(after) == ["MatMul", "Mul", "MeanSquaredError"]
    assert set(after.operands) == {"x", "w", "h", "factor", "y", "t", "loss"}
    factor = after.operands["factor"]
    assert factor.role is Role.CONSTANT
    expected = 1 / np.sqrt(initial_value(before.operands["variance"]) + dtype.numpy.type(1e-5))
    np.testing.assert_allclose(initial_value(factor), expected, rtol=1e-6)


def test_several_outputs_become_several_constants() -> None:
    def halves(s: Sketch) -> str:
        outputs = ("left", "right")
        s.operations.append(
            Operation("split", "Split", (constant(s, "c", 12),), outputs, {"axis": 0, "num_outputs": 2})
        )
        return s.op("Sub", list(outputs), "difference")

    after = same_after(scaled(halves), RULE, bitwise=True)
    assert types(after) == ["MatMul", "Mul", "MeanSquaredError"]


def test_shapes_and_products_fold() -> None:
    def product(s: Sketch) -> str:
        a = s.op("Reshape", [constant(s, "a", 12), s.integers("shape", 4, 3)], "matrix")
        return s.op("MatMul", [a, constant(s, "b", 3, 6)], "product")

    after = same_after(scaled(product), RULE, bitwise=True)
    assert types(after) == ["MatMul", "Mul", "MeanSquaredError"]


def test_a_folded_normalisation_finds_its_saved_statistics_a_place() -> None:
    def normal(s: Sketch) -> str:
        return s.op("LayerNormalization", [constant(s, "c", 4, 6), constant(s, "g", 6)], "n")

    after = same_after(scaled(normal), RULE, bitwise=True)
    assert "LayerNormalization" not in types(after)


def test_integers_fold_into_conditions() -> None:
    def chosen(s: Sketch) -> str:
        condition = s.op("Greater", [constant(s, "c", 6), constant(s, "d", 6)], "condition")
        return s.op("Where", [condition, constant(s, "e", 6), constant(s, "f", 6)], "chosen")

    after = same_after(scaled(chosen), RULE, bitwise=True)
    assert types(after) == ["MatMul", "Mul", "MeanSquaredError"]


# ------------------------------------------------------------------------ where it must not happen


def _frozen_parameter(s: Sketch) -> str:
    s.parameter("frozen", 6, trainable=False, initializer=Initializer("ones"))
    return s.op("Exp", ["frozen"], "factor")


def _input(s: Sketch) -> str:
    return s.op("Exp", [s.input("other", 6)], "factor")


def _state(s: Sketch) -> str:
    return s.op("Exp", [s.add("state", Role.STATE, (6,))], "factor")


def _random(s: Sketch) -> str:
    return s.op("Dropout", [constant(s, "c", 6)], "factor", ratio=0.5)


def _large_scheme(s: Sketch) -> str:
    s.add("zeros", Role.CONSTANT, (6, 1 << 14), initializer=Initializer("zeros"))
    return s.op("ReduceMean", ["zeros"], "factor", axes=(1,), keepdims=0)


def _window(s: Sketch) -> str:
    h = s.op("Conv", [constant(s, "c", 1, 1, 4, 6), constant(s, "k", 1, 1, 1, 1)], "window")
    return s.op("Reshape", [h, s.integers("shape", 4, 6)], "factor")


@pytest.mark.parametrize("make", [_frozen_parameter, _input, _state, _random, _large_scheme, _window])
def test_it_stays_as_it_is(make: Callable[[Sketch], str]) -> None:
    graph = scaled(make, trainable=["w"])
    assert everywhere(graph, RULE).graph is graph


def test_an_output_keeps_its_operation() -> None:
    """A value that no step defines has no memory to be read from."""
    after = everywhere(scaled(inverse_deviation, outputs=("root",)), RULE).graph
    assert types(after) == ["MatMul", "Sqrt", "Reciprocal", "Mul", "MeanSquaredError"]


def test_what_grows_too_much_is_left() -> None:
    def wide(s: Sketch) -> str:
        whole = s.op("Expand", [constant(s, "c", 6), s.integers("many", 1 << 16, 6)], "whole")
        return s.op("ReduceMean", [whole], "factor", axes=(0,), keepdims=0)

    graph = scaled(wide)
    assert everywhere(graph, RULE).graph is graph


# ------------------------------------------------------------------------------------- arithmetic


def test_arithmetic_is_the_kernels_arithmetic() -> None:
    graph = scaled(inverse_deviation)
    node = graph_nodes(graph)["factor.op"]
    value = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0], np.float32)
    (found,) = KernelArithmetic().outputs(node, [value])
    assert found.ctypes.data % 64 == 0
    assert np.array_equal(found, np.reciprocal(value))
    assert np.array_equal(value, [1, 2, 3, 4, 5, 7])


@pytest.mark.parametrize(("dtype", "folds"), [(DType.INT8, False), (DType.UINT8, False), (DType.INT32, True)])
def test_quantised_weights_stay_as_small_as_they_are_stored(dtype: DType, folds: bool) -> None:
    """A bias of int32 takes no more bytes as floats."""

    def dequantised(s: Sketch) -> str:
        data = np.arange(6, dtype=dtype.numpy).tobytes()
        stored = s.add("stored", Role.CONSTANT, (6,), dtype=dtype, initializer=Initializer("values", data))
        scale = s.add("scale", Role.CONSTANT, (), initializer=Initializer("constant", value=0.25))
        return s.op("DequantizeLinear", [stored, scale], "factor")

    after = same_after(scaled(dequantised), RULE, bitwise=True)
    assert ("DequantizeLinear" in types(after)) is not folds
