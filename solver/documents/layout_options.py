"""Options of a layout of bare buffers. Format and version may be left out: options are typed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from solver.documents.fields import DocumentModel, Name, Natural, Positive
from solver.documents.options import power_of_two
from solver.documents.parse import to_bytes
from solver.documents.read import read
from solver.errors import OptionsError
from solver.plan.placed import LayoutOptions

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


class LayoutOptionFields(DocumentModel):
    """Sizes are bytes; what is left out or null is the solver's choice."""

    solver: Name = Field(_DEFAULT.solver, description="Layout solver.")
    capacity: Natural | None = Field(None, description="Takes the place of the buffers' own capacity.")
    alignment: Annotated[Positive, AfterValidator(power_of_two)] | None = Field(
        None, description="Least alignment of every buffer."
    )
    deadline_seconds: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Wall time for the search; without it the layout is the same on every machine."
    )


class LayoutOptionsDocument(LayoutOptionFields):
    """What a caller may choose about a layout."""

    format: Literal["arenaplan.layout_options"]
    version: Literal[1]


def load_layout_options(data: bytes | Mapping[str, Any]) -> LayoutOptions:
    """Raises DocumentError for what is no options document, OptionsError for a value out of range."""
    document = read(LayoutOptionsDocument, data, format_=FORMAT, header=False, range_error=OptionsError)
    return to_layout_options(document)


def to_layout_options(fields: LayoutOptionFields) -> LayoutOptions:
    return LayoutOptions(**{name: getattr(fields, name) for name in LayoutOptionFields.model_fields})


def dump_layout_options(options: LayoutOptions, *, indent: int | None = None) -> bytes:
    """Every option, defaults included, in a fixed order."""
    return to_bytes({"format": FORMAT, "version": 1, **layout_options_to_dict(options)}, indent=indent)


def layout_options_to_dict(options: LayoutOptions) -> dict[str, Any]:
    """Every option; seconds are floating, so that 5 and 5.0 are written alike."""
    found: dict[str, Any] = {name: getattr(options, name) for name in LayoutOptionFields.model_fields}
    if options.deadline_seconds is not None:
        found["deadline_seconds"] = float(options.deadline_seconds)
    return found
