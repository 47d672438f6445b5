"""Documents under random graphs, random bytes and random operations."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.canonical import canonical_json
from solver.documents import (
    dump_buffers,
    dump_graph,
    dump_plan,
    dump_report,
    graph_digest,
    load_buffers,
    load_graph,
    load_options,
    load_plan,
    load_report,
    parse_json,
)
from solver.errors import ArenaplanError, DocumentError, InternalError
from solver.graph import DType, Initializer, Role, TrainableGraph
from solver.graph.ops import OPERATOR_NAMES, lookup
from solver.layout import Buffer, LayoutProblem, Lifespan
from solver.pipeline import plan
from solver.reports.validation import StepReport, ValidationReport, Violation
from tests.support.documents import graph_document
from tests.support.graphs import Sketch

NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"], exclude_characters="@"),
    min_size=1,
    max_size=12,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

# ------------------------------------------------------------------------------------- round trips


@st.composite
def initializers(draw: st.DrawFn, shape: tuple[int, ...]) -> Initializer | None:
    kind = draw(st.sampled_from(["none", "zeros", "ones", "constant", "normal", "he_normal", "values"]))
    seed = draw(st.integers(0, 2**63 - 1))
    if kind == "none":
        return None
    if kind == "values":
        return Initializer(
            "values", data=draw(st.binary(min_size=4 * math.prod(shape), max_size=4 * math.prod(shape)))
        )
    if kind == "constant":
        return Initializer(kind, value=draw(st.floats(width=32, allow_nan=False)))
    if kind == "normal":
        return Initializer(kind, scale=draw(st.floats(1e-9, 1e9)), seed=seed)
    return Initializer(kind, seed=seed if kind == "he_normal" else 0)


@st.composite
def graphs(draw: st.DrawFn) -> TrainableGraph:
    """Random operations over matrices of one batch, names and initializers drawn freely."""
    names = iter(draw(st.lists(NAMES, min_size=40, max_size=40, unique=True)))
    batch, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    s = Sketch(draw(NAMES))
    values = [s.input(next(names), batch, width)]
    for _ in range(draw(st.integers(1, 6))):
        source = draw(st.sampled_from(values))
        type_ = draw(st.sampled_from(["Gemm", "Add", "Mul", "Relu", "Clip", "Softmax"]))
        inputs = [source]
        if type_ in ("Gemm", "Mul"):
            shape = (width, width) if type_ == "Gemm" else (width,)
            inputs.append(
                s.parameter(next(names), *shape, initializer=draw(initializers(shape)), trainable=False)
            )
        elif type_ == "Add":
            inputs.append(draw(st.sampled_from(values)))
        values.append(s.op(type_, inputs, next(names), next(names)))
    weight = s.parameter(next(names), width)
    last = s.op("Add", [values[-1], weight], next(names), next(names))
    loss = s.op("MeanSquaredError", [last, s.label(next(names), batch, width)], next(names), next(names))
    outputs = draw(st.lists(st.sampled_from(values), max_size=3))
    optimizer = draw(st.sampled_from(["SGD", "Adam", "AdamW"]))
    return s.graph(
        loss,
        trainable=[weight],
        outputs=outputs,
        optimizer=optimizer,
        learning_rate=draw(st.floats(1e-6, 1.0)),
    )


@given(graphs())
def test_graph_round_trip(graph: TrainableGraph) -> None:
    data = dump_graph(graph)
    again = load_graph(data)
    assert again == graph
    assert list(again.operands) == list(graph.operands)
    assert dump_graph(again) == data
    assert graph_digest(again) == graph_digest(graph)


@given(graphs())
def test_plan_round_trip(graph: TrainableGraph) -> None:
    made = plan(graph)
    data = dump_plan(made)
    again = load_plan(data)
    assert again == made
    assert dump_plan(again) == data
    assert load_plan(dump_plan(made, indent=1)) == made
    assert made.graph_digest == graph_digest(graph)


@given(st.data(), st.sampled_from(list(DType)), st.integers(1, 6))
def test_listed_values_are_what_numpy_makes_of_them(data: st.DataObject, dtype: DType, count: int) -> None:
    values = data.draw(st.lists(_elements(dtype), min_size=count, max_size=count))
    document = graph_document()
    document["operands"][2] = {
        "name": "flat.shape",
        "role": "constant",
        "shape": [count],
        "dtype": dtype.value,
        "initializer": {"kind": "values", "values": values},
    }
    document["operations"][0] = {
        "name": "flatten",
        "type": "Flatten",
        "inputs": ["image"],
        "outputs": ["flat"],
    }
    document["operations"].append(
        {"name": "use", "type": "Transpose", "inputs": ["flat.shape"], "outputs": ["used"]}
    )
    with contextlib.suppress(ArenaplanError):  # an operator may not take the type; the values must be read
        operand = load_graph(json.dumps(document).encode()).operands["flat.shape"]
        assert operand.role is Role.CONSTANT
        assert operand.initializer is not None
        assert operand.initializer.data == np.array(values, dtype.numpy).tobytes()


def _elements(dtype: DType) -> st.SearchStrategy[Any]:
    if dtype is DType.BOOL:
        return st.booleans()
    if dtype.is_floating:
        if dtype is DType.FLOAT64:
            return st.floats(allow_nan=False, allow_infinity=False)
        return st.floats(width=32, allow_nan=False, allow_infinity=False)
    info = np.iinfo(dtype.numpy)
    return st.integers(int(info.min), int(info.max))


BUFFERS = st.builds(
    lambda name, size, start, length, power, offset: Buffer(
        name, size, Lifespan(start, start + length), 2**power, offset
    ),
    NAMES,
    st.integers(0, 2**63 - 1),
    st.integers(-(2**31), 2**31),
    st.integers(1, 2**31),
    st.integers(0, 20),
    st.none() | st.integers(0, 2**63 - 1),
)


@given(st.lists(BUFFERS, max_size=6), st.none() | st.integers(0, 2**63 - 1))
def test_buffers_round_trip(buffers: list[Buffer], capacity: int | None) -> None:
    problem = LayoutProblem(tuple(buffers), capacity)
    assert load_buffers(dump_buffers(problem)) == problem


FINITE = st.floats(allow_nan=False)
REPORTS = st.builds(
    ValidationReport,
    st.lists(
        st.builds(
            StepReport,
            st.integers(0, 10**6),
            FINITE,
            FINITE,
            st.booleans(),
            st.lists(NAMES, max_size=3).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    st.lists(st.builds(Violation, NAMES, st.lists(NAMES, max_size=3).map(tuple), NAMES), max_size=3).map(
        tuple
    ),
    st.booleans(),
    st.integers(0, 10**6),
    st.integers(0, 2**63 - 1),
)


@given(REPORTS)
def test_report_round_trip(report: ValidationReport) -> None:
    assert load_report(dump_report(report)) == report


@given(JSON)
def test_json_round_trip(value: Any) -> None:
    text = json.dumps(value).encode()
    assert parse_json(text) == json.loads(text)
    assert canonical_json({"value": parse_json(text)}) == canonical_json({"value": value})


# -------------------------------------------------------------------------------------------- fuzz


def refuse_or_take(load: Any, data: Any) -> None:
    """Any answer is right except an exception that is not ours, or one that blames ourselves."""
    try:
        load(data)
    except InternalError:
        raise
    except ArenaplanError as refused:
        error = refused
    else:
        return
    assert error.message
    assert error.pointer is not None
    text = str(error)
    assert text.isprintable()
    assert len(text) < 5000
    text.encode()


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    for load in (load_graph, load_options, load_plan, load_report, load_buffers):
        refuse_or_take(load, data)


@given(JSON)
def test_any_json(value: Any) -> None:
    for load in (load_graph, load_options, load_plan, load_report, load_buffers):
        refuse_or_take(load, json.dumps(value).encode())


ATTRIBUTE_NAMES = sorted({name for operator in OPERATOR_NAMES for name in lookup(operator).rules()})
ATTRIBUTES = st.dictionaries(
    st.sampled_from(ATTRIBUTE_NAMES),
    st.integers(-3, 4)
    | st.lists(st.integers(-2, 3), max_size=5)
    | st.sampled_from([2**63 - 1, 0.5, "SAME_UPPER", "NHWC"]),
    max_size=4,
)
INTEGERS = st.integers(-3, 8) | st.sampled_from([2**31, 2**62, 2**63 - 1, -(2**63)])
SHAPES = st.lists(st.integers(1, 4), max_size=5)


def operand(name: str, role: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "shape": shape, "dtype": "float32", **more}


@given(
    st.sampled_from(OPERATOR_NAMES), ATTRIBUTES, st.sampled_from(["", "w", "n"]), SHAPES, SHAPES, st.data()
)
def test_any_operation(
    type_: str,
    attributes: dict[str, Any],
    second: str,
    shape: list[int],
    weight: list[int],
    data: st.DataObject,
) -> None:
    """Every operation document gets a plan or an error of ours."""
    operands = [operand("x", "input", shape)]
    if second == "w":
        operands.append(operand("w", "parameter", weight))
    if second == "n":
        numbers = data.draw(st.lists(INTEGERS, min_size=1, max_size=6))
        values = {"kind": "values", "values": numbers}
        operands.append(operand("n", "constant", [len(numbers)], initializer=values) | {"dtype": "int64"})
    known = {key: attributes[key] for key in attributes if key in lookup(type_).rules()}
    odd = {"name": "odd", "type": type_, "inputs": ["x", second], "outputs": ["y"], "attributes": known}
    if not second:
        odd["inputs"] = ["x"]
    loss = {"name": "mse", "type": "MeanSquaredError", "inputs": ["y", "y"], "outputs": ["loss"]}
    document = {**graph_document(), "operands": operands, "operations": [odd, loss], "outputs": []}
    refuse_or_take(lambda given: plan(load_graph(given)), document)


@pytest.mark.parametrize("prefix", [b"", b"[1, ", b'{"a": {"b": '])
@given(text=st.text(max_size=30))
def test_faults_never_break_the_search_for_them(prefix: bytes, text: str) -> None:
    for data in (
        prefix + text.encode(errors="replace") + b" NaN",
        prefix + b"NaN" + text.encode(errors="replace"),
    ):
        with pytest.raises(DocumentError):
            parse_json(data + b"}]")
