"""Plans in several memories that kernels reach: homes, places, bounds, bits, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given

from examples.gallery import GALLERY
from solver.accounting import elapsed, level_accesses, level_costs
from solver.documents import dump_options, dump_plan, load_graph, load_options, load_plan
from solver.errors import ArenaplanError, CapacityError, OptionsError
from solver.executor import validate
from solver.graph import DType, TensorType, TrainableGraph, evaluation, inference
from solver.pipeline import (
    EntryRequest,
    plan,
    plan_at,
    plan_deployment,
    plan_like,
    plan_program,
    plan_requested,
    reference_of,
)
from solver.plan import Deployment, Plan, PlanOptions, RequestedOptions, SizeRange
from solver.program import Tier
from solver.training import Block, BlockOperation, BlockProgram
from solver.verify import check_figures, prove, prove_deployment
from solver.verify.cost import check_homes
from tests.support import graphs as support
from tests.support.operator_graphs import attention, convolved, elementwise
from tests.support.random_graphs import PLANNED, random_graphs
from tests.support.sequence_graphs import classifier

MNIST = (Path(__file__).resolve().parents[3] / "examples/mnist.json").read_bytes()

tower = partial(support.tower, outputs=("h1",))


def memories(graph: TrainableGraph, share: float = 0.3, room: float = 1.2) -> tuple[Tier, ...]:
    """A fast memory of a share of the arena, and a slow one for the others."""
    whole = plan(graph).arena_bytes
    fast = max(64, round(whole * share))
    slow = max(64, round(whole * room) - fast)
    return Tier("tcm", fast, 4 * 10**9, 4 * 10**9), Tier("psram", slow, 80 * 10**6, 60 * 10**6)


def facts(made: Plan) -> dict[str, int]:
    return {name: int(f) for r in made.records if r.name == "homes" for name, f in r.facts.items()}


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
@pytest.mark.parametrize(
    "graph",
    [
        tower(),
        tower(tied=True, optimizer="Adam"),
        tower(dropout=True),
        attention(),
        elementwise(),
        convolved(),
        classifier(),
    ],
)
def test_plans_keep_every_memory_and_compute_the_same_bits(graph: TrainableGraph, share: float) -> None:
    ours = memories(graph, share, 1.6)
    made = plan_requested(graph, RequestedOptions(PlanOptions(memories=ours)))
    assert [space.name for space in made.program.spaces] == ["tcm", "psram"]
    assert all(space.addressable for space in made.program.spaces)
    assert all(size <= memory.bytes for size, memory in zip(made.sizes, ours, strict=True))
    report = validate(graph, made, steps=2)
    assert report.identical
    assert not report.violations
    assert load_plan(dump_plan(made)) == made
    accesses = sum(level_accesses(made.program, ours))
    figures = facts(made)
    assert figures["access_nanoseconds"] == accesses
    assert figures["nanoseconds"] == accesses + sum(level_costs(made.program))
    assert figures["checked_nanoseconds"] <= figures["bound_nanoseconds"] <= accesses


@pytest.mark.parametrize("parallelism", [1, 2])
def test_everything_lies_in_the_fastest_memory_where_it_fits(parallelism: int) -> None:
    graph = tower()
    alone = plan(graph, PlanOptions(parallelism=parallelism))
    ours = (
        Tier("psram", 2**20, 80 * 10**6, 60 * 10**6),
        Tier("tcm", alone.arena_bytes, 4 * 10**9, 4 * 10**9),
    )
    made = plan(graph, PlanOptions(memories=ours, parallelism=parallelism))
    assert made.sizes == (0, alone.arena_bytes)
    assert facts(made)["access_nanoseconds"] == facts(made)["checked_nanoseconds"]


def test_a_memory_without_a_bandwidth_adds_no_time() -> None:
    graph = tower()
    made = plan(graph, PlanOptions(memories=(Tier("a", 2**20), Tier("b", 2**20))))
    assert facts(made)["access_nanoseconds"] == 0
    assert facts(made)["nanoseconds"] == sum(level_costs(made.program))


def test_latency_is_that_of_each_access() -> None:
    graph = tower()
    (slow,) = {facts(plan(graph, PlanOptions(memories=(Tier("a", 2**20, latency=7),))))["access_nanoseconds"]}
    program = plan(graph).program
    reads = sum(b.access.reads or b.access.word == "scratch" for s in program.steps for b in s.bindings)
    writes = sum(b.access.writes for s in program.steps for b in s.bindings)
    assert slow == 7 * (reads + writes)


def test_more_memory_never_takes_more_time() -> None:
    graph = tower(6, optimizer="Adam")
    whole = plan(graph).arena_bytes
    times = []
    for share in (0.1, 0.2, 0.4, 0.7, 1.0):
        fast = Tier("tcm", round(whole * share), 4 * 10**9, 4 * 10**9)
        made = plan(graph, PlanOptions(memories=(fast, Tier("psram", whole, 80 * 10**6, 60 * 10**6))))
        times.append(facts(made)["access_nanoseconds"])
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_places_are_kept_by_name_and_by_pattern() -> None:
    graph = tower()
    ours = memories(graph, 0.5, 2.5)
    free = plan(graph, PlanOptions(memories=ours))
    parameters = [v.label for v in free.program.values if v.kind.word == "parameter"]
    fast = next(label for label in parameters if free.program.values[free.program.by_label[label]].space == 0)
    for place in ((f"{fast}=psram",), ("*=tcm", "*=psram"), (f"{fast[:-1]}*=psram",)):
        made = plan(graph, PlanOptions(memories=ours, place=place))
        assert made.program.values[made.program.by_label[fast]].space == 1
        assert validate(graph, made, steps=1).identical
    assert facts(made)["access_nanoseconds"] >= facts(free)["access_nanoseconds"]


def test_steps_run_again_only_where_all_memories_together_are_too_small() -> None:
    graph = tower(12, optimizer="SGD")
    within = memories(graph, 0.3, 1.1)
    made = plan_requested(graph, RequestedOptions(PlanOptions(memories=within)))
    assert not any(made.program.runs)
    least = plan_requested(graph).arena_bytes
    tight = (replace(within[0], bytes=least // 2), replace(within[1], bytes=least - least // 2 - 256))
    again = plan_requested(graph, RequestedOptions(PlanOptions(memories=tight)))
    assert any(again.program.runs)
    assert validate(graph, again, steps=2).identical


def test_values_are_paged_out_where_memories_with_tiers_behind_them_are_too_small() -> None:
    graph = tower(8, optimizer="Adam")
    least = plan_requested(graph).arena_bytes
    ours = (Tier("tcm", least // 4, 4 * 10**9, 4 * 10**9), Tier("sram", least // 3, 10**9, 10**9))
    flash = Tier("flash", 2**24, 40 * 10**6, 20 * 10**6, 100)
    made = plan(graph, PlanOptions(memories=ours, tiers=(flash,)))
    assert [(space.name, space.addressable) for space in made.program.spaces] == [
        ("tcm", True),
        ("sram", True),
        ("flash", False),
    ]
    assert any(step.reference is None for step in made.program.steps)
    assert validate(graph, made, steps=3).identical
    assert load_plan(dump_plan(made)) == made
    took = elapsed(made.program, (*ours, flash), None, ours)
    assert facts(made)["nanoseconds"] == took > facts(made)["access_nanoseconds"]
    automatic = plan_requested(graph, RequestedOptions(PlanOptions(memories=ours, tiers=(flash,))))
    assert facts(automatic)["nanoseconds"] <= took


def test_explicit_programs_have_homes() -> None:
    program = BlockProgram(
        "step",
        {
            "x": Block("x", TensorType((1024,), DType.FLOAT32), fed=True),
            "w": Block("w", TensorType((2048,), DType.FLOAT32)),
            "y": Block("y", TensorType((1024,), DType.FLOAT32), kept=True),
        },
        (BlockOperation("multiply", ("x", "w"), ("y",)), BlockOperation("update", ("w", "y"), ("w",))),
    )
    ours = (Tier("tcm", 8192, 4 * 10**9, 4 * 10**9), Tier("psram", 2**16, 80 * 10**6, 60 * 10**6))
    made = plan_program(program, PlanOptions(memories=ours))
    where = {v.label: made.program.spaces[v.space].name for v in made.program.values}
    assert where == {"x": "psram", "w": "tcm", "y": "psram"}
    placed = plan_program(program, PlanOptions(memories=ours, place=("y=tcm",)))
    assert placed.program.values[placed.program.by_label["y"]].space == 0


def test_options_documents_have_memories_as_text_and_as_objects() -> None:
    words = ["tcm=512KiB,read=4GB/s,write=4GB/s", "psram=8MiB,read=80MB/s,write=60MB/s,latency=100ns"]
    asked = load_options({"memories": words, "place": ["*@grad=psram"]})
    assert asked.options.memories == (
        Tier("tcm", 2**19, 4 * 10**9, 4 * 10**9),
        Tier("psram", 2**23, 80 * 10**6, 60 * 10**6, 100),
    )
    assert load_options(dump_options(asked)) == asked
    assert load_options({"memories": [{"name": "a", "bytes": 64}]}).options.memories == (Tier("a", 64),)
    for zero in ("a=64,read=0MB/s", {"name": "a", "bytes": 64, "write": 0}):
        with pytest.raises(ArenaplanError):
            load_options({"memories": [zero]})


FAST, SLOW = Tier("tcm", 2**16, 4 * 10**9, 4 * 10**9), Tier("psram", 2**20, 80 * 10**6, 60 * 10**6)


@pytest.mark.parametrize(
    ("options", "message", "path"),
    [
        ({"memories": (FAST, FAST)}, "is called 'tcm', as another", ("memories", 1, "name")),
        ({"memories": (FAST, Tier("", 64))}, "has no name", ("memories", 1, "name")),
        ({"memories": (Tier("a", 0),)}, "'a' is out of range", ("memories", 0)),
        ({"memories": (Tier("a", 9, -1),)}, "'a' is out of range", ("memories", 0)),
        ({"memories": (FAST,), "tiers": (SLOW, FAST)}, "as another one is", ("tiers", 1, "name")),
        ({"memories": (Tier("a", 99),), "tiers": (Tier("b", 99),)}, "how fast tier 'b'", ("tiers", 0)),
        ({"memories": (FAST,), "capacity": 99}, "a capacity and memories", ("capacity",)),
        ({"memories": (FAST,), "target": "onert"}, "has memory of one kind", ("memories",)),
        ({"memories": (FAST, SLOW), "place": ("h1",)}, "does not say which value", ("place", 0)),
        ({"memories": (FAST, SLOW), "place": ("h1=dram",)}, "Choose one of tcm, psram", ("place", 0)),
        ({"place": ("h1=tcm",)}, "--memory tcm=512KiB", ("place", 0)),
        ({"memories": (FAST,), "place": ("h11=tcm",)}, "The nearest names are", ("place", 0)),
        ({"memories": (FAST,), "place": ("nothing*=tcm",)}, "names no value", ("place", 0)),
    ],
)
def test_options_that_mean_nothing_are_refused(
    options: dict[str, object], message: str, path: tuple[object, ...]
) -> None:
    with pytest.raises(OptionsError) as caught:
        plan(tower(), PlanOptions(**options))  # type: ignore[arg-type]  # options by name
    assert message in str(caught.value)
    assert caught.value.path == path
    assert caught.value.remedy


def test_a_memory_too_small_for_what_must_lie_in_it_is_named() -> None:
    graph = tower()
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(memories=(Tier("tcm", 256), SLOW), place=("*=tcm",)))
    assert caught.value.path[0] == "memories"
    assert "tcm" in caught.value.message
    assert caught.value.proved
    enough = plan(graph).arena_bytes
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(memories=(Tier("tcm", enough - 64), SLOW), place=("*=tcm",)))
    assert "What must lie in memory 'tcm'" in caught.value.message
    assert (caught.value.required, caught.value.path) == (enough, ("memories", 0, "bytes"))
    assert plan(graph, PlanOptions(memories=(Tier("tcm", enough), SLOW), place=("*=tcm",))).sizes[1] == 0


def test_memories_that_are_too_small_together_are_refused_with_a_proof() -> None:
    graph = tower()
    whole = plan(graph).arena_bytes
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(memories=(Tier("a", whole // 2), Tier("b", whole // 2 - 64))))
    assert caught.value.proved
    assert (caught.value.required, caught.value.path) == (whole, ("memories",))


def test_places_that_contradict_each_other_in_the_same_bytes_are_refused() -> None:
    graph = elementwise()
    in_place = plan(graph, PlanOptions(in_place=True))
    alias = in_place.program.aliases[0]
    a, b = (in_place.program.values[v].label for v in (alias.value, alias.source))
    with pytest.raises(OptionsError) as caught:
        plan(graph, PlanOptions(in_place=True, memories=(FAST, SLOW), place=(f"{a}=tcm", f"{b}=psram")))
    assert "share bytes" in caught.value.message


# ----------------------------------------------------------------------------------------- the proof


def refused(graph: TrainableGraph, made: Plan) -> set[str]:
    return {violation.rule for violation in prove(reference_of(graph, made.options), made)}


def test_the_proof_refuses_other_homes_figures_and_bounds() -> None:
    graph = tower()
    ours = memories(graph, 0.5, 1.5)
    made = plan(graph, PlanOptions(memories=ours, place=("*@grad=psram",)))
    assert refused(graph, made) == set()
    bound = made.home_bound
    assert bound is not None
    assert bound.rows

    def stating(**changed: int) -> Plan:
        records = tuple(
            replace(r, facts={**r.facts, **changed}) if r.name == "homes" else r for r in made.records
        )
        return replace(made, records=records)

    figures = facts(made)
    wrong = [
        replace(made, home_bound=None),
        replace(made, records=tuple(r for r in made.records if r.name != "homes")),
        stating(access_nanoseconds=figures["access_nanoseconds"] - 1),
        stating(nanoseconds=figures["nanoseconds"] + 1),
        stating(compute_nanoseconds=0),
        stating(bound_nanoseconds=figures["access_nanoseconds"] + 1),
        stating(bound_nanoseconds=bound.nanoseconds - 1),
        replace(
            stating(
                checked_nanoseconds=figures["access_nanoseconds"],
                bound_nanoseconds=figures["access_nanoseconds"],
            ),
            home_bound=replace(bound, nanoseconds=figures["access_nanoseconds"]),
        )
        if figures["access_nanoseconds"] > bound.nanoseconds
        else replace(made, home_bound=replace(bound, rows=())),
        replace(made, home_bound=replace(bound, rows=(replace(bound.rows[0], multiplier=-1),))),
        replace(made, home_bound=replace(bound, rows=(replace(bound.rows[0], memory=2),))),
        replace(made, options=replace(made.options, place=("*@grad=tcm",))),
        replace(made, options=replace(made.options, place=("*@grad=flash",))),
        replace(made, options=replace(made.options, memories=ours[::-1])),
        replace(made, options=replace(made.options, memories=(), place=())),
        replace(made, options=replace(made.options, memories=(ours[0], replace(ours[1], read=1)))),
    ]
    for k, plan_ in enumerate(wrong):
        assert refused(graph, plan_) == {"home"}, k
    small = replace(ours[0], bytes=made.sizes[0] - 1)
    less = replace(made, options=replace(made.options, memories=(small, ours[1])))
    assert refused(graph, less) & {"capacity", "home"}


def test_the_proof_refuses_memories_that_kernels_do_not_reach() -> None:
    graph = tower()
    made = plan(graph, PlanOptions(memories=memories(graph, 0.5, 1.5)))
    spaces = (made.program.spaces[0], replace(made.program.spaces[1], addressable=False))
    assert refused(graph, replace(made, program=replace(made.program, spaces=spaces))) <= {"place", "home"}
    assert refused(graph, replace(made, program=replace(made.program, spaces=spaces)))


def test_one_plan_for_a_range_of_batches_keeps_its_homes() -> None:
    graph = load_graph(MNIST)
    ours = (Tier("tcm", 2**19, 4 * 10**9, 4 * 10**9), Tier("psram", 2**24, 80 * 10**6, 60 * 10**6))
    ranges = (SizeRange("batch", 1, 3),)
    made = plan_requested(graph, RequestedOptions(PlanOptions(memories=ours), ranges=ranges))
    assert made.planned_sizes is not None
    assert {size for (size,) in made.planned_sizes.proved} == {1, 2, 3}
    small = plan_at(made, load_graph(MNIST, batch=1))
    assert facts(small)["nanoseconds"] < facts(made)["nanoseconds"]
    assert facts(small)["checked_nanoseconds"] == 0
    where = {v.label: v.space for v in made.program.values}
    assert all(where[v.label] == v.space for v in small.program.values if v.label in where)


def test_no_value_stays_as_in_another_plan_where_homes_are_chosen() -> None:
    graph = tower()
    ours = memories(graph)
    with pytest.raises(OptionsError) as caught:
        plan_like(graph, RequestedOptions(PlanOptions(memories=ours)), plan(graph))
    assert caught.value.path == ("like",)


# ---------------- Entry points in several memories: what stays between runs has one home, each plan is proved


def two_memories(graph: TrainableGraph, share: float) -> tuple[Tier, ...]:
    whole = plan_requested(graph).arena_bytes
    fast = max(64, round(share * whole))
    return Tier("tcm", fast, 4 * 10**9, 4 * 10**9), Tier("psram", 2 * whole, 80 * 10**6, 60 * 10**6)


def deployed(graph: TrainableGraph, **options: object) -> Deployment:
    requested = RequestedOptions(PlanOptions(**options))  # type: ignore[arg-type]  # options by name
    entries = [
        EntryRequest("train", "net", "train", graph, requested),
        EntryRequest("infer", "net", "infer", inference(graph), requested),
        EntryRequest("evaluate", "net", "evaluate", evaluation(graph), requested),
    ]
    return plan_deployment("net", entries)


def check(deployment: Deployment) -> None:
    """One home and place for each persistent value, right figures, and memories that are kept."""
    assert prove_deployment(deployment) == ()
    for row in deployment.persistent:
        places = {
            (e.plan.program.values[value].space, e.plan.offsets[value])
            for e, value in zip(deployment.entry_points, row.values, strict=True)
        }
        assert len(places) == 1
    for entry_point in deployment.entry_points:
        plan = entry_point.plan
        assert [*check_figures(plan)] == []
        assert [*check_homes(plan)] == []
        assert all(size <= m.bytes for size, m in zip(plan.sizes, plan.options.memories, strict=True))


@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("name", ["lenet5", "autoencoder", "transfer"])
def test_what_stays_has_one_home(name: str, share: float) -> None:
    graph = GALLERY[name].model().graph
    deployment = deployed(graph, memories=two_memories(graph, share))
    check(deployment)
    if share == 1.0:  # everything fits the fast memory
        assert all(e.plan.sizes[1] == 0 for e in deployment.entry_points)


@PLANNED
@given(random_graphs())
def test_random_graphs(graph: TrainableGraph) -> None:
    check(deployed(graph, memories=two_memories(graph, 0.3)))


def test_homes_are_chosen_for_all_entry_points_together() -> None:
    """Sums of accesses are at most those of separate plans whose homes of weights are those of training."""
    graph = load_graph(MNIST, batch=4)
    ours = two_memories(graph, 0.1)
    deployment = deployed(graph, memories=ours)
    check(deployment)
    placed = sum(sum(level_accesses(e.plan.program, ours)) for e in deployment.entry_points)
    bounds = sum(e.plan.home_bound.nanoseconds for e in deployment.entry_points if e.plan.home_bound)
    assert 0 < bounds <= placed
    place = tuple(
        f"{row.name}={ours[plan.program.values[row.values[0]].space].name}"
        for plan in [deployment.entry_points[0].plan]
        for row in deployment.persistent
        if not row.name.startswith("label")
    )
    alone = plan_requested(graph, RequestedOptions(PlanOptions(memories=ours, place=place)))
    trained = sum(level_accesses(alone.program, ours))
    assert trained <= sum(level_accesses(deployment.entry_points[0].plan.program, ours))
