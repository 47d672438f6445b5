"""Rules that leave operations out, and all rules beside stored weights."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.documents import dump_graph, dump_plan, load_graph, load_plan
from solver.executor import Trainer, rewritten, synthetic_batch, validate
from solver.executor.arithmetic import KernelArithmetic
from solver.executor.initial import initial_value
from solver.graph import DType, Initializer, Operation, Role, TrainableGraph
from solver.graph.nodes import graph_nodes
from solver.graph.ops import FAMILIES
from solver.graph.storage import Storage
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.preparations.rewriting.surroundings import RANDOM
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.rewritable import constant
from tests.support.rewriting import everywhere, footprint, only, same_after, same_training, types

FOLD_CONSTANTS = "fold-constants"


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
    after = same_after(before, FOLD_CONSTANTS, bitwise=True)
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

    after = same_after(scaled(halves), FOLD_CONSTANTS, bitwise=True)
    assert types(after) == ["MatMul", "Mul", "MeanSquaredError"]


def test_shapes_and_products_fold() -> None:
    def product(s: Sketch) -> str:
        a = s.op("Reshape", [constant(s, "a", 12), s.integers("shape", 4, 3)], "matrix")
        return s.op("MatMul", [a, constant(s, "b", 3, 6)], "product")

    after = same_after(scaled(product), FOLD_CONSTANTS, bitwise=True)
    assert types(after) == ["MatMul", "Mul", "MeanSquaredError"]


def test_a_folded_normalisation_finds_its_saved_statistics_a_place() -> None:
    def normal(s: Sketch) -> str:
        return s.op("LayerNormalization", [constant(s, "c", 4, 6), constant(s, "g", 6)], "n")

    after = same_after(scaled(normal), FOLD_CONSTANTS, bitwise=True)
    assert "LayerNormalization" not in types(after)


def test_integers_fold_into_conditions() -> None:
    def chosen(s: Sketch) -> str:
        condition = s.op("Greater", [constant(s, "c", 6), constant(s, "d", 6)], "condition")
        return s.op("Where", [condition, constant(s, "e", 6), constant(s, "f", 6)], "chosen")

    after = same_after(scaled(chosen), FOLD_CONSTANTS, bitwise=True)
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
    assert everywhere(graph, FOLD_CONSTANTS).graph is graph


def test_an_output_keeps_its_operation() -> None:
    """A value that no step defines has no memory to be read from."""
    after = everywhere(scaled(inverse_deviation, outputs=("root",)), FOLD_CONSTANTS).graph
    assert types(after) == ["MatMul", "Sqrt", "Reciprocal", "Mul", "MeanSquaredError"]


def test_what_grows_too_much_is_left() -> None:
    def wide(s: Sketch) -> str:
        whole = s.op("Expand", [constant(s, "c", 6), s.integers("many", 1 << 16, 6)], "whole")
        return s.op("ReduceMean", [whole], "factor", axes=(0,), keepdims=0)

    graph = scaled(wide)
    assert everywhere(graph, FOLD_CONSTANTS).graph is graph


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

    after = same_after(scaled(dequantised), FOLD_CONSTANTS, bitwise=True)
    assert ("DequantizeLinear" in types(after)) is not folds


# ------- Dead operations go with all that only they read; what the caller asks for and what keeps state stays


DROP_DEAD_CODE = "drop-dead-code"


def branched(**hyper: Any) -> TrainableGraph:
    """A layer, and a branch of three operations with operands of its own that nothing reads."""
    s = Sketch("branched", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    frozen = s.parameter("frozen", 6, 9, trainable=False)
    dead = s.op("MatMul", [h, frozen], "dead1")
    dead = s.op("Add", [dead, s.input("unread", 4, 9)], "dead2")
    s.op("Tanh", [dead], "dead3")
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss")
    return s.graph(**hyper)


def test_a_branch_that_leads_nowhere_goes_with_its_operands() -> None:
    before = branched()
    after = same_after(before, DROP_DEAD_CODE, bitwise=True)
    assert types(after) == ["MatMul", "MeanSquaredError"]
    assert set(after.operands) == {"x", "w", "h", "t", "loss"}
    assert footprint(after) < footprint(before)


def test_one_replacement_names_them_all() -> None:
    (found,) = everywhere(branched(), DROP_DEAD_CODE).applied
    assert found.operations == ("dead1.op", "dead2.op", "dead3.op")
    assert found.into == ()


@pytest.mark.parametrize("output", ["dead3", "dead1"])
def test_what_an_output_needs_is_alive(output: str) -> None:
    after = only(branched(outputs=(output,)), DROP_DEAD_CODE)
    assert output in after.operands
    assert len(types(after)) == {"dead3": 5, "dead1": 3}[output]


def test_an_output_that_no_operation_defines_keeps_a_reader() -> None:
    after = only(branched(outputs=("unread",)), DROP_DEAD_CODE)
    assert "unread" in after.operands
    assert types(after) == ["MatMul", "MatMul", "Add", "MeanSquaredError"]


def test_a_caller_may_still_feed_and_read_by_the_names_of_the_graph() -> None:
    graph = branched()
    trainer = Trainer(graph, plan(graph, PlanOptions(rewrite=True)))
    trainer.step(synthetic_batch(graph, 0, 1))
    assert trainer.read("frozen").shape == (6, 9)
    assert trainer.read("frozen").tobytes() == Trainer(graph, plan(graph)).read("frozen").tobytes()


def test_what_updates_a_state_is_alive() -> None:
    s = Sketch("state", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    one = Initializer("ones")
    parts = [s.parameter(name, 6, trainable=False, initializer=one) for name in ("scale", "shift")]
    states = [s.add(name, Role.STATE, (6,), initializer=one) for name in ("mean", "variance")]
    dead = s.op("BatchNormalization", [h, *parts, *states], "normal", training_mode=1)
    s.op("Tanh", [dead], "dead")
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss")
    after = only(s.graph(), DROP_DEAD_CODE)
    assert types(after) == ["MatMul", "BatchNormalization", "MeanSquaredError"]


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional(), batch_normalised()])
def test_nothing_dead_nothing_done(graph: TrainableGraph) -> None:
    assert everywhere(graph, DROP_DEAD_CODE).graph is graph


# ----------------------------------------- Operations that compute the same from the same operands become one


MERGE_DUPLICATES = "merge-duplicates"


def twice(make: Callable[[Sketch, str, str], tuple[str, str]], **hyper: Any) -> TrainableGraph:
    """A layer, two things that `make` computes of its output and a parameter, their product, a layer."""
    s = Sketch("twice", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    v = s.parameter("v", 6, 6)
    h = s.op("MatMul", [s.op("Mul", make(s, h, v), "y"), v], "z")
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss")
    return s.graph(**hyper)


def _of_one_operand(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("Tanh", [h], "a"), s.op("Tanh", [h], "b")


def _of_two(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("MatMul", [h, v], "a"), s.op("MatMul", [h, v], "b", activation="None")


def _chains(s: Sketch, h: str, v: str) -> tuple[str, str]:
    first, second = s.op("Tanh", [h], "a1"), s.op("Tanh", [h], "b1")
    return s.op("Exp", [first], "a"), s.op("Exp", [second], "b")


@pytest.mark.parametrize(("make", "left"), [(_of_one_operand, 5), (_of_two, 5), (_chains, 6)])
def test_one_is_left(make: Callable[[Sketch, str, str], tuple[str, str]], left: int) -> None:
    after = same_after(twice(make), MERGE_DUPLICATES, rtol=1e-12)
    assert len(after.operations) == left
    (product,) = (op for op in after.operations if op.id == "y.op")
    assert product.inputs == ("a", "a")


def test_three_become_one_at_once() -> None:
    def three(s: Sketch, h: str, v: str) -> tuple[str, str]:
        a, b, c = (s.op("Tanh", [h], name) for name in ("a", "b", "c"))
        return s.op("Add", [a, b], "ab"), c

    found = everywhere(twice(three), MERGE_DUPLICATES)
    assert [one.group for one in found.applied] == [0, 0]
    assert types(found.graph).count("Tanh") == 1
    same_training(twice(three), found.graph, rtol=1e-12)


def test_all_outputs_are_taken_over() -> None:
    def split(s: Sketch, h: str, v: str) -> tuple[str, str]:
        for names in (("a", "b"), ("c", "d")):
            attributes = {"axis": 1, "num_outputs": 2}
            s.operations.append(Operation(f"{names[0]}.op", "Split", (h,), names, attributes))
        left = s.op("Concat", ["a", "d"], "left", axis=1)
        return left, s.op("Concat", ["c", "b"], "right", axis=1)

    after = same_after(twice(split), MERGE_DUPLICATES, rtol=1e-12)
    assert types(after) == ["MatMul", "Split", "Concat", "Mul", "MatMul", "MeanSquaredError"]


def test_the_first_may_be_an_output_and_the_second_may_not() -> None:
    assert len(everywhere(twice(_of_one_operand, outputs=("a",)), MERGE_DUPLICATES).applied) == 1
    graph = twice(_of_one_operand, outputs=("b",))
    assert everywhere(graph, MERGE_DUPLICATES).graph is graph


# ------------------------------------------------------------------------ where it must not happen


def _another_order(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("MatMul", [h, v], "a"), s.op("MatMul", [h, s.op("Transpose", [v], "vt")], "b")


def _other_attributes(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("LeakyRelu", [h], "a", alpha=0.1), s.op("LeakyRelu", [h], "b", alpha=0.2)


def _random_pair(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("Dropout", [h], "a"), s.op("Dropout", [h], "b")


def _with_states(s: Sketch, h: str, v: str) -> tuple[str, str]:
    one, found = Initializer("ones"), []
    parts = [s.parameter(name, 6, initializer=one) for name in ("scale", "shift")]
    for name in ("a", "b"):
        states = [s.add(f"{name}.{part}", Role.STATE, (6,), initializer=one) for part in ("mean", "var")]
        found.append(s.op("BatchNormalization", [h, *parts, *states], name, training_mode=1))
    return found[0], found[1]


@pytest.mark.parametrize("make", [_another_order, _other_attributes, _random_pair, _with_states])
def test_they_stay_as_they_are(make: Callable[[Sketch, str, str], tuple[str, str]]) -> None:
    graph = twice(make)
    assert everywhere(graph, MERGE_DUPLICATES).graph is graph


def test_all_that_draws_random_numbers_is_known() -> None:
    """Kernels that ask for the number of the iteration give something else each time."""
    drawing = {
        name
        for family, names in FAMILIES.items()
        for name in names
        if ".iteration" in inspect.getsource(importlib.import_module(f"solver.executor.kernels.{family}"))
    }
    assert drawing == RANDOM


# ---- Rules beside stored weights: none reads or folds one; graphs rewritten around them are proved and train


def floats(s: Sketch, name: str, *shape: int, storage: Storage | None = None, least: float = -1.0) -> str:
    values = np.random.default_rng(len(name)).uniform(least, 2, shape).astype(np.float32)
    data = Initializer("values", values.tobytes())
    return s.add(name, Role.CONSTANT, shape, initializer=data, storage=storage)


def normalised(storage: Storage | None) -> TrainableGraph:
    """A frozen convolution with its normalisation, both of constants, behind a trained one."""
    s = Sketch("normalised")
    h = s.op("Conv", [s.input("x", 2, 4, 5, 5), s.parameter("k", 4, 4, 2, 2)], "h")
    h = s.op("Conv", [h, floats(s, "filters", 6, 4, 2, 2, storage=storage)], "a")
    norm = [floats(s, name, 6, least=0.5) for name in ("scale", "shift", "mean", "variance")]
    h = s.op("BatchNormalization", [h, *norm], "b")
    s.op("MeanSquaredError", [h, s.label("t", 2, 6, 3, 3)], "loss")
    return s.graph()


def biased(storage: Storage | None) -> TrainableGraph:
    """Products with stored constants whose biases are operations of their own, and a product of constants."""
    s = Sketch("biased")
    h = s.op("MatMul", [s.input("x", 3, 16), floats(s, "w", 16, 8, storage=storage)], "h")
    h = s.op("Add", [h, s.parameter("b", 8)], "biased")
    turned = None if storage is None else replace(storage, axis=0)
    folded = s.op(
        "Gemm",
        [floats(s, "left", 3, 8), floats(s, "right", 8, 8, storage=turned)],
        "f",
        transB=1,
    )
    h = s.op("Add", [s.op("Relu", [h], "r"), folded], "sum")
    h = s.op("Transpose", [h], "turned", perm=(1, 0))
    h = s.op("MatMul", [s.op("Transpose", [h], "again", perm=(1, 0)), floats(s, "last", 8, 4)], "z")
    s.op("MeanSquaredError", [h, s.label("t", 3, 4)], "loss")
    return s.graph()


def rewriting(graph: TrainableGraph) -> tuple[Plan, set[str]]:
    graph = load_graph(dump_graph(graph))
    found = load_plan(dump_plan(plan(graph, PlanOptions(rewrite=True, in_place=True))))
    before = {o.id: o.type for o in graph.operands.values() if o.type.storage is not None}
    after = {o.id: o.type for o in rewritten(graph, found).operands.values() if o.type.storage is not None}
    assert before == after
    assert validate(graph, found, steps=2).identical
    return found, {replacement.rule for replacement in found.replacements}


@pytest.mark.parametrize("storage", [Storage("bfloat16"), Storage("int4", 8)], ids=str)
def test_a_normalisation_is_folded_into_floats_alone(storage: Storage) -> None:
    assert "fold-normalization" in rewriting(normalised(None))[1]
    assert "fold-normalization" not in rewriting(normalised(storage))[1]


@pytest.mark.parametrize("storage", [Storage("float16", axis=1), Storage("int8", 8, axis=1)], ids=str)
def test_products_of_stored_constants_stay_products(storage: Storage) -> None:
    """Their biases and transposes are rewritten as those of floats are."""
    floats, rules = rewriting(biased(None))[1], rewriting(biased(storage))[1]
    assert "fold-constants" in floats
    assert "fold-constants" not in rules
    assert rules >= floats - {"fold-constants"}
