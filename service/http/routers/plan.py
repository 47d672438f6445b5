"""Plans, of a graph, a model or a program, and layouts; again by their digest; and plans as other files.

And what is computed each time: curves, verdicts and validations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response

from service.auth.principal import principal_of
from service.http.computation import GONE, Computation, unless_disconnected
from service.http.openapi import (
    ANY_PROBLEM,
    NOT_MODIFIED,
    NOTES,
    READING_PROBLEMS,
    answer,
    computed,
    content,
    model_body,
    named,
    problems,
    request_body,
)
from service.http.responses import CACHE_CONTROL, matches_tag, note
from service.http.schemas import (
    ExplainRequest,
    LayoutRequest,
    PlanRequest,
    ProgramRequest,
    TradeOffRequest,
    ValidateRequest,
)
from service.http.state import state_of
from service.jobs.pool import Limits, run_task
from service.problems import Problem
from solver.documents import (
    DeploymentDocument,
    LayoutDocument,
    PlanDocument,
    ReportDocument,
    TradeOffDocument,
    VerdictDocument,
)
from solver.executor import C_WEIGHTS
from solver.exporters import EXPORTERS

__all__ = ["layouts", "router"]

router = APIRouter(tags=["plans"])
layouts = APIRouter(tags=["layouts"])

_PLANS: Final = Computation("plan")

#: The export that compares two plans, beside the registered exporters of one plan: their differences as JSON.
_DIFFERENCE: Final = "difference"
#: The plan of one entry point, as a document.
_DOCUMENT: Final = "document"
#: Files in C that train, as an archive.
_C_TRAINING: Final = "c-training"

#: Media types and suffixes of files, by the name of the format.
_FILES: Final[Mapping[str, tuple[str, str]]] = {
    **{one.name: (one.media_type, one.suffix) for one in EXPORTERS.values()},
    _C_TRAINING: ("application/zip", ".zip"),
}

#: Pages of this service contain their script and style and send no requests; the browser enforces this.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


Digest = Annotated[
    str,
    Path(
        description="Digest of a plan: its `digest`, and the entity tag of the answer that had it.",
        openapi_examples=named("plan_digest"),
    ),
]
Format = Annotated[
    str, Path(description=f"One of {', '.join(_FILES)}, {_DIFFERENCE}, or {_DOCUMENT}: the plan itself.")
]
Against = Annotated[str | None, Query(description="Digest of an older plan, for what has changed since.")]
EntryPoint = Annotated[
    str | None, Query(description="Name of one entry point, where the plan has several; else all of them.")
]
Weights = Annotated[
    str | None,
    Query(
        description=f"For {_C_TRAINING}, where first values are: {', '.join(C_WEIGHTS)}; left out, embed"
        " up to 8 MiB, else blob. A plan does not have the values that its graph gives: choose none for it."
    ),
]

_PLAN_ROUTE: Final = computed(
    "plan",
    "Plan a training graph",
    model_body(PlanRequest, "tiny", "mnist", "range", "entry_points", "two_models"),
    answer(
        (PlanDocument, DeploymentDocument),
        "The plan, or with entry points the plans of all of them; its digest is the entity tag.",
        "plan",
        "deployment",
        headers=NOTES,
    ),
    *READING_PROBLEMS, "invalid-problem", "capacity-exceeded", "plan-not-found",
)  # fmt: skip


@router.post("/v1/plan", **{**_PLAN_ROUTE, "summary": "Plan a training graph: the same as POST /plan"})
@router.post("/plan", name="plan_unversioned", **_PLAN_ROUTE)
async def plan(request: Request) -> Response:
    """Plan the memory of a training graph and prove how good the plan is.

    The answer stands on its own: execution order, each buffer with lifespan and offset, and a
    certificate with the lower bound. The same request gets the same bytes, also from another
    process or machine, as long as it names no deadline; such plans are kept and can be fetched
    again under their digest. With `deadline_seconds`, the best plan found by then is the answer.

    The body may be a model of another tool as well, of ONNX, Circle or TensorFlow Lite, sent as
    `application/octet-stream` or `application/onnx`. The query says how it is trained, and has the options of
    plans, as `capacity=24MiB`. Weights are only hashed, and must lie in the model itself. `like` is the
    digest of a plan that is kept here, whose persistent values stay where they are; a graph has the document
    of that plan in the body.

    With `entries`, several programs of the network run in one arena, one at a time: a training step,
    inferences and evaluations, each with a batch of its own. Weights and optimizer variables have one place
    in all of them, and everything else overlays. `models` in the place of `graph` are several networks by
    name, graphs or programs; `ties` say which of their weights are one. The answer is a document of version
    3, in which each entry point has a plan. For a model of another tool the query has `entries` and `ties`,
    once for each.
    """
    return await _PLANS.answer(request)


@router.post(
    "/v1/program",
    **computed(
        "program",
        "Plan explicit operations",
        request_body(ProgramRequest, "momentum", "parallel"),
        answer(PlanDocument, "The plan; its digest is the entity tag.", "plan"),
        *ANY_PROBLEM, "invalid-graph", "use-before-def", "duplicate-name", "dangling-operand",
        "invalid-dimension", "too-many-operations", "invalid-options", "invalid-problem",
        "capacity-exceeded",
    ),
)  # fmt: skip
async def plan_program(request: Request) -> Response:
    """Plan the memory of explicit operations, each with the blocks that it reads and writes.

    Blocks that are read before they are written carry over from one iteration to the next and keep
    their bytes; all others take them at their first touch and give them back after their last. The
    promises are those of `/v1/plan`, and the plan is kept beside the plans of graphs.
    """
    return await Computation("program").answer(request)


@router.get(
    "/v1/plans/{digest}",
    summary="A plan by its digest",
    responses={
        200: answer((PlanDocument, DeploymentDocument), "The plan.", "plan"), 304: NOT_MODIFIED,
        **problems("plan-not-found", "invalid-options", "overloaded", "worker-lost", "time-limit"),
    },
)  # fmt: skip
async def get_plan(request: Request, digest: Digest, entry_point: EntryPoint = None) -> Response:
    """A plan that this service made before, by its digest, as long as it is kept in memory.

    Of a plan with entry points `entry_point` asks for the plan of one of them. The Accept header may ask for
    another file of it, as `text/html` or `text/x-c`: see `/v1/plans/{digest}/{format}`.
    """
    exporter = _accepted(request.headers.get("accept", ""))
    if exporter is not None or entry_point is not None:
        return await _export(request, digest, exporter or _DOCUMENT, entry_point)
    return await _PLANS.stored(request, digest)


@router.get(
    "/v1/plans/{digest}/{format}",
    summary="A plan as another file",
    response_class=Response,
    responses={
        200: {
            "description": "The file.",
            "content": {
                "application/json": {},
                **{media_type: {} for media_type, _ in _FILES.values()},
                **content("offsets", "text/csv", type="string"),
            },
        },
        304: NOT_MODIFIED,
        **problems(
            "plan-not-found", "not-found", "invalid-request", "invalid-options", "overloaded", "worker-lost",
            "time-limit",
        ),
    },
)  # fmt: skip
async def export_plan(
    request: Request,
    digest: Digest,
    format: Format,
    against: Against = None,
    entry_point: EntryPoint = None,
    weights: Weights = None,
) -> Response:
    """A plan that is kept here, written for a runtime, a viewer or a table.

    `format` is one of those that the parameter lists. The report takes `against`, the digest of another plan
    that is kept: it then shows what changed. `difference` needs it, and has the same as JSON, as `arenaplan
    diff --json` prints it. Of a plan with entry points `entry_point` asks for one of them. `c-training` is
    an archive of C11 that trains, of a plan for the target `c`.
    """
    return await _export(request, digest, format, entry_point, against, weights)


@router.get("/plans/{digest}", include_in_schema=False)
async def plan_page(
    request: Request, digest: str, against: Against = None, entry_point: EntryPoint = None
) -> Response:
    """The report, under an address to give to people."""
    return await _export(request, digest, "report", entry_point, against)


def _accepted(header: str) -> str | None:
    """The exporter that an Accept header prefers to JSON; None where JSON is as good as any other.

    Ranges are weighed by their q (RFC 9110, 12.5.1), the first of equals wins; ``*/*`` stands for JSON.
    """
    known = {media_type: name for name, (media_type, _) in _FILES.items()}
    best, chosen = 0.0, None
    for part in header.split(","):
        media, *parameters = (text.strip().lower() for text in part.split(";"))
        try:
            weight = next((float(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        except ValueError:
            continue
        answered = media in known or media in ("application/json", "application/*", "*/*")
        if answered and weight > best:
            best, chosen = weight, known.get(media)
    return chosen


