"""Tables of plain numbers are read a column at a time, to what reading them line by line gives."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from solver.errors import ArenaplanError
from solver.importers import MiniMallocTable, load_minimalloc

#: The last line. With a gap in it, all lines are read one by one.
PLAIN, GAPPED = "last,0,9,8,1,,,", "last,0,9,8,1,3-5,,"
HEADER = "id,lower,{},size,alignment,gaps,hint,offset"

IDS = st.text("ab1é:. \u00a0\u200b\t", max_size=3) | st.just("x" * 1025)
CELLS = st.sampled_from([
    "", "0", "1", "7", "007", "8", "16", "9", "-1", "+4", " 4", "1_0", "٤", "x", "4.0", str(10**18 - 1),
    str(10**18), str(2**63 - 1), str(2**63), "9" * 30,
])  # fmt: skip
LINES = st.one_of(
    st.tuples(IDS, st.integers(0, 9), st.integers(1, 20), st.integers(0, 64), st.sampled_from(["", "1", "8"]))
    .map(lambda r: f"{r[0]},{r[1]},{r[1] + r[2]},{r[3]},{r[4]},,,"),
    st.tuples(IDS, *[CELLS] * 4).map(lambda r: ",".join([*r, "", "", ""])),
    st.tuples(CELLS, CELLS).map(lambda r: f"b,0,9,8,,,{r[0]},{r[1]}"),
    st.sampled_from(["", "a", "a,0,9", "a,0,9,8,,,,,", "a,0,9,8,,,,\r", ",,,,,,,"]),
)  # fmt: skip


def read(*lines: str, end: str = "\n") -> MiniMallocTable | tuple[type, str, tuple[object, ...]]:
    try:
        return load_minimalloc(end.join(lines).encode())
    except ArenaplanError as error:
        return type(error), error.message, tuple(error.path)


@given(
    st.lists(LINES, min_size=1, max_size=4),
    st.sampled_from(["upper", "end"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_by_columns_and_by_lines(lines: list[str], upper: str, end: str) -> None:
    header = HEADER.format(upper)
    plain, gapped = (read(header, *lines, last, end=end) for last in (PLAIN, GAPPED))
    if isinstance(plain, MiniMallocTable):
        assert isinstance(gapped, MiniMallocTable)
        assert plain.problem.buffers[:-1] == gapped.problem.buffers[:-1]
        assert plain.hints == gapped.hints
        assert pickle.loads(pickle.dumps(plain)) == plain
    else:
        assert plain == gapped
