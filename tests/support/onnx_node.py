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

from solver.graph.ops import OPERATOR_NAMES, lookup
from solver.graph.types import Array
from tests.support.one_operation import OneOperation


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

    def run(self) -> Array:
        """Forward through our kernels. Raises our errors for what we do not take."""
        attributes = {a.name: _attribute(onnx.helper.get_attribute_value(a)) for a in self.node.attribute}
        return OneOperation(self.operator, self.inputs, **attributes).forward()

    def check(self) -> None:
        """Shape, element type and elements of the first output are what ONNX expects."""
        assert len(self.outputs) == lookup(self.operator).outputs, "ONNX expects more outputs"
        found, expected = self.run(), self.outputs[0]
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=self.rtol, atol=self.atol)


def _attribute(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


@cache
def node_cases() -> dict[str, NodeCase]:
    """Cases whose graph is a single node of one of our operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX makes its data on the spot, overflows included
        tests = load_model_tests(kind="node")
    return {case.name: case for test in tests for case in _cases(test)}


def _cases(test: Any) -> Iterator[NodeCase]:
    model = test.model
    if model is None or len(model.graph.node) != 1 or model.graph.node[0].op_type not in OPERATOR_NAMES:
        return
    node = model.graph.node[0]
    if node.domain or len(test.data_sets) != 1:
        return
    given, expected = test.data_sets[0]
    by_name = dict(zip((value.name for value in model.graph.input), given, strict=True))
    yield NodeCase(
        name=test.name,
        node=node,
        inputs=tuple(np.asarray(by_name[name]) if name else None for name in node.input),
        outputs=tuple(np.asarray(value) for value in expected),
        rtol=test.rtol,
        atol=test.atol,
    )
