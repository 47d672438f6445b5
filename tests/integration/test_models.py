"""ONNX models sent to the real process: planned like graphs, and refused with what is wrong."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest

from solver import documents
from solver.importers.onnx import load_onnx
from solver.importers.options import import_options
from tests.support.onnx_models import model_of, node
from tests.support.server import Server

MODEL = model_of(
    [node("MatMul", ["x", "fc.weight"], ["y"])],
    {"x": ("batch", 30)},
    {"fc.weight": np.random.default_rng(1).standard_normal((30, 20)).astype(np.float32)},
).SerializeToString()

CHOICES = {"loss": "mse", "optimizer": "adam", "dim": "batch=4"}


def post(server: Server, body: bytes, media_type: str = "application/onnx", **query: str) -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1/plan", content=body, params=query, headers={"content-type": media_type}, timeout=60
    )


@pytest.mark.parametrize("media_type", ["application/onnx", "application/octet-stream"])
def test_a_model_is_planned(server: Server, media_type: str) -> None:
    answer = post(server, MODEL, media_type, **CHOICES, capacity="1MiB", in_place="true")
    assert answer.status_code == 200, answer.text
    made = documents.load_plan(answer.content)
    assert made.options.capacity == 2**20
    assert made.options.in_place
    graph = load_onnx(MODEL, options=import_options({**CHOICES, "dim": ["batch=4"]})).graph
    assert made.graph_digest == documents.graph_digest(graph)
    kept = httpx.get(server.url + answer.headers["content-location"], timeout=60)
    assert kept.content == answer.content
    assert (
        post(server, MODEL, media_type, **CHOICES, capacity="1MiB", in_place="true").headers["x-cache"]
        == "hit"
    )


@pytest.mark.parametrize(
    ("body", "query", "code", "said"),
    [
        (MODEL, {"loss": "ce"}, "invalid-options", "cross-entropy"),
        (MODEL, {"loss": "mse"}, "invalid-dimension", "--dim batch=SIZE"),
        (MODEL, {**CHOICES, "capacity": "much"}, "invalid-document", "capacity"),
        (MODEL, {**CHOICES, "speed": "1"}, "invalid-document", "speed"),
        (MODEL, {**CHOICES, "trainable": "head"}, "invalid-trainable", "fc.weight"),
        (MODEL, {**CHOICES, "capacity": "1KiB"}, "capacity-exceeded", "1,024"),
        (MODEL[:-100], CHOICES, "invalid-document", "damaged"),
        (b"PK\x03\x04", CHOICES, "invalid-document", "ONNX (.onnx)"),
    ],
)
def test_what_is_wrong_with_a_model(
    server: Server, body: bytes, query: dict[str, str], code: str, said: str
) -> None:
    answer = post(server, body, **query)
    problem = answer.json()
    assert problem["type"] == f"/problems/{code}", problem
    assert said in f"{problem['detail']} {problem['remedy']}"


def test_an_option_that_is_given_twice(server: Server) -> None:
    url = f"{server.url}/v1/plan?loss=mse&loss=l1"
    answer = httpx.post(url, content=MODEL, headers={"content-type": "application/onnx"}, timeout=60)
    assert answer.json()["pointer"] == "/query/loss"


def test_a_service_reads_no_file_that_a_document_names(server: Server) -> None:
    """A document with weights in a file can be planned; training in it would have to read the file."""
    graph = load_onnx(MODEL, options=import_options({**CHOICES, "dim": ["batch=4"]})).graph

    value = json.loads(documents.dump_graph(graph))
    weight = next(o for o in value["operands"] if o["name"] == "fc.weight")
    weight["initializer"]["file"] = "/etc/passwd"
    made = httpx.post(f"{server.url}/v1/plan", json={"graph": value}, timeout=60)
    assert made.status_code == 200
    answer = httpx.post(f"{server.url}/v1/validate", json={"graph": value, "plan": made.json()}, timeout=60)
    assert answer.status_code == 422
    assert "was not sent" in answer.json()["detail"]
