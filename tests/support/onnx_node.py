"""ONNX's backend node tests as operations of ours: which there are, and how one is run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

from solver.graph.ops import OPERATOR_NAMES, SEQUENCES
from solver.graph.types import Array, DType
from tests.support.one_operation import OneOperation
from tests.support.sequences import run_sequence


@dataclass(frozen=True, slots=True)
class NodeCase:
    """One test of one node: inputs, expected outputs and the tolerances ONNX compares with."""

    name: str
    node: onnx.NodeProto
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float

    @property
    def operator(self) -> str:
        return self.node.op_type

    @property
    def has_foreign_types(self) -> bool:
        """Whether an operand has elements of a type that no operand of ours has."""
        ours = {dtype.numpy for dtype in DType}
        return any(a is not None and a.dtype not in ours for a in (*self.inputs, *self.outputs))

    def run(self) -> list[Array]:
        """Forward through our kernels: outputs, then states, then what is saved. Raises our errors."""
        attributes = {a.name: _attribute(onnx.helper.get_attribute_value(a)) for a in self.node.attribute}
        if self.operator in SEQUENCES:
            return run_sequence(self.operator, self.inputs, self.node.output, **attributes)
        operation = OneOperation(self.operator, self.inputs, outputs=len(self.outputs), **attributes)
        outputs = operation.forward_all()
        return [*outputs, *operation.states.values(), *operation.saved.values()]

    def check(self) -> None:
        """Shape, element type and elements of the outputs are what ONNX expects."""
        found = self.run()
        assert len(self.outputs) <= len(found), "ONNX expects more outputs"
        for ours, expected in zip(found, self.outputs, strict=False):
            assert ours.shape == expected.shape
            assert ours.dtype == expected.dtype
            np.testing.assert_allclose(ours, expected, rtol=self.rtol, atol=self.atol)


def _attribute(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


def _array(value: Any) -> Array:
    """Tests of element types that NumPy lacks hand out messages instead of arrays."""
    if isinstance(value, onnx.TensorProto):
        return np.asarray(onnx.numpy_helper.to_array(value))
    return np.asarray(value)


@cache
def node_cases() -> dict[str, NodeCase]:
    """Cases whose graph is a single node of one of our operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX makes its data on the spot, overflows included
        tests = load_model_tests(kind="node")
    return {case.name: case for test in tests for case in _cases(test)}


def _cases(test: Any) -> Iterator[NodeCase]:
    model = test.model
    known = {*OPERATOR_NAMES, *SEQUENCES}
    if model is None or len(model.graph.node) != 1 or model.graph.node[0].op_type not in known:
        return
    node = model.graph.node[0]
    if node.domain or len(test.data_sets) != 1:
        return
    given, expected = test.data_sets[0]
    by_name = dict(zip((value.name for value in model.graph.input), given, strict=True))
    yield NodeCase(
        name=test.name,
        node=node,
        inputs=tuple(_array(by_name[name]) if name else None for name in node.input),
        outputs=tuple(_array(value) for value in expected),
        rtol=test.rtol,
        atol=test.atol,
    )
