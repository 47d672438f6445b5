"""Constants in the recorder of all importers: equal ones are one, and those of one number are that number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.executor.initial import initial_value
from solver.graph import DType, Initializer, Operation, Role, TensorType
from solver.importers.recorder import GraphRecorder

Array = np.ndarray[Any, np.dtype[Any]]


def recorder(**constants: Array) -> GraphRecorder:
    """A chain of sums, one for each constant."""
    made, last = GraphRecorder(), "x"
    made.put("x", Role.INPUT, TensorType((48, 48), DType.FLOAT32))
    for name, array in constants.items():
        type_ = TensorType(array.shape, DType(array.dtype.name))
        made.put(name, Role.CONSTANT, type_, Initializer("values", data=array.tobytes()))
        made.record(Operation(f"{name}.add", "Add", (last, name), (f"{name}.out",)))
        last = f"{name}.out"
    return made


MASK = np.tri(48, dtype=np.float32)


def test_equal_constants_are_one() -> None:
    made = recorder(a=MASK, b=MASK.copy(), c=MASK + 1, d=MASK[:1])
    assert made.settle_constants() == {"b": "a"}
    assert set(made.operands) == {"x", "a", "c", "d"}
    assert [operation.inputs[1] for operation in made.operations] == ["a", "a", "c", "d"]


def test_sizes_stay_apart() -> None:
    """Two lists that are equal for this batch may differ for the next one."""
    made = GraphRecorder()
    made.put("x", Role.INPUT, TensorType((6, 8), DType.FLOAT32))
    last = "x"
    for name in ("first", "second"):
        data = np.array([8, 6]).tobytes()
        made.put(name, Role.CONSTANT, TensorType((2,), DType.INT64), Initializer("values", data=data))
        made.record(Operation(f"{name}.reshape", "Reshape", (last, name), (f"{name}.out",)))
        last = f"{name}.out"
    assert made.settle_constants() == {}


def test_not_those_apart_or_of_another_type() -> None:
    zeros = np.zeros((48, 48), np.float32)
    made = recorder(a=zeros, b=zeros, c=zeros)
    assert made.settle_constants({"a", "c"}) == {}
    assert set(made.operands) == {"x", "a", "b", "c"}
    bits = recorder(a=zeros)
    data = Initializer("values", data=zeros.tobytes())
    bits.put("i", Role.CONSTANT, TensorType((48, 48), DType.INT32), data)
    bits.put("p", Role.PARAMETER, TensorType((48, 48), DType.FLOAT32), data)
    assert bits.settle_constants() == {}


@pytest.mark.parametrize(
    "array",
    [
        np.full((48, 48), 0.1, np.float32),
        np.full((48, 48), -0.0, np.float32),
        np.full((48, 48), -np.inf, np.float32),
        np.full((48, 48), 0.1, np.float64),
        np.full((48, 48), 7, np.int64),
        np.ones((96, 96), bool),
    ],
)
def test_one_number(array: Array) -> None:
    made = GraphRecorder()
    type_ = TensorType(array.shape, DType(array.dtype.name))
    made.put("c", Role.CONSTANT, type_, Initializer("values", data=array.tobytes()))
    made.settle_constants()
    initializer = made.operands["c"].initializer
    assert initializer is not None
    assert initializer.kind == "constant"
    assert initializer.data is None
    assert initial_value(made.types["c"]).tobytes() == array.tobytes()


@pytest.mark.parametrize("array", [np.full((48, 48), 2**62 + 1, np.int64), np.zeros(8, np.int64), MASK])
def test_written_out(array: Array) -> None:
    """Numbers that no double has, short lists, and what is not one number."""
    made = GraphRecorder()
    given = Initializer("values", data=array.tobytes())
    made.put("c", Role.CONSTANT, TensorType(array.shape, DType(array.dtype.name)), given)
    assert made.settle_constants() == {}
    assert made.operands["c"].initializer == given
