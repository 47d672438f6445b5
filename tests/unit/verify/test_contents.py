"""Terms, pieces of them, and lines of bytes, beside a plain dictionary of bytes."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.verify.contents import UNDEFINED, Bytes, Contents

#: What one byte holds: which byte of which term.
Plain = dict[int, tuple[int, int]]


class TestTerms:
    def test_the_same_key_is_the_same_term(self) -> None:
        contents = Contents()
        first = contents.term(("entry", 0), 16)
        assert contents.term(("entry", 0), 16) == first
        assert contents.term(("entry", 1), 16) != first
        assert contents.sizes[first] == 16

    def test_pieces_that_make_a_whole_term_are_that_term(self) -> None:
        contents = Contents()
        term = contents.term("a", 12)
        assert contents.joined([(term, 0, 4), (term, 4, 12)]) == term

    def test_pieces_in_another_order_are_something_else(self) -> None:
        contents = Contents()
        term = contents.term("a", 12)
        swapped = contents.joined([(term, 6, 12), (term, 0, 6)])
        assert swapped != term
        assert contents.sizes[swapped] == 12
        assert contents.joined([(swapped, 6, 12), (swapped, 0, 6)]) == term

    def test_a_part_is_not_the_whole(self) -> None:
        contents = Contents()
        term = contents.term("a", 12)
        part = contents.joined([(term, 0, 8)])
        assert part != term
        assert part == contents.joined([(term, 0, 3), (term, 3, 8)])
        assert contents.sizes[part] == 8

    def test_pieces_of_two_terms(self) -> None:
        contents = Contents()
        a, b = contents.term("a", 4), contents.term("b", 8)
        both = contents.joined([(a, 0, 4), (b, 0, 8)])
        assert contents.joined([(both, 0, 4)]) == a
        assert contents.joined([(both, 4, 12)]) == b
        assert contents.joined([(both, 2, 6)]) == contents.joined([(a, 2, 4), (b, 0, 2)])


class TestBytes:
    def test_what_was_never_written_holds_nothing(self) -> None:
        memory = Bytes(Contents())
        assert memory.read(0, 1) == UNDEFINED
        assert memory.read(100, 200) == UNDEFINED

    def test_a_write_in_the_middle_leaves_both_ends(self) -> None:
        contents = Contents()
        a, b = contents.term("a", 12), contents.term("b", 4)
        memory = Bytes(contents)
        memory.write(0, 12, a)
        memory.write(4, 8, b)
        assert memory.read(4, 8) == b
        assert memory.read(0, 4) == contents.joined([(a, 0, 4)])
        assert memory.read(8, 12) == contents.joined([(a, 8, 12)])
        assert memory.read(0, 12) == contents.joined([(a, 0, 4), (b, 0, 4), (a, 8, 12)])

    def test_what_is_cleared_holds_nothing_and_ends_every_whole(self) -> None:
        contents = Contents()
        a = contents.term("a", 12)
        memory = Bytes(contents)
        memory.write(0, 12, a)
        memory.clear(4, 5)
        assert memory.read(0, 12) == UNDEFINED
        assert memory.read(5, 12) == contents.joined([(a, 5, 12)])
        memory.write(0, 12, UNDEFINED)
        assert memory.read(5, 12) == UNDEFINED

    def test_a_shorter_term_does_not_stand_for_a_longer_range(self) -> None:
        """A number is whole only where all its bytes are there."""
        contents = Contents()
        a = contents.term("a", 12)
        memory = Bytes(contents)
        memory.write(0, 12, a)
        memory.clear(8, 12)
        assert memory.read(0, 8) not in (a, UNDEFINED)


class _Both:
    """The same writes to `Bytes` and to a dictionary of bytes."""

    def __init__(self) -> None:
        self.contents = Contents()
        self.memory = Bytes(self.contents)
        self.plain: Plain = {}
        self.held: dict[int, tuple[tuple[int, int], ...]] = {}

    def fresh(self, low: int, size: int) -> None:
        term = self.contents.term(("fresh", len(self.held)), size)
        self.held[term] = tuple((term, k) for k in range(size))
        self.put(low, low + size, term)

    def put(self, low: int, high: int, number: int) -> None:
        self.memory.write(low, high, number)
        for k in range(low, high):
            self.plain.pop(k, None)
        if number != UNDEFINED:
            self.plain.update(zip(range(low, high), self.held[number], strict=True))

    def clear(self, low: int, size: int) -> None:
        self.memory.clear(low, low + size)
        for k in range(low, low + size):
            self.plain.pop(k, None)

    def undefined(self, low: int, size: int) -> None:
        self.put(low, low + size, UNDEFINED)

    def again(self, low: int, size: int) -> None:
        """A copy of what lies somewhere else, as a copy step makes it."""
        source = (low * 7 + size) % 24
        number = self.read(source, source + size)
        self.put(low, low + size, number)

    def read(self, low: int, high: int) -> int:
        """What is read must be what the dictionary has; equal numbers must mean equal bytes."""
        number = self.memory.read(low, high)
        wanted = tuple(self.plain[k] for k in range(low, high) if k in self.plain)
        assert (number == UNDEFINED) == (len(wanted) < high - low)
        if number != UNDEFINED:
            assert self.contents.sizes[number] == high - low
            assert self.held.setdefault(number, wanted) == wanted
        return number


_ACTIONS: tuple[Callable[[_Both, int, int], None], ...] = (
    _Both.fresh, _Both.fresh, _Both.again, _Both.clear, _Both.undefined,
)  # fmt: skip

actions = st.lists(
    st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 24), st.integers(1, 12)), min_size=1, max_size=25
)


@settings(max_examples=200)
@given(actions)
def test_any_writes_leave_what_a_dictionary_of_bytes_holds(
    made: list[tuple[Callable[[_Both, int, int], None], int, int]],
) -> None:
    both = _Both()
    for act, low, size in made:
        act(both, low, size)
        both.read(low, low + size)
    for low in range(0, 36, 3):
        for high in range(low + 1, 37, 5):
            both.read(low, high)


@settings(max_examples=200)
@given(actions)
def test_equal_bytes_have_equal_numbers(
    made: list[tuple[Callable[[_Both, int, int], None], int, int]],
) -> None:
    both = _Both()
    for act, low, size in made:
        act(both, low, size)
    numbers: dict[tuple[tuple[int, int], ...], int] = {}
    for low in range(37):
        for high in range(low + 1, 38):
            number = both.read(low, high)
            if number != UNDEFINED:
                found = tuple(both.plain[k] for k in range(low, high))
                assert numbers.setdefault(found, number) == number
