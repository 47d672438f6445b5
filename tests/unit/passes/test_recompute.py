"""The pass `recompute`: capacities that are kept, bit for bit, and those that cannot be."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from arenaplan.builder import Tape, adam, layers, ops
from solver.accounting import floor, roofline, schedule_problem
from solver.documents import dump_plan, load_graph, load_plan
from solver.errors import CapacityError
from solver.executor import validate
from solver.graph import DType, TrainableGraph, TrainingRules
from solver.layout import Deadline
from solver.passes import Order, Recompute
from solver.pipeline import plan, reference_of
from solver.plan import PlanOptions
from solver.program import Program, Tier, loads
from solver.reports.records import recomputation
from solver.schedules.recompute.dual import proved_cost
from solver.schedules.recompute.search import cheapest
from solver.targets import aligned
from solver.training import derive
from solver.verify import prove
from tests.support import graphs as support
from tests.support.operator_graphs import attention, convolved, elementwise
from tests.support.sequence_graphs import classifier

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


tower = partial(support.tower, 6)


def ordered(graph: TrainableGraph) -> Program:
    return Order().run(derive(graph))


def between(program: Program, share: float, *, in_place: bool = False) -> int:
    """A capacity between the floor and the peak."""
    low = floor(schedule_problem(program, roofline(program), in_place=in_place)).bytes
    return low + round(share * (max(loads(program)[0]) - low))


@pytest.mark.parametrize("share", [0.9, 0.7, 0.5])
@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (tower(), {}),
        (tower(dropout=True), {}),
        (tower(tied=True), {}),
        (tower(), {"in_place": True}),
        (tower(), {"update": "end"}),
        (tower(training=TrainingRules(clip_global_norm=0.5)), {}),
        (tower(training=TrainingRules(accumulate=2)), {}),
        (tower(optimizer="Adam"), {"in_place": True}),
    ],
    ids=["plain", "dropout", "tied", "in place", "updates at the end", "clipped", "micro-batches", "adam"],
)
def test_plans_keep_the_capacity_and_compute_the_same_bits(
    graph: TrainableGraph, options: dict[str, object], share: float
) -> None:
    plain = plan(graph, PlanOptions(**options))  # type: ignore[arg-type]  # options by name
    program = ordered(graph)
    low = floor(schedule_problem(program, roofline(program), in_place=True)).bytes
    capacity = low + round(share * (plain.arena_bytes - low))
    made = plan(graph, PlanOptions(capacity=capacity, recompute=True, **options))  # type: ignore[arg-type]  # ditto
    assert made.arena_bytes <= capacity
    assert any(".again1" in label for label in made.program.step_labels)
    report = validate(graph, made, steps=3)
    assert report.identical
    assert not report.violations


@pytest.mark.parametrize("alignment", [1, 4, 16, 32, 128])
@pytest.mark.parametrize("tiered", [False, True], ids=["recompute", "paging"])
@pytest.mark.parametrize("in_place", [False, True], ids=["own bytes", "in place"])
def test_what_runs_again_finds_the_same_bits_at_any_alignment(
    alignment: int, *, tiered: bool, in_place: bool
) -> None:
    """Odd sizes at an alignment below 64 would put a repetition at another address modulo 64."""
    graph = tower(rows=31, width=13)
    usual = PlanOptions(alignment=alignment, in_place=in_place)
    plain = plan(graph, usual)
    assert plain.program.spaces[0].alignment == alignment
    most = plain.arena_bytes * 93 // 100
    if tiered:
        chosen = replace(usual, tiers=(Tier("fast", most), Tier("slow", 2**24, 10**9, 10**9, 0)))
    else:
        chosen = replace(usual, recompute=True, capacity=most)
    made = plan(graph, chosen)
    assert made.sizes[0] <= most
    assert made.program.spaces[0].alignment == max(alignment, 64)
    assert all(offset % 64 == 0 for offset in made.offsets)
    report = validate(graph, load_plan(dump_plan(made)), steps=2)
    assert report.identical
    assert not report.violations
    roomy = plan(graph, replace(usual, recompute=True, capacity=plain.arena_bytes))
    assert roomy.offsets == plain.offsets  # nothing runs again, so nothing is coarser


@pytest.mark.parametrize(("parallelism", "share"), [(2, 0.5), (2, 0.8), (4, 0.8)])
@pytest.mark.parametrize(
    "options", [{}, {"in_place": True}, {"update": "end"}], ids=["plain", "place", "end"]
)
def test_steps_at_the_same_time_keep_what_one_at_a_time_keeps(
    options: dict[str, object], parallelism: int, share: float
) -> None:
    """Where a level is too full, fewer steps run on it."""
    graph = tower()
    program = ordered(graph)
    low = floor(schedule_problem(program, roofline(program), in_place=True)).bytes
    capacity = low + round(share * (plan(graph, PlanOptions(**options)).arena_bytes - low))  # type: ignore[arg-type]  # options by name
    chosen = PlanOptions(capacity=capacity, recompute=True, **options)  # type: ignore[arg-type]  # ditto
    assert plan(graph, chosen).arena_bytes <= capacity
    made = plan(graph, replace(chosen, parallelism=parallelism))
    assert made.arena_bytes <= capacity
    assert made.duration <= len(made.steps)
    assert validate(graph, made, steps=2).identical


@pytest.mark.parametrize(
    ("graph", "share"),
    [
        (attention(), 0.8),
        (elementwise(), 0.8),
        (elementwise(), 0.5),
        (convolved(), 0.5),
        (classifier(), 0.9),
    ],
    ids=lambda given: given if isinstance(given, float) else given.name,
)
def test_other_operators_run_again(graph: TrainableGraph, share: float) -> None:
    capacity = between(ordered(graph), share)
    assert plan(graph).arena_bytes > capacity
    made = plan(graph, PlanOptions(capacity=capacity, recompute=True))
    assert made.arena_bytes <= capacity
    assert validate(graph, made, steps=2).identical


def test_the_example_is_planned_at_its_floor_almost() -> None:
    """As written 17,035,072 bytes are a bound; rewritten it takes 13,874,048 at 1.9 % of time."""
    graph = load_graph((EXAMPLES / "mnist.json").read_bytes())
    made = plan(graph, PlanOptions(capacity=17_140_000, recompute=True))
    assert made.arena_bytes == made.lower_bound == 17_135_488
    rewritten = plan(graph, PlanOptions(capacity=13_920_000, recompute=True, rewrite=True))
    assert rewritten.arena_bytes == 13_874_048
    (record,) = (record for record in rewritten.records if record.name == "recompute")
    extra, bound = record.facts["extra_nanoseconds"], record.facts["bound_nanoseconds"]
    assert extra == bound
    assert int(extra) <= 0.0193 * int(record.facts["step_nanoseconds"])


def test_steps_at_the_same_time_wait_with_what_they_repeat() -> None:
    """Two at a time take more: the pass runs again for fewer bytes, whose bound is not the capacity's."""
    graph = load_graph((EXAMPLES / "mnist.json").read_bytes())
    capacity = plan(graph, PlanOptions(parallelism=2)).arena_bytes * 9 // 10
    made = plan(graph, PlanOptions(capacity=capacity, recompute=True, parallelism=2))
    assert made.arena_bytes <= capacity
    assert validate(graph, made, steps=1).identical
    facts = next(record.facts for record in made.records if record.name == "recompute")
    found = recomputation(made)
    assert found is not None
    assert (found.bound == 0) == (facts["budget"] != capacity)


