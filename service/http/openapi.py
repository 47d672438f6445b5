"""The parts of the OpenAPI document that FastAPI cannot know: bodies, examples, problems, scopes.

Routes read their bodies themselves, in workers, so their decorators take the descriptions from here.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from fastapi import FastAPI, Response
from pydantic.json_schema import models_json_schema

from service.auth.principal import needed_scope
from service.http.bodies import MODEL_TYPES
from service.http.schemas import (
    ExplainRequest,
    JobDocument,
    JobRequest,
    JobsDocument,
    LayoutRequest,
    PlanRequest,
    ProblemDocument,
    ProgramRequest,
    TradeOffRequest,
    ValidateRequest,
)
from service.jobs.notes import NOTES_HEADER
from service.problems import CATALOGUE, MEDIA_TYPE
from service.settings import Settings
from solver import documents, pipeline
from solver.documents import LayoutDocument, PlanDocument, ReportDocument, TradeOffDocument, VerdictDocument
from solver.exporters import EXPORTERS
from solver.layout import SOLVERS
from solver.options import IMPORT_OPTIONS

_REFERENCES: Final = "#/components/schemas/{model}"
_MODELS: Final = (
    PlanRequest, ProgramRequest, TradeOffRequest, ExplainRequest, LayoutRequest, ValidateRequest,
    PlanDocument, TradeOffDocument, VerdictDocument, LayoutDocument, ReportDocument, ProblemDocument,
    JobRequest, JobDocument, JobsDocument,
)  # fmt: skip


@cache
def example(name: str) -> Any:
    """A request body that runs as it is; `name` is a file of `service/http/web/examples`."""
    return json.loads(files("service.http.web").joinpath("examples", f"{name}.json").read_bytes())


def _reference(model: str) -> dict[str, str]:
    return {"$ref": _REFERENCES.format(model=model)}


def _body(model: str, examples: dict[str, Any]) -> dict[str, Any]:
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _reference(model), "examples": examples}},
        }
    }


def _body_or_model(model: str, examples: dict[str, Any]) -> dict[str, Any]:
    """JSON, or the bytes of a model with parameters in the query."""
    body = _body(model, examples)
    binary = {"schema": {"type": "string", "format": "binary"}}
    body["requestBody"]["content"] |= dict.fromkeys(MODEL_TYPES, binary)
    options = "\n".join(f"* `{option.name}`: {option.help}" for option in IMPORT_OPTIONS.values())
    body["requestBody"]["description"] = (
        "JSON, or the bytes of a model of another tool. These parameters of the query say how it is trained:"
        f"\n\n{options}"
    )
    return body


def _document(model: str, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _reference(model)}}}


_NOTES: Final[dict[str, Any]] = {
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


def _problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(CATALOGUE[code].status, []).append(f"`{code}` {CATALOGUE[code].title}")
    content = {MEDIA_TYPE: {"schema": _reference("ProblemDocument")}}
    return {
        status: {"description": "; ".join(lines) + ".", "content": content}
        for status, lines in by_status.items()
    }


_ANY: Final = (
    "invalid-json", "bad-request", "invalid-request", "invalid-document", "body-too-large",
    "unsupported-media-type", "request-timeout", "too-many-bytes", "headers-too-large", "overloaded",
    "stopping", "worker-lost", "time-limit", "memory-limit", "too-many-jobs", "database-unavailable",
)  # fmt: skip
_READING: Final = (
    *_ANY, "invalid-graph", "unknown-operator", "invalid-attribute", "shape-mismatch",
    "invalid-dimension", "invalid-batch", "cyclic-graph", "use-before-def", "duplicate-def",
    "duplicate-name", "dangling-operand", "invalid-trainable", "invalid-loss", "invalid-state",
    "too-many-operations",
)  # fmt: skip

_NOT_MODIFIED: Final = {"description": "What If-None-Match names is still the answer."}


def _route(
    summary: str, answer: dict[str, Any], *codes: str, unchanged: bool = False, **more: Any
) -> dict[str, Any]:
    """The arguments of a route's decorator; `codes` are the problems that it may answer."""
    responses: dict[int | str, dict[str, Any]] = {200: answer, **_problems(*codes)}
    if unchanged:
        responses[304] = _NOT_MODIFIED
    return {"summary": summary, "responses": responses, **more}


