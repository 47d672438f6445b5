"""Operations that compute the same from the same operands become one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from solver.graph import DType, Initializer, Operation, Role, TrainableGraph
from solver.graph.ops import FAMILIES
from solver.preparations.rewriting.surroundings import RANDOM
from tests.support.graphs import Sketch
from tests.support.rewriting import everywhere, same_after, same_training, types

RULE = "merge-duplicates"


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
    after = same_after(twice(make), RULE, rtol=1e-12)
    assert len(after.operations) == left
    (product,) = (op for op in after.operations if op.id == "y.op")
    assert product.inputs == ("a", "a")


def test_three_become_one_at_once() -> None:
    def three(s: Sketch, h: str, v: str) -> tuple[str, str]:
        a, b, c = (s.op("Tanh", [h], name) for name in ("a", "b", "c"))
        return s.op("Add", [a, b], "ab"), c

    found = everywhere(twice(three), RULE)
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

    after = same_after(twice(split), RULE, rtol=1e-12)
    assert types(after) == ["MatMul", "Split", "Concat", "Mul", "MatMul", "MeanSquaredError"]


def test_the_first_may_be_an_output_and_the_second_may_not() -> None:
    assert len(everywhere(twice(_of_one_operand, outputs=("a",)), RULE).applied) == 1
    graph = twice(_of_one_operand, outputs=("b",))
    assert everywhere(graph, RULE).graph is graph


# ------------------------------------------------------------------------ where it must not happen


def _another_order(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("MatMul", [h, v], "a"), s.op("MatMul", [h, s.op("Transpose", [v], "vt")], "b")


def _other_attributes(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("LeakyRelu", [h], "a", alpha=0.1), s.op("LeakyRelu", [h], "b", alpha=0.2)


def _random(s: Sketch, h: str, v: str) -> tuple[str, str]:
    return s.op("Dropout", [h], "a"), s.op("Dropout", [h], "b")


def _with_states(s: Sketch, h: str, v: str) -> tuple[str, str]:
    one, found = Initializer("ones"), []
    parts = [s.parameter(name, 6, initializer=one) for name in ("scale", "shift")]
    for name in ("a", "b"):
        states = [s.add(f"{name}.{part}", Role.STATE, (6,), initializer=one) for part in ("mean", "var")]
        found.append(s.op("BatchNormalization", [h, *parts, *states], name, training_mode=1))
    return found[0], found[1]


@pytest.mark.parametrize("make", [_another_order, _other_attributes, _random, _with_states])
def test_they_stay_as_they_are(make: Callable[[Sketch, str, str], tuple[str, str]]) -> None:
    graph = twice(make)
    assert everywhere(graph, RULE).graph is graph


def test_all_that_draws_random_numbers_is_known() -> None:
    """Kernels that ask for the number of the iteration give something else each time."""
    drawing = {
        name
        for family, names in FAMILIES.items()
        for name in names
        if ".iteration" in inspect.getsource(importlib.import_module(f"solver.executor.kernels.{family}"))
    }
    assert drawing == RANDOM
