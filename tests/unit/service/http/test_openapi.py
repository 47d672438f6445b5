"""The OpenAPI document resolves, and its examples are requests that the core accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from service.http import schemas
from service.http.examples import example
from service.problems import CATALOGUE
from service.settings import Settings
from solver import documents
from solver.version import version

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


#: Operations are named by a verb, and by what it does something to.
VERBS = {
    "cancel", "delete", "explain", "export", "get", "list", "place", "plan", "store", "stream", "submit",
    "tradeoff", "validate",
}  # fmt: skip


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def shown(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    """The values of the examples of one media type."""
    names = [one["$ref"].rpartition("/")[2] for one in content.get("examples", {}).values()]
    return [document["components"]["examples"][name]["value"] for name in names]


def check(content: dict[str, Any], values: list[Any]) -> None:
    """Each value is what the schema says."""
    models = {model.__name__: model for model in schemas.MODELS}
    model = models.get(content["schema"].get("$ref", "").rpartition("/")[2])
    for value in values:
        if model is not None:
            model.model_validate(value)
        if content["schema"].get("type") in ("object", "string"):
            assert isinstance(value, {"object": dict, "string": str}[content["schema"]["type"]])


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (v for k, v in value.items() if k == "$ref" and isinstance(v, str))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def parameter_of(document: dict[str, Any], parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter that an operation names, or has itself."""
    name = parameter.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = document["components"]["parameters"].get(name, parameter)
    return found


def test_references_resolve(document: dict[str, Any]) -> None:
    known = {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "examples", "parameters")
        for name in document["components"][kind]
    }
    assert set(references(document)) - known == set()
    assert "prefixItems" not in json.dumps(document)  # generators of clients drop what has them


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
            parameters = [parameter_of(document, one) for one in operation.get("parameters", [])]
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


def test_what_to_send_first_comes_first(document: dict[str, Any]) -> None:
    """With its examples; the text says so, and how to get a key, and what the version promises."""
    assert next(iter(document["paths"])) == "/plan"
    first = document["paths"]["/plan"]["post"]
    assert first["tags"] == [document["tags"][0]["name"]]
    assert list(first["requestBody"]["content"]["application/json"]["examples"])[:2] == ["tiny", "mnist"]
    text = document["info"]["description"]
    assert text.index("`POST /plan` with the example `tiny`") < text.index("arenaplan keys create --name")
    assert "Authorization: Bearer ap_" in text
    assert document["info"]["version"] == version()
    assert document["info"]["license"]["identifier"] == "Apache-2.0"


def test_every_tag_has_a_text(document: dict[str, Any]) -> None:
    texts = {tag["name"]: tag["description"] for tag in document["tags"]}
    assert all(texts.values())
    assert {tag for _, operation in operations(document) for tag in operation["tags"]} == set(texts)


def test_operation_ids_are_names_for_methods(document: dict[str, Any]) -> None:
    """Unique, in snake case, each begins with a verb, and none repeats its path or method."""
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for name in ids:
        assert re.fullmatch(r"[a-z]+(_[a-z]+){0,2}", name)
        assert name.split("_")[0] in VERBS
        assert not {"v1", "post", "put"} & set(name.split("_"))


def test_every_request_has_an_example(document: dict[str, Any]) -> None:
    bodies = 0
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        if "requestBody" not in operation:
            continue
        content = operation["requestBody"]["content"]["application/json"]
        values = shown(document, content)
        assert values, name
        check(content, values)
        bodies += 1
    assert bodies == 9


def test_every_digest_and_id_has_an_example(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for one in operation.get("parameters", []):
            parameter = parameter_of(document, one)
            if parameter["in"] == "path" and parameter["name"] != "format":
                assert shown(document, parameter), name


def test_every_success_has_an_example(document: dict[str, Any]) -> None:
    """In one media type at least, and always in JSON; a 201 or 204 says nothing."""
    successes = 0
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            if not status.startswith("2") or status in ("201", "204"):
                continue
            contents = response["content"].values()
            assert any(shown(document, content) for content in contents), (name, status)
            for content in contents:
                assert not content.get("schema", {}).get("$ref") or shown(document, content), (name, status)
                if shown(document, content):
                    check(content, shown(document, content))
            successes += 1
    assert successes > 25
