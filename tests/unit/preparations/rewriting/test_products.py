"""Transposed matrices go into the product that reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from solver.graph import DType, TrainableGraph
from tests.support.graphs import Sketch
from tests.support.rewriting import everywhere, footprint, only, same_after, same_training, types

RULE = "fuse-transpose"


def product(
    type_: str = "MatMul",
    turned: tuple[bool, bool] = (False, True),
    size: tuple[int, int, int] = (3, 4, 5),
    dtype: DType = DType.FLOAT64,
    **attributes: Any,
) -> TrainableGraph:
    """A [rows, inner] times B [inner, columns], each of them stored transposed or not."""
    s = Sketch("product", dtype)
    rows, inner, columns = size
    shapes = {"a": (rows, inner), "b": (inner, columns)}
    names = []
    for (name, shape), transposed, flag in zip(shapes.items(), turned, ("transA", "transB"), strict=True):
        stored = shape[::-1] if transposed != bool(attributes.get(flag)) else shape
        s.parameter(name, *stored)
        names.append(s.op("Transpose", [name], f"{name}.turned") if transposed else name)
    h = s.op("Mul", [s.op(type_, names, "y", "product", **attributes), s.input("x", rows, columns)], "z")
    s.op("ReduceMean", [s.op("Mul", [h, h], "squared")], "loss", keepdims=0)
    return s.graph()


@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("type_", ["MatMul", "Gemm"])
def test_it_becomes_a_flag(type_: str, turned: tuple[bool, bool]) -> None:
    after = same_after(product(type_, turned), RULE, rtol=1e-12)
    gemm = after.operations[0]
    assert (gemm.id, gemm.type, gemm.inputs) == ("product", "Gemm", ("a", "b"))
    assert dict(gemm.attributes) == {f: 1 for f, t in zip(("transA", "transB"), turned, strict=True) if t}


def test_turned_twice_is_not_turned() -> None:
    before = product("Gemm", (False, True), transB=1, alpha=0.5, activation="Tanh")
    after = same_after(before, RULE, rtol=1e-12)
    assert dict(after.operations[0].attributes) == {"alpha": 0.5, "activation": "Tanh"}


def test_a_bias_stays_where_it_is() -> None:
    s = Sketch("biased", DType.FLOAT64)
    w = s.op("Transpose", [s.parameter("w", 5, 4)], "w.turned", perm=(1, 0))
    h = s.op("Gemm", [s.input("x", 3, 4), w, s.parameter("b", 5)], "h")
    s.op("MeanSquaredError", [h, s.label("t", 3, 5)], "loss")
    after = same_after(s.graph(), RULE, rtol=1e-12)
    assert after.operations[0].inputs == ("x", "w", "b")


def test_an_exported_layer_becomes_one_operation() -> None:
    """Transpose, MatMul, Add, Relu: as frameworks write a dense layer."""
    s = Sketch("layer", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 3, 4), s.op("Transpose", [s.parameter("w", 5, 4)], "wt")], "a")
    h = s.op("Relu", [s.op("Add", [h, s.parameter("b", 5)], "c")], "d")
    s.op("MeanSquaredError", [h, s.label("t", 3, 5)], "loss")
    before = s.graph()
    after = everywhere(before).graph
    assert types(after) == ["Gemm", "MeanSquaredError"]
    assert dict(after.operations[0].attributes) == {"transB": 1, "activation": "Relu"}
    same_training(before, after, rtol=1e-12)


def test_the_turned_copy_and_its_derivative_are_saved() -> None:
    before = product(size=(2, 64, 64), dtype=DType.FLOAT32)
    after = only(before, RULE)
    assert footprint(before).total - footprint(after).total >= 2 * 64 * 64 * 4
    assert footprint(after).bound <= footprint(before).bound


# ------------------------------------------------------------------------ where it must not happen


def _two_readers() -> TrainableGraph:
    s = Sketch("readers", DType.FLOAT64)
    turned = s.op("Transpose", [s.parameter("w", 4, 4)], "turned")
    h = s.op("MatMul", [s.op("MatMul", [s.input("x", 3, 4), turned], "a"), turned], "b")
    s.op("MeanSquaredError", [h, s.label("t", 3, 4)], "loss")
    return s.graph()


def _batches() -> TrainableGraph:
    s = Sketch("batches", DType.FLOAT64)
    turned = s.op("Transpose", [s.parameter("w", 2, 5, 4)], "turned", perm=(0, 2, 1))
    s.op("ReduceMean", [s.op("MatMul", [s.input("x", 2, 3, 4), turned], "h")], "loss", keepdims=0)
    return s.graph()


def _not_turned() -> TrainableGraph:
    s = Sketch("still", DType.FLOAT64)
    same = s.op("Transpose", [s.parameter("w", 4, 5)], "same", perm=(0, 1))
    s.op("ReduceMean", [s.op("MatMul", [s.input("x", 3, 4), same], "h")], "loss", keepdims=0)
    return s.graph()


@pytest.mark.parametrize("make", [_two_readers, _batches, _not_turned])
def test_it_stays_as_it_is(make: Callable[[], TrainableGraph]) -> None:
    graph = make()
    assert everywhere(graph, RULE).graph is graph
