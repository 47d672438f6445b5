"""Options that no plan takes, a row each: every route and command has to say the same of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from solver.options import MEASURES

__all__ = ["ANY_TARGET", "PLACES", "REFUSED", "Refused"]

FAST, SLOW = "fast=20kB", "slow=1MiB,bandwidth=45MB/s"

#: Options whose mistakes are about values of a program: `test_constraints.py` has these.
PLACES = frozenset({"pins", "alignments", "reserved"})

#: What every target takes.
ANY_TARGET = frozenset(
    {
        *("target", "solver", "batch", "alignment", "capacity", "deadline_seconds", "scratch_budget"),
        *PLACES,
    }
)


@dataclass(frozen=True, slots=True)
class Refused:
    """`fields` of an options document, the place that a refusal leads to, and words of it."""

    fields: dict[str, Any]
    pointer: str
    words: str

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.fields.items())[:80]


def _of_target(name: str, value: Any, **more: Any) -> Refused:
    if name in MEASURES:
        return Refused({"target": "onert", "only": [name], **more}, "/only", "Target 'onert'")
    return Refused({"target": "onert", name: value, **more}, f"/{name}", "Target 'onert'")


REFUSED: tuple[Refused, ...] = (
    # Targets that have not what is asked for.
    _of_target("parallelism", 2),
    _of_target("update", "end"),
    _of_target("in_place", True),
    _of_target("sub_ranges", True),
    _of_target("rewrite", True),
    _of_target("chunked_head", True),
    _of_target("order", True),
    _of_target("recompute", True, capacity=30_000),
    _of_target("tiers", [FAST, SLOW]),
    _of_target("memories", [FAST, SLOW]),
    _of_target("place", ["fc1.weight=fast"]),
    _of_target("storage", "bfloat16"),
    _of_target("frozen_storage", "int4"),
    _of_target("tile_bytes", 4096),
    _of_target("costs", {"nanoseconds": {"fc1": 1}}),
    _of_target("fit_scratch", True),
    # Values that mean nothing.
    Refused({"target": "abacus"}, "/target", "Unknown target 'abacus'"),
    Refused({"solver": "abacus"}, "/solver", "Unknown solver 'abacus'"),
    Refused({"update": "never"}, "/update", "Unknown update mode 'never'"),
    Refused({"storage": "float8"}, "/storage", "float8"),
    Refused({"tile_bytes": 4096, "capacity": 4095}, "/tile_bytes", "4,096"),
    Refused({"frozen_storage": "int3"}, "/frozen_storage", "int3"),
    Refused({"alignment": 2**21}, "/alignment", "power of two"),
    Refused({"alignment": 48}, "/alignment", "power of two"),
    Refused({"alignment": 0}, "/alignment", "alignment"),
    Refused({"parallelism": 0}, "/parallelism", "parallelism"),
    Refused({"parallelism": 65}, "/parallelism", "parallelism"),
    Refused({"scratch_budget": 0}, "/scratch_budget", "scratch budget"),
    Refused({"capacity": -1}, "/capacity", "capacity"),
    Refused({"deadline_seconds": -1.0}, "/deadline_seconds", "deadline_seconds"),
    Refused({"batch": 0}, "/batch", "batch"),
    Refused({"chunked_head": True}, "/chunked_head", "No head of"),
    # What does not go together.
    Refused({"capacity": 30_000, "tiers": [FAST, SLOW]}, "/capacity", "Both a capacity and tiers"),
    Refused({"tiers": [FAST]}, "/tiers", "nothing to page out to"),
    Refused({"tiers": [FAST, "slow=1MiB"]}, "/tiers/1", "how fast tier 'slow'"),
    Refused({"tiers": [FAST, SLOW.replace("slow", "fast")]}, "/tiers/1/name", "is called 'fast'"),
    Refused({"memories": [FAST, SLOW.replace("slow", "fast")]}, "/memories/1/name", "is called 'fast'"),
    Refused({"memories": [FAST], "tiers": ["slow=1MiB"]}, "/tiers/0", "how fast tier 'slow'"),
    Refused({"memories": [FAST], "capacity": 30_000}, "/capacity", "Both a capacity and memories"),
    Refused({"place": ["fc1.weight=fast"]}, "/place/0", "--memory fast="),
    Refused({"memories": [FAST], "place": ["fc1.weight"]}, "/place/0", "does not say"),
    Refused({"memories": [FAST], "place": ["fc1.weight=slow"]}, "/place/0", "Choose one of fast"),
    Refused({"costs": {"nanoseconds": {}}}, "/costs/nanoseconds", "fc1:forward"),
    Refused({"costs": {"nanoseconds": {"fc99": 1}}}, "/costs/nanoseconds/fc99", "fc99"),
)
