"""The one way into every document: strict JSON, format and version, model; errors in plain words."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from solver.documents.fields import NO_CONTROL, DocumentModel
from solver.documents.header import VERSION, cut, read_header, shown
from solver.errors import ArenaplanError, DocumentError

__all__ = ["read"]

#: More mistakes than this are counted, not described one by one.
MAX_ERRORS = 1000

Model = TypeVar("Model", bound=DocumentModel)

_Path = tuple[str | int, ...]


def read(
    model: type[Model],
    data: bytes | Mapping[str, Any],
    *,
    format_: str,
    header: bool = True,
    version: int | tuple[int, ...] = VERSION,
    range_error: type[ArenaplanError] = DocumentError,
) -> Model:
    """The model of a document, given as JSON text or as the value parsed from it.

    With `header`, format and version must be there; else they may be left out. The version is `version`, or
    one of several. Raises
    DocumentError, or `range_error` for a value of the right kind beyond its range.
    """
    versions = version if isinstance(version, tuple) else (version,)
    value, found = read_header(data, format_=format_, versions=versions, required=header)
    try:
        return model.model_validate({**value, "format": format_, "version": found})
    except ValidationError as error:
        raise _translate(model, value, error, range_error) from None


def _translate(
    model: type[BaseModel], value: Any, error: ValidationError, range_error: type[ArenaplanError]
) -> ArenaplanError:
    """The first error in words. An unknown field explains a missing one, so it goes first."""
    if error.error_count() > MAX_ERRORS:
        return DocumentError(
            f"The document has {error.error_count()} mistakes.",
            remedy="Check that it is what it claims to be.",
        )
    details = error.errors(include_url=False)
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    path = _real_path(value, first)
    message, remedy = _words(model, path, first)
    others = len(details) - 1
    more = f" ({others} more place{'s' if others > 1 else ''} to correct.)" if others else ""
    kind = range_error if first["type"] in _RANGE else DocumentError
    return kind(message, remedy=remedy + more, path=path)


def _real_path(value: Any, detail: ErrorDetails) -> _Path:
    """The location without the names of branches of unions, which the document does not have."""
    path: list[str | int] = []
    for part in detail["loc"]:
        if _holds(value, part):
            value = value[part]
        elif not (isinstance(value, Mapping | list) and detail["type"] == "missing"):
            continue
        path.append(part)
    return tuple(path)


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, Mapping):
        return part in value
    return isinstance(part, int) and isinstance(value, list | tuple) and part < len(value)


def _words(model: type[BaseModel], path: _Path, detail: ErrorDetails) -> tuple[str, str]:
    name, kind, context = _shown_path(path), detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{name} is an unknown field.", _known_fields(model, path)
    if kind == "missing":
        return f"{name} is missing.", "Add it."
    given = shown(detail["input"])
    if kind in ("literal_error", "enum"):
        close = _close(str(detail["input"]), _choices(context))
        return f"{name} is {given}.", f"{close}It must be {context['expected']}."
    if kind == "string_pattern_mismatch" and context["pattern"] != NO_CONTROL:
        return f"{name} is {given}.", f"It must match {context['pattern']}."
    wanted = detail["msg"] if kind in ("wanted", "power_of_two") else _WANTED.get(kind, "").format(**context)
    if not wanted:
        return f"{name} is {given}: {detail['msg']}.", "Correct it."
    return f"{name} is {given}.", f"It must be {wanted}."


_RANGE = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "power_of_two"}

_WANTED = {
    "int_type": "an integer (no fraction, no true or false)",
    "int_from_float": "an integer (no fraction, no true or false)",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "named_tuple_type": "a list",
    "unexpected_positional_argument": "left out: the row is longer than rows of this table are",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "invalid_key": "a string",
    "string_too_long": "a string of at most {max_length} characters",
    "string_pattern_mismatch": "a string without control characters",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}


def _shown_path(path: _Path) -> str:
    """``operations[3].inputs[0]``, as a reader would write it."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{cut(part)}" for part in path)
    return text.lstrip(".") or "The document"


def _choices(context: Mapping[str, Any]) -> list[str]:
    return [part.strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(", ")]


def _close(name: str, known: Sequence[str]) -> str:
    lowered = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower()[:100], lowered, n=2)
    return f"Did you mean {' or '.join(repr(lowered[each]) for each in found)}? " if found else ""


def _known_fields(model: type[BaseModel], path: _Path) -> str:
    owner = _model_at(model, path[:-1])
    known = sorted(owner.model_fields) if owner else []
    return f"{_close(str(path[-1]), known)}Known fields: {', '.join(known)}."


def _model_at(model: type[BaseModel], path: _Path) -> type[BaseModel] | None:
    """The model that describes the value at `path`."""
    current: Any = model
    for part in path:
        if isinstance(part, str) and isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(part)
            current = field.annotation if field else None
        models = list(_models_in(current))
        current = models[0] if models else None
    return current if isinstance(current, type) else None


def _models_in(annotation: Any) -> typing.Iterator[type[BaseModel]]:
    if isinstance(annotation, types.GenericAlias) or typing.get_args(annotation):
        for argument in typing.get_args(annotation):
            yield from _models_in(argument)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
