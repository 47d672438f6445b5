"""Waves: who runs beside whom, and that nothing in a wave depends on anything else in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.documents import SCHEMAS
from solver.errors import GraphError, InternalError, OptionsError
from solver.liveness import lifespans, predecessors
from solver.schedule import MAX_WORKERS, blocks_in_waves, training_program
from solver.schedule.waves import in_waves, verify_waves, waves
from solver.training import TrainingOperandIndex, TrainingProgram
from tests.support.graphs import chain, residual
from tests.support.programs import independent_pairs, program

#: a; b and c after a; d after b; e after c; f after both.
DIAMONDS: tuple[set[int], ...] = (set(), {0}, {0}, {1}, {2}, {3, 4})


def sequential(workers: int = 1) -> TrainingProgram:
    return training_program(residual(), scratch_budget=1 << 20, update="immediate", workers=workers)


@pytest.mark.parametrize(
    ("before", "workers", "expected"),
    [
        (DIAMONDS, 1, [[0], [1], [2], [3], [4], [5]]),
        (DIAMONDS, 2, [[0], [1, 2], [3, 4], [5]]),
        ((set(), {0}, {0}, {0}, {1}), 2, [[0], [1, 2], [3, 4]]),
        ((set(), {0}, {0}, {0}, {1}), 3, [[0], [1, 2, 3], [4]]),
        ((set(), {0}, {1}, set()), 2, [[0, 3], [1], [2]]),
        ((), 3, []),
    ],
)
def test_by_hand(before: tuple[set[int], ...], workers: int, expected: list[list[int]]) -> None:
    assert list(waves(before, workers)) == expected


def test_of_the_ready_steps_the_earliest_go_first() -> None:
    """Step 3 is ready in wave 1 already; 1 and 2 stand before it in the order."""
    assert list(waves((set(), {0}, {0}, {0}), 2)) == [[0], [1, 2], [3]]


dags = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        *(st.sets(st.integers(0, t - 1), max_size=3) if t else st.just(set[int]()) for t in range(n))
    )
)


@given(dags, st.integers(1, 5))
def test_every_step_once_after_what_it_follows(before: tuple[set[int], ...], workers: int) -> None:
    found = list(waves(before, workers))
    assert sorted(t for wave in found for t in wave) == list(range(len(before)))
    done: set[int] = set()
    for wave in found:
        assert 1 <= len(wave) <= workers
        assert wave == sorted(wave)
        assert all(before[t] <= done for t in wave)
        done |= {*wave}


@given(dags, st.integers(1, 5))
def test_no_worker_idles_while_a_step_is_ready(before: tuple[set[int], ...], workers: int) -> None:
    done: set[int] = set()
    for wave in waves(before, workers):
        ready = [t for t, found in enumerate(before) if t not in done and found <= done]
        assert wave == ready[:workers]
        done |= {*wave}


def test_one_worker_changes_nothing() -> None:
    found = sequential()
    assert in_waves(found, 1) is found
    assert (found.waves, found.duration, list(found.times)) == ((), 27, list(range(27)))


def test_gradient_and_derivative_of_an_operation_run_side_by_side() -> None:
    found = training_program(chain(), scratch_budget=1 << 20, update="immediate", workers=2)
    beside = [
        [str(s.index) for s, wave in zip(found.steps, found.waves, strict=True) if wave == t]
        for t in range(found.duration)
    ]
    assert ["fc2:calc_gradient", "fc2:calc_derivative"] in beside


def test_the_seed_of_the_backward_pass_waits_for_nothing() -> None:
    found = sequential(2)
    assert {str(s.index) for s in found.steps[:2]} == {"fc1:forward", "loss:calc_derivative.seed"}


def test_lifespans_count_waves() -> None:
    found = sequential(2)
    spans = lifespans(found)
    assert found.duration == 18
    assert spans[TrainingOperandIndex("w1")].end == 18
    assert max(span.end for span in spans.values()) == 18
    last = max(
        t for t, s in zip(found.times, found.steps, strict=True) if TrainingOperandIndex("h1") in s.uses
    )
    assert spans[TrainingOperandIndex("h1")].end == last + 1


@pytest.mark.parametrize("workers", [0, -1, 65])
def test_a_number_of_workers_out_of_range(workers: int) -> None:
    with pytest.raises(OptionsError, match="Give 1 to 64 workers"):
        in_waves(sequential(), workers)
    with pytest.raises(OptionsError):
        blocks_in_waves(program((("a", "b"),)), workers)


def test_documents_allow_as_many_workers() -> None:
    field = SCHEMAS["options"]["properties"]["workers"]
    assert (field["minimum"], field["maximum"], field["default"]) == (1, MAX_WORKERS, 1)


def test_dependent_steps_in_one_wave_are_named() -> None:
    found = sequential(2)
    late = next(t for t, s in enumerate(found.steps) if str(s.index) == "join:forward")
    moved = [*found.waves]
    moved[late] = moved[late - 1]
    with pytest.raises(GraphError, match="fc2:forward and join:forward are both in wave"):
        verify_waves(replace(found, waves=tuple(moved)))


class TestExplicitPrograms:
    def test_one_workspace_keeps_independent_pairs_in_order(self) -> None:
        found = blocks_in_waves(program(independent_pairs(4)), 4)
        assert found.waves == tuple(range(8))
        assert [o.name for o in found.operations] == [f"op{t}" for t in range(8)]

    def test_with_four_workspaces_they_run_side_by_side(self) -> None:
        touches = [pair for k in range(4) for pair in (("", f"ws{k}"), (f"ws{k} b{k}", f"b{k}"))]
        found = blocks_in_waves(program(touches), 4)
        assert found.waves == (0, 0, 0, 0, 1, 1, 1, 1)
        assert [o.name for o in found.operations] == ["op0", "op2", "op4", "op6", "op1", "op3", "op5", "op7"]

    def test_dependent_operations_in_one_wave_are_named(self) -> None:
        made = program((("a", "b"), ("b", "c")))
        with pytest.raises(GraphError, match="op0 and op1 are both in wave 0"):
            verify_waves(replace(made, waves=(0, 0)))

    def test_an_order_that_changes_what_is_read_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("solver.schedule.waves.waves", lambda before, workers: iter([[1], [0]]))
        with pytest.raises(InternalError, match="what an operation has to follow"):
            blocks_in_waves(program((("a", "b"), ("b", "c"))), 2)

    def test_the_new_order_keeps_the_dependencies(self) -> None:
        made = program((("a", "b"), ("b", "c"), ("x", "y"), ("c y", "b")))
        found = blocks_in_waves(made, 2)
        assert found.waves == (0, 0, 1, 2)
        assert all(found.waves[s] < found.waves[t] for t, b in enumerate(predecessors(found)) for s in b)


def test_updates_at_the_end_wait_for_the_whole_backward_pass() -> None:
    found = training_program(residual(), scratch_budget=1 << 20, update="end", workers=4)
    updates = [t for t, s in zip(found.times, found.steps, strict=True) if s.kernel == "Update"]
    others = [t for t, s in zip(found.times, found.steps, strict=True) if s.kernel != "Update"]
    assert updates == [max(others) + 1] * 4
