"""Costs documents: what the steps of one graph take on a device, to be measured there and edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from solver.canonical import to_bytes
from solver.documents.fields import DocumentModel, Name, Natural, Text, expected
from solver.documents.read import header, read
from solver.program import Costs

__all__ = [
    "CostsDocument",
    "CostsFields",
    "CostsOfOptions",
    "dump_costs",
    "load_costs",
    "to_costs",
]


class CostsFields(DocumentModel):
    """Whole nanoseconds by the label of a step, or by the id of an operation for its other steps."""

    about: Text = Field("", description="Where the figures come from, for people.")
    nanoseconds: dict[Name, Natural] = Field(
        description="Every step of the plan has to be named, by itself or by its operation."
    )


class CostsDocument(CostsFields):
    """How long the steps of a graph take on a device."""

    format: Literal["arenaplan.costs"]
    version: Literal[1]


def load_costs(data: bytes | Mapping[str, Any]) -> Costs:
    """Raises DocumentError. Whether the names are those of a graph is for planning to say."""
    return to_costs(read(CostsDocument, data))


def dump_costs(costs: Costs, *, indent: int | None = None) -> bytes:
    """The document of some costs, in their order."""
    return to_bytes(
        {**header(CostsDocument), "about": costs.about, "nanoseconds": dict(costs.nanoseconds)}, indent=indent
    )


def to_costs(document: CostsFields) -> Costs:
    return Costs(tuple(document.nanoseconds.items()), document.about)


def _of_options(value: Any) -> Any:
    """A costs document may be put into options as it is."""
    if isinstance(value, Mapping) and header(CostsDocument).items() <= value.items():
        return {name: field for name, field in value.items() if name not in ("format", "version")}
    if value == "measured":
        raise expected(
            "a table of costs: they are measured where training runs, as another machine, or a busy one,"
            " takes other times; `arenaplan costs` writes them there",
        )
    if value == "roofline":
        return None
    return value


#: Costs as a field of options: the fields of a document, with its format and version or without.
CostsOfOptions = Annotated[
    CostsFields | None, BeforeValidator(_of_options, json_schema_input_type=CostsFields | None)
]
