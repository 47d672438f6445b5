"""Bounds on the cost of recomputation, added up from rows with multipliers: no search is believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from solver.accounting import floor, roofline, schedule_problem
from solver.documents import dump_plan, load_graph, load_plan
from solver.graph import TrainableGraph
from solver.passes import Order
from solver.passes.aliases import define_in_place
from solver.pipeline import plan, reference_of
from solver.plan import Costs, Plan, PlanOptions
from solver.program import CostBound, DualRow, Program, Record, RowKind, Tier, loads
from solver.reports.records import recomputation
from solver.schedules.recompute.dual import proved_cost
from solver.schedules.recompute.moments import fullest
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import replay
from solver.targets import aligned
from solver.training import derive
from solver.verify import added_up, check_cost_bound, prove
from tests.support.graphs import chain, residual, tower
from tests.support.sequence_graphs import classifier

MNIST = (Path(__file__).resolve().parents[3] / "examples" / "mnist.json").read_bytes()

GRAPHS: dict[str, Callable[[], TrainableGraph]] = {
    "chain": lambda: chain((16,) * 7, batch=64),
    "residual": lambda: residual(batch=16, width=16),
    "lstm": lambda: classifier("LSTM"),
    "mnist": lambda: load_graph(MNIST),
}


class Made:
    """A plan of mnist with recomputation, its reference, and the costs of the reference's steps."""

    def __init__(self) -> None:
        self.graph = load_graph(MNIST)
        self.plan = plan(self.graph, PlanOptions(capacity=17_400_000, recompute=True))
        self.reference: Program = reference_of(self.graph, self.plan.options)
        self.cost = roofline(self.reference)
        assert self.plan.cost_bound is not None
        self.bound: CostBound = self.plan.cost_bound

    def added_up(self, **changes: Any) -> int:
        return added_up(self.reference, replace(self.bound, **changes), self.cost)

    def rules(self, changed: Plan) -> set[str]:
        return {violation.rule for violation in prove(self.reference, changed, {})}


@pytest.fixture(scope="module")
def made() -> Made:
    return Made()


def test_the_rows_add_up_to_what_is_claimed(made: Made) -> None:
    assert made.added_up() == made.bound.nanoseconds > 0
    assert list(check_cost_bound(made.reference, made.bound, made.cost)) == []
    found = recomputation(made.plan)
    assert found is not None
    assert made.bound.nanoseconds == found.checked <= found.bound <= found.extra
    assert made.bound.budget == 17_400_000
    assert load_plan(dump_plan(made.plan)) == made.plan


@pytest.mark.parametrize("name", GRAPHS)
def test_no_schedule_that_is_found_costs_less(name: str) -> None:
    """At every budget and for moments of all kinds; the verifier has the sum of whoever made the rows."""
    program = Order().run(aligned(derive(GRAPHS[name]()), 64).program)
    reference = aligned(derive(GRAPHS[name]()), 64).program
    problem = schedule_problem(program, roofline(program))
    load = replay(problem, tuple(range(len(problem.steps))))
    low = floor(problem).bytes
    proved = 0
    for percent in (95, 80, 60, 30):
        budget = low + (max(load) - low) * percent // 100
        found = cheapest(problem, budget, share=0.05)
        every = range(0, len(problem.steps), 3)
        for moments in (found.moments, fullest(load, budget, 5), tuple(every)):
            bound = proved_cost(program, problem, budget, moments)
            if bound is not None:
                assert added_up(reference, bound, roofline(reference)) == bound.nanoseconds
                assert not found.fits or bound.nanoseconds <= found.extra
                proved += 1
    assert proved >= 3


def test_near_the_bound_in_whole_numbers(made: Made) -> None:
    for capacity in (20_300_000, 19_400_000):
        found = recomputation(plan(made.graph, PlanOptions(capacity=capacity, recompute=True)))
        assert found is not None
        assert found.optimal
        assert found.checked >= 0.99 * found.bound


# ---------------------------------------------------------------------------------- wrong certificates


