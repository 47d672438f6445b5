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
from solver.documents.parse import parse_json
from solver.errors import ArenaplanError, DocumentError, OtherFormatError
from solver.removed import removed

__all__ = ["header", "read"]

#: More mistakes than this are counted, not described one by one.
MAX_ERRORS = 1000

Model = TypeVar("Model", bound=DocumentModel)

_Path = tuple[str | int, ...]


def read(
    model: type[Model],
    data: bytes | Mapping[str, Any],
    *,
    has_header: bool = True,
    range_error: type[ArenaplanError] = DocumentError,
) -> Model:
    """The model of a document, given as JSON text or as the value parsed from it.

    The model says which format and versions it reads; they may be left out where `has_header` is false.
    Raises DocumentError, or `range_error` for a value of the right kind beyond its range.
    """
    value, version = _checked_header(model, data, has_header)
    format_ = header(model)["format"]
    try:
        return model.model_validate({**value, "format": format_, "version": version})
    except ValidationError as error:
        raise _translate(model, value, error, range_error) from None


def header(model: type[DocumentModel]) -> dict[str, Any]:
    """The format and the last version that a model reads: how the document begins."""
    return {name: typing.get_args(model.model_fields[name].annotation)[-1] for name in ("format", "version")}


def _checked_header(
    model: type[DocumentModel], data: bytes | Mapping[str, Any], is_required: bool
) -> tuple[Mapping[str, Any], int]:
    """The value of a document, and its version.

    Raises DocumentError for what is not JSON, not an object, or of another format or version.
    """
    format_, latest = header(model).values()
    value = parse_json(data) if isinstance(data, bytes) else data
    if not isinstance(value, Mapping):
        raise DocumentError(
            f"The document is {_kind_of(value)}, not an object.",
            remedy=f'Give an object with "format": "{format_}" and "version": {latest}.',
        )
    if "format" not in value and is_required:
        raise DocumentError(
            "The document does not say what it is.", remedy=f'Add "format": "{format_}".', path=("format",)
        )
    if (actual := value.get("format", format_)) != format_:
        raise OtherFormatError(
            f"The format is {_shown(actual)}, not '{format_}'.",
            format_=str(actual),
            remedy=f'Give a document whose format is "{format_}".',
        )
    if "version" not in value and is_required:
        raise DocumentError(
            "The document has no version.", remedy=f'Add "version": {latest}.', path=("version",)
        )
    version, versions = (
        value.get("version", latest),
        typing.get_args(model.model_fields["version"].annotation),
    )
    if isinstance(version, bool | float) or version not in versions:
        raise DocumentError(
            f"Version {_shown(version)} of '{format_}' is not known.",
            remedy=f"Known versions: {', '.join(map(str, versions))}.",
            path=("version",),
        )
    return value, version


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
    for k, part in enumerate(detail["loc"]):
        if _holds(value, part):
            value = value[part]
        elif detail["type"] != "missing" or k + 1 < len(detail["loc"]):
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
        return removed(str(path[-1])) or f"{name} is an unknown field.", _known_fields(model, path)
    if kind == "missing":
        return f"{name} is missing.", "Add it."
    if "remedy" in context:
        return context["message"], context["remedy"]
    value = _shown(detail["input"])
    if kind in ("literal_error", "enum"):
        close = _close(str(detail["input"]), _choices(context))
        return f"{name} is {value}.", f"{close}It must be {context['expected']}."
    if kind == "string_pattern_mismatch" and context["pattern"] != NO_CONTROL:
        return f"{name} is {value}.", f"It must match {context['pattern']}."
    words = (
        detail["msg"] if kind in ("expected", "power_of_two") else _EXPECTED.get(kind, "").format(**context)
    )
    if not words:
        return f"{name} is {value}: {detail['msg']}.", "Correct it."
    return f"{name} is {value}.", f"It must be {words}."


_RANGE = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "power_of_two"}

_EXPECTED = {
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
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_cut(part)}" for part in path)
    return text.lstrip(".") or "The document"


def _choices(context: Mapping[str, Any]) -> list[str]:
    return [part.strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(", ")]


def _close(name: str, known: Sequence[str]) -> str:
    lowered = {each.lower(): each for each in known}
    matches = difflib.get_close_matches(name.lower()[:100], lowered, n=2)
    return f"Did you mean {' or '.join(repr(lowered[each]) for each in matches)}? " if matches else ""


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


def _cut(text: str, limit: int = 60) -> str:
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _shown(value: Any) -> str:
    """A value as errors repeat it."""
    if isinstance(value, str):
        return _cut(repr(value))
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return _cut(str(value)) if isinstance(value, int | float) else _kind_of(value)


def _kind_of(value: Any) -> str:
    for type_, word in (
        (Mapping, "an object"),
        (str, "a string"),
        (bool, "true or false"),
        (int | float, "a number"),
        (Sequence, "a list"),
    ):
        if isinstance(value, type_):
            return word
    return "null" if value is None else type(value).__name__
