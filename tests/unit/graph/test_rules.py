"""Training rules: their ranges, and what follows from them."""

from __future__ import annotations

import math

import pytest

from solver.errors import AttributeRuleError
from solver.graph import TrainingRules
from solver.graph.rules import MAX_ACCUMULATE, MAX_GROWTH, MAX_LOSS_SCALE, check_rules
from tests.support.every import grid
from tests.support.graphs import chain


@pytest.mark.parametrize(
    "rules",
    [
        TrainingRules(),
        TrainingRules(clip_global_norm=1e-9),
        TrainingRules(loss_scale=MAX_LOSS_SCALE),
        TrainingRules(loss_scale_growth=MAX_GROWTH),
        TrainingRules(loss_scale=2.0**-20),
        TrainingRules(accumulate=MAX_ACCUMULATE),
        TrainingRules(skip_non_finite=True),
    ],
)
def test_in_range(rules: TrainingRules) -> None:
    check_rules(rules)
    assert chain(training=rules).training == rules


@grid(
    ("rules", "name"),
    [
        (TrainingRules(clip_global_norm=0.0), "clip_global_norm"),
        (TrainingRules(clip_global_norm=-1.0), "clip_global_norm"),
        (TrainingRules(clip_global_norm=math.inf), "clip_global_norm"),
        (TrainingRules(clip_global_norm=math.nan), "clip_global_norm"),
        (TrainingRules(loss_scale=0.0), "loss_scale"),
        (TrainingRules(loss_scale=-2.0), "loss_scale"),
        (TrainingRules(loss_scale=2.0**65), "loss_scale"),
        (TrainingRules(loss_scale=math.nan), "loss_scale"),
        (TrainingRules(loss_scale=0.5, loss_scale_growth=10), "loss_scale"),
        (TrainingRules(loss_scale_growth=0), "loss_scale_growth"),
        (TrainingRules(loss_scale_growth=-1), "loss_scale_growth"),
        (TrainingRules(loss_scale_growth=MAX_GROWTH + 1), "loss_scale_growth"),
        (TrainingRules(accumulate=0), "accumulate"),
        (TrainingRules(accumulate=MAX_ACCUMULATE + 1), "accumulate"),
    ],
)
def test_out_of_range(rules: TrainingRules, name: str) -> None:
    with pytest.raises(AttributeRuleError, match=f"'{name}'") as caught:
        chain(training=rules)
    assert caught.value.path == ("training", name)
    assert caught.value.remedy.startswith("Give ")


def test_divisor() -> None:
    assert TrainingRules().divisor == 1
    assert TrainingRules(loss_scale=8.0, accumulate=3).divisor == 24


def test_what_joins_gradients() -> None:
    assert not TrainingRules(loss_scale=8.0, accumulate=3).joins_gradients
    assert TrainingRules(clip_global_norm=1.0).joins_gradients
    assert TrainingRules(skip_non_finite=True).joins_gradients


def test_graphs_without_rules_have_the_usual_ones() -> None:
    assert chain().training == TrainingRules()
