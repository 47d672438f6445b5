"""Edits become a graph that differs where they say and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.executor.arithmetic import KernelArithmetic
from solver.graph import Operation, Role, TrainableGraph, TrainingRules
from solver.preparations.rewriting import Edit, Surroundings
from solver.preparations.rewriting.apply import apply
from solver.preparations.rewriting.engine import edits_of
from solver.preparations.rewriting.rules import RULES
from tests.support.graphs import Sketch, chain, residual
from tests.support.rewritable import mobile_block


def row() -> TrainableGraph:
    s = Sketch("row")
    h = s.op("Flatten", [s.input("x", 2, 3)], "a", "first")
    h = s.op("Flatten", [h], "b", "second")
    h = s.op("Mul", [h, s.parameter("w", 3)], "c", "third")
    s.op("ReduceMean", [h], "loss", "mean", keepdims=0)
    return s.graph()


def test_no_edit_no_difference() -> None:
    for graph in (chain(), residual(), mobile_block()):
        assert apply(graph, []) == graph
        assert list(apply(graph, []).operands) == list(graph.operands)


def test_what_the_graph_says_beside_its_operations_stays() -> None:
    graph = row().with_spec(rules=TrainingRules(clip_global_norm=1.0, accumulate=2))
    after = apply(graph, [Edit(("first",), renamed={"a": "x"})])
    for name in ("name", "loss", "optimizer", "trainable", "outputs", "training"):
        assert getattr(after, name) == getattr(graph, name)


def test_renames_follow_each_other() -> None:
    edits = [Edit(("second",), renamed={"b": "a"}), Edit(("first",), renamed={"a": "x"})]
    for order in (edits, edits[::-1]):
        after = apply(row(), order)
        assert [op.id for op in after.operations] == ["third", "mean"]
        assert after.operations[0].inputs == ("x", "w")
        assert list(after.operands) == ["x", "w", "c", "loss"]


def test_new_operations_read_renamed_operands_too() -> None:
    fused = Operation("third", "Add", ("b", "w"), ("c",))
    after = apply(row(), [Edit(("third",), (fused,)), Edit(("second",), renamed={"b": "a"})])
    assert [op.inputs for op in after.operations] == [("x",), ("a", "w"), ("c",)]


def test_new_operations_stand_where_the_anchor_stood() -> None:
    graph = residual()
    middle = graph.operations[3]
    pair = (replace(middle, outputs=("new",)), Operation("more", "Relu", ("new",), middle.outputs))
    after = apply(graph, [Edit((middle.id,), pair)])
    assert [op.id for op in after.operations[2:6]] == [
        graph.operations[2].id, middle.id, "more", graph.operations[4].id,
    ]  # fmt: skip
    assert after.operands["new"].type == graph.operands[middle.outputs[0]].type


# --------------------------------------------------------------------------------- surroundings


def around(graph: TrainableGraph) -> Surroundings:
    return Surroundings(graph, KernelArithmetic())


def test_who_defines_and_who_reads() -> None:
    found = around(residual())
    assert [op.id for op in found.readers("h1")] == ["fc2", "join"]
    assert [op.id for op in found.readers("h4")] == ["square", "square"]
    assert found.readers("loss") == ()
    definition = found.definition("h3")
    assert definition is not None
    assert definition.id == "join"
    assert found.definition("x") is None


@pytest.mark.parametrize(
    ("name", "feeds"),
    [("h1", False), ("h2", True), ("h4", False), ("x", False), ("loss", False), ("p", True)],
)
def test_what_only_one_reader_needs(name: str, feeds: bool) -> None:
    assert (around(residual()).feeding(name) is not None) == feeds


def test_values_of_constants_alone() -> None:
    graph = mobile_block()
    found = around(graph)
    for name, operand in graph.operands.items():
        assert (found.constant(name) is not None) == (operand.role is Role.CONSTANT)


def test_places_may_be_chosen_and_never_overlap() -> None:
    found = around(mobile_block())
    for rule in RULES:
        edits = edits_of(rule, found)
        named = [name for edit in edits for name in edit.replaced]
        assert len(named) == len(set(named))
        if edits:
            assert edits_of(rule, found, {edits[-1].anchor}) == edits[-1:]
        assert edits_of(rule, found, frozenset()) == []
