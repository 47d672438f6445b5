"""MiniMalloc's CSV in: what is taken, under which names, and one clear error for each mistake."""

from __future__ import annotations

import pytest

from solver.errors import DocumentError, ProblemError
from solver.importers import MiniMallocTable, load_minimalloc
from solver.layout import Buffer, Hole, Layout, LayoutProblem, Lifespan
from tests.support.buffers import DATA, read_csv
from tests.support.every import grid

HEADER = "id,lower,upper,size"
FILES = sorted(DATA.glob("*/*.csv"))


def load(*lines: str, capacity: int | None = None) -> MiniMallocTable:
    return load_minimalloc("\n".join(lines).encode() + b"\n", capacity=capacity)


def buffers(*lines: str) -> tuple[Buffer, ...]:
    return load(*lines).problem.buffers


def only(*lines: str) -> Buffer:
    (found,) = buffers(*lines)
    return found


# ---------------------------------------------------------------------------------- what is taken


def test_plain() -> None:
    table = load(HEADER, "b1,0,3,4", "b2,3,9,5", capacity=12)
    expected = (Buffer("b1", 4, Lifespan(0, 3)), Buffer("b2", 5, Lifespan(3, 9)))
    assert table == MiniMallocTable(LayoutProblem(expected, 12), (None, None))


def test_any_order_of_columns() -> None:
    assert only("offset,size,alignment,upper,id,lower", "16,4,8,3,b,1") == Buffer(
        "b", 4, Lifespan(1, 3), 8, 16
    )


@grid("name", ["id", "buffer", "buffer_id"])
@grid("start", ["lower", "start", "begin"])
def test_synonyms(name: str, start: str) -> None:
    assert only(f"{name},{start},upper,size", "b,1,3,4") == Buffer("b", 4, Lifespan(1, 3))


def test_end_is_the_last_step_inside() -> None:
    assert only("id,start,end,size", "b,1,3,4").lifespan == Lifespan(1, 4)
    assert only("id,start,end,size", "b,3,3,4").lifespan == Lifespan(3, 4)


def test_empty_cells_leave_out() -> None:
    found = only(f"{HEADER},alignment,gaps,hint,offset", "b,1,3,4,,,,")
    assert found == Buffer("b", 4, Lifespan(1, 3))


def test_no_rows() -> None:
    assert load(HEADER).problem == LayoutProblem(())


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n\n"])
def test_ends_of_lines(end: str) -> None:
    text = f"{HEADER}\r\nb,1,3,4{end}"
    assert len(load_minimalloc(text.encode()).problem.buffers) == 1


def test_ids_are_any_text() -> None:
    assert [b.id for b in buffers(HEADER, "conv1/weight:0 é,0,1,1", '"a",0,1,1')] == [
        "conv1/weight:0 é",
        '"a"',
    ]


@pytest.mark.skipif(not FILES, reason="the public instances do not stand beside this check-out")
def test_public_instances() -> None:
    for path in FILES:
        assert load_minimalloc(path.read_bytes()).problem == read_csv(path), path.name


# ------------------------------------------------------------------------------------------- gaps


@grid(
    ("gaps", "lifespan"),
    [
        ("10-12", Lifespan(12, 30)),
        ("28-30", Lifespan(10, 28)),
        ("0-12", Lifespan(12, 30)),
        ("28-99", Lifespan(10, 28)),
        ("10-12 28-30", Lifespan(12, 28)),
        ("12-15 10-12", Lifespan(15, 30)),
        ("25-28 28-30", Lifespan(10, 25)),
        ("10-20 15-18", Lifespan(20, 30)),
        ("20-30 22-25", Lifespan(10, 20)),
        ("0-5 30-40", Lifespan(10, 30)),
        ("15-20@0:8", Lifespan(10, 30)),
        ("15-20@0:8 10-12", Lifespan(12, 30)),
    ],
)
def test_gaps_at_the_ends_shorten(gaps: str, lifespan: Lifespan) -> None:
    assert only(f"{HEADER},gaps", f"b,10,30,8,{gaps}").lifespan == lifespan


def test_gaps_are_inclusive_where_the_lifespan_is() -> None:
    assert only("id,start,end,size,gaps", "b,10,29,8,10-11").lifespan == Lifespan(12, 30)
    assert only("id,start,end,size,gaps", "b,10,29,8,15-16").holes == (Hole(Lifespan(15, 17)),)


