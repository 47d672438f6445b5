from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from solver.errors import ProblemError
from solver.layout import (
    Buffer,
    Hole,
    Layout,
    LayoutProblem,
    Lifespan,
    check_problem,
    find_violations,
    max_load,
)
from tests.support.buffers import layout, problem


def buffer(id: str = "x", size: Any = 4, start: Any = 0, end: Any = 2, **other: Any) -> Buffer:
    return Buffer(id, size, Lifespan(start, end), **other)


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        (buffer(size=-3), "size", "size -3"),
        (buffer(size=1.5), "size", "size 1.5"),
        (buffer(size=True), "size", "size True"),
        (buffer(size=2**63), "size", "size 9223372036854775808"),
        (buffer(start=2, end=2), "lifespan", "empty lifespan [2, 2)"),
        (buffer(start=3, end=2), "lifespan", "empty lifespan [3, 2)"),
        (buffer(start=-1), "lifespan", "[-1, 2)"),
        (buffer(end=2.0), "lifespan", "[0, 2.0)"),
        (buffer(alignment=0), "alignment", "alignment 0"),
        (buffer(alignment=-8), "alignment", "alignment -8"),
        (buffer(alignment=12), "alignment", "alignment 12"),
        (buffer(alignment=2.0), "alignment", "alignment 2.0"),
        (buffer(offset=-1), "offset", "pinned at -1"),
        (buffer(offset=0.0), "offset", "pinned at 0.0"),
        (buffer(offset=24, alignment=16), "offset", "not a multiple of its alignment 16"),
    ],
)
def test_a_bad_buffer_is_named_with_its_field(bad: Buffer, field: str, words: str) -> None:
    assert_named(bad, field, words)


def assert_named(bad: Buffer, field: str, words: str) -> None:
    """Among few buffers, which are looked at one by one, and among many, of which arrays choose some."""
    for others in (1, 100):
        good = [buffer(f"good{i}") for i in range(others)]
        with pytest.raises(ProblemError) as caught:
            check_problem(LayoutProblem((*good, bad)))
        assert words in f"{caught.value.message} {caught.value.remedy}"
        assert "'x'" in caught.value.message
        assert caught.value.pointer == f"/buffers/{others}/{field}"
        assert caught.value.remedy


def hole(start: Any, end: Any, low: Any = 0, high: Any = 0) -> Hole:
    return Hole(Lifespan(start, end), low, high)


@pytest.mark.parametrize(
    ("holes", "words"),
    [
        ((hole(3.0, 4),), "Steps are whole numbers"),
        ((hole(3, 4.0),), "Steps are whole numbers"),
        ((hole(3, 3),), "ends after its start"),
        ((hole(4, 3),), "ends after its start"),
        ((hole(1, 3),), "inside the lifespan [2, 9)"),
        ((hole(8, 10),), "inside the lifespan [2, 9)"),
        ((hole(3, 5), hole(4, 6)), "the one before ends at 5"),
        ((hole(6, 7), hole(3, 4)), "the one before ends at 7"),
        ((hole(3, 4, 0.0, 1),), "Bytes are whole numbers"),
        ((hole(3, 4, 0, 1.0),), "Bytes are whole numbers"),
        ((hole(3, 4, 0, True),), "Bytes are whole numbers"),
        ((hole(3, 4, -1, 1),), "inside the buffer"),
        ((hole(3, 4, 2, 1),), "inside the buffer"),
        ((hole(3, 4, 0, 5),), "has the hole [3, 4), which holds bytes [0, 5) of 4"),
        ((hole(2, 9),), "no bytes at any step of its lifespan [2, 9)"),
        ((hole(2, 5), hole(5, 9, 4, 4)), "no bytes at any step of its lifespan [2, 9)"),
    ],
)
def test_a_bad_hole_is_named(holes: tuple[Hole, ...], words: str) -> None:
    assert_named(buffer(size=4, start=2, end=9, holes=holes), "gaps", words)


@pytest.mark.parametrize(
    ("size", "holes"),
    [
        (4, (hole(2, 3), hole(8, 9))),
        (4, (hole(2, 5), hole(5, 8))),
        (4, (hole(2, 9, 0, 4),)),
        (4, (hole(2, 9, 1, 2),)),
        (4, (hole(2, 5), hole(5, 9, 3, 4))),
        (0, (hole(2, 9),)),
    ],
)
def test_holes_that_leave_a_byte_are_right(size: int, holes: tuple[Hole, ...]) -> None:
    check_problem(LayoutProblem((buffer(size=size, start=2, end=9, holes=holes),)))


