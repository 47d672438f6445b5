"""ONNX's own backend node tests, for every operator that both know.

All pass but those of `excluded`, each with its reason. The table cannot go stale: a case in it that
ONNX no longer has, or that passes by now, fails a test."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests

from solver.errors import GraphError
from solver.graph.nodes import resolve
from solver.graph.ops import OPERATOR_NAMES, SEQUENCES, lookup
from solver.graph.types import Array, DType, Initializer, Operand, Operation, Role, TensorType
from tests.support.every import every, grid
from tests.support.one_operation import OneOperation

#: More cells than any test has.
_LIMIT = 1000


def unrolled_operations(
    type_: str, values: Sequence[Array | None], outputs: Sequence[str], **attributes: Any
) -> tuple[Operation, ...]:
    """The operations of a sequence called ``s`` over inputs ``x0``, ``x1``, ..."""
    names = tuple("" if value is None else f"x{i}" for i, value in enumerate(values))
    operands = {
        name: _operand(name, value) for name, value in zip(names, values, strict=True) if value is not None
    }
    node = resolve(Operation("s", type_, names, tuple(outputs), attributes), operands)
    SEQUENCES[type_].infer(node)
    return SEQUENCES[type_].unroll(node, _LIMIT)


def run_sequence(
    type_: str, values: Sequence[Array | None], outputs: Sequence[str], **attributes: Any
) -> list[Array]:
    """Values of the outputs that have names."""
    known = {f"x{i}": value for i, value in enumerate(values) if value is not None}
    for operation in unrolled_operations(type_, values, outputs, **attributes):
        given = [known[name] if name else None for name in operation.inputs]
        own: dict[str, Any] = dict(operation.attributes)
        one = OneOperation(operation.type, given, outputs=len(operation.outputs), **own)
        known.update(zip(operation.outputs, one.forward_all(), strict=True))
    return [known[name] for name in outputs if name]


def _operand(name: str, value: Array) -> Operand:
    type_ = TensorType(value.shape, DType(value.dtype.name))
    if type_.dtype.is_floating:
        return Operand(name, type_, Role.INPUT)
    return Operand(name, type_, Role.CONSTANT, Initializer("values", np.ascontiguousarray(value).tobytes()))


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


pytest.importorskip("onnx", reason="the node tests come with onnx")


_NO_SUCH_TYPE = "operands have no elements of this type"
_INTEGERS = "arithmetic is on floating operands: what is trained has derivatives"
_EMPTY = "an operand has at least one element"
_INFERENCE = "Dropout has no mode of inference, its ratio is an attribute and its mask is never stored"
_INDICES = "MaxPool has one output; where the maxima are is scratch of its own, not ONNX's indices"
_CROP = "Resize resizes whole images; a region of interest is a Slice before it"

#: Operators that ONNX tests with every element type there is.
_OF_ANY_TYPE = (
    *("Cast", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual"),
    *("QuantizeLinear", "DequantizeLinear"),
)


@cache
def excluded() -> dict[str, str]:
    """Why a case does not pass, by its name.

    A function: ONNX makes its cases in seconds, and processes that only collect tests do not need them.
    """
    return {
        **{
            n: _NO_SUCH_TYPE
            for n, c in node_cases().items()
            if c.operator in _OF_ANY_TYPE and c.has_foreign_types
        },
        **{f"test_{op}_int16": _NO_SUCH_TYPE for op in ("add", "sub", "mul")},
        **{
            f"test_{op}_uint{bits}": _NO_SUCH_TYPE
            for op in ("add", "sub", "mul", "div")
            for bits in (16, 32, 64)
        },
        "test_div_uint8": _INTEGERS,
        "test_div_int8": _INTEGERS,
        "test_div_int16": _NO_SUCH_TYPE,
        "test_div_int32_trunc": _INTEGERS,
        **{f"test_pow_types_float32_uint{bits}": _NO_SUCH_TYPE for bits in (32, 64)},
        **{f"test_pow_types_int{bits}_int{bits}": _INTEGERS for bits in (32, 64)},
        **{f"test_pow_types_int{bits}_float32": _INTEGERS for bits in (32, 64)},
        **{n: _INFERENCE for n, c in node_cases().items() if c.operator == "Dropout"},
        "test_clip_default_int8_min": _INTEGERS,
        "test_clip_default_int8_max": _INTEGERS,
        "test_clip_default_int8_inbounds": _INTEGERS,
        "test_maxpool_with_argmax_2d_precomputed_pads": _INDICES,
        "test_maxpool_with_argmax_2d_precomputed_strides": _INDICES,
        **{
            f"test_resize_tf_crop_and_resize{more}": _CROP
            for more in ("", "_axes_2_3", "_axes_3_2", "_extrapolation_value")
        },
        "test_reduce_max_empty_set": _EMPTY,
        "test_reduce_max_empty_set_bool": _EMPTY,
    }


#: Operators that ONNX has no case of: it does not know them, or their cases are excluded.
WITHOUT_CASES = {
    *("ArgTopK", "Dropout", "GRUCell", "LSTMCell", "RNNCell", "RandomUniform"),
    *("ScatterAdd", "ScatterUpdate", "StopGradient", "TileGather", "LogAddExp", "ProductLogSumExp"),
}


def _known(operator: str) -> list[NodeCase]:
    return [c for c in node_cases().values() if c.operator == operator and c.name not in excluded()]


@grid("operator", [*(name for name in OPERATOR_NAMES if not lookup(name).is_loss), *SEQUENCES])
def test_all_cases_of_an_operator_pass(operator: str) -> None:
    failures: dict[str, str] = {}
    for case in _known(operator):
        try:
            case.check()
        except (AssertionError, ArithmeticError, GraphError, ValueError) as error:
            failures[case.name] = f"{type(error).__name__}: {error}"
    assert not failures
    assert bool(_known(operator)) == (operator not in WITHOUT_CASES)


def test_an_excluded_case_exists_and_does_not_pass() -> None:
    with every() as case:
        for name in sorted(excluded()):
            with case(name), pytest.raises((AssertionError, GraphError, ValueError)):
                node_cases()[name].check()


def test_how_many_pass() -> None:
    """ONNX may add cases, so this is a lower bound."""
    assert sum(name not in excluded() for name in node_cases()) >= 418
