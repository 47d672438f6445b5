"""Another order of steps, where one with a lower peak is left; the record says where nothing is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from arenaplan.builder import Tape, adam, layers, ops
from solver.documents import load_graph
from solver.errors import OptionsError
from solver.executor import validate
from solver.graph import DType, TensorType, TrainableGraph
from solver.layout import Deadline
from solver.passes import Order, SearchOrder, chosen, in_given_order
from solver.pipeline import plan, plan_program
from solver.plan import PlanOptions
from solver.program import UPDATE, Costs, Program, Tier, loads
from solver.reports.arenas import order_note
from solver.reports.records import recomputation
from solver.training import Block, BlockOperation, BlockProgram, build_program, derive, explicit_program
from tests.support.graphs import Sketch, chain, convolutional, residual

MNIST = (Path(__file__).resolve().parents[3] / "examples" / "mnist.json").read_bytes()


def wide() -> TrainableGraph:
    """Four branches, each first large and then small, in the order of their depth."""
    s = Sketch("wide")
    x = s.input("x", 8, 4)
    large = [s.op("Gemm", [x, s.parameter(f"u{k}", 4, 256)], f"large{k}") for k in range(4)]
    large = [s.op("Relu", [h], f"relu{k}") for k, h in enumerate(large)]
    small = [s.op("Gemm", [h, s.parameter(f"v{k}", 256, 2)], f"small{k}") for k, h in enumerate(large)]
    total = small[0]
    for k, h in enumerate(small[1:]):
        total = s.op("Add", [total, h], f"sum{k}")
    total = s.op("Gemm", [total, s.parameter("w", 2, 2)], "out")
    s.op("MeanSquaredError", [total, s.label("t", 8, 2)], "loss")
    return s.graph(trainable=("w",))


def test_branches_run_one_after_the_other() -> None:
    given, found = plan(wide()), plan(wide(), PlanOptions(order=True))
    assert found.arena_bytes < given.arena_bytes
    (record,) = [record for record in found.records if record.name == "search_order"]
    assert record.facts["peak_before"] == given.lower_bound
    assert record.facts["peak_after"] == found.lower_bound
    assert record.facts["order_bound"] <= found.lower_bound  # type: ignore[operator]  # bytes
    assert validate(wide(), found, steps=2).identical


def test_with_recomputation_the_order_is_that_with_least_over_the_capacity() -> None:
    program = Order().run(derive(wide()))
    lowest = SearchOrder(order=True).run(program)
    capacity = max(loads(lowest)[0]) * 9 // 10
    least = SearchOrder(order=True, recompute=True, capacity=capacity).run(program)

    def over(found: Program) -> int:
        return sum(max(0, load - capacity) for load in loads(found)[0])

    assert over(least) <= over(lowest) < over(program)


def test_what_repetitions_cost_at_least_in_every_order_stands_in_the_record() -> None:
    """No more than those of the plan, by the same costs; not where what does not fit may be paged out."""
    program = Order().run(derive(u_net()))
    capacity = max(loads(program)[0]) * 17 // 20
    options = PlanOptions(order=True, recompute=True, capacity=capacity)
    dear = Costs(tuple(sorted((label, 50_000) for label in program.step_labels)))
    for costs in (None, dear):
        made = plan(u_net(), replace(options, costs=costs))
        record, again = (r.facts for r in made.records if r.name in ("search_order", "recompute"))
        assert record["step_nanoseconds"] == again["step_nanoseconds"]
        assert 0 < int(record["every_order_nanoseconds"]) <= int(again["extra_nanoseconds"])
    tiers = (Tier("sram", capacity), Tier("dram", 2**30, 10**9, 10**9))
    paged = SearchOrder(order=True, recompute=True, capacity=capacity, tiers=tiers)
    facts = paged.apply(program, Deadline()).facts
    assert facts is not None
    assert "every_order_nanoseconds" not in facts


def test_an_order_of_the_same_peak_in_which_less_runs_again() -> None:
    """mnist in 90 % of its peak: half of what repetitions cost in the given order; none needs less."""
    graph = load_graph(MNIST, batch=32)
    options = PlanOptions(capacity=plan(graph).arena_bytes * 9 // 10, recompute=True)
    given, made = plan(graph, options), plan(graph, replace(options, order=True))
    found, kept = recomputation(made), recomputation(given)
    assert found is not None
    assert kept is not None
    (record,) = [record.facts for record in made.records if record.name == "search_order"]
    assert record["for_recomputation"] is True
    assert record["peak_after"] == record["peak_before"]
    assert found.extra == record["every_order_nanoseconds"]
    assert found.extra < kept.extra * 6 // 10
    assert validate(graph, made, steps=1).identical
    note = order_note(made)
    assert note is not None
    assert "the steps that run again cost less" in note


@pytest.mark.parametrize("graph", [chain(), convolutional()])
def test_where_nothing_is_left_the_record_says_so(graph: TrainableGraph) -> None:
    given, found = plan(graph), plan(graph, PlanOptions(order=True))
    assert found.program == given.program
    (record,) = [record for record in found.records if record.name == "search_order"]
    assert record.facts["peak_before"] == record.facts["peak_after"]


@pytest.mark.parametrize("graph", [wide(), chain((6, 5, 4)), residual()], ids=lambda graph: graph.name)
def test_updates_that_stand_at_the_end_stay_there(graph: TrainableGraph) -> None:
    found = plan(graph, PlanOptions(order=True, update="end")).program
    kernels = [found.kernel(step) for step in found.steps]
    assert kernels.index(UPDATE) == len(kernels) - kernels.count(UPDATE)


def test_with_what_is_in_place_nothing_gets_worse() -> None:
    given = plan(wide(), PlanOptions(in_place=True))
    found = plan(wide(), PlanOptions(in_place=True, order=True))
    assert found.lower_bound <= given.lower_bound
    assert validate(wide(), found, steps=1).identical


def test_the_pass_is_deterministic_and_heeds_a_deadline() -> None:
    program = Order().run(derive(wide()))
    once, twice = (SearchOrder(order=True).apply(program, Deadline()) for _ in range(2))
    assert once == twice
    late = SearchOrder(order=True).apply(program, Deadline(at=0.0))
    assert max(loads(late.program)[0]) <= max(loads(program)[0])


def test_the_same_passes_in_the_given_order_say_what_is_known_of_it() -> None:
    program, options = Order().run(derive(wide())), PlanOptions(order=True, in_place=True)
    searching, staying = chosen(options), in_given_order(chosen)(options)
    assert [each.name for each in staying] == [each.name for each in searching]
    assert [each for each in staying if each not in searching] == [staying[1]]
    found, kept = (passes[1].apply(program, Deadline()) for passes in (searching, staying))
    assert found.facts is not None
    assert kept.program is staying[1].run(program) is program
    assert kept.facts == {**found.facts, "peak_after": found.facts["peak_before"]}


def reused(first: str) -> BlockProgram:
    """Both large things want `t`, which is 64 bytes: what is kept should come after the workspace."""
    big = [BlockOperation("fill", ("x",), ("t",)), BlockOperation("large", ("t",), ("big",))]
    small = [
        BlockOperation("refill", ("x",), ("t",)),
        BlockOperation("little", ("t",), ("small",), workspace=4096),
    ]
    blocks = [
        Block(name, TensorType((size,), DType.UINT8), fed=name == "x", kept=name in ("big", "small"))
        for name, size in (("x", 64), ("t", 64), ("big", 4096), ("small", 64))
    ]
    operations = [*big, *small] if first == "big" else [*small, *big]
    return build_program("reused", blocks, operations, any_order=True)


@pytest.mark.parametrize("first", ["big", "small"])
def test_rounds_of_a_block_that_is_written_whole_again_change_places(first: str) -> None:
    made = plan_program(reused(first), PlanOptions(order=True))
    (facts,) = [record.facts for record in made.records if record.name == "search_order"]
    assert made.arena_bytes == facts["peak_after"] == facts["order_bound"] == 64 + 64 + 64 + 4096
    assert [step.id for step in made.steps] == ["refill", "little", "fill", "large"]


def test_rounds_that_are_kept_or_there_at_the_start_stay_where_they_are() -> None:
    """`t` is read before it is written, and kept: neither round may move, nor may the operations."""
    blocks = [
        Block("t", TensorType((64,), DType.UINT8), fed=True, kept=True),
        Block("a", TensorType((4096,), DType.UINT8), kept=True),
    ]
    operations = [
        BlockOperation("read", ("t",), ("a",)),
        BlockOperation("write", ("a",), ("t",), workspace=4096),
    ]
    program = explicit_program(build_program("kept", blocks, operations, any_order=True))
    assert SearchOrder(order=True).apply(program, Deadline()).program == program


def u_net() -> TrainableGraph:
    """Two halvings, and what comes before each joined again behind it."""
    tape = Tape("u_net", batch=4)
    x, skips = tape.input("x", 32, 32, 2), []
    for width in (8, 16):
        x = ops.relu(layers.conv(x, width, 3))
        x = ops.relu(layers.conv(x, width, 3))
        skips.append(x)
        x = ops.pool(x, 2)
    x = layers.conv(layers.conv(x, 32, 3, activation="Relu"), 32, 3, activation="Relu")
    for width in (16, 8):
        x = tape.apply("Concat", layers.upsample(x, width), skips.pop(), axis=3)
        x = layers.conv(ops.relu(layers.conv(x, width, 3)), width, 3, activation="Relu")
    loss = ops.mean_squared_error(layers.conv(x, 1, 1), tape.label("y", 32, 32, 1))
    return tape.minimise(loss, adam()).graph


@pytest.mark.fuzz
def test_an_order_that_leaves_no_schedule_is_not_taken() -> None:
    """The lower peak is one in which recomputation finds nothing to drop."""
    options = PlanOptions(order=True, capacity=2_299_494, recompute=True)
    made = plan(u_net(), options)
    (record,) = [record for record in made.records if record.name == "search_order"]
    assert (
        plan(u_net(), replace(options, capacity=None, recompute=False)).arena_bytes
        < plan(u_net()).arena_bytes
    )
    assert record.facts["peak_before"] == record.facts["peak_after"]
    assert made.arena_bytes <= 2_299_494


@pytest.mark.parametrize("target", ["onert", "nntrainer", "singa"])
def test_targets_with_an_order_of_their_own_refuse_it(target: str) -> None:
    with pytest.raises(OptionsError, match="order of its own") as caught:
        plan(chain(), PlanOptions(target=target, order=True))
    assert caught.value.path == ("order",)
