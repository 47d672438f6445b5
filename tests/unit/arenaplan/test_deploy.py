"""`arenaplan.deploy`: what it takes for a model, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import arenaplan
from service.http.examples import example
from solver.errors import BatchError, OptionsError

TINY: dict[str, Any] = example("tiny")["graph"]
OPEN = {**TINY, "batch": None}


def test_a_batch_that_the_document_leaves_open() -> None:
    """It may come from an entry point, or from the options."""
    plan = arenaplan.deploy(OPEN, ["train:batch=4", "infer:batch=1"])
    assert [e.plan.options.batch for e in plan.entry_points] == [4, 1]
    assert [*arenaplan.entry_graphs(OPEN, plan)] == ["train", "infer"]
    assert arenaplan.deploy(OPEN, ["train", "infer:batch=1"], batch=4).digest == plan.digest
    with pytest.raises(BatchError, match="symbolic batch"):
        arenaplan.deploy(OPEN, ["train"])


@pytest.mark.parametrize(
    ("models", "entries", "words"),
    [
        ({}, ["infer"], "There is no model"),
        ({"a": 3}, ["a.infer"], "Model 'a' is 3"),
        ({"a": TINY}, ["b.infer"], "which is not there"),
        ({"a": TINY, "b": TINY}, ["a.infer"], "Model 'b' has no entry point"),
        (TINY, "train", "'entries' of deploy"),
        (TINY, ["fit"], "no entry point"),
        (TINY, ["infer:name=\ud800"], "no name of an entry point"),
    ],
)
def test_what_is_refused(models: Any, entries: Any, words: str) -> None:
    with pytest.raises(OptionsError, match=words) as refused:
        arenaplan.deploy(models, entries)
    assert refused.value.remedy
