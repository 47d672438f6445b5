"""The ranges of what a graph says about its gradients."""

from __future__ import annotations

import math

from solver.errors import AttributeRuleError
from solver.graph.types import TrainingRules

__all__ = ["LEAST_DYNAMIC_SCALE", "MAX_ACCUMULATE", "MAX_GROWTH", "MAX_LOSS_SCALE", "check_rules"]

#: float32 holds gradients of loss scales up to here with room to spare.
MAX_LOSS_SCALE = 2.0**64

#: Micro-batches of one update; more would take weeks.
MAX_ACCUMULATE = 1_000_000

#: A scale that changes goes down to here: smaller ones would lose what is too small for a format.
LEAST_DYNAMIC_SCALE = 1.0

#: The longest wait for the next doubling, in updates.
MAX_GROWTH = 1_000_000_000


def check_rules(rules: TrainingRules) -> None:
    """Raises AttributeRuleError for a rule out of its range; paths start at ``training``."""
    limit = rules.clip_global_norm
    if limit is not None and not (limit > 0 and math.isfinite(limit)):
        raise _bad("clip_global_norm", limit, "a finite norm greater than 0, or leave it out")
    if not 0 < rules.loss_scale <= MAX_LOSS_SCALE:
        raise _bad("loss_scale", rules.loss_scale, "a number greater than 0 and at most 2**64")
    growth = rules.loss_scale_growth
    if growth is not None and not 1 <= growth <= MAX_GROWTH:
        raise _bad("loss_scale_growth", growth, f"1 to {MAX_GROWTH:,} updates, or leave it out")
    if growth is not None and rules.loss_scale < LEAST_DYNAMIC_SCALE:
        raise _bad("loss_scale", rules.loss_scale, "at least 1, where it may change; 65536 is usual")
    if not 1 <= rules.accumulate <= MAX_ACCUMULATE:
        raise _bad("accumulate", rules.accumulate, f"1 to {MAX_ACCUMULATE:,} micro-batches")


def _bad(name: str, value: float, remedy: str) -> AttributeRuleError:
    return AttributeRuleError(
        f"The training rule {name!r} is {value!r}.", remedy=f"Give {remedy}.", path=("training", name)
    )