def test_ids_are_unique() -> None:
    with pytest.raises(ProblemError, match="'a' has the id of another buffer") as caught:
        check_problem(LayoutProblem((buffer("a"), buffer("b"), buffer("a"))))
    assert caught.value.pointer == "/buffers/2/id"


def test_pins_must_not_claim_the_same_bytes_at_the_same_time() -> None:
    pins = (
        buffer("a", 8, 0, 3, offset=0),
        buffer("b", 8, 2, 4, offset=8),
        buffer("c", 4, 2, 3, offset=6),
    )
    with pytest.raises(ProblemError, match=r"'c' is pinned where buffer '[ab]' is pinned"):
        check_problem(LayoutProblem(pins))
    check_problem(LayoutProblem(pins[:2]))


def test_pins_conflict_beside_buffers_without_a_pin() -> None:
    """What is not pinned can go elsewhere. Of two pins the later one is named, by its place."""
    free, pinned = buffer("free", 64, 0, 9), buffer("a", 8, 0, 3, offset=0)
    check_problem(LayoutProblem((free, pinned)))
    with pytest.raises(ProblemError, match="'b' is pinned where buffer 'a' is pinned") as caught:
        check_problem(
            LayoutProblem((free, pinned, buffer("other", 64, 0, 9), buffer("b", 8, 2, 4, offset=7)))
        )
    assert caught.value.path == ("buffers", 3, "offset")


def test_pins_may_share_bytes_at_different_times() -> None:
    check_problem(LayoutProblem((buffer("a", 8, 0, 2, offset=0), buffer("b", 8, 2, 4, offset=0))))


def test_loads_and_pins_beyond_63_bits_are_refused_and_those_within_are_not() -> None:
    check_problem(problem((2**62, 0, 1), (2**62 - 1, 0, 1)))
    check_problem(problem((2**62, 0, 1), (2**62, 4, 5), (2**62, 1, 4)))
    check_problem(LayoutProblem((buffer("a", 2**62, offset=2**62 - 1), buffer("b", 1))))
    with pytest.raises(ProblemError, match=r"'b1' brings the bytes live at step 4 beyond 2\*\*63 - 1"):
        check_problem(problem((2**62, 0, 5), (2**62, 4, 6)))
    with pytest.raises(ProblemError, match="'a' is pinned at 4611686018427387904 and ends beyond"):
        check_problem(LayoutProblem((buffer("a", 2**62, offset=2**62), buffer("b", 1))))


