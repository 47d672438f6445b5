"""What every document begins with: strict JSON, an object, its format and its version. Loads no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from solver.documents.parse import parse_json
from solver.errors import DocumentError

__all__ = ["VERSION", "cut", "kind_of", "read_header", "shown"]

#: The version of all kinds of documents but plans.
VERSION = 1


def read_header(
    data: bytes | Mapping[str, Any], *, format_: str, versions: Sequence[int], required: bool = True
) -> tuple[Mapping[str, Any], int]:
    """The value of a document and its version, one of `versions`; the last of them if it may be left out.

    Raises DocumentError for what is not JSON, not an object, or of another format or version.
    """
    value = parse_json(data) if isinstance(data, bytes) else data
    if not isinstance(value, Mapping):
        raise DocumentError(
            f"The document is {kind_of(value)}, not an object.",
            remedy=f'Send an object with "format": "{format_}" and "version": {versions[-1]}.',
        )
    if "format" not in value and required:
        raise DocumentError(
            "The document does not say what it is.", remedy=f'Add "format": "{format_}".', path=("format",)
        )
    found = value.get("format", format_)
    if found != format_:
        raise DocumentError(
            f"The format is {shown(found)}, not '{format_}'.",
            remedy=f'Send a document whose format is "{format_}".',
            path=("format",),
        )
    if "version" not in value and required:
        raise DocumentError(
            "The document has no version.", remedy=f'Add "version": {versions[-1]}.', path=("version",)
        )
    version = value.get("version", versions[-1])
    if isinstance(version, bool | float) or version not in versions:
        raise DocumentError(
            f"Version {shown(version)} of '{format_}' is not known.",
            remedy=f"Known versions: {', '.join(map(str, versions))}.",
            path=("version",),
        )
    return value, version


def cut(text: str, limit: int = 60) -> str:
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def shown(value: Any) -> str:
    if isinstance(value, str):
        return cut(repr(value))
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return cut(str(value)) if isinstance(value, int | float) else kind_of(value)


def kind_of(value: Any) -> str:
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
