"""Options of a layout of bare buffers. Format and version may be left out: options are typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from solver.documents.fields import DocumentModel, Name, Natural, Positive
from solver.documents.options import power_of_two
from solver.documents.parse import to_bytes
from solver.documents.read import read
from solver.documents.sizes import Size
from solver.errors import OptionsError
from solver.layout.model.options import Rules
from solver.layout.model.placed import LayoutOptions

__all__ = [
    "FORMAT",
    "LayoutOptionFields",
    "LayoutOptionsDocument",
    "dump_layout_options",
    "layout_options_to_dict",
    "load_layout_options",
    "to_layout_options",
]

FORMAT = "arenaplan.layout_options"

_DEFAULT = LayoutOptions()


class RulesOfLayout(DocumentModel):
    """Rules of the exact search, each of which only saves work; see `solver.layout.Rules`."""

    plateaus: bool = Field(True, description="Branch on any local-minimum plateau, not the lowest only.")
    gaps: bool = Field(True, description="Force waste at once.")
    symmetry: bool = Field(True, description="Try identical buffers once.")
    transposition: bool = Field(True, description="Remember what was refuted.")
    decomposition: bool = Field(True, description="Solve parts that share no buffer one by one.")
    weights: bool = Field(True, description="Prefer sections that failed before.")
    restarts: bool = Field(True, description="Start over with other priorities.")
    peel: bool = Field(True, description="Set aside buffers that always fit last.")
    fill: bool = Field(True, description="Fail where a niche of the skyline cannot be filled.")
    span: bool = Field(True, description="Place at once what exactly spans a niche.")
    walls: bool = Field(True, description="Try first what leans on a wall of a niche, in part of the runs.")
    jumps: bool = Field(True, description="Go back at once to a choice that a failure depends on.")
    promotion: bool = Field(True, description="Try earlier what was tried too late before.")
    structure: bool = Field(
        True, description="Place at once what a theorem places: equal sizes, chains, nests."
    )


class LayoutOptionFields(DocumentModel):
    """Sizes are bytes, or text as 24MiB; what is left out or null is the solver's choice."""

    solver: Name = Field(_DEFAULT.solver, description="Layout solver.")
    capacity: Size | None = Field(None, description="Takes the place of the buffers' own capacity.")
    alignment: Annotated[Positive, AfterValidator(power_of_two)] | None = Field(
        None, description="Least alignment of every buffer."
    )
    deadline_seconds: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Wall time for the search; without it the layout is the same on every machine."
    )
    work: Natural | None = Field(
        None, description="Buffers and sections to look at; left out: the default, or until the deadline."
    )
    seed: Annotated[Natural, Field(lt=2**62)] = Field(_DEFAULT.seed, description="Of the search.")
    threads: Annotated[Positive, Field(le=64)] = Field(
        _DEFAULT.threads, description="Change the time, never the answer."
    )
    race: bool = Field(_DEFAULT.race, description="Take the first answer of any thread.")
    target_gap: Annotated[float, Field(ge=0)] = Field(
        _DEFAULT.target_gap, description="Stop at this fraction above the lower bound."
    )
    rules: RulesOfLayout = Field(RulesOfLayout(), description="Rules of the exact search, on or off.")


class LayoutOptionsDocument(LayoutOptionFields):
    """What a caller may choose about a layout."""

    format: Literal["arenaplan.layout_options"]
    version: Literal[1]


def load_layout_options(data: bytes | Mapping[str, Any]) -> LayoutOptions:
    """Raises DocumentError for what is not an options document, OptionsError for a value out of range."""
    document = read(LayoutOptionsDocument, data, format_=FORMAT, header=False, range_error=OptionsError)
    return to_layout_options(document)


def to_layout_options(fields: LayoutOptionFields) -> LayoutOptions:
    found = {name: getattr(fields, name) for name in LayoutOptionFields.model_fields}
    return LayoutOptions(**{**found, "rules": Rules(**fields.rules.model_dump())})


def dump_layout_options(options: LayoutOptions, *, indent: int | None = None) -> bytes:
    """Every option, defaults included, in a fixed order."""
    return to_bytes({"format": FORMAT, "version": 1, **layout_options_to_dict(options)}, indent=indent)


def layout_options_to_dict(options: LayoutOptions) -> dict[str, Any]:
    """Every option; what may be a fraction is floating, so that 5 and 5.0 are written alike."""
    found: dict[str, Any] = {name: getattr(options, name) for name in LayoutOptionFields.model_fields}
    if options.deadline_seconds is not None:
        found["deadline_seconds"] = float(options.deadline_seconds)
    found["target_gap"] = float(options.target_gap)
    return found | {"rules": asdict(options.rules)}
