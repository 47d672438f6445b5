from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver.errors import ProblemError
from solver.layout import Buffer, Hole, LayoutProblem, Lifespan, check_problem, in_pieces, max_load, pieces
from solver.layout.bounds.max_load import exact_max_load
from solver.layout.model.instance import FREE, Instance, arrays_kept
from tests.support.buffers import problem, random_problem
from tests.support.shapes import SHAPES


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
