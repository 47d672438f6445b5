"""What problems and layouts may be: each rule by name, and the fast check beside the reference check."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
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
from solver.layout.check import is_sound
from solver.layout.check.fast import Rectangles, rectangles
from solver.layout.check.reference import violations
from solver.layout.check.sweep import disjoint
from tests.support.buffers import layout, problem
from tests.support.training_shaped import training_columns


def valid_buffer(id: str = "x", size: Any = 4, start: Any = 0, end: Any = 2, **other: Any) -> Buffer:
    return Buffer(id, size, Lifespan(start, end), **other)


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        (valid_buffer(size=-3), "size", "size -3"),
        (valid_buffer(size=1.5), "size", "size 1.5"),
        (valid_buffer(size=True), "size", "size True"),
        (valid_buffer(size=2**63), "size", "size 9223372036854775808"),
        (valid_buffer(start=2, end=2), "lifespan", "empty lifespan [2, 2)"),
        (valid_buffer(start=3, end=2), "lifespan", "empty lifespan [3, 2)"),
        (valid_buffer(start=-1), "lifespan", "[-1, 2)"),
        (valid_buffer(end=2.0), "lifespan", "[0, 2.0)"),
        (valid_buffer(alignment=0), "alignment", "alignment 0"),
        (valid_buffer(alignment=-8), "alignment", "alignment -8"),
        (valid_buffer(alignment=12), "alignment", "alignment 12"),
        (valid_buffer(alignment=2.0), "alignment", "alignment 2.0"),
        (valid_buffer(offset=-1), "offset", "pinned at -1"),
        (valid_buffer(offset=0.0), "offset", "pinned at 0.0"),
        (valid_buffer(offset=24, alignment=16), "offset", "not a multiple of its alignment 16"),
    ],
)
def test_a_bad_buffer_is_named_with_its_field(bad: Buffer, field: str, words: str) -> None:
    assert_named(bad, field, words)


def assert_named(bad: Buffer, field: str, words: str) -> None:
    """Among few buffers, which are looked at one by one, and among many, of which arrays choose some."""
    for others in (1, 100):
        good = [valid_buffer(f"good{i}") for i in range(others)]
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
    assert_named(valid_buffer(size=4, start=2, end=9, holes=holes), "gaps", words)


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
    check_problem(LayoutProblem((valid_buffer(size=size, start=2, end=9, holes=holes),)))


def test_ids_are_unique() -> None:
    with pytest.raises(ProblemError, match="'a' has the id of another buffer") as caught:
        check_problem(LayoutProblem((valid_buffer("a"), valid_buffer("b"), valid_buffer("a"))))
    assert caught.value.pointer == "/buffers/2/id"


def test_pins_must_not_claim_the_same_bytes_at_the_same_time() -> None:
    pins = (
        valid_buffer("a", 8, 0, 3, offset=0),
        valid_buffer("b", 8, 2, 4, offset=8),
        valid_buffer("c", 4, 2, 3, offset=6),
    )
    with pytest.raises(ProblemError, match=r"'c' is pinned where buffer '[ab]' is pinned"):
        check_problem(LayoutProblem(pins))
    check_problem(LayoutProblem(pins[:2]))


def test_pins_conflict_beside_buffers_without_a_pin() -> None:
    """What is not pinned can go elsewhere. Of two pins the later one is named, by its place."""
    free, pinned = valid_buffer("free", 64, 0, 9), valid_buffer("a", 8, 0, 3, offset=0)
    check_problem(LayoutProblem((free, pinned)))
    with pytest.raises(ProblemError, match="'b' is pinned where buffer 'a' is pinned") as caught:
        check_problem(
            LayoutProblem(
                (free, pinned, valid_buffer("other", 64, 0, 9), valid_buffer("b", 8, 2, 4, offset=7))
            )
        )
    assert caught.value.path == ("buffers", 3, "offset")


def test_pins_may_share_bytes_at_different_times() -> None:
    check_problem(LayoutProblem((valid_buffer("a", 8, 0, 2, offset=0), valid_buffer("b", 8, 2, 4, offset=0))))


def test_loads_and_pins_beyond_63_bits_are_refused_and_those_within_are_not() -> None:
    check_problem(problem((2**62, 0, 1), (2**62 - 1, 0, 1)))
    check_problem(problem((2**62, 0, 1), (2**62, 4, 5), (2**62, 1, 4)))
    check_problem(LayoutProblem((valid_buffer("a", 2**62, offset=2**62 - 1), valid_buffer("b", 1))))
    with pytest.raises(ProblemError, match=r"'b1' brings the bytes live at step 4 beyond 2\*\*63 - 1"):
        check_problem(problem((2**62, 0, 5), (2**62, 4, 6)))
    with pytest.raises(ProblemError, match="'a' is pinned at 4611686018427387904 and ends beyond"):
        check_problem(LayoutProblem((valid_buffer("a", 2**62, offset=2**62), valid_buffer("b", 1))))


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
    apart = [
        valid_buffer(f"b{i}", 2**61, offset=(i % 3) * 2**61, start=i // 3, end=i // 3 + 1) for i in range(300)
    ]
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
    p = LayoutProblem(
        (valid_buffer("a", 4, alignment=4, offset=8), valid_buffer("b", 4, alignment=4)), capacity=10
    )
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


# ------------------------------------------------------- The fast check says what the reference check says


#: Layouts; `./run fuzz` compares 100,000.
LAYOUTS = 100_000 if os.environ.get("ARENAPLAN_FUZZ") else 10_000

#: Numbers that no array of 64 bits holds, and offsets that are no numbers of bytes.
ODD_OFFSETS: tuple[Any, ...] = (2**70, -(2**70), 2**63 - 1, 2**62, -1, 1.5, True)


def lifespan(rng: random.Random, first: int, last: int) -> Lifespan:
    start = rng.randrange(first, last)
    return Lifespan(start, rng.randint(start + 1, last))


def holes(rng: random.Random, span: Lifespan, size: int) -> tuple[Hole, ...]:
    """Holes that lie apart in the lifespan, some with bytes, some without."""
    edges = sorted(
        rng.sample(range(span.start, span.end + 1), min(2 * rng.randint(0, 2), span.end - span.start))
    )
    found = []
    for start, end in list(pairwise(edges))[::2]:
        low, high = sorted((rng.randint(0, size), rng.randint(0, size)))
        found.append(Hole(Lifespan(start, end), low, high))
    empty = sum(h.lifespan.end - h.lifespan.start for h in found if h.low == h.high)
    return () if size and empty == span.end - span.start else tuple(found)


def buffer(rng: random.Random, i: int) -> Buffer:
    span, size = lifespan(rng, 0, 9), rng.choice((0, 1, 2, 3, 4, 8, 12))
    made = Buffer(f"b{i}", size, span, rng.choice((1, 1, 2, 4)))
    return replace(made, holes=holes(rng, span, size)) if rng.random() < 0.4 else made


def offsets(rng: random.Random, buffers: list[Buffer]) -> list[Any]:
    """At random, where many overlap; or the lowest aligned offset that overlaps nothing placed before."""
    if rng.random() < 0.3:
        return [rng.randrange(0, 24, b.alignment) for b in buffers]
    found: list[Any] = []
    for i, b in enumerate(buffers):
        offset, before = 0, LayoutProblem(tuple(buffers[: i + 1]))
        while any(v.rule == "overlap" for v in violations(before, Layout((*found, offset), 0), _last(i))):
            offset += b.alignment
        found.append(offset)
    return found


def _last(i: int) -> list[tuple[int, int]]:
    return [(j, i) for j in range(i)]


def case(rng: random.Random) -> tuple[LayoutProblem, Layout]:
    """A problem and a layout of it, right or damaged in one to three places."""
    buffers = [buffer(rng, i) for i in range(rng.randint(0, 6))]
    at = offsets(rng, buffers)
    for i, offset in enumerate(at):
        if rng.random() < 0.15:
            buffers[i] = replace(buffers[i], offset=offset)
    peak = max((o + b.size for o, b in zip(at, buffers, strict=True) if b.size), default=0)
    capacity = rng.choice((None, None, peak, peak + 1))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3)) if at else 0):
        i = rng.randrange(len(at))
        match rng.randrange(9):
            case 0 | 1 | 2:  # by one byte, often into a neighbour or off its alignment, or away from its pin
                at[i] += rng.choice((-1, 1))
            case 3:  # by an aligned step
                at[i] += rng.choice((-1, 1)) * buffers[i].alignment
            case 4:  # onto another one
                at[i] = rng.choice(at)
            case 5:
                at[i] = rng.choice(ODD_OFFSETS)
            case 6:
                peak += rng.choice((-1, 1))
            case 7:
                capacity = max(0, peak - 1)
            case _:
                other = buffers[i].lifespan.start + rng.choice((0, 2**64))
                moved = Lifespan(other, other + rng.randint(1, 9))
                buffers[i] = replace(buffers[i], lifespan=moved, holes=())
    if rng.random() < 0.01:
        at = at[:-1] if rng.random() < 0.5 else [*at, 0]
    return LayoutProblem(tuple(buffers), capacity), Layout(tuple(at), peak)


def largest(problem: LayoutProblem, layout: Layout) -> int:
    return max(*layout.offsets, *(b.lifespan.end for b in problem.buffers), 0)


def swept(rows: Rectangles) -> bool | None:
    """What the compiled sweep says, None where numbers do not fit 64 bits."""
    plain = all(column.dtype == np.int64 for column in rows)
    return disjoint(*rows[:4]) if plain and len(rows[0]) else None


def test_the_fast_check_says_what_the_reference_check_says() -> None:
    rules: Counter[str] = Counter()
    for seed in range(LAYOUTS):
        problem, layout = case(random.Random(seed))
        expected = list(violations(problem, layout))
        assert Counter(find_violations(problem, layout)) == Counter(expected), seed
        if is_sound(problem, layout):
            assert not expected, seed
        else:
            assert expected or largest(problem, layout) >= 2**63, seed
        if len(layout.offsets) == len(problem.buffers):
            clear = swept(rectangles(problem, layout.offsets))
            assert clear is None or clear is not any(v.rule == "overlap" for v in expected), seed
        rules.update({v.rule for v in expected} or {"none"})
    # Every rule is broken often enough, and many layouts are right.
    assert set(rules) == {"none", "count", "offset", "alignment", "pin", "overlap", "peak", "capacity"}
    assert min(rules.values()) >= LAYOUTS // 250, rules
    assert rules["none"] >= LAYOUTS // 5, rules


@pytest.mark.parametrize("seed", range(4))
def test_many_small_layouts_side_by_side_in_time_are_one_large_one(seed: int) -> None:
    """More rows than one block has, of which some are live for long."""
    rng = random.Random(seed)
    buffers: list[Buffer] = [Buffer(f"long{i}", 4, Lifespan(0, 200 + i)) for i in range(3)]
    at: list[int] = [0, 4, 8]
    for k in range(150):
        parts = [buffer(rng, i) for i in range(3)]
        for i, b in enumerate(parts):
            span = Lifespan(b.lifespan.start + 3 * k, b.lifespan.end + 3 * k)
            buffers.append(Buffer(f"{k}.{i}", b.size, span, b.alignment))
            at.append(12 + 40 * (k % 4) + 12 * i - 11 * (rng.random() < 0.05))
    problem = LayoutProblem(tuple(buffers))
    layout = Layout(tuple(at), max(o + b.size for o, b in zip(at, buffers, strict=True) if b.size))
    check_problem(problem)
    expected = list(violations(problem, layout))
    assert any(v.rule == "overlap" for v in expected)
    assert Counter(find_violations(problem, layout)) == Counter(expected)
    assert len(find_violations(problem, layout, limit=2)) == 2
    assert not swept(rectangles(problem, layout.offsets))


# ------------------------------------------------------------------------------------------------------ sweep


def fast(p: LayoutProblem, offsets: list[int]) -> bool:
    start = np.array([b.lifespan.start for b in p.buffers])
    end = np.array([b.lifespan.end for b in p.buffers])
    bottom = np.array(offsets)
    return disjoint(start, end, bottom, bottom + np.array([b.size for b in p.buffers]))


def test_huge() -> None:
    assert fast(problem((2**62, 0, 2), (2**61, 0, 2)), [0, 2**62])
    assert not fast(problem((2**62, 0, 2), (2**61, 0, 2)), [0, 2**62 - 1])


@pytest.mark.parametrize("buffers", [30, 300, 4800])
@pytest.mark.parametrize("damage", ["none", "overlap", "alignment", "peak", "offset", "capacity"])
def test_the_answer_through_columns_is_that_of_the_slow_check(damage: str, buffers: int) -> None:
    """The slow check names what the columns only notice."""
    columns = training_columns(3, buffers=buffers)
    p = columns.problem()
    tops = np.cumsum(columns.size).tolist()
    offsets = [top - size for top, size in zip(tops, columns.size.tolist(), strict=True)]
    peak = tops[-1]
    match damage:
        case "overlap":
            at = next(i for i in range(1, len(offsets)) if columns.start[i] == columns.start[i - 1])
            offsets[at] -= 64
        case "alignment":
            offsets[-1] += 1
            peak += 1
        case "peak":
            peak += 64
        case "offset":
            offsets[0] = -64
        case "capacity":
            p = LayoutProblem(p.buffers, peak - 1)
    layout = Layout(tuple(offsets), peak)
    assert is_sound(p, layout) is (damage == "none")
    found = find_violations(p, layout, limit=1)
    assert [v.rule for v in found] == ([] if damage == "none" else [damage])


def test_very_many_pairs_are_swept() -> None:
    """3,000 buffers that share a step are 4.5 million pairs: from 4 million on the compiled sweep decides."""
    p = problem(*[(1, 0, 2)] * 3000)
    assert find_violations(p, Layout(tuple(range(3000)), 3000)) == ()
    wrong = Layout((*range(2999), 2998), 2999)
    assert [v.rule for v in find_violations(p, wrong)] == ["overlap"]
