"""Bodies of requests and problems, as OpenAPI shows them.

Requests are read in a worker by `solver.documents`, strictly and with pointers to every mistake;
these models describe them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from service.settings import Settings
from solver.documents import (
    BuffersDocument,
    DeploymentDocument,
    EntryFields,
    GraphDocument,
    LayoutDocument,
    PlanDocument,
    ProgramDocument,
    ReportDocument,
    TradeOffDocument,
    VerdictDocument,
)
from solver.documents.options import ImportFields, LayoutOptionFields, OptionFields
from solver.options import DEPLOYMENT_OPTIONS
from solver.plan import MAX_ENTRIES, MAX_TIES

__all__ = [
    "MODELS",
    "EntryPointRequest",
    "ExplainRequest",
    "JobDocument",
    "JobOptions",
    "JobRequest",
    "JobsDocument",
    "LayoutRequest",
    "LayoutRequestOptions",
    "OperandSize",
    "PlanRequest",
    "PlanRequestOptions",
    "ProblemDocument",
    "ProgramRequest",
    "ShortVerdict",
    "TradeOffRequest",
    "ValidateRequest",
    "narrow",
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PlanRequestOptions(OptionFields):
    """Options of a plan; all may be left out."""

    format: Literal["arenaplan.options"] = "arenaplan.options"
    version: Literal[1] = 1


_LIKE: Final = "A plan whose persistent values stay at their places, as far as they can."


#: Either `graph` or `models`. Not `oneOf`, of which generators of clients make a choice of two types.
_GRAPH_OR_MODELS: Final[dict[str, Any]] = {
    "if": {"required": ["models"]},
    "then": {"not": {"required": ["graph"]}},
    "else": {"required": ["graph"]},
}

_NETWORK: Final = "A graph, or a program of explicit operations."


class EntryPointRequest(EntryFields):
    """A program of one of the models, which runs in the memory that all entry points share."""

    graph: Annotated[
        GraphDocument | None,
        Field(description="Its graph at its batch, where the document of its model leaves no batch open."),
    ] = None


class PlanRequest(_Strict):
    """A graph to plan, or several models by name; entry points that share their arena; and options."""

    model_config = ConfigDict(json_schema_extra=_GRAPH_OR_MODELS)

    graph: Annotated[
        GraphDocument | ProgramDocument | SkipJsonSchema[None],
        Field(description="The network; with entry points also a program of explicit operations."),
    ] = None
    models: Annotated[
        dict[str, GraphDocument | ProgramDocument] | SkipJsonSchema[None],
        Field(description="Several networks by name, in the place of `graph`.", min_length=1),
    ] = None
    entries: Annotated[
        list[EntryPointRequest | str],
        Field(
            description=f"{DEPLOYMENT_OPTIONS['entries'].help} Left out, each model is one, named after it.",
            max_length=MAX_ENTRIES,
        ),
    ] = []
    ties: Annotated[list[str], Field(description=DEPLOYMENT_OPTIONS["ties"].help, max_length=MAX_TIES)] = []
    options: Annotated[
        PlanRequestOptions | None, Field(description="Defaults of the target if left out.")
    ] = None
    like: Annotated[PlanDocument | None, Field(description=_LIKE)] = None


class ProgramRequest(_Strict):
    """A program to plan, and options, without those that only graphs have."""

    program: ProgramDocument
    options: Annotated[PlanRequestOptions | None, Field(description="Defaults if left out.")] = None
    like: Annotated[PlanDocument | None, Field(description=_LIKE)] = None


class TradeOffRequest(_Strict):
    """The graph or program of a curve, and options."""

    graph: Annotated[GraphDocument | ProgramDocument, Field(description=_NETWORK)]
    options: Annotated[
        PlanRequestOptions | None,
        Field(description="Defaults of the target if left out; a capacity is left aside."),
    ] = None
    points: Annotated[int, Field(ge=2, le=100, description="Budgets to search within.")] = 10


class ExplainRequest(_Strict):
    """A network, and among the options the capacity that it is to fit."""

    graph: Annotated[GraphDocument | ProgramDocument, Field(description=_NETWORK)]
    options: PlanRequestOptions
    training: Annotated[
        bool, Field(description="Whether to try what changes what is learned, as micro-batches.")
    ] = True
    scores: Annotated[
        dict[str, Annotated[float, Field(ge=0)]] | Literal["bytes"] | None,
        Field(
            description="Scores of layers, by the name of an operation or parameter: the only remedy is then"
            " to train those that fit with the largest sum. bytes: the bytes of each layer."
        ),
    ] = None


class LayoutRequestOptions(LayoutOptionFields):
    """Options of a layout; all may be left out."""

    format: Literal["arenaplan.layout_options"] = "arenaplan.layout_options"
    version: Literal[1] = 1


class LayoutRequest(_Strict):
    """The buffers to place, and options."""

    problem: BuffersDocument
    options: Annotated[
        LayoutRequestOptions | None, Field(description="Defaults of the solver if left out.")
    ] = None


class ValidateRequest(_Strict):
    """A graph to train, or several models by name, and the plan to train them in."""

    model_config = ConfigDict(json_schema_extra=_GRAPH_OR_MODELS)

    graph: Annotated[GraphDocument | SkipJsonSchema[None], Field(description="The network of the plan.")] = (
        None
    )
    models: Annotated[
        dict[str, GraphDocument] | SkipJsonSchema[None],
        Field(description="The networks of a plan of several models, by name.", min_length=1),
    ] = None
    plan: Annotated[
        PlanDocument | DeploymentDocument,
        Field(description="Of a plan with entry points each runs `steps` times, in an order by `seed`."),
    ]
    steps: Annotated[int, Field(ge=1, description="Training steps; the service sets a maximum.")] = 5
    seed: Annotated[int, Field(ge=0, description="Seed of the random batches.")] = 0


def _without_defaults(schema: dict[str, Any]) -> None:
    """Removes what generated clients would send: options of a layout in the request of a plan."""
    for option in schema["properties"].values():
        option.pop("default", None)


class JobOptions(OptionFields, ImportFields, LayoutOptionFields):
    """Options of a job: of its plan or its layout, and of how a stored model is trained."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)


