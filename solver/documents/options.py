"""Options documents. Format and version may be left out: options are typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from solver.documents.costs import CostsOfOptions, to_costs
from solver.documents.fields import FIXED_LIST, DocumentModel, Name, Positive
from solver.documents.parse import to_bytes
from solver.documents.plan_written import options_to_dict
from solver.documents.read import read
from solver.documents.sizes import Size
from solver.documents.tiers import TierOfOptions
from solver.errors import OptionsError
from solver.plan import PlanOptions
from solver.program import Tier

__all__ = [
    "FORMAT",
    "OptionFields",
    "OptionsDocument",
    "dump_options",
    "load_options",
    "power_of_two",
    "to_options",
]

FORMAT = "arenaplan.options"

_DEFAULT = PlanOptions()
_Parallelism = Annotated[int, Field(ge=1, le=64)]


def power_of_two(value: int) -> int:
    if value & (value - 1):
        raise PydanticCustomError("power_of_two", "a power of two")
    return value


class OptionFields(DocumentModel):
    """Sizes are bytes, or text as 24MiB; what is left out or null is the target's or the planner's choice."""

    target: Name = Field(_DEFAULT.target, description="Runtime whose allocations are planned.")
    solver: Name = Field(_DEFAULT.solver, description="Layout solver.")
    batch: Positive | None = Field(None, description="Takes the place of the graph's own batch.")
    alignment: Annotated[Positive, AfterValidator(power_of_two)] | None = None
    capacity: Size | None = Field(None, description="A plan beyond it is an error.")
    deadline_seconds: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Wall time for the search; without it the plan is the same on every machine."
    )
    scratch_budget: Size = Field(_DEFAULT.scratch_budget, description="Scratch of one step.")
    update: Name = Field(_DEFAULT.update, description="When gradients are applied: immediate or end.")
    parallelism: _Parallelism = Field(
        _DEFAULT.parallelism, description="Most steps that run at the same time, on one concurrency level."
    )
    workers: _Parallelism | None = Field(
        None,
        description="The former name of parallelism. It is read, and never written.",
        json_schema_extra={"deprecated": True},
    )
    in_place: bool = Field(_DEFAULT.in_place, description="Operands in the memory of others, where safe.")
    rewrite: bool = Field(_DEFAULT.rewrite, description="Equivalent operations where that lowers the peak.")
    sub_ranges: bool = Field(
        _DEFAULT.sub_ranges,
        description="In place also what Slice, Split and Concat take from or put into others.",
    )
    recompute: bool = Field(_DEFAULT.recompute, description="Steps run again where the capacity asks for it.")
    order: bool = Field(_DEFAULT.order, description="Another order of the steps, where it lowers the peak.")
    tiers: Annotated[tuple[TierOfOptions, ...], *FIXED_LIST] = Field(
        (), description="Memories of the device; kernels run in the first, the others hold what is paged out."
    )
    storage: Name | None = Field(
        None, description="Activations wait for the backward pass as float16 or bfloat16, rounded."
    )
    fit_scratch: bool = Field(
        _DEFAULT.fit_scratch, description="A smaller scratch budget, where scratch would make the peak."
    )
    costs: CostsOfOptions = Field(
        None, description="What each step takes on the device; a roofline says it without."
    )


class OptionsDocument(OptionFields):
    """What a caller may choose about a plan."""

    format: Literal["arenaplan.options"]
    version: Literal[1]


def load_options(data: bytes | Mapping[str, Any]) -> PlanOptions:
    """Raises DocumentError for what is not an options document, OptionsError for a value out of range."""
    document = read(OptionsDocument, data, format_=FORMAT, header=False, range_error=OptionsError)
    return to_options(document)


def to_options(given: OptionFields) -> PlanOptions:
    """Raises OptionsError where the option `parallelism` is given under both of its names."""
    found = {field.name: getattr(given, field.name) for field in fields(PlanOptions)}
    if given.workers is not None:
        if "parallelism" in given.model_fields_set:
            raise OptionsError(
                "The options give both parallelism and workers, which is its former name.",
                remedy="Give parallelism alone.",
                path=("workers",),
            )
        found["parallelism"] = given.workers
    found["tiers"] = tuple([Tier(**dict(tier)) for tier in given.tiers])
    found["costs"] = None if given.costs is None else to_costs(given.costs)
    return PlanOptions(**found)


def dump_options(options: PlanOptions, *, indent: int | None = None) -> bytes:
    """The options in a fixed order, with all defaults of those that were there from the beginning."""
    return to_bytes({"format": FORMAT, "version": 1, **options_to_dict(options)}, indent=indent)
