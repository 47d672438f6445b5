"""Plans for ranges of sizes: what they say, sizes with another structure."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest

from examples.gallery import GALLERY
from solver.documents import dump_options, dump_plan, load_graph, load_options, load_plan
from solver.errors import ArenaplanError, BatchError, OptionsError, PlanError
from solver.graph import TrainableGraph
from solver.layout import Alignment, Pin
from solver.pipeline import TARGETS, plan_at, plan_requested, reference_of
from solver.plan import Plan, PlannedSizes, PlanOptions, RequestedOptions, SizeRange, with_digest
from solver.program import ReservedRange, Tier
from solver.verify import prove, prove_at
from tests.support.graphs import chain
from tests.support.programs import AUTO_RECYCLE, program
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
