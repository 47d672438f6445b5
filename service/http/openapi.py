"""Parts of the OpenAPI document that routes share, and parts that FastAPI cannot derive.

Routes read their bodies themselves, in workers, so their decorators describe them with functions from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.auth.principal import needed_scope
from service.http import schemas
from service.http.bodies import MODEL_TYPES
from service.http.examples import named_examples
from service.jobs.query import NOTES_HEADER
from service.jobs.requests import KINDS
from service.problems import CATALOGUE, MEDIA_TYPE
from service.settings import Settings
from solver.documents.fields import MAX_INTEGER, NO_CONTROL
from solver.documents.options import ImportFields
from solver.documents.rows import RowSchemas
from solver.options import DEPLOYMENT_OPTIONS, IMPORT_OPTIONS, REQUEST_OPTIONS, Option, Result

__all__ = [
    "ANY_BYTES", "ANY_PROBLEM", "NOTES", "NOT_MODIFIED", "READING_PROBLEMS", "STORE_PROBLEMS", "answer",
    "computed", "content", "install", "job_answer", "model_body", "named", "problems", "request_body",
]  # fmt: skip

_REFERENCES: Final = "#/components/schemas/{model}"

#: Problems of every route that takes a document.
ANY_PROBLEM: Final = (
    "invalid-json", "bad-request", "invalid-request", "invalid-document", "body-too-large",
    "unsupported-media-type", "too-many-bytes", "overloaded",
    "stopping", "worker-lost", "time-limit", "memory-limit", "too-many-jobs", "database-unavailable",
)  # fmt: skip
#: Problems of every route that reads a graph.
READING_PROBLEMS: Final = (
    *ANY_PROBLEM, "invalid-graph", "unknown-operator", "invalid-attribute", "shape-mismatch",
    "invalid-dimension", "invalid-batch", "cyclic-graph", "use-before-def", "duplicate-def",
    "duplicate-name", "dangling-operand", "invalid-trainable", "invalid-loss", "invalid-state",
    "invalid-storage", "too-many-operations", "invalid-options",
)  # fmt: skip
#: Problems of every route that asks the database.
STORE_PROBLEMS: Final = ("jobs-off", "database-unavailable", "stopping")

NOT_MODIFIED: Final = {"description": "What If-None-Match names is still the answer."}

NOTES: Final[dict[str, Any]] = {
    NOTES_HEADER: {
        "description": "Notes on the import of a model, such as which tensors are not trained: a JSON array"
        " of sentences in ASCII. If they are too long, the last one says how many are left out.",
        "schema": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"type": "array", "items": {"type": "string"}},
        },
    }
}

_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}


def named(*names: str) -> dict[str, Any]:
    """References to examples in `service.http.examples.named_examples`."""
    return {name: {"$ref": f"#/components/examples/{name}"} for name in names}


def _reference(*models: type[BaseModel]) -> dict[str, Any]:
    """The schema of one of the models, from pydantic: FastAPI's own has floats for integers, and no default
    null.
    """
    references = [{"$ref": _REFERENCES.format(model=model.__name__)} for model in models]
    return {"anyOf": references} if len(references) > 1 else references[0]


def content(example_name: str, media_type: str = "application/json", **schema: Any) -> dict[str, Any]:
    """The content of an answer that has no model; `schema` are the fields of its schema."""
    return {media_type: {"schema": schema, "examples": named(example_name)}}


def answer(
    models: type[BaseModel] | tuple[type[BaseModel], ...], description: str, *example_names: str, **more: Any
) -> dict[str, Any]:
    """An answer in JSON, as one of the models describes it."""
    described = _reference(*models) if isinstance(models, tuple) else _reference(models)
    shown = {"schema": described, "examples": named(*example_names)}
    return {"description": description, "content": {"application/json": shown}, **more}


def job_answer(description: str) -> dict[str, Any]:
    """An answer with a job."""
    headers = {
        "Location": {"description": "The job.", "schema": {"type": "string"}},
        "Retry-After": {"description": "Seconds until it is worth asking.", "schema": {"type": "string"}},
    }
    return answer(schemas.JobDocument, description, "job", headers=headers)


def problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The answers with these problems, by status."""
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CATALOGUE[code].status, []).append(f"`{code}` {CATALOGUE[code].title}")
    described = {MEDIA_TYPE: {"schema": _reference(schemas.ProblemDocument)}}
    return {
        status: {"description": "; ".join(lines) + ".", "content": described}
        for status, lines in by_status.items()
    }


def request_body(model: type[BaseModel], *example_names: str) -> dict[str, Any]:
    """A body in JSON."""
    shown = {"schema": _reference(model), "examples": named(*example_names)}
    return {"required": True, "content": {"application/json": shown}}


def model_body(model: type[BaseModel], *example_names: str) -> dict[str, Any]:
    """A body in JSON, or the bytes of a model."""
    body = request_body(model, *example_names)
    body["content"] |= dict.fromkeys(MODEL_TYPES, _BINARY)
    body["description"] = (
        "JSON, or the bytes of a model of another tool. Only a model takes a query: JSON has options inside."
    )
    return body


#: A graph or a model, as it is stored.
ANY_BYTES: Final = {**content("graph", type="object"), **dict.fromkeys(MODEL_TYPES, _BINARY)}


