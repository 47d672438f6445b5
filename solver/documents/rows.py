"""Tables of a document: rows are JSON arrays, and numbers in them are positions in other tables.

    class StepOfPlan(NamedTuple):          "steps": [[4, 2, 7, 0, 0, [11, 12, 9]], ...]
        operation: OperationNumber                    │  │
        form: FormNumber                              │  └ forms[2]
        ...                                           └ operations[4]

A row is described once, as a named tuple: pydantic checks it, the JSON Schema shows it, and the positions are
checked by what stands in its annotations.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from solver.documents.fields import DocumentModel, JsonList, expected
from solver.errors import PlanError

__all__ = ["REMEDY", "In", "RowSchemas", "Table", "check_positions"]

#: Planners write plans and people do not, so there is one remedy for every mistake in them.
REMEDY = "Take the plan as the planner wrote it, or make a new one."


@dataclass(frozen=True, slots=True)
class In:
    """Marks a number, or each number of a list, as a position in the table of this name."""

    table: str

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "description": f"A position in `{self.table}`."}


def _row(value: Any) -> Any:
    if not isinstance(value, list):
        raise expected("a list")
    return value


T = TypeVar("T")

#: ``Table[SomeNamedTuple]``: an array of rows, which are arrays themselves, never objects.
Table = JsonList[Annotated[T, BeforeValidator(_row)]]


def check_positions(document: DocumentModel) -> None:
    """Raises PlanError for the first number that is not a position in its table. Linear."""
    for name, column, table in _numbered(type(document)):
        rows, count = getattr(document, name), len(getattr(document, table))
        cells = list(map(itemgetter(column), rows))
        if not cells:
            continue
        lists = cells if isinstance(cells[0], tuple) else [cells]
        if max(filter(None, chain.from_iterable(lists)), default=0) < count:
            continue
        for i, cell in enumerate(cells):
            for number in cell if isinstance(cell, tuple) else (cell,):
                if number is not None and number >= count:
                    raise PlanError(
                        f"{name}[{i}][{column}] names number {number} of {table}, which has {count} rows.",
                        remedy=REMEDY,
                        path=(name, i, column),
                    )


class _Column(NamedTuple):
    name: str
    column: int
    table: str


@cache
def _numbered(model: type[DocumentModel]) -> tuple[_Column, ...]:
    """The columns of a document's tables that hold positions."""
    columns = []
    for name, hint in typing.get_type_hints(model, include_extras=True).items():
        for row in filter(_is_row, _parts(hint)):
            hints = typing.get_type_hints(row, include_extras=True)
            for k, field in enumerate(row._fields):
                marks = [part.table for part in _parts(hints[field]) if isinstance(part, In)]
                columns += [_Column(name, k, table) for table in marks]
    return tuple(columns)


class RowSchemas(GenerateJsonSchema):
    """JSON Schemas in which a row is a list of the types of all its columns.

    Generators of clients drop what has `prefixItems`, so the schemas of the columns stand under `x-columns`.
    """

    def named_tuple_schema(self, schema: core_schema.NamedTupleSchema) -> JsonSchemaValue:
        row = super().named_tuple_schema(schema)  # without a description: pydantic describes models alone
        columns = row.pop("prefixItems")
        types = [_type(part) for column in columns for part in column.get("anyOf", [column])]
        items = [part for i, part in enumerate(types) if part not in types[:i]]
        row["items"] = {"anyOf": items} if len(items) > 1 else items[0]
        return {**row, "description": inspect.getdoc(schema["cls"]), "x-columns": columns}


def _type(schema: JsonSchemaValue) -> JsonSchemaValue:
    """The schema without bounds, words and titles."""
    return {key: schema[key] for key in ("$ref", "type", "items") if key in schema}


def _is_row(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, tuple) and hasattr(part, "_fields")


def _parts(hint: Any) -> Iterator[Any]:
    """An annotation, what it is made of, and what was said of it."""
    yield hint
    for part in (*typing.get_args(hint), *getattr(hint, "__metadata__", ())):
        if part is not hint:
            yield from _parts(part)
