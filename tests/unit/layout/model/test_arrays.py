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
from tests.support.training_shaped import training_shaped


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


@pytest.mark.parametrize("alignments", [(1,), (8,), (1, 16)])
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_of_large_problems_is_the_exact_one(seed: int, alignments: tuple[int, ...]) -> None:
    p = random_problem(random.Random(seed), 1200, 300, 90, alignments)
    assert max_load(p) == exact_max_load(p)


def test_the_bound_of_training_steps_and_its_witness() -> None:
    p = training_shaped(2, buffers=3000)
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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"size": -1}, "size"),
        ({"alignment": 3}, "alignment"),
        ({"id": "b0"}, "id"),
        ({"offset": 1}, "offset"),
    ],
)
def test_a_bad_buffer_among_many_is_named(change: dict[str, object], field: str) -> None:
    buffers = list(training_shaped(0, buffers=1600).buffers)
    check_problem(LayoutProblem(tuple(buffers)))
    buffers[777] = replace(buffers[777], **change)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ProblemError) as caught:
        check_problem(LayoutProblem(tuple(buffers)))
    assert caught.value.path == ("buffers", 777, field)


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


@pytest.mark.parametrize("seed", range(8))
def test_the_padded_load_is_the_same_in_arrays(seed: int) -> None:
    rng = random.Random(seed)
    p = random_problem(rng, 1200, (5, 40, 400)[seed % 3], (9, 5000)[seed % 2], (4, 64))
    assert max_load(p) == exact_max_load(p)


def test_pins_of_a_large_problem_are_checked() -> None:
    buffers = list(training_shaped(0, buffers=1600).buffers)
    first = replace(buffers[7], offset=0)
    buffers[7], buffers[900] = first, replace(first, id="again")
    with pytest.raises(ProblemError, match="is pinned where buffer"):
        check_problem(LayoutProblem(tuple(buffers)))


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


@pytest.mark.parametrize(
    "hole",
    [
        Hole(Lifespan(1, 5)),
        Hole(Lifespan(5, 13)),
        Hole(Lifespan(5, 5)),
        Hole(Lifespan(7, 9)),
        Hole(Lifespan(5, 6), 4, 3),
        Hole(Lifespan(5, 6), 0, 9),
        Hole(Lifespan(5, 6), -1, 3),
    ],
)
def test_a_bad_hole_among_many_is_named(hole: Hole) -> None:
    buffers = list(training_shaped(0, buffers=1600).buffers)
    good = Buffer("lent", 8, Lifespan(2, 12), holes=(Hole(Lifespan(6, 8)),))
    check_problem(LayoutProblem((*buffers, good)))
    bad = replace(good, holes=(*good.holes, hole))
    with pytest.raises(ProblemError, match="'lent' has the hole") as caught:
        check_problem(LayoutProblem((*buffers, bad)))
    assert caught.value.path == ("buffers", len(buffers), "gaps")


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
