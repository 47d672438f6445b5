"""Plans of several programs that run in the same memory, one at a time: the entry points of a deployment.

    train      [ weights | optimizer variables | activations, gradients, scratch ............ ]
    infer      [ weights | (held)              | activations, scratch ..... ]
    bytes      0 ─── persistent values ────────┴── each entry point's own values overlay those of others

Each entry point has an ordinary plan, whose program also holds what only the others keep from one run to the
next. A persistent value lies at the same place in all plans, and each program leaves it as it is or as its
reference does. So every plan is proved by itself, and with that every sequence of runs.
"""

from __future__ import annotations

import html
import importlib
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Literal

from solver.plan.plan import Plan
from solver.program import Kind, Phase

__all__ = ["Deployment", "EntryPoint", "Persistent", "Purpose", "purpose_of_plan"]

#: What a run of an entry point is for: a training step; outputs; a loss without training; or a program whose
#: steps are no operators.
Purpose = Literal["train", "infer", "evaluate", "run"]


def purpose_of_plan(plan: Plan) -> Purpose:
    """The purpose of a run of the plan's program, as its steps and values show it. Linear."""
    program = plan.program
    phases = {step.phase for step in program.steps}
    if Phase.EXPLICIT in phases:
        return "run"
    if phases != {Phase.FORWARD}:
        return "train"
    return "evaluate" if any(value.kind is Kind.LOSS for value in program.values) else "infer"


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One program of a deployment, by the name under which it is called. `model` is the network that it runs:
    programs of one model have the same persistent values, by name.
    """

    name: str
    model: str
    purpose: Purpose
    plan: Plan


@dataclass(frozen=True, slots=True)
class Persistent:
    """A value that stays from one run to the next, and its number in the program of each entry point.

    Its first contents are those that the first entry point has which does not hold it for others.
    """

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True)
class Deployment:
    """Entry points that share their memory. `digest` is SHA-256, in hexadecimal, over the canonical document
    without the digest itself.
    """

    name: str
    entry_points: tuple[EntryPoint, ...]
    persistent: tuple[Persistent, ...]
    producer: str = ""
    digest: str = ""

    def __repr__(self) -> str:
        """A line for the arena, one for each entry point, and one for the proof."""
        lines = [
            f"<Deployment of {self.name!r}: {self.arena_bytes:,} bytes, {self.persistent_bytes:,} persistent,"
        ]
        for entry_point in self.entry_points:
            plan = entry_point.plan
            lines.append(
                f" {entry_point.name}: {plan.arena_bytes:,} bytes, lower bound {plan.lower_bound:,},"
            )
        if self.gap_bytes:
            proof = f"not proved to be the smallest: {self.gap_bytes:,} bytes above the bound"
        else:
            proof = "proved to be the smallest for these steps"
        return "\n".join([*lines, f" {proof}>"])

    def _repr_html_(self) -> str:
        """The same with the memory map of each arena, in which every entry point runs once, for notebooks."""
        # By name, as exporters are loaded: pictures are drawn of plans, and their package stands above.
        pictures = importlib.import_module("solver.exporters.memory_map")
        joined = importlib.import_module("solver.plan.joined").JoinedPlan(self)
        return f"<pre>{html.escape(repr(self))}</pre>\n" + "\n".join(pictures.plan_svgs(joined))

    def __getitem__(self, name: str) -> EntryPoint:
        """The entry point of this name. Raises KeyError."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, EntryPoint]:
        return {entry_point.name: entry_point for entry_point in self.entry_points}

    def name_of(self, model: str, label: str) -> str:
        """The name of a value of a model: its label, behind the name of the model where there are several."""
        return f"{model}.{label}" if self._has_several_models else label

    @cached_property
    def _has_several_models(self) -> bool:
        return len({entry_point.model for entry_point in self.entry_points}) > 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each space: those of the largest entry point."""
        return tuple(map(max, zip_longest(*(e.plan.sizes for e in self.entry_points), fillvalue=0)))

    @property
    def arena_bytes(self) -> int:
        """Total size of all spaces, in bytes."""
        return sum(self.sizes)

    @property
    def lower_bound(self) -> int:
        """Bytes that every arena has in which all entry points run: the largest bound of one of them."""
        bounds = ([c.lower_bound for c in e.plan.certificates] for e in self.entry_points)
        return sum(map(max, zip_longest(*bounds, fillvalue=0)))

    @property
    def gap_bytes(self) -> int:
        """Bytes beyond the lower bound; 0 proves that nothing smaller exists."""
        return self.arena_bytes - self.lower_bound

    @property
    def persistent_bytes(self) -> int:
        """Bytes of persistent values, as they are reserved."""
        size = self.reserved_bytes
        return sum(size.get(persistent.values[0], 0) for persistent in self.persistent)

    @cached_property
    def reserved_bytes(self) -> dict[int, int]:
        """The bytes that are reserved for a persistent value, by its number in the first entry point."""
        return {region.members[0]: region.size for region in self.entry_points[0].plan.regions}
