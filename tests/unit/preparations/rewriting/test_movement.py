"""Identities disappear; shapes and permutations that follow each other become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from solver.graph import DType, Operation, TrainableGraph
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.rewriting import everywhere, only, same_after, same_training, types


def through(make: Callable[[Sketch, str], str], **hyper: Any) -> TrainableGraph:
    """[4, 6] from a layer through what `make` adds, into a loss on 24 elements."""
    s = Sketch("through", DType.FLOAT64)
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    h = s.op("Reshape", [s.op("Tanh", [make(s, h)], "bent"), s.integers("flat", 24)], "y")
    s.op("MeanSquaredError", [h, s.label("t", 24)], "loss")
    return s.graph(**hyper)


def _of_one_piece(s: Sketch, h: str) -> str:
    s.operations.append(Operation("split", "Split", (h,), ("piece",), {"num_outputs": 1}))
    return s.op("Concat", ["piece"], "i", axis=0)


def _steps(*shapes: tuple[int, ...]) -> Callable[[Sketch, str], str]:
    def make(s: Sketch, h: str) -> str:
        for k, shape in enumerate(shapes):
            h = s.op("Reshape", [h, s.integers(f"s{k}", *shape)], f"r{k}", f"reshape{k}")
        return h

    return make


IDENTITIES: dict[str, Callable[[Sketch, str], str]] = {
    "Reshape": lambda s, h: s.op("Reshape", [h, s.integers("s", 0, -1)], "i"),
    "Flatten": lambda s, h: s.op("Flatten", [h], "i"),
    "Squeeze": lambda s, h: s.op("Squeeze", [h], "i"),
    "Expand": lambda s, h: s.op("Expand", [h, s.integers("s", 1, 6)], "i"),
    "Cast": lambda s, h: s.op("Cast", [h], "i", to=11),
    "Pad": lambda s, h: s.op("Pad", [h, s.integers("s", 0, 0, 0, 0)], "i"),
    "Transpose": lambda s, h: s.op("Transpose", [h], "i", perm=(0, 1)),
    "Concat and Split": _of_one_piece,
    "Dropout": lambda s, h: s.op("Dropout", [h], "i", ratio=0.0),
}


@grid("name", IDENTITIES)
def test_an_identity_disappears(name: str) -> None:
    after = same_after(through(IDENTITIES[name]), "drop-identity", bitwise=True)
    assert types(after) == ["MatMul", "Tanh", "Reshape", "MeanSquaredError"]


def test_identities_in_a_row_disappear_together() -> None:
    def row(s: Sketch, h: str) -> str:
        for k in range(4):
            h = s.op("Flatten", [h], f"i{k}")
        return s.op("Mul", [h, "i1"], "square")

    found = everywhere(through(row), "drop-identity")
    assert {one.group for one in found.applied} == {0}
    (mul,) = (op for op in found.graph.operations if op.type == "Mul")
    assert mul.inputs == ("h", "h")
    same_training(through(row), found.graph, bitwise=True)


def _backwards(s: Sketch, h: str) -> str:
    """The same shape, the elements of each row in reverse."""
    ends = [s.integers(name, value) for name, value in (("from", -1), ("to", -9), ("axis", 1), ("step", -1))]
    return s.op("Slice", [h, *ends], "i")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda s, h: s.op("Transpose", [h], "i"), id="another order of axes"),
        pytest.param(lambda s, h: s.op("Cast", [h], "i", to=1), id="another type"),
        pytest.param(lambda s, h: s.op("Dropout", [h], "i", ratio=0.25), id="drops some"),
        pytest.param(lambda s, h: s.op("Concat", [h, h], "i", axis=0), id="two pieces"),
        pytest.param(lambda s, h: s.op("Reshape", [h, s.integers("s", 6, 4)], "i"), id="another shape"),
        pytest.param(_backwards, id="backwards"),
    ],
)
def test_what_changes_something_stays(make: Callable[[Sketch, str], str]) -> None:
    s = Sketch("loose", DType.FLOAT64)
    h = make(s, s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h"))
    h = s.op("Cast", [s.op("Mul", [h, h], "squared")], "single", to=1)
    s.op("ReduceMean", [h], "loss", keepdims=0)
    graph = s.graph()
    after = everywhere(graph, "drop-identity").graph
    assert "i" in after.operands
    assert len(graph.operations) - len(after.operations) == (graph.operands["i"].dtype is DType.FLOAT32)


def test_an_output_keeps_its_name() -> None:
    graph = through(IDENTITIES["Flatten"], outputs=("i",))
    assert everywhere(graph, "drop-identity").graph is graph


def test_an_identity_of_a_parameter_hands_on_the_parameter() -> None:
    s = Sketch("parameter", DType.FLOAT64)
    w = s.op("Cast", [s.parameter("w", 6, 6)], "w.cast", to=11)
    h = s.op("MatMul", [s.input("x", 4, 6), w], "h")
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss")
    after = same_after(s.graph(), "drop-identity", bitwise=True)
    assert after.operations[0].inputs == ("x", "w")


# ------------------------------------------------------------------------------ views and permutations


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (_steps((3, 8), (4, 6)), ["MatMul", "Reshape", "Tanh", "Reshape", "MeanSquaredError"]),
        (_steps((3, 8), (0, 2, -1)), ["MatMul", "Reshape", "Tanh", "Reshape", "MeanSquaredError"]),
        (_steps((3, 8), (24,), (2, 12)), ["MatMul", "Reshape", "Tanh", "Reshape", "MeanSquaredError"]),
    ],
)
def test_views_join(make: Callable[[Sketch, str], str], left: list[str]) -> None:
    before = through(make)
    after = same_after(before, "join-views", bitwise=True)
    assert types(after) == left
    assert after.operands["bent"] == before.operands["bent"]


def test_flatten_squeeze_and_unsqueeze_are_views_as_well() -> None:
    def make(s: Sketch, h: str) -> str:
        h = s.op("Unsqueeze", [h, s.integers("axis", 1)], "a")
        h = s.op("Squeeze", [h, s.integers("again", 1)], "b")
        return s.op("Flatten", [h], "c", axis=0)

    before = through(make)
    assert types(only(before, "join-views"))[1:4] == ["Reshape", "Tanh", "Reshape"]
    after = everywhere(before).graph
    assert len(after.operations) == 5
    same_training(before, after, rtol=1e-12)


def test_a_view_that_others_read_stays() -> None:
    def make(s: Sketch, h: str) -> str:
        first = s.op("Reshape", [h, s.integers("s", 24)], "first")
        second = s.op("Reshape", [first, s.integers("r", 4, 6)], "second")
        return s.op("Add", [second, s.op("Reshape", [first, s.integers("q", 4, 6)], "third")], "sum")

    graph = through(make)
    assert everywhere(graph, "join-views").graph is graph


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ((2, 0, 1), (2, 0, 1), (1, 2, 0)),
        ((1, 2, 0), (0, 2, 1), (1, 0, 2)),
        ((2, 0, 1), (1, 2, 0), (0, 1, 2)),
        (None, (0, 2, 1), (2, 0, 1)),
        (None, None, (0, 1, 2)),
    ],
)
def test_permutations_join(
    first: tuple[int, ...] | None, second: tuple[int, ...] | None, joined: tuple[int, ...]
) -> None:
    def make(s: Sketch, h: str) -> str:
        h = s.op("Reshape", [h, s.integers("s", 2, 3, 4)], "cube")
        for k, perm in enumerate((first, second)):
            attributes: dict[str, Any] = {} if perm is None else {"perm": perm}
            h = s.op("Transpose", [h], f"t{k}", **attributes)
        return h

    before = through(make)
    after = same_after(before, "join-transposes", bitwise=True)
    (transpose,) = (op for op in after.operations if op.type == "Transpose")
    assert transpose.attributes["perm"] == joined
    assert ("Transpose" in types(everywhere(before).graph)) == (joined != (0, 1, 2))


def test_a_permutation_that_others_read_stays() -> None:
    def make(s: Sketch, h: str) -> str:
        turned = s.op("Transpose", [h], "turned")
        back = s.op("Transpose", [turned], "back")
        return s.op("MatMul", [turned, back], "product") and back

    graph = through(make, outputs=("product",))
    assert everywhere(graph, "join-transposes").graph is graph
