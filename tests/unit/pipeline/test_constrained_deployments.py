"""Entry points with pins, alignments and reserved bytes: one place for what stays, all constraints kept."""

from __future__ import annotations

import pytest

from solver.errors import OptionsError
from solver.layout import Alignment, Pin
from solver.pipeline import EntryRequest, entry_subject, plan_deployment
from solver.plan import PlanOptions, RequestedOptions
from solver.program import ReservedRange
from solver.verify import prove_deployment
from tests.support.graphs import chain

GRAPH = chain((16, 16, 8), batch=8)


def requests(options: PlanOptions) -> list[EntryRequest]:
    asked = RequestedOptions(options)
    return [
        EntryRequest("train", "chain", "train", GRAPH, asked),
        EntryRequest("infer", "chain", "infer", entry_subject(GRAPH, "infer"), asked),
    ]


def test_constraints_hold_in_every_entry_point() -> None:
    options = PlanOptions(
        pins=(Pin("w1", 4096), Pin("w1@grad", 64)),
        alignments=(Alignment("b*", 128),),
        reserved=(ReservedRange(8192, 10000),),
    )
    deployment = plan_deployment("chain", requests(options))
    assert prove_deployment(deployment) == ()
    for entry_point in deployment.entry_points:
        plan = entry_point.plan
        at = dict(zip((v.label for v in plan.program.values), plan.offsets, strict=True))
        assert at["w1"] == 4096
        assert at["b1"] % 128 == at["b2"] % 128 == 0
        for value, offset in zip(plan.program.values, plan.offsets, strict=True):
            assert offset + value.type.nbytes <= 8192 or offset >= 10000
    alone = plan_deployment("chain", requests(PlanOptions()))
    assert deployment.lower_bound >= alone.lower_bound
    assert deployment["infer"].plan.lower_bound <= deployment.arena_bytes


def test_a_name_that_no_entry_point_has() -> None:
    with pytest.raises(OptionsError, match="No value is called 'w9'"):
        plan_deployment("chain", requests(PlanOptions(pins=(Pin("w9", 0),))))
