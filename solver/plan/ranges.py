"""The sizes that one plan serves: ranges of symbolic dimensions, as ``batch 1..32``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from solver.errors import OptionsError, PlanError

__all__ = ["PlannedSizes", "RefusedSize", "SizeRange", "check_ranges", "refuse_ranges", "split_ranges"]


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


@dataclass(frozen=True, slots=True)
class RefusedSize:
    """Sizes, one for each range, at which the plan is not right, and why."""

    sizes: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedSizes:
    """The sizes that a plan serves. It was made at the largest of each range.

    `proved` are the sizes, one for each range, at which the plan was proved when it was made. Sizes inside
    the ranges that are neither proved nor refused are proved when they are first used.
    """

    ranges: tuple[SizeRange, ...]
    proved: tuple[tuple[int, ...], ...]
    refused: tuple[RefusedSize, ...] = ()

    @property
    def most(self) -> tuple[int, ...]:
        """The sizes at which the plan was made."""
        return tuple(each.most for each in self.ranges)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.ranges)

    @property
    def largest(self) -> dict[str, int]:
        """The sizes at which the plan was made, by name."""
        return {each.name: each.most for each in self.ranges}

    def __contains__(self, sizes: object) -> bool:
        """Whether the sizes, one for each range, lie inside the ranges."""
        return (
            isinstance(sizes, tuple)
            and len(sizes) == len(self.ranges)
            and all(each.least <= size <= each.most for each, size in zip(self.ranges, sizes, strict=True))
        )

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raises PlanError for sizes outside of the ranges, and for refused ones with the reason."""
        for each in self.ranges:
            if not each.least <= sizes[each.name] <= each.most:
                served = ", ".join(map(str, self.ranges))
                raise PlanError(
                    f"The {each.name} is {sizes[each.name]}; the plan serves {served}.",
                    remedy=f"Give a {each.name} inside the range, or plan with a range that has it.",
                    path=(each.name,),
                )
        chosen = tuple(sizes[name] for name in self.names)
        for refused in self.refused:
            if refused.sizes == chosen:
                asked = ", ".join(f"{name} {size}" for name, size in zip(self.names, chosen, strict=True))
                raise PlanError(
                    f"The plan does not serve {asked}: {refused.reason}",
                    remedy="Plan this size by itself.",
                    path=(self.names[0],),
                )

    def all(self) -> Iterator[tuple[int, ...]]:
        """Every combination of sizes inside the ranges, the smallest first."""
        return itertools.product(*(range(each.least, each.most + 1) for each in self.ranges))