def test_each_multiplier_matters(made: Made) -> None:
    """With one gone, the sum falls below the claim, and the plan is refused."""
    for k in range(len(made.bound.rows)):
        rows = (*made.bound.rows[:k], *made.bound.rows[k + 1 :])
        assert made.added_up(rows=rows) < made.bound.nanoseconds
        assert made.rules(replace(made.plan, cost_bound=replace(made.bound, rows=rows))) == {"cost"}


@pytest.mark.parametrize("factor", [0, 0.5, 0.99, 1.01, 2, 1000])
def test_other_multipliers_prove_less(made: Made, factor: float) -> None:
    """The optimum of the linear program is none that a change could raise by more than rounding does."""
    for k, row in enumerate(made.bound.rows):
        changed = replace(row, multiplier=int(row.multiplier * factor))
        rows = (*made.bound.rows[:k], changed, *made.bound.rows[k + 1 :])
        assert made.added_up(rows=rows) <= made.bound.nanoseconds + 2


def test_a_claim_beyond_the_sum_is_refused(made: Made) -> None:
    more = replace(made.bound, nanoseconds=made.bound.nanoseconds + 1)
    (found,) = check_cost_bound(made.reference, more, made.cost)
    assert found.rule == "cost"
    assert f"add up to {made.bound.nanoseconds:,}" in found.detail
    assert "cost" in made.rules(replace(made.plan, cost_bound=more))


def test_a_larger_budget_needs_less(made: Made) -> None:
    assert made.added_up(budget=made.bound.budget + 1_000_000) < made.bound.nanoseconds
    assert made.added_up(budget=2**40) == 0


