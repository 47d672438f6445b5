"""Requests with entry points, handled by a worker in this process: answers, keys, limits, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from service.http.examples import example, named_examples
from service.problems import Problem
from solver import documents
from solver.plan import Deployment, with_deployment_digest
from solver.reports.validation import ValidationReport
from tests.support.every import every
from tests.unit.service.jobs.test_tasks import Recorder, run

TINY: dict[str, Any] = example("tiny")["graph"]
PAIRS: dict[str, Any] = example("parallel")["program"]
FIXED: dict[str, Any] = json.loads(json.dumps({**TINY, "batch": None}).replace('"batch", ', "8, "))
MISSPELT: dict[str, Any] = json.loads(json.dumps(TINY).replace("Gemm", "Gem", 1))
UNLABELLED: dict[str, Any] = {
    **TINY,
    "operations": TINY["operations"][:2],
    "operands": [row for row in TINY["operands"] if row["name"] != "label"],
    "loss": None,
}

Request = dict[str, Any]


def answer(channel: Recorder) -> Deployment:
    (kind, head, body), *others = channel.sent
    assert (kind, others) == ("result", [])
    deployment = documents.load_deployment(body)
    assert head["digest"] == deployment.digest
    assert head["arena_bytes"] == deployment.arena_bytes
    assert head["lower_bound"] == deployment.lower_bound
    assert head["deterministic"] is True
    assert head["status"] == "optimal"
    return deployment


def planned(**request: Any) -> Deployment:
    return answer(run("plan", request))


def test_models_by_name() -> None:
    models = {"a": TINY, "b": TINY, "steps": PAIRS}
    deployment = planned(models=models, ties=["a.*=b.*"], options={"batch": 4})
    assert deployment.name == "a+b+steps"
    assert [(e.name, e.purpose) for e in deployment.entry_points] == [
        ("a", "train"), ("b", "train"), ("steps", "run"),
    ]  # fmt: skip
    names = [row.name for row in deployment.persistent]
    assert "a.w1" in names
    assert "b.w1" not in names


def test_a_graph_for_the_batch_of_an_entry_point() -> None:
    """A model of another tool has one batch each time that it is imported."""
    open_ = planned(models={"m": TINY}, entries=["train", {"purpose": "infer", "batch": 1}])
    at_one = json.loads(documents.dump_graph(documents.load_graph(TINY, batch=1)))
    fixed = planned(
        models={"m": json.loads(documents.dump_graph(documents.load_graph(TINY)))},
        entries=["train", {"purpose": "infer", "batch": 1, "graph": at_one}],
    )
    assert [e.plan for e in fixed.entry_points] == [e.plan for e in open_.entry_points]
    assert fixed.digest == open_.digest


def test_keys() -> None:
    """The same request in other words is known; another name, batch, tie, order or option is another one."""
    base: Request = {"models": {"a": TINY, "b": TINY}, "entries": ["a.train", "b.infer"]}
    same = {**base, "entries": [{"purpose": "train", "model": "a"}, {"purpose": "infer", "model": "b"}]}
    known = run("plan", same, known=True)
    assert known.sent == [("result", {}, b"")]
    assert known.offered == run("plan", base, known=True).offered
    others: list[Request] = [
        {**base, "entries": base["entries"][::-1]},
        {**base, "entries": ["a.train", "b.infer:batch=8"]},
        {**base, "entries": ["a.train", "b.infer:name=camera"]},
        {**base, "ties": ["a.*=b.*"]},
        {**base, "options": {"alignment": 128}},
        {**base, "models": {"a": TINY, "b": {**TINY, "name": "other"}}},
        {"graph": TINY, "entries": ["train"]},
        {"graph": TINY},
    ]
    keys = [run("plan", request, known=True).offered[0] for request in others]
    assert len({*keys, *known.offered}) == len(others) + 1


def test_a_deadline() -> None:
    """The greedy plans go ahead, so that a search that is ended has an answer."""
    late = run("plan", {"graph": TINY, "entries": ["train", "infer"], "options": {"deadline_seconds": 30.0}})
    assert late.kinds == ["fallback", "result"]
    for _, head, body in late.sent:
        deployment = documents.load_deployment(body)
        assert deployment.digest == head["digest"]
        assert [e.plan.options.deadline_seconds for e in deployment.entry_points] == [30.0, 30.0]
    assert documents.load_deployment(late.sent[0][2]).entry_points[0].plan.deterministic is False


def test_progress_is_told() -> None:
    followed = run("plan", {"graph": TINY, "entries": ["train", "infer"]})
    assert {"layout", "prove"} <= {*followed.stages}


def test_the_examples_of_the_documentation_are_answered_as_they_say() -> None:
    examples = named_examples()
    made = planned(**examples["entry_points"]["value"])
    assert json.loads(documents.dump_deployment(made)) == examples["deployment"]["value"]
    two = planned(**examples["two_models"]["value"])
    assert [e.name for e in two.entry_points] == ["a.train", "camera"]


#: Refusals of a request alone; those of its models, entry points and ties are rows of `tests/contract`: the
#: code of the problem, its pointer, and words of its detail.
REFUSED: dict[str, tuple[Request, str, str, str]] = {
    "no network": ({"entries": ["train"]}, "invalid-request", "", '"graph" is missing'),
    "both": ({"graph": TINY, "models": {}}, "invalid-request", "/models", "both"),
    "no models": ({"models": {}}, "invalid-request", "/models", "not an object with"),
    "models null": ({"models": None}, "invalid-request", "/models", "not an object with"),
    "models in a list": ({"models": [TINY]}, "invalid-request", "/models", "not an object with"),
    "a nameless model": ({"models": {"": TINY}}, "invalid-options", "/models", "no name of a model"),
    "a model's name with a line break": (
        {"models": {"a\n": TINY}}, "invalid-options", "/models", "no name of a model",
    ),
    "a model that is a number": ({"models": {"a": 3}}, "invalid-document", "/models/a", "not an object"),
    "a model with a long name": (
        {"models": {"m" * 2000: TINY}}, "invalid-options", "/models", "no name of a model",
    ),
    "entries among the options": (
        {"graph": TINY, "entries": ["train"], "options": {"entries": ["infer"]}},
        "invalid-document", "/options/entries", "unknown field",
    ),
    "too many": ({"graph": TINY, "entries": ["train"] * 1025}, "invalid-document", "/entries", "a list"),
    "too many ties": ({"graph": TINY, "ties": ["a=b"] * 1025}, "invalid-document", "/ties", "a list"),
    "another plan to keep to": (
        {"graph": TINY, "entries": ["train"], "like": 3}, "invalid-request", "/like", "like another plan",
    ),
    "another member": (
        {"graph": TINY, "entries": ["train"], "shares": True}, "invalid-request", "/shares", "unknown here",
    ),
    "more operations than allowed": (
        {"graph": TINY, "entries": [f"infer:name={k}" for k in range(7)]},
        "too-many-operations", "/entries", "together",
    ),
}  # fmt: skip


def test_each_mistake_is_one_problem_with_its_place() -> None:
    with every() as case:
        for name, (request, code, pointer, words) in REFUSED.items():
            with case(name), pytest.raises(Problem) as refused:
                run("plan", request, max_operations=12)
            problem = refused.value
            with case(name):
                assert (problem.kind.code, problem.pointer) == (code, pointer), problem.document()
                assert words in problem.detail
                assert problem.remedy
                assert "--" not in problem.detail + problem.remedy


# ------------------------------------------------------------------------------------ validation


def validated(**request: Any) -> ValidationReport:
    (kind, head, body), *others = run("validate", request).sent
    assert (kind, others) == ("result", [])
    report = documents.load_report(body)
    assert head["identical"] is report.identical
    return report


def test_the_models_of_a_plan_of_several() -> None:
    """That each entry point is run is a row of `tests/contract`."""
    models = {"a": TINY, "b": {**TINY, "name": "other"}}
    plan = json.loads(documents.dump_deployment(planned(models=models, entries=["a.train", "b.infer"])))
    with pytest.raises(Problem) as refused:
        run("validate", {"graph": TINY, "plan": plan})
    assert "'a'" in refused.value.detail or "'b'" in refused.value.detail
    assert "a, b" in str(refused.value.remedy)


def test_models_are_for_a_plan_with_entry_points() -> None:
    (_, _, plan), *_ = run("plan", {"graph": TINY}).sent
    with pytest.raises(Problem) as refused:
        run("validate", {"models": {"a": TINY}, "plan": json.loads(plan)})
    assert (refused.value.pointer, refused.value.remedy) == ("/models", 'Send that network as "graph".')


def test_a_wrong_deployment_is_named_and_not_run() -> None:
    deployment = planned(graph=TINY, entries=["train", "infer"])
    infer = deployment["infer"]
    offsets = list(infer.plan.offsets)
    number = deployment.persistent[0].values[1]
    offsets[number], other = offsets[deployment.persistent[1].values[1]], offsets[number]
    offsets[deployment.persistent[1].values[1]] = other
    wrong = replace(infer, plan=documents.with_digest(replace(infer.plan, offsets=tuple(offsets))))
    swapped = with_deployment_digest(replace(deployment, entry_points=(deployment["train"], wrong)))
    report = validated(graph=TINY, plan=json.loads(documents.dump_deployment(swapped)), steps=1)
    assert not report.identical
    assert report.steps == ()
    assert report.violations


@pytest.mark.parametrize(
    ("request_", "detail", "pointer"),
    [
        ({"graph": MISSPELT}, "Gem", "/graph/operations"),
        ({"graph": FIXED}, "batch", None),
        ({"graph": UNLABELLED}, "'train'", None),
        ({"graph": PAIRS}, "", None),
        ({"models": {}}, '"models" is not an object', "/models"),
        ({"models": {"x": TINY}, "graph": TINY}, 'both "graph"', "/models"),
    ],
)
def test_networks_of_another_plan(request_: Request, detail: str, pointer: str | None) -> None:
    deployment = planned(graph=TINY, entries=["train", "infer:batch=1"])
    plan = json.loads(documents.dump_deployment(deployment))
    with pytest.raises(Problem) as refused:
        run("validate", {**request_, "plan": plan})
    assert detail in refused.value.detail
    assert refused.value.remedy
    assert pointer is None or str(refused.value.pointer).startswith(pointer)


def test_the_memory_of_all_programs_counts() -> None:
    deployment = planned(graph=TINY, entries=["train", "infer:batch=1"])
    plans = [entry_point.plan for entry_point in deployment.entry_points]
    values = sum(value.type.nbytes for plan in plans for value in plan.program.values)
    needed = deployment.arena_bytes + values
    request = {"graph": TINY, "plan": json.loads(documents.dump_deployment(deployment)), "steps": 1}
    with pytest.raises(Problem) as refused:
        run("validate", request, validate_max_bytes=needed - 1)
    assert refused.value.extensions["required"] == needed
    assert run("validate", request, validate_max_bytes=needed).sent