class JobRequest(_Strict):
    """Work that outlives the request. The synchronous route of the task describes `request`."""

    task: Literal["plan", "program", "layout", "tradeoff", "explain", "validate", "import"]
    request: Annotated[
        dict[str, Any] | None,
        Field(description="The body of the synchronous route; without the graph, where that is stored."),
    ] = None
    graph: Annotated[
        str | None,
        Field(pattern="^[0-9a-f]{64}$", description="What is stored under /v1/graphs/{digest}."),
    ] = None
    options: Annotated[
        JobOptions | None, Field(description="Those of the request, where it has nothing else.")
    ] = None


class Progress(BaseModel):
    """How far a job is."""

    stage: str = Field(description="What is being done.")
    done: float | None = Field(default=None, description="The part of it that is done, where it is known.")
    peak_bytes: int | None = Field(default=None, description="The smallest peak so far.")
    bound_bytes: int | None = Field(default=None, description="No peak is smaller.")
    extra_nanoseconds: int | None = Field(
        default=None, description="Modelled time of what runs again in the best schedule so far."
    )
    bound_nanoseconds: int | None = Field(
        default=None, description="Proved: the extra time is at least this."
    )
    step_nanoseconds: int | None = Field(
        default=None, description="Modelled time of an iteration, nothing running again."
    )
    moved_bytes: int | None = Field(
        default=None, description="What paging moves an iteration in the best schedule so far."
    )
    seconds: float = Field(description="Since the worker has begun.")


class JobLinks(BaseModel):
    """Paths of what belongs to a job."""

    self: str
    result: str
    events: str


class ShortVerdict(BaseModel):
    """The verdict of bounds alone on a capacity; `/v1/explain` says more."""

    floor: int = Field(
        description="Proved: no order and no recomputation of steps that may run again takes less."
    )
    floor_step: str = Field(description="The step that needs the floor.")
    smallest: int = Field(description="The smallest peak that is known to be possible.")
    recompute: Literal["impossible", "open"] = Field(
        description="Whether recomputation may keep the capacity: impossible is proved."
    )


class OperandSize(BaseModel):
    """An operand and its bytes."""

    operand: str
    bytes: int


class ProblemDocument(BaseModel):
    """RFC 9457 problem details, with where the culprit is and what to do."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Stable path of the problem type; this service answers it.")
    title: str
    status: int
    detail: str = Field(description="What is wrong, with the names of the culprits.")
    instance: str | None = Field(default=None, description="The request id, as in the log.")
    pointer: str | None = Field(default=None, description="JSON pointer to the culprit in the request.")
    remedy: str | None = Field(default=None, description="What to do about it.")
    required: int | None = Field(default=None, description="Bytes needed (capacity-exceeded).")
    available: int | None = Field(default=None, description="Bytes given (capacity-exceeded).")
    excess: int | None = Field(default=None, description="required - available.")
    proved: bool | None = Field(
        default=None, description="Whether nothing can fit; false: nothing that fits was found."
    )
    entry_point: str | None = Field(
        default=None, description="The entry point that does not fit (capacity-exceeded)."
    )
    held: int | None = Field(default=None, description="Bytes of what it keeps for other entry points.")
    verdict: ShortVerdict | None = Field(default=None, description="Of a capacity for a graph.")
    live_at_peak: list[OperandSize] | None = Field(
        default=None, description="What is live at the worst step."
    )
    problem: ProblemDocument | None = Field(
        default=None, description="What the job has failed with (job-failed)."
    )


class JobDocument(BaseModel):
    """A job: what it is, and how far."""

    id: str = Field(pattern="^[0-9a-f]{32}$", description="Ids sort by the time of creation.")
    task: Literal["plan", "program", "layout", "tradeoff", "explain", "validate", "import"]
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    created: AwareDatetime
    started: AwareDatetime | None
    finished: AwareDatetime | None
    attempts: int = Field(description="How often it was begun; more than once where a worker has died.")
    progress: Progress | None
    error: ProblemDocument | None = Field(description="Why it failed.")
    links: JobLinks


class JobsDocument(BaseModel):
    """A page of jobs, the newest first."""

    jobs: list[JobDocument]
    next: str | None = Field(description="Path of the next page; null on the last one.")


#: Every body of a request or an answer.
MODELS: Final = (
    PlanRequest, ProgramRequest, TradeOffRequest, ExplainRequest, ValidateRequest, LayoutRequest, JobRequest,
    PlanDocument, DeploymentDocument, TradeOffDocument, VerdictDocument, ReportDocument, LayoutDocument,
    JobDocument, JobsDocument, ProblemDocument,
)  # fmt: skip


def narrow(schemas: dict[str, Any], settings: Settings) -> None:
    """Narrow numbers to those that this service takes."""
    longest = settings.deadline_max_seconds
    for name, seconds in (
        ("PlanRequestOptions", longest),
        ("LayoutRequestOptions", longest),
        ("JobOptions", settings.job_max_seconds),
    ):
        schemas[name]["properties"]["deadline_seconds"]["anyOf"][0]["maximum"] = seconds
    schemas["ValidateRequest"]["properties"]["steps"]["maximum"] = settings.validate_max_steps
