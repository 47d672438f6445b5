"""The loop: what it keeps, what it refuses, that it ends, and that its record leads to the same graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from solver.errors import PlanError
from solver.executor.arithmetic import KernelArithmetic
from solver.graph import DType, Operation, Role, TrainableGraph, TrainingRules
from solver.preparations.rewriting import (
    CHUNK_HEAD,
    RULES,
    Agreement,
    Edit,
    Footprint,
    Surroundings,
    engine,
    replay,
    rewrite,
)
from solver.preparations.rewriting.engine import apply, edits_of
from solver.program import Replacement
from tests.support.every import grid
from tests.support.graphs import Sketch, chain, residual
from tests.support.rewritable import mobile_block, random_rewritable
from tests.support.rewriting import everywhere, footprint, same_training, types, weight

ROOT = Path(__file__).resolve().parents[4]


def row(layers: int = 8) -> TrainableGraph:
    """MatMul and Relu, one pair after the other."""
    s = Sketch("row", DType.FLOAT64)
    h = s.input("x", 3, 4)
    for k in range(layers):
        h = s.op("MatMul", [h, s.parameter(f"w{k}", 4, 4)], f"h{k}", f"layer{k}")
        h = s.op("Relu", [h], f"y{k}", f"relu{k}")
    s.op("MeanSquaredError", [h, s.label("t", 3, 4)], "loss")
    return s.graph()


class Costs:
    """A footprint by a function of the activations still by themselves; counts how often it is asked."""

    def __init__(self, *dear: str, bound: int = 100) -> None:
        self.dear = frozenset(dear)
        self.bound = bound
        self.asked = 0

    def __call__(self, graph: TrainableGraph) -> Footprint:
        """Every fused layer takes one off, except the dear ones, which put ten on."""
        self.asked += 1
        fused = [op.id for op in graph.operations if op.attributes.get("activation", "None") != "None"]
        return Footprint(self.bound + sum(10 if name in self.dear else -1 for name in fused), 0)


def kept(graph: TrainableGraph) -> set[str]:
    return {op.id for op in graph.operations if "activation" in op.attributes}


def test_nothing_to_do_gives_the_graph_back() -> None:
    for graph in (chain((6, 4)), residual(trainable=[])):
        found = rewrite(graph, KernelArithmetic(), footprint)
        assert found.graph is graph
        assert found.applied == ()


def test_nothing_to_do_costs_nothing() -> None:
    costs = Costs()
    rewrite(chain((6, 4)), KernelArithmetic(), costs)
    assert costs.asked == 0


def test_what_cannot_come_apart_at_the_peak_costs_one_look() -> None:
    costs = Costs()
    rewrite(chain(), KernelArithmetic(), costs)
    assert costs.asked == 1


def test_all_places_of_a_rule_are_tried_at_once() -> None:
    costs = Costs()
    found = rewrite(row(), KernelArithmetic(), costs)
    assert costs.asked == 2
    assert types(found.graph) == ["MatMul"] * 8 + ["MeanSquaredError"]
    assert {(one.group, one.bytes_before, one.bytes_after) for one in found.applied} == {(0, 100, 92)}


@pytest.mark.parametrize(
    ("dear", "asked"),
    [
        # The graph itself, 8, then 4 and 4, 2 and 2, 1 and 1.
        ("layer0", 1 + 1 + 2 + 2 + 2),
        # Behind a first half that was kept the second half makes the graph that was refused: not asked again.
        ("layer3", 1 + 1 + 2 + 1 + 1),
        ("layer7", 1 + 1 + 1 + 1 + 1),
    ],
)
def test_one_dear_place_is_found_in_a_logarithm_of_trials(dear: str, asked: int) -> None:
    costs = Costs(dear)
    found = rewrite(row(), KernelArithmetic(), costs)
    assert kept(found.graph) == {f"layer{k}" for k in range(8)} - {dear}
    assert costs.asked == asked
    assert found.applied[-1].bytes_after == 93
    assert [one.bytes_before >= one.bytes_after for one in found.applied] == [True] * 7


def test_where_every_place_is_dear_nothing_changes() -> None:
    graph = row(4)
    costs = Costs(*(f"layer{k}" for k in range(4)))
    assert rewrite(graph, KernelArithmetic(), costs).graph is graph


def test_a_tie_stays_unless_it_takes_more_in_all() -> None:
    graph = row(1)
    for change, fused in ((0, True), (-1, True), (1, False)):

        def cost(candidate: TrainableGraph, change: int = change) -> Footprint:
            return Footprint(7, 50 + change * (candidate is not graph))

        assert (rewrite(graph, KernelArithmetic(), cost).graph is not graph) == fused


def test_trials_are_limited_by_the_size_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TRIAL_WORK", 0)
    costs = Costs(*(f"layer{k}" for k in range(0, 16, 2)))
    rewrite(row(16), KernelArithmetic(), costs)
    assert costs.asked == 1 + len(RULES)


@pytest.mark.parametrize("asked", [0, 1, 3, 5])
def test_it_ends_when_it_is_told_to_with_what_there_is(asked: int) -> None:
    costs = Costs("layer0")
    found = rewrite(row(), KernelArithmetic(), costs, stop=lambda: costs.asked > asked)
    assert not found.complete
    assert costs.asked <= max(asked + 1, 2)
    assert replay(row(), found.applied, KernelArithmetic()) == found.graph


def test_every_use_of_a_rule_lowers_the_weight() -> None:
    for seed in range(30):
        graph = random_rewritable(seed)
        for rule in RULES:
            found = everywhere(graph, rule.name)
            if not rule.adds_operations:
                assert (weight(found.graph) < weight(graph)) == bool(found.applied)


def test_a_rewritten_graph_has_nothing_left_to_rewrite() -> None:
    for seed in range(10):
        graph = everywhere(random_rewritable(seed)).graph
        assert everywhere(graph).graph is graph


def test_rules_have_names_of_their_own_and_say_how_results_compare() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert {rule.value, rule.gradient} <= set(Agreement)
        assert (rule.__doc__ or "").strip()


# ----------------------------------------------------------------------------------------- replay


@grid("seed", range(20))
def test_the_record_leads_to_the_same_graph(seed: int) -> None:
    graph = random_rewritable(seed)
    found = rewrite(graph, KernelArithmetic(), footprint)
    assert replay(graph, found.applied, KernelArithmetic()) == found.graph


def test_no_record_no_change() -> None:
    graph = chain()
    assert replay(graph, (), KernelArithmetic()) is graph


BLOCK = mobile_block()
RECORD = rewrite(BLOCK, KernelArithmetic(), footprint).applied
FIRST = RECORD[0]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param((replace(FIRST, rule="fuse-everything"),), id="unknown rule"),
        pytest.param((replace(FIRST, rule="fuse-activation"),), id="another rule"),
        pytest.param((replace(FIRST, operations=("expand", "depthwise")),), id="other operations"),
        pytest.param((replace(FIRST, operations=FIRST.operations[::-1]),), id="another anchor"),
        pytest.param((replace(FIRST, into=("other",)),), id="another result"),
        pytest.param((replace(FIRST, operations=()),), id="no operation"),
        pytest.param((FIRST, FIRST), id="twice in one group"),
        pytest.param((FIRST, replace(FIRST, group=1)), id="twice"),
        pytest.param(RECORD[::-1], id="backwards"),
        pytest.param((RECORD[-1],), id="without what it builds on"),
        pytest.param((FIRST, replace(RECORD[-1], group=FIRST.group)), id="two rules in a group"),
    ],
)
def test_a_record_that_does_not_hold_is_refused(record: tuple[Replacement, ...]) -> None:
    with pytest.raises(PlanError, match="does not hold in this graph"):
        replay(BLOCK, record, KernelArithmetic())


@pytest.mark.parametrize("rule", ["drop-identity", "fuse-transpose", "join-transposes", "join-views"])
def test_a_rule_of_an_earlier_version_is_refused_by_name(rule: str) -> None:
    with pytest.raises(PlanError, match=rf"'{rule}' of .* no longer has.* Plan this graph again"):
        replay(BLOCK, (replace(FIRST, rule=rule),), KernelArithmetic())


def test_a_part_of_a_record_is_an_equivalent_graph_all_the_same() -> None:
    graph = replay(BLOCK, RECORD[:3], KernelArithmetic())
    assert len(graph.operations) == len(BLOCK.operations) - 3
    same_training(BLOCK, graph)


def test_the_table_of_rules_says_what_the_rules_say() -> None:
    page = (ROOT / "docs/explanation/rewriting.md").read_text(encoding="utf-8")
    section = page.split("## Rules")[1].split("## What holds for all")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    rules = (*RULES, CHUNK_HEAD)
    assert [row[0].strip("| `") for row in rows] == [rule.name for rule in rules]
    for row, rule in zip(rows, rules, strict=True):
        assert (row[4].strip(" |") == "same bits") == (rule.gradient is Agreement.BITWISE)
        assert (row[3] == "same bits") == (rule.value is Agreement.BITWISE)


# ------------------------------------------ Edits become a graph that differs where they say and nowhere else


def row_of_views() -> TrainableGraph:
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
    graph = row_of_views().with_spec(rules=TrainingRules(clip_global_norm=1.0, accumulate=2))
    after = apply(graph, [Edit(("first",), renamed={"a": "x"})])
    for name in ("name", "loss", "optimizer", "trainable", "outputs", "training"):
        assert getattr(after, name) == getattr(graph, name)


def test_renames_follow_each_other() -> None:
    edits = [Edit(("second",), renamed={"b": "a"}), Edit(("first",), renamed={"a": "x"})]
    for order in (edits, edits[::-1]):
        after = apply(row_of_views(), order)
        assert [op.id for op in after.operations] == ["third", "mean"]
        assert after.operations[0].inputs == ("x", "w")
        assert list(after.operands) == ["x", "w", "c", "loss"]


def test_new_operations_read_renamed_operands_too() -> None:
    fused = Operation("third", "Add", ("b", "w"), ("c",))
    after = apply(row_of_views(), [Edit(("third",), (fused,)), Edit(("second",), renamed={"b": "a"})])
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
