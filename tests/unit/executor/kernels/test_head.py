"""ProductLogSumExp: results and derivatives against the whole logits in float64, in any chunks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import GraphError
from solver.graph.types import Array
from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal

HEAD = "ProductLogSumExp"


def whole(values: Sequence[Array | None], dy: Sequence[Array], **attributes: Any) -> dict[str, Array]:
    """Results and derivatives from logits that are computed at once."""
    x, w, labels, bias = (*values, None)[:4]
    assert x is not None
    assert w is not None
    assert labels is not None
    matrix = w.T if attributes.get("transB") else w
    logits = x @ matrix + (0 if bias is None else bias)
    highest = logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits - highest)
    sums = exponentials.sum(axis=1, keepdims=True)
    kept = labels != attributes.get("ignore_index", -(2**40))
    columns = np.arange(logits.shape[1]) + attributes.get("first_class", 0)
    one_hot = (columns == labels[:, None]) & kept[:, None]
    dl, dp = (np.where(kept, each, 0)[:, None] for each in dy)
    g = dl * exponentials / sums + dp * one_hot
    dw = x.T @ g
    return {
        "L": np.where(kept, (highest + np.log(sums))[:, 0], 0),
        "P": (logits * one_hot).sum(axis=1),
        "dx0": g @ matrix.T,
        "dx1": dw.T if attributes.get("transB") else dw,
        "dx3": g.sum(axis=0),
    }


def assert_whole(values: Sequence[Array | None], *, scratch_budget: int = 1 << 21, **attributes: Any) -> None:
    operation = OneOperation(HEAD, values, scratch_budget=scratch_budget, **attributes)
    dy = [normal(len(values[0]), seed=seed) for seed in (5, 6)]  # type: ignore[arg-type]  # X is there
    expected = whole(operation.values, dy, **attributes)
    results = dict(zip("LP", operation.forward_all(), strict=True))
    wanted = [i for i, value in enumerate(values) if i != 2 and value is not None]
    results |= {f"dx{i}": value for i, value in operation.backward(dy, *wanted).items()}
    for name, value in results.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-12, err_msg=name)


@st.composite
def heads(draw: st.DrawFn) -> tuple[list[Array | None], dict[str, Any]]:
    rows, inner, columns = (draw(st.integers(least, 9)) for least in (0, 0, 1))
    trans_b, first, after = draw(st.integers(0, 1)), draw(st.integers(0, 3)), draw(st.integers(0, 3))
    classes = first + columns + after
    ignored = draw(st.none() | st.integers(-2, classes))
    label = st.integers(0, classes - 1) if ignored is None else st.integers(0, classes - 1) | st.just(ignored)
    labels = np.array(
        draw(st.lists(label, min_size=rows, max_size=rows)), draw(st.sampled_from(["int32", "int64"]))
    )
    spread = draw(st.sampled_from([1.0, 300.0]))
    bias = normal(columns, seed=3) if draw(st.booleans()) else None
    w = normal(columns, inner, seed=2) if trans_b else normal(inner, columns, seed=2)
    attributes: dict[str, Any] = {"transB": trans_b, "first_class": first, "classes": classes}
    attributes |= {} if ignored is None else {"ignore_index": ignored}
    for name in ("chunk_rows", "chunk_columns"):
        size = draw(st.none() | st.integers(1, 10))
        attributes |= {} if size is None else {name: size}
    return [normal(rows, inner, seed=1) * spread, w, labels, bias], attributes


@given(heads())
def test_any_chunks_give_what_the_whole_logits_give(case: tuple[list[Array | None], dict[str, Any]]) -> None:
    values, attributes = case
    assert_whole(values, **attributes)


@grid("trans_b", [0, 1])
def test_chunks_by_the_scratch_budget(trans_b: int) -> None:
    w = normal(700, 30) if trans_b else normal(30, 700)
    labels = np.random.default_rng(1).integers(0, 700, 300)
    assert_whole([normal(300, 30), w, labels, normal(700)], scratch_budget=1, transB=trans_b)


@given(heads(), st.sets(st.integers(1, 8), max_size=3))
def test_parts_of_a_head_make_the_whole(
    case: tuple[list[Array | None], dict[str, Any]], cuts: set[int]
) -> None:
    """The log-sum-exp of the parts' L, and the sum of their P; an ignored row has zeros in each."""
    (x, w, labels, bias), attributes = case
    assert w is not None
    assert labels is not None
    attributes = {name: value for name, value in attributes.items() if name != "first_class"}
    trans_b, classes = attributes["transB"], attributes["classes"]
    columns = w.shape[1 - trans_b]
    one = OneOperation(HEAD, [x, w, labels, bias], **attributes).forward_all()
    parts = []
    for first, end in pairwise(sorted({0, columns, *(cut for cut in cuts if cut < columns)})):
        part = np.ascontiguousarray(w[first:end] if trans_b else w[:, first:end])
        values = [x, part, labels, None if bias is None else bias[first:end]]
        parts.append(OneOperation(HEAD, values, **{**attributes, "first_class": first}).forward_all())
    kept = labels != attributes.get("ignore_index", classes)
    log_sums = np.logaddexp.reduce([log_sum for log_sum, _ in parts])
    np.testing.assert_allclose(np.where(kept, log_sums, 0), one[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sum(chosen for _, chosen in parts), one[1], rtol=1e-12, atol=1e-12)


@grid("dtype", ["float32", "float64"])
def test_logits_of_any_size_and_whole_chunks_of_minus_infinity(dtype: str) -> None:
    large = 1e38 if dtype == "float32" else 1e300
    bias = np.array([-np.inf, -np.inf, large, -large, -np.inf, -np.inf, 0.5], dtype)
    values = [np.zeros((2, 3), dtype), np.zeros((3, 7), dtype), np.array([2, 6]), bias]
    with np.errstate(all="ignore"):
        operation = OneOperation(HEAD, values, chunk_columns=2)
        log_sums, chosen = operation.forward_all()
        derivatives = operation.backward([np.ones(2, dtype), np.zeros(2, dtype)], 3)
    assert log_sums.tolist() == [bias[2]] * 2
    assert chosen.tolist() == [bias[2], 0.5]
    assert derivatives[3].tolist() == [0, 0, 2, 0, 0, 0, 0]


@pytest.mark.parametrize("label", [-1, 5, 2**40])
def test_a_label_outside_the_classes_is_named(label: int) -> None:
    operation = OneOperation(HEAD, [normal(3, 2), normal(2, 5), np.array([0, label, 1])])
    with pytest.raises(GraphError, match=rf"'op' is {label}\. Labels must lie in \[0, 4\]"):
        operation.forward()
    others: dict[str, Any] = {"classes": 9, "first_class": 2, "ignore_index": -1}
    several = OneOperation(HEAD, [normal(3, 2), normal(2, 5), np.array([0, 9, -1])], **others)
    with pytest.raises(GraphError, match=r"'op' is 9\. Labels must lie in \[0, 8\], or be -1"):
        several.forward()


def test_no_step_allocates_more_than_small_buffers() -> None:
    labels = np.random.default_rng(1).integers(0, 1001, 300).astype(np.int32)
    for dtype in ("float32", "float64"):
        values = [normal(300, 200, dtype=dtype), normal(200, 1001, dtype=dtype), labels]
        operation = OneOperation(
            HEAD, [*values, normal(1001, dtype=dtype)], scratch_budget=1 << 18, ignore_index=7
        )
        operation.assert_lean()
        turned = [values[0], np.ascontiguousarray(values[1].T), labels]
        OneOperation(HEAD, turned, scratch_budget=1 << 18, transB=1).assert_lean()
