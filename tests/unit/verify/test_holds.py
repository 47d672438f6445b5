"""Lives that a target makes longer raise its bounds, so a plan must have its target's, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.errors import PlanError
from solver.executor import Trainer
from solver.layout import Lifespan
from solver.pipeline import plan, reference_of
from solver.plan import PlanOptions
from solver.preparations import Prepared
from solver.program import lives
from solver.targets import TARGETS
from solver.verify import prove
from tests.support.damaged import settled
from tests.support.graphs import convolutional, residual


def test_lives_that_no_target_asked_for_are_named() -> None:
    """They would make a loose layout look as small as it can be."""
    graph = residual()
    made = plan(graph)
    span, number = lives(made.program), made.program.by_label["h1"]
    assert span[number].end < made.duration
    held = settled(replace(made, holds={number: Lifespan(span[number].start, made.duration)}))
    reference = reference_of(graph, made.options)
    assert {violation.rule for violation in prove(reference, held, {})} == {"hold"}
    with pytest.raises(PlanError, match="holds values longer"):
        Trainer(graph, held)


def test_a_runtimes_own_lives_are_right_and_all_of_them_must_be_there() -> None:
    graph = convolutional()
    made = plan(graph, PlanOptions(target="onert"))
    lowered = TARGETS["onert"].reference(Prepared(graph), made.options)
    assert lowered.holds
    assert prove(lowered.program, made, lowered.holds) == ()
    missing = dict(list(lowered.holds.items())[1:])
    short = settled(replace(made, holds=missing))
    assert {violation.rule for violation in prove(lowered.program, short, lowered.holds)} == {"hold"}
