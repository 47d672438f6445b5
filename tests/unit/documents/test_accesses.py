"""Logs as JSON lines: what can be said, and what each refusal names."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import documents, pipeline
from solver.errors import ArenaplanError, DocumentError, PlanError
from solver.executor import logged_accesses
from solver.plan import Plan
from solver.verify import MemoryAccess, check_accesses
from tests.support.graphs import chain

GRAPH = chain((3, 2, 1), 2)
PLAN: Plan = pipeline.plan(GRAPH)
FIRST = PLAN.program.step_labels[0]


def line(**fields: Any) -> bytes:
    return json.dumps({"step": 0, "access": "read", **fields}).encode()


def test_what_our_executor_touches_is_as_planned() -> None:
    """Addresses are those of the arrays that the kernels were given."""
    log = list(logged_accesses(GRAPH, PLAN, steps=2))
    text = b"".join(documents.dump_accesses(log, PLAN))
    again = documents.load_accesses(text, PLAN)
    assert [(a.step, a.writes, a.space, a.offset, a.nbytes, a.iteration) for a in again] == [
        (a.step, a.writes, a.space, a.offset, a.nbytes, a.iteration) for a in log
    ]
    assert check_accesses(PLAN, again) == ()
    assert {access.step for access in again} == set(range(len(PLAN.program.steps)))


def test_values_spaces_and_steps_by_number() -> None:
    value = PLAN.program.by_label["w1"]
    at, size = PLAN.offsets[value], PLAN.program.values[value].type.nbytes
    text = b"\n".join(
        [
            line(step=FIRST, value="w1"),
            b"",
            line(value="w1", offset=4, bytes=4, iteration=0),
            line(space="arena", offset=8, bytes=2, access="write", iteration=3),
        ]
    )
    assert documents.load_accesses(text, PLAN) == [
        MemoryAccess(0, False, 0, at, size, None, 1),
        MemoryAccess(0, False, 0, at + 4, 4, 0, 3),
        MemoryAccess(0, True, 0, 8, 2, 3, 4),
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step": "nothing", "value": "w1"}, "of step 'nothing'"),
        ({"step": -1, "value": "w1"}, "of step -1"),
        ({"step": True, "value": "w1"}, "of step True"),
        ({"access": "peek", "value": "w1"}, "the access 'peek'"),
        ({"value": "nothing"}, "of value 'nothing'"),
        ({"value": "w1", "space": "arena"}, "a value and a space"),
        ({"value": "w1", "offset": 1 << 40}, "goes beyond"),
        ({"value": "w1", "bytes": -1}, "has -1 as bytes"),
        ({"space": "flash", "offset": 0, "bytes": 1}, "of space 'flash'"),
        ({"offset": 0}, "lacks bytes"),
        ({"offset": 0.5, "bytes": 1}, "has 0.5 as offset"),
        ({"offset": 1 << 70, "bytes": 1}, "as offset"),
        ({"value": "w1", "size": 3}, "unknown field 'size'"),
        ({"value": "w1", "iteration": "x"}, "as iteration"),
    ],
)
def test_refusals_name_the_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        documents.load_accesses(line(value="w1") + b"\n" + line(**fields), PLAN)
    assert str(refused.value).startswith("Line 2 ")
    assert message in refused.value.message
    assert refused.value.remedy
    assert refused.value.pointer == "/1"


@pytest.mark.parametrize("text", [b"{", b"[]", b"3", b"\xff\xfe", b"[" * 10_000, b'{"format": "other"}'])
def test_no_logs(text: bytes) -> None:
    with pytest.raises(DocumentError, match="Line 1 is not"):
        documents.load_accesses(text, PLAN)


def test_iterations_go_on() -> None:
    text = line(value="w1", iteration=2) + b"\n" + line(value="w1", iteration=1)
    with pytest.raises(DocumentError, match="Line 2 is of iteration 1, behind one of 2"):
        documents.load_accesses(text, PLAN)


def test_a_log_of_another_plan() -> None:
    text = json.dumps({"format": "arenaplan.accesses", "version": 1, "plan": "0" * 64}).encode()
    with pytest.raises(PlanError, match="The log is of plan '0000000000000000'"):
        documents.load_accesses(text, PLAN)


@given(
    st.binary(max_size=100)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.dictionaries(
                st.sampled_from(["step", "access", "value", "space", "offset", "bytes", "iteration", "x"]),
                inner,
            )
            | st.lists(inner, max_size=3)
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_is_written_is_read_or_refused(text: bytes) -> None:
    with contextlib.suppress(ArenaplanError):
        documents.load_accesses(text, PLAN)
