"""ResNet-50 as a document: what it is made of, and that it trains in place as it trains without."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from examples.resnet50 import main, resnet50
from solver.documents import load_graph
from solver.executor import validate
from solver.graph import Role
from solver.pipeline import plan
from solver.plan import PlanOptions


def test_the_network() -> None:
    model = resnet50()
    assert model.parameters == 25_557_032
    types = Counter(operation.type for operation in model.graph.operations)
    assert (types["Conv"], types["BatchNormalization"], types["Gemm"]) == (53, 53, 1)
    states = [x for x in model.graph.operands.values() if x.role is Role.STATE]
    assert sum(x.type.elements for x in states) == 2 * 26_560
    assert model.graph.operands["image"].shape == (16, 224, 224, 3)


def test_it_is_printed_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--batch", "2", "--side", "32", "--classes", "10"])
    graph = load_graph(json.loads(capsys.readouterr().out))
    assert graph.operands["image"].shape == (2, 32, 32, 3)
    assert graph.operands[graph.operations[-1].inputs[1]].shape == (2, 10)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_small_one_trains_bit_identically(in_place: bool) -> None:
    graph = resnet50(2, side=32, classes=10).graph
    made = plan(graph, PlanOptions(in_place=in_place))
    assert made.gap_bytes == 0
    assert validate(graph, made, steps=1).identical


def test_the_plan_of_the_large_one_is_at_its_bound() -> None:
    graph = resnet50(16).graph
    plans = [plan(graph, PlanOptions(in_place=mode)) for mode in (False, True)]
    assert [made.gap_bytes for made in plans] == [0, 0]
    assert plans[1].arena_bytes < plans[0].arena_bytes < 1_600_000_000