def computed(
    task: str, summary: str, body: dict[str, Any], made: dict[str, Any], *codes: str
) -> dict[str, Any]:
    """The arguments of the decorator of the route of a task; `codes` are the problems it may answer.

    An answer that is kept has an entity tag. With the header Prefer each of them can become a job. A posted
    model has its options, and members of the task, as parameters of the query.
    """
    prefer = {
        "name": "Prefer",
        "in": "header",
        "schema": {"type": "string"},
        "description": "`respond-async, wait=N`: without an answer in N seconds a job goes on (RFC 7240).",
    }
    later = job_answer("Not answered in time, as was asked for: the job that goes on.")
    unchanged: dict[int | str, Any] = {304: NOT_MODIFIED} if KINDS[task].collection else {}
    return {
        "summary": summary,
        "responses": {200: made, 202: later, **unchanged, **problems(*codes)},
        "openapi_extra": {"requestBody": body, "parameters": [prefer, *_query(task)]},
    }


#: The result of a posted model, by the task.
_RESULTS: Final[Mapping[str, Result]] = {
    "plan": "plan", "tradeoff": "curve", "explain": "verdict", "validate": "validation",
}  # fmt: skip
_REQUESTS: Final = (
    "PlanRequest",
    "PlanRequestOptions",
    "TradeOffRequest",
    "ExplainRequest",
    "ValidateRequest",
)
#: Options of a posted model. Its dimensions have `dim`, which takes their names and places.
_OPTIONS: Final[Mapping[str, Option]] = {
    **IMPORT_OPTIONS,
    **{name: option for name, option in REQUEST_OPTIONS.items() if name != "dims"},
    **DEPLOYMENT_OPTIONS,
}


def _query(task: str) -> list[dict[str, str]]:
    """References to the parameters that a model takes beside its body."""
    options = [name for name, option in _OPTIONS.items() if _RESULTS.get(task) in option.changes]
    names = (*options, *_members(task)) if task in _RESULTS else ()
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _members(task: str) -> list[str]:
    """What the query of a posted model has beside options: members of the request in JSON."""
    elsewhere = {"graph", "models", "options", *DEPLOYMENT_OPTIONS}
    return [name for name in KINDS[task].required + KINDS[task].optional if name not in elsewhere]


def _parameters(models: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter of a posted model by name, as the models of JSON requests describe it."""
    declared = ImportFields.model_json_schema()["properties"]
    for model in _REQUESTS:
        declared |= models[model]["properties"]
    parameters: dict[str, Any] = {}
    schema: dict[str, Any]
    for name in (*_OPTIONS, *(name for task in _RESULTS for name in _members(task))):
        option, text, explode = _OPTIONS.get(name), declared[name]["description"], {}
        if name in ("like", "plan"):
            schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
            text += " The digest of a plan that this service keeps."
        elif option is not None and option.kind == "measures":
            schema = {"type": "array", "items": {"type": "string", "enum": [*option.words]}}
            explode = {"explode": False}  # one parameter, with commas
        elif option is not None and option.is_list:
            schema = {"type": "array", "items": {"type": "string"}}
        else:
            schema = _text_or_number(declared[name])
        if option is not None:
            schema["examples"] = [option.example]
        parameters[name] = {"name": name, "in": "query", "description": text, **explode, "schema": schema}
    return parameters


_BOUNDS: Final = ("type", "enum", "minimum", "maximum", "pattern")
#: What every number and every text keeps.
_NO_BOUNDS: Final = (MAX_INTEGER, -MAX_INTEGER - 1, NO_CONTROL)


def _text_or_number(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without what a query does not have: null, objects, lists, and defaults, which are left out.

    Objects and lists are JSON in a query.
    """
    choices = schema.get("anyOf", [schema])
    simple = [
        {key: value for key, value in choice.items() if key in _BOUNDS and value not in _NO_BOUNDS}
        for choice in choices
        if choice.get("type") in ("string", "integer", "number", "boolean")
    ]
    others = [choice for choice in choices if choice.get("type") != "null"]
    if len(simple) < len(others) and not any(set(choice) <= {"type", "pattern"} for choice in simple):
        return {"type": "string"}
    return simple[0] if len(simple) == 1 else {"anyOf": simple}


def install(app: FastAPI, settings: Settings) -> None:
    """Make `app.openapi` include examples, scopes, and the models, as strict as `settings` are."""
    generate = app.openapi

    def complete() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            components = document["components"]
            _secure(document, settings)
            _drop_foreign_errors(document)
            _, definitions = models_json_schema(
                [(model, "validation") for model in schemas.MODELS],
                ref_template=_REFERENCES,
                schema_generator=RowSchemas,
            )
            components["schemas"].update(definitions["$defs"])
            schemas.narrow(components["schemas"], settings)
            components["examples"] = named_examples()
            components["parameters"] = _parameters(components["schemas"])
        return app.openapi_schema or document

    app.openapi = complete  # type: ignore[method-assign]  # FastAPI's documented way to extend it


def _secure(document: dict[str, Any], settings: Settings) -> None:
    """Describe the scope that each operation needs, and the refusals of `service.http.access`."""
    document["components"]["securitySchemes"] = {
        "bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "An API key (`ap_...`) or a token of the identity provider, where the service was "
            "started with ARENAPLAN_AUTH. The scope of an operation stands in its requirement.",
        }
    }
    for path, methods in document["paths"].items():
        scope = needed_scope(path)
        for operation in methods.values() if scope else ():
            if settings.auth != "off":
                operation["security"] = [{"bearer": [scope]}]
            for status, refusal in problems("unauthorized", "forbidden", "quota").items():
                known = operation["responses"].get(str(status))
                if known is not None:
                    before = known["description"].removesuffix(".")
                    refusal = {**known, "description": f"{before}; {refusal['description']}"}
                operation["responses"][str(status)] = refusal


def _drop_foreign_errors(document: dict[str, Any]) -> None:
    """The framework describes validation errors in a form that this service never sends."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for methods in document["paths"].values():
        for operation in methods.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
