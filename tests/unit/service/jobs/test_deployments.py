"""Requests with entry points, handled by a worker in this process: answers, keys, limits, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.http.examples import example, named_examples
from service.problems import Problem
from solver import documents, executor
from solver.pipeline import entry_graphs
from solver.plan import Deployment, with_deployment_digest
from solver.reports.validation import ValidationReport
from tests.support.every import every
from tests.support.onnx_models import model_of, node
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


def test_entry_points_as_objects_and_as_text() -> None:
    objects = [
        {"purpose": "train"},
        {"purpose": "infer", "batch": 1, "name": "camera"},
        {"purpose": "evaluate", "model": "perceptron"},
    ]
    deployment = planned(graph=TINY, entries=objects)
    assert [(e.name, e.model, e.purpose) for e in deployment.entry_points] == [
        ("train", "perceptron", "train"),
        ("camera", "perceptron", "infer"),
        ("evaluate", "perceptron", "evaluate"),
    ]
    assert [e.plan.options.batch for e in deployment.entry_points] == [None, 1, None]
    texts = ["train", "infer:batch=1,name=camera", "perceptron.evaluate"]
    assert planned(graph=TINY, entries=texts) == deployment


def test_the_batch_of_the_options_is_that_of_all_others() -> None:
    deployment = planned(graph=TINY, entries=["train", "infer:batch=1"], options={"batch": 4})
    assert [e.plan.options.batch for e in deployment.entry_points] == [4, 1]


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


def test_a_model_of_another_tool() -> None:
    weights = {"w": np.ones((4, 2), np.float32)}
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": ("batch", 4)}, weights).SerializeToString()
    line = {"loss": ["mse"], "entries": ["train", '{"purpose": "infer", "batch": 1}'], "batch": ["3"]}
    deployment = answer(run("model", json.dumps(line).encode() + b"\n" + model))
    assert [e.name for e in deployment.entry_points] == ["train", "infer"]
    inputs = [e.plan.program.values[e.plan.program.by_label["x"]].type.shape for e in deployment.entry_points]
    assert inputs == [(3, 4), (1, 4)]
    with pytest.raises(Problem) as refused:
        run("model", json.dumps({**line, "entries": ["fit"]}).encode() + b"\n" + model)
    assert refused.value.pointer == "/query/entries/0"


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


#: Requests that are refused: the code of the problem, its pointer, and words of its detail.
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
    "a mistake in the second model": (
        {"models": {"a/b": TINY, "c~d": {**TINY, "batch": "x"}}},
        "invalid-document", "/models/c~0d/batch", "batch is 'x'",
    ),
    "an operator that is not there": (
        {"models": {"a": TINY, "b": MISSPELT}},
        "unknown-operator", "/models/b/operations/0/type", "Gem",
    ),
    "entries in a text": ({"graph": TINY, "entries": "train"}, "invalid-document", "/entries", "'train'"),
    "entries null": ({"graph": TINY, "entries": None}, "invalid-document", "/entries", "null"),
    "an entry that is a number": ({"graph": TINY, "entries": [3]}, "invalid-document", "/entries/0", "3"),
    "an entry that is null": ({"graph": TINY, "entries": [None]}, "invalid-document", "/entries/0", "null"),
    "an entry without purpose": (
        {"graph": TINY, "entries": ["train", {}]}, "invalid-document", "/entries/1/purpose", "missing",
    ),
    "another purpose": (
        {"graph": TINY, "entries": [{"purpose": "fit"}]}, "invalid-document", "/entries/0/purpose", "'fit'",
    ),
    "another purpose in text": ({"graph": TINY, "entries": ["fit"]}, "invalid-document", "/entries/0", "fit"),
    "a misspelt field": (
        {"graph": TINY, "entries": [{"purpose": "infer", "bach": 1}]},
        "invalid-document", "/entries/0/bach", "unknown field",
    ),
    "batch 0": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": 0}]},
        "invalid-document", "/entries/0/batch", "batch is 0",
    ),
    "batch true": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": True}]},
        "invalid-document", "/entries/0/batch", "batch is true",
    ),
    "a batch beyond 64 bits": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": 2**63}]},
        "invalid-document", "/entries/0/batch", "batch is",
    ),
    "a batch beyond all memory": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": 2**62}]},
        "invalid-dimension", "/graph/operands/0/shape", "",
    ),
    "a batch that is fixed": (
        {"graph": FIXED, "entries": ["train", {"purpose": "infer", "batch": 1}]},
        "invalid-batch", "/entries/1/batch", "no shape of the graph is symbolic",
    ),
    "no batch": (
        {"graph": {**TINY, "batch": None}, "entries": ["infer"]},
        "invalid-batch", "/graph/operands/0/shape/0", "symbolic batch",
    ),
    "two of one name": (
        {"graph": TINY, "entries": ["infer", "infer:batch=1"]}, "invalid-options", "/entries/1/name", "Two",
    ),
    "a name with a control character": (
        {"graph": TINY, "entries": [{"purpose": "infer", "name": "a\x1b"}]},
        "invalid-document", "/entries/0/name", "name is",
    ),
    "a model that is not there": (
        {"graph": TINY, "entries": ["encoder.infer"]}, "invalid-options", "/entries/0", "which is not there",
    ),
    "of which model": (
        {"models": {"a": TINY, "b": TINY}, "entries": ["infer"]}, "invalid-options", "/entries/0", "several",
    ),
    "a graph is run": ({"graph": TINY, "entries": ["run"]}, "invalid-options", "/entries/0", "is a graph"),
    "a program is trained": (
        {"graph": PAIRS, "entries": ["train"]}, "invalid-options", "/entries/0", "explicit operations",
    ),
    "a batch of a program": (
        {"graph": PAIRS, "entries": ["run:batch=3"]}, "invalid-options", "/entries/0/batch", "has no batch",
    ),
    "a network without a loss is trained": (
        {"graph": UNLABELLED, "entries": ["train"]}, "invalid-options", "/entries/0", "Nothing of",
    ),
    "a network without a loss is evaluated": (
        {"graph": UNLABELLED, "entries": ["evaluate"]},
        "invalid-options", "/entries/0", "no loss to evaluate",
    ),
    "a tie of one side": ({"graph": TINY, "ties": ["a"]}, "invalid-document", "/ties/0", "'a'"),
    "a tie that joins nothing": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1=b.nothing"]},
        "invalid-options", "/ties/0", "joins nothing",
    ),
    "a tie of optimizer variables": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1@*=b.w1@*"]},
        "invalid-options", "/ties/0", "joins nothing",
    ),
    "a tie with stars on one side": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.*=b.w1"]}, "invalid-options", "/ties/0", "stars",
    ),
    "a tie of other shapes": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1=b.w2"]},
        "invalid-options", "/ties/0", "float32[32, 4]",
    ),
    "a tie of two values of a model": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1=b.w1", "b.w1=a.w1", "a.b1=a.b2"]},
        "invalid-options", "/ties/2", "",
    ),
    "a range of batches": (
        {"graph": TINY, "entries": ["train"], "options": {"batch": "1..4"}},
        "invalid-options", "/options/batch", "of one size",
    ),
    "a range of batches of one": (
        {"graph": TINY, "entries": ["infer:batch=1..4"]}, "invalid-document", "/entries/0", "batch=1..4",
    ),
    "too many": ({"graph": TINY, "entries": ["train"] * 1025}, "invalid-document", "/entries", "a list"),
    "too many ties": ({"graph": TINY, "ties": ["a=b"] * 1025}, "invalid-document", "/ties", "a list"),
    "a model with a long name": (
        {"models": {"m" * 2000: TINY}}, "invalid-options", "/models", "no name of a model",
    ),
    "entries among the options": (
        {"graph": TINY, "entries": ["train"], "options": {"entries": ["infer"]}},
        "invalid-document", "/options/entries", "unknown field",
    ),
    "another plan to keep to": (
        {"graph": TINY, "entries": ["train"], "like": 3}, "invalid-request", "/like", "like another plan",
    ),
    "a pin of nothing": (
        {"graph": TINY, "entries": ["train"], "options": {"pins": ["nothing=4096"]}},
        "invalid-options", "/options/pins/nothing", "No value is called",
    ),
    "a model without an entry point": (
        {"models": {"a": TINY, "b": TINY}, "entries": ["a.train"]},
        "invalid-options", "/entries", "Model 'b' has no entry point",
    ),
    "another member": (
        {"graph": TINY, "entries": ["train"], "shares": True}, "invalid-request", "/shares", "unknown here",
    ),
    "a runtime of one program": (
        {"graph": TINY, "entries": ["train"], "options": {"target": "onert"}},
        "invalid-options", "/options/target", "runs one program alone",
    ),
    "too small for the second": (
        {"graph": TINY, "entries": ["infer", "train"], "options": {"capacity": 9000}},
        "capacity-exceeded", "/options/capacity", "Entry point 'train' does not fit",
    ),
    "too small for what others keep": (
        {"graph": TINY, "entries": ["infer:batch=1", "train"], "options": {"capacity": 3000}},
        "capacity-exceeded", "/options/capacity", "2,704 bytes are values that other entry points keep",
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


def test_each_entry_point_is_run() -> None:
    deployment = planned(graph=TINY, entries=["train", "infer:batch=1", "evaluate"])
    plan = json.loads(documents.dump_deployment(deployment))
    report = validated(graph=TINY, plan=plan, steps=2, seed=3)
    assert report.identical
    assert sorted(step.entry for step in report.steps) == ["evaluate"] * 2 + ["infer"] * 2 + ["train"] * 2
    assert report.arena_bytes == deployment.arena_bytes
    graphs = entry_graphs({"perceptron": lambda batch: documents.load_graph(TINY, batch=batch)}, deployment)
    here = executor.validate(graphs, deployment, steps=2, seed=3)
    assert documents.dump_report(report) == documents.dump_report(here)


def test_the_models_of_a_plan_of_several() -> None:
    models = {"a": TINY, "b": {**TINY, "name": "other"}}
    deployment = planned(models=models, entries=["a.train", "b.infer"])
    plan = json.loads(documents.dump_deployment(deployment))
    assert validated(models=models, plan=plan, steps=1).identical
    with pytest.raises(Problem) as refused:
        run("validate", {"graph": TINY, "plan": plan})
    assert "'a'" in refused.value.detail or "'b'" in refused.value.detail
    assert "a, b" in str(refused.value.remedy)


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