PLAN_ROUTE: Final = _route(
    "Plan a training graph",
    {**_document("PlanDocument", "The plan; its digest is the entity tag."), "headers": _NOTES},
    *_READING, "invalid-options", "invalid-problem", "capacity-exceeded",
    unchanged=True,
    openapi_extra=_body_or_model(
        "PlanRequest",
        {
            "tiny": {"summary": "A two-layer perceptron", "value": example("tiny")},
            "mnist": {"summary": "mnist: four convolutions, batch 32, Adam", "value": example("mnist")},
        },
    ),
)  # fmt: skip

PROGRAM_ROUTE: Final = _route(
    "Plan explicit operations",
    _document("PlanDocument", "The plan; its digest is the entity tag."),
    *_ANY, "invalid-graph", "use-before-def", "duplicate-name", "dangling-operand", "invalid-dimension",
    "too-many-operations", "invalid-options", "invalid-problem", "capacity-exceeded",
    unchanged=True,
    openapi_extra=_body(
        "ProgramRequest",
        {
            "momentum": {
                "summary": "A linear layer with momentum: two blocks carry over",
                "value": example("momentum"),
            },
            "parallel": {
                "summary": "Two independent pairs of operations, two of them at the same time",
                "value": example("parallel"),
            },
        },
    ),
)  # fmt: skip

STORED_PLAN_ROUTE: Final = _route(
    "A plan by its digest", _document("PlanDocument", "The plan."), "plan-not-found", unchanged=True
)

EXPORT_ROUTE: Final = _route(
    "A plan as another file",
    {
        "description": "The file.",
        "content": {media: {} for media in ("application/json", *(e.media_type for e in EXPORTERS.values()))},
    },
    "plan-not-found", "not-found", "invalid-request", "invalid-options", "overloaded", "worker-lost",
    "time-limit",
    unchanged=True,
    response_class=Response,
)  # fmt: skip

TRADEOFF_ROUTE: Final = _route(
    "Costs of smaller peaks",
    {**_document("TradeOffDocument", "The curve."), "headers": _NOTES},
    *_READING,
    "invalid-options",
    openapi_extra=_body_or_model(
        "TradeOffRequest",
        {"mnist": {"summary": "mnist, six points", "value": {**example("mnist"), "points": 6}}},
    ),
)

EXPLAIN_ROUTE: Final = _route(
    "Whether a capacity is enough, and what makes it so",
    {**_document("VerdictDocument", "The verdict."), "headers": _NOTES},
    *_READING,
    "invalid-options",
    openapi_extra=_body_or_model(
        "ExplainRequest",
        {
            "mnist": {
                "summary": "mnist in 16.6 MB",
                "value": {"graph": example("mnist")["graph"], "options": {"capacity": "16.6MB"}},
            }
        },
    ),
)

VALIDATE_ROUTE: Final = _route(
    "Train in a plan and compare",
    {**_document("ReportDocument", "The comparison, step by step."), "headers": _NOTES},
    *_READING, "invalid-options", "invalid-plan", "plan-not-found", "validation-too-large",
    openapi_extra=_body_or_model("ValidateRequest", {}),
)  # fmt: skip

LAYOUT_ROUTE: Final = _route(
    "Place buffers with known lifespans",
    _document("LayoutDocument", "The layout; its digest is the entity tag."),
    *_ANY, "too-many-buffers", "invalid-options", "invalid-problem", "capacity-exceeded",
    unchanged=True,
    openapi_extra=_body(
        "LayoutRequest",
        {"buffers": {"summary": "Five buffers that just fit 12 bytes", "value": example("buffers")}},
    ),
)  # fmt: skip

STORED_LAYOUT_ROUTE: Final = _route(
    "A layout by its digest", _document("LayoutDocument", "The layout."), "layout-not-found", unchanged=True
)

HEALTH_ROUTE: Final[dict[str, Any]] = {
    "summary": "Is the process up?",
    "responses": {
        200: {"description": "It is."},
        503: {"description": "The workers are supervised no more: restart the process."},
    },
}

READY_ROUTE: Final[dict[str, Any]] = {
    "summary": "Can it plan?",
    "responses": {
        200: {"description": "It can."},
        503: {"description": "Not yet, not now, or not any more; `status` says which."},
    },
}

METRICS_ROUTE: Final = _route(
    "Metrics in Prometheus's text format",
    {"description": "One sample a line.", "content": {"text/plain": {"schema": {"type": "string"}}}},
    "not-found",
    response_class=Response,
)

SCHEMA_ROUTE: Final = _route(
    "A JSON Schema",
    {"description": "The schema.", "content": {"application/schema+json": {"schema": {"type": "object"}}}},
    "not-found",
)

