"""The registry of passes: their order, what they require and keep, and the options that they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.accounting import paging_problem
from solver.documents import SCHEMAS
from solver.errors import OptionsError
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import (
    MAX_PARALLELISM,
    PASSES,
    UPDATE_MODES,
    Aliases,
    Levels,
    Order,
    Paging,
    Pass,
    Recompute,
    SearchOrder,
    chosen,
)
from solver.passes.aliases import define_in_place
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import UPDATE, Program, Tier, check_program, dependencies, list_schedule, lives, loads
from solver.training import derive, explicit_program
from tests.support.derived import at, reads
from tests.support.graphs import batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention
from tests.support.programs import independent_pairs
from tests.support.programs import program as explicit

GRAPHS = [chain(), residual(), convolutional()]


def has(program: Program, name: str) -> bool:
    """Whether a program has a property that passes speak of."""
    if name == "sequential":
        return [step.level for step in program.steps] == list(range(len(program.steps)))
    assert name == "own memory"
    return not program.aliases


def test_the_passes_in_the_order_in_which_they_run() -> None:
    assert (Order, SearchOrder, Recompute, Levels, Paging, Aliases) == PASSES
    assert [kind.name for kind in PASSES] == [
        "order",
        "search_order",
        "recompute",
        "levels",
        "paging",
        "aliases",
    ]


@pytest.mark.parametrize("kind", PASSES, ids=lambda kind: str(kind.name))
def test_every_option_of_a_pass_is_an_option_of_a_plan_with_the_same_default(kind: type[Pass]) -> None:
    options = PlanOptions()
    for field in fields(kind):  # type: ignore[arg-type]  # every pass is a dataclass
        assert field.default == getattr(options, field.name)


def test_a_pass_requires_only_what_all_before_it_keep() -> None:
    there = {"sequential", "own memory"}
    for kind in PASSES:
        assert kind.requires <= there
        there &= kind.keeps


@pytest.mark.parametrize("options", [PlanOptions(), PlanOptions(parallelism=3, in_place=True)])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_each_pass_finds_what_it_requires_and_leaves_what_it_keeps(
    graph: TrainableGraph, options: PlanOptions
) -> None:
    program = derive(graph)
    for each in chosen(options):
        assert all(has(program, name) for name in each.requires)
        found = each.run(program)
        assert all(has(found, name) for name in each.keeps if has(program, name))
        program = found


def test_passes_are_chosen_by_options_of_the_same_name() -> None:
    options = PlanOptions(update="end", parallelism=4, in_place=True)
    assert chosen(options) == (
        Order("end"),
        SearchOrder(in_place=True, update="end"),
        Recompute(in_place=True),
        Levels(4, "end", in_place=True),
        Paging(in_place=True),
        Aliases(in_place=True),
    )
    assert chosen(PlanOptions()) == (Order(), SearchOrder(), Recompute(), Levels(), Paging(), Aliases())
    again = PlanOptions(recompute=True, capacity=4096)
    assert chosen(again)[2:5] == (
        Recompute(recompute=True, capacity=4096),
        Levels(recompute=True, capacity=4096),
        Paging(recompute=True),
    )


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (PlanOptions(update="later"), ("update",)),
        (PlanOptions(parallelism=0), ("parallelism",)),
        (PlanOptions(parallelism=65), ("parallelism",)),
        (PlanOptions(recompute=True), ("capacity",)),
    ],
)
def test_a_value_that_a_pass_does_not_take_is_named(options: PlanOptions, path: tuple[str, ...]) -> None:
    with pytest.raises(OptionsError) as caught:
        chosen(options)
    assert caught.value.path == path
    assert caught.value.remedy


def test_a_pass_that_changes_nothing_gives_the_very_program_and_leaves_no_record() -> None:
    program = derive(chain())
    for each in chosen(PlanOptions(update="end")):
        assert each.run(program) is program
    assert plan(chain(), PlanOptions(update="end")).records == ()


def test_what_passes_did_stands_in_the_records_of_the_plan() -> None:
    made = plan(residual(), PlanOptions(parallelism=2, in_place=True))
    facts = {record.name: record.facts for record in made.records}
    assert list(facts) == ["order", "levels", "aliases"]
    assert facts["order"]["update"] == "immediate"
    assert facts["levels"] == {"parallelism": 2, "steps": len(made.steps), "levels": made.duration}
    views = sum(alias.view for alias in made.program.aliases)
    assert facts["aliases"]["views"] == views
    assert facts["aliases"]["overwritten"] == len(made.program.aliases) - views
    assert facts["aliases"]["peak_after"] == max(loads(made.program)[0])


def test_passes_say_nothing_of_what_they_did_unless_they_have_something_to_say() -> None:
    class Silent(Pass):
        name = "silent"

        def run(self, program: Program) -> Program:
            return program

    program = derive(chain())
    assert Silent().facts(program, program) == {}
    assert Silent.keeps == {"sequential", "own memory"}
    assert Silent.requires == frozenset()


# ------------------------------- Where updates stand: at once where that is legal, else after the last reader


ORDERED_GRAPHS = [chain((9, 9, 9, 9)), residual(), convolutional(), batch_normalised()]


def ordered(graph: TrainableGraph, update: str = "immediate") -> Program:
    return Order(update).run(derive(graph))


def ids(found: Program) -> list[str]:
    return list(found.step_labels)


def test_an_update_follows_the_last_reader_of_its_weight() -> None:
    assert ids(ordered(chain()))[5:] == [
        "fc2:calc_gradient", "b2:apply_gradient", "fc2:calc_derivative", "w2:apply_gradient",
        "fc1:calc_gradient", "w1:apply_gradient", "b1:apply_gradient",
    ]  # fmt: skip


def test_a_tied_weight_waits_for_all_its_readers() -> None:
    names = ids(ordered(residual()))
    update = names.index("w2:apply_gradient")
    assert update > names.index("fc2:calc_gradient.accumulate1")
    assert update > names.index("fc2:calc_derivative")


def test_at_the_end_means_after_the_backward_pass() -> None:
    names = ids(ordered(residual(), "end"))
    assert all(name.endswith("apply_gradient") for name in names[-4:])


def test_at_the_end_is_the_order_of_the_reference() -> None:
    program = derive(residual())
    assert Order("end").run(program) is program


@pytest.mark.parametrize("graph", ORDERED_GRAPHS)
def test_immediate_updates_never_need_more_memory(graph: TrainableGraph) -> None:
    bounds = [max(loads(ordered(graph, mode))[0]) for mode in ("immediate", "end")]
    assert bounds[0] <= bounds[1]


@pytest.mark.parametrize("training", [None, TrainingRules(clip_global_norm=1.0), TrainingRules(accumulate=2)])
@pytest.mark.parametrize("graph", [chain, residual])
def test_steps_and_all_else_stay_what_they_are(
    graph: Callable[..., TrainableGraph], training: TrainingRules | None
) -> None:
    program = derive(graph(training=training))
    found = Order().run(program)
    check_program(found)
    assert Counter(step.reference for step in found.steps) == Counter(range(len(program.steps)))
    for t, step in enumerate(found.steps):
        assert step.reference is not None
        wanted = program.steps[step.reference]
        assert (step.operation, step.bindings, step.due) == (wanted.operation, wanted.bindings, wanted.due)
        assert (step.level, step.until) == (t, t)
    assert (found.values, found.entry, found.exit) == (program.values, program.entry, program.exit)


@pytest.mark.parametrize("graph", ORDERED_GRAPHS)
def test_all_but_updates_keep_their_order(graph: TrainableGraph) -> None:
    program = derive(graph)
    found = Order().run(program)
    others = [s.reference for s in found.steps if found.kernel(s) != UPDATE]
    assert others == [s.reference for s in program.steps if program.kernel(s) != UPDATE]


def test_the_facts_say_how_many_steps_moved() -> None:
    program = derive(chain())
    found = Order().run(program)
    moved = sum(before != after for before, after in zip(ids(program), ids(found), strict=True))
    assert Order().facts(program, found) == {"update": "immediate", "steps_moved": moved}
    assert Order("end").facts(program, program) == {"update": "end", "steps_moved": 0}


def test_an_unknown_mode_is_an_option_error() -> None:
    with pytest.raises(OptionsError, match="update mode 'later'") as caught:
        Order("later")
    assert caught.value.path == ("update",)
    assert caught.value.remedy == f"Choose one of {', '.join(UPDATE_MODES)}."


# ---------- Concurrency levels: what runs at the same time; nothing on a level depends on anything else there


#: a; b and c after a; d after b; e after c; f after both.
DIAMONDS: tuple[set[int], ...] = (set(), {0}, {0}, {1}, {2}, {3, 4})


def leveled(graph: TrainableGraph, parallelism: int = 1, update: str = "immediate") -> Program:
    return Levels(parallelism, update).run(Order(update).run(derive(graph)))


def sequential(parallelism: int = 1) -> Program:
    return leveled(residual(), parallelism)


@pytest.mark.parametrize(
    ("before", "parallelism", "expected"),
    [
        (DIAMONDS, 1, [[0], [1], [2], [3], [4], [5]]),
        (DIAMONDS, 2, [[0], [1, 2], [3, 4], [5]]),
        ((set(), {0}, {0}, {0}, {1}), 2, [[0], [1, 2], [3, 4]]),
        ((set(), {0}, {0}, {0}, {1}), 3, [[0], [1, 2, 3], [4]]),
        ((set(), {0}, {1}, set()), 2, [[0, 3], [1], [2]]),
        ((), 3, []),
    ],
)
def test_by_hand(before: tuple[set[int], ...], parallelism: int, expected: list[list[int]]) -> None:
    assert list(list_schedule(before, parallelism)) == expected


def test_of_the_ready_steps_the_earliest_go_first() -> None:
    """Step 3 is ready on level 1 already; 1 and 2 stand before it in the order."""
    assert list(list_schedule((set(), {0}, {0}, {0}), 2)) == [[0], [1, 2], [3]]


dags = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        *(st.sets(st.integers(0, t - 1), max_size=3) if t else st.just(set[int]()) for t in range(n))
    )
)


@given(dags, st.integers(1, 5))
def test_every_step_once_after_what_it_follows(before: tuple[set[int], ...], parallelism: int) -> None:
    found = list(list_schedule(before, parallelism))
    assert sorted(t for level in found for t in level) == list(range(len(before)))
    done: set[int] = set()
    for level in found:
        assert 1 <= len(level) <= parallelism
        assert level == sorted(level)
        assert all(before[t] <= done for t in level)
        done |= {*level}


@given(dags, st.integers(1, 5))
def test_no_place_is_left_empty_while_a_step_is_ready(before: tuple[set[int], ...], parallelism: int) -> None:
    done: set[int] = set()
    for level in list_schedule(before, parallelism):
        ready = [t for t, found in enumerate(before) if t not in done and found <= done]
        assert level == ready[:parallelism]
        done |= {*level}


def test_one_step_at_a_time_changes_nothing() -> None:
    found = Order().run(derive(residual()))
    assert Levels(1).run(found) is found
    assert [step.level for step in found.steps] == list(range(27))
    assert found.duration == 27


def test_gradient_and_derivative_of_an_operation_run_side_by_side() -> None:
    found = leveled(chain(), 2)
    beside = [
        [name for name, s in zip(found.step_labels, found.steps, strict=True) if s.level == level]
        for level in range(found.duration)
    ]
    assert ["fc2:calc_gradient", "fc2:calc_derivative"] in beside


def test_the_seed_of_the_backward_pass_waits_for_nothing() -> None:
    assert set(sequential(2).step_labels[:2]) == {"fc1:forward", "loss:calc_derivative.seed"}


def test_lives_count_levels() -> None:
    found = sequential(2)
    spans = lives(found)
    assert found.duration == 18
    assert spans[found.by_label["w1"]].end == 18
    assert max(span.end for span in spans.values()) == 18
    last = max(step.level for step in found.steps if "h1" in reads(found, step))
    assert spans[found.by_label["h1"]].end == last + 1


@pytest.mark.parametrize("parallelism", [0, -1, 65])
def test_a_parallelism_out_of_range(parallelism: int) -> None:
    with pytest.raises(OptionsError, match="Give 1 to 64 steps at the same time") as caught:
        Levels(parallelism)
    assert caught.value.path == ("parallelism",)


def test_documents_allow_the_same_parallelism() -> None:
    field = SCHEMAS["options"]["properties"]["parallelism"]
    assert (field["minimum"], field["maximum"], field["default"]) == (1, MAX_PARALLELISM, 1)


@pytest.mark.parametrize("parallelism", [2, 3, 64])
@pytest.mark.parametrize("graph", [residual(), convolutional(), batch_normalised()], ids=lambda g: g.name)
def test_no_step_stands_on_the_level_of_one_that_it_follows(graph: TrainableGraph, parallelism: int) -> None:
    found = leveled(graph, parallelism)
    levels = [step.level for step in found.steps]
    assert levels == sorted(levels)
    assert set(levels) == set(range(found.duration))
    assert max(levels.count(level) for level in levels) <= parallelism
    for t, before in enumerate(dependencies(found.touches())):
        assert all(levels[s] < levels[t] for s in before)


def test_the_new_order_has_the_same_steps_and_finds_the_same_values() -> None:
    """Each read follows the same write as before."""
    one, several = Order().run(derive(residual())), sequential(3)
    assert sorted(s.reference or 0 for s in several.steps) == sorted(s.reference or 0 for s in one.steps)
    assert writers(one) == writers(several)


def writers(program: Program) -> dict[tuple[int | None, int], int | None]:
    """By reference step and value read: the reference step that wrote it last."""
    last: dict[int, int | None] = {}
    found: dict[tuple[int | None, int], int | None] = {}
    for step, (reading, writing) in zip(program.steps, program.touches(), strict=True):
        found |= {(step.reference, value): last.get(value) for value in reading}
        last |= dict.fromkeys(writing, step.reference)
    return found


class TestExplicitPrograms:
    def test_one_workspace_keeps_independent_pairs_in_order(self) -> None:
        found = Levels(4).run(explicit_program(explicit(independent_pairs(4))))
        assert [step.level for step in found.steps] == list(range(8))
        assert found.step_labels == tuple(f"op{t}" for t in range(8))

    def test_with_four_workspaces_they_run_side_by_side(self) -> None:
        touches = [pair for k in range(4) for pair in (("", f"ws{k}"), (f"ws{k} b{k}", f"b{k}"))]
        found = Levels(4).run(explicit_program(explicit(touches)))
        assert [step.level for step in found.steps] == [0, 0, 0, 0, 1, 1, 1, 1]
        assert found.step_labels == ("op0", "op2", "op4", "op6", "op1", "op3", "op5", "op7")

    def test_the_new_order_keeps_the_dependencies(self) -> None:
        made = explicit_program(explicit((("a", "b"), ("b", "c"), ("x", "y"), ("c y", "b"))))
        found = Levels(2).run(made)
        levels = [step.level for step in found.steps]
        assert levels == [0, 0, 1, 2]
        assert found.step_labels[:2] == ("op0", "op2")
        assert all(levels[s] < levels[t] for t, b in enumerate(dependencies(found.touches())) for s in b)


def test_updates_at_the_end_wait_for_the_whole_backward_pass() -> None:
    found = leveled(residual(), 4, "end")
    updates = [s.level for s in found.steps if found.kernel(s) == UPDATE]
    others = [s.level for s in found.steps if found.kernel(s) != UPDATE]
    assert updates == [max(others) + 1] * 4


def test_immediate_updates_fill_levels_of_the_backward_pass() -> None:
    found = leveled(residual(), 4)
    assert found.steps[at(found, "w3:apply_gradient")].level < found.duration - 1


ORDERED = Order().run(derive(residual()))


def test_with_recomputation_no_level_takes_more_than_the_capacity() -> None:
    """Two at a time need 3,392 bytes on 18 levels; in the 3,072 of one at a time it takes two levels more."""
    capacity = max(loads(ORDERED)[0])
    free = Levels(2, capacity=capacity).run(ORDERED)
    assert (max(loads(free)[0]), free.duration) == (3392, 18), "without recomputation nothing waits"
    kept = Levels(2, recompute=True, capacity=capacity).run(ORDERED)
    assert (max(loads(kept)[0]), kept.duration) == (capacity, 20)
    assert Levels(2, recompute=True, capacity=3392).run(ORDERED) == free
    assert Levels(2, recompute=True, capacity=capacity - 1).run(ORDERED) == free, "no order is enough"


def test_values_in_place_count_once_where_levels_are_too_full() -> None:
    """Attention needs 11,328 bytes, in place 10,752; two at a time 11,136 on 45 levels."""
    ordered = Order().run(derive(attention()))
    capacity = max(loads(define_in_place(ordered))[0])
    kept = Levels(2, recompute=True, capacity=capacity, in_place=True).run(ordered)
    assert (max(loads(define_in_place(kept))[0]), kept.duration) == (capacity, 47)
    assert capacity < max(loads(ordered)[0])
    assert max(loads(define_in_place(Levels(2).run(ordered)))[0]) > capacity


def test_with_tiers_no_level_touches_more_than_the_first_one_holds() -> None:
    """960 bytes are enough for one step at a time, and 1,792 for two on 18 levels."""
    smallest = paging_problem(ORDERED, 0).smallest

    def within(size: int) -> Program:
        return Levels(2, tiers=(Tier("fast", size), Tier("slow", 2**20, 1, 1))).run(ORDERED)

    kept = within(smallest)
    assert (smallest, paging_problem(kept, 0).smallest, kept.duration) == (960, 960, 23)
    assert within(1792).duration == within(smallest - 1).duration == 18


def test_the_facts_count_steps_and_levels() -> None:
    one, several = sequential(), sequential(2)
    assert Levels(2).facts(one, several) == {"parallelism": 2, "steps": 27, "levels": 18}