def test_a_plan_that_fits_by_itself_is_the_plan_without_the_option() -> None:
    graph = tower()
    plain = plan(graph)
    made = plan(graph, PlanOptions(capacity=plain.arena_bytes, recompute=True))
    assert made.program == plain.program
    assert [record.name for record in made.records] == [record.name for record in plain.records]


def test_the_record_has_the_figures_of_the_schedule() -> None:
    graph = tower()
    program = ordered(graph)
    capacity = between(program, 0.5)
    made = plan(graph, PlanOptions(capacity=capacity, recompute=True))
    (record,) = (record for record in made.records if record.name == "recompute")
    facts = dict(record.facts)
    assert facts["peak_before"] == max(loads(program)[0])
    assert facts["peak_after"] == max(loads(made.program)[0]) <= capacity
    assert facts["repeated_steps"] == len(made.program.steps) - len(program.steps) > 0
    cost = dict(zip((s.reference for s in program.steps), roofline(program), strict=True))
    assert facts["step_nanoseconds"] == sum(cost.values())
    assert facts["extra_nanoseconds"] == sum(cost[s.reference] for s in made.program.steps) - sum(
        cost.values()
    )
    assert 0 < int(facts["bound_nanoseconds"]) <= int(facts["extra_nanoseconds"])
    assert int(facts["floor"]) <= int(facts["order_bound"])
    assert int(facts["extra_flops"]) <= int(facts["step_flops"])