PROBLEM_ROUTE: Final = _route(
    "What a problem type means",
    {
        "description": "Type, title, status and explanation.",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/html": {}},
    },
    "not-found",
)

_STORED: Final = ("jobs-off", "database-unavailable", "stopping")
_PREFER: Final = {
    "name": "Prefer", "in": "header", "schema": {"type": "string"},
    "description": "`respond-async, wait=N`: if no answer comes within N seconds, a job goes on (RFC 7240).",
}  # fmt: skip


def _job(description: str) -> dict[str, Any]:
    headers = {
        "Location": {"description": "The job.", "schema": {"type": "string"}},
        "Retry-After": {"description": "Seconds until it is worth asking.", "schema": {"type": "string"}},
    }
    return {**_document("JobDocument", description), "headers": headers}


SUBMIT_ROUTE: Final = _route(
    "Accept a job",
    _job("The job that was accepted for this Idempotency-Key, and is finished."),
    "invalid-json", "bad-request", "invalid-request", "body-too-large", "unsupported-media-type",
    "request-timeout", "too-many-bytes", "headers-too-large", "overloaded", "graph-not-found",
    "webhook-refused", "idempotency-conflict", "too-many-jobs", *_STORED,
    status_code=202,
    openapi_extra=_body(
        "JobRequest",
        {
            "tiny": {
                "summary": "A plan, as a job",
                "value": {"task": "plan", "request": {"graph": example("tiny")["graph"]}},
            }
        },
    ),
)  # fmt: skip
SUBMIT_ROUTE["responses"][202] = _job("The job.")

JOBS_ROUTE: Final = _route(
    "Jobs, the newest first", _document("JobsDocument", "A page of jobs."), "invalid-request", *_STORED
)

JOB_ROUTE: Final = _route("A job", _job("The job as it is now."), "job-not-found", *_STORED)

RESULT_ROUTE: Final = _route(
    "The result of a job",
    {
        "description": "The answer of the synchronous route; of an import, a graph document.",
        "headers": _NOTES,
        "content": {"application/json": {"schema": {"type": "object"}}},
    },
    "job-not-found", "job-not-finished", "job-cancelled", "job-expired", *_READING, "invalid-options",
    "storage-unavailable", "invalid-problem", "capacity-exceeded", "invalid-plan", "validation-too-large",
    "too-many-buffers", "internal-error", *_STORED,
    unchanged=True,
    response_class=Response,
)  # fmt: skip

CANCEL_ROUTE: Final = _route(
    "Cancel a job", _job("The job, which has ended, now or before."), "job-not-found", *_STORED
)
CANCEL_ROUTE["responses"][202] = _job("The job, which is being ended.")

#: One event of the stream. OpenAPI 3.1 has no word for the items of a stream: the schema is that of each.
_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "An event as its fields; the stream has one after the other.",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"enum": ["state", "progress", "end"], "description": "What is new; `end` is the last."},
        "id": {"type": "string", "pattern": "^[0-9]+$", "description": "For Last-Event-ID."},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": _reference("JobDocument"),
            "description": "The document of the job.",
        },
    },
}

