"""ONNX models sent to the real process: planned like graphs, and refused with what is wrong."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import onnx
import pytest

from clients import Client
from service.jobs.query import in_query
from service.problems import CATALOGUE
from solver import documents
from solver.graph import TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import Imported, import_options
from solver.importers.registry import find_importer, load_model
from tests.support.every import every
from tests.support.onnx_models import model_of, node
from tests.support.server import Server

MODEL = model_of(
    [node("MatMul", ["x", "fc.weight"], ["y"])],
    {"x": ("batch", 30)},
    {"fc.weight": np.random.default_rng(1).standard_normal((30, 20)).astype(np.float32)},
).SerializeToString()

CHOICES = {"loss": "mse", "optimizer": "adam", "dim": "batch=4"}


def post(
    server: Server,
    body: bytes,
    media_type: str = "application/onnx",
    to: str = "plan",
    prefer: str = "",
    **query: Any,
) -> httpx.Response:
    headers = {"content-type": media_type} | ({"prefer": prefer} if prefer else {})
    return httpx.post(f"{server.url}/v1/{to}", content=body, params=query, headers=headers, timeout=90)


def graph_of() -> TrainableGraph:
    return load_onnx(MODEL, options=import_options({**CHOICES, "dim": ["batch=4"]})).graph


def test_a_model_is_planned(server: Server) -> None:
    answer = post(server, MODEL, **CHOICES, capacity="1MiB", only="in-place")
    assert answer.status_code == 200, answer.text
    made = documents.load_plan(answer.content)
    assert made.options.capacity == 2**20
    assert made.options.in_place
    assert made.graph_digest == documents.graph_digest(graph_of())
    kept = httpx.get(server.url + answer.headers["content-location"], timeout=60)
    assert kept.content == answer.content
    again = post(server, MODEL, "application/octet-stream", **CHOICES, capacity="1MiB", only="in-place")
    assert (again.content, again.headers["x-cache"]) == (answer.content, "hit")


def choosing() -> bytes:
    """x times one of two weights, by an input."""
    branches = {}
    for name in ("then", "else"):
        inner = [node("MatMul", ["x", f"{name}.weight"], [f"{name}_y"])]
        out = onnx.helper.make_empty_tensor_value_info(f"{name}_y")
        branches[f"{name}_branch"] = onnx.helper.make_graph(inner, name, [], [out])
    nodes = [node("Greater", ["rate", "bound"], ["c"]), node("If", ["c"], ["y"], name="choice", **branches)]
    weights = {f"{name}.weight": np.ones((30, 20), np.float32) for name in ("then", "else")}
    inputs: dict[str, Any] = {"x": (1, 30), "rate": ("int64", ())}
    return bytes(model_of(nodes, inputs, {**weights, "bound": np.array(9000)}).SerializeToString())


def test_an_input_with_a_value_chooses_a_branch(server: Server) -> None:
    """Without one, the refusal says how a query gives it."""
    model = choosing()
    problem = post(server, model, loss="mse").json()
    assert problem["type"] == "/problems/unknown-operator"
    assert problem["remedy"] == "Fix it with input=rate=9000."
    digests = {}
    for rate in (8000, 16000):
        answer = post(server, model, loss="mse", input=f"rate={rate}", batch="4")
        assert answer.status_code == 200, answer.text
        options = import_options({"loss": "mse", "input": f"rate={rate}"}, batch=4)
        digests[rate] = documents.load_plan(answer.content).graph_digest
        assert digests[rate] == documents.graph_digest(load_onnx(model, options=options).graph)
    with Client(server.url) as client:
        plan = client.plan(model, loss="mse", input=["rate=8000"], batch=4)
        job = client.jobs.plan(model, loss="mse", input=["rate=8000"], batch=4).wait()
    assert plan.document["graph_digest"] == job.document["graph_digest"] == digests[8000] != digests[16000]
    problem = post(server, model, loss="mse", input="rate=fast").json()
    assert (problem["type"], problem["pointer"]) == ("/problems/invalid-options", "/query/input")


def test_what_follows_a_tensor_is_planned(server: Server) -> None:
    """The parameter may be given several times."""
    nodes = [node("Det", ["x"], ["h"]), node("Add", ["h", "h"], ["g"]), node("Mul", ["g", "h"], ["m"])]
    nodes.append(node("MatMul", ["m", "fc.weight"], ["y"]))
    weights = {"fc.weight": np.ones((4, 2), np.float32)}
    body = model_of(nodes, {"x": (3, 4, 2, 2)}, weights).SerializeToString()
    refused = post(server, body, loss="mse")
    assert refused.status_code == 422
    assert "the parameter freeze_before h" in refused.json()["remedy"]
    answer = post(server, body, loss="mse", freeze_before=["h", "g"])
    assert answer.status_code == 200, answer.text
    graph = load_onnx(body, options=import_options({"loss": "mse", "freeze_before": ["h", "g"]})).graph
    assert documents.load_plan(answer.content).graph_digest == documents.graph_digest(graph)


def test_a_verdict_on_a_model_tries_a_smaller_batch(server: Server) -> None:
    """Its curve and its verdict are rows of `tests/contract`."""
    tried = post(server, MODEL, to="explain", **CHOICES, capacity="4KiB").json()["attempts"]
    assert ["a batch of 1"] in [attempt["measures"] for attempt in tried]


def unused_head(*, has_head: bool) -> bytes:
    """x times w, and without a use for the loss x times v."""
    nodes, weights = [node("MatMul", ["x", "w"], ["y"])], {"w": np.ones((6, 3), np.float32)}
    if has_head:
        nodes.append(node("MatMul", ["x", "v"], ["z"]))
        weights["v"] = np.ones((6, 3), np.float32)
    model = model_of(nodes, {"x": (2, 6)}, weights, outputs=("y", "z") if has_head else ("y",))
    return bytes(model.SerializeToString())


UNUSED: dict[str, Any] = {"loss": "mse", "output": "y", "keep_outputs": "y"}


def notes_of(answer: httpx.Response) -> tuple[str, ...]:
    assert answer.headers["arenaplan-notes"].isascii()
    return tuple(json.loads(answer.headers["arenaplan-notes"]))


def test_what_is_not_trained_is_said_with_every_answer(server: Server) -> None:
    """In the words of the command line, also by the cache and by jobs; an equal plan has its own notes."""
    chosen = UNUSED | {"weights": "none"}
    body = unused_head(has_head=True)
    notes = tuple(map(in_query, load_model_of(body, chosen).notes))
    assert notes[-1] == "1 tensor trained, 1 floating tensor not trained: v."
    first, again = post(server, body, **chosen), post(server, body, **chosen)
    assert [answer.headers["x-cache"] for answer in (first, again)] == ["miss", "hit"]
    assert notes_of(first) == notes_of(again) == notes
    plain = post(server, unused_head(has_head=False), **chosen)
    assert (plain.headers["x-cache"], plain.headers["etag"]) == ("hit", first.headers["etag"])
    assert notes_of(plain)[-1] == "1 tensor trained, 0 floating tensors not trained."
    assert notes_of(post(server, body, **chosen)) == notes
    digest = first.json()["digest"]
    for task, query in (
        ("tradeoff", {"points": "2"}),
        ("explain", {"capacity": "4KiB"}),
        ("validate", {"plan": digest, "steps": "1"}),
    ):
        assert notes_of(post(server, body, to=task, **chosen, **query)) == notes
    refused = post(server, body, **chosen, capacity="16B")
    assert (refused.status_code, notes_of(refused)) == (409, notes)
    with Client(server.url) as client:
        made = client.plan(body, chosen)
        assert (made.cached, made.notes) == (True, notes)
        planned = client.jobs.plan(body, chosen)
        assert planned.wait().notes == planned.notes == notes
        curve = client.tradeoff(body, chosen, points=3)
        verdict = client.explain(body, "4KiB", chosen)
        report = client.validate(body, made.document, steps=2, **chosen)
        assert curve.notes == verdict.notes == report.notes == notes
        assert report.identical
        assert client.jobs.tradeoff(body, chosen, points=3).wait() == curve
        assert client.jobs.explain(body, "4KiB", chosen).wait() == verdict
        assert client.jobs.validate(body, made.document, steps=2, **chosen).wait() == report
        imported = client.jobs.import_model(body, **chosen)
        assert imported.wait()["trainable"] == ["w"]
        assert imported.notes == notes
        assert client.plan(documents.dump_graph(graph_of())).notes == ()
    later = post(server, body, prefer="respond-async, wait=60", only="in_place", **chosen)
    assert notes_of(later) == notes


def load_model_of(body: bytes, choices: dict[str, Any]) -> Imported:
    importer = find_importer(body)
    assert importer is not None
    return load_model(importer, body, options=import_options(choices), path=None, name="model")


def test_notes_name_parameters(server: Server) -> None:
    answer = post(server, unused_head(has_head=True), loss="mse", output="y")
    assert any("the parameter keep_outputs names" in note for note in notes_of(answer))


def test_notes_that_are_too_long_for_a_header_are_counted(server: Server) -> None:
    """The summary of what is trained is among those that fit."""
    names = tuple(f"{number}-" + "ü" * 60 for number in range(12))
    nodes = [node("MatMul", ["x", "w"], ["y"]), *(node("Identity", ["y"], [name]) for name in names)]
    body = model_of(nodes, {"x": (2, 6)}, {"w": np.ones((6, 3), np.float32)}, outputs=("y", *names))
    chosen = {"loss": "mse", "output": "y", "keep_outputs": "all"}
    answer = post(server, body.SerializeToString(), **chosen)
    assert len(answer.headers["arenaplan-notes"]) <= 4096
    *said, last, left = notes_of(answer)
    every = load_model_of(body.SerializeToString(), chosen).notes
    assert last == every[-1] == "1 tensor trained, 0 floating tensors not trained."
    assert said == [note for note in every if note in said]
    assert left.startswith(f"{len(every) - len(said) - 1} more notes are left out")


def test_a_model_is_planned_like_a_plan_that_is_kept(server: Server) -> None:
    old = post(server, MODEL, **CHOICES)
    digest = old.json()["digest"]
    made = post(server, MODEL, **{**CHOICES, "like": digest})
    assert made.status_code == 200, made.text
    (facts,) = (r.facts for r in documents.load_plan(made.content).records if r.name == "like")
    assert (facts["plan"], facts["moved"]) == (digest, 0)
    missing = post(server, MODEL, **{**CHOICES, "like": "0" * 64})
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/plan-not-found")
    for wrong in ("old", "3"):
        refused = post(server, MODEL, **{**CHOICES, "like": wrong})
        assert (refused.status_code, refused.json()["pointer"]) == (422, "/query/like")


def test_a_document_of_a_graph_has_that_of_the_old_plan_beside_it(
    server: Server, tiny: dict[str, Any]
) -> None:
    request = {"graph": tiny, "like": "0" * 64}
    refused = httpx.post(f"{server.url}/v1/plan", json=request, timeout=60)
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/like")
    assert "GET /v1/plans/DIGEST has" in refused.json()["remedy"]


def test_a_model_as_a_job_where_it_takes_long(server: Server) -> None:
    """`Prefer: respond-async` means the same for models."""
    answer = post(server, MODEL, to="tradeoff", prefer="respond-async, wait=60", points=3, **CHOICES)
    assert (answer.status_code, answer.json()["graph"]) == (200, "model")
    assert answer.headers["preference-applied"] == "wait=60"


#: Route, what differs from `CHOICES` (empty: left out), and the problem: its type, its pointer, words of it.
WRONG: tuple[tuple[str, dict[str, str], str, str | None, str], ...] = (
    ("plan", {"loss": "ce"}, "invalid-options", "/query/loss", "cross-entropy"),
    ("plan", {"entries": "fit"}, "invalid-document", "/query/entries/0", "fit"),
    ("plan", {"dim": ""}, "invalid-dimension", "/model", "Give dim=batch=SIZE."),
    ("plan", {"loss": ""}, "invalid-loss", "/model", "Name one with the parameter loss: "),
    ("plan", {"capacity": "much"}, "invalid-document", "/query/capacity", "much"),
    ("plan", {"speed": "1"}, "invalid-document", "/query/speed", "speed"),
    ("plan", {"trainable": "head"}, "invalid-trainable", "/model/trainable", "fc.weight"),
    ("plan", {"capacity": "1KiB"}, "capacity-exceeded", "/query/capacity", "1,024"),
    ("program", {}, "unsupported-media-type", None, ""),
    ("layout", {}, "unsupported-media-type", None, ""),
    ("tradeoff", {"points": "1"}, "invalid-request", "/query/points", ""),
    ("tradeoff", {"points": "many"}, "invalid-request", "/query/points", ""),
    ("tradeoff", {"speed": "1"}, "invalid-document", "/query/speed", ""),
    ("tradeoff", {"loss": "ce"}, "invalid-options", "/query/loss", ""),
    ("explain", {}, "invalid-options", "/query/capacity", ""),
    ("explain", {"capacity": "1MiB", "training": "yes"}, "invalid-request", "/query/training", ""),
    ("validate", {}, "invalid-request", "/query/plan", ""),
    ("validate", {"plan": "0" * 64}, "plan-not-found", None, ""),
    ("validate", {"plan": "KEPT", "steps": "0"}, "invalid-request", "/query/steps", ""),
    ("validate", {"plan": "KEPT", "capacity": "1MiB"}, "invalid-request", "/query/capacity", ""),
    ("validate", {"plan": "KEPT", "trainable": "last:0"}, "invalid-plan", "/plan", ""),
)


def test_one_problem_says_what_is_wrong(server: Server) -> None:
    kept = post(server, MODEL, **CHOICES).json()["digest"]

    def check(
        task: str, body: bytes, more: dict[str, str], code: str, pointer: str | None, words: str
    ) -> None:
        query = {name: value.replace("KEPT", kept) for name, value in (CHOICES | more).items() if value}
        answer = post(server, body, to=task, **query)
        problem = answer.json()
        assert problem["type"] == f"/problems/{code}", problem
        assert answer.status_code == CATALOGUE[code].status
        assert problem.get("pointer") == pointer, problem
        assert words in f"{problem['detail']} {problem['remedy']}"

    with every() as case:
        for task, more, code, pointer, words in WRONG:
            with case((task, more)):
                check(task, MODEL, more, code, pointer, words)
        for task, name, value in (
            ("plan", "loss", "mse"), ("tradeoff", "points", "2"),
            ("explain", "capacity", "1MiB"), ("validate", "plan", "KEPT"),
        ):  # fmt: skip
            with case(f"{task}: no model"):
                check(task, b"PK\x03\x04", {name: value}, "invalid-document", None, "ONNX (.onnx)")
            with case(f"{task}: half a model"):
                check(task, MODEL[:-100], {name: value}, "invalid-document", "/model", "damaged")


def test_an_option_that_is_given_twice(server: Server) -> None:
    assert post(server, MODEL, loss=["mse", "l1"]).json()["pointer"] == "/query/loss"


@pytest.mark.parametrize("name", ["loss", "capacity", "like", "ties"])
def test_options_of_a_graph_do_not_stand_in_the_query(server: Server, name: str) -> None:
    answer = httpx.post(f"{server.url}/v1/plan", params={name: "1"}, json={"graph": {}}, timeout=60)
    assert (answer.status_code, answer.json()["pointer"]) == (422, f"/query/{name}")
    assert "options" in answer.json()["remedy"]


def test_a_list_is_a_parameter_for_each_value_or_json(server: Server) -> None:
    texts = ["sram=1MiB", "flash=1GiB,read=45MB/s,write=20MB/s"]
    for tiers in (texts, json.dumps(texts)):
        answer = post(server, MODEL, **CHOICES, tiers=tiers)
        assert [tier["name"] for tier in answer.json()["options"]["tiers"]] == ["sram", "flash"]


def test_a_service_reads_no_file_that_a_document_names(server: Server) -> None:
    """A document with weights in a file can be planned; training in it would have to read the file."""
    value = json.loads(documents.dump_graph(graph_of()))
    weight = next(o for o in value["operands"] if o["name"] == "fc.weight")
    weight["initializer"]["file"] = "/etc/passwd"
    made = httpx.post(f"{server.url}/v1/plan", json={"graph": value}, timeout=60)
    assert made.status_code == 200
    answer = httpx.post(f"{server.url}/v1/validate", json={"graph": value, "plan": made.json()}, timeout=60)
    assert answer.status_code == 422
    assert "was not sent" in answer.json()["detail"]