def test_documents_carry_repetitions() -> None:
    graph = tower()
    capacity = between(ordered(graph), 0.5)
    made = plan(graph, PlanOptions(capacity=capacity, recompute=True))
    again = load_plan(dump_plan(made))
    assert again == made
    assert prove(reference_of(graph, again.options), again) == ()
    assert made.digest == plan(graph, PlanOptions(capacity=capacity, recompute=True)).digest


def test_a_capacity_below_the_floor_is_proved_impossible() -> None:
    graph = tower()
    program = ordered(graph)
    low = floor(schedule_problem(program, roofline(program)))
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(capacity=low.bytes - 1, recompute=True))
    error = caught.value
    assert error.proved
    assert (error.required, error.available) == (low.bytes, low.bytes - 1)
    assert f"{low.bytes:,} bytes" in error.message
    assert program.step_labels[low.step] in error.message
    touched = {program.values[b.value].label for b in program.steps[low.step].bindings}
    assert touched & {label for label, _ in error.live_at_peak}
    assert error.path == ("capacity",)
    assert plan(graph, PlanOptions(capacity=max(loads(program)[0]), recompute=True)).arena_bytes > low.bytes


def test_who_asks_for_no_advice_is_refused_at_once_what_cannot_be() -> None:
    program = ordered(tower())
    low = floor(schedule_problem(program, roofline(program))).bytes
    refused = []
    for advise in (True, False):
        with pytest.raises(CapacityError) as caught:
            plan(tower(), PlanOptions(capacity=low, recompute=True), advise=advise)
        assert "None that keeps the order of the steps exists" in caught.value.message
        refused.append(caught.value.required)
    assert low < refused[0] < refused[1] == max(loads(program)[0])


def test_a_capacity_that_was_not_reached_says_what_was() -> None:
    s = support.Sketch("wide")  # the one value that waits is read again at once, so that nothing is gained
    h = s.op("Gemm", [s.input("x", 8, 8), s.parameter("w", 8, 8)], "h", "fc")
    h = s.op("Gelu", [h], "a", "gelu")
    s.op("MeanSquaredError", [h, s.label("t", 8, 8)], "loss", "mse")
    graph = s.graph()
    peak = plan(graph).arena_bytes
    low = floor(schedule_problem(ordered(graph), roofline(ordered(graph)))).bytes
    assert low < peak
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(capacity=low, recompute=True))
    assert not caught.value.proved
    assert caught.value.required <= peak
    assert f"Raise the capacity to {caught.value.required:,}" in caught.value.remedy


def test_a_deadline_that_has_passed_leaves_what_is_found_at_once() -> None:
    program = ordered(tower())
    past = Deadline(at=0.0)
    found = Recompute(recompute=True, capacity=max(loads(program)[0])).apply(program, past)
    assert found.program is program
    assert found.complete
    capacity = between(program, 0.5)
    found = Recompute(recompute=True, capacity=capacity).apply(program, past)
    assert max(loads(found.program)[0]) <= capacity
    assert not found.complete
    made = plan(tower(), PlanOptions(capacity=capacity, recompute=True, deadline_seconds=0.0))
    assert not made.deterministic
    assert made.arena_bytes <= capacity
    with pytest.raises(CapacityError, match="bytes in time; the smallest takes") as caught:
        plan(tower(), PlanOptions(capacity=between(program, 0.1), recompute=True, deadline_seconds=0.0))
    assert caught.value.remedy.startswith("Give more time, raise the capacity to")