EVENTS_ROUTE: Final = _route(
    "News of a job",
    {
        "description": "Server-sent events, each with the document of the job as its data.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    },
    "job-not-found", "invalid-request", *_STORED,
    response_class=Response,
)  # fmt: skip

_ANY_BYTES: Final[dict[str, Any]] = {
    "application/json": {"schema": {}},
    **{media: {"schema": {"type": "string", "format": "binary"}} for media in MODEL_TYPES},
}

STORE_GRAPH_ROUTE: Final[dict[str, Any]] = {
    "summary": "Store a graph or a model",
    "status_code": 201,
    "response_class": Response,
    "responses": {
        201: {"description": "It is stored."},
        204: {"description": "It was stored already, and its time begins again."},
        **_problems(
            "digest-mismatch", "bad-request", "body-too-large", "unsupported-media-type", "request-timeout",
            "too-many-bytes", "headers-too-large", "overloaded", *_STORED,
        ),
    },
    "openapi_extra": {"requestBody": {"required": True, "content": _ANY_BYTES}},
}  # fmt: skip

GRAPH_ROUTE: Final = _route(
    "A stored graph",
    {"description": "Its bytes.", "content": _ANY_BYTES},
    "graph-not-found",
    *_STORED,
    unchanged=True,
    response_class=Response,
)

DELETE_GRAPH_ROUTE: Final[dict[str, Any]] = {
    "summary": "Forget a graph",
    "status_code": 204,
    "response_class": Response,
    "responses": {204: {"description": "It is forgotten."}, **_problems("graph-not-found", *_STORED)},
}


def _validate_example() -> dict[str, Any]:
    """The small graph with its plan, planned here so that it is never out of date."""
    graph = example("tiny")["graph"]
    plan = pipeline.plan(documents.load_graph(graph), documents.load_options({"solver": "greedy"}))
    return {"graph": graph, "plan": json.loads(documents.dump_plan(plan)), "steps": 5}


def _narrow(schemas: dict[str, Any], settings: Settings) -> None:
    """Narrow options to the values that this service takes, where documents say only text or number."""
    powers = [1 << power for power in range(21)]
    alignment = {"anyOf": [{"type": "integer", "enum": powers}, {"type": "null"}]}
    seconds = {"type": "number", "minimum": 0, "maximum": settings.deadline_max_seconds}
    deadline = {"anyOf": [seconds, {"type": "null"}]}
    solver = {"enum": sorted(SOLVERS)}
    narrower: dict[str, dict[str, dict[str, Any]]] = {
        "PlanRequestOptions": {
            "target": {"enum": sorted({*pipeline.TARGETS, pipeline.PROGRAM})},
            "solver": solver,
            "update": {"enum": ["end", "immediate"]},
            "alignment": alignment,
            "deadline_seconds": deadline,
        },
        "LayoutRequestOptions": {
            "solver": solver,
            "alignment": alignment,
            "deadline_seconds": deadline,
            "target_gap": {"exclusiveMaximum": 1_000_000},
        },
        "ValidateRequest": {"steps": {"maximum": settings.validate_max_steps}},
    }
    for model, properties in narrower.items():
        for name, more in properties.items():
            schemas[model]["properties"][name].update(more)


#: Descriptions of the parameters in paths, by the path up to each.
_PLACES: Final = {
    "/v1/plans/{digest}": "Digest of a plan: its `digest`, and the entity tag of the answer that had it.",
    "/v1/plans/{digest}/{format}": f"One of {', '.join(EXPORTERS)}, or difference.",
    "/v1/layouts/{digest}": "Digest of a layout: the entity tag of the answer that had it.",
    "/v1/graphs/{digest}": "SHA-256 of the bytes, as 64 hexadecimal digits in lower case.",
    "/v1/jobs/{id}": "The `id` of a job.",
    "/v1/schemas/{name}": "A name that `/v1/schemas` lists, as graph.",
    "/problems/{code}": "What is behind `/problems/` in the type of a problem, as shape-mismatch.",
}


def _describe_places(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    before, name, _ = path.partition(f"{{{parameter['name']}}}")
                    parameter["description"] = _PLACES[before + name]
    stored = document["paths"]["/v1/graphs/{digest}"]["put"]["parameters"]
    stored[0]["schema"]["pattern"] = "^[0-9a-f]{64}$"


def _drop_foreign_errors(document: dict[str, Any]) -> None:
    """The framework describes validation errors in a form that this service never sends."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for methods in document["paths"].values():
        for operation in methods.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]


def _may_respond_later(document: dict[str, Any]) -> None:
    """Describe the header with which every route that computes can be turned into a job."""
    for path in ("plan", "v1/plan", "v1/program", "v1/layout", "v1/tradeoff", "v1/explain", "v1/validate"):
        route = document["paths"][f"/{path}"]["post"]
        route["parameters"] = [*route.get("parameters", []), _PREFER]
        route["responses"]["202"] = _job("Not answered in time, as was asked for: the job that goes on.")


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
            for status, refusal in _problems("unauthorized", "forbidden", "quota").items():
                known = operation["responses"].get(str(status))
                if known is not None:
                    before = known["description"].removesuffix(".")
                    refusal = {**known, "description": f"{before}; {refusal['description']}"}
                operation["responses"][str(status)] = refusal


def install(app: FastAPI, settings: Settings) -> None:
    """Make `app.openapi` include the models that the routes refer to, as strict as `settings` are."""
    generate = app.openapi

    def complete() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            _secure(document, settings)
            _, definitions = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template=_REFERENCES
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(definitions["$defs"])
            _narrow(schemas, settings)
            _drop_foreign_errors(document)
            _describe_places(document)
            _may_respond_later(document)
            body = document["paths"]["/v1/validate"]["post"]["requestBody"]["content"]["application/json"]
            body["examples"] = {
                "tiny": {"summary": "The perceptron in its plan", "value": _validate_example()}
            }
        return app.openapi_schema or document

    app.openapi = complete  # type: ignore[method-assign]  # FastAPI's documented way to extend it
