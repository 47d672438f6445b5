"""Plans for ranges of sizes: what they say, sizes with another structure."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from examples.gallery import GALLERY
from solver.documents import dump_options, dump_plan, load_graph, load_options, load_plan
from solver.errors import ArenaplanError, BatchError, OptionsError, PlanError
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.layout import Alignment, Pin
from solver.pipeline import TARGETS, plan_at, plan_like, plan_program, plan_requested, reference_of
from solver.plan import Plan, PlannedSizes, PlanOptions, RequestedOptions, SizeRange, with_digest
from solver.program import Record, ReservedRange, Tier, persistent
from solver.reports.comparison import difference
from solver.verify import prove, prove_at
from tests.support.graphs import chain, tower
from tests.support.programs import AUTO_RECYCLE, program
from tests.support.proofs import violations
from tests.support.sizes import SEQUENCES, planned_over, with_symbolic_batch

#: A network of which every size has the same steps; and one with two open dimensions.
GRAPH = with_symbolic_batch(chain((6, 9, 4)), 8)


def ranged(graph: TrainableGraph, *ranges: tuple[str, int, int]) -> Plan:
    return plan_requested(graph, RequestedOptions(ranges=tuple(SizeRange(*each) for each in ranges)))


def sizes_of(plan: Plan) -> PlannedSizes:
    assert plan.planned_sizes is not None
    return plan.planned_sizes


# ------------------------------------------------------------------------------------------ one plan


def test_the_plan_is_that_of_the_largest_size_and_says_which_were_proved() -> None:
    plan, own = planned_over(GRAPH, 2, 8), plan_requested(GRAPH)
    assert (plan.program, plan.offsets, plan.sizes, plan.certificates) == (
        own.program, own.offsets, own.sizes, own.certificates,
    )  # fmt: skip
    assert sizes_of(plan) == PlannedSizes((SizeRange("batch", 2, 8),), tuple((b,) for b in range(2, 9)))
    assert plan.digest != own.digest
    assert b"planned_sizes" not in dump_plan(own)


def test_the_graph_may_be_of_any_size_when_it_is_planned() -> None:
    assert planned_over(GRAPH.at(batch=3), 1, 8) == planned_over(GRAPH, 1, 8)


def test_a_document_keeps_the_sizes() -> None:
    plan = planned_over(GRAPH, 1, 8)
    assert load_plan(dump_plan(plan)) == plan


def test_at_each_size_it_is_an_ordinary_plan_with_the_same_places() -> None:
    plan = planned_over(GRAPH, 1, 8)
    offset = dict(zip([v.label for v in plan.program.values], plan.offsets, strict=True))
    for batch in range(1, 9):
        graph = GRAPH.at(batch=batch)
        there = plan_at(plan, graph)
        assert prove(reference_of(graph, there.options), there) == ()
        assert there.planned_sizes is None
        assert there.arena_bytes <= plan.arena_bytes
        assert all(
            offset[value.label] == at
            for value, at in zip(there.program.values, there.offsets, strict=True)
            if value.label in offset
        )


def test_two_ranges_are_proved_at_every_pair() -> None:
    graph = load_graph(SEQUENCES)
    plan = ranged(graph, ("batch", 1, 3), ("seq", 5, 7))
    assert set(sizes_of(plan).proved) == {*itertools.product((1, 2, 3), (5, 6, 7))}
    there = plan_at(plan, graph.at(batch=2, seq=5))
    assert there.program.values[there.program.by_label["y"]].type.shape == (2, 5, 3)


def test_one_size_of_a_dimension_is_a_range_that_says_where_the_plan_was_made() -> None:
    requested = load_options({"dims": {"seq": 9}})
    plan = plan_requested(load_graph(SEQUENCES), requested)
    assert sizes_of(plan).proved == ((9,),)
    assert plan.program.values[plan.program.by_label["y"]].type.shape == (2, 9, 3)


def test_of_many_sizes_the_ends_and_the_powers_of_two_are_proved() -> None:
    plan = ranged(load_graph(SEQUENCES), ("seq", 3, 100_000))
    assert [size for (size,) in sizes_of(plan).proved] == [3, *(2**k for k in range(2, 17)), 100_000]
    assert sizes_of(plan).refused == ()


def test_a_smaller_size_that_needs_more_bytes_than_the_largest_makes_the_plan_larger() -> None:
    """Six examples unroll a convolution at once, eight some at a time: six take more scratch."""
    graph = load_graph(GALLERY["lenet5"].model().document, batch=8)
    own = {batch: plan_requested(graph.at(batch=batch)).arena_bytes for batch in range(1, 9)}
    assert max(own.values()) > own[8]
    plan = planned_over(graph, 1, 8)
    assert sizes_of(plan).refused == ()
    assert own[8] < plan.arena_bytes <= 1.01 * max(own.values())
    assert plan.gap_bytes > 0
    kept = planned_over(graph, 1, 8, capacity=own[8])
    assert kept.arena_bytes == own[8]
    assert {each.sizes for each in sizes_of(kept).refused} == {(5,), (6,)}
    assert all("more bytes than there is room" in each.reason for each in sizes_of(kept).refused)


def test_sizes_on_which_weights_depend_are_refused() -> None:
    document = copy.deepcopy(SEQUENCES)
    for operand, shape in zip(
        document["operands"], (["batch", "seq"], ["batch", 3], ["seq", 3]), strict=True
    ):
        operand["shape"] = shape
    plan = ranged(load_graph(document), ("seq", 4, 6))
    assert sizes_of(plan).ranges == (SizeRange("seq", 6, 6),)
    assert [each.sizes for each in sizes_of(plan).refused] == [(4,), (5,)]
    assert "'w' stays from one iteration to the next" in sizes_of(plan).refused[0].reason


def test_reserved_bytes_pins_and_alignments_hold_at_every_size() -> None:
    graph = load_graph(GALLERY["lenet5"].model().document, batch=8)
    options = {
        "reserved": (ReservedRange(0, 8192),),
        "alignments": (Alignment("conv1.weight", 4096),),
        "pins": (Pin("conv2.weight", 65536),),
    }
    plan = planned_over(graph, 7, 8, **options)
    assert [size for (size,) in sizes_of(plan).proved] == [7, 8]
    there = plan_at(plan, graph.at(batch=7))
    place = dict(zip([v.label for v in there.program.values], there.offsets, strict=True))
    assert place["conv2.weight"] == 65536
    assert place["conv1.weight"] % 4096 == 0
    assert min(there.offsets) >= 8192


def test_values_keep_their_memory_at_every_size() -> None:
    fast, slow = Tier("tcm", 2_000, 4 * 10**9, 4 * 10**9), Tier("psram", 2**20, 8 * 10**7, 6 * 10**7)
    plan = planned_over(GRAPH, 1, 8, memories=(fast, slow))
    assert sizes_of(plan).refused == ()
    space = {value.label: value.space for value in plan.program.values}
    assert set(space.values()) == {0, 1}
    there = plan_at(plan, GRAPH.at(batch=3))
    assert all(space[value.label] == value.space for value in there.program.values if value.label in space)


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("ranges", "message", "remedy"),
    [
        ([("batch", 5, 1)], r"batch 5\.\.1 is upside down", "as 1..32"),
        ([("batch", 0, 5)], "not of positive sizes", "as 1..32"),
        ([("batch", 1, 2), ("batch", 1, 3)], "two ranges of 'batch'", "Give one"),
        ([("seq", 1, 2)], "no shape of 'chain' names it", "symbolic dimensions are batch"),
    ],
)
def test_a_wrong_range_is_named(ranges: list[tuple[str, int, int]], message: str, remedy: str) -> None:
    with pytest.raises(OptionsError, match=message) as caught:
        ranged(GRAPH, *ranges)
    assert remedy in caught.value.remedy


def test_a_graph_of_one_batch_has_no_range() -> None:
    with pytest.raises(OptionsError, match="no shape") as caught:
        planned_over(chain(), 1, 2)
    assert '"batch"' in caught.value.remedy


def test_a_program_and_a_target_that_trains_elsewhere_have_no_range() -> None:
    with pytest.raises(OptionsError, match="blocks have one size"):
        plan_requested(program(AUTO_RECYCLE), RequestedOptions(ranges=(SizeRange("batch", 1, 2),)))
    foreign = next(name for name, target in TARGETS.items() if not target.capabilities.trains)
    with pytest.raises(OptionsError, match="set up for one size"):
        planned_over(GRAPH, 1, 2, target=foreign)


@pytest.mark.parametrize("size", [1, 9])
def test_a_size_outside_of_the_range_is_named(size: int) -> None:
    plan = planned_over(GRAPH, 2, 8)
    with pytest.raises(PlanError, match=rf"The batch is {size}; the plan serves batch 2\.\.8"):
        plan_at(plan, GRAPH.at(batch=size))
    with pytest.raises(PlanError, match="made for one size"):
        plan_at(plan_requested(GRAPH), GRAPH)


def test_a_graph_has_no_other_sizes_than_its_symbols() -> None:
    with pytest.raises(BatchError, match="no symbolic dimension 'seq'"):
        GRAPH.at(seq=3)
    with pytest.raises(BatchError, match="The batch is 0"):
        GRAPH.at(batch=0)
    assert chain().sizes == {}


def test_claims_about_sizes_that_mean_nothing_break_a_rule() -> None:
    plan = planned_over(GRAPH, 1, 8)
    reference, sizes = reference_of(GRAPH, plan.options), sizes_of(plan)
    for wrong in (
        replace(sizes, ranges=()),
        replace(sizes, ranges=(SizeRange("batch", 3, 2),)),
        replace(sizes, proved=sizes.proved[:-1]),
        replace(sizes, proved=(*sizes.proved, (9,))),
        replace(sizes, ranges=sizes.ranges * 2),
    ):
        violations = prove(reference, with_digest(replace(plan, planned_sizes=wrong)))
        assert [violation.rule for violation in violations] == ["range"]


def test_a_plan_with_too_few_bytes_for_a_size_is_wrong_there() -> None:
    graph = load_graph(GALLERY["lenet5"].model().document, batch=8)
    plan = plan_requested(graph)
    planned, there = (reference_of(graph.at(batch=size), plan.options) for size in (8, 6))
    with pytest.raises(PlanError, match="more bytes than there is room"):
        prove_at(plan, planned, there)
    other, violations = prove_at(plan, planned, there, grows=True)
    assert violations == ()
    assert other.arena_bytes > plan.arena_bytes


def test_another_graph_is_another_training_step() -> None:
    plan = plan_requested(GRAPH)
    planned = reference_of(GRAPH, plan.options)
    with pytest.raises(PlanError, match="another one at this size"):
        prove_at(plan, planned, reference_of(chain((6, 9, 9, 4)), PlanOptions()))


# -------------------------------------------------------------------------------------------- options


def test_options_read_ranges_as_text_and_as_objects() -> None:
    assert load_options({"dims": {"batch": "1..8"}}) == load_options({"batch": "1..8"})
    assert load_options({"dims": {"batch": 8}}).options.batch == 8
    text = load_options({"batch": "1..8", "dims": {"seq": "2..5"}})
    assert text == load_options({"batch": {"from": 1, "to": 8}, "dims": {"seq": {"from": 2, "to": 5}}})
    assert text.ranges == (SizeRange("batch", 1, 8), SizeRange("seq", 2, 5))
    assert text.options.batch == 8
    assert load_options(dump_options(text)) == text
    assert load_options({"batch": 8}).ranges == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"batch": "8..1"}, "upside down"),
        ({"batch": "0..1"}, "positive"),
        ({"batch": "1..x"}, "a range as 1..32"),
        ({"batch": "1-8"}, "a range as 1..32"),
        ({"batch": 0}, "at least 1"),
        ({"batch": {"from": 1}}, "missing"),
        ({"batch": {"from": 1, "to": 2, "step": 3}}, "unknown field"),
        ({"dims": {"seq": "3..2"}}, "upside down"),
        ({"batch": 8, "dims": {"batch": "1..4"}}, "asked for twice"),
        ({"batch": "1..8", "dims": {"batch": 4}}, "asked for twice"),
        ({"dims": ["seq=3"]}, "an object"),
    ],
)
def test_options_name_a_wrong_range(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ArenaplanError) as caught:
        load_options(fields)
    assert words in f"{caught.value.message} {caught.value.remedy}"


# -------------- Plans like others: persistent values stay, at a price that is said; those that move are named


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
