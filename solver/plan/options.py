"""The options of a plan: exactly, and as they are asked for, with the ranges of sizes that it is to serve."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from solver.errors import OptionsError
from solver.layout import Alignment, Pin
from solver.options import PLAN_OPTIONS, documented
from solver.program import Constraints, Costs, ReservedRange, Tier

__all__ = [
    "RANGE",
    "PlanOptions",
    "RequestedOptions",
    "SizeRange",
    "check_ranges",
    "refuse_ranges",
    "split_ranges",
]


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The sizes of a symbolic dimension that a plan serves: `least` to `most`, both included."""

    name: str
    least: int
    most: int

    @property
    def path(self) -> tuple[str, ...]:
        """The place of the range among options."""
        return (self.name,) if self.name == "batch" else ("dims", self.name)

    def __str__(self) -> str:
        return f"{self.name} {self.least}..{self.most}"


def check_ranges(ranges: Sequence[SizeRange]) -> None:
    """Raises OptionsError for a range that is empty, upside down, or not the only one of its name."""
    names = [each.name for each in ranges]
    for each in ranges:
        remedy = f"Give it from the smallest to the largest size, as {each.name}=1..32."
        if each.name == "batch":
            remedy = "Give it from the smallest to the largest batch, as 1..32."
        if each.most < each.least:
            raise OptionsError(f"The range {each} is upside down.", remedy=remedy, path=each.path)
        if each.least < 1:
            raise OptionsError(f"The range {each} is not of positive sizes.", remedy=remedy, path=each.path)
        if names.count(each.name) > 1:
            raise OptionsError(
                f"There are two ranges of {each.name!r:.60}.", remedy="Give one.", path=each.path
            )


def refuse_ranges(ranges: Sequence[SizeRange], what: str) -> None:
    """Raises OptionsError for ranges where `what`, as "A curve", is about one size."""
    if ranges:
        raise OptionsError(
            f"{what} is of one size, and {', '.join(map(str, ranges))} is asked for.",
            remedy="Give one batch, and write the sizes of other dimensions into the document's dims.",
            path=ranges[0].path,
        )


#: A range as text: ``1..32``.
RANGE: Final = re.compile(r"\s*([0-9]{1,18})\s*\.\.\s*([0-9]{1,18})\s*", re.ASCII)


def split_ranges(choices: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[SizeRange, ...]]:
    """Choices for a model, its ``dim`` of ranges at their largest size, and these ranges.

    ``seq=16..512`` becomes ``seq=512`` and a range. What is not understood stays, for its reader to name.
    Raises OptionsError for a range that is empty, upside down, or not the only one of its name.
    """
    texts = choices.get("dim", ())
    ranges, sizes = list[SizeRange](), list[Any]()
    for text in texts if isinstance(texts, list | tuple) else [texts]:
        name, _, size = str(text).rpartition("=")
        ends = RANGE.fullmatch(size)
        if name and ends is not None:
            ranges.append(SizeRange(name, int(ends[1]), int(ends[2])))
            text = f"{name}={ranges[-1].most}"
        sizes.append(text)
    check_ranges(ranges)
    return {**choices, "dim": sizes} if ranges else dict(choices), tuple(ranges)


@documented(PLAN_OPTIONS)
@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a plan. None leaves the choice to the target or the planner.

    Each option belongs to the pipeline, to a preparation or to a pass (`solver.preparations`,
    `solver.passes`). Without `deadline_seconds` budgets are counted in work, and the plan is deterministic.
    With `tiers` the size of the first one is the capacity, with `memories` that of all of them together.
    Without `costs` a roofline says how long steps take, the same everywhere.
    """

    target: str = PLAN_OPTIONS["target"].default
    solver: str = PLAN_OPTIONS["solver"].default
    batch: int | None = PLAN_OPTIONS["batch"].default
    alignment: int | None = PLAN_OPTIONS["alignment"].default
    capacity: int | None = PLAN_OPTIONS["capacity"].default
    deadline_seconds: float | None = PLAN_OPTIONS["deadline_seconds"].default
    scratch_budget: int = PLAN_OPTIONS["scratch_budget"].default
    update: str = PLAN_OPTIONS["update"].default
    parallelism: int = PLAN_OPTIONS["parallelism"].default
    in_place: bool = PLAN_OPTIONS["in_place"].default
    rewrite: bool = PLAN_OPTIONS["rewrite"].default
    chunked_head: bool = PLAN_OPTIONS["chunked_head"].default
    sub_ranges: bool = PLAN_OPTIONS["sub_ranges"].default
    recompute: bool = PLAN_OPTIONS["recompute"].default
    order: bool = PLAN_OPTIONS["order"].default
    tiers: tuple[Tier, ...] = PLAN_OPTIONS["tiers"].default
    memories: tuple[Tier, ...] = PLAN_OPTIONS["memories"].default
    place: tuple[str, ...] = PLAN_OPTIONS["place"].default
    costs: Costs | None = PLAN_OPTIONS["costs"].default
    storage: str | None = PLAN_OPTIONS["storage"].default
    frozen_storage: str | None = PLAN_OPTIONS["frozen_storage"].default
    tile_bytes: int | None = PLAN_OPTIONS["tile_bytes"].default
    fit_scratch: bool = PLAN_OPTIONS["fit_scratch"].default
    pins: tuple[Pin, ...] = PLAN_OPTIONS["pins"].default
    alignments: tuple[Alignment, ...] = PLAN_OPTIONS["alignments"].default
    reserved: tuple[ReservedRange, ...] = PLAN_OPTIONS["reserved"].default

    @property
    def constraints(self) -> Constraints:
        """The constraints on the places of single values."""
        return Constraints(self.pins, self.alignments, self.reserved)


@dataclass(frozen=True, slots=True)
class RequestedOptions:
    """The options that a user asks for. If `automatic`, the planner chooses the measures that change no bit:
    those of `options` are off. Otherwise `options` describe the plan exactly. The plan is to serve every size
    in the `ranges`; the batch of the options is then the largest.
    """

    options: PlanOptions = field(default_factory=PlanOptions)
    automatic: bool = True
    ranges: tuple[SizeRange, ...] = ()

    @property
    def deadline_seconds(self) -> float | None:
        return self.options.deadline_seconds

    def having(self, **changes: Any) -> RequestedOptions:
        """The same request with other options."""
        return replace(self, options=replace(self.options, **changes))
