"""Options documents: what a caller may choose about a plan, and about a layout of bare buffers.

Format and version may be left out: options are typed by hand. Memories of a device are objects, or text as
``flash=1GiB,read=45MB/s,write=20MB/s``. Measures are a list, or text as ``in-place,order``. A plan document
has other options: those of the plan as it was made, with a switch for each measure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, create_model
from pydantic_core import PydanticCustomError

from solver.canonical import to_bytes
from solver.documents.costs import CostsOfOptions, to_costs
from solver.documents.fields import (
    MAX_INTEGER,
    MAX_LISTED,
    DocumentModel,
    Int64,
    JsonList,
    Name,
    Natural,
    Positive,
    Size,
    read_size,
    read_with,
    refused,
)
from solver.documents.parse import parse_json
from solver.documents.read import header, read
from solver.errors import DocumentError, OptionsError
from solver.layout.model.options import Rules
from solver.layout.model.placed import Alignment, LayoutOptions, Pin
from solver.layout.model.problem import Reserved
from solver.options import (
    CONSTRAINTS,
    IMPORT_OPTIONS,
    LAYOUT_OPTIONS,
    LAYOUT_RULES,
    MEASURES,
    PLAN_OPTIONS,
    REQUEST_OPTIONS,
    Option,
    former_option,
)
from solver.plan import PlanOptions, RequestedOptions, SizeRange, check_ranges
from solver.plan.content import constraints_content, memories_content, options_content
from solver.plan.options import RANGE
from solver.program import ReservedRange, Tier

__all__ = [
    "ImportFields",
    "LayoutOptionFields",
    "LayoutOptionsDocument",
    "OptionFields",
    "OptionsDocument",
    "PlannedOptionFields",
    "dump_layout_options",
    "dump_options",
    "layout_options_content",
    "load_layout_options",
    "load_options",
    "request_content",
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


class MemoryFields(DocumentModel):
    """One memory that kernels reach. Bandwidths are bytes a second; without one, accesses take no time beside
    the cost of their step. Latency is ns, of each access.
    """

    name: Name
    bytes: Positive
    read: Positive | None = None
    write: Positive | None = None
    latency: Natural = 0


def read_tier(text: str) -> dict[str, Any]:
    """The fields of a tier that is written as text. Raises ValueError, which says what to give."""
    # A comma before a digit stands inside a number, as in sram=524,288.
    head, *rest = [part.strip() for part in re.split(r",(?![0-9])", text)]
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
    try:
        rate = read_size(text.removesuffix("/s")) if text.endswith("/s") else 0
    except ValueError:
        rate = 0
    if not rate:
        remedy = f"Give bytes a second above zero, as {key}=45MB/s, or leave {key}= out."
        raise refused(f"{key}={text:.60} is no bandwidth.", remedy)
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


#: A memory as an object or as text.
MemoryOfOptions = Annotated[
    MemoryFields, BeforeValidator(read_with(read_tier), json_schema_input_type=MemoryFields | str)
]


def _power_of_two(value: int) -> int:
    if value < 1 or value & (value - 1):
        raise PydanticCustomError("power_of_two", "a power of two")
    return value


def _measures(value: Any) -> Any:
    """Names of measures as the options of plans have them, from a list or from text."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return names
    return [name.strip().replace("-", "_") if isinstance(name, str) else name for name in names]


Measure = Literal["in_place", "sub_ranges", "order", "fit_scratch", "recompute"]

#: Measures as a list or as text.
_Measures = Annotated[
    JsonList[Measure], BeforeValidator(_measures, json_schema_input_type=list[Measure] | str)
]


class RangeFields(DocumentModel):
    """Bytes from `low` to before `high` of a memory: of the first one, unless `space` names another."""

    low: Size
    high: Size
    space: Name = ""


def read_range(text: str) -> dict[str, Any]:
    """The fields of ``0..8KiB`` or ``flash:0..8KiB``. Raises ValueError, which says what to give."""
    head, separator, high = text.rpartition("..")
    space, _, low = head.rpartition(":")
    with suppress(ValueError):
        if separator:
            return {"low": read_size(low.strip()), "high": read_size(high.strip()), "space": space}
    raise ValueError("give LOW..HIGH in bytes, as 0..8KiB")


