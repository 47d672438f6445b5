"""Plans like others: persistent values stay, at a price that is said; those that move are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from solver.documents import dump_plan, load_options, load_plan
from solver.errors import OptionsError
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.pipeline import plan_like, plan_program, plan_requested
from solver.plan import Plan, RequestedOptions
from solver.program import Record, persistent
from solver.reports.comparison import difference
from tests.support.graphs import chain, tower
from tests.support.programs import program
from tests.support.proofs import violations

OLD = chain((16, 16, 8), batch=4)


def like(graph: TrainableGraph, old: Plan, **fields: Any) -> tuple[Plan, Mapping[str, Any]]:
    made = plan_like(graph, load_options(fields), old)
    (record,) = (record for record in made.records if record.name == "like")
    assert violations(graph, made) == ()
    assert load_plan(dump_plan(made)) == made
    return made, record.facts


def places(made: Plan) -> dict[str, int]:
    return {made.program.values[v].label: made.offsets[v] for v in persistent(made.program)}


def test_nothing_moves_and_nothing_is_paid_where_nothing_has_changed() -> None:
    old = plan_requested(OLD)
    made, facts = like(OLD, old)
    assert places(made) == places(old)
    assert (made.arena_bytes, facts["moved"], facts["plan"]) == (old.arena_bytes, 0, old.digest)
    assert difference(old, made).moved == ()
    assert difference(old, made).stayed == facts["kept"] == len(places(old))
    for fact in ("kept", "kept_bytes", "moved"):
        forged = Record("like", {**facts, fact: facts[fact] + 1})
        records = tuple(forged if each.name == "like" else each for each in made.records)
        assert {v.rule for v in violations(OLD, replace(made, records=records))} == {"record"}, fact


def test_a_larger_batch_moves_no_weight_and_says_the_price() -> None:
    old = plan_requested(OLD)
    graph = chain((16, 16, 8), batch=64)
    made, facts = like(graph, old)
    assert places(made) == places(old)
    assert facts["bytes_without"] == plan_requested(graph).arena_bytes
    assert made.arena_bytes >= facts["bytes_without"]
    assert validate(graph, made, steps=2).identical


def test_values_that_are_other_ones_are_named() -> None:
    old = plan_requested(chain((16, 16, 8), batch=4))
    made, facts = like(chain((16, 24, 8), batch=4), old)
    moved = {name.removeprefix("moved."): why for name, why in facts.items() if name.startswith("moved.")}
    assert moved["w1"] == "was float32[16, 16], is float32[24, 16]"
    assert len(moved) == facts["moved"]
    stay = places(old).keys() & places(made).keys() - moved.keys()
    assert {name: places(made)[name] for name in stay} == {name: places(old)[name] for name in stay}
    assert len(stay) == facts["kept"] > 0


def test_what_is_new_or_gone_is_named() -> None:
    short, long = tower(2), tower(3)
    _, grown = like(long, plan_requested(short))
    assert grown["moved.w2"] == "new"
    _, shrunk = like(short, plan_requested(long))
    assert shrunk["moved.w2"] == "no longer there"
    assert shrunk["kept"] == len(places(plan_requested(short)))


def test_constraints_go_before_the_old_plan() -> None:
    old = plan_requested(OLD)
    at = places(old)["w1"]
    made, facts = like(OLD, old, reserved=[f"{at}..{at + 1}"])
    assert "lies in the reserved range" in facts["moved.w1"]
    assert facts["moved"] >= 1
    made, facts = like(OLD, old, pins={"w1": 1 << 20})
    assert places(made)["w1"] == 1 << 20
    others = {name: offset for name, offset in places(old).items() if name != "w1"}
    assert {name: places(made)[name] for name in others} == others


def test_within_a_capacity_the_largest_values_stay() -> None:
    old = plan_requested(chain((16, 16, 8), batch=4), load_options({"reserved": ["0..64KiB"]}))
    graph = chain((16, 16, 8), batch=4)
    least = plan_requested(graph).arena_bytes
    made, facts = like(graph, old, capacity=least + 8192)
    assert made.arena_bytes <= least + 8192
    assert facts["kept"] == 0  # all of them lie behind 64 KiB
    assert "beyond the capacity" in facts["moved.w1"]


def test_programs_keep_their_blocks() -> None:
    touches = [("a b", "c"), ("c", "d"), ("d a", "b")]
    old = plan_program(program(touches, sizes={"a": 64, "b": 128, "c": 64, "d": 64}))
    grown = program([*touches, ("b", "e")], sizes={"a": 64, "b": 128, "c": 64, "d": 640, "e": 64}, kept=["e"])
    made = plan_like(grown, RequestedOptions(), old)
    stay = places(old).keys() & places(made).keys()
    assert stay
    assert {name: places(made)[name] for name in stay} == {name: places(old)[name] for name in stay}


def test_values_of_a_memory_that_is_gone_are_named() -> None:
    """Those of the first memory stay; the others lie where the new plan has no memory."""
    memories = ["tcm=2KiB,read=4GB/s", "psram=1MiB,read=80MB/s,write=60MB/s"]
    old = plan_requested(OLD, load_options({"memories": memories, "place": ["b1=tcm", "w1=psram"]}))
    made, facts = like(OLD, old)
    assert places(made)["b1"] == places(old)["b1"]
    assert facts["moved.w1"] == "was in 'psram', which only the old plan has"
    assert facts["kept"] + facts["moved"] == len(places(made))
    assert "no longer there" not in facts.values()


@pytest.mark.parametrize("several", ["tiers", "memories"])
def test_several_memories_are_refused_by_name(several: str) -> None:
    fields = {several: ["fast=64KiB", "slow=1MiB,bandwidth=45MB/s"]}
    with pytest.raises(OptionsError, match=f"With {several}") as caught:
        plan_like(OLD, load_options(fields), plan_requested(OLD))
    assert caught.value.path == ("like",)
