"""Operators' promises: with one memory for source and target every kernel computes the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from solver.executor.kernels.base import Call
from solver.graph.ops import OPERATOR_NAMES, lookup
from solver.graph.ops.base import InPlace, OperationType
from solver.graph.types import Array
from tests.support.one_node import node_of
from tests.support.one_operation import OneOperation, placed, poisoned

#: More than two blocks of any kernel, no multiple of one.
BIG = (3, 5, 7, 701)
SMALL = (2, 3, 4)


@dataclass(frozen=True)
class Case:
    type: str
    shapes: Sequence[tuple[int, ...]]
    attributes: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    integers: tuple[int, ...] = ()

    def __str__(self) -> str:
        attributes = "".join(f"-{key}={value}" for key, value in self.attributes.items())
        return f"{self.type}-{'x'.join(map(str, self.shapes[0]))}-{self.dtype}{attributes}"

    def operation(self) -> OneOperation:
        """Positive inputs away from 0, so that roots, logarithms and quotients have their values."""
        rng = np.random.default_rng(3)
        signs = [1.0] if self.type in ("Log", "Sqrt") else [-1.0, 1.0]
        values: list[Array] = [
            (rng.uniform(0.1, 2.0, shape) * rng.choice(signs, shape)).astype(self.dtype)
            for shape in self.shapes
        ]
        if self.type == "BatchNormalization":
            values[4] = np.abs(values[4])
        if self.integers:
            values.append(np.array(self.integers, np.int64))
        return OneOperation(self.type, values, **self.attributes)


def _normalised(type_: str, **attributes: Any) -> Case:
    channels = (7,) if attributes.get("data_layout") == "NHWC" else (5,)
    shape = (3, 11, 31, 7) if attributes.get("data_layout") == "NHWC" else (3, 5, 17, 41)
    return Case(type_, [shape, *[channels] * (4 if type_ == "BatchNormalization" else 2)], attributes)


UNARY = (
    "Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Swish", "Gelu", "LeakyRelu", "Elu", "Exp", "Log",
    "Sqrt", "Reciprocal", "Neg", "Abs", "Erf",
)  # fmt: skip

CASES = (
    *(Case(type_, [BIG]) for type_ in UNARY),
    *(Case(type_, [SMALL], dtype="float64") for type_ in UNARY),
    Case("Clip", [BIG], {"min": -0.5, "max": 1.0}),
    Case("Clip", [BIG]),
    Case("Gelu", [BIG], {"approximate": "tanh"}),
    Case("LeakyRelu", [BIG], {"alpha": -0.5}),
    Case("Elu", [BIG], {"alpha": -0.5}),
    Case("PRelu", [BIG, (701,)]),
    Case("PRelu", [BIG, BIG]),
    *(Case(type_, [(90, 801)], {"axis": axis}) for type_ in ("Softmax", "LogSoftmax") for axis in (0, 1)),
    *(Case(type_, [(70, 40, 31)], {"axis": 1}) for type_ in ("Softmax", "LogSoftmax")),
    *(Case(type_, [BIG, BIG]) for type_ in ("Add", "Sub", "Mul", "Div")),
    *(Case(type_, [SMALL, SMALL], {"activation": "Tanh"}) for type_ in ("Add", "Sub", "Mul", "Div")),
    *(Case(type_, [BIG, BIG], {"activation": "Relu"}) for type_ in ("Add", "Sub", "Mul", "Div")),
    *(Case(type_, [BIG, (7, 1)]) for type_ in ("Add", "Sub", "Mul", "Div")),
    *(Case(type_, [(5, 1, 701), BIG], {"activation": "Relu"}) for type_ in ("Add", "Sub", "Mul", "Div")),
    Case("Dropout", [BIG], {"ratio": 0.3}),
    Case("Dropout", [SMALL], {"ratio": 0.0}),
    Case("Flatten", [SMALL]),
    Case("Reshape", [SMALL], integers=(4, -1)),
    Case("Squeeze", [(2, 1, 3)], {"axes": (1,)}),
    Case("Unsqueeze", [(2, 3)], {"axes": (1,)}),
    Case("LayerNormalization", [(300, 7, 31), (7, 31), (7, 31)], {"axis": 1}),
    *(_normalised("InstanceNormalization", data_layout=layout) for layout in ("NCHW", "NHWC")),
    _normalised("GroupNormalization", num_groups=5),
    _normalised("GroupNormalization", num_groups=7, data_layout="NHWC"),
    *(
        _normalised("BatchNormalization", training_mode=mode, data_layout=layout)
        for mode in (0, 1)
        for layout in ("NCHW", "NHWC")
    ),
)

PROMISES = [
    (case, promise) for case in CASES for promise in lookup(case.type).in_place(case.operation().node)
]


def _position(slot: str) -> int:
    return int(slot.removeprefix("dx").removeprefix("dy").lstrip("xy"))


def _shared(operation: OneOperation, promise: InPlace) -> bool:
    """Whether the planner would use the promise at all: both operands have the same size."""
    node, target = operation.node, promise.target
    output = node.outputs[0].elements
    position = _position(target if target.startswith("dx") else promise.source)
    return node.input(position).elements == output


@pytest.mark.parametrize(("case", "promise"), [p for p in PROMISES if p[1].target == "y0"], ids=str)
def test_forward(case: Case, promise: InPlace) -> None:
    operation = case.operation()
    if not _shared(operation, promise):
        return
    expected = operation.forward().tobytes()
    position = _position(promise.source)
    call = _forward_call(operation)
    source = call.x[position]
    assert source is not None
    memory = placed(source)
    inputs = tuple(memory if i == position else x for i, x in enumerate(call.x))
    output = memory.reshape(operation.types[0].shape)
    operation.kernels.forward(replace(call, x=inputs, y=(output,)))()
    assert output.tobytes() == expected
    if promise.view:
        assert memory.tobytes() == source.tobytes()


def _forward_call(operation: OneOperation) -> Call:
    """A call with memory of its own for everything, states included."""
    kind, node = operation.kind, operation.node
    states = kind.updates(node)
    values = operation.values
    return Call(
        node,
        x=tuple(placed(x) if i in states and x is not None else x for i, x in enumerate(values)),
        y=tuple(map(poisoned, operation.types)),
        saved={request.name: poisoned(request.type) for request in kind.saved(node)},
        scratch={request.name: poisoned(request.type) for request in kind.forward_scratch(node)},
    )


@pytest.mark.parametrize(("case", "promise"), [p for p in PROMISES if p[1].target != "y0"], ids=str)
def test_backward(case: Case, promise: InPlace) -> None:
    """For every set of derivatives that one step may be asked for, the target's among them."""
    operation = case.operation()
    target = _position(promise.target)
    positions = sorted(operation.kind.differentiable(operation.node))
    if target not in positions or not _shared(operation, promise):
        return
    others = [position for position in positions if position != target]
    dy = np.random.default_rng(4).standard_normal(operation.types[0].shape).astype(case.dtype)
    for size in range(1 if promise.alone else len(others) + 1):
        for rest in combinations(others, size):
            _compare_backward(operation, promise, dy, (target, *rest))


