"""Terms and what bytes hold, beside a plain dictionary of bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.verify.execution import UNDEFINED, Bytes, Terms


def test_the_same_key_is_the_same_term() -> None:
    terms = Terms()
    first = terms.number(("entry", 0))
    assert terms.number(("entry", 0)) == first
    assert terms.number(("entry", 1)) != first
    assert terms.number((3, 1, (first,))) == terms.number((3, 1, (first,)))
    assert terms.number((3, 1, (first,))) != terms.number((3, 2, (first,)))


def test_what_was_never_written_holds_nothing() -> None:
    memory = Bytes(Terms())
    assert memory.read(0, 1) == memory.read(100, 200) == UNDEFINED


def test_a_write_in_the_middle_ends_the_whole() -> None:
    memory = Bytes(Terms())
    memory.write(0, 12, 1)
    memory.write(4, 8, 2)
    assert memory.read(4, 8) == 2
    assert {memory.read(*span) for span in ((0, 12), (0, 4), (8, 12), (4, 12))} == {UNDEFINED}


def test_what_is_left_undefined_holds_nothing() -> None:
    memory = Bytes(Terms())
    memory.write(0, 12, 1)
    memory.write(4, 5, UNDEFINED)
    assert memory.read(0, 12) == UNDEFINED


def test_neighbours_stay() -> None:
    memory = Bytes(Terms())
    memory.write(0, 4, 1)
    memory.write(8, 12, 3)
    memory.write(4, 8, 2)
    assert [memory.read(low, low + 4) for low in (0, 4, 8)] == [1, 2, 3]
    memory.write(4, 8, UNDEFINED)
    assert [memory.read(low, low + 4) for low in (0, 4, 8)] == [1, UNDEFINED, 3]


def test_two_halves_are_not_a_whole() -> None:
    memory = Bytes(Terms())
    memory.write(0, 4, 1)
    memory.write(4, 8, 1)
    assert memory.read(0, 8) == UNDEFINED


def with_pieces() -> tuple[Terms, int, int]:
    """Terms of two values of 16 bytes, and of what is cut out of one."""
    terms = Terms()
    first, second = terms.number("first"), terms.number("second")
    terms.joined([(first, 4, 8, 16)])
    terms.close()
    return terms, first, second


def test_pieces_that_make_up_a_whole_are_it() -> None:
    terms, first, second = with_pieces()
    front, back = terms.joined([(first, 0, 4, 16)]), terms.joined([(first, 4, 16, 16)])
    assert terms.joined([(front, 0, 4, 4), (back, 0, 12, 12)]) == first
    assert terms.joined([(back, 0, 12, 12), (front, 0, 4, 4)]) not in (first, second)
    assert terms.joined([(first, 0, 16, 16)]) == first
    assert terms.joined([(first, 0, 8, 16), (second, 8, 16, 16)]) not in (first, second)


def test_pieces_of_pieces_are_pieces() -> None:
    terms, first, second = with_pieces()
    both = terms.joined([(first, 8, 16, 16), (second, 0, 16, 16)])
    assert terms.joined([(both, 2, 6, 24)]) == terms.joined([(first, 10, 14, 16)])
    assert terms.joined([(both, 8, 24, 24)]) == second
    across = terms.joined([(both, 6, 10, 24)])
    assert across == terms.joined([(first, 14, 16, 16), (second, 0, 2, 16)])
    assert terms.joined([(across, 0, 4, 4), (UNDEFINED, 0, 4, 4)]) == UNDEFINED


def test_only_pieces_of_the_reference_are_values() -> None:
    terms, first, _ = with_pieces()
    assert terms.has_pieces
    assert terms.is_value(first)
    assert terms.is_value(terms.joined([(first, 4, 8, 16)]))
    assert not terms.is_value(terms.joined([(first, 4, 9, 16)]))
    assert not terms.is_value(UNDEFINED)


def test_a_part_is_there_with_the_whole() -> None:
    terms, first, second = with_pieces()
    memory, part = Bytes(terms), terms.joined([(first, 4, 8, 16)])
    memory.write(0, 16, first)
    memory.write(4, 8, part)
    assert (memory.read(0, 16), memory.read(4, 8)) == (first, part)
    memory.write(8, 24, second)
    assert (memory.read(0, 16), memory.read(4, 8), memory.read(8, 24)) == (
        terms.joined([(first, 0, 8, 16), (second, 0, 8, 16)]),
        part,
        second,
    )


actions = st.lists(st.tuples(st.integers(0, 24), st.integers(1, 12), st.booleans()), min_size=1, max_size=25)


@settings(max_examples=300)
@given(actions)
def test_any_writes_leave_what_a_dictionary_of_bytes_holds(made: list[tuple[int, int, bool]]) -> None:
    """A byte holds which byte of which write; a range holds a term if its bytes are those of one write."""
    memory, plain = Bytes(Terms()), dict[int, tuple[int, int]]()
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


@settings(max_examples=300)
@given(actions)
def test_with_pieces_every_byte_is_what_it_is_in_a_dictionary(made: list[tuple[int, int, bool]]) -> None:
    """Any range holds the bytes of all writes that are left in it, in their order."""
    terms = Terms()
    numbers = [terms.number(k) for k in range(len(made))]
    terms.joined([(terms.number("other"), 0, 1, 2)])
    terms.close()
    memory, plain = Bytes(terms), dict[int, tuple[int, int]]()
    for number, (low, size, defined) in zip(numbers, made, strict=True):
        memory.write(low, low + size, number if defined else UNDEFINED)
        for k in range(size):
            plain[low + k] = (number if defined else UNDEFINED, k)
    for low in range(40):
        for size in range(1, 14):
            held = [plain.get(low + k, (UNDEFINED, 0)) for k in range(size)]
            pieces = [(number, k, k + 1, made[number][1]) for number, k in held if number != UNDEFINED]
            expected = terms.joined(pieces) if len(pieces) == size else UNDEFINED
            assert memory.read(low, low + size) == expected