RangeOfOptions = Annotated[
    RangeFields, BeforeValidator(read_with(read_range), json_schema_input_type=RangeFields | str)
]


def _listed(value: Any) -> Any:
    """A list, also of one text alone."""
    return [value] if isinstance(value, str) else value


def _bytes_by_name(value: Any) -> Any:
    """Bytes by name from a list of texts as ``conv1.weight=8KiB``, or from one."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    sizes: dict[str, int] = {}
    for text in texts:
        name, separator, size = text.rpartition("=") if isinstance(text, str) else ("", "", "")
        if not separator or not name:
            raise refused(f"{text!r:.100} is no name with bytes.", "Write both, as conv1.weight=8KiB.")
        try:
            number = read_size(size)
        except ValueError as error:
            remedy = str(error).removeprefix("give ")
            raise refused(
                f"{text!r:.100} has no bytes behind the name.", f"Give {remedy}, as {name:.60}=8KiB."
            ) from None
        if sizes.setdefault(name, number) != number:
            message = f"{name!r:.100} has two numbers of bytes, {sizes[name]:,} and {number:,}."
            raise refused(message, "Leave one of them out.")
    return sizes


def _alignments_by_name(value: Any) -> Any:
    """As `_bytes_by_name`. Texts name the value here, where the location of an error has only their list."""
    sizes = _bytes_by_name(value)
    for name, size in sizes.items() if isinstance(value, str | list | tuple) and sizes is not value else ():
        if size < 1 or size & (size - 1):
            message = f"The alignment {size:,} of {name!r:.100} is not a power of two."
            raise refused(message, "Give 64, 128, ..., as 4096 or 4KiB.", kind="power_of_two")
    return sizes


def _bytes_of(type_: Any, reader: Callable[[Any], Any]) -> Any:
    schema = dict[Name, type_] | list[str] | str
    return Annotated[dict[Name, type_], BeforeValidator(reader, json_schema_input_type=schema)]


if TYPE_CHECKING:

    class SizesFields(DocumentModel): ...

else:  # its first field has the name of a keyword
    SizesFields = create_model(
        "SizesFields",
        __base__=DocumentModel,
        __module__=__name__,
        __doc__="A range of sizes, both ends included.",
        **{"from": (Natural, ...), "to": (Natural, ...)},
    )


def read_sizes(text: str) -> dict[str, int]:
    """The fields of a range that is written as ``1..32``. Raises ValueError, which says what to give."""
    ends = RANGE.fullmatch(text)
    if ends is None:
        raise ValueError("give a whole number of at least 1, or a range as 1..32")
    return {"from": int(ends[1]), "to": int(ends[2])}


#: A size, or a range of sizes as an object or as text.
_Sizes = Annotated[
    Annotated[Positive, Tag("size")] | Annotated[SizesFields, Tag("range")],
    # So that what is wrong with an object is said of its fields.
    Discriminator(lambda value: "range" if isinstance(value, Mapping | SizesFields) else "size"),
    BeforeValidator(read_with(read_sizes), json_schema_input_type=Positive | SizesFields | str),
]

#: The most memories, ranges and dimensions of one plan: some of the work grows with their square.
_FEW: Final = Field(max_length=MAX_LISTED)

#: The type of a field, by the kind of option.
_TYPES: Final[Mapping[str, Any]] = {
    "word": Name,
    "integer": Int64,
    "power of two": Annotated[Positive, AfterValidator(_power_of_two)],
    "size": Size,
    **dict.fromkeys(("real", "seconds", "share"), Annotated[float, Field(ge=0)]),
    "switch": bool,
    "tiers": Annotated[JsonList[TierOfOptions], _FEW],
    "memories": Annotated[JsonList[MemoryOfOptions], _FEW],
    "words": JsonList[Name],
    "costs": CostsOfOptions,
    "measures": _Measures,
    "offsets": _bytes_of(Size, _bytes_by_name),
    "alignments": _bytes_of(Annotated[Size, AfterValidator(_power_of_two)], _alignments_by_name),
    "ranges": Annotated[
        JsonList[RangeOfOptions],
        _FEW,
        BeforeValidator(_listed, json_schema_input_type=Annotated[list[RangeFields | str], _FEW] | str),
    ],
    "sizes": _Sizes,
    "dims": Annotated[dict[Name, _Sizes], _FEW],
}


def _model(name: str, about: str, options: Mapping[str, Option]) -> Any:
    """A model with a field for each option. One whose default is None may be null.

    Schemas name words and upper bounds that the core checks, as it says more of a value that is none.
    """
    declared: dict[str, Any] = {}
    for option in options.values():
        type_, default = _TYPES.get(option.kind), option.default
        if option.kind == "rules":
            type_, default = RulesOfLayout, RulesOfLayout()
        elif type_ is None:
            type_ = Annotated[int, Field(ge=option.least, le=option.most or MAX_INTEGER)]
        elif option.kind == "word" and option.words and options is not PLAN_OPTIONS:
            type_ = Annotated[type_, Field(json_schema_extra={"enum": [*option.words]})]
        elif option.kind == "power of two" and option.most and options is not PLAN_OPTIONS:
            powers = [1 << power for power in range(option.most.bit_length())]
            type_ = Annotated[type_, Field(json_schema_extra={"enum": [*powers]})]
        elif option.kind == "share" and option.most:
            type_ = Annotated[type_, Field(json_schema_extra={"exclusiveMaximum": option.most})]
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

    class PlannedOptionFields(DocumentModel): ...

    class LayoutOptionFields(DocumentModel): ...

    class ImportFields(DocumentModel): ...

else:
    OptionFields = _model(
        "OptionFields",
        "Sizes are bytes, or text as 24MiB; what is left out or null is the target's or planner's choice.",
        REQUEST_OPTIONS,
    )
    PlannedOptionFields = _model(
        "PlannedOptionFields",
        "The options that a plan was made with, exactly: a switch says of each measure whether it was taken.",
        PLAN_OPTIONS,
    )
    LayoutOptionFields = _model(
        "LayoutOptionFields",
        "Sizes are bytes, or text as 24MiB; what is left out or null is the solver's choice.",
        LAYOUT_OPTIONS,
    )
    ImportFields = _model("ImportFields", "How a model of another tool is trained.", IMPORT_OPTIONS)


class OptionsDocument(OptionFields):
    """The options of a plan."""

    format: Literal["arenaplan.options"]
    version: Literal[1]


def load_options(data: bytes | Mapping[str, Any]) -> RequestedOptions:
    """Raises DocumentError for what is not an options document, OptionsError for a value out of range."""
    value = parse_json(data) if isinstance(data, bytes) else data
    for name in MEASURES if isinstance(value, Mapping) else ():
        if name in value:
            texts = former_option(name, name, f'"only": ["{name}"]', '"scratch_budget": 65536')
            raise DocumentError(texts[0], remedy=texts[1], path=(name,))
    document = read(OptionsDocument, value, has_header=False, range_error=OptionsError)
    content = {name: getattr(document, name) for name in REQUEST_OPTIONS}
    as_written, only = content.pop("as_written"), content.pop("only")
    dims = dict(content.pop("dims") or {})
    if "batch" in dims:
        if content["batch"] is not None:
            raise OptionsError(
                "The batch is asked for twice: as batch, and among dims.",
                remedy="Give one of the two.",
                path=("dims", "batch"),
            )
        content["batch"] = dims.pop("batch")
    ranges = tuple(_ranges({"batch": content["batch"], **dims}))
    check_ranges(ranges)
    if isinstance(content["batch"], SizesFields):
        content["batch"] = content["batch"].model_dump()["to"]
    if as_written and only:
        raise OptionsError(
            "Both as_written, which takes no measure, and only, which chooses some, are asked for.",
            remedy="Give one of the two.",
            path=("only",),
        )
    measures = dict.fromkeys(only or (), True)
    if "sub_ranges" in measures:
        measures["in_place"] = True
    automatic = only is None and not as_written
    return RequestedOptions(_options({**content, **measures}), automatic, ranges)


def _ranges(sizes: Mapping[str, int | SizesFields | None]) -> Iterator[SizeRange]:
    """A range for each name; a batch of one size is an option of the plan, and none."""
    for name, size in sizes.items():
        if isinstance(size, SizesFields):
            ends = size.model_dump()
            yield SizeRange(name, ends["from"], ends["to"])
        elif size is not None and name != "batch":
            yield SizeRange(name, size, size)


def to_options(document: PlannedOptionFields) -> PlanOptions:
    return _options({name: getattr(document, name) for name in PLAN_OPTIONS})


def _options(content: Mapping[str, Any]) -> PlanOptions:
    tiers = tuple(Tier(**dict(tier)) for tier in content["tiers"])
    memories = _memories(content["memories"])
    costs = None if content["costs"] is None else to_costs(content["costs"])
    constraints = _constraints(content, ReservedRange)
    return PlanOptions(**{**content, "tiers": tiers, "memories": memories, "costs": costs, **constraints})


def _memories(documents: Sequence[MemoryFields]) -> tuple[Tier, ...]:
    return tuple(Tier(m.name, m.bytes, m.read or 0, m.write or 0, m.latency) for m in documents)


def _constraints(content: Mapping[str, Any], range_: type[ReservedRange | Reserved]) -> dict[str, Any]:
    """The pins, alignments and reserved ranges of a document."""
    return {
        "pins": tuple(Pin(*each) for each in dict(content["pins"]).items()),
        "alignments": tuple(Alignment(*each) for each in dict(content["alignments"]).items()),
        "reserved": tuple(range_(**each.model_dump(exclude_defaults=True)) for each in content["reserved"]),
    }


def request_content(requested: RequestedOptions | PlanOptions) -> dict[str, Any]:
    """The fields of the options document that asks for these; see `dump_options`."""
    if isinstance(requested, PlanOptions):
        requested = RequestedOptions(requested, automatic=False)
    content = options_content(requested.options)
    only = [name for name in MEASURES if content.pop(name, False)]
    if not requested.automatic:
        content["only"] = only
    dims = {each.name: f"{each.least}..{each.most}" for each in requested.ranges}
    if "batch" in dims:
        content["batch"] = dims.pop("batch")
    return content | {"dims": dims} if dims else content


def dump_options(requested: RequestedOptions | PlanOptions, *, indent: int | None = None) -> bytes:
    """The options in a fixed order, with all defaults of those that were there from the beginning.

    Exact options are asked for as they are, with their measures only.
    """
    return to_bytes({**header(OptionsDocument), **request_content(requested)}, indent=indent)


class LayoutOptionsDocument(LayoutOptionFields):
    """The options of a layout of bare buffers."""

    format: Literal["arenaplan.layout_options"]
    version: Literal[1]


def load_layout_options(data: bytes | Mapping[str, Any]) -> LayoutOptions:
    """Raises DocumentError for what is not an options document, OptionsError for a value out of range."""
    return to_layout_options(read(LayoutOptionsDocument, data, has_header=False, range_error=OptionsError))


def to_layout_options(document: LayoutOptionFields) -> LayoutOptions:
    options = {name: getattr(document, name) for name in LAYOUT_OPTIONS}
    for i, range_ in enumerate(options["reserved"]):
        if range_.space:
            raise OptionsError(
                f"Bytes of {range_.space!r} are reserved, and buffers have one memory without a name.",
                remedy=f"Write {range_.low}..{range_.high}.",
                path=("reserved", i),
            )
    rules, memories = Rules(**options["rules"].model_dump()), _memories(options["memories"])
    return LayoutOptions(
        **{**options, "rules": rules, "memories": memories, **_constraints(options, Reserved)}
    )


def dump_layout_options(options: LayoutOptions, *, indent: int | None = None) -> bytes:
    """Every option in a fixed order, defaults included; of constraints those that there are."""
    return to_bytes({**header(LayoutOptionsDocument), **layout_options_content(options)}, indent=indent)


def layout_options_content(options: LayoutOptions) -> dict[str, Any]:
    """Every option, of constraints those that there are. Seconds are floating: 5 and 5.0 are alike."""
    content: dict[str, Any] = {
        name: getattr(options, name)
        for name in LAYOUT_OPTIONS
        if name not in (*CONSTRAINTS, "memories", "place")
    }
    if options.deadline_seconds is not None:
        content["deadline_seconds"] = float(options.deadline_seconds)
    content["target_gap"] = float(options.target_gap)
    if options.memories:
        content["memories"] = memories_content(options.memories)
    if options.place:
        content["place"] = list(options.place)
    return content | {"rules": asdict(options.rules)} | constraints_content(options)
