"""Plans with pins, alignments and reserved bytes: the smallest that keep them, proved; or refused by name."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from solver.documents import dump_plan, load_options, load_plan
from solver.errors import CapacityError, ConstraintError, OptionsError
from solver.executor import validate
from solver.layout import Alignment, Buffer, LayoutProblem, Pin, Proof, Reserved
from solver.pipeline import (
    EntryRequest,
    entry_subject,
    plan,
    plan_deployment,
    plan_program,
    plan_requested,
    reference_of,
)
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import ReservedRange, regions
from solver.training import BlockProgram
from solver.verify import prove, prove_deployment
from tests.support.buffers import smallest
from tests.support.graphs import chain, residual
from tests.support.programs import program
from tests.support.proofs import violations

GRAPH = chain((8, 8, 4), batch=4)

#: Sizes of blocks are multiples of it, so that brute force can count in units.
UNIT = 64


def offsets(made: Plan) -> dict[str, int]:
    return {value.label: offset for value, offset in zip(made.program.values, made.offsets, strict=True)}


def random_program(rng: random.Random) -> BlockProgram:
    """Three to five blocks of one to three units, in four to six operations."""
    names = [f"v{k}" for k in range(rng.randint(3, 5))]
    touches = [(rng.choice(names), rng.choice(names)) for _ in range(rng.randint(4, 6))]
    used = sorted({name for pair in touches for name in pair})
    sizes = {name: UNIT * rng.randint(1, 3) for name in used}
    return program(touches, sizes=sizes, kept=[name for name in used if rng.random() < 0.2])


def random_constraints(rng: random.Random, names: list[str]) -> PlanOptions:
    pins = [Pin(n, UNIT * rng.randint(0, 6)) for n in names if rng.random() < 0.3]
    alignments = [Alignment(n, UNIT * 2 ** rng.randint(1, 2)) for n in names if rng.random() < 0.3]
    ranges, at = [], 0
    for _ in range(rng.randint(0, 2)):
        low = at + UNIT * rng.randint(0, 3) + rng.choice((0, 0, 8))
        at = -(-(low + rng.randint(1, 2 * UNIT)) // UNIT) * UNIT
        ranges.append(ReservedRange(low, at - rng.choice((0, 0, 8))))
    return PlanOptions(pins=tuple(pins), alignments=tuple(alignments), reserved=tuple(ranges))


def problem_of(subject: BlockProgram, options: PlanOptions) -> LayoutProblem:
    """The program as written, as buffers with the constraints written onto them by hand."""
    derived = reference_of(subject, options)
    pins = {pin.name: pin.offset for pin in options.pins}
    multiples = {each.name: each.bytes for each in options.alignments}
    buffers = []
    for region in regions(derived):
        label = derived.values[region.members[0]].label
        buffers.append(
            Buffer(label, region.size, region.lifespan, max(UNIT, multiples.get(label, 1)), pins.get(label))
        )
    return LayoutProblem(tuple(buffers), None, tuple(Reserved(r.low, r.high) for r in options.reserved))


@pytest.mark.parametrize("seeds", [range(k, k + 60) for k in range(0, 240, 60)], ids=str)
def test_plans_are_the_smallest_and_refusals_are_right(seeds: range) -> None:
    planned = refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        subject = random_program(rng)
        options = random_constraints(rng, list(subject.blocks))
        least = smallest(problem_of(subject, options), UNIT)
        try:
            made = plan_program(subject, options)
        except ConstraintError:
            assert least is None, seed
            refused += 1
            continue
        assert made.arena_bytes == least, seed
        assert made.lower_bound <= made.arena_bytes
        assert prove(reference_of(subject, options), made) == ()
        planned += 1
        if made.arena_bytes:
            short = replace(options, capacity=made.arena_bytes - 1)
            with pytest.raises((CapacityError, ConstraintError)):
                plan_program(subject, short)
    assert planned > 10
    assert refused > 3


def test_every_constraint_is_kept_and_trained_in() -> None:
    options = PlanOptions(
        pins=(Pin("w1", 4096), Pin("w1@grad", 0)),
        alignments=(Alignment("b1", 1024),),
        reserved=(ReservedRange(1000, 2000), ReservedRange(1 << 20, 1 << 21)),
    )
    for asked in (RequestedOptions(options), RequestedOptions(options, automatic=False)):
        made = plan_requested(GRAPH, asked)
        at = offsets(made)
        assert (at["w1"], at["w1@grad"]) == (4096, 0)
        assert at["b1"] % 1024 == 0
        for value, offset in zip(made.program.values, made.offsets, strict=True):
            assert offset + value.type.nbytes <= 1000 or offset >= 2000
        assert made.arena_bytes < 1 << 20
        assert load_plan(dump_plan(made)) == made
        assert validate(GRAPH, made, steps=2).identical


def test_the_arena_ends_with_what_is_ours() -> None:
    alone = plan(GRAPH)
    above = plan(GRAPH, PlanOptions(reserved=(ReservedRange(alone.arena_bytes, 1 << 30),)))
    assert above.arena_bytes == alone.arena_bytes
    below = plan(GRAPH, PlanOptions(reserved=(ReservedRange(0, 8192),)))
    assert below.arena_bytes == below.lower_bound == alone.arena_bytes + 8192
    assert below.certificates[0].proof is Proof.MAX_LOAD


def test_a_capacity_is_that_of_the_whole_arena() -> None:
    alone = plan(GRAPH).arena_bytes
    options = PlanOptions(capacity=alone + 4096, reserved=(ReservedRange(64, 4160),))
    assert plan(GRAPH, options).arena_bytes == alone + 4096
    with pytest.raises(CapacityError) as caught:
        plan(GRAPH, replace(options, capacity=alone + 4095))
    assert caught.value.proved
    assert caught.value.required == alone + 4096


def test_options_that_are_left_out_are_not_written() -> None:
    document = dump_plan(plan(GRAPH))
    for name in (b'"pins"', b'"alignments"', b'"reserved"', b'"like"'):
        assert name not in document


REFUSED = [
    ({"pins": {"w1@gra": 0}}, "No value is called 'w1@gra'. The nearest names are w1"),
    ({"pins": {"w*": 0}}, "'w\\*' names"),
    ({"alignments": {"gc*": 64}}, "No value is called 'gc\\*'"),
    ({"pins": {"w1": 3}}, "'w1' at 3 is no multiple of 64"),
    ({"pins": {"w1": 0, "w2": 64}}, "'w1', bytes .*'w2', bytes .*collide"),
    ({"pins": {"w1": 0}, "reserved": ["8..16"]}, "lies in the reserved range 8..16"),
    ({"pins": {"w1": 4096}, "capacity": 4096}, "ends beyond the capacity of 4,096"),
    ({"pins": {"w1": 64}, "alignments": {"w1": 4096}}, "no multiple of its alignment, 4096"),
    ({"reserved": ["8..8"]}, "8..8 has no bytes"),
    ({"reserved": ["8..4"]}, "8..4 has no bytes"),
    ({"reserved": ["0..4", "2..6"]}, "0..4 and 2..6 overlap. Reserve 0..6"),
    ({"reserved": ["fast:0..4"]}, "no memory 'fast'"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=str)
@pytest.mark.parametrize("as_written", [False, True])
def test_what_is_impossible_is_refused_by_name(fields: dict[str, Any], words: str, as_written: bool) -> None:
    asked = load_options({**fields, "as_written": as_written})
    with pytest.raises(OptionsError, match=words) as caught:
        plan_requested(GRAPH, asked)
    assert caught.value.remedy
    assert caught.value.path[0] in fields


def test_two_pins_that_collide_at_one_step_only() -> None:
    subject = program([("a", "b"), ("b", "c"), ("c", "d")], sizes=dict.fromkeys("abcd", 64))
    apart = PlanOptions(pins=(Pin("b", 0), Pin("d", 0)))
    assert plan_program(subject, apart).arena_bytes
    with pytest.raises(ConstraintError, match=r"'b', .*'c', .*at step 'op1' \(level 1\)"):
        plan_program(subject, PlanOptions(pins=(Pin("b", 0), Pin("c", 0))))


def test_nothing_is_defined_in_place_where_that_makes_a_pin_impossible() -> None:
    graph = residual()
    made = plan(graph, PlanOptions(in_place=True, sub_ranges=True))
    alias = next(a for a in made.program.aliases if not a.view)
    names = [made.program.values[v].label for v in (alias.source, alias.value)]
    apart = (Pin(names[0], 0), Pin(names[1], 8192))
    pinned = plan(graph, PlanOptions(in_place=True, sub_ranges=True, pins=apart))
    assert [offsets(pinned)[name] for name in names] == [0, 8192]
    assert pinned.program.aliases
    together = (Pin(names[0], 0), Pin(names[1], 0))
    assert plan(graph, PlanOptions(in_place=True, sub_ranges=True, pins=together)).arena_bytes
    with pytest.raises(ConstraintError, match="collide"):
        plan(graph, PlanOptions(pins=together))
    # The planner finds the measures under which both lie there.
    assert plan_requested(graph, RequestedOptions(PlanOptions(pins=together))).options.in_place


def broken(made: Plan, **changes: Any) -> set[str]:
    """The rules that a plan with other options breaks."""
    options = replace(made.options, **changes)
    return {violation.rule for violation in violations(GRAPH, replace(made, options=options))}


def test_the_proof_checks_places_and_bounds() -> None:
    made = plan(GRAPH)
    at = offsets(made)["w1"]
    assert broken(made, pins=(Pin("w1", at),)) <= {"bound", "digest"}
    assert "place" in broken(made, pins=(Pin("w1", at + 64),))
    assert "place" in broken(made, pins=(Pin("no.such", 0),))
    odd = next(offset for offset in offsets(made).values() if offset % 4096)
    name = next(name for name, offset in offsets(made).items() if offset == odd)
    assert "place" in broken(made, alignments=(Alignment(name, 4096),))
    assert "place" in broken(made, reserved=(ReservedRange(0, 1),))
    around = plan(GRAPH, PlanOptions(reserved=(ReservedRange(0, 8192),)))
    low = replace(
        around.certificates[0], lower_bound=around.arena_bytes - 8192, status=around.certificates[0].status
    )
    rules = {v.rule for v in violations(GRAPH, replace(around, certificates=(low,)))}
    assert {"bound", "proof"} & rules


def test_pins_in_tiers_are_in_the_first_one_unless_they_name_another() -> None:
    graph = chain((64, 64, 64, 64), batch=8)
    alone = plan(graph).arena_bytes
    fields = {"tiers": [f"fast={alone * 3 // 4}", "slow=1MiB,bandwidth=45MB/s"]}
    made = plan_requested(graph, load_options(fields))
    homes = {value.label: value.space for value in made.program.values}
    away = next(label for label, space in homes.items() if space and "@" not in label)
    pinned = plan_requested(
        graph, load_options({**fields, "pins": {f"slow:{away}": 8192}, "reserved": ["slow:0..4096"]})
    )
    assert offsets(pinned)[away] == 8192
    assert validate(graph, pinned, steps=1).identical
    with pytest.raises(OptionsError, match=f"'{away}' lies in 'slow', not in 'fast'"):
        plan_requested(graph, load_options({**fields, "pins": {away: 8192}, "only": []}))


@pytest.mark.parametrize("target", ["onert", "nntrainer", "singa"])
def test_other_runtimes_keep_reserved_bytes_too(target: str) -> None:
    options = PlanOptions(target=target, reserved=(ReservedRange(0, 64),))
    made = plan(GRAPH, options)
    for value, offset in zip(made.program.values, made.offsets, strict=True):
        assert value.space or offset >= 64 or not value.type.nbytes


@pytest.mark.parametrize("automatic", [False, True])
def test_a_capacity_that_is_reserved_is_not_called_zero(automatic: bool) -> None:
    options = PlanOptions(capacity=2048, reserved=(ReservedRange(0, 4096),), recompute=not automatic)
    with pytest.raises(CapacityError, match="the capacity without reserved bytes is 0") as caught:
        plan_requested(GRAPH, RequestedOptions(options, automatic=automatic))
    assert caught.value.proved


# ------ Entry points with pins, alignments and reserved bytes: one place for what stays, all constraints kept


TRAINED = chain((16, 16, 8), batch=8)


def requests(options: PlanOptions) -> list[EntryRequest]:
    asked = RequestedOptions(options)
    return [
        EntryRequest("train", "chain", "train", TRAINED, asked),
        EntryRequest("infer", "chain", "infer", entry_subject(TRAINED, "infer"), asked),
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
