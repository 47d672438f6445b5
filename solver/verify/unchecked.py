"""The claims of a plan document that no check can work out again, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["UNCHECKED", "is_unchecked"]

_ASKED: Final = "What was asked for is known to the caller alone; what the plan does is checked."
_LIMIT: Final = "A limit that was asked for: the plan has to keep it, and may stay below."
_SPEED: Final = "A fact about the device. Times of copies and repetitions have to agree with it."
_SEARCH: Final = "A search proved this bound. It may not be more than the plan itself takes."
_IN_PLACE: Final = "Added up where no values lie in place; with aliases it is measured before the last pass."
_LEVELS: Final = "Added up where one step runs at a time; levels have an order that is not in the plan."
_OTHER_PLAN: Final = "It is about another plan, which is not in this one."
_REWRITING: Final = "Graphs that stood between two replacements are not kept, nor are their bounds."

#: By place in the document why nothing checks it, or not all of it. ``[*]`` is any row, ``records[name]`` the
#: record of that name. A place stands for everything inside of it.
UNCHECKED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "producer": "Which version made the plan is known to that version alone; no step depends on it.",
        "deterministic": "Whether wall time decided anything is known to the run that made the plan.",
        "spaces[*][4].solver": "Any solver may have found the layout; the places are checked.",
        "spaces[*][4].lower_bound": "At least the load, at most the size; between them a search proved it.",
        "options.solver": _ASKED,
        "options.deadline_seconds": _ASKED,
        "options.batch": _ASKED,
        "options.update": _ASKED,
        "options.in_place": _ASKED,
        "options.sub_ranges": _ASKED,
        "options.rewrite": _ASKED,
        "options.chunked_head": _ASKED,
        "options.recompute": _ASKED,
        "options.order": _ASKED,
        "options.fit_scratch": _ASKED,
        "options.target": "It decides the reference program; targets that have the same one are alike.",
        "options.scratch_budget": "Kernels that are here have it among their attributes; others have none.",
        "options.storage": "It decides the reference program; explicit programs have no activations.",
        "options.frozen_storage": "It decides the reference program; explicit programs say what they store.",
        "options.tile_bytes": "It decides the reference program; explicit programs have no weights to cut.",
        "options.alignment": "It decides the reference program, and with it the alignment of places.",
        "options.capacity": _LIMIT,
        "options.parallelism": _LIMIT,
        "options.tiers[*].bytes": _LIMIT,
        "options.tiers[*].read": _SPEED,
        "options.tiers[*].write": _SPEED,
        "options.tiers[*].latency": _SPEED,
        "options.memories[*].bytes": _LIMIT,
        "options.pins": _LIMIT,
        "options.alignments": _LIMIT,
        "options.reserved": _LIMIT,
        "options.memories[*].read": _SPEED,
        "options.memories[*].write": _SPEED,
        "options.memories[*].latency": _SPEED,
        "options.place": _ASKED,
        "options.costs": _SPEED,
        "replacements[*][3]": _REWRITING,
        "replacements[*][4]": _REWRITING,
        "replacements[*][5]": _REWRITING,
        "records[fit_scratch].budget_before": "What was asked for; the budget that was taken is checked.",
        "records[fit_scratch].bound_before": "The bound for a budget that the plan does not have.",
        "records[fit_scratch].bound_after": _REWRITING,
        "records[order].steps_moved": "Counted where no later pass moves steps again.",
        "records[search_order].order_bound": _SEARCH,
        "records[search_order].every_order_nanoseconds": _SEARCH,
        "records[search_order].for_recomputation": "An order does not say what it was chosen for.",
        "records[search_order].peak_before": "The order before the search is not in the plan.",
        "records[search_order].peak_after": _LEVELS,
        "records[recompute].floor": _SEARCH,
        "records[recompute].order_bound": _SEARCH,
        "records[recompute].bound_nanoseconds": _SEARCH,
        "records[recompute].budget": "At least the peak; layout or levels may leave less than the capacity.",
        "records[recompute].peak_before": _IN_PLACE,
        "records[recompute].peak_after": _IN_PLACE,
        "records[homes].bound_nanoseconds": _SEARCH,
        "home_bound.rows": "Any multipliers prove a bound; what these prove may be more than is claimed.",
        "home_bound.denominator": "A smaller one proves more than is claimed.",
        "records[paging].bound": _SEARCH,
        "records[paging].least_nanoseconds": _SEARCH,
        "records[paging].lookahead": "No copy takes more levels than it says; more may have been allowed.",
        "records[paging].peak_before": _IN_PLACE,
        "records[paging].peak_after": _IN_PLACE,
        "planned_sizes": "Before a plan is used at a size, it is proved at that size.",
        "records[like].plan": _OTHER_PLAN,
        "records[like].kept": "No more than the pins, some of which the caller may have asked for.",
        "records[like].kept_bytes": "At most those of all pins; all of them if each pin is of that plan.",
        "records[like].bytes_without": _OTHER_PLAN,
        "records[like].nanoseconds_without": _OTHER_PLAN,
        "records[like].moved": "Counted; which values moved, and why, rests on the other plan.",
    }
)


def is_unchecked(place: str) -> bool:
    """Whether a place in the document, or one that it is inside of, stands in `UNCHECKED`."""
    return any(place == known or place.startswith((f"{known}.", f"{known}[")) for known in UNCHECKED)
