"""Training graphs with stored weights: one with every kind of operator that unpacks them, and random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from solver.graph import DType, Initializer, Role, TrainableGraph, TrainingRules
from solver.graph.storage import Storage
from tests.support.graphs import Sketch
from tests.support.operator_cases import STORAGES

__all__ = ["adapted", "random_stored_graphs", "stored"]

_TYPES = ("Gemm", "Gemm", "MatMul", "Conv", "Gather", "LoRA", "Add", "Mul", "Tanh")


def stored(s: Sketch, name: str, *shape: int, storage: Storage) -> str:
    """A frozen parameter in this storage, from the normal distribution."""
    initializer = Initializer("normal", scale=0.5, seed=len(s.operands))
    return s.parameter(name, *shape, storage=storage, trainable=False, initializer=initializer)


def adapted(batch: int = 2, **hyper: Any) -> TrainableGraph:
    """An embedding, a product and a head that are stored, with adapters of rank 2 that are trained.

    The head is the embedding once more, so that the derivative runs through stored bytes that are read twice.
    """
    s = Sketch("adapted")
    ids = s.add("ids", Role.INPUT, (batch, 3), dtype=DType.INT64)
    table = stored(s, "table", 9, 16, storage=STORAGES[4])
    h = s.op("Gather", [table, ids], "h", "embed")
    base = stored(s, "base", 16, 16, storage=replace(STORAGES[3], axis=1))
    low = s.op("MatMul", [h, s.parameter("down", 16, 2)], "low")
    adapter = s.op("MatMul", [low, s.parameter("up", 2, 16)], "adapter")
    mixed = s.op("Add", [s.op("MatMul", [h, base], "product"), adapter], "mixed", activation="Tanh")
    image = s.op("Reshape", [mixed, s.integers("image.shape", -1, 3, 4, 4)], "image")
    filters = stored(s, "filters", 4, 3, 4, 2, storage=replace(STORAGES[5], group=24))
    image = s.op(
        "Conv", [image, filters, s.parameter("shift", 4)], "convolved", activation="Relu", pads=(1, 1, 0, 0)
    )
    rows = s.op("Reshape", [image, s.integers("rows.shape", -1, 4)], "rows")
    wide = s.op("Gemm", [rows, s.parameter("widen", 16, 4)], "wide", transB=1)
    logits = s.op("Gemm", [wide, table], "logits", "head", transB=1)
    flat = s.op("Reshape", [logits, s.integers("flat.shape", -1, 72)], "flat")
    s.op("MeanSquaredError", [flat, s.label("t", batch, 72)], "loss", "mse")
    return s.graph(**hyper)


@st.composite
def random_stored_graphs(draw: st.DrawFn, most_operations: int = 6) -> TrainableGraph:
    """Matrices of one shape through products with stored and trained weights, and what stands between."""
    batch, width, s = draw(st.integers(1, 3)), draw(st.sampled_from([8, 16, 24])), Sketch("random")
    x, kind = s.input("x", batch, width), st.sampled_from(STORAGES)
    values, unread, rows = [s.op("Gemm", [x, s.parameter("w", width, width)], "h")], {"h"}, dict[str, int]()
    for k in range(draw(st.integers(1, most_operations))):
        type_ = draw(st.sampled_from(_TYPES))
        read, result = draw(st.sampled_from(values)), f"y{k}"
        read_before = {read} if type_ != "Gather" else set[str]()
        more: dict[str, Any] = {}
        if type_ in ("Gemm", "MatMul"):
            more = {"activation": draw(st.sampled_from(["None", "Relu"]))}
            axis = draw(st.integers(0, 1)) if type_ == "Gemm" else 1
            if type_ == "Gemm":
                more["transB"] = 1 - axis
            tied = [name for name in rows if rows[name] == axis]
            is_tied = draw(st.booleans())
            if tied and is_tied:
                weight = draw(st.sampled_from(tied))
            else:
                weight = stored(s, f"w{k}", width, width, storage=replace(draw(kind), axis=axis))
                rows[weight] = axis
            inputs = [read, weight]
        elif type_ == "Conv":
            shape, back = (
                s.integers(f"images{k}", batch, 2, width // 4, 2),
                s.integers(f"back{k}", batch, width),
            )
            read = s.op("Reshape", [read, shape], f"image{k}")
            filters = stored(s, f"f{k}", 2, 2, 2, 2, storage=draw(kind))
            y = s.op("Conv", [read, filters], f"conv{k}", pads=(1, 1, 0, 0))
            type_, inputs = "Reshape", [y, back]
        elif type_ == "Gather":
            index = s.add(f"ids{k}", Role.INPUT, (batch,), dtype=DType.INT64)
            inputs = [stored(s, f"table{k}", 5, width, storage=draw(kind)), index]
        elif type_ == "LoRA":
            low = s.op("Gemm", [read, s.parameter(f"a{k}", width, 2)], f"low{k}")
            type_, inputs = "Gemm", [low, s.parameter(f"b{k}", 2, width)]
        else:
            inputs = [read] if type_ == "Tanh" else [read, draw(st.sampled_from(values))]
        unread -= {*inputs, *read_before}
        values.append(s.op(type_, inputs, result, **more))
        unread.add(result)
    total, *rest = sorted(unread & {*values})
    for k, name in enumerate(rest):
        total = s.op("Add", [total, name], f"sum{k}")
    s.op("MeanSquaredError", [total, s.label("t", batch, width)], "loss")
    rules = draw(st.sampled_from((None, TrainingRules(clip_global_norm=0.1), TrainingRules(accumulate=2))))
    return s.graph(training=rules, optimizer=draw(st.sampled_from(["SGD", "Adam"])))
