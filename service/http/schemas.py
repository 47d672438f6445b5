"""Bodies of requests and problems, as OpenAPI shows them.

Requests are read in a worker by `solver.documents`, strictly and with pointers to every mistake;
these models describe them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from solver.documents import BuffersDocument, GraphDocument, PlanDocument, ProgramDocument
from solver.documents.layout_options import LayoutOptionFields
from solver.documents.options import OptionFields

__all__ = [
    "ExplainRequest",
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
]


class PlanRequestOptions(OptionFields):
    """What may be chosen about a plan; everything may be left out."""

    format: Literal["arenaplan.options"] = "arenaplan.options"
    version: Literal[1] = 1


class PlanRequest(BaseModel):
    """What to plan, and how."""

    model_config = ConfigDict(extra="forbid")

    graph: GraphDocument
    options: Annotated[
        PlanRequestOptions | None, Field(description="Defaults of the target if left out.")
    ] = None


class ProgramRequest(BaseModel):
    """What to plan, and how; options that only graphs have stay out."""

    model_config = ConfigDict(extra="forbid")

    program: ProgramDocument
    options: Annotated[PlanRequestOptions | None, Field(description="Defaults if left out.")] = None


class TradeOffRequest(BaseModel):
    """What to compute a curve of, and how."""

    model_config = ConfigDict(extra="forbid")

    graph: GraphDocument
    options: Annotated[
        PlanRequestOptions | None,
        Field(description="Defaults of the target if left out; a capacity is left aside."),
    ] = None
    points: Annotated[int, Field(ge=2, le=100, description="Budgets to search within.")] = 10


class ExplainRequest(BaseModel):
    """Which network, and in which capacity, which is among the options."""

    model_config = ConfigDict(extra="forbid")

    graph: GraphDocument
    options: PlanRequestOptions
    training: Annotated[
        bool, Field(description="Whether to try what changes what is learned, as micro-batches.")
    ] = False


class LayoutRequestOptions(LayoutOptionFields):
    """What may be chosen about a layout; everything may be left out."""

    format: Literal["arenaplan.layout_options"] = "arenaplan.layout_options"
    version: Literal[1] = 1


class LayoutRequest(BaseModel):
    """The buffers to place, and how."""

    model_config = ConfigDict(extra="forbid")

    problem: BuffersDocument
    options: Annotated[
        LayoutRequestOptions | None, Field(description="Defaults of the solver if left out.")
    ] = None


class ValidateRequest(BaseModel):
    """What to train, and the plan to train it in."""

    model_config = ConfigDict(extra="forbid")

    graph: GraphDocument
    plan: PlanDocument
    steps: Annotated[int, Field(ge=1, description="Training steps; the service sets a maximum.")] = 5
    seed: Annotated[int, Field(ge=0, description="Seed of the random batches.")] = 0


class ShortVerdict(BaseModel):
    """What bounds alone say about a capacity; `/v1/explain` says more."""

    floor: int = Field(description="No order of the steps and no recomputation takes less: proved.")
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
    verdict: ShortVerdict | None = Field(default=None, description="Of a capacity for a graph.")
    live_at_peak: list[OperandSize] | None = Field(default=None, description="What lives at the worst step.")
