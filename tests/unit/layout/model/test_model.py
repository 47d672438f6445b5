"""Problems as arrays, deadlines, and what is taken out of a problem before it is searched."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from threading import Event

import numpy as np
import pytest

from solver.errors import ProblemError
from solver.layout import (
    Buffer,
    Deadline,
    Hole,
    LayoutProblem,
    Lifespan,
    check_problem,
    find_violations,
    in_pieces,
    max_load,
    pieces,
)
from solver.layout.bounds import exact_max_load
from solver.layout.greedy.placement import place
from solver.layout.kernels.skyline_kernel import strides
from solver.layout.model.heap import give_back
from solver.layout.model.instance import FREE, Instance, arrays_kept, layout_of, round_up
from solver.layout.model.reduce import peel, stretches
from solver.layout.model.sorting import in_order, ranks
from tests.support.buffers import problem, random_problem
from tests.support.shapes import SHAPES


def test_a_section_ends_where_a_birth_follows_a_death() -> None:
    instance = Instance.of(problem((1, 0, 3), (1, 1, 7), (1, 5, 9), (1, 100, 101)))
    assert instance.start.tolist() == [0, 0, 1, 2]
    assert instance.end.tolist() == [1, 2, 2, 3]
    assert instance.sections == 3


def test_death_and_birth_at_the_same_step_do_not_meet() -> None:
    instance = Instance.of(problem((1, 0, 3), (1, 3, 4)))
    assert instance.end[0] <= instance.start[1]


@pytest.mark.parametrize("seed", range(30))
def test_sections_keep_conflicts_and_degrees(seed: int) -> None:
    p = random_problem(random.Random(seed), 20, 30, 9)
    instance = Instance.of(p)
    assert instance.sections <= len(p.buffers)
    for i, a in enumerate(p.buffers):
        meets = (instance.start < instance.end[i]) & (instance.end > instance.start[i])
        assert meets.tolist() == [a.lifespan.overlaps(b.lifespan) for b in p.buffers]
        assert instance.degree()[i] == meets.sum() - 1


def test_sizes_are_rounded_up_to_the_smallest_alignment_and_the_peak_is_exact() -> None:
    instance = Instance.of(problem((5, 0, 1), (17, 0, 1), alignment=16))
    assert instance.size.tolist() == [16, 32]
    assert instance.exact.tolist() == [5, 17]
    assert instance.unit == 16
    assert not instance.misaligning
    assert layout_of(instance, np.array([32, 0])).peak == 37


def test_alignments_that_sizes_do_not_keep_are_part_of_the_unit() -> None:
    rows = (Buffer("a", 96, Lifespan(0, 2), 64), Buffer("b", 24, Lifespan(0, 2), 8))
    instance = Instance.of(LayoutProblem(rows))
    assert instance.misaligning
    assert instance.unit == 8
    assert strides(instance, instance.unit).tolist() == [8, 1]
    whole = Instance.of(LayoutProblem((replace(rows[0], size=128), replace(rows[1], size=64))))
    assert not whole.misaligning
    assert whole.unit == 64
    assert strides(whole, whole.unit).tolist() == [1, 1]


def test_no_buffers() -> None:
    instance = Instance.of(LayoutProblem(()))
    assert (len(instance), instance.sections, instance.unit) == (0, 0, 1)
    assert not instance.pinned
    assert not instance.misaligning
    assert layout_of(instance, instance.offset).peak == 0


def test_round_up() -> None:
    assert [round_up(n, 16) for n in (0, 1, 16, 17, 2**62 + 1)] == [0, 16, 16, 32, 2**62 + 16]


def test_peak_load_seen_is_the_largest_load_of_a_life() -> None:
    for seed in range(30):
        instance = Instance.of(random_problem(random.Random(seed), 25, 40, 9))
        load = instance.load()
        lives = zip(instance.start.tolist(), instance.end.tolist(), strict=True)
        assert instance.peak_load_seen().tolist() == [int(load[start:end].max()) for start, end in lives]


# ----------------------------------------------------------------------------------------------------- arrays


def one(**changes: object) -> LayoutProblem:
    return LayoutProblem((replace(Buffer("a", 8, Lifespan(0, 2), 4), **changes),))  # type: ignore[arg-type]  # wrong on purpose


def test_one_value_a_buffer() -> None:
    steps = Instance.in_steps(
        LayoutProblem((Buffer("a", 8, Lifespan(0, 2), 4, 12), Buffer("b", 3, Lifespan(1, 5))))
    )
    assert steps is not None
    assert steps.sections == 5
    assert [c.tolist() for c in (steps.exact, steps.start, steps.end, steps.alignment, steps.offset)] == [
        [8, 3],
        [0, 1],
        [2, 5],
        [4, 1],
        [12, FREE],
    ]


@pytest.mark.parametrize(
    "p",
    [
        one(size=8.0),
        one(size=True),
        one(size=-1),
        one(size=2**63),
        one(alignment="4"),
        one(alignment=0),
        one(offset=-4),
        one(offset=4.0),
        one(offset=2**63 - 4),
        one(lifespan=Lifespan(-1, 2)),
        one(lifespan=Lifespan(0, 2**63)),
        problem((2**62, 0, 1), (2**62, 0, 1)),
    ],
)
def test_what_does_not_fit_makes_no_arrays(p: LayoutProblem) -> None:
    assert Instance.in_steps(p) is None
    with pytest.raises(ValueError, match="does not fit 63 bits"):
        Instance.of(p)


@pytest.mark.parametrize("alignments", [(1,), (8,), (1, 16), (4, 64)])
@pytest.mark.parametrize(("steps", "largest"), [(300, 90), (5, 9), (40, 5000), (400, 9)])
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_large_problems_is_the_exact_one(
    seed: int, steps: int, largest: int, alignments: tuple[int, ...]
) -> None:
    p = random_problem(random.Random(seed), 1200, steps, largest, alignments)
    assert max_load(p) == exact_max_load(p)


def test_the_bound_beyond_64_bits() -> None:
    p = LayoutProblem(tuple(Buffer(str(i), 2**62, Lifespan(0, 1)) for i in range(1000)))
    assert max_load(p).bytes == 1000 * 2**62


def test_steps_beyond_63_bits_are_refused_by_name() -> None:
    far = 2**63 - 1
    near = Buffer("a", 1, Lifespan(0, far - 1)), Buffer("b", 1, Lifespan(far - 1, far))
    check_problem(LayoutProblem(near))
    instance = Instance.of(LayoutProblem(near))
    assert (instance.start.tolist(), instance.end.tolist(), instance.sections) == ([0, 1], [1, 2], 2)
    with pytest.raises(ProblemError, match=r"^Buffer 'c' has lifespan \[0, 9223372036854775808\)") as caught:
        check_problem(LayoutProblem((*near, Buffer("c", 1, Lifespan(0, far + 1)))))
    assert caught.value.path == ("buffers", 2, "lifespan")


def test_arrays_are_made_once_while_they_are_kept() -> None:
    p = problem((4, 0, 2), (4, 1, 3))
    with arrays_kept(p):
        assert Instance.in_steps(p) is Instance.in_steps(replace(p, capacity=9))
        assert Instance.in_steps(LayoutProblem(p.buffers[:1])) is not Instance.in_steps(p)
    assert Instance.in_steps(p) is not Instance.in_steps(p)


@pytest.mark.parametrize("seed", range(5))
def test_arrays_hold_what_buffers_say(seed: int) -> None:
    rng = random.Random(seed)
    large = random_problem(rng, 1100, 300, 90, (4, 16))
    small = LayoutProblem(large.buffers[:900])
    for p in (large, small):
        instance = Instance.of(p)
        assert instance.exact.tolist() == [b.size for b in p.buffers]
        assert instance.size.tolist() == [-(-b.size // 4) * 4 for b in p.buffers]
        assert set(instance.offset.tolist()) == {FREE}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", ["gaps", "gaps, aligned", "any"])
def test_pieces_are_the_same_from_arrays(shape: str, seed: int) -> None:
    p = SHAPES[shape](60, seed)
    lent = [_lent_at_the_end(buffer) for buffer in p.buffers]
    for problem_ in (p, LayoutProblem(tuple(lent))):
        steps = Instance.in_steps(problem_)
        assert steps is not None
        expected = [(q.lifespan.start, q.lifespan.end, q.low, q.high, q.owner) for q in pieces(problem_)]
        assert list(map(tuple, steps.held().tolist())) == expected
        assert max_load(problem_) == exact_max_load(in_pieces(problem_))


def _lent_at_the_end(buffer: Buffer) -> Buffer:
    """The buffer with a hole at its last step, unless its holes would then leave nothing of it."""
    last = Hole(Lifespan(buffer.lifespan.end - 1, buffer.lifespan.end))
    lent = replace(buffer, holes=(*buffer.holes, last))
    return lent if list(pieces(LayoutProblem((lent,)))) else buffer


def test_one_alignment_and_no_pins_take_the_memory_of_one_value() -> None:
    steps = Instance.in_steps(problem(*[(8, step, step + 2) for step in range(1000)]))
    assert steps is not None
    assert steps.alignment.tolist() == [1] * 1000
    assert steps.offset.tolist() == [FREE] * 1000
    assert steps.alignment.strides == steps.offset.strides == (0,)


def test_pieces_are_the_same_row_after_row_and_column_after_column() -> None:
    steps = Instance.in_steps(SHAPES["gaps"](300, 7))
    assert steps is not None
    rows, fields = steps.held("C"), steps.held()
    assert rows.tolist() == fields.tolist()
    assert rows.flags.c_contiguous
    assert fields.T.flags.c_contiguous


# --------------------------------------------------- Deadlines: what comes after a search has time of its own


def test_time_is_left_for_what_comes_after() -> None:
    deadline = Deadline.after(100.0)
    assert deadline.sooner(10.0).remaining == pytest.approx(90.0, abs=1.0)
    assert deadline.leaving(0.25).remaining == pytest.approx(75.0, abs=1.0)
    assert deadline.leaving(0.0).remaining == pytest.approx(100.0, abs=1.0)


def test_without_a_limit_there_is_nothing_to_leave() -> None:
    assert Deadline().sooner(1.0) == Deadline().leaving(0.5) == Deadline()


def test_what_was_cancelled_stays_so() -> None:
    event = Event()
    part = Deadline.after(100.0).or_when(event).leaving(0.5)
    assert part.remaining > 0
    event.set()
    assert part.remaining == 0
    assert Deadline(None, event).leaving(0.5).expired


# ----------------------------------------------------------------------------------------------------- reduce


def test_stretches_end_where_nothing_crosses() -> None:
    instance = Instance.of(problem((1, 0, 2), (1, 1, 3), (1, 3, 4), (1, 5, 6)))
    assert [part.tolist() for part in stretches(instance, np.arange(4))] == [[2], [3], [0, 1]]
    assert stretches(instance, np.arange(0)) == []


def test_a_lone_buffer_is_peeled_and_a_full_step_is_not() -> None:
    core, peeled = peel(Instance.of(problem((8, 0, 1), (8, 0, 1), (3, 1, 2))), 16)
    assert core.tolist() == [0, 1] or (peeled.tolist(), core.tolist()) == ([1, 0, 2], [])
    assert 2 in peeled.tolist()


def test_nothing_is_peeled_that_may_not_fit() -> None:
    """5 + (5 - 1) + 5 = 14: below that, a neighbour in the middle leaves no room of 5 beside it."""
    p = Instance.of(problem((5, 0, 1), (5, 0, 1), (1, 0, 1), (1, 0, 1)))
    assert peel(p, 12)[1].size < 4
    assert 0 not in peel(p, 12)[1][-1:].tolist()


@pytest.mark.parametrize("seed", range(40))
def test_the_peeled_fit_last_whatever_the_core_does(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 30, 12, 12, (rng.choice((1, 4)),))
    instance = Instance.of(p)
    capacity = max_load(p).bytes + rng.choice((0, 5))
    core, peeled = peel(instance, capacity)
    assert sorted([*core.tolist(), *peeled.tolist()]) == list(range(30))
    order = core.tolist()
    rng.shuffle(order)
    placed, _ = place(instance.subset(np.array(order, dtype=np.int64)), np.arange(len(order)))
    core_peak = max((placed + instance.exact[order]).tolist(), default=0)
    offsets, _ = place(instance, np.array([*order, *peeled.tolist()], dtype=np.int64))
    made = layout_of(instance, offsets)
    assert find_violations(p, made) == ()
    assert made.peak <= max(capacity, core_peak)


# -------------------------------------------------- Orders and ranks of whole numbers, beside what NumPy says


#: Few, as many as are packed, and more; small numbers, and some that leave no room for a position.
COUNTS = (1, 2, 511, 512, 3000)
LIMITS = (1, 7, 1000, 10**9, 2**62)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_orders_as_numpy_does(count: int, limit: int) -> None:
    rng = np.random.default_rng((count, limit))
    first, second = rng.integers(-limit, limit, count), rng.integers(0, limit, count)
    assert in_order(second).tolist() == np.argsort(second, kind="stable").tolist()
    assert in_order(first, second).tolist() == np.lexsort((second, first)).tolist()
    assert in_order(-first, second * 0.5).tolist() == np.lexsort((second * 0.5, -first)).tolist()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_equal_values_share_a_rank_among_all_columns(count: int, limit: int) -> None:
    rng = np.random.default_rng((count, limit))
    columns = rng.integers(0, limit, count), rng.integers(0, limit, count + 1)
    everything = sorted({*columns[0].tolist(), *columns[1].tolist()})
    rank = {value: k for k, value in enumerate(everything)}
    assert [found.tolist() for found in ranks(*columns)] == [[rank[v] for v in c.tolist()] for c in columns]


# ------------------------------------------------------------------------------------------------------- heap


def test_arrays_stay_what_they_are() -> None:
    kept = np.arange(100_000)
    give_back()
    assert kept.sum() == 4_999_950_000


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def no_library(name: object) -> object:
        asked.append(name)
        raise OSError("there is no such library")

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    give_back()
    assert asked == [None]
