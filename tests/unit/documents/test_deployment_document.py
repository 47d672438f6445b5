"""Documents of version 3: what they hold, what is refused, and that whatever is read can be shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.show import facts
from solver.documents import dump_deployment, load_deployment, load_planned
from solver.errors import PlanError
from solver.exporters import EXPORTERS
from solver.plan import Deployment, deployment_notes, with_deployment_digest
from solver.reports.comparison import deployment_difference
from solver.verify import prove_deployment
from tests.support.entry_points import small_deployment

SMALL = small_deployment()


def written(deployment: Deployment) -> bytes:
    """As somebody writes it who knows what the digest is taken over."""
    return dump_deployment(with_deployment_digest(deployment))


def test_round_trip() -> None:
    for indent in (None, 2):
        data = dump_deployment(SMALL, indent=indent)
        assert load_deployment(data) == load_planned(data) == SMALL
    assert load_planned(json.loads(dump_deployment(SMALL))) == SMALL


@pytest.mark.parametrize(
    ("change", "message", "pointer"),
    [
        (lambda d: replace(d, name="other"), "does not match its digest", "/digest"),
        (
            lambda d: with_deployment_digest(replace(d, entry_points=(d.entry_points[0],) * 3)),
            "'train' stands twice",
            "/entry_points/1",
        ),
        (
            lambda d: with_deployment_digest(replace(d, persistent=(*d.persistent, d.persistent[0]))),
            "'w1' stands twice",
            f"/persistent/{len(SMALL.persistent)}",
        ),
        (
            lambda d: with_deployment_digest(
                replace(d, persistent=(replace(d.persistent[0], values=(0, 0)), *d.persistent[1:]))
            ),
            "'w1' is no value of some entry point",
            "/persistent/0",
        ),
        (
            lambda d: with_deployment_digest(
                replace(d, persistent=(replace(d.persistent[0], values=(0, 0, 9999)), *d.persistent[1:]))
            ),
            "'w1' is no value of some entry point",
            "/persistent/0",
        ),
    ],
)
def test_refusals(change: Callable[[Deployment], Deployment], message: str, pointer: str) -> None:
    with pytest.raises(PlanError, match=message) as refused:
        load_deployment(dump_deployment(change(SMALL)))
    assert refused.value.pointer == pointer
    assert refused.value.remedy


def test_a_plan_of_an_entry_point_that_was_changed() -> None:
    document: dict[str, Any] = json.loads(dump_deployment(SMALL))
    document["entry_points"][1]["plan"]["graph"] = "other"
    with pytest.raises(PlanError) as refused:
        load_planned(document)
    assert refused.value.pointer == "/entry_points/1/plan/digest"


@st.composite
def wrong(draw: st.DrawFn) -> Deployment:
    """Numbers of other values, names of other places, entry points in another order or left out."""
    numbers = [len(entry_point.plan.program.values) for entry_point in SMALL.entry_points]
    rows = []
    for row in SMALL.persistent:
        values = [
            draw(st.integers(0, count - 1)) if draw(st.integers(0, 3)) == 0 else value
            for value, count in zip(row.values, numbers, strict=True)
        ]
        name = draw(st.sampled_from([row.name, f"train/{row.name}", "train/h1", "[/b]", "*/"]))
        rows.append(replace(row, name=name, values=tuple(values)))
    kept = draw(st.lists(st.sampled_from(rows), unique_by=lambda row: row.name, max_size=len(rows)))
    return with_deployment_digest(replace(SMALL, persistent=tuple(kept)))


@given(wrong())
def test_what_is_read_can_be_shown(deployment: Deployment) -> None:
    """Documents say whether their plans are right by their proof; readers show what stands there."""
    loaded = load_deployment(dump_deployment(deployment))
    assert facts(loaded)["arena_bytes"] == SMALL.arena_bytes
    assert [*deployment_notes(loaded)]
    assert repr(loaded)
    assert loaded._repr_html_()
    assert deployment_difference(SMALL, loaded).whole.growth == 0
    assert all(exporter.dump(loaded) for exporter in EXPORTERS.values())
    numbers = [sorted(row.values for row in one.persistent) for one in (loaded, SMALL)]
    assert numbers[0] == numbers[1] or prove_deployment(loaded)
