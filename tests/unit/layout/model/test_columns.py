from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver.errors import ProblemError
from solver.layout import Buffer, LayoutProblem, Lifespan, check_problem, max_load
from solver.layout.bounds.max_load import exact_max_load
from solver.layout.check.rules import COLUMNS_FROM
from solver.layout.model.columns import UNPINNED, Columns
from solver.layout.model.instance import Instance
from tests.support.buffers import problem, random_problem
from tests.support.training_shaped import training_shaped


def one(**changes: object) -> LayoutProblem:
    return LayoutProblem((replace(Buffer("a", 8, Lifespan(0, 2), 4), **changes),))  # type: ignore[arg-type]  # wrong on purpose


def test_one_value_a_buffer() -> None:
    columns = Columns.of(
        LayoutProblem((Buffer("a", 8, Lifespan(0, 2), 4, 12), Buffer("b", 3, Lifespan(1, 5))))
    )
    assert columns is not None
    assert [
        c.tolist() for c in (columns.size, columns.start, columns.end, columns.alignment, columns.pin)
    ] == [
        [8, 3],
        [0, 1],
        [2, 5],
        [4, 1],
        [12, UNPINNED],
    ]
    assert columns.well_formed()


@pytest.mark.parametrize(
    "p",
    [
        one(size=8.0),
        one(size=True),
        one(size=0),
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
def test_what_does_not_fit_makes_no_columns(p: LayoutProblem) -> None:
    assert Columns.of(p) is None


@pytest.mark.parametrize(
    "p", [one(alignment=3), one(lifespan=Lifespan(2, 2)), one(offset=2), one(lifespan=Lifespan(3, 1))]
)
def test_ill_formed(p: LayoutProblem) -> None:
    columns = Columns.of(p)
    assert columns is not None
    assert not columns.well_formed()


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


def test_steps_beyond_64_bits_become_sections() -> None:
    far = 2**70
    instance = Instance.of(
        LayoutProblem((Buffer("a", 1, Lifespan(0, far)), Buffer("b", 1, Lifespan(far, far + 1))))
    )
    assert (instance.start.tolist(), instance.end.tolist(), instance.sections) == ([0, 1], [1, 2], 2)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"size": 0}, "size"), ({"alignment": 3}, "alignment"), ({"id": "b0"}, "id"), ({"offset": 1}, "offset")],
)
def test_a_bad_buffer_among_many_is_named(change: dict[str, object], field: str) -> None:
    buffers = list(training_shaped(0, buffers=COLUMNS_FROM + 800).buffers)
    assert len(buffers) > COLUMNS_FROM
    check_problem(LayoutProblem(tuple(buffers)))
    buffers[777] = replace(buffers[777], **change)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ProblemError) as caught:
        check_problem(LayoutProblem(tuple(buffers)))
    assert caught.value.path == ("buffers", 777, field)
