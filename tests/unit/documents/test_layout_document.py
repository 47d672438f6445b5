"""Layout documents and their options: nothing is lost, nothing changed goes unnoticed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.documents import (
    dump_layout,
    dump_layout_options,
    layout_with_digest,
    load_layout,
    load_layout_options,
)
from solver.documents.options import RulesOfLayout
from solver.errors import DocumentError, OptionsError, OtherFormatError, PlanError, ProblemError
from solver.layout import Buffer, Hole, Layout, LayoutProblem, Lifespan, Proof, Rules, Status
from solver.plan import Certificate, LayoutOptions, PlacedBuffers


def placed(**changes: Any) -> PlacedBuffers:
    problem = LayoutProblem(
        (Buffer("a", 4, Lifespan(0, 3), 8), Buffer("b", 2**62, Lifespan(2, 9), 1, 4)), 2**62 + 8
    )
    found: dict[str, Any] = {
        "problem": problem,
        "options": LayoutOptions("greedy", alignment=2, deadline_seconds=5),
        "layout": Layout((0, 4), 2**62 + 4),
        "certificate": Certificate(Status.OPTIMAL, Proof.MAX_LOAD, 2**62 + 4, 2, "greedy"),
        "deterministic": False,
    }
    return layout_with_digest(PlacedBuffers(**{**found, **changes}))


def document(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dump_layout(placed()))
    return {**found, **changes}


def buffer(**changes: Any) -> dict[str, Any]:
    return {"id": "a", "size": 1, "start": 0, "end": 1, "offset": 0, **changes}


# ------------------------------------------------------------------------------------- round trip


def test_round_trip() -> None:
    assert load_layout(dump_layout(placed())) == placed()
    assert load_layout(dump_layout(placed(), indent=2)) == placed()
    assert dump_layout(load_layout(dump_layout(placed()))) == dump_layout(placed())


def test_gaps_survive() -> None:
    gaps = (Hole(Lifespan(1, 2)), Hole(Lifespan(2, 3), 1, 2))
    made = placed(
        problem=LayoutProblem((Buffer("a", 4, Lifespan(0, 3), holes=gaps),)), layout=Layout((0,), 4)
    )
    assert load_layout(dump_layout(made)) == made
    (written,) = json.loads(dump_layout(made))["buffers"]
    assert written["gaps"] == [{"start": 1, "end": 2}, {"start": 2, "end": 3, "low": 1, "high": 2}]


@pytest.mark.parametrize(
    "gaps", [(Hole(Lifespan(0, 3)),), (Hole(Lifespan(2, 3)), Hole(Lifespan(0, 1))), (Hole(Lifespan(2, 1)),)]
)
def test_gaps_that_are_none_are_refused(gaps: tuple[Hole, ...]) -> None:
    """Whoever looks for violations relies on it."""
    made = placed(
        problem=LayoutProblem((Buffer("a", 4, Lifespan(0, 3), holes=gaps),)), layout=Layout((0,), 4)
    )
    with pytest.raises(ProblemError) as caught:
        load_layout(dump_layout(made))
    assert caught.value.path == ("buffers", 0, "gaps")


def test_without_capacity_proof_or_buffers() -> None:
    open_end = Certificate(Status.FEASIBLE, None, 0, None, "bump")
    for made in (
        placed(certificate=open_end),
        placed(problem=LayoutProblem(()), layout=Layout((), 0), certificate=open_end),
    ):
        assert load_layout(dump_layout(made)) == made


buffers = st.builds(
    lambda size, start, length, shift, pin: (
        Buffer("", size, Lifespan(start, start + length), 2**shift),
        pin,
    ),
    st.integers(1, 2**62),
    st.integers(0, 2**40),
    st.integers(1, 2**40),
    st.integers(0, 20),
    st.booleans(),
)


@given(st.lists(st.tuples(buffers, st.integers(0, 2**40)), max_size=6), st.booleans())
def test_round_trip_of_any(rows: list[tuple[tuple[Buffer, bool], int]], deterministic: bool) -> None:
    made = tuple(
        Buffer(f"b{i}", b.size, b.lifespan, b.alignment, offset if pin else None)
        for i, ((b, pin), offset) in enumerate(rows)
    )
    peak = max((offset + b.size for (b, _), offset in rows), default=0)
    first = placed(
        problem=LayoutProblem(made),
        layout=Layout(tuple(offset for _, offset in rows), peak),
        deterministic=deterministic,
    )
    assert load_layout(dump_layout(first)) == first


def test_what_it_says() -> None:
    found = document()
    assert (found["format"], found["version"]) == ("arenaplan.layout", 1)
    assert found["peak"] == 2**62 + 4
    assert found["buffers"][0] == {"id": "a", "size": 4, "start": 0, "end": 3, "alignment": 8, "offset": 0}
    assert found["buffers"][1]["pinned"] is True
    assert found["certificate"]["proof"] == "max-load"
    assert found["options"]["deadline_seconds"] == 5.0


def test_gap() -> None:
    certificate = Certificate(Status.FEASIBLE, None, 8, 0, "greedy")
    one = LayoutProblem((Buffer("a", 8, Lifespan(0, 1)),))
    assert placed(problem=one, layout=Layout((2,), 10), certificate=certificate).gap == pytest.approx(0.25)
    nothing = Certificate(Status.OPTIMAL, Proof.MAX_LOAD, 0, None, "none")
    assert placed(problem=LayoutProblem(()), layout=Layout((), 0), certificate=nothing).gap == 0.0


# --------------------------------------------------------------------------------------- refusals


def test_a_changed_byte_is_noticed() -> None:
    for change in ({"peak": 1}, {"deterministic": True}, {"capacity": None}, {"digest": "0" * 64}):
        with pytest.raises(PlanError, match="does not match its digest") as caught:
            load_layout(document(**change))
        assert caught.value.pointer == "/digest"


@pytest.mark.parametrize(
    ("change", "error", "pointer"),
    [
        ({"format": "arenaplan.plan"}, DocumentError, "/format"),
        ({"version": 2}, DocumentError, "/version"),
        ({"colour": 1}, DocumentError, "/colour"),
        ({"buffers": {}}, DocumentError, "/buffers"),
        ({"buffers": [{"id": "a", "size": 1, "start": 0, "end": 1}]}, DocumentError, "/buffers/0/offset"),
        ({"buffers": [buffer(size=1.0)]}, DocumentError, "/buffers/0/size"),
        ({"buffers": [buffer(id="a\u202eb")]}, PlanError, "/buffers/0/id"),
        ({"buffers": [buffer(id="a\u200bb")]}, PlanError, "/buffers/0/id"),
        ({"buffers": [buffer(start=2, end=2)]}, PlanError, "/buffers/0/end"),
        ({"buffers": [buffer(offset=-1)]}, PlanError, "/buffers/0/offset"),
        ({"peak": -1}, PlanError, "/peak"),
        ({"options": {"solver": 1}}, DocumentError, "/options/solver"),
        ({"certificate": {}}, DocumentError, "/certificate/status"),
    ],
)
def test_refused(change: dict[str, Any], error: type[Exception], pointer: str) -> None:
    with pytest.raises((DocumentError, PlanError)) as caught:
        load_layout(document(**change))
    assert isinstance(caught.value, error)
    assert caught.value.pointer == pointer


# ---------------------------------------------------------------------------------------- options


def test_options_round_trip() -> None:
    every = LayoutOptions(
        "cp-sat", 2**62, 64, 1.5, 10**9, 2**62 - 1, 64, race=True, target_gap=0.01, rules=Rules(peel=False)
    )
    for options in (LayoutOptions(), every):
        assert load_layout_options(dump_layout_options(options)) == options


def test_options_by_hand() -> None:
    assert load_layout_options({}) == LayoutOptions()
    assert load_layout_options({"capacity": 9, "alignment": None}) == LayoutOptions(capacity=9)


def test_one_rule_off() -> None:
    assert load_layout_options({"rules": {"peel": False}}).rules == Rules(peel=False)


def test_rules_are_those_of_the_solver() -> None:
    fields = RulesOfLayout.model_fields
    assert list(fields) == [rule.name for rule in dataclasses.fields(Rules)]
    assert Rules(**RulesOfLayout().model_dump()) == Rules()
    assert all(field.description for field in fields.values())


@pytest.mark.parametrize(
    ("given", "error", "pointer"),
    [
        ({"solvr": "greedy"}, DocumentError, "/solvr"),
        ({"solver": None}, DocumentError, "/solver"),
        ({"capacity": -1}, OptionsError, "/capacity"),
        ({"capacity": 1.5}, DocumentError, "/capacity"),
        ({"capacity": 2**63}, OptionsError, "/capacity"),
        ({"alignment": 3}, OptionsError, "/alignment"),
        ({"alignment": 0}, OptionsError, "/alignment"),
        ({"deadline_seconds": -1}, OptionsError, "/deadline_seconds"),
        ({"deadline_seconds": True}, DocumentError, "/deadline_seconds"),
        ({"work": -1}, OptionsError, "/work"),
        ({"work": 1e9}, DocumentError, "/work"),
        ({"seed": -1}, OptionsError, "/seed"),
        ({"seed": 2**62}, OptionsError, "/seed"),
        ({"threads": 0}, OptionsError, "/threads"),
        ({"threads": 65}, OptionsError, "/threads"),
        ({"race": 1}, DocumentError, "/race"),
        ({"target_gap": -0.1}, OptionsError, "/target_gap"),
        ({"target_gap": "1%"}, DocumentError, "/target_gap"),
        ({"rules": []}, DocumentError, "/rules"),
        ({"rules": {"peel": 0}}, DocumentError, "/rules/peel"),
        ({"rules": {"peeling": False}}, DocumentError, "/rules/peeling"),
        ({"format": "arenaplan.options"}, OtherFormatError, "/format"),
    ],
)
def test_bad_options(given: dict[str, Any], error: type[Exception], pointer: str) -> None:
    with pytest.raises((DocumentError, OptionsError)) as caught:
        load_layout_options(given)
    assert type(caught.value) is error
    assert caught.value.pointer == pointer
