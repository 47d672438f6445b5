"""`every` runs all cases and loses no failure."""

from __future__ import annotations

import inspect

import pytest

from tests.support import every as module
from tests.support.every import every, grid, some


def test_every_case_runs_and_every_failure_is_told() -> None:
    seen = []

    def check() -> None:
        with every() as case:
            for number in range(4):
                with case(number):
                    seen.append(number)
                    assert number != 1
                    if number == 2:
                        pytest.fail("two")

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases fail") as caught:
        check()
    assert seen == [0, 1, 2, 3]
    first, second = caught.value.exceptions
    assert (first.__notes__, second.__notes__) == (["case: 1"], ["case: 2"])


def test_no_case_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="there is no case"), every():
        pass


def test_what_passes_or_skips() -> None:
    with every() as case, case("good"):
        assert True
    with pytest.raises(pytest.skip.Exception), every() as case, case("absent"):
        pytest.skip("not here")


def test_a_grid_is_one_test_that_names_the_cases_that_fail() -> None:
    seen = []

    @grid(("a", "b"), [(1, 2), (3, 4)])
    @grid("c", [pytest.param("x", id="one"), "y"])
    def check(a: int, b: int, c: str, more: str) -> None:
        seen.append(f"{a}{b}{c}{more}")
        assert (a, c) != (3, "x")

    with pytest.raises(BaseExceptionGroup, match="1 of 4 cases fail") as caught:
        check(more="!")
    assert seen == ["12x!", "12y!", "34x!", "34y!"]
    assert caught.value.exceptions[0].__notes__ == ["case: {'a': 3, 'b': 4}, one"]
    assert list(inspect.signature(check).parameters) == ["more"]


@pytest.mark.parametrize(
    ("takes_all", "expected"), [(False, "ax ay az bz bx by"), (True, "ax ay az bx by bz cx cy cz")]
)
def test_an_axis_in_turn(monkeypatch: pytest.MonkeyPatch, takes_all: bool, expected: str) -> None:
    """Each combination of the others has some of its values, and all of them together have every value."""
    monkeypatch.setattr(module, "ALL", takes_all)
    seen: list[str] = []

    @grid("second", "xyz", turn=1)
    @grid("first", some("ab", beside="c"))
    @grid("third", range(3))
    def check(first: str, second: str, third: int) -> None:
        assert third in range(3)
        seen.append(first + second)

    check()
    assert sorted(seen) == sorted(expected.split() * (3 if takes_all else 1))
