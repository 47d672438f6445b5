"""The entry points and ties of a request for a deployment.

Entry points are objects, or text as ``infer:batch=1,name=camera``; ties are text as ``a.w=b.w``. Format and
version may be left out, as they stand in a request beside its models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from solver.documents.fields import DocumentModel, JsonList, Name, Positive, read_with
from solver.documents.read import read
from solver.errors import OptionsError
from solver.options import DEPLOYMENT_OPTIONS
from solver.plan import MAX_ENTRIES, MAX_TIES, EntrySpec, Tie, read_entry, read_tie

__all__ = ["EntryFields", "TieText", "load_entries"]


class EntryFields(DocumentModel):
    """A program of one of the models, which runs in the memory that all entry points share."""

    purpose: Literal["train", "infer", "evaluate", "run"] = Field(
        description="What it is for; run is that of programs of explicit operations."
    )
    model: Name = Field("", description="The name of its model; may be left out where there is one.")
    batch: Positive | None = Field(None, description="Its batch, in place of that of the options.")
    name: Name = Field("", description="What it is called; left out, as its purpose, behind its model.")
    graph: Any = Field(
        None, description="Its graph at its batch, where the document of its model leaves no batch open."
    )


def _entry(text: str) -> dict[str, Any]:
    try:
        return asdict(read_entry(text))
    except OptionsError as error:
        raise ValueError(error.remedy.removeprefix("Write ").removesuffix(".")) from None


def _tie(text: str) -> str:
    try:
        return read_tie(text).text
    except OptionsError as error:
        raise ValueError(error.remedy.removeprefix("Write ").removesuffix(".")) from None


#: A tie as text.
TieText = Annotated[str, BeforeValidator(read_with(_tie), json_schema_input_type=str)]


class EntriesDocument(DocumentModel):
    """Entry points, and what their models have in common."""

    format: Literal["arenaplan.entries"]
    version: Literal[1]
    entries: Annotated[
        JsonList[Annotated[EntryFields, BeforeValidator(read_with(_entry))]], Field(max_length=MAX_ENTRIES)
    ] = Field((), description=DEPLOYMENT_OPTIONS["entries"].help)
    ties: Annotated[JsonList[TieText], Field(max_length=MAX_TIES)] = Field(
        (), description=DEPLOYMENT_OPTIONS["ties"].help
    )


def load_entries(value: Mapping[str, Any]) -> tuple[list[EntrySpec], list[Tie]]:
    """The entry points and ties among the members of a request, `entries` and `ties`.

    Raises DocumentError, whose path begins with the member.
    """
    document = read(EntriesDocument, value, has_header=False)
    specs = [EntrySpec(one.purpose, one.model, one.batch, one.name) for one in document.entries]
    return specs, [read_tie(text) for text in document.ties]
