"""Entry points in one arena: interleavings agree with separate memory, and wrong deployments are refused.

`./run fuzz tests/properties/test_entry_points.py` draws 1,000 interleavings of each network.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.documents import dump_deployment, load_deployment
from solver.documents.deployment import DeploymentDocument
from solver.documents.plan import to_plan
from solver.documents.read import read
from solver.errors import ArenaplanError, PlanError
from solver.executor import validate
from solver.graph import TrainableGraph, evaluation, inference
from solver.pipeline import EntryRequest
from solver.plan import (
    Deployment,
    EntryPoint,
    Persistent,
    PlanOptions,
    RequestedOptions,
    Tie,
    with_deployment_digest,
    with_digest,
)
from solver.program import Entry, EntryKind, persistent
from solver.verify import prove, prove_deployment
from tests.support.deployments import MODELS, deployed, entries, held_reference, with_plan
from tests.support.every import ALL, some
from tests.support.plan_edits import edited
from tests.support.random_graphs import PLANNED, random_graphs
from tests.support.term_oracle import TermOracle, certified

FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)
#: Orders in which the entry points of a network run; each runs a few times.
INTERLEAVINGS = max(1000, FUZZ // 2) if FUZZ else 40 if ALL else 16
EDITS = FUZZ or 150

# ------------------------------------------------------------------------------------------- interleavings


@pytest.mark.parametrize("name", MODELS)
def test_interleavings_of_a_small_network(name: str) -> None:
    graphs, deployment = deployed(entries(MODELS[name]))
    for seed in range(INTERLEAVINGS):
        report = validate(graphs, deployment, steps=1 + seed % 4, seed=seed)
        assert report.identical, (seed, report.violations, report.steps)


def test_interleavings_of_two_models_with_tied_values() -> None:
    requests = [*entries(MODELS["residual"], "a", "a."), *entries(MODELS["residual"], "b", "b.")]
    graphs, deployment = deployed(requests, [Tie("a.w*", "b.w*")])
    assert sum("@" not in row.name for row in deployment.persistent) == len(["w1", "w2", "w3", "b1", "b1"])
    for seed in range(INTERLEAVINGS // 2):
        report = validate(graphs, deployment, steps=1 + seed % 3, seed=seed)
        assert report.identical, (seed, report.violations, report.steps)


@pytest.mark.parametrize(
    "name", some(["transformer", "lstm_classifier", "transfer"], beside=["lenet5", "autoencoder"])
)
def test_interleavings_of_the_gallery(name: str) -> None:
    graph = GALLERY[name].model().graph
    requests = [
        EntryRequest("train", "m", "train", graph),
        EntryRequest("infer", "m", "infer", inference(graph)),
        EntryRequest("evaluate", "m", "evaluate", evaluation(graph)),
    ]
    graphs, deployment = deployed(requests)
    for seed in range(2):
        assert validate(graphs, deployment, steps=3, seed=seed).identical


@PLANNED
@given(random_graphs(), st.integers(0, 1000), st.booleans(), st.sampled_from([None, 1, 16, 64]))
def test_interleavings_of_random_networks(
    graph: TrainableGraph, seed: int, in_place: bool, alignment: int | None
) -> None:
    requested = RequestedOptions(PlanOptions(in_place=in_place, alignment=alignment))
    requests = [
        EntryRequest("infer", "m", "infer", inference(graph), requested),
        EntryRequest("train", "m", "train", graph, requested),
        EntryRequest("evaluate", "m", "evaluate", evaluation(graph), requested),
    ]
    graphs, deployment = deployed(requests)
    assert validate(graphs, deployment, steps=3, seed=seed).identical


# ------------------------------------------------------------------------------------------ wrong deployments


GRAPHS, PLAN = deployed(entries(MODELS["chain"]))

Edit = Callable[[Deployment, random.Random], Deployment]


def _moved(deployment: Deployment, k: int, value: int, offset: int) -> Deployment:
    plan = deployment.entry_points[k].plan
    offsets = [*plan.offsets]
    offsets[value] = offset
    moved = certified(replace(plan, offsets=tuple(offsets)))
    return with_plan(deployment, deployment.entry_points[k].name, moved)


def persistent_value_moved(deployment: Deployment, rng: random.Random) -> Deployment:
    """To free bytes of one plan: each plan by itself is right."""
    k, row = rng.randrange(3), rng.choice(deployment.persistent)
    return _moved(deployment, k, row.values[k], deployment.entry_points[k].plan.sizes[0])


def persistent_values_swapped(deployment: Deployment, rng: random.Random) -> Deployment:
    """Two values of one type change places in one plan, and in the list of what stays: labels tell."""
    k = rng.randrange(1, 3)
    plan = deployment.entry_points[k].plan
    types = [plan.program.values[row.values[k]].type for row in deployment.persistent]
    pairs = [(i, j) for i in range(len(types)) for j in range(i) if types[i] == types[j]]
    return _swapped(deployment, k, *rng.choice(pairs))


def _swapped(deployment: Deployment, k: int, i: int, j: int) -> Deployment:
    entry_point, rows = deployment.entry_points[k], [*deployment.persistent]
    a, b = rows[i].values[k], rows[j].values[k]
    offsets = [*entry_point.plan.offsets]
    offsets[a], offsets[b] = offsets[b], offsets[a]
    for row, value in ((i, b), (j, a)):
        values = [*rows[row].values]
        values[k] = value
        rows[row] = replace(rows[row], values=tuple(values))
    changed = with_plan(deployment, entry_point.name, replace(entry_point.plan, offsets=tuple(offsets)))
    return replace(changed, persistent=tuple(rows))


def held_value_overwritten(deployment: Deployment, rng: random.Random) -> Deployment:
    """Something that a step of an inference writes lies on what it holds for the training."""
    k = rng.randrange(1, 3)
    plan = deployment.entry_points[k].plan
    held = [entry.value for entry in plan.program.entry if entry.kind is EntryKind.HELD]
    written = {b.value for step in plan.program.steps for b in step.bindings if b.access.writes}
    return _moved(deployment, k, rng.choice(sorted(written)), plan.offsets[rng.choice(held)])


def held_value_forgotten(deployment: Deployment, rng: random.Random) -> Deployment:
    """One plan does not know of a value that another one keeps, nor does the list."""
    k = rng.randrange(1, 3)
    plan = deployment.entry_points[k].plan
    held = rng.choice([entry for entry in plan.program.entry if entry.kind is EntryKind.HELD])
    program = replace(plan.program, entry=tuple(e for e in plan.program.entry if e is not held))
    without = certified(replace(plan, program=program))
    changed = with_plan(deployment, deployment.entry_points[k].name, without)
    rows = tuple(row for row in deployment.persistent if row.values[k] != held.value)
    return replace(changed, persistent=rows if rng.random() < 0.5 else deployment.persistent)


def held_value_is_a_constant(deployment: Deployment, rng: random.Random) -> Deployment:
    k = rng.randrange(1, 3)
    plan = deployment.entry_points[k].plan
    held = rng.choice([entry for entry in plan.program.entry if entry.kind is EntryKind.HELD])
    changed = Entry(held.value, EntryKind.CONSTANT, held.reference)
    program = replace(plan.program, entry=tuple(changed if e is held else e for e in plan.program.entry))
    return with_plan(deployment, deployment.entry_points[k].name, replace(plan, program=program))


def row_left_out(deployment: Deployment, rng: random.Random) -> Deployment:
    i = rng.randrange(len(deployment.persistent))
    return replace(deployment, persistent=deployment.persistent[:i] + deployment.persistent[i + 1 :])


def row_twice(deployment: Deployment, rng: random.Random) -> Deployment:
    row = rng.choice(deployment.persistent)
    again = row if rng.random() < 0.5 else Persistent("again", row.values)
    return replace(deployment, persistent=(*deployment.persistent, again))


def row_of_another_name(deployment: Deployment, rng: random.Random) -> Deployment:
    i = rng.randrange(len(deployment.persistent))
    rows = [*deployment.persistent]
    rows[i] = replace(rows[i], name="other")
    return replace(deployment, persistent=tuple(rows))


def row_of_numbers_that_are_not_there(deployment: Deployment, rng: random.Random) -> Deployment:
    rows = [*deployment.persistent]
    i = rng.randrange(len(rows))
    values = rng.choice([rows[i].values[:-1], (*rows[i].values[:-1], 10**6), (-1, *rows[i].values[1:])])
    rows[i] = replace(rows[i], values=values)
    return replace(deployment, persistent=tuple(rows))


def entry_point_twice(deployment: Deployment, rng: random.Random) -> Deployment:
    return replace(deployment, entry_points=(*deployment.entry_points, rng.choice(deployment.entry_points)))


WRONG: tuple[Edit, ...] = (
    persistent_value_moved,
    persistent_values_swapped,
    held_value_overwritten,
    held_value_forgotten,
    held_value_is_a_constant,
    row_left_out,
    row_twice,
    row_of_another_name,
    row_of_numbers_that_are_not_there,
    entry_point_twice,
)


def is_refused(deployment: Deployment) -> bool:
    try:
        report = validate(GRAPHS, deployment, steps=2)
    except PlanError:
        return True
    assert report.violations or report.identical
    return bool(report.violations)


@pytest.mark.parametrize("edit", WRONG, ids=lambda edit: edit.__name__)
def test_a_wrong_deployment_is_refused_by_its_proof(edit: Edit) -> None:
    rng = random.Random(edit.__name__)
    for _ in range(20):
        assert is_refused(edit(PLAN, rng))


def test_a_plan_alone_does_not_tell_that_a_value_was_moved() -> None:
    """The proof of a plan says nothing on places in other plans: that of the deployment does."""
    rng = random.Random(3)
    for _ in range(10):
        wrong = persistent_value_moved(PLAN, rng)
        assert is_refused(wrong)
        for k, entry_point in enumerate(wrong.entry_points):
            assert prove(held_reference(GRAPHS, PLAN, k), entry_point.plan) == ()
    moved = _moved(PLAN, 1, next(row.values[1] for row in PLAN.persistent if row.name == "w1"), 2**12)
    report = validate(GRAPHS, moved, steps=3, run_wrong_plans=True)
    assert [violation.rule for violation in report.violations] == ["persistent"]
    assert not report.identical
    assert any("w1" in step.differing for step in report.steps if step.entry == "infer")


def test_weights_that_change_places_in_one_plan_are_told_by_their_names() -> None:
    """The places agree with the list: only labels say that inference finds another weight under its name."""
    graphs, deployment = deployed(entries(MODELS["dropout"]))
    rows = {row.name: k for k, row in enumerate(deployment.persistent)}
    wrong = _swapped(deployment, 1, rows["w0"], rows["w1"])
    assert prove_deployment(wrong) == ()
    report = validate(graphs, wrong, steps=3, run_wrong_plans=True)
    assert {violation.rule for violation in report.violations} == {"persistent"}
    assert "and not in another one of model 'm'" in report.violations[0].detail


@pytest.mark.parametrize("name", ["train", "infer", "evaluate"])
def test_edited_plans_are_refused_or_compute_the_same(name: str) -> None:
    """Random edits of one plan, as those of plans alone: what is let pass agrees bit for bit."""
    rng, refused = random.Random(name), 0
    for _ in range(EDITS):
        kind, plan = edited(PLAN[name].plan, rng)
        try:
            report = validate(GRAPHS, with_plan(PLAN, name, plan), steps=2)
        except PlanError:
            refused += 1
            continue
        refused += bool(report.violations)
        assert report.violations or report.identical, kind
    assert refused > EDITS // 2


@pytest.mark.parametrize("k", range(3))
def test_oracle_and_proof_agree_on_edited_plans(k: int) -> None:
    """Byte by byte, on terms, with what a plan holds for others: `tests.support.term_oracle`."""
    reference = held_reference(GRAPHS, PLAN, k)
    judge, rng, rejected = TermOracle(reference), random.Random(k), 0
    assert judge.judge(PLAN.entry_points[k].plan) is None
    for _ in range(EDITS):
        kind, plan = edited(PLAN.entry_points[k].plan, rng)
        broken, violations = judge.judge(plan), prove(reference, plan)
        assert bool(broken) == bool(violations), (kind, broken, violations)
        rejected += bool(broken)
    assert EDITS // 2 < rejected < EDITS


#: Places of the document that no proof can know: titles, who made the plan, and what was asked for.
#: Others are the solver of a layout, and which one of the fullest steps a certificate names.
UNKNOWN = {"name", "producer", "options"}


def test_edited_documents_are_refused_or_are_the_same_plans() -> None:
    """A number or a word anywhere in the document is another one, and its digests are made anew."""
    document = json.loads(dump_deployment(PLAN))
    assert not is_refused(_sealed(document))
    places = [place for place in _leaves(document) if place[-1] != "digest"]
    around = [place for place in places if place[2:3] != ("plan",)]
    rng, accepted = random.Random(5), 0
    for _ in range(EDITS):
        place = rng.choice(around if rng.random() < 0.4 else places)
        edited_document = copy.deepcopy(document)
        holder = edited_document
        for key in place[:-1]:
            holder = holder[key]
        old = holder[place[-1]]
        words = ["", "train", "infer", "run", "m", "w1"]
        holder[place[-1]] = rng.choice([old + 1, old - 1, 10**9] if type(old) is int else words)
        try:
            refused = is_refused(_sealed(edited_document))
        except ArenaplanError:
            continue
        known = place[3:] if place[2:3] == ("plan",) else place
        unknown = known[0] in UNKNOWN or place[-1] in ("solver", "witness_step")
        assert refused or edited_document == document or unknown, f"{place}: {old!r}"
        accepted += not refused
    assert 0 < accepted < EDITS // 4


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, (*place, key))
    else:
        yield place


def _sealed(document: Mapping[str, Any]) -> Deployment:
    """The deployment of a document, with the digests that belong to it."""
    rows = read(DeploymentDocument, document, range_error=PlanError)
    entry_points = tuple(
        EntryPoint(row.name, row.model, row.purpose, with_digest(to_plan(row.plan)))
        for row in rows.entry_points
    )
    staying = tuple(Persistent(row.name, tuple(row.values)) for row in rows.persistent)
    made = Deployment(rows.name, entry_points, staying, rows.producer)
    return load_deployment(dump_deployment(with_deployment_digest(made)))


def test_what_stays_is_what_the_programs_say() -> None:
    """Brute force: all constant and carried values that some step touches, in any program."""
    names = set()
    for entry_point in PLAN.entry_points:
        program = entry_point.plan.program
        touched = {b.value for step in program.steps for b in step.bindings}
        kept = {e.value for e in program.entry if e.kind in (EntryKind.CONSTANT, EntryKind.CARRIED)}
        assert {*persistent(program)} == kept & touched
        names |= {program.values[value].label for value in kept & touched}
    assert {row.name for row in PLAN.persistent} == names
