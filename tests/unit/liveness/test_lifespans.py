"""Lifespans, conflict sets and the buffers of the reference target."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from solver.layout import Lifespan, max_load
from solver.liveness import analyze, conflict_pairs, conflict_sets, lifespans
from solver.training import Lifetime, OperandKind, TrainingProgram, derive
from tests.support.graphs import chain, convolutional, residual


def spans(program: TrainingProgram) -> dict[str, tuple[int, int]]:
    return {str(i): (s.start, s.end) for i, s in lifespans(program).items()}


def test_the_lifespans_of_a_chain() -> None:
    # 0 fc1 1 fc2 2 mse 3 seed 4 mse' 5 fc2 grad 6 fc2 deriv 7 fc1 grad 8 w1 9 b1 10 w2 11 b2
    found = spans(derive(chain()))
    assert found["x"] == (0, 8)
    assert found["t"] == (0, 5)
    assert found["h1"] == (0, 8)
    assert found["h2"] == (1, 5)
    assert found["loss"] == (2, 12)
    assert found["loss@grad"] == (3, 5)
    assert found["h2@grad"] == (4, 7)
    assert found["h1@grad"] == (6, 8)
    assert found["w2@grad"] == (5, 11)
    assert found["w1"] == (0, 12)


def test_persistent_operands_live_the_whole_iteration() -> None:
    program = derive(residual())
    for index, span in lifespans(program).items():
        if program.operands[index].lifetime is Lifetime.MAX:
            assert (span.start, span.end) == (0, len(program.steps))


def test_declared_outputs_live_to_the_end() -> None:
    program = derive(convolutional())
    assert spans(program)["f"][1] == len(program.steps)


def test_an_unused_output_lives_in_its_own_step_only() -> None:
    program = derive(chain(trainable=0))
    assert spans(program)["h2"] == (1, 3)


def test_scratch_lives_for_one_step() -> None:
    program = derive(convolutional())
    found = lifespans(program)
    scratch = [i for i, o in program.operands.items() if o.kind is OperandKind.SCRATCH]
    assert scratch
    assert all(found[i].end - found[i].start == 1 for i in scratch)


def test_what_the_forward_saves_lives_until_its_backward() -> None:
    program = derive(convolutional())
    names = [str(s.index) for s in program.steps]
    found = spans(program)
    saved = [o.id for o in program.operands.values() if o.kind is OperandKind.SAVED]
    assert len(saved) == 1
    assert found[saved[0]] == (names.index("pool1:forward"), names.index("pool1:calc_derivative") + 1)


def test_buffers_are_rounded_up_to_the_alignment() -> None:
    pool = analyze(derive(chain()), alignment=64).pools[0]
    assert all(b.size % 64 == 0 and 0 <= b.size - b.type.nbytes < 64 for b in pool.buffers)
    assert max_load(pool.problem()).bytes > 0


def test_each_operand_has_exactly_one_buffer() -> None:
    program = derive(residual())
    target = analyze(program)
    assert sorted(b.id for b in target.pools[0].buffers) == sorted(o.id for o in program.operands.values())
    assert [s.id for s in target.steps] == [str(s.index) for s in program.steps]


intervals = st.dictionaries(
    st.integers(0, 40),
    st.tuples(st.integers(0, 20), st.integers(1, 8)).map(lambda p: Lifespan(p[0], p[0] + p[1])),
    max_size=14,
)


@given(intervals)
def test_conflict_pairs_are_exactly_the_overlapping_ones(found: dict[int, Lifespan]) -> None:
    expected = {frozenset(p) for p in combinations(found, 2) if found[p[0]].overlaps(found[p[1]])}
    pairs = [frozenset(p) for p in conflict_pairs(found)]
    assert set(pairs) == expected
    assert len(pairs) == len(expected)


@given(intervals)
def test_conflict_sets_are_symmetric(found: dict[int, Lifespan]) -> None:
    sets = conflict_sets(found)
    assert set(sets) == set(found)
    assert all(a in sets[b] and b not in sets[b] for b in sets for a in sets[b])


def test_half_open_lifespans_that_touch_do_not_conflict() -> None:
    assert not list(conflict_pairs({"a": Lifespan(0, 3), "b": Lifespan(3, 5)}))
