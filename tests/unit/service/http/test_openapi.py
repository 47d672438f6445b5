"""The OpenAPI document resolves, and its examples are requests that the core accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from service.http.openapi import example
from service.problems import CATALOGUE
from service.settings import Settings
from solver import documents

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (v for k, v in value.items() if k == "$ref" and isinstance(v, str))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def test_references_resolve(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) - known == set()


def test_no_form_of_error_but_problems(document: dict[str, Any]) -> None:
    assert "HTTPValidationError" not in json.dumps(document)
    assert "ProblemDocument" in document["components"]["schemas"]


def test_made_once(app: FastAPI) -> None:
    assert app.openapi() is app.openapi()


def test_paths(document: dict[str, Any]) -> None:
    assert set(document["paths"]) == {
        "/plan", "/v1/plan", "/v1/program", "/v1/plans/{digest}", "/v1/plans/{digest}/{format}",
        "/v1/layout", "/v1/layouts/{digest}", "/v1/validate",
        "/v1/tradeoff", "/v1/explain",
        "/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/{id}/result", "/v1/jobs/{id}/events", "/v1/graphs/{digest}",
        "/healthz", "/readyz", "/metrics", "/v1/schemas", "/v1/schemas/{name}", "/problems/{code}",
    }  # fmt: skip


def test_every_status_is_described(document: dict[str, Any]) -> None:
    for name in ("plan", "v1/plan", "v1/program", "v1/tradeoff", "v1/explain", "v1/layout", "v1/validate"):
        responses = document["paths"][f"/{name}"]["post"]["responses"]
        assert {"200", "400", "413", "415", "422", "503"} <= set(responses), name
        assert all(response["description"] for response in responses.values()), name
    for path in ("/v1/schemas/{name}", "/problems/{code}", "/v1/plans/{digest}"):
        assert "404" in document["paths"][path]["get"]["responses"], path


def test_answers_to_models_describe_their_notes(document: dict[str, Any]) -> None:
    """Those of every route that takes a model, and results of jobs."""
    takes_models = {
        path
        for path, methods in document["paths"].items()
        if "application/onnx" in methods.get("post", {}).get("requestBody", {}).get("content", {})
    }
    assert takes_models >= {"/v1/plan", "/v1/explain", "/v1/tradeoff", "/v1/validate"}
    for path, method in [*((path, "post") for path in takes_models), ("/v1/jobs/{id}/result", "get")]:
        described = document["paths"][path][method]["responses"]["200"]["headers"]
        assert described["Arenaplan-Notes"]["schema"]["type"] == "string"


def test_every_parameter_stands_once_and_is_described(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            parameters = operation.get("parameters", [])
            names = [(parameter["in"], parameter["name"]) for parameter in parameters]
            assert len(names) == len(set(names)), path
            assert all(parameter.get("description") for parameter in parameters), path
            for status, response in operation["responses"].items():
                problems = re.findall(r"`[a-z-]+`", response["description"]) if int(status) >= 400 else []
                assert len(problems) == len(set(problems)), (path, status)


def test_options_are_as_narrow_as_the_service_takes_them(document: dict[str, Any]) -> None:
    """What the document allows is not refused for a name or a range."""
    schemas = document["components"]["schemas"]
    plan, layout = (schemas[f"{kind}RequestOptions"]["properties"] for kind in ("Plan", "Layout"))
    assert {"reference", "onert", "nntrainer"} <= set(plan["target"]["enum"])
    assert set(plan["solver"]["enum"]) == set(layout["solver"]["enum"]) >= {"portfolio", "greedy", "cp-sat"}
    for options in (plan, layout):
        seconds, _ = options["deadline_seconds"]["anyOf"]
        assert seconds["maximum"] == Settings().deadline_max_seconds
        numbers, _ = options["alignment"]["anyOf"]
        assert numbers["enum"][0] == 1
        for alignment in (numbers["enum"][-1], numbers["enum"][-2]):
            documents.load_layout_options({"alignment": alignment})
    for update in plan["update"]["enum"]:
        documents.load_options({"update": update})
    assert schemas["ValidateRequest"]["properties"]["steps"]["maximum"] == Settings().validate_max_steps


def test_problems_named_in_the_document_exist(document: dict[str, Any]) -> None:
    named = set(re.findall(r"`([a-z-]+)` [A-Z]", json.dumps(document["paths"])))
    assert named
    assert named - set(CATALOGUE) == set()


def test_examples_are_those_of_the_project(document: dict[str, Any]) -> None:
    """That every one of them is answered is tested with a server."""
    assert example("mnist")["graph"] == json.loads((ROOT / "examples/mnist.json").read_bytes())
    momentum = (ROOT / "examples/programs/momentum.json").read_bytes()
    assert example("momentum")["program"] == json.loads(momentum)
    for path, names in (("/plan", {"tiny", "mnist"}), ("/v1/program", {"momentum", "parallel"})):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert names <= set(body["examples"])
