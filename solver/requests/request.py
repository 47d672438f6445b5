"""What is wanted of which models: one frozen value behind the command line, HTTP, jobs and Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from solver.plan import Deployment, EntrySpec, Plan, RequestedOptions, Tie
from solver.requests.sources import Source

__all__ = ["Request", "Wanted"]

#: What a request may ask for; `solver.requests.handling` has the function of each.
Wanted = Literal[
    "plan", "deployment", "tradeoff", "verdict", "largest", "trainable", "costs", "graphs", "validation",
    "import", "c-training",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of which models.

    `models` are sources by name; all but deployments and plans with entry points are of the only one. Entry
    point `k` of `entries` has the source ``entry_models[k]``, if that of its model has another batch. `like`
    is a plan whose values stay where they are. `plan` is that to validate or to export. `points` are those of
    a curve; without `training` a verdict tries nothing that changes what is learned; `scores` are those of
    layers, None for the bytes of each, by which `chooses` has what to train chosen. `dimension` is that whose
    largest size is wanted. `steps` and `seed` are those of a validation; `repeats` are iterations to measure
    costs in, 0 for modelled ones. `settings` are keywords of what runs here alone: a paging file, kernels.
    """

    wanted: Wanted
    models: Mapping[str, Source] = field(default_factory=dict)
    options: RequestedOptions = field(default_factory=RequestedOptions)
    entries: Sequence[EntrySpec] = ()
    entry_models: Mapping[int, Source] = field(default_factory=dict)
    ties: Sequence[Tie] = ()
    like: Plan | Deployment | None = None
    plan: Plan | Deployment | None = None
    points: int = 10
    training: bool = True
    chooses: bool = False
    scores: Mapping[str, float] | None = None
    dimension: str = ""
    steps: int = 5
    seed: int = 0
    repeats: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