def test_cheaper_steps_cost_less(made: Made) -> None:
    half = [cost // 2 for cost in made.cost]
    assert added_up(made.reference, made.bound, half) < made.bound.nanoseconds


def row_of(made: Made, kind: RowKind) -> DualRow:
    found = [row for row in made.bound.rows if row.kind is kind]
    return found[0] if found else DualRow(kind, 0, 1, value=made.bound.rows[-1].value)


BAD: dict[str, tuple[Callable[[Made], dict[str, Any]], str]] = {
    "negative": (lambda m: {"rows": (replace(m.bound.rows[0], multiplier=-1),)}, "negative"),
    "no such moment": (lambda m: {"rows": (replace(m.bound.rows[0], moment=99),)}, "moment 99"),
    "one moment too many": (
        lambda m: {"rows": (replace(m.bound.rows[0], moment=len(m.bound.moments)),)}, "which there is not"
    ),
    "moments fall": (lambda m: {"moments": m.bound.moments[::-1] * 2}, "rising"),
    "moments beyond": (lambda m: {"moments": (10_000,)}, "rising positions"),
    "order twice": (lambda m: {"order": (0, *m.bound.order[1:-1], 0)}, "every step"),
    "order short": (lambda m: {"order": m.bound.order[:-1]}, "every step"),
    "denominator": (lambda m: {"denominator": 0}, "denominator is 0"),
    "divisor": (lambda m: {"rows": (replace(row_of(m, RowKind.BUDGET), divisor=0),)}, "divided by 0"),
    "no such value": (lambda m: {"rows": (DualRow(RowKind.READER, 0, 1, value=10_000),)}, "does not have"),
    "no such step": (lambda m: {"rows": (DualRow(RowKind.REPETITION, 0, 1, 0, 10_000),)}, "does not have"),
    "without what is there": (
        lambda m: {"rows": (replace(row_of(m, RowKind.BUDGET), without=(0, 1, 2, 3)),)},
        "leaves out",
    ),
    "no value": (lambda m: {"rows": (DualRow(RowKind.READER, 0, 1),)}, "no value needs no source"),
    "a weight": (
        lambda m: {"rows": (DualRow(RowKind.READER, 0, 1, m.reference.by_label["conv1.weight"]),)},
        "needs no source",
    ),
    "a gradient that waits": (
        lambda m: {"rows": (DualRow(RowKind.READER, 0, 1, m.reference.by_label["loss.out@grad"]),)},
        "no step reads",
    ),
    "nobody reads it": (
        lambda m: {
            "moments": (len(m.bound.order) - 2,),
            "rows": (replace(row_of(m, RowKind.READER), moment=0),),
        },
        "behind moment 0",
    ),
    "a step that must not run again": (
        lambda m: {"rows": (replace(row_of(m, RowKind.READER), kind=RowKind.REPETITION, step=39),)},
        "may not run again",
    ),
    "a step that does not read it": (
        lambda m: {"rows": (replace(row_of(m, RowKind.READER), kind=RowKind.REPETITION, step=0),)},
        "does not read",
    ),
    "behind the last moment": (
        lambda m: {
            "rows": (
                replace(row_of(m, RowKind.READER), kind=RowKind.HELD, moment=len(m.bound.moments) - 1),
            )
        },
        "behind moment",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_rows_that_do_not_hold_are_named(made: Made, name: str) -> None:
    change, words = BAD[name]
    changed = replace(made.bound, **change(made))
    with pytest.raises(ValueError, match=words):
        added_up(made.reference, changed, made.cost)
    (found,) = check_cost_bound(made.reference, changed, made.cost)
    assert found.rule == "cost"
    assert "cannot be added up" in found.detail
    assert made.rules(replace(made.plan, cost_bound=changed)) == {"cost"}


# ----------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("repeated_steps", 1),
        ("extra_nanoseconds", 1),
        ("extra_nanoseconds", -1),
        ("step_nanoseconds", 7),
        ("checked_nanoseconds", 1),
        ("bound_nanoseconds", 10**9),
        ("step_flops", 2),
        ("extra_flops", -2),
        ("budget", 1),
        ("floor", 1),
        ("order_bound", 1),
        ("peak_before", 64),
        ("peak_before", -64),
        ("peak_after", 64),
        ("peak_after", -(10**6)),
    ],
)
def test_a_record_that_does_not_match_the_program_is_refused(made: Made, name: str, change: int) -> None:
    (record,) = (record for record in made.plan.records if record.name == "recompute")
    facts = {**record.facts, name: int(record.facts[name]) + change}
    others = tuple(r for r in made.plan.records if r is not record)
    changed = replace(made.plan, records=(*others, Record("recompute", facts)))
    assert made.rules(changed) == {"record"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("moved_in", 1),
        ("moved_out", -1),
        ("transfers", 1),
        ("nanoseconds", -1),
        ("compute_nanoseconds", 1),
        ("written.slow", -4),
        ("bound", 2**40),
        ("bound", -(2**40)),
        ("least_nanoseconds", 2**40),
        ("baseline", 4),
        ("baseline", -4),
        ("peak_before", 64),
        ("peak_before", -64),
        ("peak_after", -64),
        ("lookahead", -1),
    ],
)
def test_a_record_of_paging_that_the_copies_do_not_bear_out_is_refused(name: str, change: int) -> None:
    graph = tower()
    tiers = (Tier("fast", plan(graph).arena_bytes * 4 // 5), Tier("slow", 2**24, 10**9, 10**9, 0))
    made = plan(graph, PlanOptions(tiers=tiers))
    reference = reference_of(graph, made.options)
    assert prove(reference, made, {}) == ()
    (record,) = (record for record in made.records if record.name == "paging")
    facts = {**record.facts, name: int(record.facts.get(name, 0)) + change}
    others = tuple(r for r in made.records if r is not record)
    (found,) = prove(reference, replace(made, records=(*others, Record("paging", facts))), {})
    assert found.rule == "record"
    assert name in found.detail


def test_a_longer_lookahead_has_another_baseline() -> None:
    """How long transfers might have taken is not in the plan; what could leave then is less."""
    graph = tower()
    tiers = (Tier("fast", plan(graph).arena_bytes * 4 // 5), Tier("slow", 2**24, 10**9, 10**9, 0))
    made = plan(graph, PlanOptions(tiers=tiers))
    (record,) = (record for record in made.records if record.name == "paging")
    changed = Record("paging", {**record.facts, "lookahead": int(record.facts["lookahead"]) + 4})
    (found,) = prove(reference_of(graph, made.options), replace(made, records=(changed,)), {})
    assert found.rule == "record"
    assert "baseline" in found.detail


@pytest.mark.parametrize("more", [{"in_place": True}, {"parallelism": 2}], ids=["in place", "levels"])
@pytest.mark.parametrize("kind", ["recompute", "paging"])
def test_no_peak_is_said_to_be_more_than_values_of_their_own_take(kind: str, more: dict[str, Any]) -> None:
    """And no floor to be more than it is, whatever else the plan does."""
    graph = tower(8)
    size = plan(graph, PlanOptions(**more)).arena_bytes * 3 // 4
    options = PlanOptions(capacity=size, recompute=True, **more)
    if kind == "paging":
        options = PlanOptions(tiers=(Tier("fast", size), Tier("slow", 2**24, 10**9, 10**9, 0)), **more)
    made = plan(graph, options)
    reference = reference_of(graph, made.options)
    assert prove(reference, made, {}) == ()
    (record,) = (record for record in made.records if record.name == kind)
    for name in ("peak_before",) if kind == "paging" else ("floor", "order_bound"):
        facts = {**record.facts, name: int(record.facts[name]) + 10**6}
        changed = tuple(Record(kind, facts) if each is record else each for each in made.records)
        found = prove(reference, replace(made, records=changed), {})
        assert {violation.rule for violation in found} == {"record"}


def test_a_record_of_paging_in_one_memory_is_refused(made: Made) -> None:
    changed = replace(made.plan, records=(*made.plan.records, Record("paging", {"moved_in": 0})))
    assert made.rules(changed) == {"record"}


def test_a_record_for_other_costs_is_refused(made: Made) -> None:
    costs = Costs(tuple((label, 5) for label in made.reference.step_labels))
    changed = replace(made.plan, options=replace(made.plan.options, costs=costs))
    assert made.rules(changed) == {"record", "cost"}


@pytest.mark.parametrize(("part", "rules"), [(0, set[str]()), (1, {"record"})])
def test_no_order_is_said_to_need_more_than_the_plan(made: Made, part: int, rules: set[str]) -> None:
    (record,) = (record for record in made.plan.records if record.name == "recompute")
    facts = {
        "order_bound": 0,
        **dict.fromkeys(("peak_before", "peak_after"), record.facts["peak_before"]),
        "step_nanoseconds": record.facts["step_nanoseconds"],
        "every_order_nanoseconds": int(record.facts["extra_nanoseconds"]) + part,
    }
    others = tuple(r for r in made.plan.records if r.name != "search_order")
    assert made.rules(replace(made.plan, records=(*others, Record("search_order", facts)))) == rules


def test_nothing_is_claimed_where_nothing_runs_again(made: Made) -> None:
    assert plan(made.graph).cost_bound is None


@pytest.mark.parametrize("name", ["chain", "mnist"])
def test_values_in_place_have_a_bound_of_their_own(name: str) -> None:
    """No plan with values in place costs less, and none without them: these keep their budget as well."""
    graph = GRAPHS[name]()
    program = Order().run(aligned(derive(graph), 64).program)
    problem = schedule_problem(program, roofline(program), in_place=True)
    low, peak = floor(problem).bytes, max(loads(define_in_place(program))[0])
    for share in (0.2, 0.5, 0.8):
        capacity = low + int(share * (peak - low))
        shared = plan(graph, PlanOptions(capacity=capacity, recompute=True, in_place=True))
        found, bound = recomputation(shared), shared.cost_bound
        assert found is not None
        assert bound is not None
        reference = reference_of(graph, shared.options)
        cost = roofline(reference)
        assert 0 < bound.nanoseconds == added_up(reference, bound, cost, in_place=True) == found.checked
        assert found.checked == found.bound <= found.extra
        assert bound.budget == capacity
        assert bound.nanoseconds <= cheapest(problem, capacity).extra
        alone = proved_cost(program, problem, capacity, bound.moments)
        if alone is not None and alone.nanoseconds > bound.nanoseconds:
            # Rows that count every value by itself prove nothing of plans in which some share bytes.
            changed = replace(shared, cost_bound=alone)
            assert {violation.rule for violation in prove(reference, changed, {})} == {"cost", "record"}