@pytest.mark.parametrize("seed", range(30))
def test_columns_find_the_first_load_beyond_63_bits_that_adding_up_finds(seed: int) -> None:
    """Sums go far beyond 64 bits, and the largest load is near 2**63 - 1: at times below it, at times not."""
    rng, live, rows = random.Random(seed), 8, list[tuple[int, int, int]]()
    for i in range(200):
        rows.append((2**63 // live - rng.randrange(2), i, i + live))
    rows[150] = (2**63 // live + rng.randrange(8) * (seed % 2), 150, 150 + live)
    p = problem(*rows)
    most = max(sum(z for z, s, e in rows if s <= t < e) for t in range(207))
    if most <= 2**63 - 1:
        check_problem(p)
        assert max_load(p).bytes == most
    else:
        with pytest.raises(ProblemError, match="brings the bytes live at step"):
            check_problem(p)


def test_pins_that_share_bytes_are_named_among_very_many() -> None:
    apart = [buffer(f"b{i}", 2**61, offset=(i % 3) * 2**61, start=i // 3, end=i // 3 + 1) for i in range(300)]
    check_problem(LayoutProblem(tuple(apart)))
    wrong = replace(apart[200], offset=1)
    with pytest.raises(ProblemError, match="is pinned where buffer"):
        check_problem(LayoutProblem((*apart[:200], wrong, *apart[201:])))


def test_a_hole_lends_what_a_load_beyond_63_bits_needs() -> None:
    lent = Buffer("a", 2**62, Lifespan(0, 9), holes=(Hole(Lifespan(3, 6)),))
    check_problem(LayoutProblem((lent, Buffer("b", 2**62, Lifespan(4, 6)))))
    with pytest.raises(ProblemError, match="'a' brings the bytes live at step 6"):
        check_problem(LayoutProblem((Buffer("b", 2**62, Lifespan(4, 7)), lent)))


def test_a_hole_in_front_lends_its_bytes_until_it_ends() -> None:
    lent = Buffer("a", 2**62, Lifespan(0, 9), holes=(Hole(Lifespan(0, 3)),))
    check_problem(LayoutProblem((lent, Buffer("b", 2**62, Lifespan(0, 3)))))
    with pytest.raises(ProblemError, match="'b' brings the bytes live at step 4"):
        check_problem(LayoutProblem((lent, Buffer("b", 2**62, Lifespan(4, 6)))))


def test_the_bytes_that_a_hole_keeps_count() -> None:
    """From step 3 to 6 the upper half of 2**62 bytes is live."""
    lent = Buffer("a", 2**62, Lifespan(0, 9), holes=(Hole(Lifespan(3, 6), 2**61, 2**62),))
    room = 2**63 - 1 - 2**61
    check_problem(
        LayoutProblem((lent, Buffer("b", room, Lifespan(4, 6)), Buffer("c", 2**61, Lifespan(7, 9))))
    )
    with pytest.raises(ProblemError, match="'b' brings the bytes live at step 4"):
        check_problem(LayoutProblem((lent, Buffer("b", room + 1, Lifespan(4, 6)))))


@pytest.mark.parametrize("capacity", [-1, 2.5, True])
def test_a_capacity_is_a_number_of_bytes(capacity: Any) -> None:
    with pytest.raises(ProblemError, match="capacity"):
        check_problem(LayoutProblem((), capacity))


def test_a_size_beyond_the_capacity_is_no_error_of_the_problem() -> None:
    check_problem(problem((100, 0, 1), capacity=10))


def test_a_right_layout_has_no_violations() -> None:
    p = problem((4, 0, 2), (4, 1, 3), (4, 2, 4))
    assert find_violations(p, layout(p, 0, 4, 0)) == ()


def test_each_rule_is_named() -> None:
    p = LayoutProblem((buffer("a", 4, alignment=4, offset=8), buffer("b", 4, alignment=4)), capacity=10)
    found = find_violations(p, Layout((2, 4), 9))
    assert [(v.rule, v.buffers) for v in found] == [
        ("alignment", ("a",)),
        ("pin", ("a",)),
        ("overlap", ("a", "b")),
        ("peak", ()),
    ]
    assert find_violations(p, Layout((8, 4), 12))[0].rule == "capacity"
    assert find_violations(p, Layout((8, -4), 12))[0].rule == "offset"
    assert find_violations(p, Layout((8,), 12))[0].rule == "count"


def test_an_overlap_says_which_bytes_during_which_steps() -> None:
    p = problem((10, 0, 5), (10, 3, 8))
    (violation,) = find_violations(p, layout(p, 0, 6))
    assert violation.detail == "both hold bytes [6, 10) during steps [3, 5)"


@pytest.mark.parametrize(("offset", "overlapped"), [(0, {0, 1, 2, 5, 7, 8}), (4, {0, 1, 2, 5, 6, 7, 8})])
def test_bytes_are_held_before_between_and_after_holes_and_as_holes_say_in_them(
    offset: int, overlapped: set[int]
) -> None:
    """Of 8 bytes none are held in steps 3 and 4, and the upper 4 in step 6."""
    holes = (Hole(Lifespan(3, 5)), Hole(Lifespan(6, 7), 4, 8))
    lent = Buffer("lent", 8, Lifespan(0, 9), holes=holes)
    for step in range(9):
        p = LayoutProblem((lent, Buffer("b", 4, Lifespan(step, step + 1))))
        rules = [v.rule for v in find_violations(p, Layout((0, offset), 8))]
        assert rules == (["overlap"] if step in overlapped else []), step


def test_an_overlap_that_neighbours_do_not_show_is_found() -> None:
    """The short first buffer hides from a comparison of neighbours that the two large ones meet."""
    p = problem((100, 10, 31), (50, 0, 3), (90, 5, 31))
    assert [v.buffers for v in find_violations(p, layout(p, 50, 0, 50))] == [("b2", "b0")]
    tall = problem((100, 0, 9), (10, 0, 9), (10, 0, 9))
    assert len(find_violations(tall, layout(tall, 0, 10, 50))) == 2


def test_the_number_of_violations_can_be_limited() -> None:
    p = problem(*[(4, 0, 2)] * 30)
    assert len(find_violations(p, layout(p, *[0] * 30))) == 30 * 29 // 2
    assert len(find_violations(p, layout(p, *[0] * 30), limit=5)) == 5
