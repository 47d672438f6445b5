"""The ranges of what a graph says about its gradients."""

from __future__ import annotations

import math

from solver.errors import AttributeRuleError
from solver.graph.types import TrainingRules

__all__ = ["MAX_ACCUMULATE", "MAX_LOSS_SCALE", "check_rules"]

#: float32 holds gradients of loss scales up to here with room to spare.
MAX_LOSS_SCALE = 2.0**64

MAX_ACCUMULATE = 1_000_000


def check_rules(rules: TrainingRules) -> None:
    """Raises AttributeRuleError for a rule out of its range; paths start at ``training``."""
    limit = rules.clip_global_norm
    if limit is not None and not (limit > 0 and math.isfinite(limit)):
        raise _bad("clip_global_norm", limit, "a finite norm greater than 0, or leave it out")
    if not 0 < rules.loss_scale <= MAX_LOSS_SCALE:
        raise _bad("loss_scale", rules.loss_scale, "a number greater than 0 and at most 2**64")
    if not 1 <= rules.accumulate <= MAX_ACCUMULATE:
        raise _bad("accumulate", rules.accumulate, f"1 to {MAX_ACCUMULATE:,} micro-batches")


def _bad(name: str, value: float, remedy: str) -> AttributeRuleError:
    return AttributeRuleError(
        f"The training rule {name!r} is {value!r}.", remedy=f"Give {remedy}.", path=("training", name)
    )