async def _export(
    request: Request,
    digest: str,
    name: str,
    entry_point: str | None,
    against: str | None = None,
    weights: str | None = None,
) -> Response:
    """The plan with this digest in the format `name`; a report says what changed `against` another.

    Of a plan with entry points all of them, or the one of this name. 200, or 304 when the caller names its
    entity tag in If-None-Match. Raises `Problem` for what is not here.
    """
    if name not in (*_FILES, _DIFFERENCE, _DOCUMENT):
        remedy = f"Choose one of {', '.join(_FILES)}, {_DIFFERENCE}, {_DOCUMENT}."
        raise Problem("not-found", f"Plans are not written as {name!r:.80}.", remedy=remedy)
    if against is not None and name not in ("report", _DIFFERENCE):
        remedy = f"Leave `against` out, or ask for the report or the {_DIFFERENCE}."
        raise Problem("invalid-request", f"{name} is made of one plan.", remedy=remedy)
    if against is None and name == _DIFFERENCE:
        remedy = "Add ?against= and the digest of the older plan."
        raise Problem("invalid-request", f"A {_DIFFERENCE} is made of two plans.", remedy=remedy)
    if weights is not None and name != _C_TRAINING:
        remedy = f"Leave `weights` out, or ask for {_C_TRAINING}."
        raise Problem("invalid-request", f"{name} has no weights.", remedy=remedy)
    state, tenant = state_of(request), principal_of(request).tenant
    old = b"" if against is None else (await _PLANS.find(request, against)).body
    new = (await _PLANS.find(request, digest)).body
    tag = f"{digest}:{name}" + (f":{against}" if against else "")
    if entry_point is not None:
        tag += f":{quote(entry_point, safe='')}"
    tag += f":{quote(weights, safe='')}" if weights is not None else ""
    headers = {"ETag": f'"{tag}"', "Cache-Control": CACHE_CONTROL, "Vary": "Accept"}
    if matches_tag(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    asked = {"format": name, "entry_point": entry_point, "weights": weights, "against": len(old)}
    limits = Limits(state.settings.deadline_max_seconds + state.settings.deadline_grace_seconds)
    work = run_task(state.pool, "export", {**state.limits, **asked}, old + new, limits, tenant=tenant)
    frame = await unless_disconnected(request, work)
    if frame is None:
        return Response(status_code=GONE)
    note(request.scope, digest=digest, format=name)
    if name not in _FILES:
        return Response(frame.body, media_type="application/json", headers=headers)
    media_type, suffix = _FILES[name]
    if media_type == "text/html":
        headers["Content-Security-Policy"] = _POLICY
    else:
        headers["Content-Disposition"] = f'attachment; filename="{digest[:12]}{suffix}"'
    return Response(frame.body, media_type=media_type, headers=headers)


# ------------------------------------------------------------------------------ computed each time


@router.post(
    "/v1/tradeoff",
    **computed(
        "tradeoff",
        "Costs of smaller peaks",
        model_body(TradeOffRequest, "points"),
        answer(TradeOffDocument, "The curve.", "curve", headers=NOTES),
        *READING_PROBLEMS,
    ),
)
async def tradeoff(request: Request) -> Response:
    """The cost of smaller peaks in modelled time, with the proved bound beside each cost, down to the floor.

    Points stand in the order of falling peaks; the first is the program in which nothing runs again. The
    same request gets the same curve, unless wall time cut it short: then `complete` is false.

    The body may be a model of another tool, as for `/v1/plan`; `points` stands in the query then.
    """
    return await Computation("tradeoff").answer(request)


@router.post(
    "/v1/explain",
    **computed(
        "explain",
        "Whether a capacity is enough, and what makes it so",
        model_body(ExplainRequest, "capacity"),
        answer(VerdictDocument, "The verdict.", "verdict", headers=NOTES),
        *READING_PROBLEMS,
    ),
)
async def explain(request: Request) -> Response:
    """Whether the capacity among the options is enough: impossible, open, or a plan; and what makes it fit.

    A verdict is an answer, so the status is 200 whatever it says. Each remedy has been planned, and its plan
    proved; its `options` are whole, the capacity included, and repeat it with its `graph_fields`, or for a
    model with its `choices`. Those that change no bit come first. Those that change what is learned come
    last; without `training` they are left out. Without a remedy, `attempts` say how near each measure came.
    With `scores` the only remedy is to train the layers that fit with the largest sum of scores.

    The body may be a model of another tool, as for `/v1/plan`; `capacity`, `training` and `scores` stand in
    the query then.
    """
    return await Computation("explain").answer(request)


@router.post(
    "/v1/validate",
    **computed(
        "validate",
        "Train in a plan and compare",
        model_body(ValidateRequest, "validation"),
        answer(ReportDocument, "The comparison, step by step.", "report", headers=NOTES),
        *READING_PROBLEMS, "invalid-plan", "plan-not-found", "validation-too-large",
    ),
)  # fmt: skip
async def validate(request: Request) -> Response:
    """Train some steps inside the planned arena, beside a reference run without any sharing.

    The report tells for each step both losses and whether every tensor agrees bit for bit. A plan
    that breaks a rule is named in `violations`; a report is an answer, so the status is 200 either way.
    Of a plan with entry points each runs `steps` times, in an order that is drawn from `seed`; a plan of
    several models takes `models` by name in the place of `graph`.

    The body may be a model of another tool, as for `/v1/plan`. The query has how it is trained, `steps` and
    `seed`, and as `plan` the digest of a plan that this service keeps. Training begins with its own weights.
    """
    seconds = state_of(request).settings.validate_max_seconds
    return await Computation("validate").answer(request, Limits(seconds))


# ------------------------------------------------------------------------------------------- layouts

_LAYOUTS: Final = Computation("layout")

LayoutDigest = Annotated[
    str,
    Path(
        description="Digest of a layout: the entity tag of the answer that had it.",
        openapi_examples=named("layout_digest"),
    ),
]


@layouts.post(
    "/v1/layout",
    **computed(
        "layout",
        "Place buffers with known lifespans",
        request_body(LayoutRequest, "buffers"),
        answer(LayoutDocument, "The layout; its digest is the entity tag.", "layout"),
        *ANY_PROBLEM, "too-many-buffers", "invalid-options", "invalid-problem", "capacity-exceeded",
    ),
)  # fmt: skip
async def place_buffers(request: Request) -> Response:
    """Place buffers with known lifespans in one arena and prove how good the layout is.

    The answer has every buffer with its offset, the peak, and a certificate with the lower bound.
    As for plans, the same request gets the same bytes as long as it names no deadline; such
    layouts are kept and can be fetched again under their digest.
    """
    return await _LAYOUTS.answer(request)


@layouts.get(
    "/v1/layouts/{digest}",
    summary="A layout by its digest",
    responses={
        200: answer(LayoutDocument, "The layout.", "layout"),
        304: NOT_MODIFIED,
        **problems("layout-not-found"),
    },
)
async def get_layout(request: Request, digest: LayoutDigest) -> Response:
    """A layout that this service made before, by its digest, as long as it is kept in memory."""
    return await _LAYOUTS.stored(request, digest)