@grid(
    ("gaps", "found"),
    [
        ("12-15", [(12, 15, 0, 0)]),
        ("20-22 12-15", [(12, 15, 0, 0), (20, 22, 0, 0)]),
        ("12-15 14-18", [(12, 18, 0, 0)]),
        ("12-15 15-18", [(12, 18, 0, 0)]),
        ("12-15@0:4", [(12, 15, 0, 4)]),
        ("12-15@0:4 15-18@4:8", [(12, 15, 0, 4), (15, 18, 4, 8)]),
        ("12-15@0:8 13-14", [(13, 14, 0, 0)]),
        ("10-12@2:3", [(10, 12, 2, 3)]),
        ("5-12@2:3 28-40@2:3", [(10, 12, 2, 3), (28, 30, 2, 3)]),
        ("12-15@0:4 15-18", [(12, 15, 0, 4), (15, 18, 0, 0)]),
    ],
)
def test_gaps_inside(gaps: str, found: list[tuple[int, int, int, int]]) -> None:
    read = only(f"{HEADER},gaps", f"b,10,30,8,{gaps}")
    assert read.lifespan == Lifespan(10, 30)
    assert [(g.lifespan.start, g.lifespan.end, g.low, g.high) for g in read.holes] == found


def test_a_gap_at_an_end_and_one_inside() -> None:
    read = only(f"{HEADER},gaps", "b,10,30,8,8-12 14-16@0:2 25-30")
    assert (read.lifespan, read.holes) == (Lifespan(12, 25), (Hole(Lifespan(14, 16), 0, 2),))


# ------------------------------------------------------------------------------------------ hints


def test_hints_that_are_a_layout() -> None:
    table = load(f"{HEADER},hint", "a,0,2,4,4", "b,1,3,4,0")
    assert table.hints == (4, 0)
    assert table.incumbent() == Layout((4, 0), 8)


def test_pins_stand_in_for_hints() -> None:
    table = load(f"{HEADER},hint,offset", "a,0,2,4,-1,4", "b,1,3,4,0,")
    assert table.incumbent() == Layout((4, 0), 8)


@pytest.mark.parametrize(
    "rows", [("a,0,2,4,0", "b,1,3,4,0"), ("a,0,2,4,0", "b,1,3,4,-1"), ("a,0,2,4,", "b,1,3,4,-1")]
)
def test_hints_that_are_none(rows: tuple[str, ...]) -> None:
    assert load(f"{HEADER},hint", *rows).incumbent() is None


def test_no_hints_no_rows() -> None:
    assert load(HEADER).incumbent() is None
    assert load(f"{HEADER},hint").incumbent() is None


# --------------------------------------------------------------------------------------- mistakes

GOOD = "a,0,9,8"
TEXTS = {
    "empty": (b"", "empty"),
    "blank": (b"\n\n", "empty"),
    "not UTF-8": (b"id,lower,upper,size\nb\xff,0,1,1\n", "Line 2 is not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbfid,lower,upper,size\n", "byte order mark"),
    "no header": (b"b1,0,3,4\n", "Line 1: there is no column 'b1'"),
    "another format": (b'{"format": "arenaplan.graph"}', "Line 1: there is no column"),
    "unknown column": (b"id,lower,upper,size,aligment\n", "no column 'aligment'"),
    "no size": (b"id,lower,upper\n", "the column size is missing"),
    "twice": (b"id,lower,upper,size,size\n", "column size stands there twice"),
    "twice by synonym": (b"id,lower,start,upper,size\n", "column lower stands there twice"),
    "upper and end": (b"id,lower,upper,end,size\n", "column upper stands there twice"),
    "spaces": (b"id, lower, upper, size\n", "no column ' lower'"),
    "few cells": (b"id,lower,upper,size\na,0,9\n", "Line 2 has 3 cells, the header has 4"),
    "many cells": (b"id,lower,upper,size\na,0,9,8\nb,0,9,8,7\n", "Line 3 has 5 cells"),
    "blank line": (b"id,lower,upper,size\na,0,9,8\n\nb,0,9,8\n", "Line 3 is blank"),
}


