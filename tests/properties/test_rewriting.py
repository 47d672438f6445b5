"""Random graphs before and after: same loss, same gradients, no more memory, and a plan that trains."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.documents import dump_graph, dump_plan, load_graph, load_plan
from solver.executor import validate
from solver.executor.arithmetic import KernelArithmetic
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.preparations.rewriting import RULES, Agreement, Rule, rewrite
from tests.support.rewritable import random_rewritable
from tests.support.rewriting import everywhere, footprint, only, same_training

#: In float64; the sums are short, so that rounding stays far below it.
CLOSE = 1e-9

SEEDS = st.integers(0, 2**32)
FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)


@settings(max_examples=FUZZ or 25)
@given(seed=SEEDS)
def test_rewritten_everywhere_it_trains_the_same(seed: int) -> None:
    graph = random_rewritable(seed)
    same_training(graph, everywhere(graph).graph, rtol=CLOSE)


@settings(max_examples=FUZZ or 25)
@given(seed=SEEDS, rule=st.sampled_from(RULES))
def test_every_rule_keeps_its_promise(seed: int, rule: Rule) -> None:
    """Bit for bit, where a rule promises that of values and gradients."""
    graph = random_rewritable(seed)
    exact = rule.value is rule.gradient is Agreement.BITWISE
    same_training(graph, only(graph, rule.name), bitwise=exact, rtol=CLOSE)


@settings(max_examples=FUZZ or 25)
@given(seed=SEEDS)
def test_it_takes_no_more_memory_and_is_the_same_each_time(seed: int) -> None:
    graph = random_rewritable(seed)
    found = rewrite(graph, KernelArithmetic(), footprint)
    assert footprint(found.graph) <= footprint(graph)
    assert rewrite(random_rewritable(seed), KernelArithmetic(), footprint) == found


@settings(max_examples=FUZZ or 25)
@given(seed=SEEDS)
def test_the_result_is_accepted_where_graphs_are_loaded(seed: int) -> None:
    """Types, order and references are those that a document of the graph would be given."""
    found = everywhere(random_rewritable(seed)).graph
    assert load_graph(dump_graph(found)) == found


@settings(max_examples=FUZZ or 10)
@given(seed=SEEDS, in_place=st.booleans(), parallelism=st.integers(1, 3))
def test_plans_of_it_train_bit_identically(seed: int, in_place: bool, parallelism: int) -> None:
    graph = random_rewritable(seed)
    options = PlanOptions(rewrite=True, in_place=in_place, parallelism=parallelism)
    made = plan(graph, options)
    assert (
        made.lower_bound <= plan(graph, PlanOptions(in_place=in_place, parallelism=parallelism)).lower_bound
    )
    assert load_plan(dump_plan(made)) == made
    assert validate(graph, made, steps=2).identical
