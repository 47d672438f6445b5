"""Which files a plan can be written as: exporters by name, each loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from solver.errors import OptionsError
from solver.removed import removed

if TYPE_CHECKING:  # whoever writes a layout's CSV knows no plans, and waits for every import
    from solver.plan import Deployment, Plan

__all__ = ["EXPORTERS", "Exporter", "exporter_named", "exporter_of_file"]


@dataclass(frozen=True, slots=True)
class Exporter:
    """One kind of file that a plan is written as.

    Names of such files end in `suffix`; HTTP calls them `media_type`. `module` has the `function`, which
    takes a plan, and a deployment: as one plan, in which every entry point runs once, where it `is_joined`.
    """

    name: str
    title: str
    suffix: str
    media_type: str
    module: str
    function: str
    is_joined: bool = False

    def dump(self, plan: Plan | Deployment) -> bytes:
        """The bytes of the file: for equal plans the same. Raises OptionsError for what it cannot hold."""
        from solver.plan import Deployment, JoinedPlan

        write: Callable[[Any], bytes] = getattr(importlib.import_module(self.module), self.function)
        return write(JoinedPlan(plan) if self.is_joined and isinstance(plan, Deployment) else plan)


_ALL: Final = (
    Exporter(
        "c-header",
        "sizes, offsets, arenas, checks and tables, for C11 and C++17",
        ".h",
        "text/x-c",
        module="solver.exporters.c_header",
        function="dump_c_header",
    ),
    Exporter(
        "report",
        "a page with the arena over time, what lives when, and why the peak is what it is",
        ".html",
        "text/html",
        module="solver.exporters.html",
        function="dump_report",
    ),
    Exporter(
        "perfetto",
        "a trace for ui.perfetto.dev: memory over time, steps, what lives when",
        ".trace.json",
        "application/vnd.perfetto.trace+json",
        module="solver.exporters.perfetto",
        function="dump_perfetto",
        is_joined=True,
    ),
    Exporter(
        "memory-viz",
        "a memory snapshot for PyTorch's memory_viz",
        ".pickle",
        "application/vnd.pytorch.memory-snapshot",
        module="solver.exporters.memory_viz",
        function="dump_memory_viz",
        is_joined=True,
    ),
    Exporter(
        "offsets-csv",
        "a row for each value: its place, its bytes, its life",
        ".csv",
        "text/csv",
        module="solver.exporters.offsets",
        function="dump_offsets_csv",
    ),
    Exporter(
        "offsets-json",
        "the same rows as a list",
        ".json",
        "application/vnd.arenaplan.offsets+json",
        module="solver.exporters.offsets",
        function="dump_offsets_json",
    ),
    Exporter(
        "minimalloc",
        "its buffers as a problem for other planners, in MiniMalloc's CSV",
        ".minimalloc.csv",
        "application/vnd.arenaplan.minimalloc+csv",
        module="solver.exporters.minimalloc",
        function="dump_plan_problem",
        is_joined=True,
    ),
)

#: Exporters by name.
EXPORTERS: Final[Mapping[str, Exporter]] = {one.name: one for one in _ALL}


def exporter_named(name: str) -> Exporter:
    """The exporter of this name. Raises OptionsError, which lists all names."""
    if name not in EXPORTERS:
        raise OptionsError(
            removed(name) or f"There is no exporter {name!r:.80}.",
            remedy=f"Choose from {', '.join(EXPORTERS)}.",
            path=("to",),
        )
    return EXPORTERS[name]


def exporter_of_file(name: str) -> Exporter:
    """The exporter whose suffix the name of a file ends in; of several the one with the longest.

    Raises OptionsError, which lists the suffixes, where there is none.
    """
    fitting = [one for one in _ALL if name.lower().endswith(one.suffix)]
    if not fitting:
        known = ", ".join(f"{one.suffix} ({one.name})" for one in _ALL)
        raise OptionsError(
            f"The name {name!r:.80} does not say what to write.",
            remedy=f"Say it with --to, or end the name in one of {known}.",
            path=("to",),
        )
    return max(fitting, key=lambda one: len(one.suffix))
