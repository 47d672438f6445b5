"""Requests that run as they are, and answers to them: the examples of the OpenAPI document."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from service.jobs.model import Job, State, job_document
from service.problems import CATALOGUE
from solver import documents, executor, exporters, pipeline, placement
from solver.plan import RequestedOptions

__all__ = ["example", "named_examples"]

_JOB = "01a216090a5d3eebc89935bf315f18f6"
#: The fifth of January 2026, 9:00 UTC, in seconds since 1970.
_MOMENT = 1_767_603_600.0
_SAMPLE = 'arenaplan_requests_total{method="POST",route="/v1/plan",status="200"} 1.0\n'


@cache
def example(name: str) -> Any:
    """The JSON value of a file of `service/http/web/examples`, by its name without the suffix."""
    return json.loads(files("service.http.web").joinpath("examples", f"{name}.json").read_bytes())


def named_examples() -> dict[str, dict[str, Any]]:
    """The examples in `#/components/examples`, by name: those of requests, then those of answers.

    Plan, layout and report are made here: they are what the service answers to the first example of each
    request. Curves and verdicts would take longer, so they are files. All in all it takes some 30 ms.
    """
    tiny, mnist, buffers = (example(name) for name in ("tiny", "mnist", "buffers"))
    graph = documents.load_graph(tiny["graph"])
    plan = pipeline.plan_requested(graph)
    plan_document = json.loads(documents.dump_plan(plan))
    report = executor.validate(graph, plan, steps=5)
    layout = documents.layout_with_digest(placement.place(documents.load_buffers(buffers["problem"])))
    offsets = exporters.EXPORTERS["offsets-csv"].dump(plan).decode()
    entry_points = {"graph": tiny["graph"], "entries": ["train", {"purpose": "infer", "batch": 1}]}
    specs, _ = documents.load_entries({"entries": entry_points["entries"]})
    name = tiny["graph"]["name"]
    networks: pipeline.Networks = {name: lambda batch: documents.load_graph(tiny["graph"], batch=batch)}
    entries = pipeline.entry_requests(networks, specs, RequestedOptions())
    deployment = json.loads(documents.dump_deployment(pipeline.plan_deployment(name, entries)))
    two_models = {
        "models": {"a": tiny["graph"], "b": {**tiny["graph"], "optimizer": {"type": "Adam"}}},
        "entries": [{"purpose": "train", "model": "a"}, {"purpose": "infer", "model": "b", "name": "camera"}],
        "ties": ["a.*=b.*"],
    }
    capacity = {"graph": mnist["graph"], "options": {"capacity": "16.6MB"}}
    validation = {"graph": tiny["graph"], "plan": plan_document, "steps": 5}
    order = {"task": "plan", "request": {"graph": tiny["graph"]}}
    text = json.dumps(tiny["graph"], indent=2)  # as `/docs` sends it
    job = job_document(
        Job(_JOB, "default", "plan", State.SUCCEEDED, 3, _MOMENT, _MOMENT + 0.02, _MOMENT + 0.22, attempts=1)
    )
    named = {
        "tiny": ("A two-layer perceptron", tiny),
        "mnist": ("mnist: four convolutions, batch 32, Adam", mnist),
        "range": ("mnist, one plan for all batches up to 32", {**mnist, "options": {"batch": "1..32"}}),
        "momentum": ("A linear layer with momentum: two blocks carry over", example("momentum")),
        "parallel": (
            "Two independent pairs of operations, two of them at the same time",
            example("parallel"),
        ),
        "entry_points": ("Training and inference in one arena", entry_points),
        "two_models": ("Two networks with the same weights in one arena", two_models),
        "points": ("mnist, six points", {**mnist, "points": 6}),
        "capacity": ("mnist in 16.6 MB", capacity),
        "validation": ("The perceptron in its plan", validation),
        "buffers": ("Five buffers that just fit 12 bytes", buffers),
        "order": ("A plan, as a job", order),
        "graph": ("The perceptron", tiny["graph"]),
        "graph_digest": ("The perceptron, as `/docs` sends it", hashlib.sha256(text.encode()).hexdigest()),
        "plan": ("The plan of the perceptron", plan_document),
        "deployment": ("The plans of the perceptron's entry points", deployment),
        "plan_digest": ("The plan of the perceptron", plan.digest),
        "offsets": ("The places of the perceptron's tensors", offsets),
        "report": ("Five steps of the perceptron", json.loads(documents.dump_report(report))),
        "layout": ("The places of the five buffers", json.loads(documents.dump_layout(layout))),
        "layout_digest": ("The layout of the five buffers", layout.digest),
        "curve": ("mnist, six points", example("curve")),
        "verdict": ("mnist in 16.6 MB", example("verdict")),
        "job": ("A finished job", job),
        "job_id": ("A finished job", job["id"]),
        "jobs": ("One job", {"jobs": [job], "next": None}),
        "event": ("The end of a job", {"event": "end", "id": "3", "data": json.dumps(job)}),
        "health": ("Up", {"status": "ok"}),
        "readiness": ("Ready", {"status": "ready", "workers": 2, "wanted": 2, "jobs": "ready"}),
        "metrics": ("One sample", _SAMPLE),
        "schemas": ("The names", {"schemas": sorted(documents.SCHEMAS)}),
        "schema": ("Of costs", documents.SCHEMAS["costs"]),
        "schema_name": ("Of costs", "costs"),
        "problem_type": ("Shapes that do not fit", CATALOGUE["shape-mismatch"].facts()),
        "problem_code": ("Shapes that do not fit", "shape-mismatch"),
    }
    return {name: {"summary": summary, "value": value} for name, (summary, value) in named.items()}