def test_an_error_never_asks_for_more_than_it_takes_without_repetitions() -> None:
    program = ordered(tower())
    low, peak = floor(schedule_problem(program, roofline(program))).bytes, max(loads(program)[0])
    with pytest.raises(CapacityError) as caught:
        plan(tower(), PlanOptions(capacity=low, recompute=True))
    assert low < caught.value.required <= peak


def test_preparations_try_programs_without_the_search() -> None:
    """Rewriting looks at a footprint for every rule; a search for a schedule each time would take minutes."""
    assert Recompute.searches
    assert not Order.searches


def gpt() -> TrainableGraph:
    """One block with dropout behind its embedding, its attention and its projections."""
    tape = Tape("gpt", batch=2)
    token, following = (
        of(name, 8, dtype=DType.INT64) for of, name in ((tape.input, "token"), (tape.label, "y"))
    )
    table = tape.parameter("table", [16, 16], "normal", scale=0.1)
    x = tape.apply("Dropout", layers.embedding(token, table), ratio=0.1)
    h = layers.layer_norm(x)
    query, key, value = (layers.project(h, 16, name=name) for name in ("query", "key", "value"))
    scores = tape.apply("Dropout", ops.softmax(query @ key.transpose(0, 2, 1)), ratio=0.1)
    x = x + tape.apply("Dropout", layers.project(scores @ value, 16, name="mixed"), ratio=0.1)
    hidden = ops.gelu(layers.project(layers.layer_norm(x), 64, name="up"))
    x = layers.layer_norm(x + tape.apply("Dropout", layers.project(hidden, 16, name="down"), ratio=0.1))
    logits = tape.apply("Gemm", x.reshape(-1, 16), table, transB=1).reshape(-1, 8, 16)
    return tape.minimise(ops.cross_entropy(logits, following, sparse=True), adam(0.01)).graph


def test_where_nothing_is_found_above_the_floor_the_bound_is_said() -> None:
    lowest = floor(schedule_problem(ordered(gpt()).at_same_residues(), roofline(ordered(gpt())))).bytes
    with pytest.raises(CapacityError) as refused:
        plan(gpt(), PlanOptions(capacity=lowest, recompute=True), advise=False)
    assert not refused.value.proved
    message = str(refused.value)
    assert message.startswith(f"No schedule was found that keeps {lowest:,} bytes; the smallest takes ")
    assert f" {lowest:,} bytes at least are proved, at step " in message


@pytest.mark.parametrize("share", [0.95, 0.85])
@pytest.mark.parametrize("in_place", [False, True])
def test_no_sentence_takes_nothing_for_a_bound(share: float, in_place: bool) -> None:
    options = PlanOptions(capacity=int(plan(gpt()).arena_bytes * share), recompute=True, in_place=in_place)
    try:
        made = recomputation(plan(gpt(), options, advise=False))
        said = made.proof if made is not None else ""
    except CapacityError as error:
        said = str(error)
    assert " 0.00 %" not in said
    assert " 0 bytes at least" not in said


def test_full_steps_prove_more_where_values_share_bytes() -> None:
    """The moments of the search bound the cost of plans without aliases: in place they prove less."""
    graph, capacity = attention(), 10_233
    made = plan(graph, PlanOptions(capacity=capacity, recompute=True, in_place=True))
    program = Order().run(aligned(derive(graph), 64).program)
    problem = schedule_problem(program, roofline(program), in_place=True)
    moments = cheapest(problem, capacity).moments
    alone = proved_cost(program, problem, capacity, moments, in_place=True)
    assert alone is not None
    assert made.cost_bound is not None
    assert 0 < alone.nanoseconds < made.cost_bound.nanoseconds