@grid(("text", "words"), list(TEXTS.values()))
def test_no_table(text: bytes, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_minimalloc(text)
    assert words in caught.value.message
    assert caught.value.remedy


ROWS = {
    # name: columns beyond the four, row 2 of the file, the column at fault, words
    "size is a word": ("", "b,0,9,big", "size", "size is 'big'"),
    "size is a fraction": ("", "b,0,9,4.0", "size", "size is '4.0'"),
    "size has an exponent": ("", "b,0,9,1e3", "size", "size is '1e3'"),
    "size has separators": ("", "b,0,9,1_000", "size", "size is '1_000'"),
    "size in other digits": ("", "b,0,9,٤", "size", "size is '٤'"),
    "size is empty": ("", "b,0,9,", "size", "size is ''"),
    "size is hexadecimal": ("", "b,0,9,0x10", "size", "size is '0x10'"),
    "size is padded": ("", "b,0,9, 4", "size", "size is ' 4'"),
    "size is negative": ("", "b,0,9,-4", "size", "size is -4"),
    "size is beyond 63 bits": ("", f"b,0,9,{2**63}", "size", f"size is {2**63}"),
    "size is endless": ("", "b,0,9," + "9" * 5000, "size", "size is '999"),
    "sum is beyond 63 bits": ("", f"b,0,9,{2**63 - 1}", "size", "beyond 2**63 - 1"),
    "lower is a fraction": ("", "b,0.5,9,8", "lower", "lower is '0.5'"),
    "lower is negative": ("", "b,-1,9,8", "lower", "lower is -1"),
    "upper is negative": ("", "b,0,-9,8", "upper", "upper is -9"),
    "upper is lower": ("", "b,9,9,8", "upper", "lifespan [9, 9) is empty"),
    "upper is before lower": ("", "b,9,5,8", "upper", "lifespan [9, 5) is empty"),
    "id is empty": ("", ",0,9,8", "id", "id is ''"),
    "id is endless": ("", "x" * 1025 + ",0,9,8", "id", "id is 'xxx"),
    "id holds a control character": ("", "\x1b[2J,0,9,8", "id", "id is '\\x1b[2J'"),
    "id turns the direction of writing": ("", "a\u202eb,0,9,8", "id", "id is 'a\\u202eb'"),
    "id is taken": ("", GOOD, "id", "'a' has the id of another buffer"),
    "alignment is no power of two": ("alignment", "b,0,9,8,3", "alignment", "has alignment 3"),
    "alignment is zero": ("alignment", "b,0,9,8,0", "alignment", "has alignment 0"),
    "alignment is negative": ("alignment", "b,0,9,8,-8", "alignment", "alignment is -8"),
    "offset is a word": ("offset", "b,0,9,8,low", "offset", "offset is 'low'"),
    "offset is negative": ("offset", "b,0,9,8,-1", "offset", "offset is -1"),
    "offsets overlap": ("offset", "b,0,9,8,4", "offset", "'b' is pinned where buffer 'a' is pinned"),
    "offset is misaligned": ("alignment,offset", "b,0,9,8,16,24", "offset", "24, not a multiple of its"),
    "hint is a word": ("hint", "b,0,9,8,x", "hint", "hint is 'x'"),
    "hint is negative": ("hint", "b,0,9,8,-2", "hint", "hint is -2"),
    "gap is a word": ("gaps", "b,0,9,8,soon", "gaps", "the gap 'soon' is malformed"),
    "gap has one end": ("gaps", "b,0,9,8,3", "gaps", "malformed"),
    "gap is empty": ("gaps", "b,0,9,8,3-3", "gaps", "the gap '3-3' is empty"),
    "gaps that differ": (
        "gaps",
        "b,0,9,8,3-5 4-6@0:2",
        "gaps",
        "the gap [4, 6) overlaps one that keeps other",
    ),
    "gaps that differ, too": ("gaps", "b,0,9,8,3-5@1:2 4-6@0:2", "gaps", "the gap [4, 6) overlaps"),
    "gaps leave nothing": ("gaps", "b,0,9,8,0-9", "gaps", "leave nothing"),
    "gap keeps bytes outside": ("gaps", "b,0,9,8,3-5@4:9", "gaps", "bytes outside the buffer"),
    "gap keeps nothing": ("gaps", "b,0,9,8,3-5@4:4", "gaps", "keeps no bytes"),
    "gap keeps bytes backwards": ("gaps", "b,0,9,8,3-5@4:2", "gaps", "ends where it begins, or before"),
}


@grid(("columns", "row", "column", "words"), list(ROWS.values()))
def test_bad_row(columns: str, row: str, column: str, words: str) -> None:
    header = ",".join(filter(None, [HEADER, columns]))
    fill = {"alignment": "1", "offset": "0"}
    good = ",".join([GOOD, *(fill.get(name, "") for name in columns.split(",") if name)])
    with pytest.raises(ProblemError) as caught:
        load(header, good, row)
    assert words in caught.value.message
    assert caught.value.message.startswith("Line 3: ")
    assert caught.value.path == ("rows", 1, column)
    assert caught.value.remedy
    assert len(str(caught.value)) < 400


def test_bad_capacity_is_no_row() -> None:
    with pytest.raises(ProblemError) as caught:
        load(HEADER, GOOD, capacity=-1)
    assert caught.value.path == ("capacity",)