def _compare_backward(operation: OneOperation, promise: InPlace, dy: Array, wanted: tuple[int, ...]) -> None:
    target = wanted[0]
    expected = {i: array.tobytes() for i, array in operation.backward(dy, *wanted).items()}
    memory = placed(dy)
    dx = {i: poisoned(operation.node.input(i)) for i in wanted}
    dx[target] = memory.reshape(dx[target].shape)
    call = _backward_call(operation, memory, dx)
    operation.kernels.backward(call)()
    assert {i: array.tobytes() for i, array in dx.items()} == expected
    if promise.view:
        assert memory.tobytes() == dy.tobytes()


def _backward_call(operation: OneOperation, dy: Array, dx: dict[int, Array]) -> Call:
    needs = operation.needs(*dx)
    y = operation.forward_all()
    return Call(
        operation.node,
        x=tuple(x if i in needs.inputs else None for i, x in enumerate(operation.values)),
        y=tuple(value if k in needs.outputs else None for k, value in enumerate(y)),
        dy=(dy,),
        dx=tuple(dx.get(i) for i in range(len(operation.values))),
        saved={name: operation.saved[name] for name in needs.saved},
        scratch={request.name: poisoned(request.type) for request in needs.scratch},
    )


@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_every_operator_that_promises_something_is_tested(name: str) -> None:
    promises = type(lookup(name)).in_place is not OperationType.in_place
    assert promises == (name in {"Pow", *(case.type for case in CASES)})


def test_a_power_promises_nothing() -> None:
    """Its backward step reads X, and the derivative of the base is not done with dY when it begins."""
    assert lookup("Pow").in_place(node_of("Pow", [SMALL, SMALL])) == ()
