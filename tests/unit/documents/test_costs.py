"""Costs documents, by themselves and inside options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from solver.documents import dump_costs, dump_options, load_costs, load_options
from solver.errors import ArenaplanError, DocumentError
from solver.plan import Costs, PlanOptions, RequestedOptions

COSTS = Costs((("fc1:forward", 5_000), ("fc1", 0)), "measured on a board")
DOCUMENT: dict[str, Any] = {
    "format": "arenaplan.costs",
    "version": 1,
    "about": "measured on a board",
    "nanoseconds": {"fc1:forward": 5_000, "fc1": 0},
}


def test_a_document_and_back() -> None:
    assert json.loads(dump_costs(COSTS)) == DOCUMENT
    assert load_costs(dump_costs(COSTS, indent=2)) == COSTS
    assert load_costs({**DOCUMENT, "nanoseconds": {}}) == Costs((), "measured on a board")


def test_options_take_a_document_or_its_fields() -> None:
    options = RequestedOptions(PlanOptions(costs=COSTS))
    plain = {name: DOCUMENT[name] for name in ("about", "nanoseconds")}
    assert load_options({"costs": DOCUMENT}) == load_options({"costs": plain}) == options
    assert load_options(dump_options(options)) == options
    assert load_options({"costs": "roofline"}) == load_options({"costs": None}) == RequestedOptions()
    assert "costs" not in json.loads(dump_options(PlanOptions()))


def test_measuring_is_refused_with_the_reason() -> None:
    with pytest.raises(DocumentError, match="measured where training runs") as caught:
        load_options({"costs": "measured"})
    assert caught.value.path == ("costs",)
    assert "arenaplan costs" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"nanoseconds": {"fc1": -1}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": 1.5}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": True}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": "7"}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": None}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": 2**63}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": [1]}, ("nanoseconds",)),
        ({"nanoseconds": None}, ("nanoseconds",)),
        ({"seconds": {}}, ("seconds",)),
    ],
)
def test_what_is_not_a_cost_is_named(change: dict[str, Any], place: tuple[str, ...]) -> None:
    with pytest.raises(DocumentError) as caught:
        load_costs({**DOCUMENT, **change})
    assert caught.value.path == place
    with pytest.raises(ArenaplanError) as found:
        load_options({"costs": {**DOCUMENT, **change}})
    assert found.value.path == ("costs", *place)


def test_numbers_that_are_none_in_json() -> None:
    with pytest.raises(DocumentError, match="NaN is not a JSON number") as caught:
        load_costs(b'{"format":"arenaplan.costs","version":1,"nanoseconds":{"fc1":NaN}}')
    assert caught.value.path == ("nanoseconds", "fc1")
