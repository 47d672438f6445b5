"""Options documents: what a caller may choose about a plan, and about a layout of bare buffers.

Format and version may be left out: options are typed by hand. Memories of a device are objects, or text as
``flash=1GiB,read=45MB/s,write=20MB/s``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, create_model
from pydantic_core import PydanticCustomError

from solver.canonical import to_bytes
from solver.documents.costs import CostsOfOptions, to_costs
from solver.documents.fields import (
    MAX_INTEGER,
    DocumentModel,
    JsonList,
    Name,
    Natural,
    Positive,
    Size,
    read_size,
    read_with,
)
from solver.documents.read import header, read
from solver.errors import OptionsError
from solver.layout.model.options import Rules
from solver.layout.model.placed import LayoutOptions
from solver.options import LAYOUT_OPTIONS, LAYOUT_RULES, PLAN_OPTIONS, Option
from solver.plan import PlanOptions, options_content
from solver.program import Tier

__all__ = [
    "LayoutOptionFields",
    "LayoutOptionsDocument",
    "OptionFields",
    "OptionsDocument",
    "dump_layout_options",
    "dump_options",
    "layout_options_content",
    "load_layout_options",
    "load_options",
    "to_layout_options",
    "to_options",
]

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s)", re.ASCII)
_NANOSECONDS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_FORM: Final = "NAME=SIZE, then bandwidth=, read= or write= as 45MB/s, and latency= as 100us, with commas"


class TierFields(DocumentModel):
    """One memory. Bandwidths are bytes a second, 0 where that of another memory decides; latency is ns."""

    name: Name
    bytes: Positive
    read: Natural = 0
    write: Natural = 0
    latency: Natural = 0


def read_tier(text: str) -> dict[str, Any]:
    """The fields of a tier that is written as text. Raises ValueError, which says what to give."""
    head, *rest = [part.strip() for part in text.split(",")]
    name, separator, size = head.partition("=")
    if not separator or not name:
        raise ValueError(f"give {_FORM}")
    tier: dict[str, Any] = {"name": name, "bytes": read_size(size)}
    for part in rest:
        key, _, value = part.partition("=")
        names = ("read", "write") if key == "bandwidth" else (key,)
        if key not in ("bandwidth", "read", "write", "latency") or any(name in tier for name in names):
            raise ValueError(f"give {_FORM}; {part!r} is not understood")
        number = _nanoseconds(value) if key == "latency" else _rate(key, value)
        tier |= dict.fromkeys(names, number)
    return tier


def _rate(key: str, text: str) -> int:
    if not text.endswith("/s"):
        raise ValueError(f"give {key}= as 45MB/s")
    rate = read_size(text.removesuffix("/s"))
    if not rate:
        what = key if key == "bandwidth" else f"{key} bandwidth"
        raise ValueError(f"give a {what} above zero, or none where another tier decides")
    return rate


def _nanoseconds(text: str) -> int:
    parts = _DURATION.fullmatch(text)
    length = Fraction(parts[1]) * _NANOSECONDS[parts[2]] if parts else None
    if length is None or length.denominator != 1:
        raise ValueError("give latency= as 100us, in ns, us, ms or s")
    return int(length)


#: A tier as an object or as text.
TierOfOptions = Annotated[
    TierFields, BeforeValidator(read_with(read_tier), json_schema_input_type=TierFields | str)
]


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise PydanticCustomError("power_of_two", "a power of two")
    return value


#: The type of a field, by the kind of option.
_TYPES: Final[Mapping[str, Any]] = {
    "word": Name,
    "power of two": Annotated[Positive, AfterValidator(_power_of_two)],
    "size": Size,
    "real": Annotated[float, Field(ge=0)],
    "share": Annotated[float, Field(ge=0)],
    "switch": bool,
    "tiers": JsonList[TierOfOptions],
    "costs": CostsOfOptions,
}


def _model(name: str, about: str, options: Mapping[str, Option]) -> Any:
    """A model with a field for each option. One whose default is None may be null."""
    declared: dict[str, Any] = {}
    for option in options.values():
        type_, default = _TYPES.get(option.kind), option.default
        if option.kind == "rules":
            type_, default = RulesOfLayout, RulesOfLayout()
        elif type_ is None:
            type_ = Annotated[int, Field(ge=option.least, le=option.most or MAX_INTEGER)]
        if default is None and option.kind != "costs":
            type_ = type_ | None
        declared[option.name] = (type_, Field(default, description=option.help))
    return create_model(name, __base__=DocumentModel, __module__=__name__, __doc__=about, **declared)


RulesOfLayout = _model(
    "RulesOfLayout",
    "Rules of the exact search, each of which only saves work; see `solver.layout.Rules`.",
    LAYOUT_RULES,
)

if TYPE_CHECKING:

    class OptionFields(DocumentModel): ...

    class LayoutOptionFields(DocumentModel): ...

else:
    OptionFields = _model(
        "OptionFields",
        "Sizes are bytes, or text as 24MiB; what is left out or null is the target's or planner's choice.",
        PLAN_OPTIONS,
    )
    LayoutOptionFields = _model(
        "LayoutOptionFields",
        "Sizes are bytes, or text as 24MiB; what is left out or null is the solver's choice.",
        LAYOUT_OPTIONS,
    )


class OptionsDocument(OptionFields):
    """The options of a plan."""

    format: Literal["arenaplan.options"]
    version: Literal[1]


def load_options(data: bytes | Mapping[str, Any]) -> PlanOptions:
    """Raises DocumentError for what is not an options document, OptionsError for a value out of range."""
    return to_options(read(OptionsDocument, data, has_header=False, range_error=OptionsError))


def to_options(document: OptionFields) -> PlanOptions:
    options = {name: getattr(document, name) for name in PLAN_OPTIONS}
    options["tiers"] = tuple([Tier(**dict(tier)) for tier in options["tiers"]])
    options["costs"] = None if options["costs"] is None else to_costs(options["costs"])
    return PlanOptions(**options)


def dump_options(options: PlanOptions, *, indent: int | None = None) -> bytes:
    """The options in a fixed order, with all defaults of those that were there from the beginning."""
    return to_bytes({**header(OptionsDocument), **options_content(options)}, indent=indent)


class LayoutOptionsDocument(LayoutOptionFields):
    """The options of a layout of bare buffers."""

    format: Literal["arenaplan.layout_options"]
    version: Literal[1]


def load_layout_options(data: bytes | Mapping[str, Any]) -> LayoutOptions:
    """Raises DocumentError for what is not an options document, OptionsError for a value out of range."""
    return to_layout_options(read(LayoutOptionsDocument, data, has_header=False, range_error=OptionsError))


def to_layout_options(document: LayoutOptionFields) -> LayoutOptions:
    options = {name: getattr(document, name) for name in LAYOUT_OPTIONS}
    return LayoutOptions(**{**options, "rules": Rules(**options["rules"].model_dump())})


def dump_layout_options(options: LayoutOptions, *, indent: int | None = None) -> bytes:
    """Every option, defaults included, in a fixed order."""
    return to_bytes({**header(LayoutOptionsDocument), **layout_options_content(options)}, indent=indent)


def layout_options_content(options: LayoutOptions) -> dict[str, Any]:
    """Every option; what may be a fraction is floating, so that 5 and 5.0 are written alike."""
    content: dict[str, Any] = {name: getattr(options, name) for name in LAYOUT_OPTIONS}
    if options.deadline_seconds is not None:
        content["deadline_seconds"] = float(options.deadline_seconds)
    content["target_gap"] = float(options.target_gap)
    return content | {"rules": asdict(options.rules)}
