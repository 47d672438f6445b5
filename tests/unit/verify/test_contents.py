"""Terms and what bytes hold, beside a plain dictionary of bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.verify.contents import UNDEFINED, Bytes, Terms


def test_the_same_key_is_the_same_term() -> None:
    terms = Terms()
    first = terms.number(("entry", 0))
    assert terms.number(("entry", 0)) == first
    assert terms.number(("entry", 1)) != first
    assert terms.number((3, 1, (first,))) == terms.number((3, 1, (first,)))
    assert terms.number((3, 1, (first,))) != terms.number((3, 2, (first,)))


def test_what_was_never_written_holds_nothing() -> None:
    memory = Bytes()
    assert memory.read(0, 1) == memory.read(100, 200) == UNDEFINED


def test_a_write_in_the_middle_ends_the_whole() -> None:
    memory = Bytes()
    memory.write(0, 12, 1)
    memory.write(4, 8, 2)
    assert memory.read(4, 8) == 2
    assert {memory.read(*span) for span in ((0, 12), (0, 4), (8, 12), (4, 12))} == {UNDEFINED}


def test_what_is_left_undefined_holds_nothing() -> None:
    memory = Bytes()
    memory.write(0, 12, 1)
    memory.write(4, 5, UNDEFINED)
    assert memory.read(0, 12) == UNDEFINED


def test_neighbours_stay() -> None:
    memory = Bytes()
    memory.write(0, 4, 1)
    memory.write(8, 12, 3)
    memory.write(4, 8, 2)
    assert [memory.read(low, low + 4) for low in (0, 4, 8)] == [1, 2, 3]
    memory.write(4, 8, UNDEFINED)
    assert [memory.read(low, low + 4) for low in (0, 4, 8)] == [1, UNDEFINED, 3]


def test_two_halves_are_not_a_whole() -> None:
    memory = Bytes()
    memory.write(0, 4, 1)
    memory.write(4, 8, 1)
    assert memory.read(0, 8) == UNDEFINED


actions = st.lists(st.tuples(st.integers(0, 24), st.integers(1, 12), st.booleans()), min_size=1, max_size=25)


@settings(max_examples=300)
@given(actions)
def test_any_writes_leave_what_a_dictionary_of_bytes_holds(made: list[tuple[int, int, bool]]) -> None:
    """A byte holds which byte of which write; a range holds a term if its bytes are those of one write."""
    memory, plain = Bytes(), dict[int, tuple[int, int]]()
    sizes: dict[int, int] = {}
    for number, (low, size, defined) in enumerate(made):
        memory.write(low, low + size, number if defined else UNDEFINED)
        sizes[number] = size
        for k in range(size):
            plain[low + k] = (number if defined else UNDEFINED, k)
    for low in range(40):
        for size in range(1, 14):
            held = [plain.get(low + k, (UNDEFINED, 0)) for k in range(size)]
            number = held[0][0]
            whole = number != UNDEFINED and held == [(number, k) for k in range(sizes[number])]
            assert memory.read(low, low + size) == (number if whole else UNDEFINED)
