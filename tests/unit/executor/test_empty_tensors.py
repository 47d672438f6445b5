"""Tensors with a dimension of 0: planned without a place, proved, trained with, and with the right values."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Any

import numpy as np
import pytest

from solver.documents import dump_plan, load_plan
from solver.errors import AttributeRuleError, ShapeMismatchError, TrainableError
from solver.executor import BlockRunner, BlockViews, Trainer, synthetic_batch, validate
from solver.exporters import EXPORTERS
from solver.graph import DType, Initializer, Operation, Role, TensorType, TrainableGraph
from solver.graph.ops import lookup
from solver.pipeline import plan, plan_program
from solver.plan import PlanOptions
from solver.program import Tier
from solver.training import Block, BlockOperation, BlockView, build_program
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.operator_cases import CASES
from tests.support.operator_steps import Case

FUZZ = bool(os.environ.get("ARENAPLAN_FUZZ"))

OPTIONS = (
    PlanOptions(),
    PlanOptions(in_place=True, sub_ranges=True),
    PlanOptions(order=True, parallelism=2, rewrite=True),
)

#: One course of options through the graphs of all operators, most of which have few.
TURNS = itertools.cycle(OPTIONS)


def network(batch: int, hidden: int, features: int) -> TrainableGraph:
    """Two layers, with a parameter of no rows between them that is concatenated, trained and kept."""
    s = Sketch("empty")
    x = s.input("x", batch, features)
    h = s.op("Gemm", [x, s.parameter("w1", features, hidden), s.parameter("b1", hidden)], "h")
    c = s.op("Concat", [h, s.parameter("rows", 0, hidden)], "c", axis=0)
    r = s.op("Relu", [c], "r")
    z = s.op("Gemm", [r, s.parameter("w2", hidden, 2), s.parameter("b2", 2)], "z")
    s.op("MeanSquaredError", [z, s.label("t", batch, 2)], "loss", reduction="sum")
    return s.graph(optimizer="Adam", outputs=["r", "x", "rows"])


@pytest.mark.parametrize(
    ("batch", "hidden", "features"), [(0, 4, 3), (2, 0, 3), (2, 4, 0), (0, 0, 0), (3, 4, 3)]
)
def test_networks_are_planned_proved_and_trained(batch: int, hidden: int, features: int) -> None:
    graph = network(batch, hidden, features)
    arena = plan(graph).arena_bytes
    flash = Tier("flash", 1 << 20, 10**6, 10**6)
    more = (
        PlanOptions(storage="float16"),
        PlanOptions(recompute=True, capacity=arena),
        PlanOptions(tiers=(Tier("sram", arena), flash)),
        PlanOptions(target="singa"),
    )
    for options in (*OPTIONS, *more):
        made = load_plan(dump_plan(plan(graph, options)))
        empty = [i for i, value in enumerate(made.program.values) if not value.type.nbytes]
        assert empty
        assert not any(region.size for region in made.regions if set(region.members) <= {*empty})
        for exporter in EXPORTERS.values():
            assert exporter.dump(made)
        if options.target == "reference":
            assert validate(graph, made, steps=2).identical


def test_a_batch_of_none_changes_no_weight() -> None:
    graph = network(0, 4, 3)
    with Trainer(graph, plan(graph)) as trainer:
        before = {name: trainer.read(name).copy() for name in graph.trainable}
        loss = trainer.step(synthetic_batch(graph, 0, 1))
        assert loss == 0.0
        for name, value in before.items():
            np.testing.assert_array_equal(trainer.read(name), value)


# ------------------------------------------------------------------------------------- every operator


def emptied(case: Case, size: int) -> Sketch:
    """An operation in which every dimension of this size is 0, and a loss of its first result."""
    s = Sketch(case.type)
    constant, names = lookup(case.type).constant_inputs, []
    updated = lookup(case.type).name == "BatchNormalization"
    for i, value in enumerate(case.values):
        if value is None:
            names.append("")
            continue
        names.append(f"x{i}")
        dtype = DType(value.dtype.name)
        if i in constant:
            if case.type == "Resize":  # the sizes of all axes
                value = np.where(value == size, 0, value)
            data = Initializer("values", data=value.tobytes())
            s.add(f"x{i}", Role.CONSTANT, value.shape, dtype=dtype, initializer=data)
            continue
        role = Role.STATE if updated and i > 2 else Role.PARAMETER if dtype.is_floating else Role.INPUT
        shape = [0 if dimension == size else dimension for dimension in value.shape]
        s.add(f"x{i}", role, shape, dtype=dtype)
    outputs = tuple(f"y{k}" for k in range(case.outputs))
    s.operations.append(Operation("op", case.type, tuple(names), outputs, dict(case.attributes)))
    s.op("Cast", ["y0"], "cast", to=1)
    s.op("ReduceSum", ["cast"], "total", keepdims=0)
    s.op("MeanAbsoluteError", ["total", s.label("t")], "loss")
    return s


def trainable(s: Sketch) -> TrainableGraph:
    """With as many parameters as have a derivative."""
    names = [operand.id for operand in s.operands if operand.role is Role.PARAMETER]
    for chosen in (names, names[1:], names[:1]):
        try:
            return s.graph(trainable=chosen)
        except TrainableError:
            continue
    return s.graph(trainable=[])


@pytest.mark.fuzz
@grid("type_", sorted({case.type for case in CASES}))
def test_every_operator_takes_or_names_empty_operands(type_: str) -> None:
    """By default every sixth graph of an operator."""
    graphs = []
    for case in (case for case in CASES if case.type == type_ and not case.stored):
        for size in sorted({d for value in case.values if value is not None for d in value.shape}):
            with contextlib.suppress(ShapeMismatchError, AttributeRuleError):
                graphs.append(trainable(emptied(case, size)))
    assert graphs
    for graph in graphs[:: 1 if FUZZ else 6]:
        assert validate(graph, plan(graph, next(TURNS)), steps=1).identical


def value_of(type_: str, *inputs: Any, output_rank: int, **attributes: Any) -> Any:
    """The first result of an operation of these parameters and constants (lists), run in its arena."""
    s, names = Sketch(), []
    for i, given in enumerate(inputs):
        name, value = f"x{i}", np.asarray(given, np.int64 if isinstance(given, list) else np.float32)
        data = Initializer("values", data=value.tobytes())
        role = Role.CONSTANT if isinstance(given, list) else Role.PARAMETER
        s.add(name, role, value.shape, dtype=DType(value.dtype.name), initializer=data)
        names.append(name)
    s.op(type_, names, "y", **attributes)
    total = s.op("ReduceSum", ["y"], "total", keepdims=0) if output_rank else "y"
    s.op("MeanAbsoluteError", [total, s.label("t")], "loss")
    graph = s.graph(outputs=["y"], trainable=[])
    made = plan(graph)
    assert validate(graph, made, steps=1).identical
    with Trainer(graph, made) as trainer:
        trainer.step({"t": np.zeros((), np.float32)})
        return trainer.read("y").copy()


def test_sums_over_nothing_are_zero_and_means_are_no_number() -> None:
    nothing = np.zeros((2, 0))
    np.testing.assert_array_equal(
        value_of("ReduceSum", nothing, output_rank=1, axes=(1,), keepdims=0), [0, 0]
    )
    np.testing.assert_array_equal(
        value_of("ReduceMean", nothing, output_rank=1, axes=(1,), keepdims=0), [np.nan] * 2
    )
    np.testing.assert_array_equal(
        value_of("MatMul", nothing, np.zeros((0, 3)), output_rank=2), np.zeros((2, 3))
    )
    bias = np.arange(3.0)
    np.testing.assert_array_equal(
        value_of("Gemm", nothing, np.zeros((0, 3)), bias, output_rank=2), np.stack([bias, bias])
    )
    for type_ in ("MeanSquaredError", "MeanAbsoluteError", "Huber", "BinaryCrossEntropy"):
        assert value_of(type_, nothing, nothing, output_rank=0, reduction="sum") == 0
        assert np.isnan(value_of(type_, nothing, nothing, output_rank=0))
    assert np.isnan(value_of("CategoricalCrossEntropy", np.zeros((0, 4)), np.zeros((0, 4)), output_rank=0))


def test_what_is_moved_leaves_out_what_is_empty() -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(value_of("Concat", x, np.zeros((0, 3)), output_rank=2, axis=0), x)
    assert value_of("Slice", x, [1], [1], [0], output_rank=2).shape == (0, 3)
    np.testing.assert_array_equal(
        value_of("Pad", np.zeros((0, 3)), [1, 0, 1, 0], output_rank=2), np.zeros((2, 3))
    )
    assert value_of("Reshape", np.zeros((0, 3)), [3, 0, 7], output_rank=3, allowzero=1).shape == (3, 0, 7)
    scattered = value_of("Expand", np.zeros((0, 1)), [0, 5], output_rank=2)
    assert scattered.shape == (0, 5)


@pytest.mark.parametrize(
    ("type_", "shapes", "attributes"),
    [
        ("ReduceMax", [(2, 0)], {"axes": (1,)}),
        ("CategoricalCrossEntropy", [(2, 0), (2, 0)], {}),
        ("Conv", [(1, 0, 4, 4), (2, 0, 1, 1)], {"data_layout": "NCHW"}),
        ("Conv", [(1, 2, 0, 4), (2, 2, 1, 1)], {"data_layout": "NCHW", "pads": (1, 1, 1, 1)}),
        ("MaxPool", [(1, 2, 0, 4)], {"kernel_shape": (1, 1), "data_layout": "NCHW"}),
    ],
)
def test_what_has_no_value_is_refused_by_name(
    type_: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    s = Sketch()
    names = [s.parameter(f"x{i}", *shape) for i, shape in enumerate(shapes)]
    s.op(type_, names, "y", "op", **attributes)
    with pytest.raises(ShapeMismatchError, match="Operation 'op'"):
        s.graph("y")


# ------------------------------------------------------------------------------------- explicit programs


def test_blocks_of_0_bytes() -> None:
    def block(name: str, *shape: int, **more: Any) -> Block:
        return Block(name, TensorType(shape, DType.FLOAT32), **more)

    blocks = [
        block("x", 4, 0, fed=True),
        block("y", 8, kept=True),
        block("part", 0, view=BlockView("y", 4)),
        block("w", 0, 3),
        block("turned", 3, 0, view=BlockView("w", 0, (1, 3))),
    ]
    operations = [
        BlockOperation("a", ("x", "w"), ("y",)),
        BlockOperation("b", ("y", "part", "turned"), ("w",)),
    ]
    program = build_program("empty", blocks, operations)
    shapes: dict[str, tuple[int, ...]] = {}

    def first(views: BlockViews) -> None:
        views["y"].fill(len(views["x"]))

    def second(views: BlockViews) -> None:
        shapes.update((name, views[name].shape) for name in ("part", "turned", "w"))

    for options in (PlanOptions(), PlanOptions(in_place=True), PlanOptions(parallelism=2)):
        made = load_plan(dump_plan(plan_program(program, options)))
        assert made.arena_bytes == 64  # of y alone
        shapes.clear()
        runner = BlockRunner(program, made, {"a": first, "b": second})
        runner.run()
        np.testing.assert_array_equal(runner.block("y"), np.full(8, 4, np.float32))
        runner.close()
        assert shapes == {"part": (0,), "turned": (3, 0), "w": (0, 3)}
